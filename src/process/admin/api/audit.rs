//! Lists the audit.

use serde_json::Value;

use super::AdminApi;
use super::request::{ApiError, ApiRequest, invalid_cursor, list_to_json};
use crate::management::{AuditFilter, read_audit_page};
use crate::store::AuditRecord;

impl AdminApi {
    pub(super) fn list_audit(&self, request: &ApiRequest) -> Result<Value, ApiError> {
        let page = request.parse_page()?;
        if let Some(cursor) = page.cursor.as_ref().filter(|it| AuditRecord::parse_id(it).is_none())
        {
            return Err(invalid_cursor(cursor));
        }
        let filter = |name| request.nonempty_parameter(name).map(str::to_owned);
        let filter = AuditFilter {
            operation: filter("operation"),
            actor: filter("actor"),
            target: filter("target"),
        };
        let (records, next_cursor) = self.read_from_store(|store| {
            read_audit_page(store, &filter, page.cursor.as_deref(), page.limit)
        })?;
        let items = records.iter().map(AuditRecord::to_json).collect();
        Ok(list_to_json(items, next_cursor, None))
    }
}
