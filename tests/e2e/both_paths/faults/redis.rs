//! While the network to Redis is faulty, riskgate admits no call above a limit, answers in time,
//! loses no count and counts nothing twice. The fault leaves no connection behind.

use std::time::{Duration, Instant};

use crate::harness::{
    AcceptMode, CloseMode, Fault, FaultProxy, Gateway, LoadGenerator, Setup, get, wait_until,
};
use crate::redis_server::RedisServer;

const DOMAIN: &str = "/v1/public/domain/first.test";
/// How long a call waits for the store.
const STORE_DEADLINE: &str = "100ms";
/// Far longer than the deadline, because the machine may be loaded.
const LATENCY_LIMIT: Duration = Duration::from_secs(3);
/// A gateway may have this many more threads than before the fault: threads that read usage, and
/// further threads of Tokio.
const MAX_EXTRA_THREADS: u64 = 24;

const LARGE_LIMIT: u64 = 1_000_000;
const MEDIUM_LIMIT: u64 = 600;
const SMALL_LIMIT: u64 = 50;

/// A gateway that reaches Redis through the proxy, and its resources before the fault.
struct GatewayWithProxiedStore {
    gateway: Gateway,
    descriptors: usize,
    threads: u64,
}

impl GatewayWithProxiedStore {
    fn start(proxy: &FaultProxy, on_failure: &str) -> GatewayWithProxiedStore {
        let setup = Setup::new().set_text("store.url", &format!("redis://{}", proxy.address));
        let setup = setup
            .set_text("store.on_failure", on_failure)
            .set_text("store.deadline", STORE_DEADLINE);
        GatewayWithProxiedStore {
            gateway: with_three_plans(setup).start(),
            descriptors: 0,
            threads: 0,
        }
    }

    fn record_resources(&mut self) {
        (self.descriptors, self.threads) =
            (self.gateway.open_descriptor_count(), self.gateway.thread_count());
    }

    fn is_store_down(&self) -> bool {
        self.gateway.sum_of_samples("riskgate_store_down", &[]) == 1.0
    }

    fn readyz_reports_store_down(&self) -> bool {
        self.gateway.readyz().json()["degraded"].to_string().contains("store: down")
    }

    fn unsettled_calls(&self) -> f64 {
        self.gateway.sum_of_samples("riskgate_store_unsettled_calls", &[])
    }

    /// The gateway serves, reports the fault, answers in time, and accumulates nothing.
    fn assert_serves_during_fault(&self, key: &str) {
        wait_until("the store counts as down", || self.is_store_down());
        wait_until("riskgate reports it", || self.readyz_reports_store_down());
        assert_eq!(self.gateway.readyz().status, 200, "it serves");
        let begun = Instant::now();
        let usage = self.gateway.get("/v1/usage", key);
        assert!(matches!(usage.status, 200 | 500), "{}", usage.text());
        assert!(begun.elapsed() < LATENCY_LIMIT, "{:?}", begun.elapsed());
        let threads = self.gateway.thread_count();
        assert!(threads <= self.threads + MAX_EXTRA_THREADS, "{threads} threads");
    }

    fn assert_recovered(&self) {
        wait_until("the store is back", || {
            !self.is_store_down() && !self.readyz_reports_store_down()
        });
        wait_until("every call is settled", || self.unsettled_calls() == 0.0);
        wait_until("no connection is left over", || {
            self.gateway.open_descriptor_count() <= self.descriptors + 2
        });
        assert_eq!(self.gateway.sum_of_samples("riskgate_panics_total", &[]), 0.0);
    }
}

fn with_three_plans(setup: Setup) -> Setup {
    let setup = setup.set("plans.free", &LARGE_LIMIT.to_string());
    setup
        .set("plans.medium", &MEDIUM_LIMIT.to_string())
        .set("plans.small", &SMALL_LIMIT.to_string())
}

fn create_key(server: &RedisServer, account: &str, plan: &str) -> String {
    let words = ["keys", "create", "--account", account, "--plan", plan];
    let made = with_three_plans(Setup::new().with_redis(server)).cli(&words);
    made.expect(0).stdout.trim_end().to_owned()
}

/// The count that Redis has for an account.
fn read_spent_from_redis(server: &RedisServer, account: &str) -> u64 {
    let names = server.matching_keys(&format!("riskgate:ledger:{{{account}}}:*"));
    assert_eq!(names.len(), 1, "{names:?}");
    server.run(&["HGET", &names[0], "spent"]).parse().unwrap()
}

/// Makes this many calls one after the other. Returns the number of admitted calls.
fn make_calls(gateway: &Gateway, key: &str, calls: usize) -> u64 {
    let mut connection = gateway.connect();
    let answers = (0..calls).map(|_| connection.send_request(&get(DOMAIN).key(key)).status);
    answers.filter(|status| *status == 200).count() as u64
}

/// Waits until each thread of the gateways has opened its connection, and returns how many the
/// proxy has. A thread connects when it first needs the store.
fn wait_for_all_connections(proxy: &FaultProxy) -> usize {
    let mut count = 0;
    wait_until("each thread has its connection", || {
        std::thread::sleep(Duration::from_millis(1_500));
        let before = std::mem::replace(&mut count, proxy.connection_count());
        before == count
    });
    count
}

/// Runs two gateways under load, one with each value of `store.on_failure`, through an outage and
/// until they have recovered. Asserts that every admitted call is counted exactly once.
fn assert_counts_through_fault(begin: fn(&FaultProxy)) {
    let server = RedisServer::start();
    let proxy = FaultProxy::in_front_of(([127, 0, 0, 1], server.port()).into());
    let large = create_key(&server, "large", "free");
    let medium = create_key(&server, "medium", "medium");
    let small = create_key(&server, "small", "small");
    let mut open = GatewayWithProxiedStore::start(&proxy, "open");
    let mut closed = GatewayWithProxiedStore::start(&proxy, "closed");
    let pause = Duration::from_millis(3);
    let (large_crowd, medium_crowd) = (
        LoadGenerator::new(DOMAIN, &large).with_pause(pause),
        LoadGenerator::new(DOMAIN, &medium).with_pause(pause),
    );
    let (large_counts, medium_counts) =
        (|| large_crowd.response_counts(), || medium_crowd.response_counts());
    let mut small_admitted = make_calls(&open.gateway, &small, 10);
    std::thread::scope(|scope| {
        let _stop_guard = (large_crowd.stop_on_drop(), medium_crowd.stop_on_drop());
        large_crowd.spawn_clients(scope, open.gateway.http, 3);
        medium_crowd.spawn_clients(scope, closed.gateway.http, 3);
        wait_until("calls are under way", || {
            large_counts().admitted > 100 && medium_counts().admitted > 100
        });
        // Usage is read on another connection.
        open.gateway.get_month_count(&large);
        closed.gateway.get_month_count(&medium);
        open.record_resources();
        closed.record_resources();
        let carried = wait_for_all_connections(&proxy);
        begin(&proxy);
        open.assert_serves_during_fault(&large);
        closed.assert_serves_during_fault(&medium);
        let (served, refused) = (large_counts().admitted, medium_counts().internal_errors);
        wait_until("one gateway serves, the other refuses", || {
            large_counts().admitted > served + 100
                && medium_counts().internal_errors > refused + 100
        });
        small_admitted += make_calls(&open.gateway, &small, 20);
        proxy.clear_faults();
        open.assert_recovered();
        closed.assert_recovered();
        wait_until("no connection is left over", || proxy.connection_count() <= carried + 1);
        wait_until("the limit is reached", || medium_counts().quota_exceeded > 20);
    });
    wait_until("the small limit is reached", || {
        small_admitted += make_calls(&open.gateway, &small, 1);
        small_admitted >= SMALL_LIMIT
    });
    small_admitted += make_calls(&open.gateway, &small, 20);
    assert_eq!((small_admitted, medium_counts().admitted), (SMALL_LIMIT, MEDIUM_LIMIT));
    for (clients, behind, account, key) in
        [(&large_crowd, &open, "large", &large), (&medium_crowd, &closed, "medium", &medium)]
    {
        let counts = clients.response_counts();
        println!("{counts:?} within {:?}", clients.latency_p99_and_max());
        assert_eq!(counts.unknown, 0, "no client was cut off");
        assert!(
            clients.latency_p99_and_max().1 < LATENCY_LIMIT,
            "{:?}",
            clients.latency_p99_and_max()
        );
        wait_until("the server has counted what was admitted", || {
            read_spent_from_redis(&server, account) == counts.admitted
        });
        assert_eq!(behind.gateway.get_month_count(key), counts.admitted);
    }
    assert_eq!(read_spent_from_redis(&server, "small"), SMALL_LIMIT);
}

// --- connections ---

#[test]
fn calls_are_counted_exactly_while_redis_refuses_connections() {
    assert_counts_through_fault(|proxy| proxy.set_accept_mode(AcceptMode::Refuse));
}

#[test]
fn calls_are_counted_exactly_while_redis_accepts_connections_but_is_silent() {
    assert_counts_through_fault(|proxy| proxy.set_accept_mode(AcceptMode::AcceptOnly));
}

#[test]
fn calls_are_counted_exactly_while_the_listen_queue_of_redis_is_full() {
    assert_counts_through_fault(|proxy| proxy.set_accept_mode(AcceptMode::BacklogFull));
}

#[test]
fn calls_are_counted_exactly_while_all_bytes_from_and_to_redis_are_lost() {
    assert_counts_through_fault(|proxy| {
        proxy.set_request_fault(Fault::Blackhole);
        proxy.set_response_fault(Fault::Blackhole);
    });
}

#[test]
fn calls_are_counted_exactly_while_redis_half_closes_its_connections() {
    assert_counts_through_fault(|proxy| {
        proxy.set_response_fault(Fault::Cut { after: 0, by: CloseMode::HalfClose })
    });
}

// --- replies ---

#[test]
fn calls_are_counted_exactly_while_connections_reset_before_each_reply() {
    assert_counts_through_fault(|proxy| {
        proxy.set_response_fault(Fault::Cut { after: 0, by: CloseMode::Reset })
    });
}

#[test]
fn calls_are_counted_exactly_while_all_replies_of_redis_are_lost() {
    assert_counts_through_fault(|proxy| proxy.set_response_fault(Fault::Blackhole));
}

#[test]
fn calls_are_counted_exactly_while_replies_of_redis_are_truncated() {
    assert_counts_through_fault(|proxy| {
        proxy.set_response_fault(Fault::Cut { after: 400, by: CloseMode::Close })
    });
}

#[test]
fn calls_are_counted_exactly_while_replies_come_after_the_deadline() {
    assert_counts_through_fault(|proxy| {
        proxy.set_response_fault(Fault::Delay(Duration::from_millis(400)))
    });
}

#[test]
fn calls_are_counted_exactly_while_replies_of_redis_trickle() {
    assert_counts_through_fault(|proxy| {
        proxy.set_response_fault(Fault::Trickle(Duration::from_millis(20)))
    });
}

#[test]
fn calls_are_counted_exactly_while_replies_of_redis_are_corrupt() {
    assert_counts_through_fault(|proxy| {
        proxy.set_response_fault(Fault::FlipBits { from: 0, every: 3, bits: 0x80 })
    });
}

// --- lease reports ---

#[test]
fn calls_are_counted_exactly_while_lease_reports_are_truncated() {
    assert_counts_through_fault(|proxy| {
        proxy.set_request_fault(Fault::Cut { after: 200, by: CloseMode::Reset })
    });
}

#[test]
fn calls_are_counted_exactly_while_lease_reports_are_corrupt() {
    assert_counts_through_fault(|proxy| {
        proxy.set_request_fault(Fault::FlipBits { from: 0, every: 3, bits: 0x80 })
    });
}

/// The fault corrupts some messages, and leaves others intact.
const SPARSE_BIT_FLIPS: Fault = Fault::FlipBits { from: 1_800, every: 61, bits: 0x01 };

#[test]
fn flipped_bits_in_replies_never_admit_more_calls_than_the_limit() {
    let server = RedisServer::start();
    let proxy = FaultProxy::in_front_of(([127, 0, 0, 1], server.port()).into());
    let setup = with_three_plans(Setup::new().with_redis(&server));
    setup.cli(&["store", "init"]).expect(0);
    // The keys come from a file, because the proxy garbles keys in the store too.
    let key = "a_key_that_stands_in_a_variable";
    let declared =
        "[[key]]\nid = \"one\"\naccount = \"medium\"\nplan = \"medium\"\nenv = \"KEY\"\n";
    let gateways = [(); 2].map(|()| {
        let setup = with_three_plans(Setup::new())
            .set_text("store.deadline", STORE_DEADLINE)
            .env("KEY", key);
        let (file, url) = (setup.path("keys.toml"), format!("redis://{}", proxy.address));
        std::fs::write(&file, declared).unwrap();
        let setup = setup.set_text("keys.file", &file.display().to_string());
        setup.set_text("store.url", &url).set_text("store.on_failure", "closed").start()
    });
    // Once the limit is reached, the gateways ask the server only twice a second. After a corrupt
    // reply, they wait before they connect again. So the clients are slow enough that many replies
    // are corrupt before the limit is reached: 75 calls in a second, 8 seconds for all.
    let clients = LoadGenerator::new(DOMAIN, key).with_pause(Duration::from_millis(80));
    std::thread::scope(|scope| {
        let _stop_guard = clients.stop_on_drop();
        for gateway in &gateways {
            clients.spawn_clients(scope, gateway.http, 3);
        }
        wait_until("calls are under way", || clients.response_counts().admitted > 100);
        proxy.set_response_fault(SPARSE_BIT_FLIPS);
        let failures =
            |gateway: &Gateway| gateway.sum_of_samples("riskgate_store_failures_total", &[]);
        wait_until("many replies were corrupt", || {
            gateways.iter().all(|gateway| failures(gateway) > 15.0)
        });
        proxy.clear_faults();
        wait_until("the limit is reached", || clients.response_counts().admitted >= MEDIUM_LIMIT);
        let refused = clients.response_counts().quota_exceeded;
        wait_until("all unspent leases are returned", || {
            clients.response_counts().quota_exceeded > refused + 500
        });
    });
    assert_eq!(clients.response_counts().admitted, MEDIUM_LIMIT);
    wait_until("the server has counted what was admitted", || {
        read_spent_from_redis(&server, "medium") == MEDIUM_LIMIT
    });
}
