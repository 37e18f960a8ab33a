//! Tests of the rates of clients that nodes of a server share.

use std::time::{Duration, Instant};

use super::super::redis_server::RedisServer;
use super::super::{MAX_RATE_CHARGES, Redis, RedisOptions, StoreUrl};
use crate::model::rate_charge::RateCharge;
use crate::model::sign_up::Pseudonym;

const KEY: &str = "riskgate:{rates}:buckets";
const HOUR: u64 = 3_600_000_000_000;
/// More than passes between two statements of a test.
const TOLERANCE: u64 = HOUR / 60;

pub(super) fn open(url: &str) -> Redis {
    let StoreUrl::Redis(url) = StoreUrl::parse(url).unwrap() else { panic!() };
    Redis::new(&url, &RedisOptions::default(), Duration::from_secs(5)).unwrap()
}

/// A charge of a bucket. Those with numbers that differ by a multiple of 32,768 are in one set.
fn charge(bucket: u64, refill_ns: u64) -> RateCharge {
    let mut bytes = [7; 16];
    bytes[..8].copy_from_slice(&bucket.to_be_bytes());
    let bucket = Pseudonym(bytes);
    RateCharge {
        bucket,
        refill_ns,
        first_request_age_ns: 0,
        until_full_ns: refill_ns,
        not_full_for_ns: 0,
        max_until_full_ns: 32 * HOUR,
    }
}

#[track_caller]
fn assert_about(found: u64, expected: u64) {
    assert!((expected.saturating_sub(TOLERANCE)..=expected).contains(&found), "{found}");
}

/// Tells the server charges of this moment.
fn tell(store: &mut Redis, charges: &[RateCharge]) -> Vec<u64> {
    store.charge_rates(charges, Instant::now()).unwrap()
}

/// Makes charges of buckets that are full soon, and lets the server delete them.
pub(super) fn charge_and_clean(store: &mut Redis) {
    const NANOSECOND: u64 = 1;
    let charges: Vec<RateCharge> = (0..125).map(|n| charge(n, NANOSECOND)).collect();
    tell(store, &charges);
    std::thread::sleep(Duration::from_millis(2_100));
    // After a round over all sets, these are the next ones.
    (0..32_768 / 16).for_each(|_| drop(tell(store, &[])));
}

/// The number of buckets on the server.
fn count_buckets(server: &RedisServer) -> usize {
    let count = "local count = 0 for _, text in ipairs(redis.call('HVALS', KEYS[1])) do \
                 count = count + (#text - 8) / 28 end return count";
    server.run(&["EVAL", count, "1", KEY]).trim().parse().unwrap()
}

#[test]
fn charges_of_all_nodes_add_up_and_refill_with_time() {
    let server = RedisServer::start();
    let (mut one, mut other) = (open(&server.url()), open(&server.url()));
    let charges = [charge(1, HOUR), charge(2, 3 * HOUR), charge(1 + 32_768, 5 * HOUR)];
    for time in [1, 2] {
        let replies = tell(&mut one, &charges);
        for (found, refill) in replies.into_iter().zip([1, 3, 5]) {
            assert_about(found, time * refill * HOUR);
        }
    }
    assert_about(tell(&mut other, &[charge(1, HOUR)])[0], 3 * HOUR);
    let started = Instant::now();
    let first = tell(&mut other, &[charge(2, 0)])[0];
    std::thread::sleep(Duration::from_millis(50));
    let second = tell(&mut one, &[charge(2, 0)])[0];
    let refilled = first - second;
    assert!(refilled >= 50_000_000 && u128::from(refilled) <= started.elapsed().as_nanos());
}

#[test]
fn a_server_that_lost_a_bucket_gets_it_from_the_next_charge() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    let known = RateCharge { until_full_ns: 5 * HOUR, ..charge(1, HOUR) };
    assert_about(tell(&mut store, &[known])[0], 5 * HOUR);
    // What the server knows already does not count twice.
    assert_about(tell(&mut store, &[known])[0], 6 * HOUR);
    let more = RateCharge { until_full_ns: 40 * HOUR, ..charge(1, HOUR) };
    assert_eq!(tell(&mut store, &[more]), [32 * HOUR], "no more than the maximum");
}

#[test]
fn requests_that_were_refilled_before_they_are_told_do_not_count() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    let told_late = |age: u64, until_full_ns: u64| RateCharge {
        first_request_age_ns: age,
        until_full_ns,
        not_full_for_ns: if until_full_ns > 0 { age } else { 0 },
        ..charge(1, 3 * HOUR)
    };
    // Three hours of requests two hours ago: one hour is left, and the bucket is in use for two.
    assert_about(tell(&mut store, &[told_late(2 * HOUR, HOUR)])[0], HOUR);
    // Of another node: all of it counts, because the bucket has not been full since.
    assert_about(tell(&mut store, &[told_late(HOUR, 0)])[0], 4 * HOUR);
    // Half an hour before that, the bucket may have been full.
    let replies = tell(&mut store, &[told_late(5 * HOUR / 2, 0)]);
    assert_about(replies[0], 13 * HOUR / 2);
    // What was refilled before that takes nothing from the others.
    let replies = tell(&mut store, &[told_late(8 * HOUR, 0)]);
    assert_about(replies[0], 13 * HOUR / 2);
    // What this node knows is no more than that.
    let replies = tell(&mut store, &[told_late(9 * HOUR, 7 * HOUR)]);
    assert_about(replies[0], 7 * HOUR);
}

#[test]
fn no_order_of_requests_refills_the_same_time_twice() {
    const MILLISECOND: u64 = 1_000_000;
    let server = RedisServer::start();
    let mut store = open(&server.url());
    let told = |age: u64, left: u64| RateCharge {
        first_request_age_ns: age * MILLISECOND,
        until_full_ns: left * MILLISECOND,
        ..charge(1, 400 * MILLISECOND)
    };
    // A first charge is told late, because it waits for the connection.
    tell(&mut store, &[]);
    let started = Instant::now();
    tell(&mut store, &[told(0, 400)]);
    // Requests that came before those, and are told later.
    let until_full: Vec<u64> = (0..12).map(|_| tell(&mut store, &[told(450, 0)])[0]).collect();
    // At most a second of the 5.2 that all of them need has refilled, and what passed meanwhile.
    let passed = started.elapsed().as_nanos() as u64;
    let least = (4_200 * MILLISECOND).saturating_sub(passed + 100 * MILLISECOND);
    assert!((least..=4_200 * MILLISECOND).contains(&until_full[11]), "{passed} {until_full:?}");
}

/// Asserts that of a bucket that needed `charged_ns` at `told_at`, as much has refilled as time has
/// passed since then: `delay` at least.
#[track_caller]
fn assert_refilled_since(told_at: Instant, until_full_ns: u64, charged_ns: u64, delay: Duration) {
    const TOLERANCE_NS: u64 = 500_000_000;
    let most = charged_ns - delay.as_nanos() as u64;
    let least = charged_ns.saturating_sub(told_at.elapsed().as_nanos() as u64 + TOLERANCE_NS);
    assert!((least..=most).contains(&until_full_ns), "{until_full_ns}: {least}..={most}");
}

#[test]
fn a_statement_that_arrives_late_does_not_count_what_was_refilled_meanwhile() {
    const SECOND: u64 = 1_000_000_000;
    let server = RedisServer::start();
    let mut store = open(&server.url());
    // The node learns the time of the server.
    tell(&mut store, &[]);
    let delay = Duration::from_secs(4);
    let told_at = Instant::now();
    std::thread::sleep(delay);
    let charges = [charge(1, 10 * SECOND), charge(2, 3 * SECOND)];
    let until_full = store.charge_rates(&charges, told_at).unwrap();
    assert_refilled_since(told_at, until_full[0], 10 * SECOND, delay);
    assert_eq!(until_full[1], 0);
    // The other node told nothing late.
    let until_full = tell(&mut open(&server.url()), &[charge(1, 10 * SECOND)]);
    assert_refilled_since(told_at, until_full[0], 20 * SECOND, delay);
}

#[test]
fn the_first_charge_of_a_connection_knows_how_late_it_is() {
    const SECOND: u64 = 1_000_000_000;
    let server = RedisServer::start();
    let (told_at, delay) = (Instant::now(), Duration::from_secs(4));
    std::thread::sleep(delay);
    let mut store = open(&server.url());
    let until_full = store.charge_rates(&[charge(1, 10 * SECOND)], told_at).unwrap();
    assert_refilled_since(told_at, until_full[0], 10 * SECOND, delay);
}

#[test]
fn a_charge_that_was_given_up_is_ignored_when_it_arrives() {
    let server = RedisServer::start();
    let StoreUrl::Redis(url) = StoreUrl::parse(&server.url()).unwrap() else { panic!() };
    let timeout = Duration::from_millis(500);
    let mut store = Redis::new(&url, &RedisOptions::default(), timeout).unwrap();
    assert_about(tell(&mut store, &[charge(2, HOUR)])[0], HOUR);
    let count_scripts = || -> u64 {
        let stats = server.run(&["INFO", "commandstats"]);
        let calls = stats.split_once("cmdstat_evalsha:calls=").unwrap().1;
        calls.split(',').next().unwrap().parse().unwrap()
    };
    let before = count_scripts();
    server.pause();
    assert!(store.charge_rates(&[charge(1, HOUR)], Instant::now()).is_err());
    std::thread::sleep(Duration::from_millis(200));
    server.resume();
    let resumed = Instant::now();
    while count_scripts() == before {
        assert!(resumed.elapsed() < Duration::from_secs(5), "the script arrives");
        std::thread::sleep(Duration::from_millis(10));
    }
    // The node tells what it knows, with one request more.
    let again = RateCharge { until_full_ns: 2 * HOUR, ..charge(1, HOUR) };
    assert_about(tell(&mut store, &[again])[0], 2 * HOUR);
}

#[test]
fn a_clock_of_the_server_that_jumps_makes_buckets_fuller_and_never_emptier() {
    const SECOND: u64 = 1_000_000_000;
    let server = RedisServer::start();
    let mut store = open(&server.url());
    tell(&mut store, &[charge(1, 10 * SECOND)]);
    // As if the clock had gone back by an hour since then.
    let rewrite = "local stored = redis.call('HGET', KEYS[1], '1')
        local at = struct.unpack('>d', stored)
        redis.call('HSET', KEYS[1], '1', struct.pack('>d', at + 3.6e9) .. string.sub(stored, 9))";
    server.run(&["EVAL", rewrite, "1", KEY]);
    // After eight seconds, the node knows that two of the first ten are left, and charges one more.
    let later = RateCharge { until_full_ns: 3 * SECOND, ..charge(1, SECOND) };
    for charge in [later, charge(1, 0)] {
        let until_full = tell(&mut store, &[charge])[0];
        assert!((2 * SECOND..=3 * SECOND).contains(&until_full), "{until_full}");
    }
}

#[test]
fn a_full_set_forgets_the_bucket_that_would_be_full_soonest() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    let charges: Vec<RateCharge> = (0..8).map(|n| charge(n << 15, (9 - n) * HOUR)).collect();
    tell(&mut store, &charges);
    assert_about(tell(&mut store, &[charge(9 << 15, 3 * HOUR)])[0], 3 * HOUR);
    assert_eq!(count_buckets(&server), 8);
    let replies = tell(&mut store, &[charge(7 << 15, 0), charge(0, 0)]);
    assert_eq!(replies[0], 0, "it was forgotten");
    assert_about(replies[1], 9 * HOUR);
}

#[test]
fn the_memory_of_the_server_is_bounded_and_full_buckets_are_deleted() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    let spread = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for page in 0..2_400 {
        let first = page * MAX_RATE_CHARGES as u64;
        let charges = (first..first + MAX_RATE_CHARGES as u64).map(|n| charge(spread(n), HOUR));
        tell(&mut store, &charges.collect::<Vec<_>>());
    }
    assert!(count_buckets(&server) <= 262_144);
    let bytes: u64 = server.run(&["MEMORY", "USAGE", KEY, "SAMPLES", "0"]).trim().parse().unwrap();
    assert!(bytes < 10 * 1_024 * 1_024, "{bytes}");
    server.run(&["DEL", KEY]);
    charge_and_clean(&mut store);
    assert_eq!(count_buckets(&server), 0);
}

#[test]
fn what_somebody_else_wrote_is_a_full_bucket_or_a_fault_and_no_wait() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    for length in [0, 1, 7, 8, 9, 28, 32, 35, 36, 37, 64, 232, 260, 1_000] {
        // Of 8 bytes 0x7f, the number is about 10 to the 306th.
        let text = &"\u{7f}".repeat(length);
        server.run(&["HSET", KEY, "255", text]);
        let replies = tell(&mut store, &[charge(255, HOUR), charge(1, HOUR)]);
        assert!(replies[0] <= 32 * HOUR, "{length}");
        assert_about(replies[1], HOUR);
        server.run(&["DEL", KEY]);
    }
    server.run(&["SET", KEY, "x"]);
    assert!(store.charge_rates(&[charge(1, HOUR)], Instant::now()).is_err());
    server.run(&["DEL", KEY]);
    assert_about(tell(&mut store, &[charge(1, HOUR)])[0], HOUR);
}
