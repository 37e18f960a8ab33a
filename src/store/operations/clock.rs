//! The time that the operations of a store work by, and what a store remembers of it.

use super::open::Store;
use crate::model::believed_time::{BelievedTime, TimeAnchor};
use crate::store::audit::AuditRecord;
use crate::store::error::StoreError;

impl Store {
    /// Tells the store the believed time. All later operations on this connection use this time and
    /// the seconds that have passed since. Before the first call, no time is known: nothing is
    /// deleted, and a new record gets the time of the latest one.
    pub fn set_time(&mut self, time: BelievedTime) {
        match self {
            Store::Sqlite(store) => store.clock.set(time),
            Store::Redis(store) => store.clock.set(time),
        }
    }

    /// The believed time of this connection.
    pub fn now(&self) -> BelievedTime {
        match self {
            Store::Sqlite(store) => store.clock.now(),
            Store::Redis(store) => store.clock.now(),
        }
    }

    /// The latest believed time that a gateway has told this store; `None` if there is none.
    pub fn time_anchor(&mut self) -> Result<Option<TimeAnchor>, StoreError> {
        match self {
            Store::Sqlite(store) => store.time_anchor(),
            Store::Redis(store) => store.time_anchor(),
        }
    }

    /// Remembers the believed time of a gateway. It is no change that the audit records.
    pub fn remember_time(&mut self, anchor: &TimeAnchor) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.remember_time(anchor),
            Store::Redis(store) => store.remember_time(anchor),
        }
    }

    /// The time of the latest record in the audit; `None` if there is no record.
    pub fn latest_audit_time(&mut self) -> Result<Option<i64>, StoreError> {
        let latest = self.read_audit_before(None, 1)?;
        Ok(latest.first().map(|record: &AuditRecord| record.at))
    }
}
