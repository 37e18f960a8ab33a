//! `riskgate decide -`.

use serde_json::{Value, json};

use crate::both_paths::decisions::{RULES, start_counting};
use crate::both_paths::routes::dns::{setup_with_dns_learning, zone_records};
use crate::harness::{DnsServer, Gateway, Setup, request, wait_for, wait_until};

/// What `/v1/assess` and the command say in common: action, rule, inbox and facts, without the
/// counts of sign-ups.
fn without_counts(mut answer: Value) -> Value {
    let mut facts = answer["facts"].take();
    facts.as_object_mut().unwrap().retain(|name, _| !name.contains("_accounts_"));
    json!([answer["action"], answer["rule"], answer["email"], facts])
}

fn assess(gateway: &Gateway, key: &str, email: &str) -> Value {
    let body = json!({ "email": email }).to_string();
    let answer = gateway.send_request(&request("POST", "/v1/assess").body(&body).key(key));
    answer.expect(200).json()
}

fn decide(gateway: &Gateway, email: &str) -> Value {
    gateway.cli_with_input(&["decide", "-", "--json"], email.as_bytes()).expect(0).json()
}

#[test]
fn it_decides_as_the_gateway_does_with_its_overrides_and_its_score_of_unknown_names() {
    let rules = "[[rule]]\nname = \"a name of a list\"\nif = [\"verdict_source == list\"]\n\
                 then = \"review\"\n";
    let setup = Setup::with_bundled_table().set("table.unknown_score", "37");
    let setup = setup.set("plans.free", "\"unlimited\"").append_toml(rules);
    let gateway = start_counting(setup);
    let key = gateway.create_active_key("acme", &[]);
    gateway.cli(&["table", "deny", "brandt-strasse.com"]).expect(0);
    gateway.cli(&["table", "deny", "quelbrandt.com"]).expect(0);
    gateway.cli(&["table", "allow", "yopmail.com"]).expect(0);
    wait_until("the overrides count", || {
        assess(&gateway, &key, "jane@quelbrandt.com")["risk_score"] == 100
            && assess(&gateway, &key, "jane@yopmail.com")["risk_score"] == 0
    });
    for (email, action, score) in [
        ("jane@quelbrandt.com", "block", 100),
        ("jane@yopmail.com", "review", 0),
        ("jane@other-brandt.com", "pass", 37),
        ("info@other-brandt.com", "pass", 70),
        ("Jane.Doe+x@gmail.com", "review", 0),
        // Older software reads the domain that is denied.
        ("jane@brandt-straße.com", "block", 100),
        // Some software removes the letters beyond ASCII.
        ("jane@quelébrandt.com", "block", 100),
    ] {
        let shown = decide(&gateway, email);
        assert_eq!(
            (&shown["action"], &shown["facts"]["risk_score"]),
            (&json!(action), &json!(score))
        );
        assert_eq!(without_counts(shown), without_counts(assess(&gateway, &key, email)), "{email}");
    }
}

#[test]
fn it_decides_by_what_riskgate_has_learned_from_the_dns() {
    let server = DnsServer::start(&zone_records());
    let rule = "[[rule]]\nname = \"known by the DNS\"\nif = [\"verdict_source == dns\"]\n\
                then = \"review\"\n";
    let setup = setup_with_dns_learning(server.address).set("dns.rate", "1000");
    let gateway = start_counting(setup.append_toml(rule));
    let key = gateway.create_active_key("acme", &[]);
    for (email, action) in [("jane@burner.com", "block"), ("jane@pro.com", "review")] {
        let answer = wait_for("the domain is known", || {
            let answer = assess(&gateway, &key, email);
            (answer["facts"]["verdict_source"] == "dns").then_some(answer)
        });
        // The thread that writes what was learned runs behind the answers.
        let shown = wait_for("the store knows it", || {
            let shown = decide(&gateway, email);
            (shown["facts"]["verdict_source"] == "dns").then_some(shown)
        });
        assert_eq!(shown["action"], action, "{email}");
        assert_eq!(without_counts(shown), without_counts(answer), "{email}");
    }
}

#[test]
fn it_shows_the_facts_and_the_rules_up_to_the_one_that_decides() {
    let setup = Setup::with_bundled_table().append_toml(RULES);
    let shown = |arguments: &[&str]| {
        let all = [&["decide", "-"], arguments].concat();
        setup.cli_with_input(&all, b" Jane.Doe+x@gmail.com\r\n").expect(0).stdout
    };
    let unknown = shown(&[]);
    assert!(
        unknown.starts_with("address  Ja****+x@gmail.com\ninbox    ja****oe@gmail.com\n"),
        "{unknown}"
    );
    for line in [
        "fact     inbox_accounts_30d = no value",
        "rule     \"many accounts of one inbox\": no, because inbox_accounts_30d has no value",
        "rule     \"second account of an inbox\": no, because inbox_accounts_30d has no value",
        "rule     \"new domain\": no, because domain_accounts_1h has no value",
        "action   pass, by the score 0",
    ] {
        assert!(unknown.lines().any(|found| found == line), "{line}: {unknown}");
    }
    let reviewed = shown(&["--fact", "inbox_accounts_30d=2"]);
    for line in [
        "fact     inbox_accounts_30d = 2",
        "rule     \"many accounts of one inbox\": no, because not inbox_accounts_30d >= 3",
        "rule     \"second account of an inbox\": holds: review",
        "action   review, by the rule \"second account of an inbox\"",
    ] {
        assert!(reviewed.lines().any(|found| found == line), "{line}: {reviewed}");
    }
    assert!(!reviewed.contains("new domain"), "{reviewed}");
}

#[test]
fn it_supposes_no_count_that_no_gateway_has() {
    let setup = Setup::with_bundled_table().append_toml(RULES);
    let ask = |email: &str, count: &str| {
        let arguments = ["decide", "-", "--json", "--fact", count];
        let output = setup.cli_with_input(&arguments, email.as_bytes()).expect(0);
        (output.json()["facts"]["domain_accounts_1h"].clone(), output.stderr)
    };
    assert_eq!(ask("jane@quelbrandt.com", "domain_accounts_1h=12").0, 12);
    // A free provider, and one whose inboxes are on another domain.
    for email in ["jane@gmail.com", "jane@runbox.li"] {
        let (count, told) = ask(email, "domain_accounts_1h=12");
        assert_eq!(count, Value::Null, "{email}");
        assert!(told.contains("domain_accounts_1h has no value, because"), "{email}: {told}");
    }
}

#[test]
fn it_reads_an_address_without_the_characters_that_some_software_removes() {
    let setup = Setup::with_bundled_table().append_toml(RULES);
    for (email, inbox) in [
        ("m/allory+0@gmail.com", Value::Null),
        ("mall\u{e9}ory+0@gmail.com", Value::Null),
        ("\"janedoe+a b\"@gmail.com", json!("ja****oe@gmail.com")),
        ("jos\u{e9}@quelbrandt.com", json!("j****@quelbrandt.com")),
    ] {
        let shown = setup.cli_with_input(&["decide", "-", "--json"], email.as_bytes()).expect(0);
        assert_eq!(shown.json()["inbox"], inbox, "{email}");
    }
}

#[test]
fn a_wrong_use_says_what_was_expected() {
    let screened = "[[upstream.route]]\nprefix = \"/signup\"\nmethods = [\"POST\"]\nkey = false\n\
                    [upstream.route.screen]\nfields = [\"email\"]\n\
                    [[upstream.route]]\nprefix = \"/api\"\nmethods = [\"GET\"]\nkey = false\n";
    let plain = Setup::new().append_toml(screened);
    let authz = Setup::new().append_toml(screened).set_text("authz.path", "/authz");
    let authz = authz.set_text("authz.email", "header:X-Email");
    let wrong: [(&Setup, &[&str], &[u8], &str); 10] = [
        (
            &plain,
            &["--route", "/api"],
            b"a@b.test",
            "that decides: /signup, assess, but found /api",
        ),
        (
            &plain,
            &["--route", "authz"],
            b"a@b.test",
            "that decides: /signup, assess, but found authz",
        ),
        (
            &authz,
            &["--route", "/"],
            b"a@b.test",
            "that decides: /signup, authz, assess, but found /",
        ),
        (
            &plain,
            &[],
            b"jane@ex\xffample.com",
            "standard input: expected an address, but found no UTF-8 in line 1",
        ),
        (
            &plain,
            &[],
            b"\n\njane\xe9@example.com\n",
            "standard input: expected an address, but found no UTF-8 in line 3",
        ),
        (&plain, &[], &[b'a'; 5000], "an address, but found more than 4096 bytes"),
        (&plain, &["--fact", "inbox_accounts_30d=4000000000"], b"a@b.test", "of 0 to 1000"),
        (
            &plain,
            &["--fact", "domain_accounts_1h=5", "--fact", "domain_accounts_1d=2"],
            b"a@b.test",
            "can be true together, but found domain_accounts_1d == 2 behind another",
        ),
        (
            &plain,
            &["--fact", "inbox_accounts_30d=5", "--fact", "inbox_accounts_30d=2"],
            b"a@b.test",
            "but found inbox_accounts_30d == 2 behind another",
        ),
        (&plain, &["--fact", "risk_score=4"], b"a@b.test", "inbox_accounts_30d, "),
    ];
    for (setup, arguments, input, expected) in wrong {
        let all = [&["decide", "-"], arguments].concat();
        let stderr = setup.cli_with_input(&all, input).expect(2).stderr;
        assert!(stderr.contains(expected), "{expected}: {stderr}");
    }
    for route in ["/signup", "authz", "assess"] {
        authz.cli_with_input(&["decide", "-", "--route", route], b"a@b.test").expect(0);
    }
}
