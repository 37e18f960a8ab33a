//! Origins, preflights, and which responses a page of another origin may read.

use crate::harness::{Gateway, Request, Response, Setup, free_address, get, request};

const APP: &str = "https://app.example.com";
const DOMAIN: &str = "/v1/public/domain/first.test";

fn request_from_origin(origin: &str) -> Request {
    get(DOMAIN).with_header("Origin", origin)
}

#[track_caller]
fn assert_browser_can_read(answer: &Response, origin: &str) {
    assert_eq!(answer.header("Access-Control-Allow-Origin"), Some(origin), "{}", answer.status);
    let exposed = answer.header("Access-Control-Expose-Headers").unwrap().to_lowercase();
    for name in ["ratelimit", "ratelimit-policy", "retry-after", "x-request-id", "x-fail-open"] {
        assert!(exposed.split(',').any(|part| part.trim() == name), "{name}: {exposed}");
    }
    assert!(!answer.has_header("Access-Control-Allow-Credentials"));
    assert_eq!(answer.header("Vary"), Some("Origin"));
}

#[track_caller]
fn assert_browser_cannot_read(answer: &Response) {
    let cors = |(name, _): &&(String, String)| name.to_lowercase().starts_with("access-control-");
    assert_eq!(answer.headers.iter().find(cors), None, "{}", answer.status);
    assert_eq!(answer.header("Vary"), Some("Origin"), "{}", answer.status);
}

fn start_with_restricted_key() -> (Gateway, String) {
    let gateway = Setup::new().set("plans.free", "1000").with_upstreams(&[free_address()]).start();
    let key = gateway.create_active_key(
        "acme",
        &[
            "--origin",
            APP,
            "--origin",
            "https://*.example.org",
            "--origin",
            "http://localhost:3000",
        ],
    );
    (gateway, key)
}

#[test]
fn an_origin_matches_however_its_host_is_written() {
    let gateway = Setup::new().set("plans.free", "1000").start();
    for (account, written, sent) in [
        ("six", "http://[0:0:0:0:0:0:0:1]:3001", "http://[::1]:3001"),
        ("mapped", "http://[::FFFF:127.0.0.1]:80", "http://[::ffff:7f00:1]"),
        ("names", "https://b\u{fc}cher.example", "https://xn--bcher-kva.example"),
    ] {
        let key = gateway.create_active_key(account, &["--origin", written]);
        assert_browser_can_read(
            &gateway.send_request(&request_from_origin(sent).key(&key)).expect(200),
            sent,
        );
        gateway.send_request(&request_from_origin("http://[::2]:3001").key(&key)).expect(403);
        let preflight = request("OPTIONS", DOMAIN).with_header("Origin", sent);
        let preflight = preflight.with_header("Access-Control-Request-Method", "GET");
        assert_browser_can_read(&gateway.send_request(&preflight).expect(204), sent);
    }
    for never in ["http://127.1", "http://256.0.0.1", "http://*.127.0.0.1"] {
        let made = gateway.cli(&["keys", "create", "--account", "other", "--origin", never]);
        assert!(
            made.exit_code != 0 && made.stderr.contains("expected an origin"),
            "{}",
            made.stderr
        );
    }
}

#[test]
fn a_preflight_is_allowed_if_any_key_allows_its_origin() {
    let (gateway, _) = start_with_restricted_key();
    let paths = [DOMAIN, "/v1/public/top-domains", "/v1/usage", "/v1/check/user@example.com"];
    for path in paths {
        let preflight = |origin: &str| {
            gateway.send_request(
                &request("OPTIONS", path)
                    .with_header("Origin", origin)
                    .with_header("Access-Control-Request-Method", "GET")
                    .with_header("Access-Control-Request-Headers", "authorization"),
            )
        };
        for origin in [APP, "https://a.example.org", "http://localhost:3000"] {
            let answer = preflight(origin).expect(204);
            assert_eq!(answer.header("Access-Control-Allow-Origin"), Some(origin));
            let methods = answer.header("Access-Control-Allow-Methods").unwrap();
            assert!(methods.contains("GET") && methods.contains("HEAD"), "{methods}");
            let headers = answer.header("Access-Control-Allow-Headers").unwrap().to_lowercase();
            assert!(headers.contains("authorization"), "{headers}");
            assert_eq!(answer.header("Access-Control-Max-Age"), Some("600"));
            assert_eq!(answer.header("Vary"), Some("Origin"));
            assert!(
                !answer.has_header("Content-Length")
                    && !answer.has_header("Access-Control-Allow-Credentials")
            );
        }
        for origin in ["https://evil.example", "https://example.org", "null", "nonsense"] {
            assert_browser_cannot_read(&preflight(origin).expect(403));
        }
    }
}

#[test]
fn one_unrestricted_key_allows_every_preflight_until_it_is_revoked() {
    let (gateway, _) = start_with_restricted_key();
    let preflight = || {
        let options = request("OPTIONS", DOMAIN).with_header("Origin", "https://anywhere.example");
        gateway.send_request(&options.with_header("Access-Control-Request-Method", "GET")).status
    };
    assert_eq!(preflight(), 403);
    let (_, id) = gateway.create_active_key_with_id("open", &[]);
    assert_eq!(preflight(), 204);
    gateway.cli(&["keys", "revoke", &id]).expect(0);
    crate::harness::wait_until("the revoked key allows no origin", || preflight() == 403);
}

#[test]
fn an_options_request_that_is_no_preflight_gets_the_methods_in_allow() {
    let (gateway, _) = start_with_restricted_key();
    let allow = Some("GET, HEAD, OPTIONS");
    for path in [DOMAIN, "/v1/usage", "/v1/check/a@b.com", "/v1/public/top-domains"] {
        let answer = gateway.send_request(&request("OPTIONS", path)).expect(204);
        assert_eq!(answer.header("Allow"), allow);
        let only_origin =
            gateway.send_request(&request("OPTIONS", path).with_header("Origin", APP)).expect(204);
        assert_eq!(only_origin.header("Allow"), allow);
        let only_method =
            request("OPTIONS", path).with_header("Access-Control-Request-Method", "GET");
        assert_eq!(gateway.send_request(&only_method).expect(204).header("Allow"), allow);
    }
    gateway.send_request(&request("OPTIONS", "/nowhere")).expect(404);
}

#[test]
fn a_browser_of_an_allowed_origin_can_read_every_error() {
    let gateway = Setup::new().set("plans.free", "2").with_upstreams(&[free_address()]).start();
    let key = gateway.create_active_key("acme", &["--origin", APP]);
    let ask = |request: Request| gateway.send_request(&request.with_header("Origin", APP));
    assert_browser_can_read(&ask(get(DOMAIN)).expect(401), APP);
    assert_browser_can_read(&ask(get(DOMAIN).key("rg_wrong_wrong_wrong")).expect(401), APP);
    assert_browser_can_read(&ask(get("/nowhere")).expect(404), APP);
    assert_browser_can_read(&ask(request("PUT", DOMAIN)).expect(405), APP);
    assert_browser_can_read(&ask(get("/v1/check/a@b.com").key(&key)).expect(500), APP);
    assert_browser_can_read(&ask(get("/v1/public/domain/a..b").key(&key)).expect(422), APP);
    ask(get(DOMAIN).key(&key)).expect(200);
    let spent = ask(get(DOMAIN).key(&key)).expect(429);
    assert_browser_can_read(&spent, APP);
    assert_eq!(spent.header("X-Fail-Open"), Some("true"));
    assert_browser_cannot_read(
        &gateway.send_request(&request_from_origin("https://evil.example")).expect(401),
    );
    assert_browser_cannot_read(
        &gateway.send_request(&request_from_origin("https://evil.example").key(&key)).expect(403),
    );
}
