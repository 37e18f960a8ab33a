//! A server that closes what is idle, one that a replica takes over from, and a replica that is
//! lost.

use std::time::{Duration, Instant};

use crate::harness::{Crowd, Gateway, Setup, get, until_true};
use crate::redis_server::RedisServer;

const DOMAIN: &str = "/v1/public/domain/first.test";
const LIMIT: u64 = 3_000;

fn follow(replica: &RedisServer) {
    until_true("the replica follows", || {
        replica.tell(&["INFO", "replication"]).contains("master_link_status:up")
    });
}

fn tells(gateway: &Gateway, words: &str) -> bool {
    gateway.readyz().json()["degraded"].to_string().contains(words)
}

#[test]
fn a_server_that_closes_idle_connections_costs_no_answer() {
    let server = RedisServer::start();
    let setup = Setup::new().redis(&server).text("store.deadline", "2s");
    // Of each account nothing is known here before it is asked for.
    let make = |account: u32| {
        let account = format!("account-{account}");
        let made = setup.cli(&["keys", "create", "--account", &account]).expect(0);
        made.stdout.trim_end().to_owned()
    };
    let keys: Vec<String> = (0..13).map(make).collect();
    let (first, keys) = keys.split_first().unwrap();
    let gateway = setup.start();
    gateway.get("/v1/usage", first).expect(200);
    let (at_once, later) = keys.split_at(10);
    for key in at_once {
        // As its setting `timeout` does, only sooner.
        server.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
        gateway.get("/v1/usage", key).expect(200);
    }
    server.tell(&["CONFIG", "SET", "timeout", "1"]);
    for key in later {
        let since = Instant::now();
        until_true("connections were idle", || since.elapsed() > Duration::from_millis(2_200));
        gateway.get("/v1/usage", key).expect(200);
        gateway.get(DOMAIN, key).expect(200);
    }
    assert_eq!(gateway.metric("riskgate_store_down", &[]), 0.0);
}

#[test]
fn usage_is_answered_all_through_a_failover() {
    let mut primary = RedisServer::start();
    let replica = RedisServer::replica_of(&primary);
    follow(&replica);
    let forwarder = crate::harness::Forwarder::to(&primary);
    let setup = Setup::new().text("store.url", &forwarder.url());
    let setup = setup.text("store.deadline", "300ms").set("store.wait_replicas", "1");
    let make = |account| {
        let made = setup.cli(&["keys", "create", "--account", account]).expect(0);
        made.stdout.trim_end().to_owned()
    };
    let (caller, reader) = (make("caller"), make("reader"));
    let gateway = setup.start();
    gateway.get(DOMAIN, &caller).expect(200);
    // One account calls, the other has only ever asked what it spent.
    for key in [&caller, &reader] {
        gateway.get("/v1/usage", key).expect(200);
    }
    primary.kill();
    replica.tell(&["REPLICAOF", "NO", "ONE"]);
    forwarder.lead_to(&replica);
    // The new server has no replica for as long as this takes: nothing can be stated there.
    let begun = Instant::now();
    until_true("some seconds are over", || {
        for key in [&caller, &reader] {
            let usage = gateway.get("/v1/usage", key);
            assert_eq!(usage.status, 200, "after {:?}: {}", begun.elapsed(), usage.text());
        }
        begun.elapsed() > Duration::from_secs(4)
    });
    assert_eq!(gateway.month_count(&caller), 1);
}

/// Two gateways spend all of a limit, and far beyond its half the only replica is lost.
fn lose_the_replica(on_failure: &str) -> (Vec<Gateway>, RedisServer, RedisServer, String, u64) {
    let primary = RedisServer::start();
    let mut replica = RedisServer::replica_of(&primary);
    follow(&replica);
    let setup = || {
        let setup = Setup::new().redis(&primary).set("store.wait_replicas", "1");
        let setup = setup.text("store.on_failure", on_failure);
        setup.set("plans.free", &LIMIT.to_string())
    };
    let made = setup().cli(&["keys", "create", "--account", "acme"]).expect(0);
    let key = made.stdout.trim_end().to_owned();
    let gateways = vec![setup().start(), setup().start()];
    let crowd = Crowd::new(DOMAIN, &key);
    std::thread::scope(|scope| {
        let _ending = crowd.ending();
        for gateway in &gateways {
            crowd.come(scope, gateway.http, 3);
        }
        until_true("much is spent", || crowd.said().admitted > LIMIT / 3);
        replica.kill();
        until_true("that is told", || {
            gateways.iter().all(|gateway| {
                gateway.metric("riskgate_store_replicas_missing", &[]) == 1.0
                    && tells(gateway, "store: 1 of store.wait_replicas are missing")
            })
        });
        assert!(gateways.iter().all(|gateway| gateway.readyz().status == 200), "they serve");
        let said = crowd.said();
        until_true("one policy serves on, the other refuses", || {
            let now = crowd.said();
            match on_failure {
                "open" => now.exhausted > said.exhausted + 100,
                _ => now.failed > said.failed + 100,
            }
        });
    });
    let admitted = crowd.said().admitted;
    (gateways, primary, replica, key, admitted)
}

#[test]
fn without_its_only_replica_an_open_policy_serves_by_the_server_s_own_word_and_never_over() {
    let (gateways, primary, mut replica, key, admitted) = lose_the_replica("open");
    assert_eq!(admitted, LIMIT);
    for gateway in &gateways {
        assert_eq!(gateway.metric("riskgate_store_down", &[]), 0.0);
        assert_eq!(gateway.metric("riskgate_store_unsettled_calls", &[]), 0.0);
        until_true("all say what was spent", || gateway.month_count(&key) == LIMIT);
    }
    replica.restart();
    for gateway in &gateways {
        until_true("all is well", || !tells(gateway, "store"));
        assert_eq!(gateway.metric("riskgate_store_replicas_missing", &[]), 0.0);
    }
    drop(primary);
}

#[test]
fn without_its_only_replica_a_closed_policy_refuses_until_it_is_back() {
    let (gateways, primary, mut replica, key, mut admitted) = lose_the_replica("closed");
    assert!(admitted < LIMIT, "{admitted}");
    for gateway in &gateways {
        assert!(tells(gateway, "refused"), "{}", gateway.readyz().text());
        assert_eq!(gateway.metric("riskgate_store_down", &[]), 1.0);
        let usage = gateway.get("/v1/usage", &key).expect(200).json();
        assert!(usage["month_count"].as_u64().unwrap() <= admitted);
    }
    replica.restart();
    let mut connections: Vec<_> = gateways.iter().map(Gateway::connect).collect();
    until_true("the rest is spent", || {
        for connection in &mut connections {
            admitted += u64::from(connection.ask(&get(DOMAIN).key(&key)).status == 200);
        }
        admitted >= LIMIT
    });
    for connection in &mut connections {
        for _ in 0..50 {
            assert_ne!(connection.ask(&get(DOMAIN).key(&key)).status, 200);
        }
    }
    drop(primary);
}
