//! `rates.shared`: nodes of one Redis server share the rates of clients.
//!
//! The stated error with n nodes: a client gets at most its burst, what refills meanwhile, and
//! (n - 1) times what one node admits until it knows of the others, within a second.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{Connection, FakeClock, Gateway, MockUpstream, Setup, get, wait_until};
use crate::redis_server::RedisServer;

/// Longer than a node needs to exchange what it admitted, also on a loaded machine.
const EXCHANGE_TIME: Duration = Duration::from_millis(1_500);

fn client(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 31, 7, last))
}

fn setup(server: &RedisServer, upstream: &MockUpstream, rate: &str) -> Setup {
    let route =
        format!("[[upstream.route]]\nprefix = \"/page\"\nkey = false\nmax_per_client = {rate:?}\n");
    let setup = Setup::new().with_redis(server).with_upstreams(&[upstream.address]);
    setup.set("rates.shared", "true").append_toml(&route)
}

fn start(setup: Setup) -> Gateway {
    let gateway = setup.start();
    wait_until("rates are shared", || is_sharing(&gateway));
    gateway
}

fn is_sharing(gateway: &Gateway) -> bool {
    !gateway.readyz().text().contains("\"rates")
}

/// The status of the answer to one request, and its `Retry-After`.
fn ask(gateway: &Gateway, client: IpAddr) -> (u16, Option<u64>) {
    let answer = Connection::open_from(client, gateway.http).send_request(&get("/page"));
    (answer.status, answer.header("Retry-After").map(|text| text.parse().unwrap()))
}

/// Sends so many requests, and returns how many the gateway admitted.
fn count_admitted(gateway: &Gateway, client: IpAddr, requests: usize) -> usize {
    (0..requests).filter(|_| ask(gateway, client).0 == 200).count()
}

#[test]
fn a_client_of_three_nodes_gets_its_rate_and_one_request_more_for_each_further_node() {
    let (server, upstream) = (RedisServer::start(), MockUpstream::start());
    let nodes: Vec<Gateway> = (0..3).map(|_| start(setup(&server, &upstream, "20/h"))).collect();
    assert_eq!(count_admitted(&nodes[0], client(1), 25), 20);
    for (further, node) in nodes[1..].iter().enumerate() {
        std::thread::sleep(EXCHANGE_TIME);
        // The node does not know this client yet.
        assert_eq!(ask(node, client(1)).0, 200);
        std::thread::sleep(EXCHANGE_TIME);
        // What was admitted too much has to be refilled first.
        let (status, retry_after) = ask(node, client(1));
        assert_eq!(status, 429);
        let refill_time = 180 * (further as u64 + 2);
        assert!(
            (refill_time - 60..=refill_time).contains(&retry_after.unwrap()),
            "{retry_after:?}"
        );
    }
    for node in &nodes {
        assert_eq!(count_admitted(node, client(1), 5), 0);
        assert_eq!(ask(node, client(2)).0, 200, "another client has its own bucket");
    }
    std::thread::sleep(EXCHANGE_TIME);
    let search = "for _, text in ipairs(redis.call('HGETALL', KEYS[1])) do \
                  if text:find('127.31') or text:find('page') then return 'found' end end \
                  return redis.call('HLEN', KEYS[1])";
    let stored = server.run(&["EVAL", search, "1", "riskgate:{rates}:buckets"]);
    assert_eq!(stored.trim(), "2", "two clients, and no text that names them");
    let ttl: i64 = server.run(&["TTL", "riskgate:{rates}:buckets"]).trim().parse().unwrap();
    assert!((1..=31 * 86_400).contains(&ttl), "{ttl}");
}

#[test]
fn a_client_that_floods_three_nodes_stays_within_the_stated_error() {
    const BURST: usize = 10;
    const SECONDS: u64 = 6;
    /// How many requests refill in a second.
    const REFILL: usize = 5;
    let (server, upstream) = (RedisServer::start(), MockUpstream::start());
    let nodes: Vec<Gateway> = (0..3).map(|_| start(setup(&server, &upstream, "10/2s"))).collect();
    let (admitted, started) = (AtomicUsize::new(0), Instant::now());
    std::thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(|| {
                while started.elapsed().as_secs() < SECONDS {
                    admitted.fetch_add(count_admitted(node, client(1), 1), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
        }
    });
    let (admitted, seconds) = (admitted.into_inner(), started.elapsed().as_secs_f64());
    let refilled = (seconds * REFILL as f64).ceil() as usize;
    let of_one_node = BURST + REFILL;
    assert!(admitted <= BURST + refilled + 2 * of_one_node, "{admitted} in {seconds} s");
    // Nothing that the rate allows is withheld.
    assert!(admitted >= SECONDS as usize * REFILL, "{admitted} in {seconds} s");
}

#[test]
fn a_node_that_starts_again_learns_what_a_client_has_used() {
    let (server, upstream) = (RedisServer::start(), MockUpstream::start());
    let node = start(setup(&server, &upstream, "5/h"));
    assert_eq!(count_admitted(&node, client(1), 9), 5);
    // The last requests are told at the end of the process.
    let node = node.restart();
    wait_until("rates are shared", || is_sharing(&node));
    assert_eq!(ask(&node, client(1)).0, 200);
    std::thread::sleep(EXCHANGE_TIME);
    assert_eq!(count_admitted(&node, client(1), 9), 0);
}

#[test]
fn a_server_that_hangs_leaves_each_node_with_its_own_rates() {
    let (server, upstream) = (RedisServer::start(), MockUpstream::start());
    let [first, second] = [(); 2].map(|()| start(setup(&server, &upstream, "5/h")));
    assert_eq!(count_admitted(&first, client(1), 2), 2);
    std::thread::sleep(EXCHANGE_TIME);
    server.pause();
    for node in [&first, &second] {
        let started = Instant::now();
        assert_eq!(count_admitted(node, client(2), 8), 5);
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
        wait_until("the fault is told", || node.readyz().text().contains("\"rates: "));
    }
    assert_eq!(count_admitted(&first, client(1), 8), 3);
    let lost = |node: &Gateway| node.sum_of_samples("riskgate_store_rate_requests_lost_total", &[]);
    wait_until("lost requests are counted", || lost(&first) >= 8.0);
    server.resume();
    for node in [&first, &second] {
        wait_until("rates are shared again", || is_sharing(node));
        assert_eq!(ask(node, client(3)).0, 200);
        std::thread::sleep(EXCHANGE_TIME);
    }
    // An exchange whose answer came too late charged nobody twice: two of five were used, and three
    // on the other node, which has told nothing of them.
    assert_eq!(ask(&second, client(1)).0, 200);
    std::thread::sleep(EXCHANGE_TIME);
    assert_eq!(count_admitted(&second, client(3), 8), 3);
    let failures = ["outcome=\"failed\""];
    assert!(first.sum_of_samples("riskgate_store_rate_exchanges_total", &failures) >= 1.0);
}

#[test]
fn a_user_that_may_not_write_the_secret_is_told_why_rates_are_not_shared() {
    let (server, upstream) = (RedisServer::start(), MockUpstream::start());
    let patterns = ["resetkeys", "~riskgate:{[^i]*"];
    server.run(&[&["ACL", "SETUSER", "some", "on", ">pass-pw", "+@all"][..], &patterns].concat());
    let setup = setup(&server, &upstream, "5/h");
    let gateway = setup.set_text("store.url", &server.url_as("some", "pass-pw")).start();
    wait_until("the reason is told", || {
        let degraded = gateway.readyz().json()["degraded"].to_string();
        degraded.contains("\"rates: ") && degraded.contains("permissions")
    });
    let failures = ["outcome=\"failed\""];
    let failed = || gateway.sum_of_samples("riskgate_store_rate_exchanges_total", &failures);
    wait_until("failures are counted", || failed() >= 2.0);
    server.run(&["ACL", "SETUSER", "some", "~riskgate:*"]);
    wait_until("rates are shared", || is_sharing(&gateway));
}

#[test]
fn steps_of_the_clock_of_the_server_lock_nobody_out() {
    let (clock, upstream) = (FakeClock::starting_at("2031-04-15T12:00:00Z"), MockUpstream::start());
    let server = RedisServer::start_with_env(&clock.environment_variables());
    let setup = || setup(&server, &upstream, "10/10s").with_clock(&clock);
    let [first, second] = [(); 2].map(|()| start(setup()));
    assert_eq!(count_admitted(&first, client(1), 12), 10);
    std::thread::sleep(EXCHANGE_TIME);
    clock.step(-86_400);
    let asked_at = Instant::now();
    let mut admitted = 0;
    wait_until("the bucket refills", || {
        admitted += count_admitted(&second, client(1), 1);
        admitted >= 3
    });
    assert!(asked_at.elapsed() < Duration::from_secs(8), "{:?}", asked_at.elapsed());
    clock.step(2 * 86_400);
    std::thread::sleep(EXCHANGE_TIME);
    // The node still knows what it has admitted itself.
    assert!(count_admitted(&first, client(1), 20) <= 10);
    assert_eq!(ask(&first, client(2)).0, 200);
    assert_eq!(ask(&second, client(2)).0, 200);
}

#[test]
fn a_store_in_a_file_shares_no_rates_and_says_so() {
    let refused = Setup::new().set("rates.shared", "true").cli(&["check"]).expect(78);
    let expected = "rates.shared: expected a store.url of a Redis or Valkey server";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    Setup::new().set("rates.shared", "false").cli(&["check"]).expect(0);
}
