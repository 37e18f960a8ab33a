//! The mark of the inbox ids in the store, by which nodes notice that they make other ids.
//!
//! The marks of two nodes are equal if and only if both have the same secret and the same
//! `decide.scope`. The store has the mark of the node that wrote last. The nodes whose mark is the
//! one in the store confirm it again and again. If nobody confirms a mark, the nodes that made its
//! ids count as gone, and a node with other ids puts its own mark in place of it. Time in which the
//! store may have been down does not count, because nobody could confirm a mark.

use std::time::{Duration, Instant};

use crate::store::{Store, StoreError, StoredIdMark};

/// How often the nodes that have the mark of the store confirm it.
const CONFIRM_INTERVAL: Duration = Duration::from_secs(15);
/// If nobody has confirmed a mark for this long, the nodes that had it count as gone.
const GONE_AFTER: Duration = Duration::from_secs(60);

/// If a node looks at the store less often, the store may have been down meanwhile.
const MAX_LOOK_GAP: Duration = Duration::from_secs(15);

/// Keeps the mark of this node in the store.
#[derive(Default)]
pub(super) struct IdMarkKeeper {
    /// The mark of this node that it has written to the store, or found there.
    own: Option<String>,
    /// What the last look found; `None` before the first look, and if the store failed.
    seen: Option<SeenMark>,
}

/// What a node found in the store.
struct SeenMark {
    stored: StoredIdMark,
    /// The first of the looks that found this, without an outage since then.
    since: Instant,
    /// The last of these looks.
    looked_at: Instant,
}

/// What a node does after it has read the mark of the store.
#[derive(Debug, PartialEq, Eq)]
enum MarkStep {
    /// The store has the mark of this node, which need not confirm it yet.
    Keep,
    /// Write the mark of this node. Whether it replaces another one.
    Write { replaces_other: bool },
    /// Another node has written its mark since this node has, and lives.
    Differs,
}

impl IdMarkKeeper {
    /// Compares this node's mark with the one in the store. Writes its own mark:
    /// - if the store has none,
    /// - if the store has another one, and this node has not written or found its own mark before,
    ///   or nobody confirms the other one, and
    /// - to confirm it, if nobody else does.
    ///
    /// Otherwise, if the store has another mark, returns a problem for the operator: another node
    /// has written its mark since then, after a start or a reload.
    ///
    /// # Errors
    /// If the store fails.
    pub(super) fn compare_and_write(
        &mut self,
        store: &mut Store,
        mark: &str,
        now: Instant,
    ) -> Result<Option<String>, StoreError> {
        let compared = self.try_compare_and_write(store, mark, now);
        if compared.is_err() {
            self.seen = None;
        }
        compared
    }

    fn try_compare_and_write(
        &mut self,
        store: &mut Store,
        mark: &str,
        now: Instant,
    ) -> Result<Option<String>, StoreError> {
        let step = self.decide_step(store.read_inbox_id_mark()?, mark, now);
        let MarkStep::Write { replaces_other } = step else {
            let problem = "another node makes other inbox ids: expected the same inbox.secret_file \
                           and decide.scope on all nodes of a store";
            return Ok((step == MarkStep::Differs).then(|| problem.to_owned()));
        };
        if replaces_other {
            log::warn!(
                "inbox ids are others from now on than those that nodes of this store have made: \
                 inbox.secret_file, the secret of the store or decide.scope has changed. Ids in \
                 your database no longer match, and sign-ups from before no longer count"
            );
        }
        let confirmation = Some(format!("{:016x}", getrandom::u64().unwrap_or_default()));
        let written = StoredIdMark { mark: mark.to_owned(), confirmation };
        store.write_inbox_id_mark(&written)?;
        self.own = Some(mark.to_owned());
        self.seen = Some(SeenMark { stored: written, since: now, looked_at: now });
        Ok(None)
    }

    fn decide_step(&mut self, stored: Option<StoredIdMark>, mark: &str, now: Instant) -> MarkStep {
        let Some(stored) = stored else { return MarkStep::Write { replaces_other: false } };
        let is_own = stored.mark == mark;
        let since = match &self.seen {
            Some(seen)
                if seen.stored == stored
                    && now.saturating_duration_since(seen.looked_at) <= MAX_LOOK_GAP =>
            {
                seen.since
            }
            _ => now,
        };
        self.seen = Some(SeenMark { stored, since, looked_at: now });
        let unconfirmed_for = now.saturating_duration_since(since);
        if is_own {
            self.own = Some(mark.to_owned());
            return match unconfirmed_for >= CONFIRM_INTERVAL {
                true => MarkStep::Write { replaces_other: false },
                false => MarkStep::Keep,
            };
        }
        match self.own.as_deref() == Some(mark) && unconfirmed_for < GONE_AFTER {
            true => MarkStep::Differs,
            false => MarkStep::Write { replaces_other: true },
        }
    }
}

#[cfg(test)]
mod tests;
