use super::*;

fn read_keys_from_text(text: &str) -> Result<Vec<DeclaredKey>, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    std::fs::write(&path, text).unwrap();
    let variable = |name: &str| (name == "WEB_KEY").then(|| "sv_0123456789abcdef".to_owned());
    read_key_file(&path, &variable).map_err(|faults| {
        let prefix = format!("{}/", folder.path().display());
        faults.iter().map(|fault| fault.to_string().replace(&prefix, "")).collect()
    })
}

#[test]
fn hash_or_env_variable_declares_a_key() {
    let hash = format_key_hash("sv_0123456789abcdef");
    let text = format!(
        "[[key]]\nid = \"web-1\"\naccount = \"acme\"\nplan = \"pro\"\nhash = \"{hash}\"\n\
         origins = [\"https://*.example.org\"]\nrequire_origin = true\n\
         expires = \"2027-01-01T00:00:00Z\"\n"
    );
    let keys = read_keys_from_text(&text).unwrap();
    assert_eq!(keys[0].plan.as_deref(), Some("pro"));
    assert_eq!(keys[0].key.expires_at, Some(1_798_761_600));
    let by_variable =
        read_keys_from_text("[[key]]\nid = \"a\"\naccount = \"acme\"\nenv = \"WEB_KEY\"\n")
            .unwrap();
    assert_eq!(by_variable[0].key.digest, keys[0].key.digest);
}

#[test]
fn a_fault_says_what_was_found_and_what_to_write() {
    let head = "[[key]]\nid = \"a\"\naccount = \"acme\"\n";
    let empty = format!("{head}hash = \"{}\"\n", format_key_hash(""));
    for (text, found) in [
        (empty, "but found those of an empty text"),
        (format!("{head}expires = \"31/12/2026\"\n"), "write \"2026-12-31T00:00:00Z\""),
        (head.replace("\"a\"", "\"my key\""), "but found \"my key\""),
        (head.replace("\"a\"", "\"my key\""), "write \"my-key\""),
        ("id,account\na,acme\n".to_owned(), "but found CSV or a plain list"),
        ("[{\"id\":\"a\"}]\n".to_owned(), "but found JSON or YAML"),
    ] {
        let faults = read_keys_from_text(&text).unwrap_err().join("\n");
        assert!(faults.contains(found), "{faults} lacks {found}");
    }
    let either = read_keys_from_text(&format!("{head}expires = \"05/06/2026\"\n")).unwrap_err();
    assert!(!either.join("\n").contains("write \"2026"), "{either:?}");
}

#[test]
fn a_fault_names_its_line_and_shows_no_key() {
    let head = "[[key]]\nid = \"a\"\naccount = \"acme\"\n";
    for (text, fault) in [
        (format!("{head}hash = \"md5:00\"\n"), "keys.toml:4:8: hash: expected sha256: and 64"),
        (format!("{head}env = \"NONE\"\n"), "keys.toml:4:7: env: expected the variable NONE"),
        (head.to_owned(), "keys.toml:1:1: key a: expected either hash or env"),
        (format!("{head}colour = 1\n"), "keys.toml:4:1: colour: expected a known field"),
        (
            format!("{head}env = \"WEB_KEY\"\norigins = [\"x\"]\n"),
            "keys.toml:5:12: origins: expected",
        ),
        (
            format!("{head}env = \"WEB_KEY\"\nexpires = \"soon\"\n"),
            "keys.toml:5:11: expires: expected",
        ),
        (
            "[[key]]\nid = \"a b\"\naccount = \"c\"\n".to_owned(),
            "keys.toml:2:6: id: expected 1 to 128",
        ),
        ("[[key".to_owned(), "keys.toml:1:"),
    ] {
        let faults = read_keys_from_text(&text).unwrap_err();
        assert!(faults[0].starts_with(fault), "{} is not {fault}", faults[0]);
    }
    let key = "rg_0123456789abcdefghijABCDEFGHIJ01";
    for (text, fault) in [
        (format!("{head}env = \"{key}\"\n"), "keys.toml:4:7: env: expected the variable of this"),
        (format!("{head}hash = \"{key}\"\n"), "keys.toml:4:8: hash: expected sha256: and 64"),
        (format!("key = \"{key}\"\n"), "keys.toml:1:"),
        (format!("{head}env = \"WEB_KEY\"\nexpires = \"{key}\"\n"), "keys.toml:5:11: expires: "),
        (format!("{head}env = \"WEB_KEY\"\norigins = [\"{key}\"]\n"), "keys.toml:5:12: origins: "),
        (format!("{head}{key} = 1\n"), "keys.toml:4:1: …: expected a known field"),
    ] {
        let found = read_keys_from_text(&text).unwrap_err()[0].clone();
        assert!(found.starts_with(fault) && !found.contains(key), "{found}");
    }
    let twice = format!("{head}env = \"WEB_KEY\"\n{head}env = \"WEB_KEY\"\n");
    let faults = read_keys_from_text(&twice).unwrap_err();
    let fault = "keys.toml:5:1: key a: expected this key once, but line 1 has it already; leave \
                 one of both out";
    assert_eq!(faults, [fault]);
    let hash = "0".repeat(64);
    let twice = format!("{head}env = \"WEB_KEY\"\n{head}hash = \"sha256:{hash}\"\n");
    let faults = read_keys_from_text(&twice).unwrap_err();
    let fault = "keys.toml:5:1: key a: expected this id once, but line 1 has it already; give \
                 each key an id of its own";
    assert_eq!(faults, [fault]);
    // Keys of other systems have the form of a variable's name or of an id.
    let other = "AKIAIOSFODNN7EXAMPLE";
    let entry = format!("[[key]]\nid = \"{other}\"\naccount = \"acme\"\nenv = \"WEB_KEY\"\n");
    for (text, fault) in [
        (format!("{head}env = \"{other}\"\n"), "keys.toml:4:7: env: expected the variable of this"),
        (
            format!("{head}env = \"${other}\"\n"),
            "keys.toml:4:7: env: expected the variable of this",
        ),
        (entry.repeat(2), "keys.toml:5:1: a key: expected this key once, but line 1 has it"),
    ] {
        let faults = read_keys_from_text(&text).unwrap_err();
        assert!(faults[0].starts_with(fault) && !faults[0].contains(other), "{}", faults[0]);
    }
    let id = "key_0123456789abcdef";
    let entry = format!("[[key]]\nid = \"{id}\"\naccount = \"acme\"\nenv = \"WEB_KEY\"\n");
    let faults = read_keys_from_text(&entry.repeat(2)).unwrap_err();
    assert!(faults[0].starts_with("keys.toml:5:1: key key_0123456789abcdef: "), "{}", faults[0]);
    let never = format!("{head}env = \"WEB_KEY\"\nexpires = \"9999-12-31T23:59:59Z\"\n");
    let expires_at = read_keys_from_text(&never).unwrap()[0].key.expires_at;
    assert_eq!(expires_at, Some(253_402_207_200), "9999-12-30T22:00:00Z");
}

#[test]
fn every_fault_of_a_key_is_reported() {
    let text = "[[key]]\nid = \"a b\"\naccount = \"acme\"\nenv = \"NONE\"\norigins = [\"x\", \"*\"]\n\
                expires = \"2027-01-01\"\nrevoked = \"soon\"\n";
    let faults = read_keys_from_text(text).unwrap_err();
    let places: Vec<&str> = faults.iter().filter_map(|it| it.split(": expected").next()).collect();
    let expected = [
        "keys.toml:2:6: id",
        "keys.toml:4:7: env",
        "keys.toml:5:12: origins",
        "keys.toml:5:17: origins",
        "keys.toml:6:11: expires",
        "keys.toml:7:11: revoked",
    ];
    assert_eq!(places, expected);
    assert!(faults[4].ends_with("; write \"2027-01-01T00:00:00Z\""), "{}", faults[4]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    let text = "[[key]]\nid = \"a\"\naccount = \"acme\"\nplan = \"premuim\"\nenv = \"NONE\"\n";
    std::fs::write(&path, text).unwrap();
    let unknown = find_unknown_plans(&path, &["free".to_owned(), "pro".to_owned()]);
    let unknown: Vec<String> = unknown.iter().map(KeyFileError::to_text).collect();
    assert_eq!(unknown.len(), 1);
    assert!(
        unknown[0].contains("keys.toml:4:8: account acme: expected one of the plans free, pro")
    );
    assert!(find_unknown_plans(&path, &["premuim".to_owned()]).is_empty());
}

#[test]
fn a_plan_that_does_not_exist_is_reported_at_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    let key = |id: &str, plan: &str| {
        format!("[[key]]\nid = {id:?}\naccount = \"acme\"\nplan = {plan:?}\nenv = \"A\"\n")
    };
    std::fs::write(&path, key("a", "pro") + &key("b", "gold")).unwrap();
    let [account, known, found] = ["acme", "free, pro", "gold"].map(str::to_owned);
    let fault = RingFault::UnknownPlan { account, known, found };
    let located = locate_plan_fault(&path, &fault.into()).unwrap().to_text();
    let expected = "keys.toml:9:8: account acme: expected one of the plans free, pro, but \
                    found \"gold\"\n  |\n9 | plan = \"gold\"\n  |        ^^^^^^ write one of them";
    assert!(located.contains(expected), "{located}");
    let [account, first, second] = ["acme", "pro", "gold"].map(str::to_owned);
    let fault = RingError::ConflictingPlans { account, first, second };
    let located = locate_plan_fault(&path, &fault).unwrap().to_string();
    assert!(located.contains("keys.toml:9:8: account acme: expected one plan"), "{located}");
    std::fs::write(&path, "# none any more\n").unwrap();
    assert_eq!(locate_plan_fault(&path, &fault), None);
}

#[test]
fn a_fault_shows_its_line_and_what_to_write_and_no_key() {
    let head = "[[key]]\nid = \"a\"\naccount = \"acme\"\n";
    let key = "rg_0123456789abcdefghijABCDEFGHIJ01";
    let shown = |text: String| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.toml");
        std::fs::write(&path, text).unwrap();
        read_key_file(&path, &|_| None).unwrap_err()[0].to_text()
    };
    let origins = format!("{head}env = \"A\"\norigins = [\"x\"]\n");
    for (text, excerpt) in [
        (format!("{head}expires = \"soon\"\nenv = \"A\"\n"), "5 | env = …\n  |       ^"),
        ("[[key]]\nid = \"a b\"\naccount = \"c\"\n".into(), "2 | id = \"a b\"\n  |      ^^^^^"),
        (format!("{head}hash = \"{key}\"\n"), "4 | hash = …\n  |        ^ write hash = \"sha"),
        (format!("{head}key = \"{key}\"\n"), "4 | key = …\n  | ^^^ write hash = \"sha256:…\""),
        (format!("{head}hash = \"{}  -\"\n", "a".repeat(64)), " ^ write \"sha256:aaaa"),
        (format!("{head}sha256 = \"{key}\"\n"), "^ write hash"),
        (
            format!(
                "{head}hash = \"sha256:{}\"\norigins = [\"https://a.test\", \"x\"]\n",
                "a".repeat(64)
            ),
            "5 | origins = [\"https://a.test\", \"x\"\n  |                              ^^^",
        ),
        ("[plans]\npro = 3\n".into(), "^ name a file of keys, in which each begins with"),
        ("[[keys]]\nid = \"a\"\n".into(), "1 | [[keys]]\n  | ^^^^^^^^ write [[key]]"),
        (format!("{head}origins = \"a\"\n"), "origins: expected a list such as [\"https"),
        (format!("{head}origins = \"https://a.test\"\n"), " ^ write [\"https://a.test\"]"),
        (format!("{head}revoked = true\n"), "write revoked = \"2027-01-01T00:00:00Z\", with"),
        (
            format!(
                "{head}hash = \"sha256:{}\"\norigins = [\"https://a.test/x\"]\n",
                "a".repeat(64)
            ),
            "^ write \"https://a.test\"",
        ),
        (format!("{head}limit = 5\n"), "^^^^^ a plan has the limit: write plan = \"pro\""),
        (format!("{head}enabled = true\n"), "^^^^^^^ remove this line"),
        (
            format!("{head}hash = \"sha256:{}\"\norigins = [\"*\"]\n", "a".repeat(64)),
            "^^^ leave origins out",
        ),
        ("{\"keys\": []}\n".into(), "1 | …\n  | ^ write a file of TOML: [[key]]"),
        ("keys:\n  - id: a\n".into(), "write a file of TOML: [[key]]"),
        ("[web-1]\naccount = \"a\"\n".into(), "1 | [web-1]\n  | ^^^^^^^ write [[key]]"),
        (
            format!("{head}env = \"A\"\nexpires = 2027-01-01\n"),
            " ^ write expires = \"2027-01-01T00:00:00Z\", between quotes",
        ),
        ("[key]\nid = \"a\"\n".into(), "1 | [key]\n  | ^^^^^ write [[key]]"),
        (format!("{head}{key} = 1\n"), "4 | …\n  | ^"),
        (origins, "4 | env = …"),
        (format!("{head}env = \"$ACME\"\n"), "^ write \"ACME\""),
        (format!("{head}env = \"${{ACME}}\"\n"), "^ write \"ACME\""),
    ] {
        let text = shown(text);
        assert!(text.contains(excerpt) && !text.contains(key), "{text}");
    }
}
