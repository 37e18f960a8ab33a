//! Which lists are rejected, and the texts of the faults.

use super::support::{OVERRIDE_HEADER, assert_answers, load_faults, load_lists, try_load_lists};
use crate::table::{Table, TableLocation, parse_override_rows};

#[test]
fn flagging_a_protected_name_is_a_fault_unless_the_manifest_allows_it() {
    let flagging_fault = |line: &str, name: &str| {
        format!(
            "{line}: a protected name would be flagged: {name} (guard.allow_flagging allows it)"
        )
    };
    let protected = ("protected.txt", "gmail.com\nedu\nopen.edu\n");
    assert_eq!(
        load_faults(&[protected, ("a.txt", "# why\ngmail.com\n"), ("role.txt", "open.edu\n")]),
        [flagging_fault("a.txt:2", "gmail.com"), flagging_fault("role.txt:1", "open.edu")]
    );
    assert_eq!(
        load_faults(&[protected, ("overrides.csv", "gmail.com,exact,disposable,100,,,\n")]),
        [flagging_fault("overrides.csv:2", "gmail.com")]
    );
    assert_eq!(
        load_faults(&[protected, ("overrides.csv", "com,subtree,disposable,100,,,\n")]),
        [flagging_fault("overrides.csv:2", "gmail.com")]
    );
    let corporate = ("corporate.txt", "corp.com\n");
    assert_eq!(
        load_faults(&[corporate, ("b.txt", "corp.com\n")]),
        [flagging_fault("b.txt:1", "corp.com")]
    );

    let guard = ("manifest.toml", "[guard]\nallow_flagging = [\"gmail.com\", \"low.edu\"]\n");
    let table = load_lists(&[protected, guard, ("b.txt", "gmail.com\nlow.edu\nother.edu\n")]);
    assert_answers(
        &table,
        &[("gmail.com", "disposable 90"), ("low.edu", "disposable 90"), ("other.edu", "safe 0")],
    );
    let unused = ("manifest.toml", "[guard]\nallow_flagging = [\"gmail.com\",\n\"x.com\"]\n");
    assert_eq!(
        load_faults(&[protected, unused, ("a.txt", "gmail.com\n")]),
        ["manifest.toml:10: guard.allow_flagging: expected a protected name that an override \
             or a list flags, but found \"x.com\""]
    );
}

/// Fails unless there is exactly one fault, and it begins with this text.
fn assert_one_fault(files: &[(&str, &str)], expected: &str) {
    let found = load_faults(files);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with(expected), "{}\n{expected}", found[0]);
}

#[test]
fn each_fault_of_an_override_says_where_and_what_was_expected() {
    let assert_override_fault =
        |row: &str, expected: &str| assert_one_fault(&[("overrides.csv", row)], expected);
    assert_override_fault(
        "a.com,exact,,1o0,,,\n",
        "overrides.csv:2: risk_score: expected an integer from 0 to 100, but found \"1o0\"",
    );
    assert_override_fault(
        "a.com,exact,,101,,,\n",
        "overrides.csv:2: risk_score: expected an integer from 0 to 100",
    );
    assert_override_fault(
        "a.com,exact,bad,,,,\n",
        "overrides.csv:2: reason: expected safe, disposable,",
    );
    assert_override_fault(
        "a.com,some,safe,,,,\n",
        "overrides.csv:2: scope: expected exact or subtree",
    );
    assert_override_fault(
        "a.com,exact,,,yes,,\n",
        "overrides.csv:2: is_free_provider: expected true or false",
    );
    assert_override_fault(
        "a.com,exact,,,,,\n",
        "overrides.csv:2: expected a row that sets a field",
    );
    assert_override_fault(
        "com,exact,safe,,,,\n",
        "overrides.csv:2: scope: expected subtree, since no e-mail",
    );
    assert_override_fault(
        "a.com,exact,safe\n",
        "overrides.csv:2: expected 7 fields (domain,scope,",
    );
    assert_override_fault(
        "\na.com,exact,safe,0,,,\nA.com,exact,safe,1,,,\n",
        "overrides.csv:4: domain: expected \"a.com\" once, but found it again (first in line 3)",
    );
}

/// A header of overrides with one of the two optional columns is one fault.
#[test]
fn an_optional_column_without_the_other_is_told_once() {
    let required = OVERRIDE_HEADER.trim_end();
    let row = "a.com,exact,safe,0,,,";
    for (column, value, expected) in [
        ("note", "seen", "a comma at the end of each row, but found …,note alone"),
        ("until", "2030-01-01", "a comma before the last day of each row, but found …,until alone"),
    ] {
        let expected = format!(
            "overrides.csv:1: expected note,until at the end of the header, and {expected}"
        );
        let text = format!("{required},{column}\n{row},{value}\n");
        let faults = parse_override_rows("overrides.csv", &text).unwrap_err();
        let faults: Vec<String> = faults.faults().iter().map(ToString::to_string).collect();
        assert_eq!(faults, [expected]);
    }
    let text = format!("{required},note,until\n{row},seen twice, again,2030-01-01\n");
    let faults = parse_override_rows("overrides.csv", &text).unwrap_err();
    let hint = "but found 10; write a text with a comma between double quotes";
    assert!(faults.faults()[0].to_string().ends_with(hint), "{faults}");
}

#[test]
fn each_fault_of_a_list_says_where_and_what_was_expected() {
    assert_one_fault(
        &[("labels.csv", "name,label\n")],
        "labels.csv:1: expected the header domain,label",
    );
    assert_one_fault(&[("labels.csv", "# none\n")], "labels.csv: expected the header domain,label");
    // The rows below it would only repeat the fault.
    assert_one_fault(
        &[("labels.csv", "name\nx.com\ny.com,Y\n")],
        "labels.csv:1: expected the header domain,label",
    );
    assert_one_fault(
        &[("labels.csv", "domain,label\na.com,\n")],
        "labels.csv:2: label: expected a label of",
    );
    assert_one_fault(
        &[("labels.csv", "domain,label\na.com,\"x\n")],
        "labels.csv:2: expected a closing quote",
    );
    assert_one_fault(
        &[("mx-labels.csv", "suffix,label,class\na.com,A,good\n"), ("a.txt", "b.com\n")],
        "mx-labels.csv:2: class: expected consumer, professional, shared or disposable",
    );
    assert_one_fault(
        &[("mx.csv", "domain,mx\na.com,-\n")],
        "mx.csv:2: mx: expected a host, ., nxdomain",
    );
    for (line, expected) in [
        ("a..com", "a.txt:1: expected labels of 1 to 63 characters, but found \"a..com\""),
        ("user@a.com", "a.txt:1: expected a domain without @, /, :, spaces"),
        ("1.2.3.4", "a.txt:1: expected a domain name, not an IP address"),
        ("*.discardmail.com", "a.txt:1: expected a name without *., because it stands for"),
        ("discardmail.*", "a.txt:1: expected labels of letters, digits"),
        ("a.com b.com", "a.txt:1: expected one name and vote letters of sources.toml (ab)"),
        ("a.com az", "a.txt:1: expected one name and vote letters of sources.toml (ab)"),
        ("a.com  a", "a.txt:1: expected one name and vote letters"),
        ("=", "a.txt:1: expected labels of 1 to 63 characters"),
    ] {
        assert_one_fault(&[("a.txt", line)], expected);
    }
    assert_one_fault(
        &[("tlds.txt", "com\nco.uk\n")],
        "tlds.txt:2: expected one label, but found \"co.uk\"",
    );
    assert_one_fault(
        &[("a.txt", "# nothing\n")],
        "manifest.toml: expected lists with rows, but found an empty",
    );
}

#[test]
fn each_fault_of_a_manifest_says_where_and_what_was_expected() {
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
        assert_one_fault(&[("a.txt", "bad.com\n"), ("manifest.toml", manifest)], expected);
    }
}

#[test]
fn a_directory_without_a_manifest_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let source = TableLocation::Path(folder.path().to_owned());
    let text = Table::load(&source).err().unwrap().to_string();
    assert!(text.ends_with("manifest.toml: expected a manifest, but found no such file"), "{text}");
    let source = TableLocation::Path(folder.path().join("none"));
    let text = Table::load(&source).err().unwrap().to_string();
    let expected = "none: expected a directory of lists or a compiled table, but found nothing";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn faults_of_several_lists_are_reported_together() {
    let found = load_faults(&[("a.txt", "a..b\nok.com\n-\n"), ("free.txt", "\u{20}\n*.com\n")]);
    assert_eq!(found.len(), 3, "{found:?}");
    let many: String = (0..30).map(|n| format!("bad_{n}.com\n")).collect();
    let text = try_load_lists(&[("a.txt", &many)]).err().unwrap().to_string();
    assert!(text.ends_with("and 10 more"), "{text}");
}
