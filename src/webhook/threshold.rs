//! The thresholds of an account's month.

/// The thresholds in percent of the monthly limit, the lower one first.
pub const THRESHOLDS_PERCENT: [u8; 2] = [80, 100];

/// Finds the thresholds that this many spent calls have reached. A limit of 0 has no thresholds,
/// because it refuses all calls from the start. If `is_refused` is true, the account gets no more
/// calls this month: then it has reached all thresholds.
pub fn find_reached_thresholds(
    spent: u64,
    limit: u64,
    is_refused: bool,
) -> impl Iterator<Item = u8> {
    let is_reached = move |percent: &u8| {
        let needed = u128::from(limit) * u128::from(*percent);
        limit > 0 && (is_refused || u128::from(spent) * 100 >= needed)
    };
    THRESHOLDS_PERCENT.into_iter().filter(is_reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_reached_exactly() {
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
            let reached: Vec<u8> = find_reached_thresholds(spent, limit, false).collect();
            assert_eq!(reached, expected, "{spent} of {limit}");
        }
        assert_eq!(find_reached_thresholds(5, 100, true).collect::<Vec<_>>(), [80, 100]);
        assert_eq!(find_reached_thresholds(0, 0, true).count(), 0);
    }
}
