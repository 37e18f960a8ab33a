//! What the reloader last read, for the admin API: the config, and the rows of the keys.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::Config;
use crate::keys::DeclaredKey;
use crate::store::RingRows;
use crate::support::snapshot::SnapshotCell;

/// What the reloader last read.
pub struct CurrentInputs {
    /// The config in force.
    pub config: SnapshotCell<Config>,
    keys: Mutex<Option<KeyInputs>>,
    /// Grows with each change of `keys`.
    generation: AtomicU64,
}

/// The rows of the keys and accounts in force.
#[derive(Clone)]
pub struct KeyInputs {
    /// The rows of the store.
    pub rows: Arc<RingRows>,
    /// The keys of the key file.
    pub declared: Arc<Vec<DeclaredKey>>,
}

impl CurrentInputs {
    /// Holds this config, and no rows yet.
    pub fn new(config: Config) -> CurrentInputs {
        CurrentInputs {
            config: SnapshotCell::new(config),
            keys: Mutex::default(),
            generation: AtomicU64::new(0),
        }
    }

    /// Returns the rows in force, and a number that grows with each change of them. `None` before
    /// the store has been read, and while the reloader changes the rows.
    pub fn keys(&self) -> Option<(u64, KeyInputs)> {
        let keys = self.lock_keys();
        let generation = self.generation.load(Ordering::Relaxed);
        keys.clone().map(|keys| (generation, keys))
    }

    /// Returns a number that grows with each change of the rows.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Drops these references to the rows, so that the reloader can change the rows in place.
    pub(super) fn withdraw_keys(&self) {
        *self.lock_keys() = None;
    }

    /// Publishes changed rows.
    pub(super) fn publish_keys(&self, inputs: KeyInputs) {
        let mut keys = self.lock_keys();
        *keys = Some(inputs);
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    fn lock_keys(&self) -> MutexGuard<'_, Option<KeyInputs>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
