//! Pages of other origins, on routes whose `origins` may read the responses, and on routes with a
//! key.

use crate::harness::{
    Gateway, MockUpstream, Request, Response, Setup, Step, get, request, response_bytes,
};

const APP: &str = "https://app.example.com";
const ROUTE: &str = "
[[upstream.route]]
prefix = \"/\"
key = false
origins = [\"https://app.example.com\", \"https://*.example.net\"]

[upstream.route.cors]
expose_headers = [\"X-Total\"]
credentials = true

[upstream.route.screen]
fields = [\"email\"]
mode = \"block\"
max_per_client = \"3/h\"
";

fn start(toml: &str, upstream: &MockUpstream) -> Gateway {
    let setup = Setup::with_bundled_table().append_toml(toml);
    setup.with_upstreams(&[upstream.address]).start()
}

/// A server that grants everything to everybody.
fn start_permissive_upstream() -> MockUpstream {
    let fields = "Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Headers: *\r\n\
                  X-Total: 3\r\nVary: Cookie\r\n";
    MockUpstream::with_script(move |_| vec![Step::Send(response_bytes(200, fields, "page"))])
}

fn preflight(origin: &str, headers: &str) -> Request {
    request("OPTIONS", "/api/cart")
        .with_header("Origin", origin)
        .with_header("Access-Control-Request-Method", "PUT")
        .with_header("Access-Control-Request-Headers", headers)
}

fn assert_grants_nothing(answer: &Response) {
    assert!(
        !answer
            .headers
            .iter()
            .any(|(name, _)| name.to_ascii_lowercase().starts_with("access-control-")),
        "{:?}",
        answer.headers
    );
}

#[test]
fn pages_of_a_routes_origins_may_read_every_response() {
    let upstream = start_permissive_upstream();
    let get_only = "[[upstream.route]]\nprefix = \"/read\"\nkey = false\norigins = [\"https://app.example.com\"]\n\
                    [upstream.route.cors]\nexpose_headers = [\"X-Total\"]\ncredentials = true\n";
    let gateway = start(&format!("{ROUTE}{get_only}"), &upstream);
    let form = |email: &str| {
        request("POST", "/signup")
            .with_header("Content-Type", "application/x-www-form-urlencoded")
            .body(&format!("email={email}"))
    };
    let bad = || form("x%40yopmail.com");
    for (status, request) in [
        (200, get("/")),
        (200, form("a%40gmail.com")),
        (422, bad()),
        (404, get("/v1/assess/x")),
        (405, request("DELETE", "/read")),
        (422, bad()),
        (429, bad()),
    ] {
        let is_on_route = status != 404;
        let answer = gateway.send_request(&request.with_header("Origin", APP)).expect(status);
        if !is_on_route {
            assert_grants_nothing(&answer);
            continue;
        }
        assert_eq!(
            answer.header_values("Access-Control-Allow-Origin"),
            [APP],
            "{:?}",
            answer.headers
        );
        assert_eq!(answer.header("Access-Control-Allow-Credentials"), Some("true"));
        let exposed = answer.header("Access-Control-Expose-Headers").unwrap();
        assert!(exposed.ends_with("X-Evidence-Date, X-Total"), "{exposed}");
        assert!(answer.header_values("Vary").contains(&"Origin"), "{:?}", answer.headers);
        assert!(!answer.has_header("Access-Control-Allow-Headers"));
    }
}

#[test]
fn a_page_of_another_origin_is_served_but_may_not_read() {
    let upstream = start_permissive_upstream();
    let gateway = start(ROUTE, &upstream);
    for origin in ["https://other.example", "http://app.example.com", "null", "https://example.net"]
    {
        let answer = gateway.send_request(&get("/").with_header("Origin", origin)).expect(200);
        assert_grants_nothing(&answer);
        assert_eq!(answer.header_values("Vary"), ["Cookie", "Origin"]);
        let answer = gateway.send_request(&preflight(origin, "x-a")).expect(204);
        assert_grants_nothing(&answer);
    }
    let answer = gateway.send_request(&get("/")).expect(200);
    assert_grants_nothing(&answer);
    assert_eq!(answer.header_values("Vary"), ["Cookie", "Origin"]);
}

#[test]
fn riskgate_answers_the_preflights_of_a_route_with_origins() {
    let upstream = start_permissive_upstream();
    let gateway = start(ROUTE, &upstream);
    let asked = "content-type,x-csrf-token, baggage";
    for origin in [APP, "https://a.example.net"] {
        let answer = gateway.send_request(&preflight(origin, asked)).expect(204);
        assert_eq!(answer.header("Access-Control-Allow-Origin"), Some(origin));
        assert_eq!(answer.header("Access-Control-Allow-Credentials"), Some("true"));
        assert!(answer.header("Access-Control-Allow-Methods").unwrap().contains("PUT"));
        let allowed = answer.header("Access-Control-Allow-Headers").unwrap();
        assert!(allowed.ends_with("x-csrf-token, baggage"), "{allowed}");
        assert_eq!(answer.header("Access-Control-Max-Age"), Some("600"));
    }
    assert_eq!(upstream.request_count(), 0);
    let listed = ROUTE.replace("credentials = true", "allow_headers = [\"X-Csrf-Token\"]");
    let gateway = start(&listed, &upstream);
    let answer = gateway.send_request(&preflight(APP, asked)).expect(204);
    assert_eq!(answer.header("Access-Control-Allow-Headers"), Some("X-Csrf-Token"));
    assert!(!answer.has_header("Access-Control-Allow-Credentials"));
}

#[test]
fn a_preflight_of_a_route_with_a_key_gets_the_fields_that_it_asks_for() {
    let upstream = start_permissive_upstream();
    let route = "[[upstream.route]]\nprefix = \"/api\"\nmethods = [\"GET\", \"PUT\"]\n";
    let gateway = start(route, &upstream);
    gateway.create_active_key("acme", &["--origin", APP]);
    let allowed = |origin: &str, names: &str| {
        let answer = gateway.send_request(&preflight(origin, names));
        answer.header("Access-Control-Allow-Headers").map(str::to_owned)
    };
    let usual = "Authorization, Content-Type, Traceparent, X-Request-Id";
    assert_eq!(allowed(APP, "sentry-trace"), Some(format!("{usual}, sentry-trace")));
    assert_eq!(allowed(APP, "authorization,tracestate"), Some(format!("{usual}, tracestate")));
    assert_eq!(allowed(APP, "x a, b\u{e9}, ok"), Some(format!("{usual}, ok")));
    assert_eq!(allowed("https://other.example", "sentry-trace"), None);
}

#[test]
fn faults_of_origins_and_cors_are_told_with_their_place() {
    let refused = |route: &str| {
        let toml = format!("[[upstream.route]]\nprefix = \"/api\"\n{route}\n");
        Setup::new().append_toml(&toml).cli(&["check"]).expect(78).stderr
    };
    for (route, expected) in [
        (
            "key = false\norigins = []",
            "upstream.route \"/api\": origins: expected a list of origins",
        ),
        (
            "key = false\norigins = [\"*\"]",
            "upstream.route \"/api\": origins: expected a list of origins",
        ),
        (
            "key = false\norigins = [\"https://a.example/x\"]",
            "upstream.route \"/api\": origins: expected a list of origins",
        ),
        (
            "origins = [\"https://a.example\"]",
            "upstream.route \"/api\": origins: expected none where key is true",
        ),
        (
            "key = false\n[upstream.route.cors]\ncredentials = true",
            "upstream.route \"/api\": cors: expected origins beside it",
        ),
        (
            "key = false\norigins = [\"https://a.example\"]\n[upstream.route.cors]\nallow_headers = [\"*\"]",
            "upstream.route \"/api\": cors.allow_headers: expected a list of names",
        ),
        (
            "key = false\norigins = [\"https://a.example\"]\n[upstream.route.cors]\n\
             expose_headers = [\"Transfer-Encoding\"]",
            "upstream.route \"/api\": cors.expose_headers: expected a list of names",
        ),
        (
            "key = false\norigins = [\"https://a.example\"]\n[upstream.route.cors]\n\
             allow_headers = [\"x a\"]",
            "upstream.route \"/api\": cors.allow_headers: expected a list of names",
        ),
    ] {
        let text = refused(route);
        assert!(text.contains(expected), "{route}: {text}");
        assert!(text.contains("riskgate.toml:"), "{route}: {text}");
    }
}
