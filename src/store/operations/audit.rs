//! The audit, and requests that can be repeated.

use crate::store::audit::{AuditOperation, AuditRecord, ChangeAuthor, SourceState};
use crate::store::error::StoreError;
use crate::store::rows::RepeatableRequestRow;

/// What both kinds of store do with the audit.
pub trait AuditBackend {
    /// As in [`StoreEditor`](super::changes::StoreEditor).
    fn record_source_state(
        &mut self,
        author: &ChangeAuthor,
        operation: AuditOperation,
        state: &SourceState,
    ) -> Result<bool, StoreError>;

    /// Reads up to `count` records, the newest first: those before the record `before_id`, or the
    /// latest ones.
    fn read_audit_before(
        &mut self,
        before_id: Option<&str>,
        count: usize,
    ) -> Result<Vec<AuditRecord>, StoreError>;

    /// Reads up to `count` records, the oldest first: those after the record `after_id`, or the
    /// first ones.
    fn read_audit_after(
        &mut self,
        after_id: Option<&str>,
        count: usize,
    ) -> Result<Vec<AuditRecord>, StoreError>;

    /// Reads the remembered state of a source, as [`SourceState::to_stored_text`] renders it.
    ///
    /// [`SourceState::to_stored_text`]: crate::store::SourceState::to_stored_text
    fn read_source_state(&mut self, subject: &str) -> Result<Option<String>, StoreError>;

    /// Finds the record with this id.
    fn find_audit_record(&mut self, id: &str) -> Result<Option<AuditRecord>, StoreError>;

    /// Finds a request that added a key in the last 24 hours.
    fn find_repeatable_request(
        &mut self,
        id: &str,
    ) -> Result<Option<RepeatableRequestRow>, StoreError>;
}
