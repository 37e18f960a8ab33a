//! A Redis server that loses data, while gateways with leases on it keep running.

use std::time::Duration;

use crate::harness::{Gateway, LoadGenerator, TcpForwarder, wait_until};
use crate::redis::{
    DEFAULT_DEADLINE, DOMAIN, MAX_LEASE, is_store_down, reports_store_degraded, spend_the_rest,
    start,
};
use crate::redis_server::RedisServer;

const LIMIT: u64 = 6_400;
/// For each of two gateways: the calls of the other that the server lost.
const MAX_STALE_CALLS: u64 = 2 * MAX_LEASE;

/// Two gateways of the closed policy spend 6,400 calls while the server loses its data. Returns the
/// number of admitted calls.
fn spend_while_state_is_lost(url: &str, at_least: u64, lose: impl FnOnce()) -> u64 {
    let (gateways, key) = start([url, "acme", "closed", DEFAULT_DEADLINE], LIMIT, 2);
    let clients = LoadGenerator::new(DOMAIN, &key).with_pause(Duration::from_millis(1));
    std::thread::scope(|scope| {
        let _stop_guard = clients.stop_on_drop();
        for gateway in &gateways {
            clients.spawn_clients(scope, gateway.http, 3);
        }
        wait_until("half is spent", || clients.counts().admitted > LIMIT / 2);
        lose();
        wait_until("all is spent", || clients.counts().quota_exceeded > 100);
    });
    for gateway in &gateways {
        // The gateways keep known keys, whatever data the store lost.
        assert_eq!(gateway.get("/v1/usage", &key).status, 200);
        wait_until("the store is well", || {
            !is_store_down(gateway) && !reports_store_degraded(gateway)
        });
    }
    let first = clients.counts();
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
fn a_server_restarted_with_its_disk_leaves_the_count_exact() {
    let mut server = RedisServer::start_on_disk();
    let url = server.url();
    assert_eq!(spend_while_state_is_lost(&url, LIMIT, || server.restart()), LIMIT);
}

#[test]
fn a_server_emptied_while_all_gateways_live_leads_to_no_call_too_many() {
    let server = RedisServer::start();
    spend_while_state_is_lost(&server.url(), LIMIT - MAX_STALE_CALLS, || {
        drop(server.run(&["FLUSHALL"]))
    });
}

#[test]
fn a_server_restarted_without_a_disk_leads_to_no_call_too_many() {
    let mut server = RedisServer::start();
    let url = server.url();
    spend_while_state_is_lost(&url, LIMIT - MAX_STALE_CALLS, || server.restart());
}

#[test]
fn a_replica_that_takes_over_leads_to_no_call_too_many_while_all_gateways_live() {
    let mut primary = RedisServer::start();
    let replica = RedisServer::replica_of(&primary);
    wait_until("the replica follows", || {
        replica.run(&["INFO", "replication"]).contains("master_link_status:up")
    });
    let forwarder = TcpForwarder::to(&primary);
    spend_while_state_is_lost(&forwarder.url(), LIMIT - MAX_STALE_CALLS, || {
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
