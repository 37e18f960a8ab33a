//! `POST /v1/public/domains`: many domains in one request, charged together or not at all.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    Connection, Fault, FaultProxy, Gateway, Request, Response, Setup, request, wait_until,
};
use crate::redis_server::RedisServer;

const PATH: &str = "/v1/public/domains";

fn post(key: &str, body: &str) -> Request {
    request("POST", PATH).key(key).with_header("Content-Type", "application/json").body(body)
}

fn post_names(gateway: &Gateway, key: &str, names: &[String]) -> Response {
    gateway.send_request(&post(key, &json!({ "domains": names }).to_string()))
}

fn numbered_names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("name-{number}.com")).collect()
}

#[test]
fn each_name_has_the_verdict_of_a_single_request_in_order() {
    let gateway = Setup::with_bundled_table().set("plans.free", "1000").start();
    let key = gateway.create_active_key("acme", &[]);
    let names =
        ["yopmail.com", "a.yopmail.com", "gmail.com", "gmial.com", "info@gmail.com", "GMAIL.com"];
    let answer = post_names(&gateway, &key, &names.map(str::to_owned)).expect(200);
    assert_eq!(answer.rate_limit_remaining(), 994);
    let body: Value = serde_json::from_str(&answer.text()).unwrap();
    let results = body["results"].as_array().unwrap();
    assert_eq!(results.len(), names.len());
    for (name, result) in names.iter().zip(results) {
        let single = gateway.get_domain(name, &key);
        let expected: Value = serde_json::from_str(&single.text()).unwrap();
        for (member, value) in expected.as_object().unwrap() {
            assert_eq!(result[member], *value, "{name}: {member}");
        }
        if single.status == 200 {
            assert_eq!(result["verdict_source"].as_str(), single.header("X-Verdict-Source"));
            assert_eq!(result["matched_domain"].as_str(), single.header("X-Matched-Domain"));
            assert_eq!(result["did_you_mean"].as_str(), single.header("X-Did-You-Mean"));
            assert_eq!(body["table_version"].as_str(), single.header("X-Table-Version"));
        }
    }
    assert_eq!(results[4]["error"], "validation_error");
    assert_eq!(results[1]["matched_domain"], "yopmail.com");
    assert_eq!(gateway.get_month_count(&key), 12);
}

#[test]
fn a_batch_is_counted_whole_or_not_at_all() {
    let gateway = Setup::new().set("plans.free", "2500").start();
    let key = gateway.create_active_key("acme", &[]);
    for _ in 0..2 {
        post_names(&gateway, &key, &numbered_names(1_000)).expect(200);
    }
    for _ in 0..3 {
        let refused = post_names(&gateway, &key, &numbered_names(1_000)).expect(429);
        assert!(refused.text().contains("quota_exceeded"), "{}", refused.text());
        assert_eq!(refused.header("X-Fail-Open"), Some("true"));
        assert_eq!(gateway.get_month_count(&key), 2_000);
    }
    let last = post_names(&gateway, &key, &numbered_names(500)).expect(200);
    assert_eq!(last.rate_limit_remaining(), 0);
    gateway.get_domain("one.com", &key).expect(429);
    assert_eq!(gateway.get_month_count(&key), 2_500);
}

#[test]
fn concurrent_batches_and_single_calls_never_exceed_the_limit() {
    let gateway = Setup::new().set("plans.free", "3000").start();
    let key = gateway.create_active_key("acme", &[]);
    let admitted: usize = std::thread::scope(|scope| {
        let batches: Vec<_> = [7, 70, 700, 999]
            .into_iter()
            .map(|count| {
                let (gateway, key) = (&gateway, &key);
                scope.spawn(move || {
                    let send = |_| match post_names(gateway, key, &numbered_names(count)).status {
                        200 => count,
                        _ => 0,
                    };
                    (0..20).map(send).sum::<usize>()
                })
            })
            .collect();
        let admitted: usize = batches.into_iter().map(|batch| batch.join().unwrap()).sum();
        let singles = (0..3_000).take_while(|_| gateway.get_domain("a.com", &key).status == 200);
        admitted + singles.count()
    });
    assert_eq!(admitted, 3_000);
    assert_eq!(gateway.get_month_count(&key), 3_000);
}

#[test]
fn a_refused_batch_counts_nothing() {
    let gateway = Setup::new().set("plans.free", "5000").start();
    let key = gateway.create_active_key("acme", &[]);
    let too_long = format!("{{\"domains\":[\"{}\"]}}", "a".repeat(300_000));
    let too_many = json!({ "domains": numbered_names(1_001) }).to_string();
    for body in ["", "[]", "{}", "{\"domains\":[]}", "{\"domains\":[1]}", &too_many, &too_long] {
        let refused = gateway.send_request(&post(&key, body)).expect(422);
        let text = refused.text();
        assert!(text.contains("\"error\":\"validation_error\""), "{text}");
        assert!(text.contains("\"detail\":\"expected "), "{text}");
        assert!(!refused.has_header("RateLimit"));
    }
    let good = json!({ "domains": ["a.com"] }).to_string();
    gateway.send_request(&request("POST", PATH).body(&good)).expect(401);
    let answer = gateway.send_request(&request("GET", PATH).key(&key)).expect(405);
    assert_eq!(answer.header("Allow"), Some("POST, OPTIONS"));
    gateway.send_request(&request("POST", "/v1/public/domains/").key(&key).body(&good)).expect(404);
    assert_eq!(gateway.get_month_count(&key), 0);
}

#[test]
fn a_slow_body_is_refused_in_time_and_awaits_100_continue() {
    let gateway = Setup::new().set("plans.free", "5000").start();
    let key = gateway.create_active_key("acme", &[]);
    let body = json!({ "domains": ["a.com"] }).to_string();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: gate.test\r\nAuthorization: Bearer {key}\r\n\
         Content-Length: {}\r\n",
        body.len()
    );
    let mut slow = gateway.connect();
    slow.send(format!("{head}\r\n{}", &body[..5]).as_bytes());
    let begun = std::time::Instant::now();
    let refused = slow.read_response().unwrap().expect(408);
    assert!(refused.text().contains("request_timeout"), "{}", refused.text());
    assert!(
        begun.elapsed() > Duration::from_millis(1_900) && begun.elapsed() < Duration::from_secs(9)
    );
    let mut polite = gateway.connect();
    polite.send(format!("{head}Expect: 100-continue\r\n\r\n").as_bytes());
    // The 100, which `read_response` skips.
    polite.wait_for_bytes();
    polite.send(body.as_bytes());
    polite.read_response().unwrap().expect(200);
    assert_eq!(gateway.get_month_count(&key), 1);
}

/// A gateway whose store is a Redis server that answers 60 ms later than it would: far within the
/// deadline of one report, but not of many reports one after the other.
fn start_with_slow_redis(server: &RedisServer, limit: u64) -> (Gateway, FaultProxy) {
    let proxy = FaultProxy::in_front_of(([127, 0, 0, 1], server.port()).into());
    proxy.set_response_fault(Fault::Delay(Duration::from_millis(60)));
    let url = format!("redis://{}", proxy.address);
    let setup = Setup::new().set("store.url", &format!("{url:?}")).set_text("store.deadline", "1s");
    (setup.set("plans.free", &limit.to_string()).start(), proxy)
}

#[test]
fn a_batch_of_most_of_the_limit_is_admitted_although_the_redis_server_is_slow() {
    let server = RedisServer::start();
    let (gateway, _proxy) = start_with_slow_redis(&server, 1_000);
    let key = gateway.create_active_key("acme", &[]);
    let answer = post_names(&gateway, &key, &numbered_names(900)).expect(200);
    assert_eq!(answer.rate_limit_remaining(), 100);
    assert_eq!(gateway.get_month_count(&key), 900);
    let refused = post_names(&gateway, &key, &numbered_names(101)).expect(429);
    assert_eq!(refused.rate_limit_remaining(), 100);
    post_names(&gateway, &key, &numbered_names(100)).expect(200);
}

#[test]
fn a_batch_in_the_last_hundredth_of_the_limit_is_admitted_although_the_redis_server_is_slow() {
    let server = RedisServer::start();
    let (gateway, _proxy) = start_with_slow_redis(&server, 20_000);
    let key = gateway.create_active_key("acme", &[]);
    for sent in 1..=20 {
        let answer = post_names(&gateway, &key, &numbered_names(1_000)).expect(200);
        assert_eq!(answer.rate_limit_remaining(), 20_000 - 1_000 * sent);
    }
    assert_eq!(gateway.get_month_count(&key), 20_000);
}

#[test]
fn a_refused_batch_tells_how_many_calls_are_left() {
    let gateway = Setup::new().set("plans.free", "2500").start();
    let key = gateway.create_active_key("acme", &[]);
    for _ in 0..2 {
        post_names(&gateway, &key, &numbered_names(1_000)).expect(200);
    }
    let refused = post_names(&gateway, &key, &numbered_names(501)).expect(429);
    assert_eq!(refused.rate_limit_remaining(), 500);
    assert!(refused.header("RateLimit-Policy").unwrap().contains("q=2500"));
    assert!(refused.has_header("Retry-After"));
    // Nothing of the refused batch is held back.
    let last = post_names(&gateway, &key, &numbered_names(500)).expect(200);
    assert_eq!(last.rate_limit_remaining(), 0);
    assert_eq!(
        post_names(&gateway, &key, &numbered_names(2)).expect(429).rate_limit_remaining(),
        0
    );
}

#[test]
fn slow_batches_of_many_clients_leave_memory_for_others() {
    let gateway = Setup::new().set("plans.free", "5000").start();
    let key = gateway.create_active_key("acme", &[]);
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: gate.test\r\nAuthorization: Bearer {key}\r\n\
         Content-Length: 100\r\n\r\n{{"
    );
    let slow: Vec<Connection> = (0..272)
        .map(|number: u32| {
            let client = Ipv4Addr::from(0x7f00_0002 + number / 16);
            let mut slow = Connection::open_from(client.into(), gateway.http);
            slow.send(head.as_bytes());
            slow
        })
        .collect();
    wait_until("all have begun", || {
        gateway.sum_of_samples("riskgate_requests_in_flight", &[]) >= 256.0
    });
    post_names(&gateway, &key, &numbered_names(3)).expect(200);
    drop(slow);
}
