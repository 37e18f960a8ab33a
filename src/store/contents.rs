//! What `riskgate store copy` copies from one store to another.

use serde_json::{Value, json};

use super::audit::{AuditOperation, AuditRecord, Change};
use super::inbox_secret::StoredInboxSecret;
use super::overrides::{StoredOverride, StoredOverrides};
use super::quota_events::QuotaEventRow;
use super::rows::{DailyUsageRow, RingRows, TopRow, UsageRow};
use crate::model::month::Month;
use crate::model::sign_up::SignUp;

/// The contents that `riskgate store copy` copies. What riskgate learns again or needs only for a
/// while stays behind, for example DNS facts and requests that can be repeated.
#[derive(Clone, Debug)]
pub struct StoreContents {
    /// Keys and accounts.
    pub ring: RingRows,
    /// The month that `usage` is about.
    pub usage_month: Month,
    /// The totals of that month, one row for each account.
    pub usage: Vec<UsageRow>,
    /// The counts of the top list.
    pub top_rows: Vec<TopRow>,
    /// The quota events: pending ones, and finished ones of `usage_month` and later months.
    pub quota_events: Vec<QuotaEventRow>,
    /// The operator's overrides.
    pub overrides: Vec<StoredOverride>,
    /// The names of overrides that can't be read.
    pub damaged_overrides: Vec<String>,
    /// The records of the audit, the oldest first.
    pub audit: Vec<AuditRecord>,
    /// The subject and the state of each source outside the store, as the store last recorded them.
    pub source_states: Vec<(String, String)>,
    /// The calls by day of `usage_month` and of the months before it that the store keeps.
    pub daily_usage: Vec<(Month, Vec<DailyUsageRow>)>,
    /// The secret from which the pseudonyms of the sign-ups were computed, if the store has one.
    pub inbox_secret: Option<StoredInboxSecret>,
    /// The sign-ups that no deletion covers, in the order of writing.
    pub sign_ups: Vec<SignUp>,
}

/// The contents that a copy reads as they were at one moment.
pub struct SnapshotToCopy {
    pub ring: RingRows,
    /// The id of the last record of the audit; `None` if there is no record.
    pub last_audit_record_id: Option<String>,
    /// The operator's overrides.
    pub overrides: StoredOverrides,
    /// See [`StoreContents::source_states`].
    pub source_states: Vec<(String, String)>,
}

impl StoreContents {
    /// Returns true if there is nothing to copy but, at most, states of sources and the records of
    /// the store's own beginning.
    pub fn is_empty(&self) -> bool {
        let StoreContents { ring, usage, top_rows, quota_events, audit, daily_usage, .. } = self;
        let StoreContents { overrides, inbox_secret, sign_ups, .. } = self;
        let of_beginning = [AuditOperation::StoreInit, AuditOperation::StoreFill];
        let of_beginning = of_beginning.map(AuditOperation::as_str);
        ring.keys.is_empty()
            && ring.accounts.is_empty()
            && usage.is_empty()
            && top_rows.is_empty()
            && quota_events.is_empty()
            && overrides.is_empty()
            && audit.iter().all(|record| of_beginning.contains(&record.operation.as_str()))
            && daily_usage.is_empty()
            && inbox_secret.is_none()
            && sign_ups.is_empty()
    }
}

/// The change that fills an empty store.
pub(super) fn change_of_filled_store(contents: &StoreContents) -> Change {
    let (keys, accounts) = (contents.ring.keys.len(), contents.ring.accounts.len());
    Change {
        operation: AuditOperation::StoreFill,
        target: "the store".to_owned(),
        before: Value::Null,
        after: json!({
            "keys": keys, "accounts": accounts, "overrides": contents.overrides.len(),
        }),
    }
}
