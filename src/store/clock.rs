//! The time that a connection to a store works by. The caller sets it; a store reads no clock.

use std::time::Instant;

use crate::model::believed_time::BelievedTime;

/// The believed time as the caller last told it, and the seconds since then.
pub struct StoreClock {
    told: BelievedTime,
    told_at: Instant,
}

impl StoreClock {
    /// A connection that has not been told the time. It deletes nothing.
    pub(super) fn new() -> StoreClock {
        StoreClock { told: BelievedTime::UNKNOWN, told_at: Instant::now() }
    }

    pub(super) fn set(&mut self, time: BelievedTime) {
        *self = StoreClock { told: time, told_at: Instant::now() };
    }

    pub(super) fn now(&self) -> BelievedTime {
        let passed = i64::try_from(self.told_at.elapsed().as_secs()).unwrap_or(i64::MAX);
        BelievedTime { unix_now: self.told.unix_now.saturating_add(passed), ..self.told }
    }
}
