//! Several gateways on one server: never over, whatever befalls the gateways or the server.

use std::time::{Duration, Instant};

use crate::harness::{Crowd, Forwarder, Gateway, Setup, get, high, until_true};
use crate::redis_server::RedisServer;

const DOMAIN: &str = "/v1/public/domain/first.test";
/// The most that one process may hold unspent of a limit of 6,400 and more.
const LEASE: u64 = 64;

/// As shipped.
const SHORT: &str = "50ms";
/// Where no call may fail, however busy the machine is.
const LONG: &str = "5s";

/// Gateways on one server, and a key of an account with this limit.
fn start(
    [url, account, on_failure, deadline]: [&str; 4],
    limit: u64,
    gateways: usize,
) -> (Vec<Gateway>, String) {
    let setup = |_| {
        let setup = Setup::new().text("store.url", url).text("store.on_failure", on_failure);
        setup.text("store.deadline", deadline).set("plans.free", &limit.to_string())
    };
    let setups: Vec<Setup> = (0..gateways).map(setup).collect();
    // A server becomes a store by its first key.
    let made = setups[0].cli(&["keys", "create", "--account", account]).expect(0);
    (setups.into_iter().map(Setup::start).collect(), made.stdout.trim_end().to_owned())
}

/// Asks on until that many more are admitted, and a while longer; how many there were.
fn spend_the_rest(gateways: &[&Gateway], key: &str, at_least: u64) -> u64 {
    let crowd = Crowd::new(DOMAIN, key).pausing(Duration::from_millis(1));
    std::thread::scope(|scope| {
        let _ending = crowd.ending();
        for gateway in gateways {
            crowd.come(scope, gateway.http, 2);
        }
        until_true("all is spent", || crowd.said().admitted >= at_least);
        // What others hold idle comes back within two seconds: none of it may be one too many.
        let begun = Instant::now();
        until_true("nobody gives back any more", || begun.elapsed() > Duration::from_secs(2));
    });
    crowd.said().admitted
}

fn is_down(gateway: &Gateway) -> bool {
    gateway.metric("riskgate_store_down", &[]) == 1.0
}

fn tells_of_the_store(gateway: &Gateway) -> bool {
    let degraded = gateway.readyz().json()["degraded"].clone();
    degraded.as_array().unwrap().iter().any(|part| part.as_str().unwrap().starts_with("store"))
}

fn unsettled(gateway: &Gateway) -> u64 {
    gateway.metric("riskgate_store_unsettled_calls", &[]) as u64
}

/// How long calls took inside the gateway, which a busy machine stretches less than what their
/// clients see.
fn latencies(gateway: &Gateway) -> Vec<Duration> {
    let calls = gateway.log().into_iter().filter(|line| line["route"] == "domain");
    calls.map(|line| Duration::from_micros(line["latency_us"].as_u64().unwrap())).collect()
}

// --- many gateways ---

/// So many gateways share an account of 10,000 calls; some are killed on the way.
fn share_ten_thousand(gateways: usize, kills: usize) {
    const LIMIT: u64 = 10_000;
    const CLIENTS: usize = 4;
    let server = RedisServer::start();
    let (mut gateways, key) = start([&server.url(), "acme", "closed", LONG], LIMIT, gateways);
    let begun = Instant::now();
    let crowd = Crowd::new(DOMAIN, &key);
    std::thread::scope(|scope| {
        let _ending = crowd.ending();
        for gateway in &gateways {
            crowd.come(scope, gateway.http, CLIENTS);
        }
        for kill in 0..kills as u64 {
            until_true("calls are under way", || crowd.said().admitted > 2_000 * (kill + 1));
            gateways.pop().unwrap().kill();
        }
        until_true("most is spent", || crowd.said().exhausted > 100);
    });
    let (first, took) = (crowd.said(), begun.elapsed());
    let all: Vec<&Gateway> = gateways.iter().collect();
    // Beside its lease each kill loses the answers to calls that were under way.
    let may_be_lost = kills as u64 * (LEASE + CLIENTS as u64);
    let at_least = (LIMIT - may_be_lost).saturating_sub(first.admitted);
    let sum = first.admitted + spend_the_rest(&all, &key, at_least);
    println!("{} gateways, {kills} kills: {first:?} in {took:?}, {sum} in all", all.len());
    assert!(sum <= LIMIT, "{sum}");
    if kills == 0 {
        assert_eq!((sum, first.failed), (LIMIT, 0));
    }
    for gateway in all {
        until_true("all say what was spent", || {
            // What the killed had not yet said is not among it.
            let counted = gateway.month_count(&key);
            counted + may_be_lost >= sum && counted <= LIMIT
        });
    }
}

#[test]
fn two_gateways_share_ten_thousand_calls_exactly() {
    share_ten_thousand(2, 0);
}

#[test]
fn four_gateways_share_ten_thousand_calls_exactly() {
    share_ten_thousand(4, 0);
}

#[test]
fn gateways_that_are_killed_cost_a_lease_each_and_never_a_call_too_many() {
    share_ten_thousand(4, 2);
}

// --- the server fails ---

/// Something that a server goes through under load, and how it ends.
struct Trouble {
    begin: fn(&mut RedisServer),
    end: fn(&mut RedisServer),
    lasts: Lasts,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lasts {
    /// Nobody notices.
    NoTime,
    /// Some may notice.
    AMoment,
    /// Until `end`: the store counts as down meanwhile.
    UntilTheEnd,
}

/// Two gateways under steady load, one of each policy, each with an account of its own. The
/// server has a disk, so that every call must be counted in the end.
fn under_load(trouble: &Trouble) {
    let mut server = RedisServer::start_on_disk();
    let deadline = if trouble.lasts == Lasts::NoTime { LONG } else { SHORT };
    let (url, limit) = (server.url(), 1_000_000);
    let (open, open_key) = start([&url, "one", "open", deadline], limit, 1);
    let (closed, closed_key) = start([&url, "other", "closed", deadline], limit, 1);
    let (open, closed) = (&open[0], &closed[0]);
    until_true("all know both keys", || open.get("/v1/usage", &closed_key).status == 200);
    let pause = Duration::from_millis(2);
    let open_crowd = Crowd::new(DOMAIN, &open_key).pausing(pause);
    let closed_crowd = Crowd::new(DOMAIN, &closed_key).pausing(pause);
    std::thread::scope(|scope| {
        let _ending = (open_crowd.ending(), closed_crowd.ending());
        open_crowd.come(scope, open.http, 3);
        closed_crowd.come(scope, closed.http, 3);
        until_true("calls are under way", || {
            open_crowd.said().admitted > 300 && closed_crowd.said().admitted > 300
        });
        (trouble.begin)(&mut server);
        if trouble.lasts == Lasts::UntilTheEnd {
            for gateway in [open, closed] {
                until_true("the store counts as down", || is_down(gateway));
                until_true("that is told", || tells_of_the_store(gateway));
                assert_eq!(gateway.readyz().status, 200, "it serves");
            }
            // Who was asking at that moment has had an answer.
            let at_first = open_crowd.said().admitted;
            until_true("one serves", || open_crowd.said().admitted > at_first + 20);
            let at_first = open_crowd.said();
            let refused = closed_crowd.said().failed;
            until_true("one serves, one refuses", || {
                open_crowd.said().admitted > at_first.admitted + 200
                    && closed_crowd.said().failed > refused + 200
            });
            assert_eq!(open_crowd.said().failed, at_first.failed, "it is known to be down");
            assert!(unsettled(open) > 0);
            assert_eq!(unsettled(closed), 0);
        }
        (trouble.end)(&mut server);
        for gateway in [open, closed] {
            until_true("the store is back", || !is_down(gateway) && !tells_of_the_store(gateway));
        }
        let (served, failed) = (closed_crowd.said().admitted, closed_crowd.said().failed);
        until_true("both serve", || closed_crowd.said().admitted > served + 200);
        println!("while it lasted: closed served {served}, refused {failed}");
    });
    until_true("every call is settled", || unsettled(open) == 0);
    for (gateway, crowd, key) in
        [(open, &open_crowd, &open_key), (closed, &closed_crowd, &closed_key)]
    {
        let said = crowd.said();
        let inside = high(latencies(gateway));
        println!("{said:?} within {:?} outside, {inside:?} inside", crowd.took());
        assert_eq!((said.exhausted, said.unknown), (0, 0), "{said:?}");
        assert!(said.failed == 0 || trouble.lasts != Lasts::NoTime, "{said:?}");
        // Bounds that a loaded machine keeps too; benches/quota measures what it is.
        assert!(inside.0 < Duration::from_secs(1), "the 99th percentile: {inside:?}");
        assert!(inside.1 < Duration::from_secs(3), "the worst: {inside:?}");
        for asked in [open, closed] {
            until_true("all say what was admitted", || {
                let usage = asked.get("/v1/usage", key);
                usage.status == 200 && usage.json()["month_count"] == said.admitted
            });
        }
    }
}

#[test]
fn a_server_that_is_killed_under_load_keeps_no_request_waiting_and_counts_on_when_it_is_back() {
    under_load(&Trouble {
        begin: RedisServer::kill,
        end: RedisServer::restart,
        lasts: Lasts::UntilTheEnd,
    });
}

#[test]
fn a_server_that_falls_silent_keeps_no_request_waiting() {
    under_load(&Trouble {
        begin: |server| server.stop(),
        end: |server| server.cont(),
        lasts: Lasts::UntilTheEnd,
    });
}

#[test]
fn a_server_that_only_reads_is_an_outage() {
    under_load(&Trouble {
        begin: |server| drop(server.tell(&["REPLICAOF", "127.0.0.1", "1"])),
        end: |server| drop(server.tell(&["REPLICAOF", "NO", "ONE"])),
        lasts: Lasts::UntilTheEnd,
    });
}

#[test]
fn a_server_whose_memory_is_full_is_an_outage() {
    under_load(&Trouble {
        begin: |server| drop(server.tell(&["CONFIG", "SET", "maxmemory", "1"])),
        end: |server| drop(server.tell(&["CONFIG", "SET", "maxmemory", "0"])),
        lasts: Lasts::UntilTheEnd,
    });
}

#[test]
fn scripts_that_are_flushed_under_load_cost_no_call() {
    under_load(&Trouble {
        begin: |server| {
            for _ in 0..20 {
                server.tell(&["SCRIPT", "FLUSH"]);
            }
        },
        end: |_| (),
        lasts: Lasts::NoTime,
    });
}

#[test]
fn a_server_that_pauses_for_a_moment_keeps_no_request_waiting() {
    under_load(&Trouble {
        begin: |server| drop(server.tell(&["CLIENT", "PAUSE", "300", "ALL"])),
        // It is held back like all others, until the moment is over.
        end: |server| drop(server.tell(&["PING"])),
        lasts: Lasts::AMoment,
    });
}

#[test]
fn calls_without_the_store_s_word_are_capped() {
    let mut server = RedisServer::start();
    let setup = Setup::new().redis(&server).set("store.max_unsettled", "50");
    let setup = setup.set("plans.free", "100000");
    setup.cli(&["keys", "create", "--account", "other"]).expect(0);
    let gateway = setup.start();
    let key = gateway.key("acme", &[]);
    gateway.get(DOMAIN, &key).expect(200);
    server.kill();
    let mut connection = gateway.connect();
    until_true("the store counts as down", || {
        connection.ask(&get(DOMAIN).key(&key));
        is_down(&gateway)
    });
    until_true("the cap is reached", || connection.ask(&get(DOMAIN).key(&key)).status == 500);
    assert_eq!(unsettled(&gateway), 50);
    let refused = connection.ask(&get(DOMAIN).key(&key)).expect(500);
    assert_eq!(refused.header("X-Fail-Open"), Some("true"));
    server.restart();
    until_true("they are settled", || unsettled(&gateway) == 0);
    until_true("calls are admitted", || connection.ask(&get(DOMAIN).key(&key)).status == 200);
}

// --- the server forgets ---

const LIMIT: u64 = 6_400;
/// Of what others held when it was lost, each of two gateways may know too much.
const STALE: u64 = 2 * LEASE;

/// Two gateways of the closed policy spend 6,400 calls while the server loses what it knew; how
/// many were admitted in all.
fn spend_through(url: &str, at_least: u64, lose: impl FnOnce()) -> u64 {
    let (gateways, key) = start([url, "acme", "closed", SHORT], LIMIT, 2);
    let crowd = Crowd::new(DOMAIN, &key).pausing(Duration::from_millis(1));
    std::thread::scope(|scope| {
        let _ending = crowd.ending();
        for gateway in &gateways {
            crowd.come(scope, gateway.http, 3);
        }
        until_true("half is spent", || crowd.said().admitted > LIMIT / 2);
        lose();
        until_true("all is spent", || crowd.said().exhausted > 100);
    });
    for gateway in &gateways {
        // Whatever the store forgot: a key stays a key.
        assert_eq!(gateway.get("/v1/usage", &key).status, 200);
        until_true("the store is well", || !is_down(gateway) && !tells_of_the_store(gateway));
    }
    let first = crowd.said();
    let all: Vec<&Gateway> = gateways.iter().collect();
    let rest = spend_the_rest(&all, &key, at_least.saturating_sub(first.admitted));
    let sum = first.admitted + rest;
    println!("{first:?} within {:?}, and {rest}: {sum} of {LIMIT}", crowd.took());
    assert!(sum <= LIMIT, "{sum}");
    for gateway in all {
        until_true("no call that was admitted is forgotten", || gateway.month_count(&key) >= sum);
    }
    sum
}

#[test]
fn a_server_restarted_with_its_disk_leaves_the_count_exact() {
    let mut server = RedisServer::start_on_disk();
    let url = server.url();
    assert_eq!(spend_through(&url, LIMIT, || server.restart()), LIMIT);
}

#[test]
fn a_server_emptied_while_all_gateways_live_leads_to_no_call_too_many() {
    let server = RedisServer::start();
    spend_through(&server.url(), LIMIT - STALE, || drop(server.tell(&["FLUSHALL"])));
}

#[test]
fn a_server_restarted_without_a_disk_leads_to_no_call_too_many() {
    let mut server = RedisServer::start();
    let url = server.url();
    spend_through(&url, LIMIT - STALE, || server.restart());
}

#[test]
fn a_replica_that_takes_over_leads_to_no_call_too_many_while_all_gateways_live() {
    let mut primary = RedisServer::start();
    let replica = RedisServer::replica_of(&primary);
    until_true("the replica follows", || {
        replica.tell(&["INFO", "replication"]).contains("master_link_status:up")
    });
    let forwarder = Forwarder::to(&primary);
    spend_through(&forwarder.url(), LIMIT - STALE, || {
        // What is acknowledged from here on never reaches the replica.
        replica.stop();
        let leased = primary.tell(&["INFO", "commandstats"]);
        until_true("more was acknowledged", || primary.tell(&["INFO", "commandstats"]) != leased);
        primary.kill();
        replica.cont();
        replica.tell(&["REPLICAOF", "NO", "ONE"]);
        forwarder.lead_to(&replica);
    });
}
