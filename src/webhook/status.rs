//! The status of webhooks for operators: what was delivered, and what fails.

use serde_json::{Value, json};

use crate::model::month::format_rfc3339;

/// If no attempt has succeeded since a failure this many seconds ago, an operator should know.
const FAILING_IS_A_PROBLEM_AFTER_SECONDS: i64 = 600;

/// The outcome of one attempt to send a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The receiver accepted the message.
    Delivered,
    /// The attempt failed, and riskgate will try again.
    Failed,
    /// The attempt failed, and riskgate will not try again.
    GivenUp,
}

impl DeliveryOutcome {
    /// All outcomes.
    pub const ALL: [DeliveryOutcome; 3] =
        [DeliveryOutcome::Delivered, DeliveryOutcome::Failed, DeliveryOutcome::GivenUp];

    /// Returns the outcome as a label of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            DeliveryOutcome::Delivered => "delivered",
            DeliveryOutcome::Failed => "failed",
            DeliveryOutcome::GivenUp => "given_up",
        }
    }
}

/// The attempts of this process. Times are Unix seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryHistory {
    delivered: u64,
    failed_attempts: u64,
    given_up: u64,
    last_error: Option<String>,
    last_delivered_at: Option<i64>,
    /// When the first attempt after the latest success failed.
    failing_since: Option<i64>,
}

impl DeliveryHistory {
    /// Counts an attempt. `error` says why it failed.
    pub fn count_attempt(&mut self, outcome: DeliveryOutcome, error: Option<&str>, unix_now: i64) {
        match outcome {
            DeliveryOutcome::Delivered => {
                self.delivered += 1;
                self.last_delivered_at = Some(unix_now);
                self.failing_since = None;
                return;
            }
            DeliveryOutcome::Failed => {}
            DeliveryOutcome::GivenUp => self.given_up += 1,
        }
        self.failed_attempts += 1;
        self.failing_since.get_or_insert(unix_now);
        self.last_error = error.map(str::to_owned);
    }

    /// Returns true if the latest attempt failed.
    pub fn is_failing(&self) -> bool {
        self.failing_since.is_some()
    }

    /// Describes the problem that an operator should know of: events are pending, and no attempt
    /// has succeeded since a failure ten minutes ago or earlier. `None` otherwise.
    pub fn problem(&self, pending_events: u64, unix_now: i64) -> Option<String> {
        let since = self.failing_since.filter(|since| {
            pending_events > 0 && unix_now - since >= FAILING_IS_A_PROBLEM_AFTER_SECONDS
        })?;
        let (since, error) = (format_rfc3339(since), self.last_error.as_deref().unwrap_or("none"));
        Some(format!(
            "expected the receiver to accept events, but found none accepted since {since}: {error}"
        ))
    }
}

/// The status of webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookStatus {
    /// The receiver, without user, path and query.
    pub url: String,
    /// The events of all nodes that wait for delivery.
    pub pending: u64,
    /// The attempts of this process.
    pub history: DeliveryHistory,
}

impl WebhookStatus {
    /// Renders the status for `/status`, with times in RFC 3339.
    pub fn to_json(&self) -> Value {
        let DeliveryHistory { delivered, failed_attempts, given_up, .. } = self.history;
        json!({
            "url": self.url,
            "pending": self.pending,
            "delivered": delivered,
            "failed_attempts": failed_attempts,
            "given_up": given_up,
            "last_error": self.history.last_error,
            "last_delivered_at": self.history.last_delivered_at.map(format_rfc3339),
        })
    }
}

#[cfg(test)]
mod tests;
