//! Updates the key ring from the store and the key file.
//!
//! Normally the updater reads only what changed in the store, and derives a new ring from the
//! current one. The updater builds the whole ring:
//! - if the key file or the plans changed,
//! - if a reload was requested,
//! - if the changes in the store do not follow those that are known, or are not enough to derive a
//!   ring, or
//! - if there is no ring yet.
//!
//! The updater refuses another store than the one that the ring came from. If the store lost keys
//! or revocations that it had acknowledged, these stay in force in this process, and the updater
//! writes them back.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::current_inputs::{CurrentInputs, KeyInputs};
use super::status_reporter::{join_lines, join_problems};
use super::watch::{FileWatch, InputWatches, UNSETTLED};
use super::write_back::WriteBack;
use crate::config::Config;
use crate::gate::GateState;
use crate::keys::{
    DeclaredKey, KeyRing, Plans, RingError, locate_plan_fault, read_key_file,
    warn_of_unfit_accounts,
};
use crate::quota::Ledger;
use crate::store::{LostRows, RingChanges, RingRows, RingVersion, Store, StoreError};
use crate::support::counted::CountedNoun;
use crate::support::memory;

/// How much memory a key of the store and its account need in all: to read both, to keep their
/// rows, and to keep both in the ring. With 60,000 keys of as many accounts, we measured 2,000
/// bytes for each key. With 60,000 keys of one account, we measured 1,040 bytes.
const MEMORY_BYTES_PER_KEY: u64 = 2_500;
/// The part of [`MEMORY_BYTES_PER_KEY`] that the updater needs to read a new key.
const MEMORY_BYTES_PER_READ_KEY: u64 = 1_500;

/// How often the updater checks whether the store's file was replaced, or its server reconfigured.
const STORE_USABILITY_INTERVAL: Duration = Duration::from_secs(1);
/// How long a reload waits until a key file that the config did not name before is settled.
/// Meanwhile, the updater applies no change of the store, such as a revocation.
const MAX_NEW_FILE_WAIT: Duration = Duration::from_secs(1);
/// The most faults of keys and accounts that are listed one by one.
const MAX_LISTED_KEY_FAULTS: usize = 8;

/// Keeps the key ring equal to its sources: the store and the key file.
pub struct KeyRingUpdater {
    store: Store,
    /// The rows that were last read from the store, together with the rows that the store lost.
    /// `None` before the first read.
    rows: Option<Arc<RingRows>>,
    lost_rows: LostRows,
    write_back: WriteBack,
    /// The keys of the key file that are in the ring.
    declared_keys: Arc<Vec<DeclaredKey>>,
    /// The warnings of accounts of the key file that were told last.
    told_account_warnings: Vec<String>,
    /// Where the admin API finds the rows and the declared keys.
    inputs: Arc<CurrentInputs>,
    key_file_watch: FileWatch,
    /// When riskgate last checked that the open store's file or server is still the right one.
    store_usability_checked_at: Instant,
    /// Why the ring could not be updated from the rows of a store that answered in the last sync.
    /// Before the first read of the rows, the failure of the store.
    unusable_rows_error: Option<String>,
    /// The faults of single keys and accounts.
    ring_faults: Vec<String>,
    /// Why the key file was refused.
    key_file_error: Option<String>,
    /// The failure of the store in the last sync.
    store_error: Option<String>,
    /// Why the open store is not safe any more: its file was replaced, or its server reconfigured.
    store_usability_error: Option<String>,
}

impl KeyRingUpdater {
    /// Reads the keys for the first time. If no keys can be read from a Redis server, returns no
    /// ring: the process starts without keys, and reads the keys later.
    ///
    /// # Errors
    /// If the keys can't be read from SQLite, or if the key file contradicts the store or the
    /// plans.
    pub fn load(
        mut store: Store,
        declared: Vec<DeclaredKey>,
        inputs: Arc<CurrentInputs>,
        ledger: &Ledger,
        watches: &InputWatches,
    ) -> Result<(KeyRingUpdater, Option<KeyRing>), String> {
        let config = inputs.config.snapshot();
        let is_optional = store.is_server();
        let (rows, unusable_rows_error) = match read_all_rows(&mut store) {
            Ok(rows) => (Some(rows), None),
            Err(error) => (None, Some(error.to_string())),
        };
        if let Some(problem) = unusable_rows_error.as_ref().filter(|_| !is_optional) {
            return Err(problem.clone());
        }
        if let Some(rows) = &rows {
            let checked = KeyRing::check_key_file(rows, &declared, &config.plans);
            checked.map_err(|faults| join_lines(&faults))?;
        }
        let build = |rows| KeyRing::build(rows, &declared, &config.plans, ledger);
        let ring = rows.as_ref().map(build);
        let mut keys = KeyRingUpdater {
            store,
            rows: rows.map(Arc::new),
            lost_rows: LostRows::default(),
            write_back: WriteBack::default(),
            declared_keys: Arc::new(declared),
            told_account_warnings: Vec::new(),
            inputs,
            key_file_watch: watches.key_file.clone(),
            store_usability_checked_at: Instant::now(),
            unusable_rows_error,
            ring_faults: ring.as_ref().map_or(Vec::new(), describe_faults),
            key_file_error: None,
            store_error: None,
            store_usability_error: None,
        };
        keys.warn_of_unfit_accounts_once();
        keys.publish_inputs();
        Ok((keys, ring))
    }

    /// Returns the id of the store that the keys are from; `None` if no store has been read.
    pub(super) fn store_id(&self) -> Option<String> {
        self.rows.as_ref().map(|rows| rows.ring_version.store_id.clone())
    }

    /// Publishes the rows and the declared keys for the admin API.
    fn publish_inputs(&mut self) {
        if let Some(rows) = &self.rows {
            self.store.name_store_of_keys(&rows.ring_version.store_id);
            let (rows, declared) = (Arc::clone(rows), Arc::clone(&self.declared_keys));
            self.inputs.publish_keys(KeyInputs { rows, declared });
        }
    }

    /// Returns the keys of the key file that are in the ring.
    pub(super) fn declared_keys(&self) -> &Arc<Vec<DeclaredKey>> {
        &self.declared_keys
    }

    /// Returns the problems of the keys, one per line.
    pub(super) fn key_problems(&self) -> Option<String> {
        // A failure of the store is a problem of the keys, because the ring can't be updated.
        let sync_problem = self.unusable_rows_error.as_ref().or(self.store_error.as_ref());
        let mut problems: Vec<String> =
            [sync_problem, self.key_file_error.as_ref()].into_iter().flatten().cloned().collect();
        problems.extend_from_slice(&self.ring_faults);
        problems.extend(self.store.describe_foreign_entries());
        problems.extend(self.lost_rows.describe_losses());
        problems.extend(self.write_back.problem().map(str::to_owned));
        join_problems(problems)
    }

    /// Returns true if the last sync with the store has read the keys.
    pub(super) fn is_store_read(&self) -> bool {
        self.unusable_rows_error.is_none() && self.store_error.is_none()
    }

    /// Returns the problem of the store itself.
    pub(super) fn store_problem(&self) -> Option<&str> {
        self.store_error.as_deref().or(self.store_usability_error.as_deref())
    }

    /// Updates the ring if the store or the key file has changed. Returns true if a change of the
    /// store is in the ring, or if the key file was read.
    pub(super) fn reload_if_changed(&mut self, state: &GateState, plans: &Plans) -> bool {
        let store_changed = self.sync_with_store(state, plans, false);
        let file_changed = self.key_file_watch.is_read_due();
        if file_changed {
            self.reload_key_file(state, plans);
        }
        store_changed || file_changed
    }

    /// Reads the whole store again, and the key file unless it may be being written at this moment.
    pub(super) fn reload_store_and_key_file(&mut self, state: &GateState, plans: &Plans) {
        self.sync_with_store(state, plans, true);
        match self.key_file_watch.is_settled() {
            true => self.reload_key_file(state, plans),
            false => self.key_file_error = Some(format!("keys.file: {UNSETTLED}")),
        }
    }

    /// Returns true if the key file has changed since it was read.
    pub(super) fn has_key_file_changed(&self) -> bool {
        self.key_file_watch.has_changed_since_read()
    }

    /// Returns true unless the key file may be being written at this moment.
    pub(super) fn is_key_file_settled(&mut self) -> bool {
        self.key_file_watch.is_settled()
    }

    /// Watches another key file from now on, or none. Does not read the file. Waits until the file
    /// is settled, at most for [`MAX_NEW_FILE_WAIT`].
    pub(super) fn set_key_file(&mut self, key_file: Option<PathBuf>) {
        // Somebody may still be writing the file. A later pass then reads it.
        self.key_file_watch = FileWatch::for_unread_paths(key_file.into_iter().collect());
        self.key_file_watch.wait_until_settled(MAX_NEW_FILE_WAIT);
    }

    /// Rebuilds the ring with changed plans. Then calls
    /// [`KeyRingUpdater::retry_refused_key_file`].
    pub(super) fn apply_plans(&mut self, state: &GateState, plans: &Plans) {
        if let Some(rows) = &self.rows {
            let ring = KeyRing::build(rows, &self.declared_keys, plans, &state.ledger);
            self.publish_ring(state, ring);
        }
        self.retry_refused_key_file(state, plans);
    }

    /// Reads the key file, and rebuilds the ring. If the key file is faulty, its last good keys
    /// stay in the ring, and later changes in the store are still applied.
    pub(super) fn reload_key_file(&mut self, state: &GateState, plans: &Plans) {
        self.key_file_watch.mark_read();
        let read = |path| read_key_file(path, &Config::env_var);
        let declared = self.key_file_watch.first_path().map_or(Ok(Vec::new()), read);
        let faults = declared.as_ref().err();
        let is_transient = faults.is_some_and(|faults| faults.iter().any(|it| it.is_transient));
        self.key_file_watch.schedule_retry_if(is_transient);
        let declared = declared.map_err(|faults| join_lines(&faults));
        let describe = |faults: Vec<RingError>| {
            let path = self.key_file_watch.first_path();
            let located = faults.iter().map(|fault| {
                let located = path.and_then(|path| locate_plan_fault(path, fault));
                located.map_or_else(|| fault.to_string(), |it| it.to_string())
            });
            join_lines(located)
        };
        let built = declared.and_then(|declared| match &self.rows {
            Some(rows) => KeyRing::check_key_file(rows, &declared, plans)
                .map(|()| KeyRing::build(rows, &declared, plans, &state.ledger))
                .map(|ring| (declared, Some(ring)))
                .map_err(describe),
            None => Ok((declared, None)),
        });
        self.key_file_error = match built {
            Ok((declared, ring)) => {
                self.declared_keys = Arc::new(declared);
                self.warn_of_unfit_accounts_once();
                if let Some(ring) = ring {
                    self.publish_ring(state, ring);
                }
                None
            }
            Err(problem) => Some(problem),
        };
    }

    /// Warns of accounts of the key file that no command would make. Tells no warning again that
    /// it told of the file as it was before.
    fn warn_of_unfit_accounts_once(&mut self) {
        let warnings = warn_of_unfit_accounts(&self.declared_keys);
        let is_new = |warning: &&String| !self.told_account_warnings.contains(warning);
        warnings.iter().filter(is_new).for_each(|warning| log::warn!("{warning}"));
        self.told_account_warnings = warnings;
    }

    /// Updates the ring from the store, and records what failed. If this process serves, writes
    /// lost rows back if that is due. If `reads_all_rows` is true, reads all rows and not only the
    /// changes. Returns true if nothing failed and a new ring serves.
    fn sync_with_store(&mut self, state: &GateState, plans: &Plans, reads_all_rows: bool) -> bool {
        let outcome = self.update_ring_from_store(state, plans, reads_all_rows);
        (self.store_error, self.unusable_rows_error) = match &outcome {
            Ok(_) => (None, None),
            Err(SyncError::Store(error)) if !matches!(error, StoreError::Unusable { .. }) => {
                let error = error.to_string();
                (Some(error.clone()), self.rows.is_none().then_some(error))
            }
            Err(error) => (None, Some(error.to_string())),
        };
        if outcome.is_ok() {
            self.store.set_time(state.ledger.believed_time());
        }
        if outcome.is_ok() && state.serving.is_serving() {
            self.write_back.restore_if_due(&self.lost_rows, &mut self.store, Instant::now());
        }
        let has_changed = outcome.unwrap_or(false);
        if has_changed {
            self.retry_refused_key_file(state, plans);
        }
        has_changed
    }

    /// If the key file was refused, and nobody may be writing it at this moment, reads it again.
    /// The file may have conflicted with rows or plans that have changed since.
    fn retry_refused_key_file(&mut self, state: &GateState, plans: &Plans) {
        if self.key_file_error.is_some() && self.key_file_watch.is_settled() {
            self.reload_key_file(state, plans);
        }
    }

    /// Reads what changed in the store, or all rows, and publishes a new ring. Returns false if
    /// nothing changed and `reads_all_rows` is false.
    fn update_ring_from_store(
        &mut self,
        state: &GateState,
        plans: &Plans,
        reads_all_rows: bool,
    ) -> Result<bool, SyncError> {
        let version = self.store.ring_version()?;
        if self.store_usability_checked_at.elapsed() >= STORE_USABILITY_INTERVAL {
            self.store_usability_checked_at = Instant::now();
            self.store_usability_error =
                self.store.check_still_safe().err().map(|error| error.to_string());
        }
        let serving = state.keys.snapshot();
        if let Some(ring) = serving.as_ref() {
            ring.check_same_store(version.as_ref())?;
        }
        let version = version.ok_or(SyncError::EmptyServer)?;
        let known = self.rows.as_ref().map(|rows| rows.ring_version.clone());
        match known {
            None => self.reload_rows(state, plans, false),
            Some(known) if known.store_id != version.store_id => {
                self.reload_rows(state, plans, false)
            }
            Some(known) if known == version && !reads_all_rows => Ok(false),
            // The store has the known version and a full read was requested, or the store has an
            // older version, or another history with the same version number.
            Some(known) if known.version >= version.version => {
                self.reload_rows(state, plans, known != version)
            }
            Some(known) if !reads_all_rows => self.apply_changes(state, plans, &known),
            Some(known) => {
                let changes = self.store.ring_changes(known.version)?;
                self.reload_rows_and_check_loss(state, plans, &changes, &known)
            }
        }
    }

    /// Reads the changes since `known_version` and applies them. If the store's history does not
    /// continue from that version, reads all rows instead.
    ///
    /// # Errors
    /// If the store fails, or if the memory does not suffice for all new keys. In the second case,
    /// the changes of known keys may have been applied.
    fn apply_changes(
        &mut self,
        state: &GateState,
        plans: &Plans,
        known_version: &RingVersion,
    ) -> Result<bool, SyncError> {
        let known_keys = self.rows.as_ref().map_or(0, |rows| rows.keys.len() as u64);
        let new_keys = self.store.count_keys()?.saturating_sub(known_keys);
        check_memory_for_keys(new_keys, MEMORY_BYTES_PER_READ_KEY)?;
        let mut changes = self.store.ring_changes(known_version.version)?;
        let refused_keys = check_memory_for_keys(new_keys, MEMORY_BYTES_PER_KEY);
        if let (Err(_), Some(rows)) = (&refused_keys, &self.rows) {
            // The memory sufficed to read the new keys, but does not suffice to serve them. The
            // changes of known keys, such as revocations, still take effect.
            changes.keep_changes_of_known_rows(rows);
            if changes.is_empty() {
                return refused_keys.map(|()| false);
            }
        }
        let serving = state.keys.snapshot();
        let Some(rows) = self.rows.as_mut().filter(|_| changes.follows(known_version)) else {
            return self.reload_rows_and_check_loss(state, plans, &changes, known_version);
        };
        // `make_mut` copies the rows only if the admin API reads them at this moment.
        self.inputs.withdraw_keys();
        let rows = Arc::make_mut(rows);
        self.lost_rows.apply_losses_to_changes(&mut changes);
        let ring = serving.as_ref().as_ref();
        let ring = ring.and_then(|ring| {
            ring.with_changes(&changes, &self.declared_keys, plans, &state.ledger)
        });
        rows.apply_changes(changes);
        let ring =
            ring.unwrap_or_else(|| KeyRing::build(rows, &self.declared_keys, plans, &state.ledger));
        self.publish_ring(state, ring);
        refused_keys.map(|()| true)
    }

    /// Reads all rows, because `changes` do not follow the known version, or because a full read
    /// was requested. `changes` show whether the store lost rows.
    fn reload_rows_and_check_loss(
        &mut self,
        state: &GateState,
        plans: &Plans,
        changes: &RingChanges,
        known_version: &RingVersion,
    ) -> Result<bool, SyncError> {
        let has_lost = changes.prove_loss_of(known_version);
        let has_changed = self.reload_rows(state, plans, has_lost)?;
        if has_lost {
            self.lost_rows.forget_accounts_set_again(changes);
        }
        Ok(has_changed)
    }

    /// Reads all rows, and publishes a new ring. `store_lost_rows` says that the store has lost
    /// rows that this process had read.
    fn reload_rows(
        &mut self,
        state: &GateState,
        plans: &Plans,
        store_lost_rows: bool,
    ) -> Result<bool, SyncError> {
        let mut rows = read_all_rows(&mut self.store)?;
        if let Some(ring) = state.keys.snapshot().as_ref() {
            ring.check_same_store(Some(&rows.ring_version))?;
        }
        let is_same_store =
            |known: &&Arc<RingRows>| known.ring_version.store_id == rows.ring_version.store_id;
        if let Some(known) = self.rows.as_ref().filter(is_same_store) {
            if store_lost_rows {
                let (before, now) = (known.ring_version.version, rows.ring_version.version);
                log::warn!(
                    "the store lost changes of keys or accounts: version {before} was known, and \
                     it holds version {now} of another history"
                );
                self.write_back.reset_backoff();
            }
            self.lost_rows.find_and_keep_lost_rows(known, &mut rows, store_lost_rows);
        }
        let ring = KeyRing::build(&rows, &self.declared_keys, plans, &state.ledger);
        self.rows = Some(Arc::new(rows));
        self.publish_ring(state, ring);
        Ok(true)
    }

    fn publish_ring(&mut self, state: &GateState, ring: KeyRing) {
        if state.keys.peek().is_none() {
            let verb = if ring.len() == 1 { "serves" } else { "serve" };
            log::info!("{} {verb}", CountedNoun(ring.len(), "key"));
        }
        self.ring_faults = describe_faults(&ring);
        // The rows are published before the ring, because the admin API waits for the ring, and
        // then reads the rows.
        self.publish_inputs();
        state.keys.publish(Some(ring));
    }
}

/// Reads all keys and accounts of a store, if the process has the memory for them.
fn read_all_rows(store: &mut Store) -> Result<RingRows, SyncError> {
    check_memory_for_keys(store.count_keys()?, MEMORY_BYTES_PER_KEY)?;
    store.ring_rows()?.ok_or(SyncError::EmptyServer)
}

/// Fails if the process can't get `bytes_per_key` for each of these keys.
fn check_memory_for_keys(keys: u64, bytes_per_key: u64) -> Result<(), SyncError> {
    if keys == 0 {
        return Ok(());
    }
    memory::check_available(bytes_per_key * keys)
        .map_err(|found| SyncError::NotEnoughMemory { keys, found })
}

/// Describes the faults of single keys and accounts. Each of the first [`MAX_LISTED_KEY_FAULTS`]
/// has a text of its own.
fn describe_faults(ring: &KeyRing) -> Vec<String> {
    let faults = ring.faults();
    let mut lines: Vec<String> =
        faults.iter().take(MAX_LISTED_KEY_FAULTS).map(ToString::to_string).collect();
    if faults.len() > MAX_LISTED_KEY_FAULTS {
        let more = CountedNoun(faults.len() - MAX_LISTED_KEY_FAULTS, "more fault");
        lines.push(format!("and {more} of keys and accounts"));
    }
    lines
}

/// Why a sync with the store failed.
#[derive(Debug, thiserror::Error)]
enum SyncError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    DifferentStore(#[from] RingError),
    #[error(
        "expected a store, but found an empty server; `riskgate keys create` or `riskgate store \
         init` makes it one"
    )]
    EmptyServer,
    #[error("{keys} keys to read from the store: {found}")]
    NotEnoughMemory { keys: u64, found: io::Error },
}
