//! Operations on quota events, which webhooks deliver.

use super::open::Store;
use crate::model::month::Month;
use crate::store::error::StoreError;
use crate::store::quota_events::{
    ClaimTimes, ClaimedQuotaEvent, NewQuotaEvent, QuotaEventOutcome, QuotaEventRow,
};

impl Store {
    /// Records events that the store does not have, in one step. An event that the store has stays
    /// as it is, whether it is pending or finished. Also forgets events that were finished before
    /// `forgotten_before`.
    ///
    /// Returns how many of the first `events` the store now has. These are fewer than all events if
    /// [`MAX_PENDING_QUOTA_EVENTS`] are pending.
    ///
    /// [`MAX_PENDING_QUOTA_EVENTS`]: crate::store::MAX_PENDING_QUOTA_EVENTS
    pub fn record_quota_events(
        &mut self,
        events: &[NewQuotaEvent],
        forgotten_before: i64,
    ) -> Result<usize, StoreError> {
        match self {
            Store::Sqlite(store) => store.record_quota_events(events, forgotten_before),
            Store::Redis(store) => store.record_quota_events(events, forgotten_before),
        }
    }

    /// Claims up to `max` pending events that are due, in the order in which they became due.
    /// Counts an attempt for each, and makes each due again at `times.claimed_until`. Until then,
    /// no other caller gets the event. Also claims events that are due only after
    /// `times.latest_due`: their times were written while a clock was ahead.
    pub fn claim_quota_events(
        &mut self,
        times: ClaimTimes,
        max: usize,
    ) -> Result<Vec<ClaimedQuotaEvent>, StoreError> {
        match self {
            Store::Sqlite(store) => store.claim_quota_events(times, max),
            Store::Redis(store) => store.claim_quota_events(times, max),
        }
    }

    /// Records the outcome of a claimed event: the event is finished, or due again later. Returns
    /// false and changes nothing if another caller has claimed or finished the event since.
    pub fn finish_quota_event(
        &mut self,
        event: &ClaimedQuotaEvent,
        outcome: QuotaEventOutcome,
    ) -> Result<bool, StoreError> {
        match self {
            Store::Sqlite(store) => store.finish_quota_event(event, outcome),
            Store::Redis(store) => store.finish_quota_event(event, outcome),
        }
    }

    /// Returns how many events are pending.
    pub fn count_pending_quota_events(&mut self) -> Result<u64, StoreError> {
        match self {
            Store::Sqlite(store) => store.count_pending_quota_events(),
            Store::Redis(store) => store.count_pending_quota_events(),
        }
    }

    /// Returns the events that a copy of the store needs: all pending ones, and the finished ones
    /// of `month` and later months, in the order of their keys.
    pub fn quota_events_to_copy(&mut self, month: Month) -> Result<Vec<QuotaEventRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.quota_events_to_copy(month),
            Store::Redis(store) => store.quota_events_to_copy(month),
        }
    }
}
