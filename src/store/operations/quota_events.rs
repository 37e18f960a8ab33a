//! Quota events, which webhooks deliver.

use crate::model::month::Month;
use crate::store::error::StoreError;
use crate::store::quota_events::{
    ClaimTimes, ClaimedQuotaEvent, NewQuotaEvent, QuotaEventOutcome, QuotaEventRow,
};

/// What both kinds of store do with quota events, which webhooks deliver.
pub trait QuotaEventBackend {
    /// Records events that the store does not have, in one step. An event that the store has stays
    /// as it is, whether it is pending or finished. Each call also forgets some events that were
    /// finished before `forgotten_before`; SQLite does so only if one of `events` is new.
    ///
    /// Returns n if the store now has the first n of `events`. If [`MAX_PENDING_QUOTA_EVENTS`] are
    /// pending, the store does not take the others.
    ///
    /// [`MAX_PENDING_QUOTA_EVENTS`]: crate::store::MAX_PENDING_QUOTA_EVENTS
    fn record_quota_events(
        &mut self,
        events: &[NewQuotaEvent],
        forgotten_before: i64,
    ) -> Result<usize, StoreError>;

    /// Claims up to `max` pending events that are due, in the order in which they became due.
    /// Counts an attempt for each, and makes each due again at `times.claimed_until`. Until then,
    /// no other caller gets the event. An event that is due after `times.latest_due` counts as due
    /// now: its time was written while a clock was ahead.
    fn claim_quota_events(
        &mut self,
        times: ClaimTimes,
        max: usize,
    ) -> Result<Vec<ClaimedQuotaEvent>, StoreError>;

    /// Records the outcome of a claimed event: the event is finished, or due again later. Returns
    /// false and changes nothing if another caller has claimed or finished the event since.
    fn finish_quota_event(
        &mut self,
        event: &ClaimedQuotaEvent,
        outcome: QuotaEventOutcome,
    ) -> Result<bool, StoreError>;

    /// Returns how many events are pending.
    fn count_pending_quota_events(&mut self) -> Result<u64, StoreError>;

    /// Returns the events that a copy of the store needs: all pending ones, and the finished ones
    /// of `month` and later months, in the order of their keys. Fails if an event can't be read.
    fn quota_events_to_copy(&mut self, month: Month) -> Result<Vec<QuotaEventRow>, StoreError>;
}
