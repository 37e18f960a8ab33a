//! Several gateways on one Redis server: they never exceed a limit, whatever fails.

use std::time::{Duration, Instant};

use crate::harness::{Gateway, LoadGenerator, Setup, get, max_held_calls, p99_and_max, wait_until};
use crate::redis_server::RedisServer;

pub const DOMAIN: &str = "/v1/public/domain/first.test";

/// The default deadline of the store.
pub const DEFAULT_DEADLINE: &str = "50ms";
/// A deadline for tests in which no call may fail, however loaded the machine is.
const LONG_DEADLINE: &str = "5s";

/// Starts gateways on one Redis server, and creates a key of an account with this limit.
pub fn start_gateways(
    [url, account, on_failure, deadline]: [&str; 4],
    limit: u64,
    gateways: usize,
) -> (Vec<Gateway>, String) {
    let setup = |_| {
        let setup =
            Setup::new().set_text("store.url", url).set_text("store.on_failure", on_failure);
        setup.set_text("store.deadline", deadline).set("plans.free", &limit.to_string())
    };
    let setups: Vec<Setup> = (0..gateways).map(setup).collect();
    // The first key initialises the store.
    let made = setups[0].cli(&["keys", "create", "--account", account]).expect(0);
    (setups.into_iter().map(Setup::start).collect(), made.stdout.trim_end().to_owned())
}

/// Makes calls until `at_least` of them are admitted, and for two seconds more. Returns the number
/// of admitted calls.
pub fn spend_the_rest(gateways: &[&Gateway], key: &str, at_least: u64) -> u64 {
    let clients = LoadGenerator::new(DOMAIN, key).with_pause(Duration::from_millis(1));
    std::thread::scope(|scope| {
        let _stop_guard = clients.stop_on_drop();
        for gateway in gateways {
            clients.spawn_clients(scope, gateway.http, 2);
        }
        wait_until("all is spent", || clients.response_counts().admitted >= at_least);
        // Other processes return unspent leases within two seconds; none of these calls may exceed
        // the limit.
        let begun = Instant::now();
        wait_until("all unspent leases are returned", || begun.elapsed() > Duration::from_secs(2));
    });
    clients.response_counts().admitted
}

pub fn is_store_down(gateway: &Gateway) -> bool {
    gateway.sum_of_samples("riskgate_store_down", &[]) == 1.0
}

pub fn readyz_reports_store(gateway: &Gateway) -> bool {
    let degraded = gateway.readyz().json()["degraded"].clone();
    degraded.as_array().unwrap().iter().any(|part| part.as_str().unwrap().starts_with("store"))
}

fn unsettled_calls(gateway: &Gateway) -> u64 {
    gateway.sum_of_samples("riskgate_store_unsettled_calls", &[]) as u64
}

/// The duration of calls inside the gateway, which a loaded machine affects less than the duration
/// that clients measure.
fn logged_latencies(gateway: &Gateway) -> Vec<Duration> {
    let calls = gateway.read_access_log().into_iter().filter(|line| line["route"] == "domain");
    calls.map(|line| Duration::from_micros(line["duration_us"].as_u64().unwrap())).collect()
}

// --- many gateways ---

/// This many gateways share an account of 10,000 calls; the test kills some of them on the way.
fn assert_gateways_share_a_limit(gateways: usize, kills: usize) {
    const LIMIT: u64 = 10_000;
    const CLIENTS_PER_GATEWAY: usize = 4;
    let server = RedisServer::start();
    let (mut gateways, key) =
        start_gateways([&server.url(), "acme", "closed", LONG_DEADLINE], LIMIT, gateways);
    let begun = Instant::now();
    let clients = LoadGenerator::new(DOMAIN, &key);
    std::thread::scope(|scope| {
        let _stop_guard = clients.stop_on_drop();
        for gateway in &gateways {
            clients.spawn_clients(scope, gateway.http, CLIENTS_PER_GATEWAY);
        }
        for kill in 0..kills as u64 {
            wait_until("calls are under way", || {
                clients.response_counts().admitted > 2_000 * (kill + 1)
            });
            gateways.pop().unwrap().kill();
        }
        wait_until("most is spent", || clients.response_counts().quota_exceeded > 100);
    });
    let (first, took) = (clients.response_counts(), begun.elapsed());
    let all: Vec<&Gateway> = gateways.iter().collect();
    // Each kill loses the lease, and the responses to calls in progress.
    let may_be_lost = kills as u64 * (max_held_calls(LIMIT) + CLIENTS_PER_GATEWAY as u64);
    let at_least = (LIMIT - may_be_lost).saturating_sub(first.admitted);
    let sum = first.admitted + spend_the_rest(&all, &key, at_least);
    println!("{} gateways, {kills} kills: {first:?} in {took:?}, {sum} in all", all.len());
    assert!(sum <= LIMIT, "{sum}");
    if kills == 0 {
        assert_eq!((sum, first.internal_errors), (LIMIT, 0));
    }
    for gateway in all {
        wait_until("all gateways report the spent calls", || {
            // The total lacks the calls that the killed processes had not reported yet.
            let counted = gateway.get_month_count(&key);
            counted + may_be_lost >= sum && counted <= LIMIT
        });
    }
}

#[test]
fn two_gateways_share_ten_thousand_calls_exactly() {
    assert_gateways_share_a_limit(2, 0);
}

#[test]
fn four_gateways_share_ten_thousand_calls_exactly() {
    assert_gateways_share_a_limit(4, 0);
}

#[test]
fn killed_gateways_lose_at_most_a_lease_each_and_never_exceed_the_limit() {
    assert_gateways_share_a_limit(4, 2);
}

// --- the server fails ---

/// A fault of a server under load, and its expected effect.
struct FaultScenario {
    begin: fn(&mut RedisServer),
    end: fn(&mut RedisServer),
    effect: FaultEffect,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FaultEffect {
    /// No call may fail.
    Unnoticed,
    /// Some calls may fail.
    Brief,
    /// The store counts as down until `end` is called.
    UntilEnded,
}

/// Runs two gateways under steady load, one with each value of `store.on_failure`, and injects the
/// fault. Asserts that in the end every admitted call is counted. Each gateway has its own account;
/// Redis writes to disk, so that no count may be lost.
fn assert_counts_through_fault(scenario: &FaultScenario) {
    let mut server = RedisServer::start_on_disk();
    let deadline =
        if scenario.effect == FaultEffect::Unnoticed { LONG_DEADLINE } else { DEFAULT_DEADLINE };
    let (url, limit) = (server.url(), 1_000_000);
    let (open, open_key) = start_gateways([&url, "one", "open", deadline], limit, 1);
    let (closed, closed_key) = start_gateways([&url, "other", "closed", deadline], limit, 1);
    let (open, closed) = (&open[0], &closed[0]);
    wait_until("all know both keys", || open.get("/v1/usage", &closed_key).status == 200);
    let pause = Duration::from_millis(2);
    let open_clients = LoadGenerator::new(DOMAIN, &open_key).with_pause(pause);
    let closed_clients = LoadGenerator::new(DOMAIN, &closed_key).with_pause(pause);
    std::thread::scope(|scope| {
        let _stop_guard = (open_clients.stop_on_drop(), closed_clients.stop_on_drop());
        open_clients.spawn_clients(scope, open.http, 3);
        closed_clients.spawn_clients(scope, closed.http, 3);
        wait_until("calls are under way", || {
            open_clients.response_counts().admitted > 300
                && closed_clients.response_counts().admitted > 300
        });
        (scenario.begin)(&mut server);
        if scenario.effect == FaultEffect::UntilEnded {
            assert_outage_is_handled([open, closed], [&open_clients, &closed_clients]);
        }
        (scenario.end)(&mut server);
        for gateway in [open, closed] {
            wait_until("the store is back", || {
                !is_store_down(gateway) && !readyz_reports_store(gateway)
            });
        }
        let (served, failed) = (
            closed_clients.response_counts().admitted,
            closed_clients.response_counts().internal_errors,
        );
        wait_until("both serve", || closed_clients.response_counts().admitted > served + 200);
        println!("while it lasted: closed served {served}, refused {failed}");
    });
    wait_until("every call is settled", || unsettled_calls(open) == 0);
    for (gateway, clients, key) in
        [(open, &open_clients, &open_key), (closed, &closed_clients, &closed_key)]
    {
        let counts = clients.response_counts();
        let inside = p99_and_max(logged_latencies(gateway));
        println!(
            "{counts:?} within {:?} outside, {inside:?} inside",
            clients.latency_p99_and_max()
        );
        assert_eq!((counts.quota_exceeded, counts.unknown), (0, 0), "{counts:?}");
        assert!(
            counts.internal_errors == 0 || scenario.effect != FaultEffect::Unnoticed,
            "{counts:?}"
        );
        // No call hangs; benches/quota measures the real values.
        assert!(inside.1 < Duration::from_secs(10), "the worst: {inside:?}");
        for asked in [open, closed] {
            wait_until("all gateways report the admitted calls", || {
                let usage = asked.get("/v1/usage", key);
                usage.status == 200 && usage.json()["month_count"] == counts.admitted
            });
        }
    }
}

/// Asserts that during the outage the gateway `open` serves its clients, the gateway `closed`
/// answers its clients 500, and both report the outage.
fn assert_outage_is_handled(
    [open, closed]: [&Gateway; 2],
    [open_clients, closed_clients]: [&LoadGenerator; 2],
) {
    for gateway in [open, closed] {
        wait_until("the store counts as down", || is_store_down(gateway));
        wait_until("riskgate reports it", || readyz_reports_store(gateway));
        assert_eq!(gateway.readyz().status, 200, "it serves");
    }
    // Calls in progress at that moment have their responses.
    let at_first = open_clients.response_counts().admitted;
    wait_until("one serves", || open_clients.response_counts().admitted > at_first + 20);
    let at_first = open_clients.response_counts();
    let refused = closed_clients.response_counts().internal_errors;
    wait_until("one gateway serves, the other refuses", || {
        open_clients.response_counts().admitted > at_first.admitted + 200
            && closed_clients.response_counts().internal_errors > refused + 200
    });
    assert_eq!(
        open_clients.response_counts().internal_errors,
        at_first.internal_errors,
        "it is known to be down"
    );
    assert!(unsettled_calls(open) > 0);
    assert_eq!(unsettled_calls(closed), 0);
}

#[test]
fn killing_redis_under_load_delays_no_request_and_loses_no_count() {
    assert_counts_through_fault(&FaultScenario {
        begin: RedisServer::kill,
        end: RedisServer::restart,
        effect: FaultEffect::UntilEnded,
    });
}

#[test]
fn pausing_redis_under_load_delays_no_request_and_loses_no_count() {
    assert_counts_through_fault(&FaultScenario {
        begin: |server| server.pause(),
        end: |server| server.resume(),
        effect: FaultEffect::UntilEnded,
    });
}

#[test]
fn a_read_only_redis_is_handled_as_an_outage() {
    assert_counts_through_fault(&FaultScenario {
        begin: |server| drop(server.run(&["REPLICAOF", "127.0.0.1", "1"])),
        end: |server| drop(server.run(&["REPLICAOF", "NO", "ONE"])),
        effect: FaultEffect::UntilEnded,
    });
}

#[test]
fn a_redis_with_full_memory_is_handled_as_an_outage() {
    assert_counts_through_fault(&FaultScenario {
        begin: |server| drop(server.run(&["CONFIG", "SET", "maxmemory", "1"])),
        end: |server| drop(server.run(&["CONFIG", "SET", "maxmemory", "0"])),
        effect: FaultEffect::UntilEnded,
    });
}

#[test]
fn flushing_redis_scripts_under_load_fails_no_call() {
    assert_counts_through_fault(&FaultScenario {
        begin: |server| {
            for _ in 0..20 {
                server.run(&["SCRIPT", "FLUSH"]);
            }
        },
        end: |_| (),
        effect: FaultEffect::Unnoticed,
    });
}

#[test]
fn a_redis_pause_of_300_ms_delays_no_request_and_loses_no_count() {
    assert_counts_through_fault(&FaultScenario {
        begin: |server| drop(server.run(&["CLIENT", "PAUSE", "300", "ALL"])),
        // Redis answers this PING once its pause is over.
        end: |server| drop(server.run(&["PING"])),
        effect: FaultEffect::Brief,
    });
}

#[test]
fn store_max_unsettled_limits_the_unsettled_calls() {
    let mut server = RedisServer::start();
    let setup = Setup::new().with_redis(&server).set("store.max_unsettled", "50");
    let setup = setup.set("plans.free", "100000");
    setup.cli(&["keys", "create", "--account", "other"]).expect(0);
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    gateway.get(DOMAIN, &key).expect(200);
    server.kill();
    let mut connection = gateway.connect();
    wait_until("the store counts as down", || {
        connection.send_request(&get(DOMAIN).key(&key));
        is_store_down(&gateway)
    });
    wait_until("the cap is reached", || {
        connection.send_request(&get(DOMAIN).key(&key)).status == 500
    });
    assert_eq!(unsettled_calls(&gateway), 50);
    let refused = connection.send_request(&get(DOMAIN).key(&key)).expect(500);
    assert_eq!(refused.header("X-Fail-Open"), Some("true"));
    server.restart();
    wait_until("they are settled", || unsettled_calls(&gateway) == 0);
    wait_until("calls are admitted", || {
        connection.send_request(&get(DOMAIN).key(&key)).status == 200
    });
}
