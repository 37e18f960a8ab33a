//! When riskgate sends an event again after a failure, and when it gives the event up.

/// riskgate gives an event up if an attempt to send it fails this many seconds or more after the
/// event was recorded.
pub const GIVE_UP_AFTER_SECONDS: i64 = 3 * 86_400;
/// The longest wait between two attempts in seconds, apart from the random part.
const MAX_DELAY_SECONDS: i64 = 3_600;

/// Returns how many seconds riskgate waits after this many failed attempts: 1 s after the first,
/// then twice as long each time, at most an hour. `random` adds up to a quarter, so that events
/// that failed together are not due together again.
pub fn retry_delay_seconds(failed_attempts: u32, random: u64) -> i64 {
    let doublings = failed_attempts.saturating_sub(1).min(12);
    let delay = (1i64 << doublings).min(MAX_DELAY_SECONDS);
    let choices = delay.unsigned_abs() / 4 + 1;
    delay + (random % choices).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_from_a_second_to_an_hour() {
        let delays: Vec<i64> = (0..=14).map(|failed| retry_delay_seconds(failed, 0)).collect();
        assert_eq!(
            delays,
            [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600],
            "in seconds"
        );
        assert_eq!(retry_delay_seconds(u32::MAX, 0), 3600);
    }

    #[test]
    fn at_most_a_quarter_is_added_at_random() {
        for random in [0, 1, 7, 900, 901, u64::MAX] {
            assert!((3600..=4500).contains(&retry_delay_seconds(99, random)), "{random}");
            assert_eq!(retry_delay_seconds(1, random), 1);
        }
        assert_eq!(retry_delay_seconds(99, 900), 4500);
    }
}
