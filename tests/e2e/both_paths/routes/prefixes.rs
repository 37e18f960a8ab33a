//! Routes: unknown paths and methods, and additional prefixes that riskgate forwards
//! (`[[upstream.route]]`).

use crate::harness::{
    Gateway, MockUpstream, Setup, Step, free_address, get, request, response_bytes, shared_gateway,
};

const ROUTES_TOML: &str = "
[[upstream.route]]
prefix = \"/v1/signup\"
methods = [\"GET\", \"POST\"]

[[upstream.route]]
prefix = \"/open\"
key = false

[[upstream.route]]
prefix = \"/free-of-charge\"
counts = false
";

fn start_gateway_with_routes(upstream: &MockUpstream) -> (Gateway, String) {
    let setup = Setup::new()
        .with_upstreams(&[upstream.address])
        .set("plans.free", "5")
        .append_toml(ROUTES_TOML);
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    (gateway, key)
}

#[test]
fn a_post_with_a_body_is_forwarded_whole() {
    let upstream = MockUpstream::with_script(|_| vec![Step::Send(response_bytes(201, "", "made"))]);
    let (gateway, key) = start_gateway_with_routes(&upstream);
    let body = "{\"email\":\"user@example.com\"}".repeat(1000);
    let mut connection = gateway.connect();
    for path in ["/v1/signup", "/v1/signup/", "/v1/signup/form?step=2&x=%20"] {
        let post =
            request("POST", path).key(&key).with_header("Content-Type", "text/plain").body(&body);
        let answer = connection.send_request(&post).expect(201);
        assert_eq!(answer.text(), "made");
        assert_eq!(answer.header("X-Riskgate-Source"), Some("upstream"));
        let seen = upstream.last_request();
        assert_eq!(seen.request_line(), format!("POST {path} HTTP/1.1"));
        assert_eq!(seen.body, body.as_bytes());
        assert_eq!(seen.header("Content-Type"), "text/plain");
        assert_eq!(seen.header("X-Riskgate-Account"), "acme");
        assert!(seen.header_values("Authorization").is_empty());
    }
    assert_eq!(gateway.get_month_count(&key), 3);
}

/// The order of the routes in the config has no effect.
#[test]
fn a_route_that_needs_a_key_below_a_keyless_route_refuses_calls_without_a_key() {
    let wide = "[[upstream.route]]\nprefix = \"/open\"\nkey = false\n";
    let strict = "[[upstream.route]]\nprefix = \"/open/admin\"\n";
    for routes in [[wide, strict].concat(), [strict, wide].concat()] {
        let upstream = MockUpstream::start();
        let gateway = Setup::new().with_upstreams(&[upstream.address]).append_toml(&routes).start();
        let key = gateway.create_active_key("acme", &[]);
        for path in ["/open", "/open/a", "/open/administrators"] {
            gateway.send_request(&get(path)).expect(200);
        }
        for path in ["/open/admin", "/open/admin/", "/open/admin/users?x=1"] {
            gateway.send_request(&get(path)).expect(401);
            gateway.get(path, &key).expect(200);
        }
        // A target that a server could read as the stricter path has the stricter route.
        for path in ["/open/%61dmin", "/open/admin;x/users", "/open/Admin", "/open//admin.json"] {
            gateway.send_request(&get(path)).expect(401);
        }
        gateway.send_request(&get("/open/./admin")).expect(404);
        assert_eq!(gateway.get_month_count(&key), 3);
    }
}

#[test]
fn check_refuses_two_routes_with_the_same_prefix() {
    let twice = "[[upstream.route]]\nprefix = \"/open\"\nkey = false\n".repeat(2);
    let checked = Setup::new().append_toml(&twice).cli(&["check"]).expect(78);
    let expected = "upstream.route \"/open\": prefix: expected a prefix that no other upstream.route has, \
                    but found \"/open\"";
    assert!(checked.stderr.contains(expected), "{}", checked.stderr);
}

#[test]
fn a_route_can_be_configured_without_a_key_or_without_counting() {
    let upstream = MockUpstream::start();
    let (gateway, key) = start_gateway_with_routes(&upstream);
    for _ in 0..8 {
        let answer = gateway.send_request(&get("/open/item")).expect(200);
        assert!(!answer.has_header("RateLimit"));
    }
    let forged = get("/open").with_header("X-Riskgate-Account", "boss").key(&key);
    gateway.send_request(&forged).expect(200);
    let seen = upstream.last_request();
    assert!(
        seen.header_values("X-Riskgate-Account").is_empty()
            && seen.header_values("Authorization").is_empty()
    );
    for _ in 0..8 {
        gateway.get("/free-of-charge", &key).expect(200);
    }
    gateway.send_request(&get("/free-of-charge")).expect(401);
    assert_eq!(gateway.get_month_count(&key), 0);
}

#[test]
fn a_post_is_not_retried_if_its_reused_connection_closes() {
    let upstream = MockUpstream::with_script(|seen| match seen.index_on_connection {
        0 => vec![Step::Send(response_bytes(200, "", "ok"))],
        _ => vec![Step::Close],
    });
    let (gateway, key) = start_gateway_with_routes(&upstream);
    let post = || request("POST", "/v1/signup").key(&key).body("once");
    gateway.send_request(&post()).expect(200);
    // The upstream server closes the reused connection after it has received the body. riskgate
    // does not retry the POST, because the server may have processed it.
    // The connection may not be idle yet when the next request comes, which then gets a new one.
    let mut sent = 1;
    let failed = std::iter::repeat_with(|| {
        sent += 1;
        gateway.send_request(&post())
    })
    .find(|answer| answer.status != 200);
    assert_eq!(failed.unwrap().status, 500);
    let received = upstream.received_requests();
    assert_eq!(received.iter().filter(|seen| seen.body == b"once").count(), sent);
}

#[test]
fn a_post_without_a_reachable_upstream_is_refunded() {
    let setup = Setup::new()
        .with_upstreams(&[free_address()])
        .set("plans.free", "5")
        .append_toml(ROUTES_TOML);
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    for _ in 0..8 {
        let post = request("POST", "/v1/signup").key(&key).body("a body that nobody reads");
        let answer = gateway.send_request(&post).expect(500);
        assert_eq!(answer.json()["error"], "upstream_unavailable");
    }
    assert_eq!(gateway.get_month_count(&key), 0);
}

#[test]
fn an_unknown_path_is_404_with_or_without_a_key() {
    let (gateway, key) = shared_gateway();
    let body = r#"{"error":"not_found","message":"No such endpoint.","detail":null}"#;
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v2/usage",
        "/v1/usage/",
        "//v1/usage",
        "/v1//usage",
        "/v1/./usage",
        "/v1/public/../usage",
        "/v1/check/../usage",
        "/v1%2Fusage",
        "/%761/usage",
        "/V1/usage",
        "/v1/public/domain",
        "/v1/public/domain/",
        "/v1/public/domain/a.com/b",
        "/v1/public/domain/a.com/",
        "/v1/public/domain/..",
        "/v1/public/domain/%2e%2e",
        "/v1/public/top-domains/",
        "/v1/check/",
        "/v1/check/a@b.com/c",
        "/v1/check/%2E%2E",
        "/healthz",
        "/metrics",
        "v1/usage",
        "*",
    ] {
        for request in [get(path), get(path).key(key)] {
            let answer = gateway.send_request(&request).expect(404);
            assert_eq!(answer.text(), body, "{path}");
            assert!(!answer.has_header("Location"), "never redirected");
        }
    }
}

#[test]
fn another_method_on_a_known_path_is_405_with_allow() {
    let (gateway, key) = shared_gateway();
    let body = r#"{"error":"method_not_allowed","message":"This method is not allowed here.","detail":null}"#;
    for path in [
        "/v1/usage",
        "/v1/public/top-domains",
        "/v1/public/domain/yopmail.com",
        "/v1/check/user@example.com",
    ] {
        for method in ["POST", "PUT", "DELETE", "PATCH", "QUERY", "get"] {
            let answer = gateway.send_request(&request(method, path).key(key)).expect(405);
            assert_eq!(answer.text(), body, "{method} {path}");
            assert_eq!(answer.header("Allow"), Some("GET, HEAD, OPTIONS"), "{method} {path}");
        }
    }
    // riskgate matches the route before it checks the key.
    gateway.send_request(&request("POST", "/v1/usage")).expect(405);
}

#[test]
fn a_route_for_a_whole_site_refuses_methods_in_another_case() {
    let upstream = MockUpstream::start();
    let site = "[[upstream.route]]\nprefix = \"/\"\nkey = false\n";
    let gateway = Setup::new().with_upstreams(&[upstream.address]).append_toml(site).start();
    for method in ["TRACE", "trace", "Connect", "get", "HEAd", "options"] {
        let answer = gateway.send_request(&request(method, "/signup")).expect(405);
        let allow = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
        assert_eq!(answer.header("Allow"), Some(allow), "{method}");
    }
    gateway.send_request(&request("get", "/signup").body("email=a@b.com")).expect(405);
    assert_eq!(upstream.request_count(), 0);
    gateway.send_request(&request("post", "/signup")).expect(200);
}

#[test]
fn a_route_may_ask_for_the_statuses_of_a_gateway() {
    let routes = "[[upstream.route]]\nprefix = \"/plain\"\nkey = false\n\
                  [[upstream.route]]\nprefix = \"/gateway\"\nkey = false\n\
                  failure_status = \"gateway\"\n";
    let assert_status = |gateway: &Gateway, path: &str, status: u16, code: &str| {
        let answer = gateway.send_request(&get(path)).expect(status);
        assert_eq!(answer.header("X-Fail-Open"), Some("true"), "{path}");
        assert!(answer.text().contains(&format!("\"error\":\"{code}\"")), "{}", answer.text());
    };
    let setup = Setup::new().with_upstreams(&[free_address()]).append_toml(routes);
    let gateway = setup.start();
    assert_status(&gateway, "/gateway", 502, "upstream_unavailable");
    assert_status(&gateway, "/plain", 500, "upstream_unavailable");
    let silent = MockUpstream::with_script(|_| vec![Step::StaySilent]);
    let setup = Setup::new().with_upstreams(&[silent.address]).append_toml(routes);
    let gateway = setup.set_text("upstream.deadline", "300ms").start();
    assert_status(&gateway, "/gateway", 504, "upstream_timeout");
    assert_status(&gateway, "/plain", 500, "upstream_timeout");
}
