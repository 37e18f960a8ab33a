//! Added lists: the operator's own overrides, and the lists of feeds.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::support::{NOW, OVERRIDE_HEADER, assert_answers, describe_answer, look_up, write_lists};
use crate::model::domain::DnsName;
use crate::table::{
    FeedKind, FeedList, FeedTier, KeptLists, NewOverride, OverrideAction, OverrideListRow,
    STORED_OVERRIDES_LIST_NAME, Table, TableInputs, TableLocation, render_override_list,
};

const MANIFEST_LISTS: [(&str, &str); 7] = [
    ("protected.txt", "edu\nguarded.com\n"),
    ("free.txt", "mail.com\n"),
    ("role.txt", "lists.org\n"),
    ("alias.txt", "alias.org\n"),
    ("agent-inboxes.txt", "agents.org\n"),
    ("cleared.txt", "real.com\n"),
    ("b.txt", "listed.com\n"),
];

fn daily_disposable_feed(path: PathBuf, tier: FeedTier) -> FeedList {
    FeedList { name: "daily".to_owned(), kind: FeedKind::Disposable(tier), path }
}

fn write_feed_list(path: &Path, text: &str) {
    let names: Vec<String> = text.lines().map(str::to_owned).collect();
    fs::write(path, FeedList::render_with_checksum(&names)).unwrap();
}

fn build_table_or_panic(inputs: &TableInputs) -> Table {
    Table::build(inputs, NOW).unwrap_or_else(|error| panic!("{error}"))
}

/// Compiles a directory of lists into a file of another directory.
fn compile_into(other: &Path, folder: &Path) -> TableLocation {
    let path = other.join("compiled");
    Table::compile(&TableLocation::Path(folder.to_owned()), NOW).unwrap().write_to(&path).unwrap();
    TableLocation::Path(path)
}

#[test]
fn an_operator_override_outranks_lists_of_a_directory_and_of_a_compiled_table() {
    let folder = write_lists(&MANIFEST_LISTS);
    let beside = tempfile::tempdir().unwrap();
    let overrides = beside.path().join("overrides.csv");
    let rows = "guarded.com,subtree,disposable,100,,,\nlisted.com,exact,safe,0,,,\n";
    fs::write(&overrides, format!("{OVERRIDE_HEADER}{rows}")).unwrap();
    for base in
        [TableLocation::Path(folder.path().to_owned()), compile_into(beside.path(), folder.path())]
    {
        let inputs = TableInputs {
            overrides_path: Some(overrides.clone()),
            ..TableInputs::from_base(base.clone())
        };
        let table = build_table_or_panic(&inputs);
        assert_answers(
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
        table.check_succession(&before).unwrap();
        before.check_succession(&table).unwrap();
    }
}

#[test]
fn a_feed_flags_new_names_but_no_name_that_the_lists_guard() {
    let folder = write_lists(&MANIFEST_LISTS);
    let beside = tempfile::tempdir().unwrap();
    let path = beside.path().join("daily.txt");
    let text = "new.com\nguarded.com\nwww.guarded.com\nmail.com\nx.mail.com\nlists.org\nalias.org\n\
                x.agents.org\nco.uk\nno domain\nst.edu\nreal.com\nwww.real.com\n";
    write_feed_list(&path, text);
    for (tier, new, below_edu) in [
        (FeedTier::A, "disposable 100", "disposable 100"),
        (FeedTier::C, "disposable 80", "safe 0"),
    ] {
        for base in [
            TableLocation::Path(folder.path().to_owned()),
            compile_into(beside.path(), folder.path()),
        ] {
            let feeds = vec![daily_disposable_feed(path.clone(), tier)];
            let table =
                build_table_or_panic(&TableInputs { feeds, ..TableInputs::from_base(base) });
            assert_answers(
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
                    ("x.agents.org", "safe 50"),
                    ("st.edu", below_edu),
                    ("real.com", "safe 10"),
                    ("www.real.com", "safe 10"),
                    ("b.co.uk", "safe 10"),
                ],
            );
            assert_eq!(look_up(&table, "new.com").explain().lists[0].file, "feed daily");
        }
    }
}

#[test]
fn only_a_tier_a_feed_flags_the_parent_of_a_guarded_name() {
    let folder = write_lists(&[
        ("alias.txt", "relay.alias.com\n=in.deep.exact.com\nrelay.co.uk\n"),
        ("role.txt", "lists.role.com\n"),
        ("protected.txt", "www.guarded.com\n"),
        ("known.txt", "www.known.com\n"),
    ]);
    let beside = tempfile::tempdir().unwrap();
    let path = beside.path().join("daily.txt");
    let text = "alias.com\nx.alias.com\ndeep.exact.com\nexact.com\nrole.com\nguarded.com\n\
                known.com\nother.co.uk\n";
    write_feed_list(&path, text);
    let parents = ["alias.com", "deep.exact.com", "exact.com", "role.com", "guarded.com"];
    let base = TableInputs::from_base(TableLocation::Path(folder.path().to_owned()));
    for (tier, of_parent, of_others) in [
        (FeedTier::A, "disposable 100", "disposable 100"),
        (FeedTier::B, "safe 10", "disposable 90"),
        (FeedTier::C, "safe 10", "disposable 80"),
        (FeedTier::D, "safe 10", "disposable 60"),
    ] {
        let feeds = vec![daily_disposable_feed(path.clone(), tier)];
        let table = build_table_or_panic(&TableInputs { feeds, ..base.clone() });
        assert_answers(&table, &parents.map(|name| (name, of_parent)));
        let others = ["x.alias.com", "known.com", "other.co.uk"];
        assert_answers(&table, &others.map(|name| (name, of_others)));
        assert_answers(&table, &[("relay.alias.com", "safe 35"), ("in.deep.exact.com", "safe 35")]);
    }
}

#[test]
fn adding_or_removing_a_feed_does_not_count_as_changed_rows() {
    let folder = write_lists(&MANIFEST_LISTS);
    let base = TableInputs::from_base(TableLocation::Path(folder.path().to_owned()));
    let before = build_table_or_panic(&base);
    let beside = tempfile::tempdir().unwrap();
    let path = beside.path().join("daily.txt");
    let text: String = (0..500).map(|n| format!("feed-{n}.com\n")).collect();
    write_feed_list(&path, &(text + "listed.com\n"));
    let after = build_table_or_panic(&TableInputs {
        feeds: vec![daily_disposable_feed(path, FeedTier::A)],
        ..base
    });
    assert_eq!(after.row_count(), before.row_count() + 500);
    assert_eq!(describe_answer(&after, "listed.com"), "disposable 100");
    after.check_succession(&before).unwrap();
    before.check_succession(&after).unwrap();
}

#[test]
fn a_feed_may_list_any_number_of_names_below_a_free_suffix() {
    let folder =
        write_lists(&[("free-subdomains.txt", "free-names.com\n"), ("b.txt", "listed.com\n")]);
    let base = TableInputs::from_base(TableLocation::Path(folder.path().to_owned()));
    let before = build_table_or_panic(&base);
    let beside = tempfile::tempdir().unwrap();
    let path = beside.path().join("daily.txt");
    let text: String = (0..500).map(|n| format!("abused-{n}.free-names.com\n")).collect();
    write_feed_list(&path, &text);
    let after = build_table_or_panic(&TableInputs {
        feeds: vec![daily_disposable_feed(path, FeedTier::A)],
        ..base
    });
    assert_eq!(describe_answer(&after, "abused-7.free-names.com"), "disposable 100");
    after.check_succession(&before).unwrap();
    before.check_succession(&after).unwrap();
}

#[test]
fn only_a_tier_a_feed_flags_names_below_a_protected_suffix() {
    let folder = write_lists(&[("protected.txt", "edu\nguarded.com\n"), ("b.txt", "listed.edu\n")]);
    let beside = tempfile::tempdir().unwrap();
    let path = beside.path().join("daily.txt");
    write_feed_list(&path, "abused.edu\nlisted.edu\n");
    let table = |tier| {
        let base = TableInputs::from_base(TableLocation::Path(folder.path().to_owned()));
        build_table_or_panic(&TableInputs {
            feeds: vec![daily_disposable_feed(path.clone(), tier)],
            ..base
        })
    };
    let (before, after) = (table(FeedTier::B), table(FeedTier::A));
    assert_answers(&before, &[("abused.edu", "safe 0"), ("listed.edu", "safe 0")]);
    assert_answers(&after, &[("abused.edu", "disposable 100"), ("listed.edu", "disposable 100")]);
    after.check_succession(&before).unwrap();
    assert!(!before.find_row("listed.edu").unwrap().own_answer.is_protected_in_manifest_lists());
    assert!(after.find_row("guarded.com").unwrap().own_answer.is_protected_in_manifest_lists());
}

#[test]
fn an_operator_override_outranks_every_override_in_the_lists() {
    let folder = write_lists(&[
        ("overrides.csv", "a.com,exact,safe,0,,,\nwww.b.com,subtree,safe,0,,,\n"),
        ("b.txt", "listed.com\n"),
    ]);
    let beside = tempfile::tempdir().unwrap();
    let overrides = beside.path().join("overrides.csv");
    let rows = "a.com,subtree,disposable,100,,,\nb.com,subtree,disposable,100,,,\n";
    fs::write(&overrides, format!("{OVERRIDE_HEADER}{rows}")).unwrap();
    let base = TableInputs::from_base(TableLocation::Path(folder.path().to_owned()));
    let table = build_table_or_panic(&TableInputs { overrides_path: Some(overrides), ..base });
    for name in ["a.com", "www.a.com", "b.com", "www.b.com", "x.www.b.com"] {
        assert_eq!(describe_answer(&table, name), "disposable 100", "{name}");
    }
}

#[test]
fn an_override_whose_reason_contradicts_the_score_that_stays_is_told() {
    let folder = write_lists(&MANIFEST_LISTS);
    let beside = tempfile::tempdir().unwrap();
    let overrides = beside.path().join("overrides.csv");
    let base = TableInputs::from_base(TableLocation::Path(folder.path().to_owned()));
    let inputs = TableInputs { overrides_path: Some(overrides.clone()), ..base };
    for (row, told) in [
        (
            "listed.com,subtree,safe,,,,",
            Some("reason safe, because listed.com keeps the score 90 without one; write 0"),
        ),
        (
            "x.com,subtree,disposable,,,,",
            Some("reason disposable, because x.com keeps the score 10 without one; write 100"),
        ),
        (
            "x.com,exact,role_account,,,,",
            Some("reason role_account, because x.com keeps the score 10 without one; write 70"),
        ),
        (
            "x.com,exact,undeliverable,,,,",
            Some("reason undeliverable, because x.com keeps the score 10 without one; write 95"),
        ),
        // A name below the override has a score of its own list.
        (
            "com,subtree,safe,,,,",
            Some("reason safe, because listed.com keeps the score 90 without one; write 0"),
        ),
        ("x.com,exact,safe,,,,", None),
        ("listed.com,exact,disposable,,,,", None),
        ("listed.com,exact,safe,60,,,", None),
        ("listed.com,exact,,20,,,", None),
    ] {
        fs::write(&overrides, format!("{OVERRIDE_HEADER}{row}\n")).unwrap();
        let warnings = build_table_or_panic(&inputs).warnings(NOW);
        let warnings: Vec<&String> = warnings.iter().filter(|it| it.contains("score")).collect();
        let at = format!("{}:2: risk_score: expected a score beside the ", overrides.display());
        let expected: Vec<String> = told.iter().map(|told| format!("{at}{told}")).collect();
        assert_eq!(warnings, expected.iter().collect::<Vec<_>>(), "{row}");
    }
    let rows: String = (0..25).map(|row| format!("x{row}.com,exact,disposable,,,,\n")).collect();
    fs::write(&overrides, format!("{OVERRIDE_HEADER}{rows}")).unwrap();
    let warnings = build_table_or_panic(&inputs).warnings(NOW);
    let warnings: Vec<&String> = warnings.iter().filter(|it| it.contains("score")).collect();
    assert_eq!(warnings.len(), 21, "{warnings:#?}");
    assert!(warnings[20].starts_with("5 more overrides without"), "{warnings:#?}");
}

#[test]
fn a_file_of_overrides_may_be_saved_by_a_spreadsheet() {
    let folder = write_lists(&MANIFEST_LISTS);
    let beside = tempfile::tempdir().unwrap();
    let overrides = beside.path().join("overrides.csv");
    let rows = "a.com,exact,safe,0,TRUE,False ,\r\n";
    let header = format!("\u{feff}{}\r\n", OVERRIDE_HEADER.trim_end());
    fs::write(&overrides, format!("{header}{rows}")).unwrap();
    let base = TableInputs::from_base(TableLocation::Path(folder.path().to_owned()));
    let inputs = TableInputs { overrides_path: Some(overrides.clone()), ..base };
    let table = build_table_or_panic(&inputs);
    assert_eq!(describe_answer(&table, "a.com"), "safe 0 +free");
    // Where a comma begins a decimal fraction, it may write semicolons.
    fs::write(&overrides, format!("{header}{rows}").replace(',', ";")).unwrap();
    let fault = Table::build(&inputs, NOW).map(drop).unwrap_err().to_string();
    assert!(
        fault.contains("mx_provider_label, with commas between the names, but found"),
        "{fault}"
    );
}

#[test]
fn an_override_counts_until_the_end_of_its_last_day() {
    let folder = write_lists(&MANIFEST_LISTS);
    let beside = tempfile::tempdir().unwrap();
    let overrides = beside.path().join("overrides.csv");
    let header = OVERRIDE_HEADER.trim_end();
    let row = "listed.com,exact,safe,0,,,,\"a partner, for now\",2026-11-21\n";
    fs::write(&overrides, format!("{header},note,until\n{row}")).unwrap();
    let base = TableInputs::from_base(TableLocation::Path(folder.path().to_owned()));
    let inputs = TableInputs { overrides_path: Some(overrides), ..base };
    // `NOW` is the beginning of 2026-11-21.
    let table = build_table_or_panic(&inputs);
    assert_eq!(describe_answer(&table, "listed.com"), "safe 0");
    assert_eq!(table.next_override_expiry(), Some(NOW + 86_400));
    let table = Table::build(&inputs, NOW + 86_399).unwrap();
    assert_eq!(describe_answer(&table, "listed.com"), "safe 0");
    let later = Table::build(&inputs, NOW + 86_400).unwrap();
    assert_eq!(describe_answer(&later, "listed.com"), "disposable 90");
    assert_eq!(later.next_override_expiry(), None);
    assert_ne!(later.version(), table.version());
}

#[test]
fn an_override_of_the_file_wins_over_those_of_the_store() {
    let folder = write_lists(&[
        ("overrides.csv", "listed.com,exact,safe,0,,,\n"),
        ("b.txt", "listed.com\n"),
        ("protected.txt", "guarded.com\n"),
    ]);
    let beside = tempfile::tempdir().unwrap();
    let overrides = beside.path().join("overrides.csv");
    let of_file = "a.com,subtree,safe,0,,,\nboth.com,exact,safe,0,,,\n";
    fs::write(&overrides, format!("{OVERRIDE_HEADER}{of_file}")).unwrap();
    let of_store = [
        "www.a.com,exact,disposable,100,,,,,",
        "both.com,exact,disposable,100,,,,,",
        "guarded.com,subtree,disposable,100,,,,,",
        "listed.com,subtree,disposable,100,,,,,",
        "x.listed.com,exact,safe,0,,,,,",
    ];
    let base = TableInputs::from_base(TableLocation::Path(folder.path().to_owned()));
    let stored = TableInputs {
        stored_overrides: Some(render_override_list(of_store).into()),
        ..base.clone()
    };
    let both = TableInputs { overrides_path: Some(overrides), ..stored.clone() };
    let of_store = [
        ("listed.com", "disposable 100"),
        ("y.listed.com", "disposable 100"),
        ("x.listed.com", "safe 0"),
        ("guarded.com", "disposable 100"),
    ];
    let table = build_table_or_panic(&stored);
    assert_answers(&table, &of_store);
    assert_answers(&table, &[("www.a.com", "disposable 100"), ("both.com", "disposable 100")]);
    assert_eq!(look_up(&table, "both.com").explain().lists[0].file, STORED_OVERRIDES_LIST_NAME);
    table.check_succession(&build_table_or_panic(&base)).unwrap();
    let table = build_table_or_panic(&both);
    assert_answers(&table, &of_store);
    assert_answers(&table, &[("www.a.com", "safe 0"), ("both.com", "safe 0")]);
}

#[test]
fn a_new_override_keeps_the_facts_of_the_row_that_it_replaces() {
    let name = |text| DnsName::parse(text).unwrap();
    let (bad, good) = (name("bad.com"), name("good.com"));
    let deny = NewOverride {
        name: &bad,
        action: OverrideAction::Deny,
        is_exact: false,
        note: "seen, \"again\"",
        last_day: Some("2027-01-31"),
    };
    let denied = "bad.com,subtree,disposable,100,,,,\"seen, \"\"again\"\"\",2027-01-31";
    assert_eq!(deny.to_row_text(None), denied);
    let read = OverrideListRow::parse(denied).unwrap();
    assert_eq!((read.domain.as_str(), read.is_exact), ("bad.com", false));
    assert_eq!((read.note.as_str(), read.until.as_str()), ("seen, \"again\"", "2027-01-31"));
    assert_eq!(read.text, denied);
    let allow = NewOverride {
        name: &good,
        action: OverrideAction::Allow,
        is_exact: true,
        note: "",
        last_day: None,
    };
    let replaced = Some("good.com,exact,,,true,,\"A, B\",old,");
    assert_eq!(allow.to_row_text(replaced), "good.com,exact,safe,0,true,,\"A, B\",,");
    let (top_level, long) = (name("com"), "x".repeat(5_000));
    for (faulty, field) in [
        (NewOverride { last_day: Some("soon"), ..deny.clone() }, "until"),
        (NewOverride { note: "a\nb", ..deny.clone() }, "note"),
        (NewOverride { note: &long, ..deny.clone() }, "note"),
        (NewOverride { name: &top_level, is_exact: true, ..deny.clone() }, "exact"),
    ] {
        assert_eq!(faulty.check().unwrap_err().field, field);
    }
    assert_eq!(NewOverride { name: &top_level, is_exact: false, ..deny }.check(), Ok(()));
}

#[test]
fn the_rows_of_a_file_of_overrides_are_read_with_their_lines() {
    let beside = tempfile::tempdir().unwrap();
    let path = beside.path().join("overrides.csv");
    assert_eq!(OverrideListRow::read_file(&path).unwrap(), []);
    let text =
        format!("# Ours.\n{OVERRIDE_HEADER}\nB.com.,exact,,,TRUE,,\na.com,subtree,safe,0,,,\n");
    fs::write(&path, text).unwrap();
    let rows = OverrideListRow::read_file(&path).unwrap();
    let found: Vec<_> = rows.iter().map(|row| (row.domain.as_str(), row.line)).collect();
    assert_eq!(found, [("b.com", 4), ("a.com", 5)]);
    assert_eq!(rows[1].text, "a.com,subtree,safe,0,,,,,");
    fs::write(&path, format!("{OVERRIDE_HEADER}a.com,everywhere,safe,0,,,\n")).unwrap();
    let fault = OverrideListRow::read_file(&path).unwrap_err().to_string();
    assert!(fault.contains("overrides.csv:2: scope: expected exact or subtree"), "{fault}");
}

#[test]
fn kept_lists_build_the_same_table_once_their_files_are_faulty() {
    let beside = tempfile::tempdir().unwrap();
    let overrides = beside.path().join("overrides.csv");
    let rows = "guarded.com,subtree,disposable,100,,,\n";
    fs::write(&overrides, format!("{OVERRIDE_HEADER}{rows}")).unwrap();
    let folder = write_lists(&MANIFEST_LISTS);
    let compiled = compile_into(beside.path(), folder.path());
    for base in [TableLocation::Path(folder.path().to_owned()), compiled, TableLocation::Bundled] {
        let inputs = TableInputs {
            overrides_path: Some(overrides.clone()),
            ..TableInputs::from_base(base.clone())
        };
        let kept = Arc::new(KeptLists::read_and_compress(&base).unwrap());
        let before = build_table_or_panic(&inputs);
        match &base {
            TableLocation::Path(path) if path.is_dir() => {
                fs::write(path.join("manifest.toml"), "not a manifest").unwrap();
            }
            TableLocation::Path(path) => fs::write(path, "no table").unwrap(),
            TableLocation::Bundled => {}
        }
        let is_faulty = base != TableLocation::Bundled;
        assert_eq!(Table::build(&inputs, NOW).is_err(), is_faulty, "{base:?}");
        let inputs = TableInputs { last_good_lists: Some(kept), ..inputs };
        let after = build_table_or_panic(&inputs);
        assert_eq!((after.version(), after.built_at()), (before.version(), before.built_at()));
    }
}

#[test]
fn kept_lists_take_less_memory_than_a_table() {
    let base = TableLocation::Path("data".into());
    let kept = KeptLists::read_and_compress(&base).unwrap().byte_count();
    let table = Table::load(&base).unwrap().bytes.as_slice().len();
    println!("{kept} bytes beside a table of {table}");
    assert!(kept < table / 2, "{kept} bytes beside a table of {table}");
}
