//! Screening of posted forms: what the upstream server gets, what the client gets, what is counted
//! and logged.

use std::process::Command;

use serde_json::Value;

use crate::harness::{
    Gateway, MockUpstream, ReceivedRequest, Request, Setup, Step, request, response_bytes,
    run_command, wait_until,
};

const FORM: &str = "application/x-www-form-urlencoded";

fn screened_route(rules: &str) -> String {
    format!(
        "[[upstream.route]]\nprefix = \"/signup\"\nmethods = [\"GET\", \"POST\", \"PUT\"]\nkey = false\n\
         [upstream.route.screen]\nfields = [\"email\", \"user.email\"]\n{rules}\n"
    )
}

fn start(upstream: &MockUpstream, rules: &str) -> Gateway {
    let setup = Setup::with_bundled_table().with_upstreams(&[upstream.address]);
    let log = setup.path("access.log").display().to_string();
    setup.set_text("log.path", &log).append_toml(&screened_route(rules)).start()
}

fn post(content_type: &str, body: &str) -> Request {
    request("POST", "/signup").with_header("Content-Type", content_type).body(body)
}

/// Posts a body, and returns the request that the upstream server received.
#[track_caller]
fn forward(gateway: &Gateway, upstream: &MockUpstream, post: &Request) -> ReceivedRequest {
    let before = upstream.request_count();
    gateway.send_request(post).expect(200);
    let mut seen = upstream.received_requests().split_off(before);
    assert_eq!(seen.len(), 1);
    seen.remove(0)
}

fn screening_headers(seen: &ReceivedRequest) -> Vec<&str> {
    ["Action", "Score", "Reason", "Domain", "Suggestion"]
        .iter()
        .flat_map(|name| seen.header_values(&format!("X-Riskgate-{name}")))
        .collect()
}

fn count(gateway: &Gateway, action: &str, reason: &str) -> f64 {
    let labels = [
        "route=\"/signup\"".to_owned(),
        format!("action={action:?}"),
        format!("reason={reason:?}"),
    ];
    gateway.sum_of_samples("riskgate_screened_total", &labels.each_ref().map(String::as_str))
}

#[test]
fn a_form_is_annotated_and_its_body_is_forwarded_unchanged() {
    let upstream = MockUpstream::start();
    let gateway = start(&upstream, "mode = \"annotate\"");
    for (content_type, body, headers) in [
        (FORM, "email=jane%40gmail.com&x=1", &["pass", "0", "safe", "gmail.com"][..]),
        (
            FORM,
            "email=x%40mail.yopmail.com",
            &["would_block", "100", "disposable", "mail.yopmail.com"],
        ),
        (
            FORM,
            "email=jane%40gmaul.com",
            &["pass", "60", "undeliverable", "gmaul.com", "gmail.com"],
        ),
        (FORM, "email=info%40gmail.com", &["pass", "70", "role_account", "gmail.com"]),
        (FORM, "email=a..b%40docomo.ne.jp", &["pass", "75", "undeliverable", "docomo.ne.jp"]),
        (FORM, "email=nothing", &["would_block", "100", "undeliverable"]),
        (FORM, "name=jane", &["unscreened", "no_field"]),
        (
            FORM,
            "email=a%40gmail.com&email=b%40yopmail.com",
            &["would_block", "100", "disposable", "yopmail.com"],
        ),
        ("text/plain", "email=x@yopmail.com", &["unscreened", "other_type"]),
        (
            "application/json",
            r#"{"user":{"email":"x@yopmail.com"}}"#,
            &["would_block", "100", "disposable", "yopmail.com"],
        ),
        ("application/json", r#"{"email":"jane@gmail.com""#, &["unscreened", "broken"]),
        // What was read is judged, even beside something broken.
        (
            "application/json",
            r#"{"email":"x@yopmail.com""#,
            &["would_block", "100", "disposable", "yopmail.com"],
        ),
        (
            "multipart/form-data; boundary=b",
            "--b\r\nContent-Disposition: form-data; name=\"email\"\r\n\r\nx@yopmail.com\r\n--b--\r\n",
            &["would_block", "100", "disposable", "yopmail.com"],
        ),
    ] {
        let forged = post(content_type, body).with_header("X-Riskgate-Action", "forged");
        let seen = forward(&gateway, &upstream, &forged.with_header("x-riskgate-score", "0"));
        assert_eq!(screening_headers(&seen), headers, "{body}");
        assert_eq!(seen.body, body.as_bytes());
    }
    assert_eq!(count(&gateway, "would_block", "disposable"), 5.0);
    assert_eq!(count(&gateway, "unscreened", "no_field"), 1.0);
    // A request without a body is not screened.
    let before = upstream.request_count();
    gateway.send_request(&request("GET", "/signup")).expect(200);
    let seen = upstream.received_requests().split_off(before).remove(0);
    assert!(screening_headers(&seen).is_empty());
}

#[test]
fn a_compressed_or_long_body_is_forwarded_unscreened() {
    let upstream = MockUpstream::start();
    let gateway = start(&upstream, "mode = \"block\"");
    let gzip = post(FORM, "email=x@yopmail.com").with_header("Content-Encoding", "gzip");
    let seen = forward(&gateway, &upstream, &gzip);
    assert_eq!(screening_headers(&seen), ["unscreened", "encoded"]);
    let padding = "y".repeat(64 * 1024);
    let padded = format!("x={padding}&email=x@yopmail.com");
    let cut = format!("x={}&email=x@yopmail.com.good.example", &padding[..padding.len() - 22]);
    for long in [padded, cut, format!("email=jane@gmail.com&x={padding}")] {
        let seen = forward(&gateway, &upstream, &post(FORM, &long));
        assert_eq!(screening_headers(&seen), ["unscreened", "too_long"]);
        assert!(seen.body == long.as_bytes());
    }
    for (content_type, long) in [
        (FORM, format!("email=x@yopmail.com&x={padding}")),
        ("application/json", format!("{{\"email\":\"x@yopmail.com\",\"x\":\"{padding}\"}}")),
        (
            "multipart/form-data; boundary=b",
            format!(
                "--b\r\nContent-Disposition: form-data; name=\"email\"\r\n\r\nx@yopmail.com\r\n--b\r\n\
                 Content-Disposition: form-data; name=\"x\"\r\n\r\n{padding}\r\n--b--\r\n"
            ),
        ),
    ] {
        gateway.send_request(&post(content_type, &long)).expect(422);
    }
    // A value that could not be read passes beside a good one, and is told.
    let seen = forward(&gateway, &upstream, &post(FORM, "email=jane@gmail.com&email=%ff"));
    assert_eq!(screening_headers(&seen), ["unscreened", "other_charset"]);
    let seen = forward(&gateway, &upstream, &post(FORM, ""));
    assert_eq!(screening_headers(&seen), ["unscreened", "no_field"]);
    let put = request("PUT", "/signup").with_header("Content-Type", FORM);
    gateway.send_request(&put.body("email=x@yopmail.com")).expect(422);
}

/// Software behind the site may send to another address than riskgate reads.
#[test]
fn an_address_that_hides_another_is_no_pass() {
    let upstream = MockUpstream::start();
    let gateway = start(&upstream, "mode = \"annotate\"");
    for (email, expected) in [
        // nodemailer (CVE-2025-13033), and Ruby's mail.
        ("%22x@yopmail.com%20a%22@gmail.com", &["would_block", "100"][..]),
        ("=?utf-8?q?x=40yopmail.com=3e=00?=@gmail.com", &["would_block", "100"]),
        // Python's codec and Java map the name to assurmail.net.
        ("x@a%C3%9Furmail.net", &["would_block", "100"]),
        // PHP's FILTER_SANITIZE_EMAIL removes the letter.
        ("x@yop%C3%A9mail.com", &["unscreened"]),
        ("x@gm%C3%A1il.com", &["unscreened", "broken", "gmail.com"]),
        // Software that maps compatible characters reads `@` and `,`.
        ("x%EF%BC%A0yopmail.com%EF%BC%8Cy@gmail.com", &["would_block", "100"]),
        ("x@a%C3%9Furmail.net,jane@gmail.com", &["would_block", "100"]),
        ("x@yop%C3%A9mail.com,jane@gmail.com", &["unscreened"]),
        ("j%C3%B6rg@m%C3%BCller.de", &["pass"]),
        ("%22jane%20doe%22@gmail.com", &["pass", "0"]),
    ] {
        let seen = forward(&gateway, &upstream, &post(FORM, &format!("email={email}")));
        let found = screening_headers(&seen);
        assert_eq!(found.get(..expected.len()), Some(expected), "{email} {found:?}");
    }
}

#[test]
fn a_hidden_domain_that_nobody_knows_has_the_score_of_unknown_names() {
    let upstream = MockUpstream::start();
    let setup = Setup::with_bundled_table().with_upstreams(&[upstream.address]);
    let setup = setup.set("table.unknown_score", "90");
    let gateway = setup.append_toml(&screened_route("mode = \"annotate\"")).start();
    gateway.cli(&["table", "allow", "xn--hidden-nme-qz-ifb.de"]).expect(0);
    let action_of = |email: &str| {
        let seen = forward(&gateway, &upstream, &post(FORM, &format!("email={email}")));
        screening_headers(&seen)[0].to_owned()
    };
    wait_until("it is allowed", || action_of("x@xn--hidden-nme-qz-ifb.de") == "pass");
    // PHP's FILTER_SANITIZE_EMAIL reads hidden-nme-qz.de here, which nobody knows.
    assert_eq!(action_of("x@hidden-n%C3%A4me-qz.de"), "unscreened");
}

#[test]
fn a_form_refused_for_a_look_alike_of_a_provider_names_the_provider() {
    let upstream = MockUpstream::start();
    let gateway = start(&upstream, "mode = \"block\"\nunscreened = \"block\"");
    let refused = gateway.send_request(&post(FORM, "email=x@gm%C3%A1il.com")).expect(422);
    assert_eq!(refused.json()["error"], "form_unreadable");
    assert_eq!(refused.header("X-Did-You-Mean"), Some("gmail.com"));
}

#[test]
fn a_blocked_post_never_reaches_the_server() {
    let upstream = MockUpstream::start();
    let gateway = start(&upstream, "mode = \"block\"\nredirect = \"/signup?email=refused\"");
    let bad = post(FORM, "email=secret%40yopmail.com");
    let refused = gateway.send_request(&bad).expect(422);
    assert_eq!(
        refused.text(),
        r#"{"error":"email_refused","message":"Please use another e-mail address.","detail":"disposable"}"#
    );
    assert_eq!(refused.header("X-Fail-Open"), None);
    assert_eq!(refused.header("X-Did-You-Mean"), None);
    let typo = gateway.send_request(&post(FORM, "email=jane%40gmial.com")).expect(422);
    assert_eq!(typo.header("X-Did-You-Mean"), Some("gmail.com"));
    assert_eq!(refused.header("Connection"), Some("keep-alive"));
    let browser = bad.with_header("Accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    let redirected = gateway.send_request(&browser).expect(303);
    assert_eq!(redirected.header("Location"), Some("/signup?email=refused"));
    assert!(redirected.header_values("Vary").contains(&"Accept"));
    assert_eq!(upstream.request_count(), 0);
    assert_eq!(count(&gateway, "block", "disposable"), 3.0);
    let seen = forward(&gateway, &upstream, &post(FORM, "email=jane%40gmail.com"));
    assert_eq!(screening_headers(&seen), ["pass", "0", "safe", "gmail.com"]);
    let page = gateway.get_admin_page("/screening").expect(200).json();
    assert_eq!(
        page["forms"][0],
        serde_json::json!({
            "route": "/signup", "action": "block", "reason": "disposable",
            "domain": "yopmail.com", "count": 2,
        })
    );
    assert_eq!(page["forms"].as_array().unwrap().len(), 3);
    let log = gateway.path("access.log");
    let read_log = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("all lines are logged", || read_log().lines().count() >= 4);
    assert!(!read_log().contains("secret"), "{}", read_log());
    // Requests on different connections may be logged in another order.
    let refused =
        |line: &Value| line["status"] == 422 && line["screening"]["domain"] == "yopmail.com";
    let line = gateway.read_access_log().into_iter().find(refused).expect("a refused form");
    assert_eq!(line["outcome"], "email_refused");
    assert_eq!(line["reason"], "disposable");
    assert_eq!(
        line["screening"],
        serde_json::json!({"action": "block", "score": 100, "domain": "yopmail.com"})
    );
}

#[test]
fn a_sign_up_page_may_set_cookies_and_a_checking_service_may_not() {
    let upstream = MockUpstream::with_script(|_| {
        let cookies = "Set-Cookie: a=b\r\nSet-Cookie: c=d\r\n";
        vec![Step::Send(response_bytes(200, cookies, "a page"))]
    });
    let gateway = start(&upstream, "");
    let key = gateway.create_active_key("acme", &[]);
    // The fast path forwards the first, the Pingora path the second.
    let page = gateway.send_request(&request("GET", "/signup")).expect(200);
    assert_eq!(page.header_values("Set-Cookie"), ["a=b", "c=d"]);
    let posted = gateway.send_request(&post(FORM, "email=jane%40gmail.com")).expect(200);
    assert_eq!(posted.header_values("Set-Cookie"), ["a=b", "c=d"]);
    let check = gateway.get("/v1/check/a%40b.com", &key).expect(200);
    assert_eq!(check.header("Set-Cookie"), None);
}

#[test]
fn shadow_tells_the_server_nothing_until_one_word_of_the_config_changes() {
    let upstream = MockUpstream::start();
    let gateway = start(&upstream, "mode = \"shadow\"");
    let bad = post(FORM, "email=x%40yopmail.com");
    let seen = forward(&gateway, &upstream, &bad);
    assert!(screening_headers(&seen).is_empty());
    assert_eq!(count(&gateway, "would_block", "disposable"), 1.0);
    gateway.edit_config(|toml| toml.replace("\"shadow\"", "\"block\""));
    wait_until("posts are blocked", || gateway.send_request(&bad).status == 422);
}

#[test]
fn only_the_chosen_reasons_and_scores_are_blocked() {
    let upstream = MockUpstream::start();
    let rules = "mode = \"block\"\nblock_score = 60\nblock_reasons = [\"role_account\"]\n\
                 message = \"No \\\"role\\\" addresses\"";
    let gateway = start(&upstream, rules);
    let status = |email: &str| gateway.send_request(&post(FORM, &format!("email={email}"))).status;
    assert_eq!(status("x@yopmail.com"), 200);
    assert_eq!(status("jane@gmaul.com"), 200);
    assert_eq!(status("info@gmail.com"), 422);
    assert_eq!(status("<x@yopmail.com> info@gmail.com"), 200);
    // What is not to be blocked hides nothing that is.
    assert_eq!(status("info@yopmail.com"), 422);
    assert_eq!(status("x@yopmail.com&email=info@gmail.com"), 422);
    assert_eq!(status("info@gmail.com&email=nothing"), 422);
    assert_eq!(status("jane@gmail.com,info@gmail.com"), 422);
    let refused = gateway.send_request(&post(FORM, "email=info@gmail.com")).json();
    assert_eq!(refused["message"], "No \"role\" addresses");
}

#[test]
fn http2_forms_are_screened() {
    let upstream = MockUpstream::start();
    let setup = Setup::with_bundled_table().with_upstreams(&[upstream.address]);
    let setup = setup.set("listen.h2c", "true");
    let gateway = setup.append_toml(&screened_route("mode = \"block\"")).start();
    let post = |data: &str| {
        let mut command = Command::new("curl");
        command.args(["-s", "--http2-prior-knowledge", "--max-time", "20", "-w", "%{http_code}"]);
        command.args(["-o", "/dev/null", "-d", data, &format!("http://{}/signup", gateway.http)]);
        run_command(&mut command).expect(0).stdout
    };
    assert_eq!(post("email=x@yopmail.com"), "422");
    assert_eq!(upstream.request_count(), 0);
    assert_eq!(post("email=jane@gmail.com"), "200");
    assert_eq!(upstream.received_requests()[0].body, b"email=jane@gmail.com");
}

#[test]
fn faulty_screening_settings_are_reported_with_their_place() {
    for (rules, expected) in [
        ("redirect = \"//other.test\"", "screen.redirect: expected a path or an https URL"),
        ("block_reasons = []", "screen.block_reasons: expected a list of reasons"),
        ("mode = \"off\"", "screen.mode: expected"),
        ("block_score = 101", "screen.block_score: expected a whole number from 0 to 100"),
        ("block_reasons = [\"spam\"]", "screen.block_reasons: expected a list of reasons"),
        ("redirect = \"javascript:x\"", "screen.redirect: expected a path or an https URL"),
        ("field = \"email\"", "^^^^^ remove this line: fields stands in line"),
        ("mode = \"Block\"", "^^^^^^^ did you mean \"block\"?"),
    ] {
        let refused = Setup::new().append_toml(&screened_route(rules)).cli(&["check"]).expect(78);
        assert!(refused.stderr.contains(expected), "{expected}: {}", refused.stderr);
    }
    let route = "[[upstream.route]]\nprefix = \"/signup\"\nkey = false\n[upstream.route.screen]\n";
    let refused = Setup::new().append_toml(route).cli(&["check"]).expect(78);
    assert!(refused.stderr.contains("methods: expected POST, PUT or PATCH"), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("screen.fields: expected a list of names"),
        "{}",
        refused.stderr
    );
}

/// PHP's own server ignores further question marks before the first name of a query.
#[test]
fn a_value_behind_two_question_marks_is_judged() {
    let upstream = MockUpstream::start();
    let gateway = start(&upstream, "mode = \"block\"");
    for (query, status) in [("??email=x@yopmail.com", 422), ("??email=x@gmail.com", 200)] {
        let posted = request("POST", format!("/signup{query}"))
            .with_header("Content-Type", "application/json")
            .body("{\"email\": \"jane@gmail.com\"}");
        gateway.send_request(&posted).expect(status);
    }
}

#[test]
fn a_slip_of_the_finger_is_refused_with_the_provider_that_was_meant() {
    let upstream = MockUpstream::start();
    let gateway = start(&upstream, "mode = \"block\"");
    for (typed, provider) in [
        ("jane@gmail,com", Some("gmail.com")),
        ("jane@gmail..com", Some("gmail.com")),
        ("jane@gmailcom", Some("gmail.com")),
        ("jane@@gmail.com", Some("gmail.com")),
        ("jane@gmail.com,", Some("gmail.com")),
        ("jane@gmx,de", Some("gmx.de")),
        ("jane@example,com", None),
        ("ja ne@gmail.com", None),
        ("jane@@example.com", None),
    ] {
        let json = serde_json::json!({"email": typed}).to_string();
        let refused = gateway.send_request(&post("application/json", &json)).expect(422);
        assert_eq!(refused.header("X-Did-You-Mean"), provider, "{typed}");
    }
    // Such an address receives mail: only the server learns of the slip.
    let json = |email: &str| serde_json::json!({ "email": email }).to_string();
    let seen = forward(&gateway, &upstream, &post("application/json", &json("jane@gmail.com.")));
    assert_eq!(screening_headers(&seen), ["pass", "0", "safe", "gmail.com", "gmail.com"]);
    for email in
        ["\u{feff}jane@gmail.com\u{200e}", "ja\u{200b}ne@g\u{ad}mail.com", "jane@gmail.com "]
    {
        let seen = forward(&gateway, &upstream, &post("application/json", &json(email)));
        assert_eq!(screening_headers(&seen), ["pass", "0", "safe", "gmail.com"], "{email:?}");
    }
}
