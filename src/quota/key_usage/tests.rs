use super::*;

fn day(number: u8) -> UsageDay {
    UsageDay::new(Month::parse("2026-11").unwrap(), number)
}

/// The changes as day, route and calls, sorted.
fn changes(usage: &UsageByKey) -> Vec<(u8, &'static str, u64)> {
    let (counts, _) = usage.collect_changes(usize::MAX);
    usage.note_in_flight(&counts);
    let mut counts: Vec<_> =
        counts.iter().map(|count| (count.day, count.route, count.calls)).collect();
    counts.sort_unstable();
    counts
}

#[test]
fn counts_are_totals_by_day_and_route() {
    let usage = UsageByKey::default();
    let key = usage.find_or_create("k1");
    key.count_calls(RouteLabel::Check, day(1), 1);
    key.count_calls(RouteLabel::Domain, day(1), 3);
    key.uncount_calls(RouteLabel::Domain, day(1), 1);
    assert_eq!(changes(&usage), [(1, "check", 1), (1, "domain", 2)]);
    usage.confirm_in_flight();
    assert_eq!(changes(&usage), []);
    key.count_calls(RouteLabel::Check, day(2), 5);
    key.count_calls(RouteLabel::Check, day(1), 1);
    assert_eq!(changes(&usage), [(1, "check", 2), (2, "check", 5)], "one call came late");
    assert_eq!(changes(&usage).len(), 2, "not acknowledged");
    usage.confirm_in_flight();
    key.uncount_calls(RouteLabel::Check, day(1), 1);
    assert_eq!(changes(&usage), [(1, "check", 1)]);
    usage.mark_unreported();
    assert_eq!(changes(&usage), [(1, "check", 1), (1, "domain", 2), (2, "check", 5)]);
}

#[test]
fn a_count_that_was_refunded_to_zero_is_reported_after_its_day() {
    for is_in_flight in [false, true] {
        let usage = UsageByKey::default();
        let key = usage.find_or_create("k1");
        key.count_calls(RouteLabel::Check, day(1), 1);
        assert_eq!(changes(&usage), [(1, "check", 1)]);
        if !is_in_flight {
            usage.confirm_in_flight();
        }
        key.uncount_calls(RouteLabel::Check, day(1), 1);
        key.count_calls(RouteLabel::Check, day(2), 1);
        if is_in_flight {
            usage.confirm_in_flight();
        }
        assert_eq!(changes(&usage), [(1, "check", 0), (2, "check", 1)], "{is_in_flight}");
        usage.confirm_in_flight();
        assert_eq!(changes(&usage), []);
    }
}

#[test]
fn days_whose_calls_were_all_refunded_are_forgotten() {
    let usage = UsageByKey::default();
    let key = usage.find_or_create("k1");
    for number in 1..=20 {
        key.count_calls(RouteLabel::Check, day(number), 1);
        key.uncount_calls(RouteLabel::Check, day(number), 1);
        key.count_calls(RouteLabel::Domain, day(number), 1);
        assert_eq!(changes(&usage), [(number, "domain", 1)]);
        usage.confirm_in_flight();
    }
    let past = key.lock_past();
    assert!(past.calls.len() <= 2 * (KEPT_PAST_DAYS + 1), "{}", past.calls.len());
}

#[test]
fn old_days_are_forgotten_once_they_are_reported() {
    let usage = UsageByKey::default();
    let key = usage.find_or_create("k1");
    for number in 1..=20 {
        key.count_calls(RouteLabel::Check, day(number), 1);
        assert_eq!(changes(&usage), [(number, "check", 1)]);
        usage.confirm_in_flight();
    }
    let past = key.lock_past();
    assert!(past.calls.len() <= KEPT_PAST_DAYS + 1, "{}", past.calls.len());
    assert!(past.reported.len() <= KEPT_PAST_DAYS + 1, "{}", past.reported.len());
}

#[test]
fn a_route_that_is_no_longer_used_is_not_reported_again() {
    let usage = UsageByKey::default();
    let key = usage.find_or_create("k1");
    key.count_calls(RouteLabel::Domain, day(1), 1);
    for number in 1..=5 {
        key.count_calls(RouteLabel::Check, day(number), 1);
        changes(&usage);
        usage.confirm_in_flight();
    }
    assert_eq!(changes(&usage), []);
}

#[test]
fn days_before_those_of_a_clock_that_was_ahead_are_counted_in_full() {
    let usage = UsageByKey::default();
    let key = usage.find_or_create("k1");
    let days = [15, 16, 17, 8, 8, 8, 9, 10, 11, 12, 15, 16];
    let expected = [1, 1, 1, 1, 2, 3, 1, 1, 1, 1, 2, 2];
    for (number, calls) in days.into_iter().zip(expected) {
        key.count_calls(RouteLabel::Check, day(number), 1);
        assert_eq!(changes(&usage), [(number, "check", calls)]);
        usage.confirm_in_flight();
    }
}

#[test]
fn no_call_is_lost_when_threads_count_over_midnight() {
    let usage = UsageByKey::default();
    let key = usage.find_or_create("k1");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for call in 0..20_000u32 {
                    let number = 1 + (call / 100 % 3) as u8;
                    key.count_calls(RouteLabel::Check, day(number), 1);
                }
            });
        }
    });
    let total: u64 = changes(&usage).iter().map(|change| change.2).sum();
    assert_eq!(total, 80_000);
}
