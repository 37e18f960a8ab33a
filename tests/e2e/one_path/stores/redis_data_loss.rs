//! A Redis server that loses data, while gateways with leases on it keep running.

use std::time::Duration;

use crate::harness::{Gateway, LoadGenerator, Setup, TcpForwarder, max_held_calls, wait_until};
use crate::one_path::stores::redis::{
    DEFAULT_DEADLINE, DOMAIN, is_store_down, readyz_reports_store, spend_the_rest, start_gateways,
};
use crate::redis_server::RedisServer;

const LIMIT: u64 = 6_400;
/// At most this many calls of the limit stay unspent after the loss: for each of the two gateways,
/// one lease that the server has lost.
fn max_unspendable_calls() -> u64 {
    2 * max_held_calls(LIMIT)
}

/// Two gateways with `store.on_failure = "closed"` spend the limit. Halfway, `lose` makes the
/// server lose its data. Asserts that the admitted calls don't exceed the limit, and returns their
/// number.
fn spend_limit_while_data_is_lost(url: &str, at_least: u64, lose: impl FnOnce()) -> u64 {
    let (gateways, key) = start_gateways([url, "acme", "closed", DEFAULT_DEADLINE], LIMIT, 2);
    let clients = LoadGenerator::new(DOMAIN, &key).with_pause(Duration::from_millis(1));
    std::thread::scope(|scope| {
        let _stop_guard = clients.stop_on_drop();
        for gateway in &gateways {
            clients.spawn_clients(scope, gateway.http, 3);
        }
        wait_until("half is spent", || clients.response_counts().admitted > LIMIT / 2);
        lose();
        wait_until("all is spent", || clients.response_counts().quota_exceeded > 100);
    });
    for gateway in &gateways {
        // The gateways keep known keys, whatever data the store lost.
        assert_eq!(gateway.get("/v1/usage", &key).status, 200);
        wait_until("the store is back", || {
            !is_store_down(gateway) && !readyz_reports_store(gateway)
        });
    }
    let first = clients.response_counts();
    let all: Vec<&Gateway> = gateways.iter().collect();
    let rest = spend_the_rest(&all, &key, at_least.saturating_sub(first.admitted));
    let sum = first.admitted + rest;
    println!("{first:?} within {:?}, and {rest}: {sum} of {LIMIT}", clients.latency_p99_and_max());
    assert!(sum <= LIMIT, "{sum}");
    for gateway in all {
        wait_until("no call that was admitted is forgotten", || {
            gateway.get_month_count(&key) >= sum
        });
    }
    sum
}

#[test]
fn a_redis_restarted_with_its_data_admits_exactly_the_limit() {
    let mut server = RedisServer::start_on_disk();
    let url = server.url();
    assert_eq!(spend_limit_while_data_is_lost(&url, LIMIT, || server.restart()), LIMIT);
}

#[test]
fn an_emptied_redis_never_leads_to_more_calls_than_the_limit() {
    let server = RedisServer::start();
    spend_limit_while_data_is_lost(&server.url(), LIMIT - max_unspendable_calls(), || {
        drop(server.run(&["FLUSHALL"]))
    });
}

#[test]
fn a_redis_restarted_without_its_data_never_leads_to_more_calls_than_the_limit() {
    let mut server = RedisServer::start();
    let url = server.url();
    spend_limit_while_data_is_lost(&url, LIMIT - max_unspendable_calls(), || server.restart());
}

#[test]
fn a_failover_to_a_stale_replica_never_leads_to_more_calls_than_the_limit() {
    let mut primary = RedisServer::start();
    let replica = RedisServer::replica_of(&primary);
    wait_until("the replica follows", || {
        replica.run(&["INFO", "replication"]).contains("master_link_status:up")
    });
    let forwarder = TcpForwarder::start_to(&primary);
    spend_limit_while_data_is_lost(&forwarder.url(), LIMIT - max_unspendable_calls(), || {
        // From here on the replica misses what the server acknowledges.
        replica.pause();
        let leased = primary.run(&["INFO", "commandstats"]);
        wait_until("more was acknowledged", || primary.run(&["INFO", "commandstats"]) != leased);
        primary.kill();
        replica.resume();
        replica.run(&["REPLICAOF", "NO", "ONE"]);
        forwarder.switch_to(&replica);
    });
}

/// Makes calls to one of the gateways after the other, and returns how many were admitted.
fn call_in_turn(gateways: &[Gateway], key: &str, calls: usize) -> u64 {
    let call = |number: usize| gateways[number % gateways.len()].get(DOMAIN, key).status;
    (0..calls).filter(|number| call(*number) == 200).count() as u64
}

/// A gateway with 60 calls ends. Then `gateways` others serve while the server loses its data and
/// recovers, until the limit is spent. Asserts that all calls that were admitted are counted.
fn assert_calls_during_recovery_are_counted(gateways: usize) {
    const LIMIT: u64 = 500;
    let server = RedisServer::start();
    let (mut all, key) =
        start_gateways([&server.url(), "acme", "open", DEFAULT_DEADLINE], LIMIT, gateways + 1);
    let first = all.remove(0);
    let mut admitted = 0;
    for gateway in all.iter().chain([&first]) {
        wait_until("the key is accepted", || gateway.get("/v1/usage", &key).status == 200);
    }
    admitted += call_in_turn(std::slice::from_ref(&first), &key, 60);
    first.shut_down();
    admitted += call_in_turn(&all, &key, 3 * gateways);
    wait_until("the others know all calls", || {
        all.iter().all(|gateway| gateway.get_month_count(&key) == admitted)
    });
    // Each node learns in a report what the others have.
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_millis(1_500) {
        admitted += call_in_turn(&all, &key, gateways);
        std::thread::sleep(Duration::from_millis(300));
    }
    server.run(&["FLUSHALL"]);
    admitted += call_in_turn(&all, &key, 40);
    wait_until("the store recovers", || {
        all.iter().any(|it| it.sum_of_samples("riskgate_store_recovering", &[]) == 1.0)
    });
    for _ in 0..10 {
        admitted += call_in_turn(&all, &key, 8);
        std::thread::sleep(Duration::from_millis(100));
    }
    wait_until("the store has recovered", || {
        admitted += call_in_turn(&all, &key, 1);
        all.iter().all(|it| it.sum_of_samples("riskgate_store_recovering", &[]) == 0.0)
    });
    wait_until("the limit is spent", || {
        admitted += call_in_turn(&all, &key, 20);
        admitted >= LIMIT
    });
    let counts = || {
        let key = server.matching_keys("riskgate:ledger:{acme}:*").remove(0);
        ["leased", "spent"].map(|field| server.run(&["HGET", &key, field]).trim().to_owned())
    };
    let expected = admitted.to_string();
    wait_until("all calls are counted", || counts() == [expected.clone(), expected.clone()]);
    assert!(all.iter().all(|gateway| gateway.get_month_count(&key) == admitted));
}

#[test]
fn calls_that_a_gateway_serves_during_a_recovery_are_counted() {
    assert_calls_during_recovery_are_counted(1);
}

#[test]
fn calls_that_two_gateways_serve_during_a_recovery_are_counted() {
    assert_calls_during_recovery_are_counted(2);
}

#[test]
fn gateways_write_nothing_to_another_store_at_the_address() {
    let [server, other] = [RedisServer::start(), RedisServer::start()];
    // Another deployment has a store with the same account.
    Setup::new().with_redis(&other).cli(&["keys", "create", "--account", "acme"]).expect(0);
    let snapshot = || {
        let mut keys = other.matching_keys("*");
        keys.retain(|key| !key.contains("{check}"));
        keys.sort();
        (keys, other.run(&["HGETALL", "riskgate:{ring}:meta"]))
    };
    let before = snapshot();
    let forwarder = TcpForwarder::start_to(&server);
    let (gateways, key) =
        start_gateways([&forwarder.url(), "acme", "open", DEFAULT_DEADLINE], LIMIT, 1);
    let gateway = &gateways[0];
    wait_until("the key is accepted", || gateway.get(DOMAIN, &key).status == 200);
    forwarder.switch_to(&other);
    let degraded = || gateway.readyz().json()["degraded"].to_string();
    wait_until("the gateway tells the other store", || {
        gateway.get(DOMAIN, &key).expect(200);
        degraded().contains("but found another store") && is_store_down(gateway)
    });
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        gateway.get(DOMAIN, &key).expect(200);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(snapshot(), before);
    forwarder.switch_to(&server);
    wait_until("the store is back", || !is_store_down(gateway) && !degraded().contains("store"));
    wait_until("all calls are counted", || {
        gateway.sum_of_samples("riskgate_store_unsettled_calls", &[]) == 0.0
    });
}

#[test]
fn another_store_on_the_same_server_gets_no_counts_of_the_former_one() {
    let server = RedisServer::start();
    let (gateways, key) =
        start_gateways([&server.url(), "acme", "open", DEFAULT_DEADLINE], LIMIT, 1);
    let gateway = &gateways[0];
    wait_until("the key is accepted", || gateway.get(DOMAIN, &key).status == 200);
    // A gateway reports its calls each second. Afterwards, it has none to report.
    std::thread::sleep(Duration::from_millis(2_500));
    // In one step, so that no probe sees the empty server.
    let script = "redis.call('FLUSHALL') return redis.call('HSET', 'riskgate:{ring}:meta', \
                  'store_id', 'of-another-store', 'version', '1')";
    server.run(&["EVAL", script, "0"]);
    let degraded = || gateway.readyz().json()["degraded"].to_string();
    // The gateway probes each second. Until then, it would report calls.
    wait_until("the gateway tells the other store", || {
        degraded().contains("but found another store") && is_store_down(gateway)
    });
    for _ in 0..20 {
        gateway.get(DOMAIN, &key).expect(200);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(server.matching_keys("riskgate:ledger:*").is_empty());
    assert_eq!(server.run(&["HLEN", "riskgate:{ring}:meta"]).trim(), "2");
}
