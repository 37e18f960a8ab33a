//! Operator overrides of a domain's verdict, by command and by file, while the gateway runs.

use std::process::Command;

use serde_json::{Value, json};

use super::admin_api::{AdminTokens, call_api};
use crate::harness::{BINARY, Gateway, Setup, run_command, wait_until};

/// The first line of a file of overrides.
const HEADER: &str =
    "domain,scope,reason,risk_score,is_free_provider,is_corporate_email,mx_provider_label";

fn get_verdict(gateway: &Gateway, key: &str, name: &str) -> (String, u64) {
    let body = gateway.get_domain(name, key).expect(200).json();
    (body["reason"].as_str().unwrap().to_owned(), body["risk_score"].as_u64().unwrap())
}

fn has_verdict(gateway: &Gateway, key: &str, name: &str, reason: &str, score: u64) -> bool {
    get_verdict(gateway, key, name) == (reason.to_owned(), score)
}

#[test]
fn table_allow_and_table_deny_change_verdicts_of_a_running_gateway() {
    let plain = Setup::new().set("plans.free", "\"unlimited\"");
    let compiled = Setup::new().set("plans.free", "\"unlimited\"");
    let file = compiled.path("table.riskgate");
    let (folder, output) = (compiled.lists().path, file.to_str().unwrap().to_owned());
    let build = ["table", "build", folder.to_str().unwrap(), "-o", &output];
    run_command(Command::new(BINARY).args(build)).expect(0);
    let compiled = compiled.set_text("table.path", &output);
    let bundled = Setup::with_bundled_table().set("plans.free", "\"unlimited\"");
    for (setup, listed) in
        [(plain, "first.test"), (compiled, "first.test"), (bundled, "yopmail.com")]
    {
        let gateway = setup.start();
        let key = gateway.create_active_key("acme", &[]);
        assert_eq!(get_verdict(&gateway, &key, listed).0, "disposable");
        gateway.cli(&["table", "allow", listed, "--note", "a partner"]).expect(0);
        wait_until("it is allowed", || has_verdict(&gateway, &key, listed, "safe", 0));
        let below = format!("www.{listed}");
        assert!(has_verdict(&gateway, &key, &below, "safe", 0));
        let source = gateway.get_domain(listed, &key);
        assert_eq!(source.header("X-Verdict-Source"), Some("list"));
        gateway.cli(&["table", "deny", "nobody-lists-this.com", "--exact"]).expect(0);
        wait_until("it is denied", || {
            has_verdict(&gateway, &key, "nobody-lists-this.com", "disposable", 100)
        });
        assert!(has_verdict(&gateway, &key, "www.nobody-lists-this.com", "safe", 10));
        let printed = gateway.cli(&["table", "lookup", "nobody-lists-this.com"]).expect(0).stdout;
        assert!(printed.contains("rule     override"), "{printed}");
        gateway.cli(&["table", "clear", listed]).expect(0);
        wait_until("it is flagged again", || get_verdict(&gateway, &key, listed).0 == "disposable");
        let none = gateway.cli(&["table", "clear", listed]).expect(1);
        assert!(none.stderr.contains("expected an override, but found none"), "{}", none.stderr);
    }
}

#[test]
fn a_row_of_the_operators_file_wins_and_is_never_written() {
    let setup = Setup::new().set("plans.free", "\"unlimited\"");
    let file = setup.path("overrides.csv");
    let none = setup.cli(&["table", "clear", "first.test"]).expect(1);
    assert!(none.stderr.contains("expected an override, but found none"), "{}", none.stderr);
    setup.cli(&["table", "deny", "*.example.com"]).expect(2);
    assert!(!setup.path("riskgate.db").exists(), "a command that fails makes no store");
    let text = format!("# Ours.\n{HEADER}\nours.com,subtree,disposable,100,,,\n");
    std::fs::write(&file, &text).unwrap();
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    assert!(has_verdict(&gateway, &key, "ours.com", "disposable", 100));
    for words in [&["clear", "ours.com"][..], &["allow", "ours.com"], &["deny", "ours.com"]] {
        let refused = gateway.cli(&[&["table"], words].concat()).expect(1).stderr;
        assert!(refused.contains(&format!("{}:3: this file", file.display())), "{refused}");
    }
    gateway.cli(&["table", "deny", "other.com"]).expect(0);
    wait_until("it is denied", || has_verdict(&gateway, &key, "other.com", "disposable", 100));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    std::fs::write(&file, format!("{HEADER}\n")).unwrap();
    wait_until("the file is read", || has_verdict(&gateway, &key, "ours.com", "safe", 10));
    gateway.cli(&["table", "allow", "www.ours.com"]).expect(0);
    wait_until("the store decides", || has_verdict(&gateway, &key, "www.ours.com", "safe", 0));
    std::fs::write(&file, &text).unwrap();
    let is_denied = || has_verdict(&gateway, &key, "www.ours.com", "disposable", 100);
    wait_until("the file decides again", is_denied);
}

#[test]
fn an_override_of_a_name_that_the_file_decides_is_refused_with_the_line() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let file = setup.path("overrides.csv");
    let text = format!(
        "{HEADER},note,until\nparent.com,subtree,safe,0,,,,,\nexact.com,exact,safe,0,,,,,\n\
         ended.com,subtree,safe,0,,,,,2020-01-01\nflag.com,exact,,,true,,,,\n"
    );
    std::fs::write(&file, text).unwrap();
    let gateway = setup.start();
    let cases: [(&str, bool, u32); 9] = [
        ("parent.com", false, 2),
        ("parent.com", true, 2),
        ("www.parent.com", false, 2),
        ("a.b.parent.com", true, 2),
        ("exact.com", true, 3),
        ("exact.com", false, 3),
        ("flag.com", true, 5),
        ("www.exact.com", false, 0),
        ("ended.com", false, 0),
    ];
    for (name, is_exact, line) in cases {
        let mut words = vec!["table", "deny", name];
        words.extend(is_exact.then_some("--exact"));
        let body = json!({ "action": "deny", "exact": is_exact });
        let path = format!("/overrides/{name}");
        if line == 0 {
            gateway.cli(&words).expect(0);
            call_api(&gateway, "PUT", &path, &tokens.write, &body).expect(200);
            gateway.cli(&["table", "clear", name]).expect(0);
            continue;
        }
        let place = format!("{}:{line}: this file of table.overrides", file.display());
        let refused = gateway.cli(&words).expect(1).stderr;
        assert!(refused.contains(&place) && refused.contains(name), "{refused}");
        let refused = call_api(&gateway, "PUT", &path, &tokens.write, &body).expect(409).text();
        assert!(refused.contains(&place), "{refused}");
    }
    let listed = call_api(&gateway, "GET", "/overrides", &tokens.read, &Value::Null).json();
    assert_eq!(listed["total"], 4, "nothing was stored: {listed}");
}

#[test]
fn a_listed_override_can_be_sent_back_and_a_faulty_member_is_named() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let gateway = setup.start();
    let put = |body: &Value| call_api(&gateway, "PUT", "/overrides/a.com", &tokens.write, body);
    put(&json!({ "action": "allow", "until": null, "note": null })).expect(200);
    for (body, expected) in [
        (json!({ "action": "allow", "note": 1 }), "note: invalid type: integer `1`"),
        (json!({ "exact": "yes", "action": "deny" }), "exact: invalid type: string"),
        (json!({ "action": "block" }), "action: unknown variant `block`"),
        (json!({ "action": "deny", "days": 1 }), "unknown field `days`"),
    ] {
        let refused = put(&body).expect(422).json();
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.starts_with(expected), "{detail}");
    }
}

#[test]
fn table_deny_needs_force_for_a_protected_name() {
    let gateway = Setup::with_bundled_table().set("plans.free", "\"unlimited\"").start();
    let key = gateway.create_active_key("acme", &[]);
    let refused = gateway.cli(&["table", "deny", "gmail.com"]).expect(1);
    let expected = "the lists protect gmail.com; to deny it all the same, write --force";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    let refused = gateway.cli(&["table", "deny", "co.uk"]).expect(1);
    let below = " names below it, such as ";
    assert!(refused.stderr.contains("co.uk: the lists protect "), "{}", refused.stderr);
    assert!(refused.stderr.contains(below), "{}", refused.stderr);
    gateway.cli(&["table", "allow", "gmail.com"]).expect(0);
    gateway.cli(&["table", "allow", "gmail.com", "--force"]).expect(2);
    gateway.cli(&["table", "deny", "gmail.com"]).expect(1);
    gateway.cli(&["table", "clear", "gmail.com"]).expect(0);
    gateway.cli(&["table", "deny", "gmail.com", "--force"]).expect(0);
    wait_until("it is denied", || has_verdict(&gateway, &key, "gmail.com", "disposable", 100));
    gateway.cli(&["table", "clear", "gmail.com"]).expect(0);
    wait_until("it is free again", || has_verdict(&gateway, &key, "gmail.com", "safe", 0));
}

#[test]
fn a_broken_overrides_file_is_reported_and_the_last_good_table_serves() {
    let gateway = Setup::new().set("plans.free", "\"unlimited\"").start();
    let key = gateway.create_active_key("acme", &[]);
    let path = gateway.path("overrides.csv");
    let sound = format!("{HEADER}\ngood.com,subtree,disposable,100,,,\n");
    std::fs::write(&path, &sound).unwrap();
    wait_until("it is denied", || has_verdict(&gateway, &key, "good.com", "disposable", 100));
    std::fs::write(&path, sound.clone() + "bad.com,everywhere,safe,0,,,\n").unwrap();
    let reported = || gateway.readyz().text().contains("overrides.csv:3: scope: expected exact or");
    wait_until("riskgate reports it", reported);
    assert!(has_verdict(&gateway, &key, "good.com", "disposable", 100));
    std::fs::write(&path, sound).unwrap();
    wait_until("it is well again", || !reported());
    let refused = gateway.cli(&["table", "deny", "bad.com", "--until", "tomorrow"]).expect(2);
    assert!(refused.stderr.contains("expected today or a later day"), "{}", refused.stderr);
    gateway.cli(&["table", "deny", "bad.com", "--until", "2020-01-01"]).expect(2);
}

#[test]
fn override_commands_print_the_rows_they_replace_and_accept_a_suffix() {
    let setup = Setup::new();
    setup.cli(&["table", "deny", "bad.example.com"]).expect(0);
    let exact = setup.cli(&["table", "allow", "bad.example.com", "--exact"]).expect(0);
    assert!(!exact.stdout.contains("instead of"), "{}", exact.stdout);
    let score = |name: &str| {
        let printed = setup.cli(&["table", "lookup", "--json", name]).expect(0).json();
        printed[0]["answer"]["risk_score"].as_u64().unwrap()
    };
    assert_eq!((score("bad.example.com"), score("www.bad.example.com")), (0, 100));
    let again = setup.cli(&["table", "deny", "bad.example.com"]).expect(0).stdout;
    assert!(again.contains("instead of bad.example.com,exact,safe,0,,,,,\n"), "{again}");
    let cleared = setup.cli(&["table", "clear", "bad.example.com"]).expect(0).stdout;
    assert!(cleared.contains("removed bad.example.com,subtree,disposable,100,"), "{cleared}");
    setup.cli(&["table", "deny", "zip"]).expect(0);
    assert_eq!(score("anybody-at-all.zip"), 100);
    let refused = setup.cli(&["table", "deny", "com"]).expect(1);
    let expected = "com: the lists protect 2 names below it, such as gmail.com; to deny";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
}

#[test]
fn table_deny_of_several_domains_sets_all_or_none() {
    let setup = Setup::with_bundled_table();
    let deny = |domains: &[&str]| setup.cli(&[&["table", "deny"], domains].concat());
    let refused = deny(&["bad.example.com", "gmail.com", "worse.example.com"]).expect(1).stderr;
    assert!(refused.contains("gmail.com: the lists protect gmail.com"), "{refused}");
    deny(&["bad.example.com", "no domain"]).expect(2);
    let records = || -> Vec<String> {
        let printed = setup.cli(&["audit", "--json"]).expect(0).stdout;
        let records = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let overrides = records.filter(|it| it["operation"] == "override.set");
        overrides.map(|it| it["target"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(records(), [""; 0]);
    let done = deny(&["bad.example.com", "BAD.example.com.", "worse.example.com"]).expect(0).stdout;
    assert_eq!(done, "bad.example.com is denied\nworse.example.com is denied\n");
    assert_eq!(records().len(), 2);
    let allowed = ["table", "allow", "worse.example.com", "third.example.com", "--json"];
    let allowed = setup.cli(&allowed).expect(0).stdout;
    let objects = allowed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let objects: Vec<Value> = objects.collect();
    assert_eq!(objects[0]["domain"], "worse.example.com");
    assert_eq!(objects[0]["replaced"].as_array().unwrap().len(), 1);
    assert_eq!((&objects[1]["action"], objects.len()), (&json!("allowed"), 2));
}

#[test]
fn table_lookup_shows_table_unknown_score_for_an_unlisted_name() {
    let setup = Setup::new().set("table.unknown_score", "44");
    let printed = setup.cli(&["table", "lookup", "nobody-lists-this.com"]).expect(0).stdout;
    assert!(printed.contains("\"risk_score\":44"), "{printed}");
}

#[test]
fn the_empty_rows_and_blanks_that_a_spreadsheet_leaves_are_skipped() {
    let setup = Setup::new();
    let file = setup.path("ov.csv");
    let rows = "a-partner.com , exact,safe, 0 ,,, \"A, B\" \n,,,,,,\n , ,\"\",,,,\n";
    std::fs::write(&file, format!("{HEADER}\n{rows}")).unwrap();
    let setup = setup.set_text("table.overrides", file.to_str().unwrap());
    setup.cli(&["check"]).expect(0);
    let shown = setup.cli(&["table", "lookup", "--json", "a-partner.com"]).expect(0).json();
    let answer = &shown[0]["answer"];
    assert_eq!((&answer["reason"], &answer["risk_score"]), (&"safe".into(), &0.into()));
    assert_eq!(answer["mx_provider_label"], "A, B");
}
