//! The believed time that a caller tells a connection to a store, because a store reads no clock.

use std::time::Instant;

use crate::model::believed_time::BelievedTime;

/// The believed time as the caller last told it, and when the caller told it.
pub struct ToldTime {
    told: BelievedTime,
    told_at: Instant,
}

impl ToldTime {
    /// The time of a connection that was not told any. Such a connection deletes nothing by age.
    pub(super) fn unknown() -> ToldTime {
        ToldTime { told: BelievedTime::UNKNOWN, told_at: Instant::now() }
    }

    pub(super) fn set(&mut self, time: BelievedTime) {
        *self = ToldTime { told: time, told_at: Instant::now() };
    }

    pub(super) fn now(&self) -> BelievedTime {
        let passed = i64::try_from(self.told_at.elapsed().as_secs()).unwrap_or(i64::MAX);
        BelievedTime { unix_now: self.told.unix_now.saturating_add(passed), ..self.told }
    }
}
