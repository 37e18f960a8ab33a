//! Usage by day, route and key: it adds up to the calls that were admitted, so that it can be
//! billed.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::harness::{
    FakeClock, Gateway, MockUpstream, Setup, free_address, get, max_held_calls, request, wait_until,
};
use crate::redis_server::RedisServer;

/// The calls of each key and route of this month, from the command.
fn read_usage(gateway: &Gateway) -> BTreeMap<(String, String), u64> {
    let rows = gateway.cli(&["usage", "--daily", "--json"]).expect(0).json();
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    let mut calls = BTreeMap::new();
    for row in rows.as_array().unwrap() {
        let key = (text(row, "key_id"), text(row, "route"));
        *calls.entry(key).or_insert(0) += row["calls"].as_u64().unwrap();
    }
    calls
}

fn read_total(gateway: &Gateway) -> u64 {
    read_usage(gateway).values().sum()
}

#[test]
fn calls_that_an_earlier_version_counted_are_named() {
    let gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &[]);
    gateway.get_domain("first.test", &key).expect(200);
    wait_until("the usage is in the store", || read_total(&gateway) == 1);
    let store = rusqlite::Connection::open(gateway.path("riskgate.db")).unwrap();
    store.execute_batch("DELETE FROM daily_usage").unwrap();
    let shown = gateway.cli(&["usage", "--csv"]).expect(0);
    assert_eq!(shown.stdout, "day,account,route,key_id,calls\n");
    assert!(shown.stderr.contains("account acme: 1 of the 1 calls of "), "{}", shown.stderr);
}

#[test]
fn days_that_a_node_reports_after_the_total_are_not_lost() {
    let gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &[]);
    gateway.get_domain("first.test", &key).expect(200);
    wait_until("the usage is in the store", || read_total(&gateway) == 1);
    let store = rusqlite::Connection::open(gateway.path("riskgate.db")).unwrap();
    let set_aside = "ATTACH ':memory:' AS kept; \
                     CREATE TABLE kept.daily AS SELECT * FROM main.daily_usage; \
                     DELETE FROM main.daily_usage;";
    store.execute_batch(set_aside).unwrap();
    std::thread::scope(|scope| {
        let shown = scope.spawn(|| gateway.cli(&["usage", "--csv"]).expect(0));
        std::thread::sleep(std::time::Duration::from_secs(1));
        let restore = "INSERT INTO main.daily_usage SELECT * FROM kept.daily";
        store.execute_batch(restore).unwrap();
        let shown = shown.join().unwrap();
        assert_eq!(shown.stderr, "");
        assert!(shown.stdout.trim_end().ends_with(",1"), "{}", shown.stdout);
    });
}

#[test]
fn usage_by_key_and_route_is_exact_on_both_stores() {
    let server = RedisServer::start();
    let upstream = MockUpstream::start();
    for setup in [Setup::new(), Setup::new().with_redis(&server)] {
        let setup = setup.set("plans.free", "100000").with_upstreams(&[upstream.address]);
        let gateway = setup.start();
        let (first, first_id) = gateway.create_active_key_with_id("acme", &[]);
        let (second, second_id) = gateway.create_active_key_with_id("acme", &[]);
        let mut connection = gateway.connect();
        let mut send = |target: &str, key: &str, status: u16| {
            connection.send_request(&get(target).key(key)).expect(status);
        };
        for _ in 0..30 {
            send("/v1/public/domain/first.test", &first, 200);
        }
        for _ in 0..7 {
            send("/v1/public/domain/not_valid", &second, 422);
            send("/v1/check/a%40first.test", &second, 200);
        }
        send("/v1/public/top-domains", &second, 200);
        send("/v1/usage", &second, 200);
        let batch = request("POST", "/v1/public/domains")
            .key(&first)
            .with_header("Content-Type", "application/json")
            .body("{\"domains\":[\"a.com\",\"b.com\",\"c.com\"]}");
        gateway.send_request(&batch).expect(200);
        let expected: BTreeMap<(String, String), u64> = [
            (&first_id, "domain", 30),
            (&first_id, "domains", 3),
            (&second_id, "domain", 7),
            (&second_id, "check", 7),
            (&second_id, "top_domains", 1),
        ]
        .map(|(key, route, calls)| ((key.clone(), route.to_owned()), calls))
        .into();
        wait_until("the usage is in the store", || read_usage(&gateway) == expected);
        assert_eq!(gateway.get_month_count(&first), 48);
        let shown = gateway.cli(&["usage", "--csv"]).expect(0);
        assert_eq!(shown.stderr, "");
        let csv = shown.stdout;
        assert!(csv.starts_with("day,account,route,key_id,calls\n"), "{csv}");
        assert_eq!(csv.lines().count(), 6, "{csv}");
        let month = &csv.lines().nth(1).unwrap()[..7];
        assert_eq!(gateway.cli(&["usage", "--csv", "--month", month]).expect(0).stdout, csv);
        let other = gateway.cli(&["usage", "--csv", "--month", "2020-01"]).expect(0).stdout;
        assert_eq!(other.lines().count(), 1);
        let gateway = gateway.restart();
        gateway.get_domain("first.test", &first).expect(200);
        wait_until("a new node counts on", || read_total(&gateway) == 49);
    }
}

#[test]
fn a_refunded_call_is_no_usage() {
    let gateway =
        Setup::new().set("upstream.servers", &format!("[\"{}\"]", free_address())).start();
    let key = gateway.create_active_key("acme", &[]);
    for _ in 0..3 {
        gateway.get("/v1/check/a%40first.test", &key).expect(500);
    }
    gateway.get_domain("first.test", &key).expect(200);
    wait_until("the call that counts is in the store", || read_total(&gateway) == 1);
    assert_eq!(gateway.get_month_count(&key), 1);
}

#[test]
fn a_crash_loses_no_more_usage_than_one_lease() {
    let limit = 10_000;
    let mut gateway = Setup::new().set("plans.free", &limit.to_string()).start();
    let key = gateway.create_active_key("acme", &[]);
    let mut admitted = 0;
    for _ in 0..3 {
        let mut connection = gateway.connect();
        for _ in 0..170 {
            connection.send_request(&get("/v1/public/domain/first.test").key(&key)).expect(200);
            admitted += 1;
        }
        gateway.kill();
        gateway = gateway.start_after_exit();
        let counted = read_total(&gateway);
        let lost = admitted - counted;
        assert!(lost <= max_held_calls(limit), "{lost} of {admitted} are lost");
        admitted = counted;
        let spent = gateway.cli(&["usage", "--json"]).expect(0).json()[0]["month_count"].as_u64();
        // They are written together, but the last call may have been counted in one of them alone.
        let difference = spent.unwrap().abs_diff(counted);
        assert!(difference <= 1, "{spent:?} {counted}");
    }
}

#[test]
fn batches_at_the_turn_of_a_month_are_billed_whole_in_the_month_that_counts_them() {
    const NAMES: u64 = 400;
    let domains = vec!["a.com"; NAMES as usize];
    let body = serde_json::json!({ "domains": domains }).to_string();
    for uses_redis in [false, true] {
        let clock = FakeClock::starting_at("2031-04-30T23:59:50Z");
        let server = RedisServer::start_with_env(&clock.environment_variables());
        // No machine is fast enough to spend it.
        let setup = Setup::new().set("plans.free", "1000000000").with_clock(&clock);
        let setup = if uses_redis { setup.with_redis(&server) } else { setup };
        let gateway = setup.set_text("store.deadline", "5s").start();
        let key = gateway.create_active_key("acme", &[]);
        let batch = || {
            let batch = request("POST", "/v1/public/domains").key(&key).body(&body);
            batch.with_header("Content-Type", "application/json")
        };
        let has_may_begun = || {
            let usage = gateway.get("/v1/usage", &key).expect(200).json();
            usage["reset_at"] == "2031-06-01T00:00:00Z" && usage["month_count"].as_u64() > Some(0)
        };
        let send_until_may = || {
            let mut sent = 0;
            while !has_may_begun() {
                gateway.send_request(&batch()).expect(200);
                sent += NAMES;
            }
            sent
        };
        let sent: u64 = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..3).map(|_| scope.spawn(send_until_may)).collect();
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        });
        let counted_and_billed = |month: &str| {
            let sum = |words: &[&str], member: &str| {
                let words = [&["usage", "--month", month, "--json"], words].concat();
                let rows = gateway.cli(&words).expect(0).json();
                rows.as_array().unwrap().iter().map(|row| row[member].as_u64().unwrap()).sum()
            };
            let (counted, billed): (u64, u64) =
                (sum(&[], "month_count"), sum(&["--daily"], "calls"));
            [counted, billed]
        };
        wait_until("all calls are in the store", || {
            let [april, may] = ["2031-04", "2031-05"].map(counted_and_billed);
            april[0] + may[0] == sent && april[1] + may[1] == sent
        });
        let [april, may] = ["2031-04", "2031-05"].map(counted_and_billed);
        assert_eq!((april[0], may[0]), (april[1], may[1]), "bills and totals agree");
        assert!(april[0] > 0 && may[0] > 0 && april[0] % NAMES == 0, "{april:?} {may:?}");
    }
}
