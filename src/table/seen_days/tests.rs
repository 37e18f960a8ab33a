use super::*;

#[test]
fn the_first_and_the_last_of_all_days_remain() {
    let mut days = SeenDays { first: Day(20), last: Day(30) };
    days.merge(SeenDays::with_unknown_first(Day(40)));
    assert_eq!(days, SeenDays { first: Day(20), last: Day(40) });
    days.merge(SeenDays { first: Day(10), last: Day(11) });
    assert_eq!(days, SeenDays { first: Day(10), last: Day(40) });
}

#[test]
fn a_day_is_counted_from_1970_and_0_is_none() {
    let day = Day::parse("2026-11-21").and_then(Day::to_unix_seconds);
    assert_eq!(day, parse_day_as_unix_seconds("2026-11-21"));
    assert_eq!(Day::parse("2149-06-06").map(|day| day.0), Some(u16::MAX));
    for text in ["1970-01-01", "1969-12-31", "2149-06-07", "2026-11-31", ""] {
        assert_eq!(Day::parse(text), None, "{text}");
    }
    assert_eq!(Day::UNKNOWN.to_unix_seconds(), None);
}
