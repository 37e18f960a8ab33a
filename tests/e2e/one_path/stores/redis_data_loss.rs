//! A Redis server that loses data, while gateways with leases on it keep running.

use std::time::Duration;

use crate::harness::{Gateway, LoadGenerator, TcpForwarder, max_held_calls, wait_until};
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
