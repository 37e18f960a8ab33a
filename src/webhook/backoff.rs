//! When riskgate sends an event again after a failure, and when it gives the event up.

/// riskgate gives an event up if an attempt to send it fails this many seconds or more after the
/// event was recorded.
pub const GIVE_UP_AFTER_SECONDS: i64 = 3 * 86_400;
/// The longest wait between two attempts in seconds, apart from the random part.
const MAX_DELAY_SECONDS: i64 = 3_600;

/// Returns how many seconds riskgate waits after this many failed attempts: 1 s after the first,
/// then twice as long each time, at most an hour. `random` adds up to a quarter, or up to a second
/// if that is more, so that events that failed together are not all due together again.
pub fn retry_delay_seconds(failed_attempts: u32, random: u64) -> i64 {
    let doublings = failed_attempts.saturating_sub(1).min(12);
    let delay = (1i64 << doublings).min(MAX_DELAY_SECONDS);
    let choices = (delay.unsigned_abs() / 4).max(1) + 1;
    delay + (random % choices).cast_signed()
}

#[cfg(test)]
mod tests;
