//! Further prefixes that are passed upstream: `[[upstream.route]]`.

use crate::harness::{Gateway, Setup, StandIn, Step, answer, free_port, get, request};

const ROUTES: &str = "
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

fn start(stand_in: &StandIn) -> (Gateway, String) {
    let setup = Setup::new().upstream(&[stand_in.address]).set("plans.free", "5").tail(ROUTES);
    let gateway = setup.start();
    let key = gateway.key("acme", &[]);
    (gateway, key)
}

#[test]
fn a_post_with_a_body_crosses_whole() {
    let stand_in = StandIn::playing(|_| vec![Step::Send(answer(201, "", "made"))]);
    let (gateway, key) = start(&stand_in);
    let body = "{\"email\":\"user@example.com\"}".repeat(1000);
    let mut connection = gateway.connect();
    for path in ["/v1/signup", "/v1/signup/", "/v1/signup/form?step=2&x=%20"] {
        let post = request("POST", path).key(&key).with("Content-Type", "text/plain").body(&body);
        let answer = connection.ask(&post).expect(201);
        assert_eq!(answer.text(), "made");
        assert_eq!(answer.header("X-Riskgate-Source"), Some("upstream"));
        let seen = stand_in.last();
        assert_eq!(seen.line(), format!("POST {path} HTTP/1.1"));
        assert_eq!(seen.body, body);
        assert_eq!(seen.header("Content-Type"), "text/plain");
        assert_eq!(seen.header("X-Riskgate-Account"), "acme");
        assert!(seen.all("Authorization").is_empty());
    }
    assert_eq!(gateway.month_count(&key), 3);
}

/// The order in which routes are written says nothing.
#[test]
fn a_stricter_route_below_a_wider_one_keeps_callers_without_a_key_out() {
    let wide = "[[upstream.route]]\nprefix = \"/open\"\nkey = false\n";
    let strict = "[[upstream.route]]\nprefix = \"/open/admin\"\n";
    for routes in [[wide, strict].concat(), [strict, wide].concat()] {
        let stand_in = StandIn::start();
        let gateway = Setup::new().upstream(&[stand_in.address]).tail(&routes).start();
        let key = gateway.key("acme", &[]);
        for path in ["/open", "/open/a", "/open/administrators"] {
            gateway.ask(&get(path)).expect(200);
        }
        for path in ["/open/admin", "/open/admin/", "/open/admin/users?x=1"] {
            gateway.ask(&get(path)).expect(401);
            gateway.get(path, &key).expect(200);
        }
        // What a server could read as the stricter path reaches none.
        for path in ["/open/%61dmin", "/open/admin;x/users", "/open/Admin", "/open/./admin"] {
            gateway.ask(&get(path)).expect(404);
        }
        assert_eq!(gateway.month_count(&key), 3);
    }
}

#[test]
fn the_same_prefix_twice_is_refused() {
    let twice = "[[upstream.route]]\nprefix = \"/open\"\nkey = false\n".repeat(2);
    let checked = Setup::new().tail(&twice).cli(&["check"]).expect(78);
    let expected = "upstream.route.1.prefix: expected a prefix that no other upstream.route has, \
                    but found \"/open\"";
    assert!(checked.stderr.contains(expected), "{}", checked.stderr);
}

#[test]
fn a_route_may_go_without_key_or_count() {
    let stand_in = StandIn::start();
    let (gateway, key) = start(&stand_in);
    for _ in 0..8 {
        let answer = gateway.ask(&get("/open/door")).expect(200);
        assert!(!answer.has("RateLimit"));
    }
    let forged = get("/open").with("X-Riskgate-Account", "boss").key(&key);
    gateway.ask(&forged).expect(200);
    let seen = stand_in.last();
    assert!(seen.all("X-Riskgate-Account").is_empty() && seen.all("Authorization").is_empty());
    for _ in 0..8 {
        gateway.get("/free-of-charge", &key).expect(200);
    }
    gateway.ask(&get("/free-of-charge")).expect(401);
    assert_eq!(gateway.month_count(&key), 0);
}

#[test]
fn a_body_is_not_sent_twice_and_a_lost_one_is_given_back() {
    let stand_in = StandIn::playing(|seen| match seen.number {
        0 => vec![Step::Send(answer(200, "", "ok"))],
        _ => vec![Step::Close],
    });
    let (gateway, key) = start(&stand_in);
    let post = || request("POST", "/v1/signup").key(&key).body("once");
    gateway.ask(&post()).expect(200);
    // The reused connection closes behind the body: who knows what the upstream did with it.
    let second = gateway.ask(&post());
    assert_eq!(second.status, 500, "{}", second.text());
    assert_eq!(stand_in.seen().iter().filter(|seen| seen.body == "once").count(), 2);
}

#[test]
fn a_post_finds_no_upstream_and_is_given_back() {
    let setup = Setup::new().upstream(&[free_port()]).set("plans.free", "5").tail(ROUTES);
    let gateway = setup.start();
    let key = gateway.key("acme", &[]);
    for _ in 0..8 {
        let post = request("POST", "/v1/signup").key(&key).body("a body that nobody reads");
        let answer = gateway.ask(&post).expect(500);
        assert_eq!(answer.json()["error"], "upstream_unavailable");
    }
    assert_eq!(gateway.month_count(&key), 0);
}
