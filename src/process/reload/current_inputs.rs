//! What the reloader last read, for the admin API: the config, and the rows of the keys.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::config::{Config, ReloadableConfig, StartupConfig};
use crate::keys::DeclaredKey;
use crate::store::RingRows;
use crate::support::snapshot::SnapshotCell;

/// The longest wait for the reloader to change the rows. It waits for nothing meanwhile.
const MAX_CHANGE_WAIT: Duration = Duration::from_secs(5);

/// What the reloader last read.
pub struct CurrentInputs {
    /// What took effect when the process started.
    pub startup: StartupConfig,
    /// What takes effect at the next restart.
    pub next_startup: SnapshotCell<StartupConfig>,
    /// What a reload may change, as the last good reload left it.
    pub config: SnapshotCell<ReloadableConfig>,
    keys: Mutex<PublishedKeys>,
    /// Notified when `keys` are published.
    published: Condvar,
    /// Grows with each change of `keys`.
    generation: AtomicU64,
}

/// The rows of the keys, as far as others may read them.
#[derive(Default)]
enum PublishedKeys {
    /// The store has not been read yet.
    #[default]
    Unread,
    /// The reloader changes the rows just now.
    Withdrawn,
    InForce(KeyInputs),
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
            startup: config.startup.clone(),
            next_startup: SnapshotCell::new(config.startup),
            config: SnapshotCell::new(config.reloadable),
            keys: Mutex::default(),
            published: Condvar::new(),
            generation: AtomicU64::new(0),
        }
    }

    /// Returns the rows in force, and a number that grows with each change of them. `None` before
    /// the store has been read. Waits while the reloader changes the rows.
    pub fn keys(&self) -> Option<(u64, KeyInputs)> {
        let is_withdrawn = |keys: &mut PublishedKeys| matches!(keys, PublishedKeys::Withdrawn);
        let waited =
            self.published.wait_timeout_while(self.lock_keys(), MAX_CHANGE_WAIT, is_withdrawn);
        let (keys, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let PublishedKeys::InForce(inputs) = &*keys else { return None };
        Some((self.generation.load(Ordering::Relaxed), inputs.clone()))
    }

    /// Returns a number that grows with each change of the rows.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Drops these references to the rows, so that the reloader can change the rows in place.
    pub(super) fn withdraw_keys(&self) {
        *self.lock_keys() = PublishedKeys::Withdrawn;
    }

    /// Publishes changed rows.
    pub(super) fn publish_keys(&self, inputs: KeyInputs) {
        let mut keys = self.lock_keys();
        *keys = PublishedKeys::InForce(inputs);
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.published.notify_all();
    }

    fn lock_keys(&self) -> MutexGuard<'_, PublishedKeys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
