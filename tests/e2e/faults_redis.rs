//! A server behind a network that fails: no call too many, none that waits, none lost or counted
//! twice, and nothing left behind once it is over.

use std::time::{Duration, Instant};

use crate::harness::{Crowd, Door, End, Fault, FaultProxy, Gateway, Setup, get, until_true};
use crate::redis_server::RedisServer;

const DOMAIN: &str = "/v1/public/domain/first.test";
/// How long a call waits for the store.
const DEADLINE: &str = "100ms";
/// Far more than that, for a machine that has other things to do.
const LATE: Duration = Duration::from_secs(3);
/// Readers of usage, and what Tokio needs beside.
const MORE_THREADS: u64 = 24;

const LARGE: u64 = 1_000_000;
const MEDIUM: u64 = 600;
const SMALL: u64 = 50;

/// A gateway behind the proxy, and what it looked like while all was well.
struct Behind {
    gateway: Gateway,
    descriptors: usize,
    threads: u64,
}

impl Behind {
    fn start(proxy: &FaultProxy, on_failure: &str) -> Behind {
        let setup = Setup::new().text("store.url", &format!("redis://{}", proxy.address));
        let setup = setup.text("store.on_failure", on_failure).text("store.deadline", DEADLINE);
        Behind { gateway: plans(setup).start(), descriptors: 0, threads: 0 }
    }

    fn remember(&mut self) {
        (self.descriptors, self.threads) = (self.gateway.descriptors(), self.gateway.threads());
    }

    fn is_down(&self) -> bool {
        self.gateway.metric("riskgate_store_down", &[]) == 1.0
    }

    fn tells_of_the_store(&self) -> bool {
        self.gateway.readyz().json()["degraded"].to_string().contains("store: down")
    }

    fn unsettled(&self) -> f64 {
        self.gateway.metric("riskgate_store_unsettled_calls", &[])
    }

    /// It serves, says what is wrong, answers what it can in time, and nothing piles up.
    fn bears_it(&self, key: &str) {
        until_true("the store counts as down", || self.is_down());
        until_true("that is told", || self.tells_of_the_store());
        assert_eq!(self.gateway.readyz().status, 200, "it serves");
        let begun = Instant::now();
        let usage = self.gateway.get("/v1/usage", key);
        assert!(matches!(usage.status, 200 | 500), "{}", usage.text());
        assert!(begun.elapsed() < LATE, "{:?}", begun.elapsed());
        let threads = self.gateway.threads();
        assert!(threads <= self.threads + MORE_THREADS, "{threads} threads");
    }

    fn is_well_again(&self) {
        until_true("the store is back", || !self.is_down() && !self.tells_of_the_store());
        until_true("every call is settled", || self.unsettled() == 0.0);
        until_true("no connection is left over", || {
            self.gateway.descriptors() <= self.descriptors + 2
        });
        assert_eq!(self.gateway.metric("riskgate_panics_total", &[]), 0.0);
    }
}

fn plans(setup: Setup) -> Setup {
    let setup = setup.set("plans.free", &LARGE.to_string());
    setup.set("plans.medium", &MEDIUM.to_string()).set("plans.small", &SMALL.to_string())
}

fn key(server: &RedisServer, account: &str, plan: &str) -> String {
    let words = ["keys", "create", "--account", account, "--plan", plan];
    let made = plans(Setup::new().redis(server)).cli(&words);
    made.expect(0).stdout.trim_end().to_owned()
}

/// What the server itself has counted for an account.
fn counted(server: &RedisServer, account: &str) -> u64 {
    let names = server.keys(&format!("riskgate:ledger:{{{account}}}:*"));
    assert_eq!(names.len(), 1, "{names:?}");
    server.tell(&["HGET", &names[0], "spent"]).parse().unwrap()
}

/// Asks so often, one after the other; how many were admitted.
fn spend(gateway: &Gateway, key: &str, calls: usize) -> u64 {
    let mut connection = gateway.connect();
    let answers = (0..calls).map(|_| connection.ask(&get(DOMAIN).key(key)).status);
    answers.filter(|status| *status == 200).count() as u64
}

/// Two gateways under load, one of each policy, through a fault that is an outage, and out of it.
fn through(begin: fn(&FaultProxy)) {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(([127, 0, 0, 1], server.port()).into());
    let large = key(&server, "large", "free");
    let medium = key(&server, "medium", "medium");
    let small = key(&server, "small", "small");
    let mut open = Behind::start(&proxy, "open");
    let mut closed = Behind::start(&proxy, "closed");
    let pause = Duration::from_millis(3);
    let (large_crowd, medium_crowd) =
        (Crowd::new(DOMAIN, &large).pausing(pause), Crowd::new(DOMAIN, &medium).pausing(pause));
    let mut small_admitted = spend(&open.gateway, &small, 10);
    std::thread::scope(|scope| {
        let _ending = (large_crowd.ending(), medium_crowd.ending());
        large_crowd.come(scope, open.gateway.http, 3);
        medium_crowd.come(scope, closed.gateway.http, 3);
        until_true("calls are under way", || {
            large_crowd.said().admitted > 100 && medium_crowd.said().admitted > 100
        });
        // Usage is read on a connection of its own.
        open.gateway.month_count(&large);
        closed.gateway.month_count(&medium);
        open.remember();
        closed.remember();
        let carried = proxy.connections();
        begin(&proxy);
        open.bears_it(&large);
        closed.bears_it(&medium);
        let (served, refused) = (large_crowd.said().admitted, medium_crowd.said().failed);
        until_true("one serves, one refuses", || {
            large_crowd.said().admitted > served + 100 && medium_crowd.said().failed > refused + 100
        });
        small_admitted += spend(&open.gateway, &small, 20);
        proxy.heal();
        open.is_well_again();
        closed.is_well_again();
        until_true("no connection is left over", || proxy.connections() <= carried + 1);
        until_true("the limit is reached", || medium_crowd.said().exhausted > 20);
    });
    until_true("the small limit is reached", || {
        small_admitted += spend(&open.gateway, &small, 1);
        small_admitted >= SMALL
    });
    small_admitted += spend(&open.gateway, &small, 20);
    assert_eq!((small_admitted, medium_crowd.said().admitted), (SMALL, MEDIUM));
    for (crowd, behind, account, key) in
        [(&large_crowd, &open, "large", &large), (&medium_crowd, &closed, "medium", &medium)]
    {
        let said = crowd.said();
        println!("{said:?} within {:?}", crowd.took());
        assert_eq!(said.unknown, 0, "no client was cut off");
        assert!(crowd.took().1 < LATE, "{:?}", crowd.took());
        until_true("the server has counted what was admitted", || {
            counted(&server, account) == said.admitted
        });
        assert_eq!(behind.gateway.month_count(key), said.admitted);
    }
    assert_eq!(counted(&server, "small"), SMALL);
}

// --- connections ---

#[test]
fn a_server_that_refuses_connections_costs_no_call() {
    through(|proxy| proxy.door(Door::Shut));
}

#[test]
fn a_server_that_takes_connections_and_says_nothing_costs_no_call() {
    through(|proxy| proxy.door(Door::Deaf));
}

#[test]
fn a_server_without_room_for_a_connection_costs_no_call() {
    through(|proxy| proxy.door(Door::Full));
}

#[test]
fn a_server_that_vanished_is_noticed_within_the_deadline() {
    through(|proxy| {
        proxy.requests(Fault::Swallow);
        proxy.answers(Fault::Swallow);
    });
}

#[test]
fn a_server_that_says_no_more_on_an_open_connection_is_left() {
    through(|proxy| proxy.answers(Fault::Cut { after: 0, by: End::Half }));
}

// --- replies ---

#[test]
fn a_reply_that_is_lost_after_it_was_carried_out_counts_nothing_twice() {
    through(|proxy| proxy.answers(Fault::Cut { after: 0, by: End::Reset }));
}

#[test]
fn a_reply_that_never_comes_counts_nothing_twice() {
    through(|proxy| proxy.answers(Fault::Swallow));
}

#[test]
fn a_reply_that_breaks_off_is_not_believed() {
    through(|proxy| proxy.answers(Fault::Cut { after: 400, by: End::Close }));
}

#[test]
fn a_reply_that_comes_too_late_is_not_waited_for() {
    through(|proxy| proxy.answers(Fault::Delay(Duration::from_millis(400))));
}

#[test]
fn a_reply_that_trickles_is_not_waited_for() {
    through(|proxy| proxy.answers(Fault::Trickle(Duration::from_millis(20))));
}

#[test]
fn garbage_from_the_server_is_not_believed() {
    through(|proxy| proxy.answers(Fault::Garble { from: 0, every: 3, bits: 0x80 }));
}

// --- statements ---

#[test]
fn a_statement_that_breaks_off_is_not_carried_out() {
    through(|proxy| proxy.requests(Fault::Cut { after: 200, by: End::Reset }));
}

#[test]
fn a_statement_that_is_garbled_is_not_carried_out() {
    through(|proxy| proxy.requests(Fault::Garble { from: 0, every: 3, bits: 0x80 }));
}

/// Not enough to break every word, and enough to make others of some.
const BITS: Fault = Fault::Garble { from: 2_500, every: 61, bits: 0x01 };

#[test]
fn a_garbled_number_is_never_believed_as_a_grant() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(([127, 0, 0, 1], server.port()).into());
    let setup = plans(Setup::new().redis(&server));
    setup.cli(&["store", "init"]).expect(0);
    // Keys come from a file: those in the store are garbled too.
    let key = "a_key_that_stands_in_a_variable";
    let declared =
        "[[key]]\nid = \"one\"\naccount = \"medium\"\nplan = \"medium\"\nenv = \"KEY\"\n";
    let gateways = [(); 2].map(|()| {
        let setup = plans(Setup::new()).text("store.deadline", DEADLINE).variable("KEY", key);
        let (file, url) = (setup.path("keys.toml"), format!("redis://{}", proxy.address));
        std::fs::write(&file, declared).unwrap();
        let setup = setup.text("keys.file", &file.display().to_string());
        setup.text("store.url", &url).text("store.on_failure", "closed").start()
    });
    let crowd = Crowd::new(DOMAIN, key).pausing(Duration::from_millis(2));
    std::thread::scope(|scope| {
        let _ending = crowd.ending();
        for gateway in &gateways {
            crowd.come(scope, gateway.http, 3);
        }
        until_true("calls are under way", || crowd.said().admitted > 100);
        proxy.answers(BITS);
        let failures = |gateway: &Gateway| gateway.metric("riskgate_store_failures", &[]);
        until_true("much was garbled", || gateways.iter().all(|gateway| failures(gateway) > 15.0));
        proxy.heal();
        until_true("the limit is reached", || crowd.said().admitted >= MEDIUM);
        let refused = crowd.said().exhausted;
        until_true("nobody gives back any more", || crowd.said().exhausted > refused + 500);
    });
    assert_eq!(crowd.said().admitted, MEDIUM);
    assert_eq!(counted(&server, "medium"), MEDIUM);
}
