//! riskgate in front of a whole site: a route `/`, whose server decides about hosts, cookies,
//! caches and pages of other origins.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::harness::{
    Gateway, MockUpstream, Request, Setup, Step, free_address, get, request, response_bytes,
};
use crate::redis_server::RedisServer;

const FORM: &str = "application/x-www-form-urlencoded";
const BROWSER: &str = "text/html,application/xhtml+xml,*/*;q=0.8";
const SITE: &str = "
[[upstream.route]]
prefix = \"/\"
key = false

[upstream.route.screen]
fields = [\"email\"]
paths = [\"/signup\"]
mode = \"block\"
";

fn start(toml: &str, upstream: &MockUpstream) -> Gateway {
    let setup = Setup::with_bundled_table().append_toml(toml);
    setup.with_upstreams(&[upstream.address]).start()
}

fn form(path: &str, body: &str) -> Request {
    request("POST", path).with_header("Content-Type", FORM).body(body)
}

#[test]
fn everything_but_riskgates_own_paths_reaches_the_site_as_it_was_sent() {
    let upstream = MockUpstream::start();
    let gateway = start(SITE, &upstream);
    for (method, target) in [
        ("GET", "/"),
        ("GET", "/static/site.css?v=1"),
        ("GET", "/.well-known/security.txt"),
        ("HEAD", "/welcome"),
        ("GET", "/a//b/%C3%BC%2F;x=1?next=https://a.test/../b"),
        ("DELETE", "/account/1"),
        ("PROPFIND", "/dav"),
        ("GET", "/v1/users"),
    ] {
        let mut connection = gateway.connect();
        connection.send(&request(method, target).to_bytes());
        assert_eq!(connection.read_response_to(method).unwrap().status, 200, "{method} {target}");
        let seen = upstream.last_request();
        assert_eq!(seen.request_line(), format!("{method} {target} HTTP/1.1"));
    }
    let before = upstream.request_count();
    for target in [
        "/v1/public/other",
        "/v1/usage/",
        "/V1/usage",
        "/v1/%75sage",
        "/v1/assess/",
        "//v1/check/a@b.com",
        "/a/../v1/usage",
        "/%2e%2e/a",
        "/a%5Cb",
    ] {
        gateway.send_request(&get(target)).expect(404);
    }
    gateway.send_request(&get("/v1/assess")).expect(405);
    gateway.send_request(&get("/v1/usage")).expect(401);
    assert_eq!(upstream.request_count(), before);
}

#[test]
fn the_site_gets_the_clients_host_or_that_of_the_route() {
    let upstream = MockUpstream::start();
    let gateway = start(SITE, &upstream);
    gateway.send_request(&get("/").with_header("Host", "www.example.com")).expect(200);
    assert_eq!(upstream.last_request().header("Host"), "www.example.com");
    gateway
        .send_request(&form("/x", "a=b").with_header("Host", "www.example.com:8443"))
        .expect(200);
    assert_eq!(upstream.last_request().header("Host"), "www.example.com:8443");
    let fixed = SITE.replace("key = false", "key = false\nhost = \"inner.test:81\"");
    let gateway = start(&fixed, &upstream);
    gateway.send_request(&get("/").with_header("Host", "www.example.com")).expect(200);
    let seen = upstream.last_request();
    assert_eq!(seen.header("Host"), "inner.test:81");
    assert_eq!(seen.header("X-Forwarded-Host"), "www.example.com");
}

#[test]
fn the_clients_own_authorization_passes_before_the_store_is_read() {
    let (upstream, server) = (MockUpstream::start(), RedisServer::start());
    let setup = Setup::with_bundled_table().append_toml(SITE).with_redis(&server);
    let gateway = setup.with_upstreams(&[upstream.address]).start();
    for post in [get("/"), form("/x", "a=b")] {
        gateway
            .send_request(&post.with_header("Authorization", "Bearer eyJh.e30.c2ln"))
            .expect(200);
        assert_eq!(upstream.last_request().header("Authorization"), "Bearer eyJh.e30.c2ln");
    }
}

#[test]
fn the_clients_own_authorization_passes_and_a_key_never_does() {
    let upstream = MockUpstream::start();
    let gateway = start(SITE, &upstream);
    let key = gateway.create_active_key("acme", &[]);
    for value in ["Basic dXNlcjpwYXNz", "Bearer eyJhbGciOiJIUzI1NiJ9.e30.c2ln", "Token abc"] {
        for post in [get("/"), form("/x", "a=b")] {
            gateway.send_request(&post.with_header("Authorization", value)).expect(200);
            assert_eq!(upstream.last_request().header("Authorization"), value);
        }
    }
    let encoded = |text: &str| STANDARD.encode(text);
    for value in [
        format!("Bearer {key}"),
        format!("Basic {key}"),
        format!("bearer  {key}"),
        format!("Basic {}", encoded(&format!("u:{key}"))),
        format!("basic  {}", encoded(&format!("{key}:")).trim_end_matches('=')),
        format!("Basic {}!", encoded(&format!("user:my-{key}-x"))),
    ] {
        for post in [get("/"), form("/x", "a=b")] {
            gateway.send_request(&post.with_header("Authorization", &value)).expect(200);
            let seen = upstream.last_request();
            assert!(seen.header_values("Authorization").is_empty(), "{}", seen.head);
        }
    }
}

#[test]
fn cookies_caches_and_other_origins_are_the_sites_own_business() {
    let fields = "Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nAccess-Control-Allow-Origin: https://app.test\r\n\
                  Access-Control-Allow-Credentials: true\r\nVary: Origin\r\n";
    let upstream =
        MockUpstream::with_script(move |_| vec![Step::Send(response_bytes(200, fields, "page"))]);
    let gateway = start(SITE, &upstream);
    for request in [
        get("/"),
        form("/x", "a=b"),
        request("OPTIONS", "/api")
            .with_header("Origin", "https://app.test")
            .with_header("Access-Control-Request-Method", "PUT"),
    ] {
        let answer = gateway.send_request(&request.with_header("Origin", "https://app.test"));
        let answer = answer.expect(200);
        assert_eq!(answer.header_values("Set-Cookie"), ["a=1", "b=2"]);
        let allowed = answer.header("Access-Control-Allow-Origin");
        assert_eq!(allowed, Some("https://app.test"));
        assert_eq!(answer.header("Access-Control-Allow-Credentials"), Some("true"));
        assert_eq!(answer.header_values("Vary"), ["Origin"]);
        assert!(!answer.has_header("Cache-Control") && !answer.has_header("RateLimit"));
    }
    assert!(upstream.received_requests().iter().any(|it| it.head.starts_with("OPTIONS /api ")));
}

#[test]
fn only_the_paths_of_the_form_are_screened_in_every_spelling() {
    let upstream = MockUpstream::start();
    let gateway = start(SITE, &upstream);
    let bad = "email=x%40yopmail.com";
    for path in [
        "/signup",
        "/signup/",
        "/signup.json",
        "/SignUp",
        "/%73ignup",
        "//signup",
        "/signup/2",
        "/index.php/signup",
        "/?/signup",
        "/index.php?/signup",
        "/index.php?/signup&x=1",
        "/?%2Fsignup",
    ] {
        let refused = gateway.send_request(&form(path, bad)).expect(422);
        assert_eq!(refused.json()["error"], "email_refused", "{path}");
    }
    assert_eq!(upstream.request_count(), 0);
    for path in ["/login", "/", "/signups", "/a/signup"] {
        gateway.send_request(&form(path, bad)).expect(200);
        assert!(upstream.last_request().header_values("X-Riskgate-Action").is_empty(), "{path}");
    }
    gateway.send_request(&form("/signup", "email=jane%40gmail.com")).expect(200);
    assert_eq!(upstream.last_request().header("X-Riskgate-Action"), "pass");
}

#[test]
fn a_person_gets_a_page_and_a_program_gets_json() {
    let upstream = MockUpstream::start();
    let posts_only =
        "[[upstream.route]]\nprefix = \"/posts-only\"\nmethods = [\"POST\"]\nkey = false\n";
    let gateway = start(&format!("{SITE}{posts_only}"), &upstream);
    let typo = form("/signup", "email=jane%40gmial.com");
    let page = gateway.send_request(&typo.clone().with_header("Accept", BROWSER)).expect(422);
    assert_eq!(page.header("Content-Type"), Some("text/html; charset=utf-8"));
    assert!(page.text().contains("<h1>Please use another e-mail address.</h1>"), "{}", page.text());
    assert!(page.text().contains("Did you mean <strong>gmail.com</strong>?"), "{}", page.text());
    assert_eq!(page.header("X-Did-You-Mean"), Some("gmail.com"));
    assert!(page.header("Content-Security-Policy").unwrap().starts_with("default-src 'none'"));
    assert!(page.header_values("Vary").contains(&"Accept"));
    let json = gateway.send_request(&typo.with_header("Accept", "application/json, text/html"));
    let json = json.expect(422);
    assert_eq!(json.json()["error"], "email_refused");
    // A cache that has the one must not give it to who prefers the other.
    assert!(json.header_values("Vary").contains(&"Accept"));
    let other_method = request("DELETE", "/posts-only").with_header("Accept", BROWSER);
    let page = gateway.send_request(&other_method).expect(405);
    assert_eq!(page.header("Content-Type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.header("Allow"), Some("POST, OPTIONS"));
    let expect_page = |fields: &str, status: u16| {
        let mut connection = gateway.connect();
        let head = format!("POST /upload HTTP/1.1\r\nHost: a\r\nAccept: {BROWSER}\r\n{fields}\r\n");
        connection.send(head.as_bytes());
        let page = connection.read_response_to("POST").unwrap().expect(status);
        assert_eq!(page.header("Content-Type"), Some("text/html; charset=utf-8"), "{fields}");
        assert!(page.header_values("Vary").contains(&"Accept"), "{fields}");
    };
    expect_page("Content-Length: 99999999999\r\n", 413);
    expect_page("Content-Length: 1\r\nExpect: else\r\n", 417);
    // The API stays JSON.
    let api = get("/v1/usage").with_header("Accept", BROWSER);
    assert_eq!(gateway.send_request(&api).expect(401).json()["error"], "unauthorized");
    // Without a server.
    let gateway = Setup::new().append_toml(SITE).with_upstreams(&[free_address()]).start();
    let page = gateway.send_request(&get("/").with_header("Accept", BROWSER)).expect(500);
    assert!(page.text().contains("<h1>The service cannot be reached.</h1>"), "{}", page.text());
    let json = gateway.send_request(&get("/")).expect(500).json();
    assert_eq!(json["message"], "The service cannot be reached.");
}

#[test]
fn an_operator_may_refuse_forms_that_were_not_read() {
    let upstream = MockUpstream::start();
    let strict = SITE.replace("mode = \"block\"", "mode = \"block\"\nunscreened = \"block\"");
    let gateway = start(&strict, &upstream);
    let gzip = form("/signup", "email=x").with_header("Content-Encoding", "gzip");
    let refused = gateway.send_request(&gzip).expect(422).json();
    assert_eq!(
        (&refused["error"], &refused["detail"]),
        (&"form_unreadable".into(), &"encoded".into())
    );
    let long = form("/signup", &format!("x={}&email=x@yopmail.com", "y".repeat(70_000)));
    let refused = gateway.send_request(&long).expect(422).json();
    assert_eq!(refused["detail"], "too_long");
    assert_eq!(upstream.request_count(), 0);
    for body in ["name=jane", "", "email=jane%40gmail.com"] {
        gateway.send_request(&form("/signup", body)).expect(200);
    }
    let lenient = strict.replace("mode = \"block\"", "mode = \"annotate\"");
    let gateway = start(&lenient, &upstream);
    gateway.send_request(&gzip).expect(200);
    assert_eq!(upstream.last_request().header("X-Riskgate-Action"), "unscreened");
}

#[test]
fn in_shadow_the_rate_of_the_form_refuses_nobody() {
    let upstream = MockUpstream::start();
    let limited = SITE.replace("mode = \"block\"", "mode = \"block\"\nmax_per_client = \"1/h\"");
    let statuses = |toml: &str| {
        let gateway = start(toml, &upstream);
        [(); 3].map(|()| gateway.send_request(&form("/signup", "email=a%40gmail.com")).status)
    };
    assert_eq!(statuses(&limited), [200, 429, 429]);
    assert_eq!(statuses(&limited.replace("\"block\"", "\"shadow\"")), [200, 200, 200]);
}

#[test]
fn check_names_what_is_wrong_with_a_route() {
    for (wrong, expected) in [
        ("host = \"http://a.test\"", "upstream.route \"/app\": host: expected a host such as"),
        ("host = \"a.test/x\"", "upstream.route \"/app\": host: expected a host such as"),
        ("deadline = \"soon\"", "upstream.route \"/app\": deadline: expected a duration"),
        ("methods = []", "upstream.route \"/app\": methods: expected a list of methods"),
    ] {
        let toml = format!("[[upstream.route]]\nprefix = \"/app\"\n{wrong}\n");
        let checked = Setup::new().append_toml(&toml).cli(&["check"]).expect(78);
        assert!(checked.stderr.contains(expected), "{wrong}: {}", checked.stderr);
    }
    for (prefix, expected) in [
        ("/v1/usage", "expected a path apart from riskgate's own"),
        ("/V1/public/x", "expected a path apart from riskgate's own"),
        ("/v1/assess", "expected a path apart from riskgate's own"),
        ("/a/", "expected a path without a / at its end"),
        ("a", "expected a path with a / at its start"),
        ("/a/*", "all paths below it belong to it, without a pattern"),
        ("/a?b", "expected a path such as /v1/signup, without a query"),
        ("https://a.test/b", "without scheme and host"),
        ("/a b", "expected a path of letters, digits, -, ., _ and ~"),
    ] {
        let toml = format!("[[upstream.route]]\nprefix = \"{prefix}\"\n");
        let checked = Setup::new().append_toml(&toml).cli(&["check"]).expect(78);
        // What may be a secret in an URL or a query is hidden.
        let is_shown = !prefix.contains("://") && !prefix.contains('?');
        let shown = if is_shown { format!("upstream.route \"{prefix}\": ") } else { String::new() };
        let place = format!("{shown}prefix: ");
        assert!(checked.stderr.contains(&place), "{prefix}: {}", checked.stderr);
        assert!(checked.stderr.contains(expected), "{prefix}: {}", checked.stderr);
    }
    let outside = SITE.replace("prefix = \"/\"", "prefix = \"/app\"\nmethods = [\"POST\"]");
    let checked = Setup::new().append_toml(&outside).cli(&["check"]).expect(78);
    assert!(
        checked.stderr.contains("screen.paths: expected a list of paths"),
        "{}",
        checked.stderr
    );
}
