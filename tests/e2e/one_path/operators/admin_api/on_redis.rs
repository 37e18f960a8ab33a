//! The admin API on a Redis server: two nodes, and a server that hangs.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{AdminTokens, api_request, call_api, create_key, key_status};
use crate::harness::{Connection, wait_until};
use crate::redis_server::RedisServer;

#[test]
fn a_change_on_one_node_reaches_the_other_and_is_recorded_once() {
    let server = RedisServer::start();
    let (first, tokens) = AdminTokens::start_on_redis(&server);
    let (second, other_tokens) = AdminTokens::start_on_redis(&server);
    for (here, token, there, reader) in [
        (&first, &tokens, &second, &other_tokens.read),
        (&second, &other_tokens, &first, &tokens.read),
    ] {
        let made = create_key(here, token, json!({ "account": "acme" }));
        let changed_at = Instant::now();
        wait_until("the key works on the other node", || key_status(there, &made["key"]) == 200);
        let path = format!("/keys/{}/revoke", made["id"].as_str().unwrap());
        call_api(here, "POST", &path, &token.write, &Value::Null).expect(200);
        wait_until("the key is revoked there", || key_status(there, &made["key"]) == 401);
        assert!(changed_at.elapsed() < Duration::from_secs(3), "{:?}", changed_at.elapsed());
        let target = format!("/audit?target={}", made["id"].as_str().unwrap());
        let records = call_api(there, "GET", &target, reader, &Value::Null).expect(200).json();
        let operations: Vec<&str> = records["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|record| record["operation"].as_str().unwrap())
            .collect();
        assert_eq!(operations, ["key.revoke", "key.create"], "each change is recorded once");
    }
}

#[test]
fn probes_are_answered_while_changes_wait_for_a_store_that_hangs() {
    let server = RedisServer::start();
    let (gateway, tokens) = AdminTokens::start_on_redis(&server);
    server.pause();
    let create = api_request("POST", "/keys", &tokens.write)
        .with_header("Content-Type", "application/json")
        .with_header("Connection", "close")
        .body("{\"account\":\"acme\"}");
    let waiting: Vec<Connection> = (0..12)
        .map(|_| {
            let mut connection = Connection::open(gateway.admin);
            connection.send(&create.to_bytes());
            connection
        })
        .collect();
    // Let all of them reach the store.
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..20 {
        let answer = create.send(gateway.admin);
        assert_eq!(answer.header("Retry-After"), Some("1"));
        assert!(answer.expect(503).text().contains("Too many requests"));
        gateway.get_admin_page("/healthz").expect(200);
        for path in ["/session", "/status", "/plans", "/keys"] {
            api_request("GET", path, &tokens.read).send(gateway.admin).expect(200);
        }
        // What is wrong with a request is told first.
        api_request("POST", "/keys", "").send(gateway.admin).expect(401);
        api_request("GET", "/nope", &tokens.read).send(gateway.admin).expect(404);
    }
    for mut connection in waiting {
        connection.read_response().expect("an answer").expect(503);
    }
    wait_until("the store counts as down", || {
        create.send(gateway.admin).expect(503).text().contains("Nothing was changed")
    });
    let read = api_request("GET", "/audit", &tokens.write).send(gateway.admin).expect(503);
    assert_eq!(read.json()["message"], "The store does not answer.");
    server.resume();
    wait_until("keys are created again", || create.send(gateway.admin).status == 201);
}

#[test]
fn a_page_of_usage_reads_each_account_once() {
    let server = RedisServer::start();
    let (gateway, tokens) = AdminTokens::start_on_redis(&server);
    let fill = "for i = 1, 6000 do
        redis.call('HSET', KEYS[1], '2 check node key_' .. string.format('%04d', i), i) end
        for day = 3, 7 do redis.call('HSET', KEYS[1], day .. ' check node wanted', day) end";
    server.run(&["EVAL", fill, "1", "riskgate:usage:{acme}:2026-11"]);
    server.run(&["CONFIG", "RESETSTAT"]);
    let (mut days, mut cursor) = (Vec::new(), String::new());
    for is_last in [false, false, true] {
        let path = format!("/usage?month=2026-11&account=acme&key_id=wanted&limit=2{cursor}");
        let page = call_api(&gateway, "GET", &path, &tokens.read, &Value::Null).expect(200).json();
        days.extend(page["items"].as_array().unwrap().iter().map(|item| item["day"].clone()));
        assert_eq!(page["next_cursor"].is_null(), is_last, "{page}");
        let next = page["next_cursor"].as_str().unwrap_or_default();
        cursor = format!("&cursor={}", next.replace(' ', "%20"));
    }
    let expected: Vec<Value> = (3..=7).map(|day| json!(format!("2026-11-0{day}"))).collect();
    assert_eq!(days, expected);
    let stats = server.run(&["INFO", "commandstats"]);
    let scans = stats.split("cmdstat_hscan:calls=").nth(1).expect("the account is scanned");
    let scans: u32 = scans.split(',').next().unwrap().parse().unwrap();
    assert!((3..=3 * 10).contains(&scans), "a scan of 6,005 fields takes some 6 calls: {scans}");
}
