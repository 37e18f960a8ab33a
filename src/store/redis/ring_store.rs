//! Which store the keys of this process are from, so that no connection writes to another one.

use std::sync::{Arc, Mutex};

use crate::support::lock::lock;

/// The store that the keys of this process are from. All connections that were opened with clones
/// of the same options share it. It is equal to any other, because it is no setting.
#[derive(Clone, Debug, Default)]
pub struct RingStore(Arc<Mutex<KnownStore>>);

#[derive(Debug, Default)]
struct KnownStore {
    /// The id of the store; `None` until its keys were read.
    id: Option<String>,
    /// How often a probe has found another store over an open connection. If this number has grown,
    /// each connection but the one that reads the keys is replaced by a new one, which looks at the
    /// store.
    probes_of_other_stores: u64,
}

impl PartialEq for RingStore {
    fn eq(&self, _: &RingStore) -> bool {
        true
    }
}

impl Eq for RingStore {}

impl RingStore {
    pub(super) fn id(&self) -> Option<String> {
        lock(&self.0).id.clone()
    }

    pub(super) fn set_id(&self, id: &str) {
        lock(&self.0).id = Some(id.to_owned());
    }

    pub(super) fn probes_of_other_stores(&self) -> u64 {
        lock(&self.0).probes_of_other_stores
    }

    pub(super) fn count_probe_of_other_store(&self) {
        lock(&self.0).probes_of_other_stores += 1;
    }
}
