//! `[authz]`: what riskgate answers to a proxy that asks whether to admit a request. The tests
//! speak as each kind of proxy does; `integrations` uses the real ones.

use serde_json::json;

use crate::harness::{Gateway, Request, Response, Setup, get, request, run_command, wait_until};

const FORM: &str = "application/x-www-form-urlencoded";
const PAGE: &str = "https://app.example.com";

fn start(rules: &str) -> Gateway {
    setup(rules).start()
}

fn setup(rules: &str) -> Setup {
    let setup = Setup::with_bundled_table();
    let log = setup.path("access.log").display().to_string();
    let authz = format!("[authz]\npath = \"/authz\"\n{rules}\n");
    setup.set_text("log.path", &log).append_toml(&authz)
}

fn screening(email: &str) -> String {
    format!("check = [\"screen\"]\nemail = {email}\nmode = \"block\"")
}

fn facts(answer: &Response) -> Vec<&str> {
    ["Action", "Score", "Reason", "Domain", "Suggestion"]
        .iter()
        .flat_map(|name| answer.header_values(&format!("X-Riskgate-{name}")))
        .collect()
}

const REFUSED: &[&str] = &["block", "100", "disposable", "yopmail.com"];
const ADMITTED: &[&str] = &["pass", "0", "safe", "gmail.com"];

/// Asks, and checks the answer.
#[track_caller]
fn expect_facts(gateway: &Gateway, asked: &Request, expected: &[&str]) {
    let described = String::from_utf8_lossy(&asked.to_bytes()).into_owned();
    let answer = gateway.send_request(asked);
    assert_eq!(facts(&answer), expected, "{described}");
    assert_eq!(answer.header("X-Fail-Open"), None, "{described}");
    if expected != REFUSED {
        assert_eq!((answer.status, answer.text().as_str()), (200, ""), "{described}");
        return;
    }
    assert_eq!(answer.status, 403, "{described}");
    let refusal = json!({
        "error": "email_refused", "message": "Please use another e-mail address.",
        "detail": "disposable",
    });
    assert_eq!(answer.json(), refusal);
}

#[test]
fn an_address_in_a_header_or_a_query_is_judged() {
    let gateway = start(&screening("[\"header:X-Email\", \"query:email\"]"));
    let suggested = &["pass", "60", "undeliverable", "gmaul.com", "gmail.com"][..];
    let by_header = |email: &str| get("/authz").with_header("X-Email", email);
    let by_target = |name: &str, email: &str| {
        get("/authz").with_header(name, &format!("/signup?email={email}"))
    };
    for (asked, expected) in [
        (by_header("x@yopmail.com"), REFUSED),
        // As nginx takes it from a query.
        (by_header("x%40yopmail.com"), REFUSED),
        (by_header("x@yopmail%2Ecom"), REFUSED),
        (by_header("jane@gmail.com"), ADMITTED),
        (by_header("jane@gmaul.com"), suggested),
        (by_header("jane@gmail.com").with_header("X-Email", "x@yopmail.com"), REFUSED),
        // nginx, Traefik and Caddy name the target; Envoy appends it to the path.
        (by_target("X-Original-URI", "x%40yopmail.com"), REFUSED),
        (by_target("X-Forwarded-Uri", "x%40yopmail.com"), REFUSED),
        (get("/authz/signup?email=x%40yopmail.com"), REFUSED),
        (get("/authz?email=jane%40gmail.com"), ADMITTED),
        // A client can add fields, and hides nothing by that.
        (
            by_target("X-Forwarded-Uri", "x%40yopmail.com").with_header("X-Email", "a@gmail.com"),
            REFUSED,
        ),
        (
            by_target("X-Original-URI", "jane%40gmail.com")
                .with_header("X-Forwarded-Uri", "/?email=x@yopmail.com"),
            REFUSED,
        ),
        // Nothing was posted.
        (get("/authz"), &[]),
        (get("/authz").with_header("X-Original-Method", "POST"), &["unscreened", "no_field"]),
    ] {
        expect_facts(&gateway, &asked, expected);
    }
    let blocked = ["route=\"/authz\"", "action=\"block\"", "reason=\"disposable\""];
    assert_eq!(gateway.sum_of_samples("riskgate_screened_total", &blocked), 9.0);
    wait_until("the requests are logged", || gateway.read_access_log().len() >= 14);
    let log = gateway.read_access_log();
    let refused = log.iter().find(|line| line["status"] == 403).expect("a refused request");
    assert_eq!(
        (&refused["route"], &refused["outcome"]),
        (&json!("authz"), &json!("email_refused"))
    );
    assert!(log.iter().all(|line| !line.to_string().contains("jane")), "{log:?}");
}

#[test]
fn an_address_in_a_body_is_judged() {
    let setup = setup(&screening("[\"header:X-Email\", \"body:user.email\"]"));
    // The start of a body that a proxy asks about is judged, however long the body is.
    let gateway = setup.set("listen.max_body_bytes", "66000").start();
    let ask = |method: &str, body: &str| {
        request(method, "/authz").with_header("Content-Type", FORM).body(body)
    };
    let padding = "y".repeat(70_000);
    let long = format!("user[email]=jane%40gmail.com&x={padding}");
    let long_and_bad = format!("user[email]=x%40yopmail.com&x={padding}");
    for (asked, expected) in [
        (ask("POST", "user[email]=x%40yopmail.com"), REFUSED),
        // Traefik asks with GET, and the body of the client.
        (ask("GET", "user[email]=x%40yopmail.com"), REFUSED),
        (ask("PUT", "user[email]=jane%40gmail.com"), ADMITTED),
        (ask("POST", "name=jane"), &["unscreened", "no_field"]),
        // Nobody knows whether the client posted nothing, or its proxy sent nothing of it.
        (ask("POST", "").with_header("X-Email", "jane@gmail.com"), &["unscreened", "too_long"]),
        (ask("GET", "").with_header("X-Email", "jane@gmail.com"), ADMITTED),
        (ask("POST", &long), &["unscreened", "too_long"]),
        (ask("POST", &long_and_bad), REFUSED),
    ] {
        expect_facts(&gateway, &asked, expected);
    }
}

/// A proxy may ask with a body that riskgate does not read. Then the other gates still decide.
#[test]
fn a_body_that_is_not_read_is_unscreened_and_hides_no_missing_key() {
    let rules = screening("\"body:email\"").replace("[\"screen\"]", "[\"key\", \"screen\"]");
    let gateway = setup(&rules).set("listen.h2c", "true").start();
    let key = gateway.create_active_key("acme", &[]);
    let large = "x".repeat(2_000_000);
    let chunked = format!("email=jane@gmail.com&x={}", "x".repeat(70_000));
    for (version, header, body) in [
        ("--http1.1", "Transfer-Encoding: chunked", &chunked),
        ("--http1.1", "Expect:", &large),
        ("--http2-prior-knowledge", "Expect:", &large),
    ] {
        std::fs::write(gateway.path("body"), body).unwrap();
        let ask = |method: &str, key: &str| {
            let mut command = std::process::Command::new("curl");
            command.args(["-si", version, "--max-time", "20", "-X", method, "-H", header]);
            command.args(["-H", &format!("X-Riskgate-Key: {key}")]);
            command.args(["--data-binary", &format!("@{}", gateway.path("body").display())]);
            command.arg(format!("http://{}/authz", gateway.http));
            run_command(&mut command).stdout.to_ascii_lowercase()
        };
        for method in ["POST", "GET"] {
            let admitted = ask(method, &key);
            let described = format!("{version} {header} {method}: {admitted}");
            assert!(admitted.starts_with("http/"), "{described}");
            assert!(admitted.lines().next().unwrap().contains(" 200"), "{described}");
            assert!(admitted.contains("x-riskgate-action: unscreened"), "{described}");
            assert!(admitted.contains("x-riskgate-reason: too_long"), "{described}");
            let refused = ask(method, "rg_00000000000000000000000000000000");
            assert!(refused.lines().next().unwrap().contains(" 401"), "{refused}");
        }
    }
    // A length beside chunks is malformed.
    for target in ["/authz", "/v1/usage"] {
        let chunked = "Transfer-Encoding: chunked\r\nContent-Length: 5";
        let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\n{chunked}\r\n\r\n0\r\n\r\n");
        let mut connection = gateway.connect();
        connection.send(head.as_bytes());
        connection.read_response().unwrap().expect(400);
    }
    // What is behind the chunks is the next request.
    let two = "POST /authz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
               0\r\n\r\nGET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut connection = gateway.connect();
    connection.send(two.as_bytes());
    connection.read_response().unwrap().expect(401);
    connection.read_response().unwrap().expect(404);
}

/// nginx and Caddy send no body with their question, and Envoy only the start of a longer one.
#[test]
fn a_question_without_the_posted_body_is_never_a_pass() {
    let gateway = start(&screening("[\"query:email\", \"header:X-Email\", \"body:email\"]"));
    let unread = &["unscreened", "too_long"][..];
    let of_post = |target: &str| {
        let asked = get("/authz").with_header("X-Original-Method", "POST");
        asked.with_header("X-Original-URI", target)
    };
    expect_facts(&gateway, &of_post("/signup?email=a@gmail.com"), unread);
    expect_facts(&gateway, &of_post("/signup").with_header("X-Email", "a@gmail.com"), unread);
    expect_facts(&gateway, &of_post("/signup?email=a@yopmail.com"), REFUSED);
    // A page that is only read has no body.
    let page = get("/authz").with_header("X-Original-URI", "/signup?email=a@gmail.com");
    expect_facts(&gateway, &page, ADMITTED);
    let form = |email: &str| {
        let asked = request("POST", "/authz/signup").with_header("Content-Type", FORM);
        asked.body(&format!("email={email}"))
    };
    expect_facts(&gateway, &form("a@gmail.com"), ADMITTED);
    // A proxy that keeps the method of the client's post, and sends no body.
    let bare = |target| request("POST", target).with_header("Content-Length", "0");
    expect_facts(&gateway, &bare("/authz/signup?email=a@gmail.com"), unread);
    expect_facts(&gateway, &bare("/authz/signup?email=a@yopmail.com"), REFUSED);
    let whole = bare("/authz/signup?email=a@gmail.com");
    let whole = whole.with_header("X-Envoy-Auth-Partial-Body", "false");
    expect_facts(&gateway, &whole, ADMITTED);
    let cut = |email: &str| form(email).with_header("X-Envoy-Auth-Partial-Body", "true");
    expect_facts(&gateway, &cut("a@gmail.com&x=1"), unread);
    expect_facts(&gateway, &cut("a@yopmail.com&x=1"), REFUSED);
}

/// A link to a page may have a parameter of the name of the field.
#[test]
fn a_query_without_an_address_is_no_form_and_no_value_beside_a_body() {
    let gateway = start(&screening("[\"query:email\", \"body:email\"]"));
    for target in ["/page?email=1", "/page?email=1;x", "/page?email=%E9"] {
        let page = get("/authz").with_header("X-Original-URI", target);
        expect_facts(&gateway, &page, &[]);
    }
    let page = get("/authz").with_header("X-Original-URI", "/page?email=x%EF%BC%A0yopmail.com");
    let refused = gateway.send_request(&page).expect(403);
    assert_eq!(facts(&refused), ["block", "100", "undeliverable", "yopmail.com"]);
    let post = |target: &str, body: &str| {
        let asked = request("POST", "/authz").with_header("Content-Type", FORM);
        asked.with_header("X-Original-URI", target).body(body)
    };
    let unread = &["unscreened", "broken"][..];
    expect_facts(&gateway, &post("/signup?email=1", "email=jane@gmail.com"), unread);
    expect_facts(&gateway, &post("/signup?email=1", "email=x@yopmail.com"), REFUSED);
    for asked in [post("/signup?email=foo", "x=1"), post("/signup?email=foo", "")] {
        let refused = gateway.send_request(&asked).expect(403);
        assert_eq!(facts(&refused), ["block", "100", "undeliverable"]);
    }
}

#[test]
fn shadow_tells_the_proxy_nothing() {
    let rules = screening("\"header:X-Email\"").replace("block", "shadow");
    let gateway = start(&rules);
    let bad = get("/authz").with_header("X-Email", "x@yopmail.com");
    assert!(facts(&gateway.send_request(&bad).expect(200)).is_empty());
    let counted = ["action=\"would_block\"", "reason=\"disposable\""];
    assert_eq!(gateway.sum_of_samples("riskgate_screened_total", &counted), 1.0);
    gateway.edit_config(|toml| toml.replace("\"shadow\"", "\"annotate\""));
    wait_until("the proxy is told", || !facts(&gateway.send_request(&bad).expect(200)).is_empty());
    assert_eq!(facts(&gateway.send_request(&bad))[0], "would_block");
    gateway.edit_config(|toml| toml.replace("\"annotate\"", "\"block\""));
    wait_until("the address is refused", || gateway.send_request(&bad).status == 403);
}

#[test]
fn a_changed_path_takes_effect_at_a_restart_and_rules_at_once() {
    let gateway = setup(&screening("\"header:X-Email\"")).start();
    let bad = get("/authz").with_header("X-Email", "x@yopmail.com");
    gateway.send_request(&bad).expect(403);
    gateway.edit_config(|toml| toml.replace("path = \"/authz\"", "path = \"/asked\""));
    let reloads = || gateway.stderr().matches("config reloaded").count();
    wait_until("the config is reloaded", || reloads() == 1);
    let needs_restart = || gateway.get_admin_page("/status").json()["needs_restart"].clone();
    assert_eq!(needs_restart(), json!(["authz.path"]));
    gateway.send_request(&bad).expect(403);
    gateway.send_request(&get("/asked")).expect(404);
    // An operator removes the section: nobody is refused any more, and no proxy gets a 404.
    gateway.edit_config(|toml| toml.split("[authz]").next().unwrap().to_owned());
    wait_until("the config is reloaded", || reloads() == 2);
    assert_eq!(needs_restart(), json!(["authz.path"]));
    assert!(facts(&gateway.send_request(&bad).expect(200)).is_empty());
}

#[test]
fn clients_that_share_a_rate_are_warned_of() {
    let rules = "[authz]\npath = \"/authz\"\ncheck = [\"key\"]\n[keys]\nmax_per_client = \"9/h\"\n";
    let checked = Setup::new().append_toml(rules).cli(&["check"]).expect(0);
    let said = format!("{}{}", checked.stdout, checked.stderr);
    assert!(said.contains("warning: keys.max_per_client: all clients of a proxy"), "{said}");
    let setup = Setup::new().append_toml(rules).set("listen.trusted_proxies", "[\"127.0.0.1\"]");
    let checked = setup.cli(&["check"]).expect(0);
    let said = format!("{}{}", checked.stdout, checked.stderr);
    assert!(!said.contains("keys.max_per_client"), "{said}");
}

#[test]
fn a_key_in_a_request_id_is_not_logged() {
    let gateway = setup("check = [\"key\"]").start();
    let presented = "not-a-key-but-a-secret-of-some-kind";
    let asked = get("/authz").with_header("X-Riskgate-Key", presented);
    let answer = gateway.send_request(&asked.with_header("X-Request-Id", presented)).expect(401);
    assert_ne!(answer.header("X-Request-Id"), Some(presented));
}

#[test]
fn each_gate_answers_200_401_or_403() {
    let gateway = setup("check = [\"key\", \"origin\", \"quota\"]").set("plans.free", "3").start();
    let (key, id) = gateway.create_active_key_with_id("acme", &["--origin", PAGE]);
    let ask = |request: Request| gateway.send_request(&request.with_header("Origin", PAGE));
    let with_key = || get("/authz").with_header("X-Riskgate-Key", &key);
    // `Authorization` may be for the server behind the proxy.
    let admitted = ask(with_key().with_header("Authorization", "Basic abc")).expect(200);
    assert_eq!(admitted.header("X-Riskgate-Account"), Some("acme"));
    assert_eq!(admitted.header("X-Riskgate-Key-Id"), Some(id.as_str()));
    assert_eq!(admitted.header("X-Riskgate-Plan"), Some("free"));
    assert_eq!(admitted.rate_limit_remaining(), 2);
    ask(get("/authz").key(&key)).expect(200);
    for refused in [
        get("/authz"),
        get("/authz")
            .with_header("X-Riskgate-Key", "rg_00000000000000000000000000000000")
            .key(&key),
        with_key().with_header("X-Riskgate-Key", &key),
        get("/authz").with_header("Authorization", &format!("Basic {key}")),
    ] {
        let refused = ask(refused).expect(401);
        assert_eq!(refused.json()["error"], "unauthorized");
        assert!(refused.has_header("WWW-Authenticate"));
    }
    let elsewhere = with_key().with_header("Origin", "https://evil.test");
    let refused = gateway.send_request(&elsewhere).expect(403);
    assert_eq!(refused.json()["error"], "forbidden");
    assert_eq!(refused.header("X-Riskgate-Account"), None, "a client may see a refusal");
    // Refusals did not count. The third call is the last of the month.
    ask(with_key()).expect(200);
    let spent = ask(with_key()).expect(200);
    assert_eq!(spent.header("X-Fail-Open"), Some("true"));
    assert_eq!(spent.rate_limit_remaining(), 0);
    // A preflight has no key, and spends no call.
    let preflight = request("OPTIONS", "/authz/signup").with_header("Origin", PAGE);
    assert_eq!(gateway.send_request(&preflight).expect(200).header("X-Fail-Open"), None);
    let asked = get("/authz").with_header("X-Forwarded-Method", "OPTIONS");
    gateway.send_request(&asked).expect(200);
    let forged = asked.with_header("X-Original-Method", "POST");
    gateway.send_request(&forged).expect(401);
    gateway
        .send_request(&request("POST", "/authz").with_header("X-Forwarded-Method", "OPTIONS"))
        .expect(401);
}

#[test]
fn a_spent_month_does_not_hide_what_was_not_screened() {
    let rules =
        "check = [\"key\", \"quota\", \"screen\"]\nemail = \"header:X-Email\"\nmode = \"block\"";
    let gateway = setup(rules).set("plans.free", "1").start();
    let key = gateway.create_active_key("acme", &[]);
    let ask = || {
        let asked = get("/authz").with_header("X-Email", "x@yopmail.com");
        gateway.send_request(&asked.with_header("X-Riskgate-Key", &key))
    };
    assert_eq!(facts(&ask().expect(403))[0], "block");
    let spent = ask().expect(200);
    assert_eq!(spent.header("X-Fail-Open"), Some("true"));
    assert_eq!(facts(&spent), ["unscreened", "quota_exceeded"]);
}

#[test]
fn riskgates_own_failures_let_the_user_through() {
    let setup = setup(
        "check = [\"key\", \"quota\", \"screen\"]\nemail = \"header:X-Email\"\nmode = \"block\"",
    );
    let setup = setup.set_text("store.on_failure", "closed").set_text("store.deadline", "1500ms");
    let gateway = setup.set("plans.free", "500").start();
    let key = gateway.create_active_key("acme", &[]);
    let ask = || {
        let asked = get("/authz").with_header("X-Riskgate-Key", &key);
        gateway.send_request(&asked.with_header("X-Email", "jane@gmail.com"))
    };
    assert_eq!(ask().expect(200).header("X-Fail-Open"), None);
    let store = rusqlite::Connection::open(gateway.path("riskgate.db")).unwrap();
    store.busy_timeout(crate::harness::TEST_TIMEOUT).unwrap();
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    wait_until("the leased calls are spent", || ask().expect(200).has_header("X-Fail-Open"));
    assert_eq!(facts(&ask().expect(200)), ["unscreened", "internal_error"]);
    // What needs no store is still checked.
    gateway.send_request(&get("/authz")).expect(401);
}

#[test]
fn a_browser_key_is_limited_for_each_client_at_a_proxy_too() {
    let setup = setup("check = [\"key\"]").set_text("keys.max_per_client", "2/h");
    let setup = setup.set("listen.trusted_proxies", "[\"127.0.0.1\"]");
    let gateway = setup.set_text("listen.client_address", "x-forwarded-for").start();
    let key = gateway.create_active_key("acme", &["--origin", PAGE]);
    let ask = |client: &str| {
        let asked = get("/authz").with_header("X-Riskgate-Key", &key);
        gateway.send_request(&asked.with_header("X-Forwarded-For", client))
    };
    ask("192.0.2.1").expect(200);
    ask("192.0.2.1").expect(200);
    let refused = ask("192.0.2.1").expect(403);
    assert_eq!(refused.json()["error"], "too_many_requests");
    assert!(refused.has_header("Retry-After"));
    ask("192.0.2.2").expect(200);
}

#[test]
fn without_the_section_and_beside_its_path_there_is_no_such_route() {
    let gateway = start(&screening("\"query:email\""));
    for target in ["/authz2", "/auth", "/AUTHZ", "//authz", "/v1/authz"] {
        gateway.send_request(&get(target)).expect(404);
    }
    // Elsewhere, a GET still has no body.
    let with_body = get("/v1/usage").body("x");
    gateway.send_request(&with_body).expect(400);
    let gateway = Setup::new().start();
    gateway.send_request(&get("/authz?email=x%40yopmail.com")).expect(404);
    gateway.send_request(&request("GET", "/authz").body("x")).expect(400);
}

#[test]
fn a_long_or_slow_body_is_no_way_around_the_screening() {
    let rules = screening("\"body:email\"") + "\nunscreened = \"block\"";
    let setup = setup(&rules).set("listen.max_body_bytes", "1000");
    let gateway = setup.set_text("listen.body_timeout", "1s").start();
    let ask = |body: &str| request("POST", "/authz").with_header("Content-Type", FORM).body(body);
    let padding = "b".repeat(20_000);
    gateway.send_request(&ask(&format!("email=x%40yopmail.com&pad={padding}"))).expect(403);
    gateway.send_request(&ask(&format!("email=jane%40gmail.com&pad={padding}"))).expect(200);
    let mut slow = gateway.connect();
    let head = format!("POST /authz HTTP/1.1\r\nHost: a\r\nContent-Type: {FORM}\r\n");
    slow.send(format!("{head}Content-Length: 30\r\n\r\nemail=x%40yopmail.com").as_bytes());
    slow.read_response().expect("an answer").expect(403);
}

#[test]
fn one_connection_carries_answers_with_and_without_a_body() {
    let setup = setup(&screening("\"body:email\"")).set("listen.h2c", "true");
    let gateway = setup.start();
    let mut connection = gateway.connect();
    let ask = |body: &str| request("GET", "/authz").with_header("Content-Type", FORM).body(body);
    for _ in 0..3 {
        connection.send_request(&ask("email=x%40yopmail.com")).expect(403);
        connection.send_request(&get("/authz")).expect(200);
        connection.send_request(&get("/v1/usage")).expect(401);
        connection.send_request(&ask("email=jane%40gmail.com")).expect(200);
    }
    let curl = |data: &str| {
        let mut command = std::process::Command::new("curl");
        command.args(["-s", "--http2-prior-knowledge", "--max-time", "20", "-w", "%{http_code}"]);
        command.args(["-o", "/dev/null", "-d", data, &format!("http://{}/authz", gateway.http)]);
        run_command(&mut command).expect(0).stdout
    };
    assert_eq!(curl("email=x@yopmail.com"), "403");
    assert_eq!(curl("email=jane@gmail.com"), "200");
}

#[test]
fn faulty_settings_are_reported_with_their_place() {
    for (rules, expected) in [
        ("path = \"/v1/check\"", "authz.path: expected a path such as /authz, apart from"),
        ("path = \"authz\"", "authz.path: expected a path such as /authz"),
        ("path = \"/signup\"", "authz.path: expected a path such as /authz"),
        ("path = \"/Signup\"", "authz.path: expected a path such as /authz"),
        ("path = \"/sign\"", "authz.path: expected a path such as /authz"),
        ("path = \"/authz\"\ncheck = [\"quota\"]", "\"origin\" and \"quota\" need \"key\""),
        ("path = \"/authz\"\ncheck = []", "authz.check: expected a list of"),
        ("path = \"/authz\"\ncheck = [\"ip\"]", "authz.check: expected a list of"),
        ("path = \"/authz\"", "authz.email: expected where the e-mail address is"),
        (
            "path = \"/authz\"\nemail = \"email\"",
            "authz.email: expected one or several of header:NAME",
        ),
        (
            "path = \"/authz\"\nemail = \"query:\"",
            "authz.email: expected one or several of header:NAME",
        ),
        ("path = \"/authz\"\nfields = []", "write it below [log] or [upstream.route.screen]"),
    ] {
        let route = "[[upstream.route]]\nprefix = \"/signup\"\n\
                     [[upstream.route]]\nprefix = \"/sign.php/x\"\n[authz]\n";
        let refused = Setup::new().append_toml(&format!("{route}{rules}\n")).cli(&["check"]);
        let stderr = refused.expect(78).stderr;
        assert!(stderr.contains(expected), "{expected}: {stderr}");
    }
}
