//! Rates of clients: on one node, and on nodes that share them.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use super::*;
use crate::support::random_numbers::{RandomNumbers, first_seed};

fn client(text: &str) -> ClientPrefix {
    ClientPrefix::from(text.parse::<IpAddr>().unwrap())
}

fn rate(burst: u32, seconds: u64) -> Rate {
    Rate::new(burst, Duration::from_secs(seconds)).unwrap()
}

fn take(
    rates: &ClientRates,
    scope: &str,
    client: ClientPrefix,
    rate: Rate,
    now: Instant,
) -> Result<(), Duration> {
    rates.charge_request(&[(scope, rate)], client, now)
}

#[test]
fn a_request_that_one_rate_refuses_is_charged_to_no_rate() {
    let (rates, now, client) = (ClientRates::new(false), Instant::now(), client("192.0.2.1"));
    let limits = [("a", rate(3, 60)), ("b", rate(1, 60))];
    assert_eq!(rates.charge_request(&limits, client, now), Ok(()));
    for _ in 0..5 {
        assert!(rates.charge_request(&limits, client, now).is_err());
    }
    for _ in 0..2 {
        assert_eq!(take(&rates, "a", client, rate(3, 60), now), Ok(()));
    }
    assert!(take(&rates, "a", client, rate(3, 60), now).is_err());
}

#[test]
fn a_bucket_holds_its_burst_and_refills_evenly() {
    let (rates, rate, start) = (ClientRates::new(false), rate(3, 60), Instant::now());
    let take_at =
        |text, seconds| take(&rates, "a", client(text), rate, start + Duration::from_secs(seconds));
    for _ in 0..3 {
        assert_eq!(take_at("192.0.2.1", 0), Ok(()));
    }
    assert_eq!(take_at("192.0.2.1", 0), Err(Duration::from_secs(20)));
    assert_eq!(take_at("192.0.2.1", 19), Err(Duration::from_secs(1)));
    assert_eq!(take_at("192.0.2.2", 19), Ok(()), "each client has its own bucket");
    assert_eq!(take_at("192.0.2.1", 20), Ok(()));
    assert_eq!(take_at("192.0.2.1", 20), Err(Duration::from_secs(20)));
    for _ in 0..3 {
        assert_eq!(take_at("192.0.2.1", 1_000), Ok(()));
    }
    assert!(take_at("192.0.2.1", 1_000).is_err(), "an idle bucket holds no more than its burst");
}

#[test]
fn scopes_have_buckets_of_their_own_and_an_ipv6_network_has_one() {
    let (rates, rate, now) = (ClientRates::new(false), rate(1, 60), Instant::now());
    assert!(take(&rates, "a", client("2001:db8::1"), rate, now).is_ok());
    assert!(take(&rates, "a", client("2001:db8::2"), rate, now).is_err());
    assert!(take(&rates, "b", client("2001:db8::2"), rate, now).is_ok());
    assert!(take(&rates, "a", client("2001:db8:0:1::1"), rate, now).is_ok());
}

#[test]
fn a_lower_rate_applies_at_once_and_keeps_nobody_waiting_longer() {
    let (rates, now) = (ClientRates::new(false), Instant::now());
    for _ in 0..10 {
        assert!(take(&rates, "a", client("192.0.2.1"), rate(10, 3_600), now).is_ok());
    }
    let wait = take(&rates, "a", client("192.0.2.1"), rate(1, 10), now).unwrap_err();
    assert_eq!(wait, Duration::from_secs(10));
    let later = now + Duration::from_secs(10);
    assert!(take(&rates, "a", client("192.0.2.1"), rate(1, 10), later).is_ok());
}

#[test]
fn a_million_clients_never_block_another_one() {
    let (rates, rate, now) = (ClientRates::new(false), rate(2, 60), Instant::now());
    let prefix = |n: u64| ClientPrefix::from(IpAddr::from(Ipv6Addr::from(u128::from(n) << 64)));
    for n in 0..1_000_000 {
        assert!(take(&rates, "a", prefix(n), rate, now).is_ok(), "{n}");
    }
    // A client that empties its bucket is remembered before those that have not.
    let busy = client("192.0.2.1");
    assert!(
        take(&rates, "a", busy, rate, now).is_ok() && take(&rates, "a", busy, rate, now).is_ok()
    );
    for n in 1_000_000..1_200_000 {
        assert!(take(&rates, "a", prefix(n), rate, now).is_ok(), "{n}");
    }
    assert!(take(&rates, "a", busy, rate, now).is_err());
}

/// A shared bucket as a server keeps it. All times are in nanoseconds, at the moment `at`.
struct SharedBucket {
    /// The time until the bucket is full. If this is below 0, the bucket has been full for so long.
    left: i64,
    /// How long ago the first of the requests was that are not refilled yet.
    began_ago: i64,
    /// For how long it was full in the second before that, at most.
    full_before: i64,
    at: Instant,
}

/// Shared buckets by their names.
#[derive(Default)]
struct Server(HashMap<String, SharedBucket>);

impl Server {
    /// As `charge_rates.lua`.
    fn take(&mut self, charge: &BucketCharge, now: Instant) -> u64 {
        const KEPT_AFTER_FULL: i64 = 2_000_000_000;
        const SECOND: i64 = 1_000_000_000;
        let [refill, first_age, node_left, not_full_for] = [
            charge.refill_ns,
            charge.first_request_age_ns,
            charge.until_full_ns,
            charge.not_full_for_ns,
        ]
        .map(u64::cast_signed);
        // The node says 0 if its bucket is full.
        let own =
            if node_left > 0 { (node_left, not_full_for) } else { (refill - first_age, first_age) };
        let stored = self.0.get(&charge.bucket_name).and_then(|it| {
            let passed = nanoseconds(now - it.at).cast_signed();
            let (left, began_ago) = (it.left - passed, it.began_ago + passed);
            (left > -KEPT_AFTER_FULL).then_some((left, began_ago, it.full_before))
        });
        let (left, began_ago, full_before) = match stored {
            None => (own.0, own.1, SECOND),
            Some((left, began_ago, full_before)) => {
                let earlier = i64::max(0, first_age - began_ago);
                let refilled = if first_age > SECOND { earlier } else { earlier.min(full_before) };
                let total = left + i64::max(0, refill - refilled);
                let since = if refill > refilled { began_ago.max(first_age) } else { began_ago };
                let new = match (total >= own.0, left <= 0) {
                    (true, false) => (total, since.max(not_full_for)),
                    (true, true) => (total, since),
                    (false, false) => (own.0, began_ago.max(not_full_for)),
                    (false, true) => own,
                };
                (new.0, new.1, (full_before + new.0 - left - refill).clamp(0, SECOND))
            }
        };
        let left = left.min(charge.max_until_full_ns.cast_signed());
        let bucket = SharedBucket { left, began_ago, full_before, at: now };
        self.0.insert(charge.bucket_name.clone(), bucket);
        u64::try_from(left).unwrap_or(0)
    }
}

fn exchange(node: &ClientRates, server: &mut Server, now: Instant) {
    for charge in node.take_charges(500, now) {
        let left = server.take(&charge, now);
        node.learn_time_until_full(&charge, left, now);
    }
}

#[test]
fn a_node_refuses_what_another_has_admitted_and_lets_it_refill_first() {
    let (nodes, mut server) = ([(); 2].map(|()| ClientRates::new(true)), Server::default());
    let (rate, client, start) = (rate(3, 60), client("192.0.2.1"), Instant::now());
    let take_at = |node: &ClientRates, seconds| {
        take(node, "a", client, rate, start + Duration::from_secs(seconds))
    };
    (0..3).for_each(|_| take_at(&nodes[0], 0).unwrap());
    take_at(&nodes[1], 0).unwrap();
    nodes.iter().for_each(|node| exchange(node, &mut server, start));
    assert_eq!(take_at(&nodes[1], 0), Err(Duration::from_secs(40)));
    assert_eq!(take_at(&nodes[1], 40), Ok(()));
    // What this node admits between the exchange and its end counts too.
    let now = start + Duration::from_secs(100);
    (0..2).for_each(|_| take_at(&nodes[1], 100).unwrap());
    let charges = nodes[1].take_charges(500, now);
    take_at(&nodes[1], 100).unwrap();
    for charge in &charges {
        assert_eq!((charge.requests, &charge.bucket_name[..]), (3, "a 3/1m 192.0.2.1"));
        nodes[1].learn_time_until_full(charge, nanoseconds(Duration::from_secs(50)), now);
    }
    assert_eq!(take_at(&nodes[1], 100), Err(Duration::from_secs(30)));
    assert_eq!(take(&nodes[1], "b", client, rate, now), Ok(()));
}

#[test]
fn of_too_many_buckets_the_emptiest_are_told_and_the_others_later() {
    let (node, mut server) = (ClientRates::new(true), Server::default());
    let (rate, now) = (rate(10, 60), Instant::now());
    let prefix = |n: u64| ClientPrefix::from(IpAddr::from(Ipv6Addr::from(u128::from(n) << 64)));
    for n in 0..20 {
        (0..1 + n % 5).for_each(|_| take(&node, "a", prefix(n), rate, now).unwrap());
    }
    let told = node.take_charges(4, now);
    assert!(told.len() == 4 && told.iter().all(|charge| charge.requests == 5));
    assert_eq!(node.untold_requests(), 40);
    // With the next request of a client, the node tells all that the client has used.
    take(&node, "a", prefix(3), rate, now).unwrap();
    let charges = node.take_charges(4, now);
    assert_eq!(charges.len(), 1);
    assert_eq!(server.take(&charges[0], now), nanoseconds(Duration::from_secs(30)));
    for n in 0..30_000 {
        take(&node, "b", prefix(n), rate, now).unwrap();
    }
    assert_eq!(node.untold_requests(), 40 + 20_000, "the memory is bounded");
}

/// Nodes of one server that a client sends requests to, and the truth about its bucket.
struct Fleet {
    nodes: Vec<ClientRates>,
    server: Server,
    next_exchanges: Vec<Instant>,
    now: Instant,
    /// The time until the bucket is full that all nodes together have charged.
    until_full: u64,
    /// When each node admitted requests within the last second, and the most that one node ever
    /// has within a second.
    admitted_at: Vec<VecDeque<Instant>>,
    most_admitted: u64,
}

impl Fleet {
    fn new(nodes: usize, random: &mut RandomNumbers) -> Fleet {
        let nodes: Vec<ClientRates> = (0..nodes).map(|_| ClientRates::new(true)).collect();
        let (now, count) = (Instant::now(), nodes.len());
        let mut phase = || now + Duration::from_millis(random.number_below(500) as u64);
        let next_exchanges = (0..count).map(|_| phase()).collect();
        let (server, admitted_at) = (Server::default(), vec![VecDeque::new(); count]);
        Fleet { nodes, server, next_exchanges, now, until_full: 0, admitted_at, most_admitted: 0 }
    }

    /// Lets time pass, in which nodes exchange what they admitted, each at most a second after the
    /// last time.
    fn wait(&mut self, time: Duration, random: &mut RandomNumbers) {
        self.now += time;
        self.until_full = self.until_full.saturating_sub(nanoseconds(time));
        while let Some(next) =
            self.next_exchanges.iter().copied().min().filter(|it| *it <= self.now)
        {
            let at = self.next_exchanges.iter().position(|it| *it == next).unwrap();
            exchange(&self.nodes[at], &mut self.server, next);
            let interval = 500 + random.number_below(200) as u64;
            self.next_exchanges[at] += Duration::from_millis(interval);
        }
    }

    fn send(&mut self, at: usize, rate: Rate) {
        let (refill_time, per_request) =
            (nanoseconds(rate.refill_time), rate.nanoseconds_per_request());
        if take(&self.nodes[at], "a", client("192.0.2.1"), rate, self.now).is_ok() {
            self.until_full += per_request;
            let admitted_at = &mut self.admitted_at[at];
            admitted_at.push_back(self.now);
            let is_earlier = |it: &Instant| self.now - *it > Duration::from_secs(1);
            while admitted_at.front().is_some_and(is_earlier) {
                admitted_at.pop_front();
            }
            self.most_admitted = self.most_admitted.max(admitted_at.len() as u64);
            let further = self.nodes.len() as u64 - 1;
            let one_second = nanoseconds(Duration::from_secs(1));
            let stated_error = further * self.most_admitted * per_request + one_second;
            assert!(self.until_full <= refill_time + stated_error, "{rate} {}", self.nodes.len());
        } else {
            // With one node alone, the request would have been refused too.
            assert!(self.until_full + per_request > refill_time, "{rate} {}", self.nodes.len());
        }
    }
}

#[test]
fn requests_that_are_told_in_another_order_get_no_more_than_the_rate() {
    let (nodes, mut server) = ([(); 2].map(|()| ClientRates::new(true)), Server::default());
    let (rate, client, start) = (rate(100, 10), client("192.0.2.1"), Instant::now());
    let mut admitted = 0;
    // The client knows when the nodes tell what they admitted: the one that gets its requests
    // later tells them first.
    for round in 0..200 {
        let at = |milliseconds: u64| start + Duration::from_millis(500 * round + milliseconds);
        let mut send = |node: &ClientRates, now| {
            admitted += (0..4).filter(|_| take(node, "a", client, rate, now).is_ok()).count();
        };
        send(&nodes[1], at(0));
        send(&nodes[0], at(440));
        exchange(&nodes[0], &mut server, at(450));
        exchange(&nodes[1], &mut server, at(499));
    }
    // The burst, and what refills in a hundred seconds and in one more.
    assert!((1_090..=1_110).contains(&admitted), "{admitted}");
}

#[test]
fn nodes_stay_within_the_stated_error_and_refuse_nobody_without_reason() {
    let mut random = RandomNumbers(first_seed());
    for _ in 0..150 {
        let rate = rate(1 + random.number_below(100) as u32, 2 + random.number_below(60) as u64);
        let mut fleet = Fleet::new(2 + random.number_below(7), &mut random);
        // From half of the rate to ten times.
        let pause = rate.nanoseconds_per_request() * 20 / (10 + random.number_below(190) as u64);
        for _ in 0..1_500 {
            // Some pauses are long, and many requests come at once.
            let factor = random.pick_one(&[0, 0, 1, 1, 1, 2, 2]) * u64::from(!random.one_in(50))
                + 10 * u64::from(random.one_in(50));
            fleet.wait(Duration::from_nanos(pause * factor), &mut random);
            let at = random.number_below(fleet.nodes.len());
            fleet.send(at, rate);
        }
    }
}
