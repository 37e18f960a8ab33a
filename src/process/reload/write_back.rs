//! Writes back keys and accounts that the store lost: at once, and then again after growing pauses,
//! until the store and as many replicas as `store.wait_replicas` have them all.
//!
//! If the store accepts a row, the row appears in the store's next changes and is no longer lost.
//! The store may never accept some rows, such as a key whose id another key has taken.

use std::time::{Duration, Instant};

use crate::store::{AccountRow, ChangeAuthor, KeyRow, LostRows, Store};
use crate::support::machine_name::machine_name;

/// The pause after the first attempt. The pause doubles with each further attempt.
const MIN_WRITE_BACK_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const MAX_WRITE_BACK_PAUSE: Duration = Duration::from_secs(60);

/// The progress of writing back.
#[derive(Default)]
pub(super) struct WriteBack {
    /// The keys of the last attempt.
    attempted_keys: Vec<KeyRow>,
    /// The accounts of the last attempt.
    attempted_accounts: Vec<AccountRow>,
    /// Whether the last attempt that the store answered wrote the rows to fewer replicas than
    /// `store.wait_replicas`.
    lacks_replicas: bool,
    /// Why the last attempt failed, or that it reached too few replicas.
    problem: Option<String>,
    /// The earliest time of the next attempt; `None` if the next attempt may be made at once.
    next_attempt_at: Option<Instant>,
    /// The pause before the next attempt.
    backoff: Duration,
}

impl WriteBack {
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Makes the next attempt due at once, because the store lost further rows.
    pub(super) fn reset_backoff(&mut self) {
        (self.next_attempt_at, self.backoff) = (None, Duration::ZERO);
    }

    /// Writes the lost rows back if an attempt is due. Returns true if it made an attempt, whether
    /// the attempt succeeded or failed.
    pub(super) fn restore_if_due(
        &mut self,
        lost: &LostRows,
        store: &mut Store,
        now: Instant,
    ) -> bool {
        if lost.is_fully_restored() && !self.lacks_replicas {
            *self = WriteBack::default();
            return false;
        }
        if self.next_attempt_at.is_some_and(|next| now < next) {
            return false;
        }
        if !lost.is_fully_restored() {
            (self.attempted_keys, self.attempted_accounts) = lost.rows_to_restore();
        }
        let author = ChangeAuthor::riskgate(&machine_name());
        let restored =
            store.write_back_lost_rows(&author, &self.attempted_keys, &self.attempted_accounts);
        self.problem = match restored {
            Ok(missing) => {
                self.lacks_replicas = missing > 0;
                let what = "what the store lost is written back";
                let describe = || format!("{what}, but {missing} of store.wait_replicas lack it");
                self.lacks_replicas.then(describe)
            }
            Err(error) => Some(error.to_string()),
        };
        self.backoff = (self.backoff * 2).clamp(MIN_WRITE_BACK_PAUSE, MAX_WRITE_BACK_PAUSE);
        self.next_attempt_at = Some(now + self.backoff);
        true
    }
}

#[cfg(test)]
mod tests;
