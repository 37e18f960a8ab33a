//! The key ring, kept fresh from the store and the key file.
//!
//! Follows the store in small steps: what changed there is read, and makes a new ring of the one
//! that serves. A whole ring is built when the key file or the plans changed, on request, and
//! where there is none yet. Another store than the one that serves is not taken. Of one that lost
//! what it had acknowledged, keys and their ends stay in force, and are written back.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::watch::FileWatch;
use super::write_back::WriteBack;
use crate::config::Config;
use crate::gate::GateState;
use crate::keys::{DeclaredKey, KeyRing, Plans, RingError, read_key_file};
use crate::quota::Ledger;
use crate::store::{LostRows, RingChanges, RingRows, RingVersion, Store, StoreError};

/// How often the store is asked whether it is still one that we can use.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);
/// So many faults of single keys and accounts are told by name.
const MAX_LISTED_FAULTS: usize = 8;

/// Where keys come from, and what was read of them.
pub struct KeyRingUpdater {
    store: Store,
    /// What the store held last, with what it lost; none before it was read.
    rows: Option<RingRows>,
    lost: LostRows,
    write_back: WriteBack,
    /// The keys of the key file that serve.
    declared: Vec<DeclaredKey>,
    watch: FileWatch,
    rechecked_at: Instant,
    /// Why the store is not followed.
    sync_error: Option<String>,
    /// Which keys and accounts can't be served, and why.
    build_errors: Vec<String>,
    /// Why the key file is not taken.
    file_error: Option<String>,
    /// Why the store does not answer, or should not be used.
    store_error: Option<String>,
    store_misconfigured: Option<String>,
}

impl KeyRingUpdater {
    /// Reads keys for the first time; a server may come, or come back, while we serve. Without a
    /// ring there must be a reason: a fault of the file, the rows or an embedded store is an error.
    pub fn load(
        mut store: Store,
        declared: Vec<DeclaredKey>,
        config: &Config,
        ledger: &Ledger,
    ) -> Result<(KeyRingUpdater, Option<KeyRing>), String> {
        let is_optional = matches!(store, Store::Redis(_));
        let (rows, astray) = match store.ring_rows() {
            Ok(Some(rows)) => (Some(rows), None),
            Ok(None) => (None, Some(SyncError::EmptyServer.to_string())),
            Err(error) => (None, Some(error.to_string())),
        };
        if let Some(problem) = astray.as_ref().filter(|_| !is_optional) {
            return Err(problem.clone());
        }
        if let Some(rows) = &rows {
            let checked = KeyRing::check_key_file(rows, &declared, &config.plans);
            checked.map_err(|error| error.to_string())?;
        }
        let build = |rows| KeyRing::build(rows, &declared, &config.plans, ledger);
        let ring = rows.as_ref().map(build);
        let keys = KeyRingUpdater {
            store,
            rows,
            lost: LostRows::default(),
            write_back: WriteBack::default(),
            declared,
            watch: FileWatch::new(config.key_file.clone()),
            rechecked_at: Instant::now(),
            sync_error: astray,
            build_errors: ring.as_ref().map_or(Vec::new(), describe_faults),
            file_error: None,
            store_error: None,
            store_misconfigured: None,
        };
        Ok((keys, ring))
    }

    /// What keeps keys from being as they should.
    pub(super) fn problem(&self) -> Option<String> {
        // A store that does not answer is not followed either.
        let sync_problem = self.sync_error.as_ref().or(self.store_error.as_ref());
        let mut problems: Vec<String> =
            [sync_problem, self.file_error.as_ref()].into_iter().flatten().cloned().collect();
        problems.extend_from_slice(&self.build_errors);
        problems.extend(self.store.foreign_entries());
        problems.extend(self.lost.describe());
        problems.extend(self.write_back.problem().map(str::to_owned));
        (!problems.is_empty()).then(|| problems.join("\n"))
    }

    /// What is wrong with the store itself.
    pub(super) fn store_problem(&self) -> Option<&str> {
        self.store_error.as_deref().or(self.store_misconfigured.as_deref())
    }

    /// Takes what changed; true if there was something to take.
    pub(super) fn look(&mut self, state: &GateState, plans: &Plans) -> bool {
        let followed = self.sync(state, plans, false);
        let file_changed = self.watch.is_due();
        if file_changed {
            self.reload_key_file(state, plans);
        }
        followed || file_changed
    }

    /// Reads everything anew.
    pub(super) fn reload(&mut self, state: &GateState, plans: &Plans) {
        self.sync(state, plans, true);
        self.reload_key_file(state, plans);
    }

    /// From now on another key file.
    pub(super) fn set_key_file(&mut self, key_file: Option<PathBuf>) {
        self.watch = FileWatch::new(key_file);
    }

    /// Builds the ring anew, with other plans.
    pub(super) fn apply_plans(&mut self, state: &GateState, plans: &Plans) {
        if let Some(rows) = &self.rows {
            let ring = KeyRing::build(rows, &self.declared, plans, &state.ledger);
            self.publish(state, ring);
        }
        self.retry_key_file(state, plans);
    }

    /// Reads the key file. A broken one holds nothing back that changes in the store.
    pub(super) fn reload_key_file(&mut self, state: &GateState, plans: &Plans) {
        self.watch.mark_read();
        let read = |path| read_key_file(path, &Config::env_var);
        let declared = self.watch.path().map_or(Ok(Vec::new()), read).map_err(|faults| {
            faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        });
        let made = declared.and_then(|declared| match &self.rows {
            Some(rows) => KeyRing::check_key_file(rows, &declared, plans)
                .map(|()| KeyRing::build(rows, &declared, plans, &state.ledger))
                .map(|ring| (declared, Some(ring)))
                .map_err(|error| error.to_string()),
            None => Ok((declared, None)),
        });
        self.file_error = match made {
            Ok((declared, ring)) => {
                self.declared = declared;
                if let Some(ring) = ring {
                    self.publish(state, ring);
                }
                None
            }
            Err(problem) => Some(problem),
        };
    }

    /// Looks where the store stands and goes there; `anew` reads all of it. True if it moved.
    fn sync(&mut self, state: &GateState, plans: &Plans, is_full: bool) -> bool {
        let outcome = self.sync_once(state, plans, is_full);
        (self.store_error, self.sync_error) = match &outcome {
            Ok(_) => (None, None),
            Err(SyncError::Store(error)) if !matches!(error, StoreError::Unusable { .. }) => {
                let error = error.to_string();
                (Some(error.clone()), self.rows.is_none().then_some(error))
            }
            Err(astray) => (None, Some(astray.to_string())),
        };
        if outcome.is_ok() {
            self.write_back.restore_if_due(&self.lost, &mut self.store, Instant::now());
        }
        let has_changed = outcome.unwrap_or(false);
        if has_changed {
            self.retry_key_file(state, plans);
        }
        has_changed
    }

    /// It may have been the rows or the plans that a key file did not go with.
    fn retry_key_file(&mut self, state: &GateState, plans: &Plans) {
        if self.file_error.is_some() {
            self.reload_key_file(state, plans);
        }
    }

    fn sync_once(
        &mut self,
        state: &GateState,
        plans: &Plans,
        is_full: bool,
    ) -> Result<bool, SyncError> {
        let mark = self.store.ring_version()?;
        if self.rechecked_at.elapsed() >= RECHECK_INTERVAL {
            self.rechecked_at = Instant::now();
            self.store_misconfigured =
                self.store.check_still_usable().err().map(|error| error.to_string());
        }
        let serving = state.keys.snapshot();
        if let Some(ring) = serving.as_ref() {
            ring.check_succession(mark.as_ref())?;
        }
        let mark = mark.ok_or(SyncError::EmptyServer)?;
        let known = self.rows.as_ref().map(RingRows::ring_version);
        match known {
            None => self.reload_rows(state, plans, false),
            Some(known) if known.store_id != mark.store_id => self.reload_rows(state, plans, false),
            Some(known) if known == mark && !is_full => Ok(false),
            // The same number of another history, or an older state.
            Some(known) if known.version >= mark.version => {
                self.reload_rows(state, plans, known != mark)
            }
            Some(known) if !is_full => self.apply_changes(state, plans, &known),
            Some(known) => {
                let changes = self.store.ring_changes(known.version)?;
                self.reload_rows_with_changes(state, plans, &changes, &known)
            }
        }
    }

    fn apply_changes(
        &mut self,
        state: &GateState,
        plans: &Plans,
        known: &RingVersion,
    ) -> Result<bool, SyncError> {
        let mut changes = self.store.ring_changes(known.version)?;
        let serving = state.keys.snapshot();
        let Some(rows) = self.rows.as_mut().filter(|_| changes.follows(known)) else {
            return self.reload_rows_with_changes(state, plans, &changes, known);
        };
        self.lost.keep_lost_rows_in(&mut changes);
        let next = serving.as_ref().as_ref();
        let next =
            next.and_then(|ring| ring.with_changes(&changes, &self.declared, plans, &state.ledger));
        rows.apply_changes(changes);
        let ring =
            next.unwrap_or_else(|| KeyRing::build(rows, &self.declared, plans, &state.ledger));
        self.publish(state, ring);
        Ok(true)
    }

    /// Takes all rows where what changed since those that are known does not lead on from them,
    /// or not alone.
    fn reload_rows_with_changes(
        &mut self,
        state: &GateState,
        plans: &Plans,
        changes: &RingChanges,
        known: &RingVersion,
    ) -> Result<bool, SyncError> {
        let has_lost = changes.shows_loss_since(known);
        let taken = self.reload_rows(state, plans, has_lost)?;
        if has_lost {
            self.lost.forget_reset_accounts(changes);
        }
        Ok(taken)
    }

    /// `has_lost` is true if the store is known not to hold what was read of it before.
    fn reload_rows(
        &mut self,
        state: &GateState,
        plans: &Plans,
        has_lost: bool,
    ) -> Result<bool, SyncError> {
        let mut rows = self.store.ring_rows()?.ok_or(SyncError::EmptyServer)?;
        if let Some(ring) = state.keys.snapshot().as_ref() {
            ring.check_succession(Some(&rows.ring_version()))?;
        }
        if let Some(known) = self.rows.as_ref().filter(|it| it.store_id == rows.store_id) {
            if has_lost {
                let (before, now) = (known.version, rows.version);
                log::warn!(
                    "the store lost changes of keys or accounts: version {before} was known, and \
                     it holds version {now} of another history"
                );
                self.write_back.reset_backoff();
            }
            self.lost.keep_lost_rows(known, &mut rows, has_lost);
        }
        let ring = KeyRing::build(&rows, &self.declared, plans, &state.ledger);
        self.rows = Some(rows);
        self.publish(state, ring);
        Ok(true)
    }

    fn publish(&mut self, state: &GateState, ring: KeyRing) {
        if state.keys.peek().is_none() {
            log::info!("{} keys serve", ring.len());
        }
        self.build_errors = describe_faults(&ring);
        state.keys.publish(Some(ring));
    }
}

/// What is wrong with single keys and accounts, in words.
fn describe_faults(ring: &KeyRing) -> Vec<String> {
    let faults = ring.faults();
    let mut lines: Vec<String> =
        faults.iter().take(MAX_LISTED_FAULTS).map(ToString::to_string).collect();
    if faults.len() > MAX_LISTED_FAULTS {
        lines.push(format!("and {} more keys and accounts", faults.len() - MAX_LISTED_FAULTS));
    }
    lines
}

/// Why the store is not followed.
#[derive(Debug, thiserror::Error)]
enum SyncError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    History(#[from] RingError),
    #[error(
        "expected a store, but found an empty server; `riskgate keys create` or `riskgate store \
         init` makes it one"
    )]
    EmptyServer,
}
