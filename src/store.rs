//! State that outlives a process, such as the quota ledger, keys, accounts, overrides, sign-ups and
//! the audit.
//!
//! Owns the types that callers exchange with a store, and the contract of each store operation.
//! There are two kinds of store: `sqlite` serves one machine, `redis` several nodes. Both keep the
//! same contracts; only `redis` has shared rates. This module never decides whether a request is
//! admitted. It knows no HTTP and no config.

mod audit;
mod contents;
mod error;
mod finding;
mod inbox_secret;
mod ledger;
mod lost;
mod new_key_plan;
mod operations;
mod overrides;
mod quota_events;
mod redis;
mod reply_check;
mod rows;
mod server_list_url;
mod sign_ups;
mod sqlite;
mod url;

#[cfg(test)]
#[path = "../tests/support/free_ports.rs"]
mod free_ports;
#[cfg(test)]
#[path = "../tests/support/redis_server.rs"]
pub(crate) mod redis_server;
#[cfg(test)]
mod tests;

pub use crate::model::monthly_limit::{LimitChange, MonthlyLimit};
pub use audit::{AuditOperation, AuditRecord, Change, ChangeAuthor, ChangeSurface, SourceState};
pub use contents::StoreContents;
pub use error::StoreError;
pub use finding::{Finding, FindingLevel, MODE_SUBJECT};
pub use inbox_secret::{StoredIdMark, StoredInboxSecret};
pub use ledger::{
    Grant, LeaseReport, Probe, ReportBatchContext, ReportOutcome, TotalsKnownToNode, UsageCount,
};
pub use lost::{LostRows, keep_first_losses};
pub use new_key_plan::NewKeyPlan;
pub use operations::open::Store;
pub use overrides::{
    MAX_STORED_OVERRIDES, OverrideTakeOver, OverrideUpdate, OverridesVersion, StoredOverride,
    StoredOverrides,
};
pub use quota_events::{
    ClaimTimes, ClaimedQuotaEvent, MAX_PENDING_QUOTA_EVENTS, NewQuotaEvent, QuotaEventOutcome,
    QuotaEventRow, QuotaEventState,
};
pub use redis::connection::Redis;
pub use redis::options::{ClientCertificatePaths, RedisOptions};
pub use redis::rates::MAX_RATE_CHARGES;
pub use redis::ring_store::RingStore;
pub use reply_check::check_grant;
pub use rows::{
    AccountRow, DailyUsageCursor, DailyUsageRow, DamagedRows, DnsFactRow, KeyRow,
    MAX_ADDRESSES_PER_DNS_FACT, MAX_DNS_FACTS, MAX_TOP_ROW_ACCOUNTS, MonthRepair,
    RepeatableRequestRow, RingChanges, RingRows, RingVersion, Rotation, TopCredit, TopRow,
    UsageRow,
};
pub use sign_ups::{
    MAX_SIGN_UPS, SIGN_UPS_PER_WRITE, SignUpCursor, SignUpDeletion, SignUpsOfInboxes,
};
pub use sqlite::connection::Sqlite;
pub use sqlite::files::{find_log_beside, is_log_or_memory_missing};
pub use sqlite::open::is_unused_backup;
pub use url::{RedisUrl, STORE_URL_SYNTAX, StoreUrl, has_malformed_escape, redact_url};
