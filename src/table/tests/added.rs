//! What is added to the lists: the operator's own overrides, and lists that feeds brought.

use std::fs;
use std::path::{Path, PathBuf};

use super::support::{NOW, OVERRIDE, ask, check, folder, said};
use crate::model::domain::Name;
use crate::table::{
    FeedKind, FeedList, FeedTier, NewOverride, OverrideFile, Source, Table, TableSources, Word,
};

const LISTS: [(&str, &str); 6] = [
    ("protected.txt", "edu\nguarded.com\n"),
    ("free.txt", "mail.com\n"),
    ("role.txt", "lists.org\n"),
    ("alias.txt", "alias.org\n"),
    ("cleared.txt", "real.com\n"),
    ("b.txt", "listed.com\n"),
];

fn feed(path: PathBuf, tier: FeedTier) -> FeedList {
    FeedList { name: "daily".to_owned(), kind: FeedKind::Disposable(tier), path }
}

fn write_feed(path: &Path, text: &str) {
    let names: Vec<String> = text.lines().map(str::to_owned).collect();
    fs::write(path, FeedList::render(&names)).unwrap();
}

fn assemble(sources: &TableSources) -> Table {
    Table::assemble(sources, NOW).unwrap_or_else(|error| panic!("{error}"))
}

/// A compiled table of a folder, beside it.
fn compiled(folder: &Path) -> Source {
    let path = folder.with_extension("compiled");
    Table::compile(&Source::Path(folder.to_owned()), NOW).unwrap().write_to(&path).unwrap();
    Source::Path(path)
}

#[test]
fn an_override_beside_the_lists_is_the_last_word_also_on_a_compiled_table() {
    let folder = folder(&LISTS);
    let beside = tempfile::tempdir().unwrap();
    let overrides = beside.path().join("overrides.csv");
    let rows = "guarded.com,subtree,disposable,100,,,\nlisted.com,exact,safe,0,,,\n";
    fs::write(&overrides, format!("{OVERRIDE}{rows}")).unwrap();
    for base in [Source::Path(folder.path().to_owned()), compiled(folder.path())] {
        let sources =
            TableSources { overrides: Some(overrides.clone()), ..TableSources::of(base.clone()) };
        let table = assemble(&sources);
        check(
            &table,
            &[
                ("guarded.com", "disposable 100"),
                ("www.guarded.com", "disposable 100"),
                ("listed.com", "safe 0"),
                ("www.listed.com", "disposable 90"),
                ("mail.com", "safe 0 +free"),
            ],
        );
        let before = Table::load(&base).unwrap();
        assert_ne!(table.version(), before.version());
        table.accept(&before).unwrap();
        before.accept(&table).unwrap();
    }
}

#[test]
fn a_row_of_a_feed_flags_nothing_that_the_lists_guard() {
    let folder = folder(&LISTS);
    let beside = tempfile::tempdir().unwrap();
    let path = beside.path().join("daily.txt");
    let text = "new.com\nguarded.com\nwww.guarded.com\nmail.com\nx.mail.com\nlists.org\nalias.org\n\
                co.uk\nno domain\nst.edu\nreal.com\nwww.real.com\n";
    write_feed(&path, text);
    for (tier, new, below_edu) in [
        (FeedTier::A, "disposable 100", "disposable 100"),
        (FeedTier::C, "disposable 80", "safe 0"),
    ] {
        for base in [Source::Path(folder.path().to_owned()), compiled(folder.path())] {
            let feeds = vec![feed(path.clone(), tier)];
            let table = assemble(&TableSources { feeds, ..TableSources::of(base) });
            check(
                &table,
                &[
                    ("new.com", new),
                    ("www.new.com", new),
                    ("guarded.com", "safe 0"),
                    ("www.guarded.com", "safe 0"),
                    ("mail.com", "safe 0 +free"),
                    ("x.mail.com", "safe 0 +free"),
                    ("lists.org", "role_account 70"),
                    ("alias.org", "safe 35"),
                    ("st.edu", below_edu),
                    ("real.com", "safe 10"),
                    ("www.real.com", "safe 10"),
                    ("b.co.uk", "safe 10"),
                ],
            );
            assert_eq!(ask(&table, "new.com").explain().lists[0].file, "feed daily");
        }
    }
}

#[test]
fn a_feed_that_comes_or_goes_counts_for_no_guard_of_the_lists() {
    let folder = folder(&LISTS);
    let base = TableSources::of(Source::Path(folder.path().to_owned()));
    let before = assemble(&base);
    let beside = tempfile::tempdir().unwrap();
    let path = beside.path().join("daily.txt");
    let text: String = (0..500).map(|n| format!("feed-{n}.com\n")).collect();
    write_feed(&path, &(text + "listed.com\n"));
    let after = assemble(&TableSources { feeds: vec![feed(path, FeedTier::A)], ..base });
    assert_eq!(after.rows(), before.rows() + 500);
    assert_eq!(said(&after, "listed.com"), "disposable 100");
    after.accept(&before).unwrap();
    before.accept(&after).unwrap();
}

#[test]
fn a_feed_may_list_any_number_of_names_below_a_free_suffix() {
    let folder = folder(&[("free-subdomains.txt", "free-names.com\n"), ("b.txt", "listed.com\n")]);
    let base = TableSources::of(Source::Path(folder.path().to_owned()));
    let before = assemble(&base);
    let beside = tempfile::tempdir().unwrap();
    let path = beside.path().join("daily.txt");
    let text: String = (0..500).map(|n| format!("abused-{n}.free-names.com\n")).collect();
    write_feed(&path, &text);
    let after = assemble(&TableSources { feeds: vec![feed(path, FeedTier::A)], ..base });
    assert_eq!(said(&after, "abused-7.free-names.com"), "disposable 100");
    after.accept(&before).unwrap();
    before.accept(&after).unwrap();
}

#[test]
fn a_feed_of_a_higher_tier_may_flag_what_an_institution_protected_from_a_lower_one() {
    let folder = folder(&[("protected.txt", "edu\nguarded.com\n"), ("b.txt", "listed.edu\n")]);
    let beside = tempfile::tempdir().unwrap();
    let path = beside.path().join("daily.txt");
    write_feed(&path, "abused.edu\nlisted.edu\n");
    let table = |tier| {
        let base = TableSources::of(Source::Path(folder.path().to_owned()));
        assemble(&TableSources { feeds: vec![feed(path.clone(), tier)], ..base })
    };
    let (before, after) = (table(FeedTier::B), table(FeedTier::A));
    check(&before, &[("abused.edu", "safe 0"), ("listed.edu", "safe 0")]);
    check(&after, &[("abused.edu", "disposable 100"), ("listed.edu", "disposable 100")]);
    after.accept(&before).unwrap();
    assert!(!before.row_of("listed.edu").unwrap().own.is_protected_by_name());
    assert!(after.row_of("guarded.com").unwrap().own.is_protected_by_name());
}

#[test]
fn an_override_beside_the_lists_outranks_every_override_of_theirs() {
    let folder = folder(&[
        ("overrides.csv", "a.com,exact,safe,0,,,\nwww.b.com,subtree,safe,0,,,\n"),
        ("b.txt", "listed.com\n"),
    ]);
    let beside = tempfile::tempdir().unwrap();
    let overrides = beside.path().join("overrides.csv");
    let rows = "a.com,subtree,disposable,100,,,\nb.com,subtree,disposable,100,,,\n";
    fs::write(&overrides, format!("{OVERRIDE}{rows}")).unwrap();
    let base = TableSources::of(Source::Path(folder.path().to_owned()));
    let table = assemble(&TableSources { overrides: Some(overrides), ..base });
    for name in ["a.com", "www.a.com", "b.com", "www.b.com", "x.www.b.com"] {
        assert_eq!(said(&table, name), "disposable 100", "{name}");
    }
}

#[test]
fn an_override_counts_until_the_end_of_its_last_day() {
    let folder = folder(&LISTS);
    let beside = tempfile::tempdir().unwrap();
    let overrides = beside.path().join("overrides.csv");
    let header = OVERRIDE.trim_end();
    let row = "listed.com,exact,safe,0,,,,\"a partner, for now\",2026-11-21\n";
    fs::write(&overrides, format!("{header},note,until\n{row}")).unwrap();
    let base = TableSources::of(Source::Path(folder.path().to_owned()));
    let sources = TableSources { overrides: Some(overrides), ..base };
    // 2026-11-21 begins here.
    let table = assemble(&sources);
    assert_eq!(said(&table, "listed.com"), "safe 0");
    assert_eq!(table.next_end(), Some(NOW + 86_400));
    let table = Table::assemble(&sources, NOW + 86_399).unwrap();
    assert_eq!(said(&table, "listed.com"), "safe 0");
    let later = Table::assemble(&sources, NOW + 86_400).unwrap();
    assert_eq!(said(&later, "listed.com"), "disposable 90");
    assert_eq!(later.next_end(), None);
    assert_ne!(later.version(), table.version());
}

#[test]
fn a_command_changes_one_name_and_keeps_what_people_wrote() {
    let beside = tempfile::tempdir().unwrap();
    let path = beside.path().join("conf").join("overrides.csv");
    let file = OverrideFile::at(&path);
    fs::create_dir(path.parent().unwrap()).unwrap();
    let name = |text| Name::parse(text).unwrap();
    let (bad, good) = (name("bad.com"), name("good.com"));
    let deny = NewOverride {
        name: &bad,
        word: Word::Deny,
        is_exact: false,
        note: "seen, \"again\"",
        until: Some("2027-01-31"),
    };
    assert!(file.clear(&bad).unwrap().is_empty());
    assert!(file.set(&deny).unwrap().is_empty());
    let header = OVERRIDE.trim_end();
    let denied = "bad.com,subtree,disposable,100,,,,\"seen, \"\"again\"\"\",2027-01-31\n";
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{header},note,until\n{denied}"));

    fs::write(&path, format!("# Ours.\n{OVERRIDE}good.com,exact,,,true,,\n# The end.\n")).unwrap();
    file.set(&deny).unwrap();
    let allow =
        NewOverride { word: Word::Allow, is_exact: true, note: "", until: None, ..deny.clone() };
    assert!(file.set(&allow).unwrap().is_empty(), "names below stay denied");
    let (allowed, good_row) = ("bad.com,exact,safe,0,,,,,", "good.com,exact,,,true,,,,");
    let begin = format!("# Ours.\n{header},note,until\n");
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        format!("{begin}{good_row}\n# The end.\n{denied}{allowed}\n")
    );
    assert_eq!(file.set(&deny).unwrap(), [denied.trim_end(), allowed]);
    let free = NewOverride { name: &good, ..allow };
    assert_eq!(file.set(&free).unwrap(), [good_row]);
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        format!("{begin}# The end.\n{denied}good.com,exact,safe,0,true,,,,\n")
    );
    assert_eq!(file.clear(&bad).unwrap(), [denied.trim_end()]);
    assert_eq!(file.clear(&good).unwrap(), ["good.com,exact,safe,0,true,,,,"]);
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        format!("# Ours.\n{header},note,until\n# The end.\n")
    );
    fs::write(&path, "good.com,exact,,,true,,\n").unwrap();
    let without_header = file.set(&deny).unwrap_err().to_string();
    assert!(without_header.contains("overrides.csv:1: expected the header"), "{without_header}");
    let until = NewOverride { until: Some("soon"), ..deny.clone() };
    assert!(file.set(&until).unwrap_err().to_string().contains("expected a day such as"));
    assert!(file.set(&NewOverride { note: "a\nb", ..deny }).is_err());
}
