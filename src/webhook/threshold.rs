//! The thresholds of an account's month.

use std::ops::RangeInclusive;

/// The thresholds in percent of the monthly limit, unless the config has others.
pub const DEFAULT_THRESHOLDS: [u16; 2] = [80, 100];
/// The most thresholds.
pub const MAX_THRESHOLDS: usize = 8;
/// What a threshold may be, in percent of the monthly limit.
pub const THRESHOLD_RANGE: RangeInclusive<u16> = 1..=1_000;

/// The thresholds of every account, in percent of its monthly limit, the lowest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thresholds(Vec<u16>);

impl Thresholds {
    /// Returns `None` for no threshold, for more than [`MAX_THRESHOLDS`] different ones, and for
    /// one outside [`THRESHOLD_RANGE`].
    pub fn new(percents: &[u16]) -> Option<Thresholds> {
        let mut sorted = percents.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let are_valid = (1..=MAX_THRESHOLDS).contains(&sorted.len())
            && sorted.iter().all(|percent| THRESHOLD_RANGE.contains(percent));
        are_valid.then_some(Thresholds(sorted))
    }

    /// Finds the thresholds that an account with this many spent calls has reached. A limit of 0
    /// has no thresholds, because it refuses all calls from the start. If `is_refused` is true, the
    /// account gets no more calls this month, and has reached all thresholds up to 100 %.
    pub fn find_reached(
        &self,
        spent: u64,
        limit: u64,
        is_refused: bool,
    ) -> impl Iterator<Item = u16> {
        let is_reached = move |percent: &&u16| {
            let needed = u128::from(limit) * u128::from(**percent);
            let is_within_limit = **percent <= 100;
            limit > 0 && (is_refused && is_within_limit || u128::from(spent) * 100 >= needed)
        };
        self.0.iter().filter(is_reached).copied()
    }
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds(DEFAULT_THRESHOLDS.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_reached_exactly() {
        let thresholds = Thresholds::default();
        for (spent, limit, expected) in [
            (0, 100, &[][..]),
            (79, 100, &[]),
            (80, 100, &[80]),
            (99, 100, &[80]),
            (100, 100, &[80, 100]),
            (250, 100, &[80, 100]),
            (0, 1, &[]),
            (1, 1, &[80, 100]),
            (2, 3, &[]),
            (3, 3, &[80, 100]),
            (0, 0, &[]),
            (5, 0, &[]),
            (u64::MAX, u64::MAX, &[80, 100]),
            (u64::MAX / 2, u64::MAX, &[]),
        ] {
            let reached: Vec<u16> = thresholds.find_reached(spent, limit, false).collect();
            assert_eq!(reached, expected, "{spent} of {limit}");
        }
        assert_eq!(thresholds.find_reached(5, 100, true).collect::<Vec<_>>(), [80, 100]);
        assert_eq!(thresholds.find_reached(0, 0, true).count(), 0);
    }

    #[test]
    fn other_thresholds_may_be_beyond_the_limit() {
        let thresholds = Thresholds::new(&[120, 75, 100, 90, 90]).unwrap();
        let reached = |spent, is_refused| -> Vec<u16> {
            thresholds.find_reached(spent, 100, is_refused).collect()
        };
        assert!(reached(74, false).is_empty());
        assert_eq!(reached(95, false), [75, 90]);
        assert_eq!(reached(95, true), [75, 90, 100]);
        assert_eq!(reached(120, false), [75, 90, 100, 120]);
        for wrong in [&[][..], &[0], &[1_001], &[1, 2, 3, 4, 5, 6, 7, 8, 9]] {
            assert_eq!(Thresholds::new(wrong), None, "{wrong:?}");
        }
    }
}
