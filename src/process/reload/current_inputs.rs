//! What the admin API needs of the reloader.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::config::{Config, ReloadableConfig, StartupConfig};
use crate::keys::DeclaredKey;
use crate::store::RingRows;
use crate::support::lock::lock;
use crate::support::snapshot::SnapshotCell;

/// How long a reader of the rows waits at most while the reloader changes the rows.
const MAX_CHANGE_WAIT: Duration = Duration::from_secs(5);

/// The config and the rows of the keys, as the reloader last read them.
pub struct CurrentInputs {
    /// The settings that took effect when the process started.
    pub startup: StartupConfig,
    /// The settings that take effect at the next restart.
    pub next_startup: SnapshotCell<StartupConfig>,
    /// The settings that a reload may change, as the last good reload left them.
    pub config: SnapshotCell<ReloadableConfig>,
    keys: Mutex<PublishedKeys>,
    /// Notified when `keys` are published.
    published: Condvar,
    /// Grows with each change of `keys`.
    keys_generation: AtomicU64,
}

/// The rows of the keys, as far as the admin API may read them.
#[derive(Default)]
enum PublishedKeys {
    /// The reloader has not read the store yet.
    #[default]
    Unread,
    /// The reloader changes the rows at this moment.
    Withdrawn,
    /// The rows from which the serving key ring was built, or is being built.
    InForce(KeyInputs),
}

/// The rows of the keys and accounts in force, and the keys of the key file.
#[derive(Clone)]
pub struct KeyInputs {
    /// The rows of the store.
    pub rows: Arc<RingRows>,
    /// The keys of the key file.
    pub declared: Arc<Vec<DeclaredKey>>,
}

impl CurrentInputs {
    /// Creates inputs with this config, and no rows yet.
    pub fn new(config: Config) -> CurrentInputs {
        CurrentInputs {
            startup: config.startup.clone(),
            next_startup: SnapshotCell::new(config.startup),
            config: SnapshotCell::new(config.reloadable),
            keys: Mutex::default(),
            published: Condvar::new(),
            keys_generation: AtomicU64::new(0),
        }
    }

    /// Returns [`CurrentInputs::keys_generation`] and the rows in force. While the reloader changes
    /// the rows, waits up to [`MAX_CHANGE_WAIT`]. Returns `None` if the reloader has not read the
    /// store yet, or if the wait was too long.
    pub fn keys(&self) -> Option<(u64, KeyInputs)> {
        let is_withdrawn = |keys: &mut PublishedKeys| matches!(keys, PublishedKeys::Withdrawn);
        let waited =
            self.published.wait_timeout_while(lock(&self.keys), MAX_CHANGE_WAIT, is_withdrawn);
        let (keys, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let PublishedKeys::InForce(inputs) = &*keys else { return None };
        Some((self.keys_generation(), inputs.clone()))
    }

    /// Returns a number that grows with each change of the rows.
    pub fn keys_generation(&self) -> u64 {
        self.keys_generation.load(Ordering::Relaxed)
    }

    /// Drops the published references to the rows, so that the reloader can change the rows in
    /// place.
    pub(super) fn withdraw_keys(&self) {
        *lock(&self.keys) = PublishedKeys::Withdrawn;
    }

    /// Publishes changed rows.
    pub(super) fn publish_keys(&self, inputs: KeyInputs) {
        let mut keys = lock(&self.keys);
        *keys = PublishedKeys::InForce(inputs);
        self.keys_generation.fetch_add(1, Ordering::Relaxed);
        self.published.notify_all();
    }
}
