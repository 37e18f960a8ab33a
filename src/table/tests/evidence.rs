//! How old the knowledge behind an answer is.

use super::support::{BUNDLED_TABLE, NOW, load_faults, look_up, write_lists};
use crate::model::month::format_day;
use crate::table::{FeedKind, FeedList, FeedTier, Table, TableInputs, TableLocation};

/// Evidence date, first and last day of a name.
fn days_of(table: &Table, name: &str) -> [Option<String>; 3] {
    let answer = look_up(table, name);
    let why = answer.explain();
    [answer.evidence_unix_seconds(), why.first_seen, why.last_seen]
        .map(|day| day.map(|seconds| format_day(seconds).to_string()))
}

fn days<const N: usize>(texts: [Option<&str>; N]) -> [Option<String>; N] {
    texts.map(|text| text.map(str::to_owned))
}

/// The sources are alpha (2026-11-02) and beta (2026-10-02). beta has a list of days.
fn table_with_days() -> (tempfile::TempDir, Table) {
    let folder = write_lists(&[
        ("a.txt", "by-alpha.com a\nby-beta.com b\nby-both.com ab\nundated.com b\nno-source.com\n"),
        ("known.txt", "known.com b\n"),
        ("free.txt", "free.com a\n"),
        ("overrides.csv", "by-alpha.net,exact,disposable,90,,,\nfree.com,exact,,,,,A label\n"),
        (
            "seen.tsv",
            "# name, days\nby-beta.com\t2026-05-11\t2026-06-01\t7\t3\n\
             by-both.com\t2026-05-12\t2026-05-13\nby-alpha.com\t2026-05-12\t2026-05-13\n\
             unlisted.com\t2026-05-12\t2026-05-13\n",
        ),
    ]);
    let table = Table::load(&TableLocation::Path(folder.path().to_owned())).unwrap();
    (folder, table)
}

#[test]
fn the_evidence_is_as_new_as_the_newest_source_of_the_name() {
    let (_folder, table) = table_with_days();
    let newest = |name| days_of(&table, name);
    assert_eq!(newest("by-alpha.com"), days([Some("2026-11-02"), None, None]));
    // beta knows the days of the name, so beta's own date does not count.
    let of_beta = days([Some("2026-06-01"), Some("2026-05-11"), Some("2026-06-01")]);
    assert_eq!(newest("by-beta.com"), of_beta);
    assert_eq!(newest("www.by-beta.com"), of_beta, "the parent matched");
    let of_both = days([Some("2026-11-02"), Some("2026-05-12"), Some("2026-05-13")]);
    assert_eq!(newest("by-both.com"), of_both);
    assert_eq!(newest("undated.com"), days([Some("2026-10-02"), None, None]));
    assert_eq!(newest("no-source.com"), days([None; 3]));
}

#[test]
fn only_a_verdict_of_lists_has_an_evidence_date() {
    let (_folder, table) = table_with_days();
    // A list of days alone makes no row, an override is the operator's, and a label is no verdict.
    for (name, date) in [
        ("unlisted.com", None),
        ("known.com", None),
        ("by-alpha.net", None),
        ("free.com", Some("2026-11-02")),
        ("www.nothing-known.com", None),
    ] {
        assert_eq!(days_of(&table, name)[0], date.map(str::to_owned), "{name}");
    }
    assert!(table.find_row("unlisted.com").is_none());
    assert_eq!(look_up(&table, "unlisted.com").verdict.reason.as_str(), "safe");
}

#[test]
fn a_compiled_table_keeps_the_days() {
    let (folder, table) = table_with_days();
    let file = folder.path().join("lists.table");
    let location = TableLocation::Path(folder.path().to_owned());
    Table::compile(&location, NOW).unwrap().write_to(&file).unwrap();
    let compiled = Table::load(&TableLocation::Path(file)).unwrap();
    for name in ["by-alpha.com", "by-beta.com", "by-both.com", "undated.com"] {
        assert_eq!(days_of(&compiled, name), days_of(&table, name), "{name}");
    }
}

#[test]
fn a_name_of_a_feed_is_as_old_as_its_list_or_its_departure() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("daily.txt");
    let day = |number: i64| number * 86_400 + 7;
    // 20,600 days after 1 January 1970 it is 2026-05-27.
    let lines = [
        format!("# on the list at {}", day(20_600)),
        "here-q1z.com".to_owned(),
        "gmail.com".to_owned(),
        format!("# left the list at {}", day(20_590)),
        "gone-q1z.com".to_owned(),
        "a.parent-q1z.com".to_owned(),
        "b.parent-q1z.com".to_owned(),
        format!("# left the list at {}", day(20_580)),
        "c.parent-q1z.com".to_owned(),
    ];
    std::fs::write(&path, FeedList::render_with_checksum(&lines)).unwrap();
    let kind = FeedKind::Disposable(FeedTier::C);
    let feeds = vec![FeedList { name: "daily".to_owned(), kind, path }];
    let inputs = TableInputs { feeds, ..TableInputs::from_base(TableLocation::Bundled) };
    let table = Table::build(&inputs, NOW).unwrap();
    let until = |day| days([Some(day), None, Some(day)]);
    assert_eq!(days_of(&table, "here-q1z.com"), until("2026-05-27"));
    assert_eq!(days_of(&table, "gone-q1z.com"), until("2026-05-17"));
    assert_eq!(days_of(&table, "c.parent-q1z.com"), until("2026-05-07"));
    assert_eq!(days_of(&table, "new.parent-q1z.com"), until("2026-05-17"), "the newest sibling");
    // The feed can't flag a protected name, so the feed is no evidence for its verdict.
    assert_eq!(days_of(&table, "gmail.com"), days_of(&BUNDLED_TABLE, "gmail.com"));
}

#[test]
fn a_faulty_line_of_days_and_a_list_of_days_without_a_source_are_faults() {
    let faults = |text: &str| load_faults(&[("a.txt", "a.com b\n"), ("seen.tsv", text)]).join("\n");
    for line in ["a.com", "a.com\t2026-05-01", "a.com\t2026-05-02\t2026-05-01", "a.com\tx\ty"] {
        let printed = faults(line);
        let expected = "expected a name, its first day and its last day";
        assert!(printed.contains("seen.tsv:1:") && printed.contains(expected), "{printed}");
    }
    let manifest = "[[list]]\nfile = \"more.tsv\"\nkind = \"seen\"\n";
    let files = [("a.txt", "a.com\n"), ("manifest.toml", manifest), ("more.tsv", "")];
    let printed = load_faults(&files).join("\n");
    assert!(printed.contains("source: expected the entry of sources.toml"), "{printed}");
}
