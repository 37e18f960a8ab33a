//! Reached thresholds, their events, and the text of a message.

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::model::month::{Month, format_rfc3339};
use crate::store::NewQuotaEvent;

/// An account has reached a threshold of its month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachedThreshold {
    /// The account.
    pub account: String,
    /// The account's plan.
    pub plan: String,
    /// The month.
    pub month: Month,
    /// The threshold in percent of the limit.
    pub threshold_percent: u16,
    /// The calls that all nodes have spent of the month.
    pub spent: u64,
    /// The monthly limit in force.
    pub limit: u64,
}

/// The body of a message.
#[derive(Serialize)]
struct Message<'m> {
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: String,
    data: MessageData<'m>,
}

#[derive(Serialize)]
struct MessageData<'m> {
    account: &'m str,
    plan: &'m str,
    month: String,
    threshold_percent: u16,
    month_count: u64,
    monthly_limit: u64,
    reset_at: String,
}

impl ReachedThreshold {
    /// Creates the event to record in the store now. The event is not sent before `due_at`. Both
    /// times are Unix seconds.
    pub fn to_event(&self, unix_now: i64, due_at: i64) -> NewQuotaEvent {
        NewQuotaEvent {
            key: self.event_key(),
            body: self.message_body(unix_now),
            account: self.account.clone(),
            month: self.month,
            created_at: unix_now,
            due_at,
        }
    }

    /// Computes the key of the event in the store. The key depends on account, month, limit and
    /// threshold only, so it is the same on all nodes and after a restart.
    fn event_key(&self) -> String {
        let ReachedThreshold { account, month, threshold_percent, limit, .. } = self;
        let identity = format!("{month} {limit} {threshold_percent} {account}");
        hex::encode(&Sha256::digest(identity)[..16])
    }

    fn message_body(&self, unix_now: i64) -> String {
        let message = Message {
            kind: "quota.threshold_reached",
            timestamp: format_rfc3339(unix_now),
            data: MessageData {
                account: &self.account,
                plan: &self.plan,
                month: self.month.to_string(),
                threshold_percent: self.threshold_percent,
                month_count: self.spent,
                monthly_limit: self.limit,
                reset_at: self.month.reset_at(),
            },
        };
        // Texts and numbers can always be written as JSON.
        serde_json::to_string(&message).unwrap_or_default()
    }
}

/// Returns the id of a message, by which a receiver recognizes a repeat. The id is the same in each
/// attempt, and on a copy of the store.
pub fn message_id(event_key: &str) -> String {
    format!("quota_{event_key}")
}

#[cfg(test)]
mod tests;
