use super::*;

fn november() -> Month {
    Month::parse("2026-11").unwrap()
}

fn usage(spent: u64, limit: u64, is_exhausted: bool) -> AccountUsage<'static> {
    AccountUsage { account: "acme", spent, limit, is_exhausted }
}

/// Observes an account once, and records what is found. Returns the thresholds.
fn observe(detector: &mut ThresholdDetector, usage: AccountUsage<'_>) -> Vec<u16> {
    let mut found = Vec::new();
    detector.observe(november(), &usage, &Thresholds::default(), || Some("free"), &mut found);
    found.iter().for_each(|reached| detector.mark_recorded(reached));
    found.iter().map(|reached| reached.threshold_percent).collect()
}

#[test]
fn a_raised_limit_ends_the_refusal_and_reaches_no_threshold() {
    let mut detector = ThresholdDetector::default();
    for _ in 0..OBSERVATIONS_UNTIL_REFUSED + 2 {
        observe(&mut detector, usage(100, 100, true));
    }
    for _ in 0..3 {
        assert!(observe(&mut detector, usage(100, 1_000, false)).is_empty());
    }
    assert_eq!(observe(&mut detector, usage(800, 1_000, false)), [80]);
}

#[test]
fn each_threshold_is_found_until_it_is_recorded() {
    let mut detector = ThresholdDetector::default();
    assert!(observe(&mut detector, usage(79, 100, false)).is_empty());
    let mut found = Vec::new();
    for _ in 0..2 {
        let usage = usage(85, 100, false);
        detector.observe(november(), &usage, &Thresholds::default(), || Some("free"), &mut found);
    }
    assert_eq!(found.len(), 2, "nothing was recorded yet");
    assert_eq!(observe(&mut detector, usage(85, 100, false)), [80]);
    assert!(observe(&mut detector, usage(99, 100, false)).is_empty());
    assert_eq!(observe(&mut detector, usage(100, 100, false)), [100]);
    assert!(observe(&mut detector, usage(100, 100, false)).is_empty());
    assert_eq!(observe(&mut detector, usage(100, 120, false)), [80], "another limit");
    assert_eq!(observe(&mut detector, usage(100, 100, false)), [80, 100], "the store knows");
    detector.forget_recorded();
    assert_eq!(observe(&mut detector, usage(100, 100, false)), [80, 100]);
    let mut found = Vec::new();
    let december = Month::parse("2026-12").unwrap();
    detector.observe(
        december,
        &usage(80, 100, false),
        &Thresholds::default(),
        || Some("free"),
        &mut found,
    );
    assert_eq!(found.len(), 1, "another month");
}

#[test]
fn an_account_that_is_gone_is_not_told() {
    let mut found = Vec::new();
    let mut detector = ThresholdDetector::default();
    detector.observe(
        november(),
        &usage(85, 100, false),
        &Thresholds::default(),
        || None,
        &mut found,
    );
    assert!(found.is_empty());
}

#[test]
fn an_account_that_gets_no_more_calls_counts_as_full() {
    let mut detector = ThresholdDetector::default();
    for _ in 1..OBSERVATIONS_UNTIL_REFUSED {
        assert!(observe(&mut detector, usage(70, 100, true)).is_empty());
    }
    // A node returned calls, and they were spent.
    assert!(observe(&mut detector, usage(71, 100, true)).is_empty());
    assert!(observe(&mut detector, usage(71, 100, false)).is_empty());
    for _ in 2..OBSERVATIONS_UNTIL_REFUSED {
        assert!(observe(&mut detector, usage(71, 100, true)).is_empty());
    }
    assert_eq!(observe(&mut detector, usage(71, 100, true)), [80, 100]);
    assert!(observe(&mut detector, usage(71, 100, false)).is_empty());
}

#[test]
fn the_higher_of_two_thresholds_is_sent_later() {
    let mut found = Vec::new();
    let mut detector = ThresholdDetector::default();
    detector.observe(
        november(),
        &usage(100, 100, false),
        &Thresholds::default(),
        || Some("free"),
        &mut found,
    );
    let other = AccountUsage { account: "other", spent: 8, limit: 10, is_exhausted: false };
    detector.observe(november(), &other, &Thresholds::default(), || Some("free"), &mut found);
    let events = ThresholdDetector::create_events(&found, 50);
    let due: Vec<i64> = events.iter().map(|event| event.due_at).collect();
    assert_eq!(due, [50, 51, 50]);
}
