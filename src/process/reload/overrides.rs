//! Reads the overrides of the store when their version changes, and lets the store take over the
//! default overrides file of earlier versions of riskgate.
//!
//! If the store does not answer, or is another store than before, the last good overrides stay.

use std::time::{Duration, Instant};

use super::status_reporter::join_problems;
use super::store_connection::open_if_none;
use crate::config::StoreOptions;
use crate::management::{ComparisonTimes, KnownOverrides, ManagementFault, take_over_default_file};
use crate::model::believed_time::BelievedTime;
use crate::store::{ChangeAuthor, OverridesVersion, Store, StoreError};
use crate::support::counted::CountedNoun;
use crate::support::machine_name::machine_name;
use crate::table::TableInputs;

/// The timeout with which the table's thread opens the store.
const OVERRIDES_STORE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long after a failure the follower asks the store again.
const OVERRIDES_RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The shortest time between two attempts to take the default file over.
const TAKE_OVER_RETRY_PAUSE: Duration = Duration::from_secs(10);

/// The connection to the store, and the overrides that were last read from it.
pub(super) struct OverrideFollower {
    options: StoreOptions,
    store: Option<Store>,
    known: KnownOverrides,
    /// When the store last had the version of the known overrides, in Unix seconds by the believed
    /// time.
    confirmed_at: i64,
    /// Why the store was not read at the last attempt.
    store_problem: Option<String>,
    /// Why the default file was not taken over.
    take_over_problem: Option<String>,
    next_sync_at: Instant,
    next_take_over_at: Instant,
}

impl OverrideFollower {
    /// Creates a follower. `known` are the overrides with which the serving table was built.
    pub(super) fn new(options: StoreOptions, known: KnownOverrides) -> OverrideFollower {
        OverrideFollower {
            options,
            store: None,
            known,
            confirmed_at: i64::MAX,
            store_problem: None,
            take_over_problem: None,
            next_sync_at: Instant::now(),
            next_take_over_at: Instant::now(),
        }
    }

    /// Returns a copy of the inputs of a table, with the overrides of the store added.
    pub(super) fn add_to_copy_of(&self, inputs: &TableInputs) -> TableInputs {
        self.known.add_to_copy_of(inputs)
    }

    /// Describes what is wrong with the overrides of the store, and why the default file was not
    /// taken over. Returns `None` if there is no problem.
    pub(super) fn describe_problem(&self, inputs: &TableInputs, now: i64) -> Option<String> {
        let of_rows = self.known.describe_problem(inputs, now);
        let problems =
            [self.store_problem.as_ref(), of_rows.as_ref(), self.take_over_problem.as_ref()];
        join_problems(problems.into_iter().flatten())
    }

    /// Finds out which lost overrides the file of `table.overrides` decides. Call this when the
    /// file has changed.
    pub(super) fn read_file_for_losses(&mut self, inputs: &TableInputs) {
        self.known.read_file_for_losses(inputs);
    }

    /// Returns why the store was not read at the last attempt.
    pub(super) fn store_problem(&self) -> Option<&str> {
        self.store_problem.as_deref()
    }

    /// Reads the overrides if they have changed. Lets the store take the default file over if
    /// `may_write` is true. Returns true if the inputs of the table have changed. For
    /// [`OVERRIDES_RETRY_PAUSE`] after a failure, does nothing unless `is_requested` is true.
    pub(super) fn sync(
        &mut self,
        inputs: &TableInputs,
        now: BelievedTime,
        (may_write, is_requested): (bool, bool),
    ) -> bool {
        if !is_requested && Instant::now() < self.next_sync_at {
            return false;
        }
        match self.try_sync(inputs, now, (may_write, is_requested)) {
            Ok(has_changed) => {
                self.store_problem = None;
                has_changed
            }
            Err(found) => {
                // The next attempt opens the store again.
                self.store = None;
                self.next_sync_at = Instant::now() + OVERRIDES_RETRY_PAUSE;
                self.store_problem =
                    Some(format!("expected the overrides of the store, but found {found}"));
                false
            }
        }
    }

    fn try_sync(
        &mut self,
        inputs: &TableInputs,
        now: BelievedTime,
        (may_write, is_requested): (bool, bool),
    ) -> Result<bool, String> {
        let describe = |error: StoreError| error.to_string();
        let store = open_if_none(&mut self.store, &self.options, OVERRIDES_STORE_TIMEOUT)
            .map_err(describe)?;
        if !store.is_server() {
            store.check_still_safe().map_err(describe)?;
        }
        store.set_time(now);
        let Some(mut version) = store.overrides_version().map_err(describe)? else {
            return Err("an empty server".to_owned());
        };
        check_same_store(self.known.version(), &version)?;
        let is_take_over_due = may_write
            && self.known.may_take_over(inputs)
            && Instant::now() >= self.next_take_over_at;
        let mut has_changed = false;
        if is_take_over_due {
            self.next_take_over_at = Instant::now() + TAKE_OVER_RETRY_PAUSE;
            self.take_over_problem = try_take_over(store, inputs)?;
            let taken_over = store.overrides_version().map_err(describe)?;
            version = taken_over.ok_or_else(|| "an empty server".to_owned())?;
        }
        if is_take_over_due || is_requested {
            // Another node may have taken the same file over, or somebody may have edited the file.
            has_changed = self.known.update_default_file_state(store, inputs).map_err(describe)?;
        }
        if self.known.version() == Some(&version) {
            self.confirmed_at = now.unix_now;
            return Ok(has_changed);
        }
        let times = ComparisonTimes { confirmed_at: self.confirmed_at, now: now.unix_now };
        let read = self.known.read_next(store, inputs, times).map_err(describe)?;
        let read = read.ok_or_else(|| "an empty server".to_owned())?;
        if read.is_after_loss() {
            warn_of_loss(self.known.version(), &version);
        }
        self.known = read;
        self.confirmed_at = now.unix_now;
        Ok(true)
    }
}

/// Lets the store take over the default file. Returns the fault that has prevented this, if any.
///
/// # Errors
/// If the store does not answer.
fn try_take_over(store: &mut Store, inputs: &TableInputs) -> Result<Option<String>, String> {
    match take_over_default_file(store, inputs, &ChangeAuthor::riskgate(&machine_name())) {
        Ok(Some(taken)) => {
            let of_file = CountedNoun(taken.row_count, "override");
            log::info!(
                "{}: the store has taken over {of_file}, {} of them new; riskgate reads this file \
                 no longer",
                taken.path,
                taken.added
            );
            Ok(None)
        }
        Ok(None) => Ok(None),
        Err(ManagementFault::Store(error @ StoreError::Unavailable { .. })) => {
            Err(error.to_string())
        }
        Err(fault) => Ok(Some(fault.to_string())),
    }
}

fn check_same_store(
    known: Option<&OverridesVersion>,
    found: &OverridesVersion,
) -> Result<(), String> {
    match known.filter(|known| known.store_id != found.store_id) {
        Some(known) => Err(format!(
            "the store {} instead of {}, which they came from",
            found.store_id, known.store_id
        )),
        None => Ok(()),
    }
}

/// Logs that the store has lost changes. The problem of the part names only those after which
/// other overrides are in force.
fn warn_of_loss(known: Option<&OverridesVersion>, found: &OverridesVersion) {
    let Some(known) = known else { return };
    log::warn!(
        "the store lost changes of overrides: version {} was known, and the store has version {} \
         of another history",
        known.number,
        found.number
    );
}
