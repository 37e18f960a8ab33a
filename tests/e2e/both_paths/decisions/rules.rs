//! Rules on the routes of the operator, and for proxies that ask.

use super::{RULES, form, post, sign_up_route, start_counting};
use crate::harness::{
    Gateway, MockUpstream, ReceivedRequest, Request, Setup, Step, request, response_bytes,
    wait_until,
};

fn start(upstream: &MockUpstream, mode: &str, more: &str) -> Gateway {
    let setup = Setup::with_bundled_table().with_upstreams(&[upstream.address]);
    let log = setup.path("access.log").display().to_string();
    let fields = r#"["status", "screening", "inbox"]"#;
    let toml = format!("{}{RULES}", sign_up_route(mode, more));
    start_counting(setup.set_text("log.path", &log).set("log.fields", fields).append_toml(&toml))
}

fn seen_fields(upstream: &MockUpstream) -> (String, String, String) {
    let seen = upstream.last_request();
    let field = |name: &str| seen.header_values(name).concat();
    (field("X-Riskgate-Action"), field("X-Riskgate-Rule"), field("X-Riskgate-Inbox"))
}

#[test]
fn tags_of_one_inbox_are_reviewed_and_then_blocked() {
    let upstream = MockUpstream::with_script(accept_with(303, "Location: /welcome\r\n"));
    let gateway = start(&upstream, "block", "");
    post(&gateway, "jane.doe@gmail.com").expect(303);
    let (action, rule, inbox) = seen_fields(&upstream);
    assert_eq!((action.as_str(), rule.as_str(), inbox.len()), ("pass", "", 32));
    for email in ["janedoe+a@gmail.com", "JaneDoe+b@googlemail.com"] {
        post(&gateway, email).expect(303);
        let expected = ("review".into(), "second account of an inbox".into(), inbox.clone());
        assert_eq!(seen_fields(&upstream), expected, "{email}");
    }
    let refused = post(&gateway, "j.a.n.e.doe+c@gmail.com").expect(422);
    let body =
        r#"{"error":"email_refused","message":"This inbox has accounts already.","detail":"rule"}"#;
    assert_eq!(refused.text(), body);
    // The same address again never counts against itself, and neither do others.
    post(&gateway, "bob@gmail.com").expect(303);
    assert_eq!(seen_fields(&upstream).0, "pass");
    wait_until("all requests are logged", || {
        gateway.access_log_length() > 0 && gateway.read_access_log().len() == 5
    });
    let line = gateway.read_access_log().pop().unwrap();
    assert_eq!(line["screening"]["action"], "pass");
    assert_eq!(line["inbox"].as_str().unwrap().len(), 32);
    let labels = ["rule=\"many accounts of one inbox\"", "route=\"/signup\"", "action=\"block\""];
    assert_eq!(gateway.sum_of_samples("riskgate_rule_decisions_total", &labels), 1.0);
}

#[test]
fn the_same_address_again_never_counts_against_itself() {
    let upstream = MockUpstream::with_script(accept_with(201, ""));
    let gateway = start(&upstream, "block", "");
    for _ in 0..6 {
        post(&gateway, "jane+x@gmail.com").expect(201);
        assert_eq!(seen_fields(&upstream).0, "pass");
    }
}

/// A form with these addresses, each in a field of its own.
fn form_of(emails: &[&str]) -> Request {
    let fields = emails.iter().map(|email| format!("email={}", email.replace('+', "%2B")));
    let body = fields.collect::<Vec<_>>().join("&");
    let form = "application/x-www-form-urlencoded";
    request("POST", "/signup").with_header("Content-Type", form).body(&body)
}

#[test]
fn one_form_raises_the_counts_of_a_victim_by_one_at_most() {
    let upstream = MockUpstream::with_script(accept_with(201, ""));
    let gateway = start(&upstream, "block", "");
    let tags: Vec<String> = (0..6).map(|tag| format!("victim+{tag}@gmail.com")).collect();
    let mut emails = vec!["attacker@proton.me"];
    emails.extend(tags.iter().map(String::as_str));
    gateway.send_request(&form_of(&emails)).expect(201);
    // The server may use any of the addresses, so no inbox is named.
    assert_eq!(seen_fields(&upstream).2, "");
    post(&gateway, "victim@gmail.com").expect(201);
    assert_eq!(seen_fields(&upstream).0, "review");
}

/// A form of an attacker with the addresses of many strangers, and their own addresses later.
#[test]
fn a_form_with_addresses_of_many_inboxes_counts_nothing_and_is_no_pass() {
    let upstream = MockUpstream::with_script(accept_with(201, ""));
    let gateway = start(&upstream, "annotate", "");
    let victims =
        |tag: &str| (0..5).map(|n| format!("victim{n}{tag}@gmail.com")).collect::<Vec<_>>();
    let texts = |all: &[String]| form_of(&all.iter().map(String::as_str).collect::<Vec<_>>());
    for tag in ["+0", "+1", "+2", "+3"] {
        gateway.send_request(&texts(&victims(tag))).expect(201);
        assert_eq!(seen_fields(&upstream), ("unscreened".into(), String::new(), String::new()));
        assert_eq!(upstream.last_request().header_values("X-Riskgate-Reason"), ["many_inboxes"]);
    }
    for victim in victims("") {
        post(&gateway, &victim).expect(201);
        assert_eq!(seen_fields(&upstream).0, "pass", "{victim}");
    }
    // A form with an address to be refused is refused, however many addresses it has.
    let with_bad = [&victims("+4")[..], &["x@yopmail.com".to_owned()]].concat();
    gateway.send_request(&texts(&with_bad)).expect(201);
    assert_eq!(seen_fields(&upstream).0, "would_block");
    // The addresses of four people make a sign-up, and so do several addresses of these.
    let four = ["a+1@gmail.com", "a+2@gmail.com", "b@gmail.com", "c@gmail.com", "d@gmail.com"];
    gateway.send_request(&form_of(&four)).expect(201);
    assert_eq!(seen_fields(&upstream).0, "pass");
    post(&gateway, "c+1@gmail.com").expect(201);
    assert_eq!(seen_fields(&upstream).0, "review");
}

#[test]
fn forms_with_many_inboxes_pass_where_no_form_counts_and_are_refused_where_rules_count() {
    let upstream = MockUpstream::with_script(accept_with(201, ""));
    let invited: Vec<String> = (0..9).map(|n| format!("colleague{n}@quelbrandt.com")).collect();
    let invited: Vec<&str> = invited.iter().map(String::as_str).collect();
    let gateway = start(&upstream, "block", "count = false\nunscreened = \"block\"");
    gateway.send_request(&form_of(&invited)).expect(201);
    assert_eq!(seen_fields(&upstream).0, "pass");
    // A rule asks for counts, which such a form would avoid.
    let gateway = start(&upstream, "block", "");
    let refused = gateway.send_request(&form_of(&invited)).expect(422).json();
    assert_eq!(
        (&refused["error"], &refused["message"], &refused["detail"]),
        (
            &"form_unreadable".into(),
            &"This form has too many e-mail addresses.".into(),
            &"many_inboxes".into()
        )
    );
}

/// Such a form avoids no rule, so nobody is locked out for it.
#[test]
fn a_rule_on_counts_of_another_route_refuses_no_form_with_many_inboxes() {
    for rule in [
        "if = [\"inbox_accounts_30d >= 3\"]\nthen = \"block\"\nroutes = [\"assess\"]",
        "if = [\"is_alias == true\"]\nthen = \"block\"",
    ] {
        let upstream = MockUpstream::with_script(accept_with(201, ""));
        let setup = Setup::with_bundled_table().with_upstreams(&[upstream.address]);
        let toml = format!("{}\n[[rule]]\nname = \"a rule\"\n{rule}", sign_up_route("block", ""));
        let gateway = start_counting(setup.append_toml(&toml));
        let invited: Vec<String> = (0..5).map(|n| format!("c{n}@quelbrandt.com")).collect();
        let invited: Vec<&str> = invited.iter().map(String::as_str).collect();
        gateway.send_request(&form_of(&invited)).expect(201);
        assert_eq!(seen_fields(&upstream).0, "unscreened", "{rule}");
    }
}

/// PHP's `FILTER_SANITIZE_EMAIL` leaves an address of one inbox of each.
#[test]
fn characters_that_servers_remove_make_no_new_inbox() {
    let upstream = MockUpstream::with_script(accept_with(201, ""));
    let gateway = start(&upstream, "annotate", "");
    for (email, action) in [
        ("mallory@gmail.com", "pass"),
        ("m/allory+0@gmail.com", "review"),
        ("mall\u{e9}ory+5@gmail.com", "review"),
        ("mallory+7@gmail\u{e9}.com", "would_block"),
        ("\"mallory+a b\"@gmail.com", "would_block"),
        ("\"mall ory+a\"@gmail.com", "would_block"),
    ] {
        post(&gateway, email).expect(201);
        let (found, _, inbox) = seen_fields(&upstream);
        assert_eq!(found, action, "{email}");
        // A refused address names its own inbox.
        let has_one =
            matches!(email.as_bytes(), [b'm', b'a', b'l', b'l', b'o', b'r', b'y', b'@', ..])
                || email.contains("a b");
        assert_eq!(inbox.len(), if has_one { 32 } else { 0 }, "{email}");
    }
    // Where no rule folds tags, such an address has the id of its own inbox, as ever.
    post(&gateway, "jos\u{e9}@quelbrandt.com").expect(201);
    assert_eq!(seen_fields(&upstream).2.len(), 32);
    // A role is a role.
    post(&gateway, "in/fo@quelbrandt.com").expect(201);
    assert_eq!(upstream.last_request().header_values("X-Riskgate-Reason"), ["role_account"]);
}

#[test]
fn a_decoy_in_the_form_hides_no_sign_up() {
    let upstream = MockUpstream::with_script(accept_with(201, ""));
    let gateway = start(&upstream, "annotate", "");
    for number in 0..3 {
        let real = format!("person{number}@quelbrandt.com");
        gateway.send_request(&form_of(&["decoy@quelbrandt.com", &real])).expect(201);
    }
    post(&gateway, "person9@quelbrandt.com").expect(201);
    assert_eq!(seen_fields(&upstream).0, "review");
}

#[test]
fn domains_of_a_providers_inboxes_have_no_count() {
    let upstream = MockUpstream::with_script(accept_with(201, ""));
    let setup = Setup::with_bundled_table().with_upstreams(&[upstream.address]);
    let rule =
        "[[rule]]\nname = \"domain\"\nif = [\"domain_accounts_1h >= 1\"]\nthen = \"review\"\n";
    let toml = format!("{}{rule}", sign_up_route("annotate", ""));
    let gateway = start_counting(setup.append_toml(&toml));
    for (domain, last) in
        [("runbox.li", "pass"), ("gmail.com", "pass"), ("quelbrandt.com", "review")]
    {
        for number in 0..4 {
            post(&gateway, &format!("person{number}@{domain}")).expect(201);
        }
        assert_eq!(seen_fields(&upstream).0, last, "{domain}");
    }
}

#[test]
fn a_sign_up_counts_only_if_the_server_accepts_it() {
    for (settings, status, fields, counts) in [
        ("", 303, "Location: /welcome\r\n", true),
        ("", 201, "Content-Type: application/json\r\n", true),
        ("", 204, "", true),
        ("", 200, "Content-Type: text/html; charset=utf-8\r\n", false),
        ("", 200, "Content-Type: TEXT/HTML\r\n", false),
        ("", 422, "", false),
        ("", 409, "", false),
        ("", 500, "", false),
        ("success = [200]", 200, "Content-Type: text/html\r\n", true),
        ("success = [200]", 303, "Location: /\r\n", false),
        ("count = false", 303, "Location: /\r\n", false),
    ] {
        let upstream = MockUpstream::with_script(accept_with(status, fields));
        let gateway = start(&upstream, "annotate", settings);
        post(&gateway, "jane@gmail.com").expect(status);
        post(&gateway, "jane+a@gmail.com").expect(status);
        let expected = if counts { "review" } else { "pass" };
        assert_eq!(seen_fields(&upstream).0, expected, "{settings} {status} {fields}");
    }
}

#[test]
fn many_inboxes_of_an_unknown_domain_are_reviewed_but_a_providers_are_not() {
    let upstream = MockUpstream::with_script(accept_with(201, ""));
    let gateway = start(&upstream, "annotate", "");
    for (domain, last) in [("quelbrandt.com", "review"), ("gmail.com", "pass")] {
        for number in 0..3 {
            post(&gateway, &format!("person{number}@{domain}")).expect(201);
            assert_eq!(seen_fields(&upstream).0, "pass", "{domain} {number}");
        }
        post(&gateway, &format!("person9@{domain}")).expect(201);
        assert_eq!(seen_fields(&upstream).0, last, "{domain}");
    }
}

#[test]
fn modes_say_who_learns_of_a_rule() {
    let upstream = MockUpstream::with_script(accept_with(201, ""));
    for (mode, action) in [("shadow", ""), ("annotate", "would_block")] {
        let gateway = start(&upstream, mode, "");
        for tag in ["a", "b", "c", "d"] {
            post(&gateway, &format!("jane+{tag}@gmail.com")).expect(201);
        }
        assert_eq!(seen_fields(&upstream).0, action, "{mode}");
        assert_eq!(seen_fields(&upstream).2.is_empty(), mode == "shadow");
        let labels = ["action=\"would_block\""];
        assert_eq!(gateway.sum_of_samples("riskgate_rule_decisions_total", &labels), 1.0);
    }
}

#[test]
fn a_rule_that_passes_overrules_the_score_and_clients_cannot_send_the_fields() {
    let upstream = MockUpstream::with_script(accept_with(201, ""));
    let partner =
        "[[rule]]\nname = \"partner\"\nif = [\"domain == yopmail.com\"]\nthen = \"pass\"\n";
    let setup = Setup::with_bundled_table().with_upstreams(&[upstream.address]);
    let toml = format!("{}{partner}", sign_up_route("block", ""));
    let gateway = start_counting(setup.append_toml(&toml));
    let mut forged = form("jane@yopmail.com");
    for name in ["X-Riskgate-Rule", "X-Riskgate-Inbox", "x_riskgate_inbox", "X-Riskgate-Action"] {
        forged = forged.with_header(name, "forged");
    }
    gateway.send_request(&forged).expect(201);
    let (action, rule, inbox) = seen_fields(&upstream);
    assert_eq!((action.as_str(), rule.as_str(), inbox.len()), ("pass", "partner", 32));
    assert_eq!(upstream.last_request().header_values("x_riskgate_inbox"), Vec::<&str>::new());
}

#[test]
fn without_rules_and_an_inbox_section_no_id_is_made() {
    let upstream = MockUpstream::with_script(accept_with(201, ""));
    let setup = Setup::with_bundled_table().with_upstreams(&[upstream.address]);
    let gateway = setup.append_toml(&sign_up_route("block", "")).start();
    post(&gateway, "jane@gmail.com").expect(201);
    assert_eq!(seen_fields(&upstream), ("pass".into(), String::new(), String::new()));
}

#[test]
fn a_proxy_that_asks_gets_the_decision() {
    let authz = "[authz]\npath = \"/authz\"\ncheck = [\"screen\"]\nemail = \"query:email\"\n\
                 mode = \"block\"\n";
    let gateway =
        start_counting(Setup::with_bundled_table().append_toml(&format!("{authz}{RULES}")));
    let ask = |email: &str| {
        let target = format!("/authz?email={}", email.replace('+', "%2B"));
        gateway.send_request(&request("GET", &target))
    };
    for (email, status, action) in [
        ("jane@gmail.com", 200, "pass"),
        ("jane+a@gmail.com", 200, "review"),
        ("jane+b@gmail.com", 200, "review"),
        ("jane+c@gmail.com", 403, "block"),
    ] {
        let answer = ask(email).expect(status);
        assert_eq!(answer.header("X-Riskgate-Action"), Some(action), "{email}");
        // Many proxies show a refusal to the client.
        let is_admitted = status == 200;
        assert_eq!(answer.header("X-Riskgate-Inbox").map(str::len), is_admitted.then_some(32));
        assert_eq!(answer.header("X-Riskgate-Rule").is_some(), action == "review", "{email}");
    }
}

#[test]
fn a_question_about_a_page_is_judged_and_counts_nothing() {
    let authz = "[authz]\npath = \"/authz\"\ncheck = [\"screen\"]\nemail = \"query:email\"\n\
                 mode = \"block\"\n";
    let gateway =
        start_counting(Setup::with_bundled_table().append_toml(&format!("{authz}{RULES}")));
    let ask = |method: &str, email: &str| {
        let asked = request("GET", "/authz").with_header("X-Original-Method", method);
        let target = format!("/signup?email={}", email.replace('+', "%2B"));
        let answer = gateway.send_request(&asked.with_header("X-Original-URI", &target));
        (answer.status, answer.header_values("X-Riskgate-Action").concat())
    };
    for tag in 0..4 {
        for method in ["GET", "HEAD"] {
            let judged = ask(method, &format!("bob+{tag}@gmail.com"));
            assert_eq!(judged, (200, "pass".into()), "{method} {tag}");
        }
    }
    assert_eq!(ask("GET", "x@yopmail.com"), (403, "block".into()));
    assert_eq!(ask("POST", "bob@gmail.com").0, 200);
    assert_eq!(ask("GET", "bob+4@gmail.com"), (200, "review".into()));
}

/// A server that answers every request with this status and these fields.
fn accept_with(
    status: u16,
    fields: &'static str,
) -> impl Fn(&ReceivedRequest) -> Vec<Step> + Send + Sync + 'static {
    move |_| vec![Step::Send(response_bytes(status, fields, ""))]
}
