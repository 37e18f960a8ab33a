//! Operations on quota events: what webhooks tell about the months of accounts.

use super::open::Store;
use crate::model::month::Month;
use crate::store::error::StoreError;
use crate::store::quota_events::{
    ClaimedQuotaEvent, NewQuotaEvent, QuotaEventOutcome, QuotaEventRow, QuotaEventTimes,
};

impl Store {
    /// Records events that the store does not have, in one step. An event that the store has stays
    /// as it is, whether it is pending or finished. Also forgets events that were finished before
    /// `forgotten_before`.
    ///
    /// Returns how many events of `events`, counted from the first, the store now has. The number is
    /// lower than that of all events if [`MAX_PENDING_QUOTA_EVENTS`] are pending.
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

    /// Claims up to `max` pending events that are due, those due longest first. Counts an attempt
    /// for each, and makes each due again at `times.claimed_until`. Until then, no other caller gets
    /// the event. An event that is due only after `times.latest_due` is claimed too: it was recorded
    /// while a clock was ahead.
    pub fn claim_quota_events(
        &mut self,
        times: QuotaEventTimes,
        max: usize,
    ) -> Result<Vec<ClaimedQuotaEvent>, StoreError> {
        match self {
            Store::Sqlite(store) => store.claim_quota_events(times, max),
            Store::Redis(store) => store.claim_quota_events(times, max),
        }
    }

    /// Records the outcome of a claimed event: it is finished, or due again later. Returns false and
    /// changes nothing if another caller has claimed the event since, or has finished it.
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

    /// How many events are pending.
    pub fn count_pending_quota_events(&mut self) -> Result<u64, StoreError> {
        match self {
            Store::Sqlite(store) => store.count_pending_quota_events(),
            Store::Redis(store) => store.count_pending_quota_events(),
        }
    }

    /// The events that a copy of the store needs: all pending ones, and the finished ones of `month`
    /// and later months, in the order of their keys.
    pub fn quota_events_to_copy(&mut self, month: Month) -> Result<Vec<QuotaEventRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.quota_events_to_copy(month),
            Store::Redis(store) => store.quota_events_to_copy(month),
        }
    }
}
