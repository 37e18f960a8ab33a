use super::*;

fn unix_seconds(text: &str) -> i64 {
    parse_rfc3339(text).unwrap()
}

#[test]
fn a_month_ends_when_the_next_begins() {
    for (now, month, reset) in [
        ("2026-11-01T00:00:00Z", "2026-11", "2026-12-01T00:00:00Z"),
        ("2026-11-30T23:59:59Z", "2026-11", "2026-12-01T00:00:00Z"),
        ("2026-12-31T23:59:59Z", "2026-12", "2027-01-01T00:00:00Z"),
        ("2028-02-29T12:00:00Z", "2028-02", "2028-03-01T00:00:00Z"),
    ] {
        let found = Month::containing(unix_seconds(now));
        assert_eq!(found.to_string(), month);
        assert_eq!(found.reset_at(), reset);
        assert_eq!(found.end(), unix_seconds(reset));
        assert_eq!(Month::from_number(found.number()), Some(found));
        assert_eq!(Month::parse(month), Some(found));
    }
}

#[test]
fn the_wait_for_a_reset_is_at_least_a_second() {
    let month = Month::containing(unix_seconds("2026-11-30T23:59:59Z"));
    assert_eq!(month.seconds_until_end(unix_seconds("2026-11-30T23:59:58Z")), 2);
    assert_eq!(month.seconds_until_end(unix_seconds("2026-12-01T00:00:07Z")), 1);
}

#[test]
fn months_out_of_range_are_clamped_or_rejected() {
    assert_eq!(Month::containing(i64::MIN / 4).number(), 0);
    assert_eq!(Month::containing(i64::MAX / 4), Month::LAST);
    assert_eq!(Month::from_number(4096), None);
    for text in ["", "2026", "2026-13", "2026-00", "1999-12", "2341-05", "2026-1", "+026-11"] {
        assert_eq!(Month::parse(text), None, "{text}");
    }
}

#[test]
fn times_are_formatted_in_rfc_3339() {
    for (time, text) in [
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59Z"),
        (1_795_000_000, "2026-11-18T11:06:40Z"),
        (253_402_300_799, "9999-12-31T23:59:59Z"),
        (i64::MAX, "9999-12-31T23:59:59Z"),
    ] {
        assert_eq!(format_rfc3339(time), text);
    }
}

#[test]
fn a_time_outside_the_month_gives_its_first_or_last_day() {
    let february = Month::parse("2028-02").unwrap();
    let days = [-1, 0, 86_399, 86_400, 29 * 86_400 - 1, 29 * 86_400, 99 * 86_400];
    let days = days.map(|seconds| february.day_at(february.start() + seconds));
    assert_eq!(days, [1, 1, 1, 2, 29, 29, 29]);
}

#[test]
fn parse_day_accepts_only_calendar_days() {
    for (text, day) in [
        ("1970-01-01", Some(0)),
        ("2000-02-29", Some(11_016)),
        ("2026-11-21", Some(20_778)),
        ("1969-12-31", Some(-1)),
        ("9999-12-31", Some(2_932_896)),
        ("1900-02-29", None),
        ("2026-13-01", None),
        ("2026-00-01", None),
        ("2026-04-31", None),
        ("2026-1-01", None),
        ("20261121", None),
        ("2026-11-21T00", None),
        ("2026-11-21T00:00:00", None),
        ("+026-11-21", None),
        ("", None),
    ] {
        assert_eq!(parse_day_as_unix_seconds(text), day.map(|day| day * 86_400), "{text}");
    }
}
