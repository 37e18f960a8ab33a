//! The table as a whole: the rules of matching and of deciding, on small lists and on ours.

use std::fs;
use std::sync::LazyLock;

use super::*;
use crate::model::domain::{Name, SuffixKind};

mod added;
mod inferred;
mod learned;

/// 2026-11-21, when the bundled lists are young.
const NOW: i64 = 1_795_219_200;

static BUNDLED: LazyLock<Table> = LazyLock::new(|| Table::load(&Source::Bundled).unwrap());

const SOURCES: &str = "\
[[source]]
name = \"tlds\"
date = \"2026-11-01\"
[[source]]
name = \"alpha\"
vote = \"a\"
date = \"2026-11-02\"
[[source]]
name = \"beta\"
vote = \"b\"
date = \"2026-10-02\"
";

const OVERRIDE: &str =
    "domain,scope,reason,risk_score,is_free_provider,is_corporate_email,mx_provider_label\n";

/// Which list a test means by its file.
const KINDS: [(&str, &str); 19] = [
    ("overrides.csv", "override"),
    ("special.txt", "special_use"),
    ("tlds.txt", "tlds\"\nsource = \"tlds"),
    ("protected.txt", "protected"),
    ("corporate.txt", "corporate"),
    ("alias.txt", "alias"),
    ("a.txt", "disposable\"\ntier = \"a"),
    ("b.txt", "disposable\"\ntier = \"b"),
    ("c.txt", "disposable\"\ntier = \"c"),
    ("d.txt", "disposable\"\ntier = \"d"),
    ("role.txt", "role"),
    ("free-subdomains.txt", "free_subdomain"),
    ("known.txt", "known"),
    ("cleared.txt", "cleared"),
    ("free.txt", "free"),
    ("labels.csv", "label"),
    ("mx.csv", "mx"),
    ("mx-labels.csv", "mx_label"),
    ("seed.txt", "seed"),
];

/// A folder with these files and a manifest that names them; `manifest.toml` adds to it.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut manifest = String::new();
    for (file, kind) in KINDS {
        if files.iter().any(|(name, _)| *name == file) {
            manifest.push_str(&format!("[[list]]\nfile = \"{file}\"\nkind = \"{kind}\"\n"));
        }
    }
    fs::write(folder.path().join("sources.toml"), SOURCES).unwrap();
    for (file, text) in files {
        match *file {
            "manifest.toml" => manifest.push_str(text),
            "overrides.csv" => {
                fs::write(folder.path().join(file), format!("{OVERRIDE}{text}")).unwrap();
            }
            _ => fs::write(folder.path().join(file), text).unwrap(),
        }
    }
    fs::write(folder.path().join("manifest.toml"), manifest).unwrap();
    folder
}

fn load(files: &[(&str, &str)]) -> Result<Table, TableError> {
    let folder = folder(files);
    Table::load(&Source::Path(folder.path().to_owned()))
}

fn table(files: &[(&str, &str)]) -> Table {
    load(files).unwrap_or_else(|error| panic!("{error}"))
}

/// The faults of a load, without the folder in front.
fn faults(files: &[(&str, &str)]) -> Vec<String> {
    let folder = folder(files);
    let Err(error) = Table::load(&Source::Path(folder.path().to_owned())) else {
        panic!("no fault in {files:?}");
    };
    let prefix = format!("{}/", folder.path().display());
    error.faults().iter().map(|fault| fault.to_string().replace(&prefix, "")).collect()
}

fn ask<'t>(table: &'t Table, name: &str) -> Found<'t> {
    table.lookup(&Domain::parse(name).unwrap(), NOW)
}

/// Reason and score, and `+free`, `+corporate` and the label where there are any.
fn said(table: &Table, name: &str) -> String {
    let found = ask(table, name);
    let verdict = found.verdict;
    let mut text = format!("{} {}", verdict.reason, verdict.score.value());
    for (is, word) in
        [(verdict.is_free_provider, " +free"), (verdict.is_corporate_email, " +corporate")]
    {
        text.push_str(if is { word } else { "" });
    }
    found.label.map_or(text.clone(), |label| format!("{text} {label}"))
}

fn check(table: &Table, expected: &[(&str, &str)]) {
    for (name, expected) in expected {
        assert_eq!(said(table, name), *expected, "{name}");
    }
}

#[test]
fn the_most_specific_row_wins_on_whole_labels() {
    let table = table(&[
        ("a.txt", "mailinator.com\nsub.alias.org\na.b.c.deep.org\n=alone.net\n=x.alone2.net\n"),
        ("alias.txt", "alias.org\n"),
        ("free.txt", "mail.com\nalone2.net\n"),
    ]);
    check(
        &table,
        &[
            ("mailinator.com", "disposable 100"),
            ("foo.mailinator.com", "disposable 100"),
            ("a.b.c.mailinator.com", "disposable 100"),
            ("xmailinator.com", "safe 10"),
            ("mailinator.com.de", "safe 10"),
            ("mail.com", "safe 0 +free"),
            ("googlemail.com", "safe 10"),
            ("alias.org", "safe 35"),
            ("other.alias.org", "safe 35"),
            ("sub.alias.org", "disposable 100"),
            ("x.sub.alias.org", "disposable 100"),
            ("deep.org", "safe 10"),
            ("c.deep.org", "safe 10"),
            ("a.b.c.deep.org", "disposable 100"),
            ("x.a.b.c.deep.org", "disposable 100"),
            ("alone.net", "disposable 100"),
            ("x.alone.net", "safe 10"),
            ("x.alone2.net", "disposable 100"),
            ("y.x.alone2.net", "safe 0 +free"),
        ],
    );
    assert_eq!(ask(&table, "a.b.mailinator.com").matched, Some(4));
    assert_eq!(ask(&table, "mailinator.com").matched, Some(0));
    assert_eq!(ask(&table, "nothing.com").matched, None);
}

#[test]
fn suffixes_are_matched_as_their_owners_would_expect() {
    let table = table(&[
        ("c.txt", "com.ar\nmy.id\nweb.id\npp.ua\nddns.net\ncom\nfoo.ddns.net\nabc.pp.ua\n"),
        ("protected.txt", "gov\nedu.sg\nac.uk\n"),
        ("special.txt", "onion\nexample\nexample.com\n"),
    ]);
    check(
        &table,
        &[
            ("com.ar", "safe 10"),
            ("shop.com.ar", "safe 10"),
            ("web.id", "safe 10"),
            ("pp.ua", "disposable 80"),
            ("x.pp.ua", "safe 10"),
            ("abc.pp.ua", "disposable 80"),
            ("d.abc.pp.ua", "disposable 80"),
            ("ddns.net", "disposable 80"),
            ("foo.ddns.net", "disposable 80"),
            ("bar.ddns.net", "safe 10"),
            ("army.gov", "safe 0"),
            ("a.b.army.gov", "safe 0"),
            ("nus.edu.sg", "safe 0"),
            ("edu.sg", "safe 0"),
            ("ox.ac.uk", "safe 0"),
            ("acme.co.uk", "safe 10"),
            ("a.onion", "undeliverable 100"),
            ("mail.example.com", "undeliverable 100"),
            ("a.example", "undeliverable 100"),
        ],
    );
    assert_eq!(ask(&table, "a.army.gov").matched, Some(7));
    assert_eq!(table.lists()[2].ignored, 4);
    assert_eq!(table.rows(), 10);
}

#[test]
fn an_unknown_top_level_domain_is_undeliverable_while_the_list_is_young() {
    let table = table(&[("tlds.txt", "com\nnet\n"), ("a.txt", "bad.com\nbad.zip\n")]);
    let at = |name: &str, now: i64| table.lookup(&Domain::parse(name).unwrap(), now).verdict.rule;
    let date = NOW - 20 * DAY;
    assert_eq!(at("a.nosuch", NOW), Rule::UnknownTld);
    assert_eq!(said(&table, "a.nosuch"), "undeliverable 100");
    assert_eq!(at("a.nosuch", date + 90 * DAY - 1), Rule::UnknownTld);
    assert_eq!(at("a.nosuch", date + 90 * DAY), Rule::Unknown);
    assert_eq!(at("a.net", NOW), Rule::Unknown);
    assert_eq!(at("bad.zip", NOW), Rule::DisposableA);
    assert!(table.warnings(NOW).is_empty());
    assert!(table.warnings(date + 95 * DAY)[0].contains("95 days old"));
}

#[test]
fn the_first_rule_that_applies_decides() {
    let mx = "suffix,label,class\ngood.host,Good,professional\nbad.host,Bad,disposable\n\
              cloud.host,Cloud,shared\nhome.host,Home,consumer\nx.good.host,Better,professional\n";
    let facts = "domain,mx\nnull.com,.\ngone.com,nxdomain\nparked.com,parked\nbad.com,mx.bad.host\n\
                 cloud.com,mx.cloud.host\nhome.com,mx.home.host\npro.com,mx1.x.good.host\n\
                 pro2.com,mxgood.host\nlisted.com,.\nfree-pro.com,mx.good.host\n\
                 alias-pro.com,mx.good.host\nrole.com,mx.good.host\nrole-bad.com,a.bad.host\n\
                 labelled.com,mx.good.host\nguarded.com,.\ncorp.com,mx.home.host\n";
    let files = [
        ("special.txt", "test\nreserved.org\n"),
        ("protected.txt", "edu\nguarded.com\nfree.com\ncorp.com\nlone.com\n"),
        ("corporate.txt", "corp.com\nlone.com\n"),
        ("alias.txt", "alias.com\nalias-pro.com\n"),
        ("a.txt", "tier.com ab\nstudent.edu\nlow.reserved.org\n"),
        ("b.txt", "tier.com\ntierb.com\nlisted.com\nb-student.edu\n"),
        ("c.txt", "tierc.com\nalias.com b\n"),
        ("d.txt", "tierd.com\n"),
        ("role.txt", "role.com\nrole-bad.com\nlists.school.edu\nlists.guarded.com\n"),
        ("free.txt", "free.com a\nfree-pro.com\nalias.com\nlone.com\n"),
        ("mx.csv", facts),
        ("mx-labels.csv", mx),
        ("labels.csv", "domain,label\nlabelled.com,Own\nfree.com,\"Free, \"\"Mail\"\"\"\n"),
    ];
    let table = table(&files);
    check(
        &table,
        &[
            ("a.test", "undeliverable 100"),
            ("reserved.org", "undeliverable 100"),
            ("low.reserved.org", "undeliverable 100"),
            ("student.edu", "disposable 100"),
            ("b-student.edu", "safe 0"),
            ("guarded.com", "safe 0"),
            ("free.com", "safe 0 +free Free, \"Mail\""),
            ("sub.free.com", "safe 0 +free Free, \"Mail\""),
            ("corp.com", "safe 0 +corporate Home"),
            ("mail.corp.com", "safe 0 +corporate"),
            ("lone.com", "safe 0 +free"),
            ("alias.com", "safe 35"),
            ("alias-pro.com", "safe 35 Good"),
            ("tier.com", "disposable 100"),
            ("tierb.com", "disposable 90"),
            ("tierc.com", "disposable 80"),
            ("tierd.com", "disposable 60"),
            ("listed.com", "disposable 90"),
            ("null.com", "undeliverable 95"),
            ("sub.null.com", "safe 10"),
            ("gone.com", "undeliverable 95"),
            ("parked.com", "undeliverable 85"),
            ("bad.com", "disposable 85 Bad"),
            ("cloud.com", "safe 10 Cloud"),
            ("home.com", "safe 10 Home"),
            ("pro.com", "safe 0 +corporate Better"),
            ("pro2.com", "safe 10"),
            ("role.com", "role_account 70 Good"),
            ("role-bad.com", "disposable 85 Bad"),
            ("lists.guarded.com", "role_account 70"),
            ("lists.school.edu", "role_account 70"),
            ("free-pro.com", "safe 0 +free Good"),
            ("labelled.com", "safe 0 +corporate Own"),
            ("sub.labelled.com", "safe 10 Own"),
        ],
    );
    let why = ask(&table, "sub.tier.com").explain();
    assert_eq!(why.rule, Rule::DisposableA);
    assert_eq!(why.lists.iter().map(|l| l.file.as_str()).collect::<Vec<_>>(), ["a.txt", "b.txt"]);
    assert_eq!(why.sources.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["alpha", "beta"]);
}

#[test]
fn scores_come_from_the_manifest() {
    let scores = ("manifest.toml", "[scores]\nunknown = 17\ndisposable_c = 55\n");
    let table = table(&[("c.txt", "bad.com\n"), scores]);
    check(&table, &[("bad.com", "disposable 55"), ("good.com", "safe 17")]);
}

#[test]
fn the_operators_word_comes_first() {
    let overrides = "\
partner.com,subtree,safe,0,,true,\n\
exact.partner.com,exact,role_account,70,,,\n\
label.bad.com,exact,,,,,Named\n\
bad2.com,subtree,,5,,,-\n\
pp.ua,subtree,safe,1,,,\n\
com.ar,subtree,disposable,90,,,\n\
only.com.ar,exact,safe,3,,,\n\
both.com,exact,safe,1,,,\n\
both.com,subtree,disposable,2,,,\n\
a.test,exact,safe,4,,,\n\
s3.org,subtree,undeliverable,99,true,,\n\
xyz,subtree,,33,,,\n\
github.net,exact,,,,true,\n";
    let table = table(&[
        ("overrides.csv", overrides),
        ("special.txt", "test\n"),
        ("c.txt", "deep.partner.com\nbad.com\nbad2.com\nlow.bad2.com\npp.ua\nx.pp.ua\nbad.xyz\n"),
        ("labels.csv", "domain,label\nbad2.com,Bad Two\n"),
        ("protected.txt", "edu\n"),
    ]);
    check(
        &table,
        &[
            ("partner.com", "safe 0 +corporate"),
            ("any.partner.com", "safe 0 +corporate"),
            ("deep.partner.com", "safe 0 +corporate"),
            ("x.deep.partner.com", "safe 0 +corporate"),
            ("exact.partner.com", "role_account 70"),
            ("x.exact.partner.com", "safe 0 +corporate"),
            ("label.bad.com", "safe 10 Named"),
            ("x.label.bad.com", "disposable 80"),
            ("bad2.com", "disposable 5"),
            ("low.bad2.com", "disposable 5"),
            ("other.bad2.com", "disposable 5"),
            ("pp.ua", "safe 1"),
            ("x.pp.ua", "safe 1"),
            ("y.x.pp.ua", "safe 1"),
            ("never.pp.ua", "safe 1"),
            ("com.ar", "disposable 90"),
            ("shop.com.ar", "disposable 90"),
            ("www.shop.com.ar", "disposable 90"),
            ("only.com.ar", "safe 3"),
            ("shop.ar", "safe 10"),
            ("both.com", "safe 1"),
            ("x.both.com", "disposable 2"),
            ("a.test", "safe 4"),
            ("b.test", "undeliverable 100"),
            ("s3.org", "undeliverable 99 +free"),
            ("bad.xyz", "disposable 33"),
            ("good.xyz", "safe 33"),
            ("github.net", "safe 10 +corporate"),
            ("x.github.net", "safe 10"),
        ],
    );
    let rule = |name: &str| ask(&table, name).verdict.rule;
    assert_eq!(rule("bad2.com"), Rule::Override);
    assert_eq!(rule("label.bad.com"), Rule::Unknown);
    assert_eq!(ask(&table, "deep.partner.com").explain().lists[0].file, "overrides.csv");
}

#[test]
fn an_override_of_a_domain_covers_private_suffixes_below_it() {
    let table = table(&[
        ("overrides.csv", "amazonaws.com,subtree,disposable,77,,,\n"),
        ("free.txt", "amazonaws.com\n"),
    ]);
    check(
        &table,
        &[
            ("amazonaws.com", "disposable 77 +free"),
            ("x.amazonaws.com", "disposable 77 +free"),
            ("bucket.s3.amazonaws.com", "disposable 77"),
            ("s3.amazonaws.com", "disposable 77"),
            ("other.com", "safe 10"),
        ],
    );
}

#[test]
fn a_protected_name_is_never_flagged_by_mistake() {
    let would = |line: &str, name: &str| {
        format!("{line}: would flag a protected name: {name} (guard.flag_protected allows it)")
    };
    let protected = ("protected.txt", "gmail.com\nedu\nopen.edu\n");
    assert_eq!(
        faults(&[protected, ("a.txt", "# why\ngmail.com\n"), ("role.txt", "open.edu\n")]),
        [would("a.txt:2", "gmail.com"), would("role.txt:1", "open.edu")]
    );
    assert_eq!(
        faults(&[protected, ("overrides.csv", "gmail.com,exact,disposable,100,,,\n")]),
        [would("overrides.csv:2", "gmail.com")]
    );
    assert_eq!(
        faults(&[protected, ("overrides.csv", "com,subtree,disposable,100,,,\n")]),
        [would("overrides.csv:2", "gmail.com")]
    );
    let corporate = ("corporate.txt", "corp.com\n");
    assert_eq!(faults(&[corporate, ("b.txt", "corp.com\n")]), [would("b.txt:1", "corp.com")]);

    let guard = ("manifest.toml", "[guard]\nflag_protected = [\"gmail.com\", \"low.edu\"]\n");
    let table = table(&[protected, guard, ("b.txt", "gmail.com\nlow.edu\nother.edu\n")]);
    check(
        &table,
        &[("gmail.com", "disposable 90"), ("low.edu", "disposable 90"), ("other.edu", "safe 0")],
    );
    let unused = ("manifest.toml", "[guard]\nflag_protected = [\"gmail.com\",\n\"x.com\"]\n");
    assert_eq!(
        faults(&[protected, unused, ("a.txt", "gmail.com\n")]),
        [
            "manifest.toml:10: guard.flag_protected: expected a protected name that an override or a \
          list flags, but found \"x.com\""
        ]
    );
}

#[test]
fn each_fault_says_where_and_what_was_expected() {
    let one = |files: &[(&str, &str)], expected: &str| {
        let found = faults(files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(expected), "{}\n{expected}", found[0]);
    };
    let over = |row: &str, expected: &str| one(&[("overrides.csv", row)], expected);
    over(
        "a.com,exact,,1o0,,,\n",
        "overrides.csv:2: risk_score: expected an integer from 0 to 100, but found \"1o0\"",
    );
    over("a.com,exact,,101,,,\n", "overrides.csv:2: risk_score: expected an integer from 0 to 100");
    over("a.com,exact,bad,,,,\n", "overrides.csv:2: reason: expected safe, disposable,");
    over("a.com,some,safe,,,,\n", "overrides.csv:2: scope: expected exact or subtree");
    over("a.com,exact,,,yes,,\n", "overrides.csv:2: is_free_provider: expected true or false");
    over("a.com,exact,,,,,\n", "overrides.csv:2: expected a row that sets a field");
    over("com,exact,safe,,,,\n", "overrides.csv:2: scope: expected subtree, since no e-mail");
    over("a.com,exact,safe\n", "overrides.csv:2: expected 7 fields (domain,scope,");
    over(
        "\na.com,exact,safe,0,,,\nA.com,exact,safe,1,,,\n",
        "overrides.csv:4: domain: expected \"a.com\" once, but found it again (first in line 3)",
    );
    one(&[("labels.csv", "name,label\n")], "labels.csv:1: expected the header domain,label");
    one(&[("labels.csv", "# none\n")], "labels.csv: expected the header domain,label");
    let narrow = faults(&[("labels.csv", "name\nx.com\n")]);
    assert!(narrow[0].contains("labels.csv:1: expected the header"), "{narrow:?}");
    assert!(narrow[1].contains("labels.csv:2: expected 2 fields"), "{narrow:?}");
    one(&[("labels.csv", "domain,label\na.com,\n")], "labels.csv:2: label: expected a label of");
    one(&[("labels.csv", "domain,label\na.com,\"x\n")], "labels.csv:2: expected a closing quote");
    one(
        &[("mx-labels.csv", "suffix,label,class\na.com,A,good\n"), ("a.txt", "b.com\n")],
        "mx-labels.csv:2: class: expected consumer, professional, shared or disposable",
    );
    one(&[("mx.csv", "domain,mx\na.com,-\n")], "mx.csv:2: mx: expected a host, ., nxdomain");
    for (line, expected) in [
        ("a..com", "a.txt:1: expected labels of 1 to 63 characters, but found \"a..com\""),
        ("user@a.com", "a.txt:1: expected a domain without @, /, :, spaces"),
        ("1.2.3.4", "a.txt:1: expected a domain name, not an IP address"),
        ("discardmail.*", "a.txt:1: expected labels of letters, digits"),
        ("a.com b.com", "a.txt:1: expected one name and vote letters of sources.toml (ab)"),
        ("a.com az", "a.txt:1: expected one name and vote letters of sources.toml (ab)"),
        ("a.com  a", "a.txt:1: expected one name and vote letters"),
        ("=", "a.txt:1: expected labels of 1 to 63 characters"),
    ] {
        one(&[("a.txt", line)], expected);
    }
    one(&[("tlds.txt", "com\nco.uk\n")], "tlds.txt:2: expected one label, but found \"co.uk\"");
    one(&[("a.txt", "# nothing\n")], "manifest.toml: expected lists with rows, but found an empty");
    for (manifest, expected) in [
        ("[[list]]\nfile = \"x\"\nkind = \"evil\"\n", "manifest.toml:7: kind: expected one of"),
        ("[[list]]\nfile = \"x\"\nkind = \"disposable\"\n", "manifest.toml:7: tier: expected a, b"),
        ("[[list]]\nfile = \"x\"\nkind = \"free\"\n", "manifest.toml:5: file: expected x in this"),
        (
            "[[list]]\nfile = \"../x\"\nkind = \"free\"\n",
            "manifest.toml:5: file: expected the name",
        ),
        ("[[list]]\nfile = \"/x\"\nkind = \"free\"\n", "manifest.toml:5: file: expected the name"),
        ("[[list]]\nfile = \"a.txt\"\nkind = \"free\"\n", "manifest.toml:5: file: expected \"a.t"),
        (
            "[[list]]\nfile = \"x\"\nkind = \"tlds\"\n",
            "manifest.toml:7: source: expected the entry",
        ),
        ("[[list]]\nfile = \"x\"\nkin = \"tlds\"\n", "manifest.toml:7: unknown field `kin`"),
        ("[scores]\nfree = 101\n", "manifest.toml:6: scores.free: expected an integer from 0"),
        ("[scores]\nfree = \"1\"\n", "manifest.toml:6: scores.free: expected an integer from 0"),
        ("[scores]\nfre = 1\n", "manifest.toml:6: scores.fre: expected a rule, one of"),
        ("[guard]\nmax_changed_share = 2.0\n", "manifest.toml:6: guard.max_changed_share: expec"),
        ("[gard]\n", "manifest.toml:5: unknown field `gard`"),
        ("[guard\n", "manifest.toml:5: "),
    ] {
        one(&[("a.txt", "bad.com\n"), ("manifest.toml", manifest)], expected);
    }
}

#[test]
fn a_folder_without_a_manifest_is_no_table() {
    let folder = tempfile::tempdir().unwrap();
    let source = Source::Path(folder.path().to_owned());
    let text = Table::load(&source).err().unwrap().to_string();
    assert!(text.ends_with("manifest.toml: expected a manifest, but found no such file"), "{text}");
    let source = Source::Path(folder.path().join("none"));
    let text = Table::load(&source).err().unwrap().to_string();
    let expected = "none: expected a folder of lists or a compiled table, but found nothing";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn all_faults_are_told_together() {
    let found = faults(&[("a.txt", "a..b\nok.com\n-\n"), ("free.txt", "\u{20}\n*.com\n")]);
    assert_eq!(found.len(), 3, "{found:?}");
    let many: String = (0..30).map(|n| format!("bad_{n}.com\n")).collect();
    let text = load(&[("a.txt", &many)]).err().unwrap().to_string();
    assert!(text.ends_with("and 10 more"), "{text}");
}

#[test]
fn lists_may_be_written_by_hand() {
    let table =
        table(&[("a.txt", "\u{feff}# ours\r\nBAD.com.\r\nb\u{fc}cher.de\r\n\r\n  x.org a \n")]);
    let bad = "disposable 100";
    check(&table, &[("bad.com", bad), ("xn--bcher-kva.de", bad), ("x.org", bad)]);
}

#[test]
fn a_long_list_that_was_emptied_is_not_taken_however_small_its_share() {
    let rows = |head: &str, count: u32| -> String {
        (0..count).map(|n| format!("{head}{n}.com\n")).collect()
    };
    let large = ("a.txt", rows("large", 500));
    let build = |short: &str| {
        let free = ("free.txt", short);
        table(&[("protected.txt", "gmail.com\n"), (large.0, large.1.as_str()), free])
    };
    let before = build(&rows("free", 30));
    let error = build("").accept(&before).err().unwrap().to_string();
    assert!(error.contains("free.txt: expected at most 9 of 30 rows"), "{error}");
    // Nor is a manifest that names it no more, as half of one would.
    let bare = table(&[("protected.txt", "gmail.com\n"), (large.0, large.1.as_str())]);
    let error = bare.accept(&before).err().unwrap().to_string();
    assert!(error.contains("free.txt: expected at most 9 of 30 rows"), "{error}");
    // A short list is edited by hand.
    let before = build(&rows("free", 5));
    build("").accept(&before).unwrap();
}

#[test]
fn a_table_that_differs_too_much_or_flags_the_protected_is_not_taken() {
    let rows = |range: std::ops::Range<u32>| -> String {
        range.map(|n| format!("bad{n}.com\n")).collect()
    };
    let protected = ("protected.txt", "gmail.com\n");
    let before = table(&[("a.txt", &rows(0..99)), protected]);
    before.accept(&before).unwrap();
    table(&[("a.txt", &rows(15..114)), protected]).accept(&before).unwrap();
    let error = table(&[("a.txt", &rows(16..115)), protected]).accept(&before).err().unwrap();
    assert!(
        error.to_string().ends_with(
            "expected at most 30 of 100 rows to come or go, but found 16 new and 16 gone \
             (guard.max_changed_share)"
        ),
        "{error}"
    );
    let share = ("manifest.toml", "[guard]\nmax_changed_share = 1.0\n");
    table(&[("a.txt", &rows(50..149)), protected, share]).accept(&before).unwrap();

    let unprotected = table(&[("a.txt", &(rows(0..99) + "gmail.com\n"))]);
    let error = unprotected.accept(&before).err().unwrap().to_string();
    assert!(error.contains("would flag a protected name: gmail.com"), "{error}");
    let allowed = ("manifest.toml", "[guard]\nflag_protected = [\"gmail.com\"]\n");
    let list = rows(0..99) + "gmail.com\n";
    table(&[("a.txt", &list), protected, allowed]).accept(&before).unwrap();
}

#[test]
fn the_seed_keeps_its_order_and_only_names_that_are_flagged() {
    let table = table(&[
        ("a.txt", "z.com\na.com\nback.com\n"),
        ("seed.txt", "z.com\nunknown.com\nback.com\na.com\n"),
        ("overrides.csv", "back.com,exact,safe,0,,,\n"),
    ]);
    assert_eq!(table.seed(), ["z.com", "a.com"]);
}

#[test]
fn the_same_sources_give_the_same_bytes() {
    let files = [("a.txt", "bad.com ab\n"), ("free.txt", "mail.com\n")];
    let (one, two) = (table(&files), table(&files));
    assert_eq!(one.version(), two.version());
    assert_eq!(one.bytes.of(), two.bytes.of());
    assert_eq!(one.version().len(), 12);
    let other = table(&[("a.txt", "bad.com a\n"), ("free.txt", "mail.com\n")]);
    assert_ne!(one.version(), other.version());
}

#[test]
fn a_file_gives_the_same_answers_as_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.table");
    BUNDLED.write_to(&path).unwrap();
    let read = Table::load(&Source::Path(path.clone())).unwrap();
    assert_eq!(read.bytes.of(), BUNDLED.bytes.of());
    assert_eq!(read.version(), BUNDLED.version());
    assert_eq!(read.rows_by_class(), BUNDLED.rows_by_class());
    for row in BUNDLED.names() {
        assert!(read.row_of(row.name).unwrap().says_the_same(&row), "{}", row.name);
    }
    // A second write replaces the first, and nothing stays beside it.
    let small = table(&[("a.txt", "bad.com\n")]).stamp(NOW).unwrap();
    small.write_to(&path).unwrap();
    let read = Table::load(&Source::Path(path)).unwrap();
    assert_eq!((read.rows(), read.built_at()), (1, NOW));
    assert_eq!(read.version(), small.version());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// The fault of a compiled table with these bytes.
fn fault_of(bytes: &[u8]) -> Option<String> {
    let mut copy = Bytes::zeroed(bytes.len());
    copy.of_mut().copy_from_slice(bytes);
    Table::open(copy, "x").err().map(|error| error.to_string())
}

#[test]
fn a_reviewed_name_below_a_protected_suffix_is_flagged() {
    let table = table(&[
        ("protected.txt", "edu.vn\nguarded.com\n"),
        ("a.txt", "reviewed.edu.vn\n"),
        ("b.txt", "seen.edu.vn\n"),
        ("c.txt", "copied.edu.vn\n"),
    ]);
    check(
        &table,
        &[
            ("reviewed.edu.vn", "disposable 100"),
            ("low.reviewed.edu.vn", "disposable 100"),
            ("seen.edu.vn", "safe 0"),
            ("copied.edu.vn", "safe 0"),
            ("real.edu.vn", "safe 0"),
        ],
    );
}

#[test]
fn a_damaged_file_is_an_error_and_never_a_panic() {
    let table = table(&[("a.txt", "bad.com\nlow.good.org\n"), ("protected.txt", "gov\n")]);
    let sound = table.bytes.of();
    assert_eq!(fault_of(sound), None);
    for length in 0..sound.len() {
        assert!(fault_of(&sound[..length]).is_some(), "{length}");
    }
    assert!(fault_of(&[sound, &[0]].concat()).is_some());
    for bit in 0..sound.len() * 8 {
        let mut flipped = sound.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(fault_of(&flipped).is_some(), "{bit}");
    }
    let mut newer = sound.to_vec();
    newer[8] = 4;
    assert_eq!(
        fault_of(&newer).unwrap(),
        "x: expected a compiled table of format 3, but found format 4, made by a newer riskgate"
    );
    assert_eq!(
        fault_of(b"no table").unwrap(),
        "x: expected a compiled table, but found other bytes"
    );
    let cut = fault_of(&sound[..sound.len() - 1]).unwrap();
    assert!(cut.ends_with(": a truncated file"), "{cut}");
}

#[test]
fn bytes_with_a_forged_checksum_never_panic() {
    let table = table(&[("a.txt", "bad.com\nlow.good.org\n"), ("protected.txt", "gov\nac.uk\n")]);
    let names = ["bad.com", "low.good.org", "x.low.good.org", "a.gov", "b.ac.uk", "none.com"];
    let domains = names.map(|name| Domain::parse(name).unwrap());
    let sound = table.bytes.of();
    for at in 32..sound.len() {
        for value in [0, 1, 0x7f, 0xff, sound[at].wrapping_add(1)] {
            let mut forged = Bytes::zeroed(sound.len());
            forged.of_mut().copy_from_slice(sound);
            forged.of_mut()[at] = value;
            file::seal(forged.of_mut());
            let Ok(table) = Table::open(forged, "x") else { continue };
            for domain in &domains {
                let found = table.lookup(domain, NOW);
                assert!(found.tail().ends_with('}'));
                found.explain();
            }
            table.names().for_each(|row| _ = row.own.explain());
        }
    }
}

#[test]
fn other_public_suffixes_only_cost_time() {
    let mut table = table(&[("a.txt", "low.good.org\n"), ("free.txt", "mail.com\n")]);
    table.parts.meta.suffixes = "another list".into();
    let bytes = file::with_meta(&table.bytes, &table.parts).unwrap();
    let table = Table::open(bytes, "x").unwrap();
    assert!(table.full_walk);
    check(&table, &[("x.low.good.org", "disposable 100"), ("x.mail.com", "safe 0 +free")]);
    assert!(table.warnings(NOW).iter().any(|warning| warning.contains("public suffixes")));
}

#[test]
fn the_bundled_table_flags_no_real_provider() {
    for name in [
        "gmail.com",
        "googlemail.com",
        "outlook.com",
        "hotmail.com",
        "yahoo.com",
        "proton.me",
        "icloud.com",
        "duck.com",
        "fastmail.com",
        "army.gov",
        "nus.edu.sg",
        "microsoft.com",
        "com.ar",
        "x.ddns.net",
    ] {
        assert_eq!(ask(&BUNDLED, name).verdict.reason, Reason::Safe, "{name}");
    }
    for row in BUNDLED.names() {
        let is_icann = Name::parse(row.name).unwrap().public_suffix() == Some(SuffixKind::Icann);
        let reason = row.own.verdict.reason;
        assert!(!is_icann || !matches!(reason, Reason::Disposable | Reason::RoleAccount));
    }
    assert_eq!(said(&BUNDLED, "gmail.com"), "safe 0 +free Gmail");
    assert_eq!(said(&BUNDLED, "microsoft.com"), "safe 0 +corporate Microsoft 365");
}

#[test]
fn the_bundled_table_knows_the_names_that_people_know() {
    assert_eq!(said(&BUNDLED, "yopmail.com"), "disposable 100 Yopmail");
    assert_eq!(ask(&BUNDLED, "foo.mailinator.com").verdict.reason, Reason::Disposable);
    assert_eq!(ask(&BUNDLED, "a.nosuchtld").verdict.rule, Rule::UnknownTld);
    assert!(BUNDLED.rows() > 40_000, "{}", BUNDLED.rows());
    assert_eq!(BUNDLED.seed()[0], "mailinator.com");
    assert!(BUNDLED.seed().len() > 100);
    assert!(BUNDLED.warnings(NOW).is_empty(), "{:?}", BUNDLED.warnings(NOW));
}

#[test]
fn every_bundled_row_is_found_by_a_look_up() {
    let mut rows = 0;
    for row in BUNDLED.names() {
        rows += 1;
        let Ok(domain) = Domain::parse(row.name) else { continue };
        let found = BUNDLED.lookup(&domain, NOW);
        assert_eq!(found.matched, Some(0), "{}", row.name);
        assert_eq!(found.verdict, row.own.verdict, "{}", row.name);
    }
    assert_eq!(rows, BUNDLED.rows());
}
