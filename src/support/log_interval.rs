//! Limits how often riskgate logs a message that clients can cause.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::lock::lock;

/// The shortest time between two lines with the same message.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Decides when a message may be logged again.
#[derive(Debug, Default)]
pub struct LogInterval {
    last_logged_at: Mutex<Option<Instant>>,
}

impl LogInterval {
    /// Returns true if the message was not logged in the last ten seconds, and counts it as logged
    /// now.
    pub fn begin_if_due(&self) -> bool {
        let mut last = lock(&self.last_logged_at);
        let is_due = last.is_none_or(|at| at.elapsed() > LOG_INTERVAL);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests;
