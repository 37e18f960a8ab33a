//! The network to the upstream server is faulty. Still, no client waits too long or gets another
//! client's response, and no truncated response looks complete. riskgate refunds exactly the calls
//! that no server could serve.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{
    AcceptMode, CloseMode, Fault, FaultProxy, Gateway, MockUpstream, ReceivedRequest, Response,
    SetOnDrop, Setup, Step, get, request, response_bytes, wait_until,
};

const CALLER_COUNT: usize = 6;
/// The deadline of an exchange: longer than a loaded machine stops a process.
const DEADLINE: Duration = Duration::from_secs(3);
/// Longer than that deadline.
const ALL_EXCHANGES_END: Duration = Duration::from_millis(4_500);
/// Far longer than that deadline.
const LATENCY_LIMIT: Duration = Duration::from_secs(12);
/// The offsets, in each response, of the end of the header and of the last digit of Content-Length.
const HEADER_END_OFFSET: usize = 40;
const LENGTH_DIGIT_OFFSET: usize = 35;

/// The result of an exchange, as the client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExchangeOutcome {
    Complete,
    Truncated,
    Unavailable,
    Timeout,
}
use ExchangeOutcome::{Complete, Timeout, Truncated, Unavailable};

/// How often each result occurred.
#[derive(Clone, Copy, Debug, Default)]
struct OutcomeCounts([usize; 4]);

impl OutcomeCounts {
    fn count_of(self, came: ExchangeOutcome) -> usize {
        self.0[came as usize]
    }

    fn failed_count(self) -> usize {
        self.total_count() - self.count_of(Complete)
    }

    fn total_count(self) -> usize {
        self.0.iter().sum()
    }
}

/// Clients that make calls continuously, each time with a new target.
struct Callers<'g> {
    gateway: &'g Gateway,
    key: &'g str,
    done: AtomicBool,
    /// The fault changes bytes of bodies, so the clients do not compare bodies.
    garbled: AtomicBool,
    tally: Mutex<OutcomeCounts>,
}

impl Callers<'_> {
    fn send_until_done(&self, caller: usize) {
        let mut connection = self.gateway.connect();
        for call in 0.. {
            if self.done.load(Ordering::Relaxed) {
                return;
            }
            let target = format!("/v1/check/{caller}x{call}");
            let begun = Instant::now();
            let answer = connection.try_send_request(&get(&target).key(self.key));
            assert!(begun.elapsed() < LATENCY_LIMIT, "{target}: {:?}", begun.elapsed());
            let is_whole = answer.as_ref().is_some_and(|answer| answer.is_complete);
            let says_close = |answer: &Response| answer.header("Connection") == Some("close");
            if !is_whole {
                assert!(
                    connection.ends_without_more_bytes(),
                    "{target}: the rest of this response would be read as the next response"
                );
            }
            self.record_outcome(&target, answer.as_ref());
            if !is_whole || answer.as_ref().is_some_and(says_close) {
                connection = self.gateway.connect();
            }
        }
    }

    fn record_outcome(&self, target: &str, answer: Option<&Response>) {
        let came = self.outcome_of(target, answer);
        self.tally.lock().unwrap().0[came as usize] += 1;
    }

    fn outcome_of(&self, target: &str, answer: Option<&Response>) -> ExchangeOutcome {
        let Some(answer) = answer.filter(|answer| answer.is_complete) else {
            // The connection may have ended before the header.
            assert!(answer.is_none_or(|answer| answer.status == 200), "{target}: {answer:?}");
            return Truncated;
        };
        if answer.status == 200 {
            let is_own = answer.body == body_with_target(target).into_bytes();
            assert!(is_own || self.garbled.load(Ordering::SeqCst), "{target}: {answer:?}");
            return Complete;
        }
        assert_eq!(answer.status, 500, "{target}: {answer:?}");
        assert_eq!(answer.header("X-Fail-Open"), Some("true"));
        match answer.json()["error"].as_str().unwrap() {
            "upstream_unavailable" => Unavailable,
            "upstream_timeout" => Timeout,
            other => panic!("{target}: {other}"),
        }
    }

    fn tally(&self) -> OutcomeCounts {
        *self.tally.lock().unwrap()
    }
}

/// A body of 65 bytes that contains the target.
fn body_with_target(target: &str) -> String {
    format!("{target:065}")
}

/// Answers each request with its own target.
fn respond_with_target(seen: &ReceivedRequest) -> Vec<Step> {
    let target = seen.request_line().split(' ').nth(1).unwrap();
    let bytes = response_bytes(200, "", &body_with_target(target));
    vec![Step::Send(bytes)]
}

/// A fault, the results that it must cause, and the results that it may cause.
struct FaultScenario {
    injection: Injection,
    required_outcome: ExchangeOutcome,
    allowed_outcomes: &'static [ExchangeOutcome],
}

#[derive(Clone, Copy, Debug)]
enum Injection {
    AcceptMode(AcceptMode),
    Requests(Fault),
    Answers(Fault),
}

impl FaultScenario {
    fn also_allow(self, or: &'static [ExchangeOutcome]) -> FaultScenario {
        FaultScenario { allowed_outcomes: or, ..self }
    }

    fn inject(&self, proxy: &FaultProxy) {
        match self.injection {
            Injection::AcceptMode(accept_mode) => proxy.set_accept_mode(accept_mode),
            Injection::Requests(fault) => proxy.set_request_fault(fault),
            Injection::Answers(fault) => proxy.set_response_fault(fault),
        }
    }

    fn flips_bits(&self) -> bool {
        matches!(self.injection, Injection::Answers(Fault::FlipBits { .. }))
    }

    /// The number of failures between the two tallies that this fault may cause.
    fn count_explained_failures(&self, before: OutcomeCounts, after: OutcomeCounts) -> usize {
        let failures = self
            .allowed_outcomes
            .iter()
            .chain([&self.required_outcome])
            .filter(|came| **came != Complete);
        failures.map(|came| after.count_of(*came) - before.count_of(*came)).sum()
    }
}

fn accept_fault_scenario(accept_mode: AcceptMode, until: ExchangeOutcome) -> FaultScenario {
    FaultScenario {
        injection: Injection::AcceptMode(accept_mode),
        required_outcome: until,
        allowed_outcomes: &[],
    }
}

fn request_fault_scenario(fault: Fault, until: ExchangeOutcome) -> FaultScenario {
    FaultScenario {
        injection: Injection::Requests(fault),
        required_outcome: until,
        allowed_outcomes: &[],
    }
}

fn response_fault_scenario(fault: Fault, until: ExchangeOutcome) -> FaultScenario {
    FaultScenario {
        injection: Injection::Answers(fault),
        required_outcome: until,
        allowed_outcomes: &[],
    }
}

/// Runs clients of one gateway through several faults, with a recovery after each. Asserts that
/// each fault causes only the failures of its scenario, and that the refunds match.
fn run_through_faults(scenarios: &[FaultScenario]) {
    let upstream = MockUpstream::with_script(respond_with_target);
    let proxy = FaultProxy::in_front_of(upstream.address);
    let setup = Setup::new().with_upstreams(&[proxy.address]);
    let setup = setup.set_text("upstream.deadline", &format!("{}s", DEADLINE.as_secs()));
    let setup = setup.set_text("upstream.connect_timeout", "1s").set("plans.free", "1000000");
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    let callers = Callers {
        gateway: &gateway,
        key: &key,
        done: AtomicBool::new(false),
        garbled: AtomicBool::new(false),
        tally: Mutex::default(),
    };
    std::thread::scope(|scope| {
        let _stop_guard = SetOnDrop(&callers.done);
        for caller in 0..CALLER_COUNT {
            let callers = &callers;
            scope.spawn(move || callers.send_until_done(caller));
        }
        wait_until("calls are under way", || {
            callers.tally().count_of(Complete) > 20 * CALLER_COUNT
        });
        let (descriptors, threads) = (gateway.open_descriptor_count(), gateway.thread_count());
        for scenario in scenarios {
            let before = callers.tally();
            callers.garbled.store(scenario.flips_bits(), Ordering::SeqCst);
            scenario.inject(&proxy);
            wait_until("clients notice the fault", || {
                callers.tally().count_of(scenario.required_outcome)
                    >= before.count_of(scenario.required_outcome) + CALLER_COUNT
            });
            proxy.clear_faults();
            assert_recovered(&callers);
            let after = callers.tally();
            let failed = after.failed_count() - before.failed_count();
            let expected = scenario.count_explained_failures(before, after);
            assert_eq!(expected, failed, "{:?}: {before:?} {after:?}", scenario.injection);
            wait_until("no connection is left over", || {
                gateway.open_descriptor_count() <= descriptors + 2 * CALLER_COUNT
                    && proxy.connection_count() <= 2 * CALLER_COUNT
            });
            assert!(gateway.thread_count() <= threads + 8);
        }
    });
    let tally = callers.tally();
    println!("{tally:?}, {} reached the upstream", upstream.request_count());
    let refunded = gateway.sum_of_samples("riskgate_quota_refunds_total", &[]) as usize;
    assert_eq!(refunded, tally.count_of(Unavailable), "only the calls that could not be served");
    assert_eq!(gateway.get_month_count(&key) as usize, tally.total_count() - refunded);
    wait_until("nothing is in flight", || {
        gateway.sum_of_samples("riskgate_requests_in_flight", &[]) == 0.0
    });
    assert_eq!(gateway.sum_of_samples("riskgate_panics_total", &[]), 0.0);
}

/// Waits until `10 * CALLER_COUNT` calls have succeeded, none has failed meanwhile, and every
/// exchange that began during the fault has ended. From then on each body must contain the client's
/// own target.
fn assert_recovered(callers: &Callers<'_>) {
    let (mut since, mut failed_at) = (callers.tally(), Instant::now());
    wait_until("calls succeed again", || {
        let now = callers.tally();
        if now.failed_count() > since.failed_count() {
            (since, failed_at) = (now, Instant::now());
        }
        now.count_of(Complete) >= since.count_of(Complete) + 10 * CALLER_COUNT
            && failed_at.elapsed() > ALL_EXCHANGES_END
    });
    callers.garbled.store(false, Ordering::SeqCst);
    let since = callers.tally();
    wait_until("all clients get their own responses", || {
        callers.tally().count_of(Complete) >= since.count_of(Complete) + 10 * CALLER_COUNT
    });
    // If the machine stalls for a second, an exchange is late, but no response is wrong.
    let broken = |tally: OutcomeCounts| tally.failed_count() - tally.count_of(Timeout);
    assert_eq!(broken(callers.tally()), broken(since), "a call failed after the fault had ended");
}

#[test]
fn an_unreachable_upstream_is_a_500_and_the_call_is_refunded() {
    run_through_faults(&[
        accept_fault_scenario(AcceptMode::Refuse, Unavailable).also_allow(&[Truncated]),
        accept_fault_scenario(AcceptMode::BacklogFull, Unavailable).also_allow(&[Truncated]),
    ]);
}

#[test]
fn a_silent_upstream_is_a_500_and_the_call_stays_counted() {
    run_through_faults(&[
        response_fault_scenario(Fault::Blackhole, Timeout),
        request_fault_scenario(Fault::Blackhole, Timeout),
        accept_fault_scenario(AcceptMode::AcceptOnly, Timeout)
            .also_allow(&[Unavailable, Truncated]),
    ]);
}

#[test]
fn a_late_response_is_a_500_and_the_call_stays_counted() {
    run_through_faults(&[
        response_fault_scenario(Fault::Delay(2 * DEADLINE), Timeout),
        // Thirty bytes of the header arrive within the deadline.
        response_fault_scenario(Fault::Trickle(DEADLINE / 30), Timeout),
    ]);
}

#[test]
fn a_response_cut_within_its_header_is_a_500_and_the_call_is_refunded() {
    run_through_faults(&[
        response_fault_scenario(Fault::Cut { after: 0, by: CloseMode::Reset }, Unavailable),
        response_fault_scenario(Fault::Cut { after: 0, by: CloseMode::Close }, Unavailable),
        response_fault_scenario(Fault::Cut { after: 0, by: CloseMode::HalfClose }, Unavailable),
        response_fault_scenario(Fault::Cut { after: 20, by: CloseMode::Reset }, Unavailable),
        response_fault_scenario(Fault::Cut { after: 20, by: CloseMode::Close }, Unavailable),
        response_fault_scenario(Fault::Cut { after: 20, by: CloseMode::HalfClose }, Unavailable),
        request_fault_scenario(Fault::Cut { after: 30, by: CloseMode::Reset }, Unavailable),
    ]);
}

#[test]
fn only_a_request_without_a_response_on_a_reused_connection_is_retried() {
    let upstream = MockUpstream::with_script(respond_with_target);
    let proxy = FaultProxy::in_front_of(upstream.address);
    let gateway = Setup::new().with_upstreams(&[proxy.address]).start();
    let key = gateway.create_active_key("acme", &[]);
    for (after, asked) in [(0, 2), (1, 1), (20, 1)] {
        proxy.clear_faults();
        gateway.get("/v1/check/kept", &key).expect(200);
        let before = upstream.request_count();
        proxy.set_response_fault(Fault::Cut { after, by: CloseMode::Close });
        let failed = gateway.get("/v1/check/cut", &key).expect(500);
        assert_eq!(failed.json()["error"], "upstream_unavailable");
        assert_eq!(upstream.request_count() - before, asked, "{after}");
    }
    assert_eq!(gateway.get_month_count(&key), 3);
}

#[test]
fn a_response_cut_within_its_body_never_looks_complete_and_stays_counted() {
    run_through_faults(&[
        // A reset may overtake the header.
        response_fault_scenario(
            Fault::Cut { after: HEADER_END_OFFSET + 30, by: CloseMode::Reset },
            Truncated,
        )
        .also_allow(&[Unavailable]),
        response_fault_scenario(
            Fault::Cut { after: HEADER_END_OFFSET + 30, by: CloseMode::Close },
            Truncated,
        ),
        response_fault_scenario(
            Fault::Cut { after: HEADER_END_OFFSET + 64, by: CloseMode::HalfClose },
            Truncated,
        ),
        // The header arrives within the deadline, the body does not.
        response_fault_scenario(Fault::Trickle(DEADLINE / 75), Truncated).also_allow(&[Timeout]),
    ]);
}

#[test]
fn a_corrupt_response_does_not_affect_the_next_request() {
    let length = |bits| Fault::FlipBits { from: LENGTH_DIGIT_OFFSET, every: usize::MAX, bits };
    run_through_faults(&[
        // No header arrives.
        response_fault_scenario(Fault::FlipBits { from: 0, every: 7, bits: 0x80 }, Unavailable),
        // 65 becomes 64 in the first response on each connection: one byte remains.
        response_fault_scenario(length(0x01), Complete),
        // 65 becomes 67: two bytes never arrive.
        response_fault_scenario(length(0x02), Truncated).also_allow(&[Unavailable, Timeout]),
    ]);
}

#[test]
fn injected_faults_hit_the_intended_part_of_a_response() {
    let bytes = response_bytes(200, "", &body_with_target("/"));
    assert_eq!(&bytes[HEADER_END_OFFSET - 4..HEADER_END_OFFSET], b"\r\n\r\n");
    assert_eq!(&bytes[LENGTH_DIGIT_OFFSET - 1..=LENGTH_DIGIT_OFFSET], b"65");
}

#[test]
fn a_client_that_left_before_its_response_frees_its_place_where_no_deadline_does() {
    let upstream = MockUpstream::with_script(|request| {
        match request.request_line().split(" ").nth(1).unwrap() {
            "/slow" => vec![
                Step::Pause(Duration::from_secs(6)),
                Step::Send(response_bytes(200, "", "at last")),
            ],
            _ => vec![Step::StaySilent],
        }
    });
    let route = "[[upstream.route]]\nprefix = \"/\"\nkey = false\ndeadline = \"0\"\n\
                 methods = [\"GET\", \"POST\"]\n";
    let gateway = Setup::new().with_upstreams(&[upstream.address]).append_toml(route).start();
    let send = |request: &crate::harness::Request| {
        let mut client = gateway.connect();
        client.send(&request.to_bytes());
        client
    };
    let stays = send(&get("/poll"));
    let mut half_closed = send(&get("/slow"));
    half_closed.shutdown_write();
    let long = "b".repeat(100_000);
    let form = request("POST", "/poll").body("a=b");
    let upload = request("POST", "/poll").body(&long);
    let left = [get("/poll"), form, upload, get("/poll").with_header("Upgrade", "x")];
    left.iter().for_each(|request| drop(send(request)));
    let in_flight = || gateway.sum_of_samples("riskgate_upstream_exchanges_in_flight", &[]);
    wait_until("all exchanges are under way", || in_flight() == 6.0);
    assert_eq!(half_closed.read_response().unwrap().text(), "at last");
    wait_until("only the client that stayed has a place", || in_flight() == 1.0);
    drop(stays);
}

#[test]
fn a_client_that_left_frees_its_place_before_the_default_deadline() {
    let upstream = MockUpstream::with_script(|_| vec![Step::StaySilent]);
    let route = "[[upstream.route]]\nprefix = \"/\"\nkey = false\n";
    let gateway = Setup::new().with_upstreams(&[upstream.address]).append_toml(route).start();
    let in_flight = || gateway.sum_of_samples("riskgate_upstream_exchanges_in_flight", &[]);
    let mut client = gateway.connect();
    client.send(&get("/poll").to_bytes());
    wait_until("the exchange is under way", || in_flight() == 1.0);
    let begun = std::time::Instant::now();
    drop(client);
    wait_until("the place is free", || in_flight() == 0.0);
    // The deadline of a route is 30 s.
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
}
