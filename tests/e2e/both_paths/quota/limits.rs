//! The monthly quota: never exceeded, reported exactly, and spent only by calls that count.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::both_paths::http::responses::{seconds_until, start_of_next_month};
use crate::harness::{Connection, Gateway, Setup, get, max_held_calls, request, wait_until};

const DOMAIN: &str = "/v1/public/domain/first.test";

/// Eight parallel clients, spread over the gateways, make `calls` calls in all. Returns the number
/// of admitted calls.
fn make_calls_in_parallel(gateways: &[SocketAddr], key: &str, calls: usize) -> usize {
    let (next, admitted) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for client in 0..8 {
            let (next, admitted) = (&next, &admitted);
            scope.spawn(move || {
                let mut connection = Connection::open(gateways[client % gateways.len()]);
                while next.fetch_add(1, Ordering::SeqCst) < calls {
                    match connection.send_request(&get(DOMAIN).key(key)).status {
                        200 => admitted.fetch_add(1, Ordering::SeqCst),
                        429 => 0,
                        status => panic!("{status}"),
                    };
                }
            });
        }
    });
    admitted.into_inner()
}

fn spend_calls(gateway: &Gateway, key: &str, calls: u64) {
    let mut connection = gateway.connect();
    for _ in 0..calls {
        connection.send_request(&get(DOMAIN).key(key)).expect(200);
    }
}

#[test]
fn of_400_parallel_calls_exactly_the_limit_of_100_is_admitted() {
    let gateway = Setup::new().set("plans.free", "100").start();
    let key = gateway.create_active_key("acme", &[]);
    assert_eq!(make_calls_in_parallel(&[gateway.http], &key, 400), 100);
    assert_eq!(gateway.get_month_count(&key), 100);
    let refused = gateway.get_domain("first.test", &key).expect(429);
    assert_eq!(refused.rate_limit_remaining(), 0);
    assert_eq!(refused.header("RateLimit-Policy"), Some("\"monthly\";q=100"));
}

#[test]
fn exactly_the_limit_of_an_account_with_its_own_limit_is_admitted() {
    let gateway = Setup::new().start();
    for limit in [1, 7, 333] {
        let account = format!("own-{limit}");
        gateway.cli(&["accounts", "set", &account, "--limit", &limit.to_string()]).expect(0);
        let key = gateway.create_active_key(&account, &[]);
        assert_eq!(make_calls_in_parallel(&[gateway.http], &key, 4 * limit), limit, "{limit}");
        assert_eq!(gateway.get_month_count(&key), limit as u64);
    }
}

#[test]
fn two_processes_on_one_store_never_admit_more_than_the_limit() {
    let first = Setup::new().set("plans.free", "300").start();
    let store = format!("sqlite:{}", first.path("riskgate.db").display());
    let second = Setup::new().set("plans.free", "300").set_text("store.url", &store).start();
    let key = first.create_active_key("acme", &[]);
    wait_until("the second process knows the key", || second.get("/v1/usage", &key).status == 200);
    let both = [first.http, second.http];
    let mut sum = make_calls_in_parallel(&both, &key, 1200);
    assert!(sum <= 300, "{sum}");
    // The other process returns its unspent lease, so in the end no call is lost.
    wait_until("every call of the limit could be spent", || {
        sum += make_calls_in_parallel(&both, &key, 8);
        sum >= 300
    });
    assert_eq!(sum, 300);
    assert_eq!(make_calls_in_parallel(&both, &key, 40), 0);
    wait_until("both gateways report the spent calls", || {
        first.get_month_count(&key) == 300 && second.get_month_count(&key) == 300
    });
}

#[test]
fn killing_one_of_two_processes_loses_at_most_a_lease_and_never_exceeds_the_limit() {
    let first = Setup::new().set("plans.free", "300").start();
    let store = format!("sqlite:{}", first.path("riskgate.db").display());
    let second = Setup::new().set("plans.free", "300").set_text("store.url", &store).start();
    let key = first.create_active_key("acme", &[]);
    wait_until("the second process knows the key", || second.get("/v1/usage", &key).status == 200);
    let mut sum = make_calls_in_parallel(&[first.http, second.http], &key, 100);
    let second = second.crash_and_restart();
    let both = [first.http, second.http];
    let at_least = 300 - max_held_calls(300) as usize;
    wait_until("all but one lease could be spent", || {
        sum += make_calls_in_parallel(&both, &key, 40);
        sum >= at_least
    });
    sum += make_calls_in_parallel(&both, &key, 100);
    assert!((at_least..=300).contains(&sum), "{sum}");
}

#[test]
fn the_rate_limit_headers_are_exact_and_fall_by_one() {
    let gateway = Setup::new().set("plans.free", "100").start();
    let key = gateway.create_active_key("acme", &[]);
    let mut connection = gateway.connect();
    for call in 1..=100u64 {
        let response = connection.send_request(&get(DOMAIN).key(&key)).expect(200);
        assert_eq!(response.header("RateLimit-Policy"), Some("\"monthly\";q=100"));
        let value = response.header("RateLimit").unwrap().to_owned();
        let left: i64 = value.rsplit_once(";t=").unwrap().1.parse().unwrap();
        assert_eq!(value, format!("\"monthly\";r={};t={left}", 100 - call));
        assert!((left - seconds_until(&start_of_next_month())).abs() <= 60, "{value}");
    }
    connection.send_request(&get(DOMAIN).key(&key)).expect(429);
}

#[test]
fn every_counted_answer_carries_the_rate_limit_headers() {
    let gateway = Setup::new().set("plans.free", "100").start();
    let key = gateway.create_active_key("acme", &[]);
    let mut left = 100;
    for (path, status) in [
        (DOMAIN, 200),
        ("/v1/public/top-domains", 200),
        ("/v1/public/domain/a..b", 422),
        ("/v1/check/%ff", 422),
    ] {
        left -= 1;
        assert_eq!(gateway.get(path, &key).expect(status).rate_limit_remaining(), left, "{path}");
    }
    let head = gateway.send_request(&request("HEAD", DOMAIN).key(&key)).expect(200);
    assert_eq!(head.rate_limit_remaining(), left - 1, "HEAD counts as GET does");
}

#[test]
fn refusals_are_not_counted_except_422s() {
    let gateway = Setup::new().set("plans.free", "50").start();
    let key = gateway.create_active_key("acme", &["--origin", "https://app.example.com"]);
    let calls = [
        (get(DOMAIN), 401),
        (get(DOMAIN).key("rg_00000000000000000000000000000000"), 401),
        (get(DOMAIN).key(&key).with_header("Origin", "https://evil.example"), 403),
        (get("/v1/nowhere").key(&key), 404),
        (request("POST", DOMAIN).key(&key), 405),
        (request("OPTIONS", DOMAIN).key(&key), 204),
        (get("/v1/usage").key(&key), 200),
        (request("HEAD", "/v1/usage").key(&key), 200),
    ];
    for (request, status) in &calls {
        gateway.send_request(request).expect(*status);
    }
    assert_eq!(gateway.get_month_count(&key), 0, "none of these counts");
    // A request that the connection handler refuses is no call either.
    let mut connection = gateway.connect();
    connection
        .send(format!("GET {DOMAIN} HTTP/1.1\r\nAuthorization: Bearer {key}\r\n\r\n").as_bytes());
    assert_eq!(connection.read_response().unwrap().status, 400);
    assert_eq!(gateway.get_month_count(&key), 0);
    gateway.get("/v1/public/domain/a..b", &key).expect(422);
    assert_eq!(gateway.get_month_count(&key), 1, "a 422 counts");
    for _ in 0..49 {
        gateway.get(DOMAIN, &key).expect(200);
    }
    for _ in 0..5 {
        gateway.get(DOMAIN, &key).expect(429);
    }
    assert_eq!(gateway.get_month_count(&key), 50, "a 429 does not count");
}

#[test]
fn the_gates_are_checked_in_order() {
    let gateway = Setup::new().set("plans.free", "1").start();
    let key = gateway.create_active_key("acme", &["--origin", "https://app.example.com"]);
    gateway.get(DOMAIN, &key).expect(200);
    let bad_origin = |target: &str| get(target).with_header("Origin", "https://evil.example");
    let bad_name = "/v1/public/domain/a..b";
    // Each request fails at several gates; riskgate reports the first.
    gateway.send_request(&request("POST", "/nowhere")).expect(404);
    gateway.send_request(&request("POST", bad_name)).expect(405);
    gateway.send_request(&bad_origin(bad_name)).expect(401);
    gateway.send_request(&bad_origin(bad_name).key(&key)).expect(403);
    gateway.send_request(&get(bad_name).key(&key)).expect(429);
    let other = gateway.create_active_key("other", &[]);
    gateway.send_request(&get(bad_name).key(&other)).expect(422);
}

#[test]
fn all_keys_of_an_account_share_its_quota_and_other_accounts_do_not() {
    let gateway = Setup::new().set("plans.free", "10").start();
    let (one, two) =
        (gateway.create_active_key("acme", &[]), gateway.create_active_key("acme", &[]));
    let other = gateway.create_active_key("other", &[]);
    spend_calls(&gateway, &one, 6);
    spend_calls(&gateway, &two, 4);
    for key in [&one, &two] {
        gateway.get(DOMAIN, key).expect(429);
        assert_eq!(gateway.get_month_count(key), 10);
    }
    assert_eq!(gateway.get(DOMAIN, &other).expect(200).rate_limit_remaining(), 9);
}

#[test]
fn counts_are_exact_after_an_orderly_restart() {
    let gateway = Setup::new().set("plans.free", "1000").start();
    let key = gateway.create_active_key("acme", &[]);
    spend_calls(&gateway, &key, 137);
    let gateway = gateway.restart();
    assert_eq!(gateway.get_month_count(&key), 137);
    assert_eq!(gateway.get(DOMAIN, &key).expect(200).rate_limit_remaining(), 1000 - 138);
    let usage = gateway.restart().cli(&["usage", "--json"]).expect(0).json();
    assert_eq!(usage[0]["month_count"], 138);
}

#[test]
fn a_kill_loses_at_most_one_lease() {
    let gateway = Setup::new().set("plans.free", "1000").start();
    let key = gateway.create_active_key("acme", &[]);
    spend_calls(&gateway, &key, 500);
    let gateway = gateway.crash_and_restart();
    let bound = max_held_calls(1000);
    let counted = gateway.get_month_count(&key);
    assert!((500 - bound..=500).contains(&counted), "{counted}");
    let rest = make_calls_in_parallel(&[gateway.http], &key, 1000) as u64;
    assert!((500 - bound..=500).contains(&rest), "{rest}");
}

#[test]
fn repeated_kills_never_admit_more_calls_than_the_limit() {
    let mut gateway = Setup::new().set("plans.free", "200").start();
    let key = gateway.create_active_key("acme", &[]);
    let mut sum = 0;
    for _ in 0..4 {
        sum += make_calls_in_parallel(&[gateway.http], &key, 30) as u64;
        gateway = gateway.crash_and_restart();
    }
    sum += make_calls_in_parallel(&[gateway.http], &key, 300) as u64;
    assert!((200 - 4 * max_held_calls(200)..=200).contains(&sum), "{sum}");
}

#[test]
fn a_changed_limit_takes_effect_on_a_kept_connection() {
    let gateway = Setup::new().set("plans.free", "1000").start();
    let key = gateway.create_active_key("acme", &[]);
    let mut connection = gateway.connect();
    let mut status = |wanted: u16, what: &str| {
        wait_until(what, || connection.send_request(&get(DOMAIN).key(&key)).status == wanted);
    };
    let set = |limit: &str| gateway.cli(&["accounts", "set", "acme", "--limit", limit]).expect(0);
    spend_calls(&gateway, &key, 20);
    set("5");
    status(429, "a limit below use refuses");
    let spent = gateway.get_month_count(&key);
    set("0");
    gateway.get(DOMAIN, &key).expect(429);
    set("2000");
    status(200, "a raised limit admits");
    let shown = || gateway.get("/v1/usage", &key).json()["monthly_limit"].clone();
    // The account's lease has a new limit a moment before the new list of keys is in force.
    wait_until("the raised limit is shown", || shown() == 2000);
    assert!(gateway.get_month_count(&key) > spent, "spent calls stay counted");
    set("0");
    status(429, "a limit of 0 refuses all");
    set("plan");
    status(200, "back at the plan's limit");
    wait_until("the plan's limit is shown", || shown() == 1000);
}

#[test]
fn an_unlimited_account_is_counted_and_has_no_rate_limit_headers() {
    let gateway = Setup::new().set("plans.free", "5").start();
    let key = gateway.create_active_key("acme", &[]);
    spend_calls(&gateway, &key, 5);
    gateway.get(DOMAIN, &key).expect(429);
    gateway.cli(&["accounts", "set", "acme", "--limit", "unlimited"]).expect(0);
    wait_until("the limit is gone", || gateway.get(DOMAIN, &key).status == 200);
    spend_calls(&gateway, &key, 50);
    let response = gateway.get(DOMAIN, &key).expect(200);
    assert!(!response.has_header("RateLimit") && !response.has_header("RateLimit-Policy"));
    let usage = gateway.get("/v1/usage", &key).expect(200);
    assert!(usage.text().contains(r#""monthly_limit":9007199254740991,"#), "{}", usage.text());
    assert_eq!(usage.json()["month_count"], 57);
    assert_eq!(gateway.restart().get_month_count(&key), 57);
}

#[test]
fn the_shipped_plans_have_their_limits_and_a_new_account_gets_the_free_plan() {
    let gateway = Setup::new().start();
    for (plan, limit) in [("free", 100), ("starter", 1_000), ("pro", 10_000), ("business", 100_000)]
    {
        let key = gateway.create_active_key(plan, &["--plan", plan]);
        let usage = gateway.get("/v1/usage", &key).json();
        assert_eq!((&usage["plan"], &usage["monthly_limit"]), (&plan.into(), &limit.into()));
    }
    let usage = gateway.get("/v1/usage", &gateway.create_active_key("nobody", &[])).json();
    assert_eq!((&usage["plan"], &usage["monthly_limit"]), (&"free".into(), &100.into()));
}
