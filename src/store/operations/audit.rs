//! Reads of the audit, and of requests that can be repeated.

use super::open::Store;
use crate::store::audit::AuditRecord;
use crate::store::error::StoreError;
use crate::store::rows::RequestRecord;

impl Store {
    /// Reads up to `count` records, the newest first: those before the record `before_id`, or the
    /// latest ones.
    pub fn read_audit_before(
        &mut self,
        before_id: Option<&str>,
        count: usize,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        match self {
            Store::Sqlite(store) => store.read_audit_before(before_id, count),
            Store::Redis(store) => store.read_audit_before(before_id, count),
        }
    }

    /// Reads up to `count` records after the record `after_id`, the oldest first; from the first
    /// record on if it is `None`.
    pub fn read_audit_after(
        &mut self,
        after_id: Option<&str>,
        count: usize,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        match self {
            Store::Sqlite(store) => store.read_audit_after(after_id, count),
            Store::Redis(store) => store.read_audit_after(after_id, count),
        }
    }

    /// Reads the remembered state of a source, as [`SourceState::to_stored_text`] renders it.
    ///
    /// [`SourceState::to_stored_text`]: crate::store::SourceState::to_stored_text
    pub fn read_source_state(&mut self, subject: &str) -> Result<Option<String>, StoreError> {
        match self {
            Store::Sqlite(store) => store.read_source_state(subject),
            Store::Redis(store) => store.read_source_state(subject),
        }
    }

    /// Finds the record with this id.
    pub fn find_audit_record(&mut self, id: &str) -> Result<Option<AuditRecord>, StoreError> {
        match self {
            Store::Sqlite(store) => store.find_audit_record(id),
            Store::Redis(store) => store.find_audit_record(id),
        }
    }

    /// Finds a request that added a key in the last 24 hours.
    pub fn find_request(&mut self, id: &str) -> Result<Option<RequestRecord>, StoreError> {
        match self {
            Store::Sqlite(store) => store.find_request(id),
            Store::Redis(store) => store.find_request(id),
        }
    }
}
