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
