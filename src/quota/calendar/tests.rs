use super::*;

/// The last second of November 2026.
const NOVEMBER_END: i64 = 1_796_083_199;
const DAY: i64 = 86_400;

fn month_text(calendar: &Calendar, boottime: i64) -> String {
    calendar.month_to_charge(calendar.believed_now(boottime), || boottime).to_string()
}

fn counted_month_at(unix_now: i64) -> Option<Month> {
    Some(Month::containing(unix_now))
}

#[test]
fn a_month_begins_on_time_and_never_again() {
    let calendar = Calendar::new(None, NOVEMBER_END - 100, 0);
    assert_eq!(month_text(&calendar, 100), "2026-11");
    assert_eq!(month_text(&calendar, 101), "2026-12");
    assert_eq!(month_text(&calendar, 99), "2026-12");
    let calendar = Calendar::new(counted_month_at(NOVEMBER_END + 1), NOVEMBER_END, 0);
    assert_eq!(month_text(&calendar, 0), "2026-12");
    assert_eq!(
        calendar.believed_now(7),
        NOVEMBER_END + 8,
        "the time is not before the month either"
    );
}

#[test]
fn a_clock_far_ahead_at_the_start_is_held_until_it_proves_steady() {
    let wrong = NOVEMBER_END + 62 * DAY;
    let calendar = Calendar::new(counted_month_at(NOVEMBER_END), wrong, 0);
    assert!(
        calendar
            .clock_problem(0)
            .unwrap()
            .contains("this machine's clock says 2027-01-31T23:59:59Z")
    );
    for boottime in 0..600 {
        calendar.observe_machine_clock(wrong + boottime, boottime);
        assert_eq!(month_text(&calendar, boottime), "2026-11");
    }
    calendar.observe_machine_clock(wrong + 600, 600);
    assert_eq!(
        (month_text(&calendar, 600), calendar.clock_problem(600)),
        ("2027-02".to_owned(), None)
    );
    // A gateway that did not run while a month ended accepts the new month at once.
    let calendar = Calendar::new(counted_month_at(NOVEMBER_END), NOVEMBER_END + 5 * DAY, 0);
    assert_eq!(month_text(&calendar, 0), "2026-12");
}

#[test]
fn a_clock_that_was_wrong_at_the_start_begins_no_month_when_it_is_set() {
    let known = counted_month_at(NOVEMBER_END);
    let (wrong, next_month) = (NOVEMBER_END - 40 * DAY, NOVEMBER_END + DAY);
    let calendar = Calendar::new(known, wrong, 0);
    calendar.observe_machine_clock(next_month, 1);
    assert_eq!(month_text(&calendar, 1), "2026-11");
    calendar.observe_machine_clock(NOVEMBER_END - DAY, 2);
    assert_eq!(calendar.believed_now(2), NOVEMBER_END - DAY, "it is set right within the month");
    // A clock that was never set tells the month once it is set.
    let calendar = Calendar::new(known, 0, 0);
    calendar.observe_machine_clock(next_month, 1);
    assert_eq!(month_text(&calendar, 1), "2026-12");
}

#[test]
fn the_log_says_that_a_clock_was_never_set_and_not_that_it_is_held_for_ten_minutes() {
    let start = NOVEMBER_END - DAY;
    let calendar = Calendar::new(None, start, 0);
    let mut state = calendar.clock_state.lock().unwrap();
    let mut warn = |offset| {
        state.apply_reading(ClockSource::Machine, offset, 1, Month::containing(start)).unwrap()
    };
    let expected =
        "this machine's clock says 1970-01-01T00:00:01Z, so it was never set: ignored until it is";
    assert_eq!(warn(0), expected);
    assert!(warn(start + 40 * DAY).ends_with("held for ten minutes"));
}

#[test]
fn the_log_says_that_a_clock_differs_at_the_start_and_jumps_only_later() {
    let start = NOVEMBER_END - DAY;
    let calendar = Calendar::new(None, start, 0);
    let mut state = calendar.clock_state.lock().unwrap();
    let mut warn = |clock| {
        let offset = start + DAY / 2;
        state.apply_reading(clock, offset, 1, Month::containing(start)).unwrap()
    };
    assert_eq!(
        (warn(ClockSource::Machine), warn(ClockSource::Store)),
        (
            "this machine's clock jumped by 43200 s: held for ten minutes".to_owned(),
            "the store's clock differs from the time that riskgate believes by 43200 s: held for \
             ten minutes"
                .to_owned()
        )
    );
    state.has_read_machine_clock = false;
    state.held_machine_jump = None;
    let told = state.apply_reading(ClockSource::Machine, start - 9_000, 1, Month::FIRST).unwrap();
    let expected = "this machine's clock differs from the time that the store knows by -9000 s: \
                    held for ten minutes";
    assert_eq!(told, expected);
}

#[test]
fn a_jump_is_held_until_it_proves_steady_and_the_time_goes_on_meanwhile() {
    let start = NOVEMBER_END - DAY;
    let calendar = Calendar::new(None, start, 0);
    let jump = 40 * DAY;
    let observe = |ahead: i64, boottime: i64| {
        calendar.observe_machine_clock(start + ahead + boottime, boottime);
        calendar.believed_now(boottime)
    };
    assert_eq!(observe(jump, 1), start + 1);
    // The clock steps back, so the jump is forgotten.
    assert_eq!(observe(0, 2), start + 2);
    assert_eq!(calendar.clock_problem(2), None);
    // The clock keeps jumping, so no jump is steady.
    assert_eq!(observe(jump, 500), start + 500);
    assert_eq!(observe(jump + 3_000, 700), start + 700);
    assert_eq!(observe(jump + 3_000, 1_299), start + 1_299);
    assert_eq!(observe(jump + 3_000, 1_300), start + jump + 4_300);
    assert_eq!(month_text(&calendar, 1_300), "2027-01");
    // A steady clock alone never leads back to a past month.
    assert_eq!(observe(0, 1_400), start + jump + 4_400);
    assert_eq!(observe(0, 9_000), start + jump + 12_000);
    assert!(calendar.clock_problem(9_000).unwrap().contains("riskgate store repair-month 2026-11"));
}

#[test]
fn small_clock_corrections_are_followed() {
    let calendar = Calendar::new(None, NOVEMBER_END - DAY, 0);
    calendar.observe_machine_clock(NOVEMBER_END - DAY + 101, 100);
    assert_eq!(
        calendar.believed_now(100),
        NOVEMBER_END - DAY + 100,
        "fractions of a second are no step"
    );
    calendar.observe_machine_clock(NOVEMBER_END - DAY + 204, 200);
    assert_eq!(calendar.believed_now(200), NOVEMBER_END - DAY + 204);
    for boottime in 300..=901 {
        calendar.observe_machine_clock(NOVEMBER_END - DAY + 30 + boottime, boottime);
    }
    assert_eq!(calendar.believed_now(DAY), NOVEMBER_END + 30);
}

#[test]
fn all_nodes_follow_the_store_clock() {
    // One node is an hour behind, one an hour ahead; the store's clock is right.
    let store = NOVEMBER_END - 10;
    for wrong in [-3_600, 3_600] {
        let calendar = Calendar::new(counted_month_at(store), store + wrong, 0);
        calendar.observe_store_clock(store, store + wrong, 0);
        assert_eq!(month_text(&calendar, 10), "2026-11", "{wrong}");
        assert_eq!(month_text(&calendar, 11), "2026-12", "{wrong}");
        // This machine's clock is never used again, even while the store is silent.
        for boottime in 12..2_000 {
            calendar.observe_machine_clock(store + 40 * DAY + boottime, boottime);
        }
        assert_eq!(calendar.believed_now(2_000), store + 2_000);
    }
}

#[test]
fn the_first_store_time_replaces_a_wrong_machine_clock() {
    let store = NOVEMBER_END - DAY;
    for known in [None, counted_month_at(store)] {
        let calendar = Calendar::new(known, store + 40 * DAY, 0);
        calendar.observe_store_clock(store, store + 40 * DAY, 1);
        assert_eq!(month_text(&calendar, 2), "2026-11");
        assert_eq!(calendar.believed_now(1), store);
        assert_eq!(calendar.month_by_store_clock(1), Some(Month::containing(store)));
    }
}

#[test]
fn a_first_store_time_far_ahead_is_held() {
    let start = NOVEMBER_END - DAY;
    // The jump is held even if no month is known, and even if it leads only to the next month.
    for (known, jump) in
        [(counted_month_at(start), 70), (None, 70), (counted_month_at(start), 20), (None, 4_000)]
    {
        let jump = jump * DAY;
        let calendar = Calendar::new(known, start, 0);
        for boottime in 0..600 {
            calendar.observe_store_clock(start + jump + boottime, start + boottime, boottime);
            assert_eq!(calendar.believed_now(boottime), start + boottime);
            assert_eq!(month_text(&calendar, boottime), "2026-11");
            assert_eq!(calendar.month_by_store_clock(boottime), None, "other nodes get no month");
        }
        assert!(calendar.clock_problem(599).unwrap().contains("the store's clock says"));
        calendar.observe_store_clock(start + jump + 600, start + 600, 600);
        assert_eq!(calendar.believed_now(600), start + jump + 600);
    }
}

#[test]
fn a_first_store_time_is_accepted_if_not_contradicted() {
    let now = NOVEMBER_END + 70 * DAY;
    // This machine's clock is slightly off, was never set, or shows a month that has ended. In the
    // first case, no node ran for two months.
    for (known, store, machine) in [
        (counted_month_at(NOVEMBER_END), now, now + 3_600),
        (counted_month_at(NOVEMBER_END), NOVEMBER_END + 10, NOVEMBER_END - 40 * DAY),
        (None, now, 0),
        (None, now, now - 3_600),
        (counted_month_at(NOVEMBER_END), NOVEMBER_END + 1, NOVEMBER_END - 3),
    ] {
        let calendar = Calendar::new(known, machine, 0);
        calendar.observe_store_clock(store, machine, 0);
        assert_eq!(calendar.believed_now(0), store, "{known:?} {machine}");
        let told = calendar.clock_problem(0);
        assert_eq!(told.is_none(), is_within_tolerance(store, machine), "{told:?}");
        assert!(told.is_none_or(|text| text.starts_with("this machine's clock says")));
    }
    // A time before a month in which calls were already counted is certainly wrong.
    let calendar = Calendar::new(counted_month_at(NOVEMBER_END), NOVEMBER_END - 10, 0);
    calendar.observe_store_clock(NOVEMBER_END - 40 * DAY, NOVEMBER_END - 10, 0);
    assert_eq!(calendar.believed_now(0), NOVEMBER_END - 10);
}

#[test]
fn a_month_counted_too_early_is_a_clock_problem() {
    let calendar = Calendar::new(counted_month_at(NOVEMBER_END + 40 * DAY), NOVEMBER_END, 0);
    calendar.observe_store_clock(NOVEMBER_END, NOVEMBER_END, 0);
    assert_eq!(
        (calendar.believed_now(0), month_text(&calendar, 0)),
        (NOVEMBER_END, "2027-01".to_owned())
    );
    assert_eq!(
        calendar.month_by_store_clock(0),
        counted_month_at(NOVEMBER_END),
        "other nodes get the true month"
    );
    let problem = calendar.clock_problem(0).unwrap();
    assert!(problem.starts_with("it is 2026-11, but calls of 2027-01 were counted"), "{problem}");
}

#[test]
fn a_store_clock_jump_is_held_until_it_is_steady() {
    let jump = 40 * DAY;
    let start = NOVEMBER_END - DAY;
    let calendar = Calendar::new(None, start, 0);
    calendar.observe_store_clock(start, start, 0);
    calendar.observe_store_clock(start + jump, start + 1, 1);
    assert_eq!(month_text(&calendar, 1), "2026-11");
    calendar.observe_store_clock(start + jump + 600, start + 601, 601);
    assert_eq!(month_text(&calendar, 602), "2027-01", "steady for ten minutes");
}

#[test]
fn clocks_that_jump_together_may_be_the_one_clock_of_a_host() {
    let start = NOVEMBER_END - DAY;
    for jump in [40 * DAY, -20 * DAY, 3_600, 800 * DAY] {
        let calendar = Calendar::new(None, start, 0);
        calendar.observe_store_clock(start, start, 0);
        for boottime in 1..=600 {
            let shown = start + jump + boottime;
            calendar.observe_store_clock(shown, shown, boottime);
            assert_eq!(calendar.believed_now(boottime), start + boottime, "{jump}");
            assert!(calendar.clock_problem(boottime).unwrap().contains("clock says"), "{jump}");
        }
        // The clocks are set right.
        calendar.observe_store_clock(start + 601, start + 601, 601);
        assert_eq!((calendar.believed_now(601), calendar.clock_problem(601)), (start + 601, None));
    }
}

#[test]
fn a_store_clock_is_set_right_at_once_if_the_machine_was_right_for_long() {
    let jump = 40 * DAY;
    let (wrong, right) = (NOVEMBER_END + jump, NOVEMBER_END);
    for (machine_right_for, is_accepted) in [(600, true), (599, false)] {
        let calendar = Calendar::new(None, wrong, 0);
        calendar.observe_store_clock(wrong, wrong, 0);
        for boottime in 1..=machine_right_for {
            calendar.observe_store_clock(wrong + boottime, right + boottime, boottime);
        }
        let boottime = machine_right_for + 1;
        let shown = right + boottime;
        calendar.observe_store_clock(shown, shown, boottime);
        let is_right = calendar.believed_now(boottime) == shown;
        assert_eq!(is_right, is_accepted, "{machine_right_for}");
    }
}

#[test]
fn a_month_begins_on_time_while_the_store_is_silent() {
    let start = NOVEMBER_END - DAY;
    let calendar = Calendar::new(None, start, 0);
    calendar.observe_store_clock(start, start, 0);
    assert_eq!(month_text(&calendar, DAY), "2026-11");
    assert_eq!(month_text(&calendar, DAY + 1), "2026-12");
}

#[test]
fn a_store_that_answers_later_tells_what_it_knows_before_its_clock_is_followed() {
    // The machine's clock is two months behind, and nothing contradicts it yet.
    let behind = NOVEMBER_END - 61 * DAY;
    let calendar = Calendar::new(None, behind, 0);
    assert_eq!(month_text(&calendar, 0), "2026-09");
    let known = KnownTime {
        latest_counted_month: counted_month_at(NOVEMBER_END),
        past: Some(NOVEMBER_END - 100),
        present: None,
    };
    calendar.learn_known_time(known, behind + 5, 5);
    assert_eq!(month_text(&calendar, 5), "2026-11", "no month that has ended begins again");
    calendar.observe_store_clock(NOVEMBER_END - 60, behind + 6, 6);
    assert_eq!(calendar.believed_now(6), NOVEMBER_END - 60);
    assert_eq!(month_text(&calendar, 6), "2026-11");
    // What is read after that is no news.
    calendar.learn_known_time(KnownTime::default(), behind + 7, 7);
    assert_eq!(month_text(&calendar, 7), "2026-11");
}

#[test]
fn nothing_is_settled_while_this_machine_contradicts_the_store() {
    let jump = 800 * DAY;
    let calendar = Calendar::new(None, NOVEMBER_END, 0);
    calendar.observe_store_clock(NOVEMBER_END, NOVEMBER_END, 0);
    for boottime in 1..=1_900 {
        calendar.observe_store_clock(
            NOVEMBER_END + jump + boottime,
            NOVEMBER_END + boottime,
            boottime,
        );
        assert!(!calendar.believed_time(boottime).allows_deletion(), "{boottime}");
    }
    // Both agree again.
    for boottime in 1_901..=2_501 {
        let now = NOVEMBER_END + jump + boottime;
        calendar.observe_store_clock(now, now, boottime);
    }
    assert!(calendar.believed_time(2_501).allows_deletion());
}

#[test]
fn a_machine_clock_that_contradicts_the_store_is_told_until_it_agrees() {
    let wrong = NOVEMBER_END + 50 * DAY;
    let calendar = Calendar::new(None, wrong, 0);
    calendar.observe_store_clock(NOVEMBER_END - 1_000, wrong + 1, 1);
    let told = calendar.clock_problem(1).unwrap();
    assert!(told.contains("but that of the store 2026-11-30"), "{told}");
    assert_eq!(calendar.believed_time(700).trust, TimeTrust::Known);
    // It is set right, jumps again, and is set right again.
    calendar.observe_store_clock(NOVEMBER_END - 999, NOVEMBER_END - 999, 2);
    assert_eq!(calendar.clock_problem(2), None);
    calendar.observe_store_clock(NOVEMBER_END - 998, NOVEMBER_END + 700 * DAY, 3);
    assert!(calendar.clock_problem(3).unwrap().contains("riskgate follows the store's"));
    assert_eq!(calendar.believed_now(3), NOVEMBER_END - 998);
    calendar.observe_store_clock(NOVEMBER_END - 997, NOVEMBER_END - 997, 4);
    assert_eq!(calendar.clock_problem(4), None);
}
