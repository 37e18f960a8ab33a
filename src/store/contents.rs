//! All that a store contains, as `riskgate store copy` moves it.

use serde_json::{Value, json};

use super::audit::{AuditRecord, Change, ChangeKind};
use super::quota_events::QuotaEventRow;
use super::rows::{DailyUsageRow, RingRows, TopRow, UsageRow};
use crate::model::month::Month;

/// The contents that `riskgate store copy` moves.
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
    /// The quota events: pending ones, and finished ones of this month.
    pub quota_events: Vec<QuotaEventRow>,
    /// The records of the audit, the oldest first.
    pub audit: Vec<AuditRecord>,
    /// The calls by day of each month that the store keeps.
    pub daily_usage: Vec<(Month, Vec<DailyUsageRow>)>,
}

/// The change that fills an empty store.
pub(super) fn change_of_filled_store(contents: &StoreContents) -> Change {
    let (keys, accounts) = (contents.ring.keys.len(), contents.ring.accounts.len());
    Change {
        kind: ChangeKind::StoreFill,
        target: "the store".to_owned(),
        before: Value::Null,
        after: json!({ "keys": keys, "accounts": accounts }),
    }
}
