use super::*;
use crate::model::believed_time::TimeTrust;

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn departed_names_are_written_latest_first_and_read_again() {
    let departed = BTreeMap::from([
        ("old.com".to_owned(), 100),
        ("new.com".to_owned(), 300),
        ("also-new.com".to_owned(), 300),
    ]);
    let listed = owned(&["a.com", "b.com"]);
    let lines = render_lines(&listed, Some(200), &departed, 1_000);
    assert_eq!(
        lines.join("\n"),
        "# on the list at 200\na.com\nb.com\n# left the list at 300\nalso-new.com\nnew.com\n\
         # left the list at 100\nold.com"
    );
    let read = StoredNames::parse(&lines.join("\n"));
    let expected =
        StoredNames { listed: listed.iter().cloned().collect(), listed_at: Some(200), departed };
    assert_eq!(read, expected);
}

#[test]
fn the_oldest_departures_go_first_if_the_file_would_be_too_long() {
    let departed = BTreeMap::from([("old.com".to_owned(), 100), ("new.com".to_owned(), 300)]);
    let lines = render_lines(&owned(&["a.com"]), None, &departed, 84);
    assert_eq!(lines, ["a.com", "# left the list at 300", "new.com", "# left the list at 100"]);
    let lines = render_lines(&owned(&["a.com", "b.com"]), None, &departed, 1);
    assert_eq!(lines, ["a.com", "b.com"]);
}

#[test]
fn a_name_that_returns_has_not_departed_and_a_future_departure_counts_as_now() {
    let stored = StoredNames {
        listed: owned(&["a.com", "b.com"]).into_iter().collect(),
        listed_at: None,
        departed: BTreeMap::from([
            ("back.com".to_owned(), 100),
            ("gone.com".to_owned(), 100),
            ("ahead.com".to_owned(), 900),
        ]),
    };
    let settled = BelievedTime { unix_now: 500, trust: TimeTrust::Settled };
    let unconfirmed = BelievedTime { unix_now: 50, trust: TimeTrust::LowerBound };
    // A clock that is far behind moves no departure back.
    let departed = stored.clone().into_departed(&owned(&["a.com", "back.com"]), unconfirmed);
    let expected = [("ahead.com", 900), ("b.com", 900), ("gone.com", 100)];
    assert_eq!(departed, expected.map(|(name, at)| (name.to_owned(), at)).into());
    let departed = stored.into_departed(&owned(&["a.com", "back.com"]), settled);
    let expected = [("ahead.com", 500), ("b.com", 500), ("gone.com", 100)];
    assert_eq!(departed, expected.map(|(name, at)| (name.to_owned(), at)).into());
}
