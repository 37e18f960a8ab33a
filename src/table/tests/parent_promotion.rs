//! Three names of a feed below one registrable name make that name a row.

use std::fs;

use super::support::{NOW, assert_answers, describe_answer, write_lists};
use crate::table::{FeedKind, FeedList, FeedTier, Table, TableInputs, TableLocation};

const MANIFEST_LISTS: [(&str, &str); 8] = [
    ("protected.txt", "ac.uk\nguarded.com\nmail.partly-guarded.com\n"),
    ("special.txt", "example\n"),
    ("free.txt", "provider.com\n"),
    ("corporate.txt", "company.com\n"),
    ("known.txt", "known.com\nshop.partly-known.com\n"),
    ("cleared.txt", "cleared.com\n"),
    ("free-subdomains.txt", "free-names.com\nnames.free-host.com\n"),
    ("b.txt", "listed.com\n"),
];

/// Builds a table from the manifest's lists and feeds with these names.
fn build_with_feeds(feeds: &[(FeedKind, &[&str])]) -> Table {
    let folder = write_lists(&MANIFEST_LISTS);
    let base = TableInputs::from_base(TableLocation::Path(folder.path().to_owned()));
    let mut inputs = base;
    for (number, (kind, names)) in feeds.iter().enumerate() {
        let path = folder.path().join(format!("{number}.feed"));
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        fs::write(&path, FeedList::render_with_checksum(&names)).unwrap();
        inputs.feeds.push(FeedList { name: format!("feed-{number}"), kind: *kind, path });
    }
    Table::build(&inputs, NOW).unwrap_or_else(|error| panic!("{error}"))
}

const TIER_B: FeedKind = FeedKind::Disposable(FeedTier::B);

#[test]
fn three_names_of_a_feed_below_one_registrable_name_flag_all_names_below_it() {
    let three: &[&str] = &["a.many.com", "b.many.com", "x.b.many.com"];
    let table = build_with_feeds(&[(TIER_B, three)]);
    assert_answers(
        &table,
        &[
            ("a.many.com", "disposable 90"),
            ("many.com", "disposable 60"),
            ("new.many.com", "disposable 60"),
            ("many.org", "safe 10"),
        ],
    );
    let two: &[&str] = &["a.few.com", "b.few.com", "few.org", "A.few.com"];
    assert_answers(
        &build_with_feeds(&[(TIER_B, two)]),
        &[("few.com", "safe 10"), ("new.few.com", "safe 10"), ("a.few.com", "disposable 90")],
    );
    // Each feed counts by itself: one may copy from the other.
    assert_answers(
        &build_with_feeds(&[
            (TIER_B, &three[..2]),
            (FeedKind::Disposable(FeedTier::C), &three[1..]),
        ]),
        &[("many.com", "safe 10")],
    );
    assert_eq!(table.lists().last().unwrap().rows, 3);
}

#[test]
fn a_good_name_a_free_suffix_and_a_public_suffix_are_never_promoted() {
    let parents = [
        "guarded.com",
        "partly-guarded.com",
        "provider.com",
        "company.com",
        "known.com",
        "partly-known.com",
        "cleared.com",
        "college.ac.uk",
        "free-names.com",
        "free-host.com",
        "co.uk",
        "github.io",
    ];
    for tier in [FeedTier::A, FeedTier::B] {
        for parent in parents {
            let names = ["a", "b", "c"].map(|label| format!("{label}.{parent}"));
            let names = names.each_ref().map(String::as_str);
            let table = build_with_feeds(&[(FeedKind::Disposable(tier), &names)]);
            let before = build_with_feeds(&[]);
            for name in [parent.to_owned(), format!("new.{parent}")] {
                let (now, then) =
                    [&table, &before].map(|table| describe_answer(table, &name)).into();
                assert_eq!(now, then, "{name} by a feed of tier {tier:?}");
            }
        }
    }
}

#[test]
fn only_feeds_of_disposable_names_promote_a_parent() {
    let names: &[&str] = &["a.many.com", "b.many.com", "c.many.com"];
    for kind in [FeedKind::Alias, FeedKind::Free] {
        let table = build_with_feeds(&[(kind, names)]);
        assert_answers(&table, &[("many.com", "safe 10"), ("new.many.com", "safe 10")]);
    }
}

#[test]
fn a_name_that_one_feed_calls_good_stops_no_promotion_by_another() {
    let names: &[&str] = &["a.many.com", "b.many.com", "c.many.com"];
    for kind in [FeedKind::Alias, FeedKind::Free] {
        let table = build_with_feeds(&[(TIER_B, names), (kind, &["d.many.com"])]);
        assert_answers(&table, &[("many.com", "disposable 60"), ("new.many.com", "disposable 60")]);
    }
}

#[test]
fn a_name_that_one_feed_flags_is_called_good_by_no_other() {
    for kind in [FeedKind::Alias, FeedKind::Free] {
        let good: &[&str] = &["flagged.com", "below.flagged.com", "good.com"];
        let table = build_with_feeds(&[(kind, good), (TIER_B, &["flagged.com"])]);
        assert_answers(
            &table,
            &[("flagged.com", "disposable 90"), ("below.flagged.com", "disposable 90")],
        );
        assert!(describe_answer(&table, "good.com").starts_with("safe "));
    }
}
