//! Whether this process serves.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::lock::lock;

/// Says whether this process serves. A successor may wait for days until it takes over, and may
/// never do so. Until it serves, the threads that read this flag send nothing to other servers than
/// the store. In the store, they may do nothing but begin a recovery. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct ServingFlag(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_serving: Mutex<bool>,
    begun: Condvar,
}

impl ServingFlag {
    /// The flag of a process that serves from its start.
    pub fn new_serving() -> ServingFlag {
        let flag = ServingFlag::default();
        flag.set_serving();
        flag
    }

    /// Records that this process serves from now on.
    pub fn set_serving(&self) {
        *lock(&self.0.is_serving) = true;
        self.0.begun.notify_all();
    }

    /// Returns true if this process serves.
    pub fn is_serving(&self) -> bool {
        *lock(&self.0.is_serving)
    }

    /// Waits until this process serves, at most for `max_wait`. Returns true if it serves.
    pub fn wait_until_serving(&self, max_wait: Duration) -> bool {
        let is_waiting = |is_serving: &mut bool| !*is_serving;
        let waited =
            self.0.begun.wait_timeout_while(lock(&self.0.is_serving), max_wait, is_waiting);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
