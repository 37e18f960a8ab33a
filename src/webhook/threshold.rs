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
mod tests;
