//! An upstream behind a network that fails: nobody waits too long or gets another's answer, what
//! is cut never looks complete, and calls are given back exactly when the contract says so.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{
    Answer, DoneOnDrop, Door, End, Fault, FaultProxy, Gateway, Seen, Setup, StandIn, Step, answer,
    get, until_true,
};

const CALLERS: usize = 6;
/// Far more than the deadline of an exchange here, which is one second.
const LATE: Duration = Duration::from_secs(4);
/// Where the header of each answer ends, and where a digit of its length stands.
const HEADER: usize = 40;
const LENGTH_DIGIT: usize = 35;

/// What an exchange came to, as its caller saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Whole,
    Cut,
    Unavailable,
    Timeout,
}
use Came::{Cut, Timeout, Unavailable, Whole};

/// How often each came.
#[derive(Clone, Copy, Debug, Default)]
struct Tally([usize; 4]);

impl Tally {
    fn of(self, came: Came) -> usize {
        self.0[came as usize]
    }

    fn failed(self) -> usize {
        self.asked() - self.of(Whole)
    }

    fn asked(self) -> usize {
        self.0.iter().sum()
    }
}

/// Callers that ask on and on, each for something else every time.
struct Callers<'g> {
    gateway: &'g Gateway,
    key: &'g str,
    done: AtomicBool,
    /// Bytes of bodies are harmed on their way: there is nothing in them to compare.
    garbled: AtomicBool,
    tally: Mutex<Tally>,
}

impl Callers<'_> {
    fn ask_on(&self, caller: usize) {
        let mut connection = self.gateway.connect();
        for call in 0.. {
            if self.done.load(Ordering::Relaxed) {
                return;
            }
            let target = format!("/v1/check/{caller}x{call}");
            let begun = Instant::now();
            let answer = connection.try_ask(&get(&target).key(self.key));
            assert!(begun.elapsed() < LATE, "{target}: {:?}", begun.elapsed());
            let is_whole = answer.as_ref().is_some_and(|answer| answer.complete);
            let says_close = |answer: &Answer| answer.header("Connection") == Some("close");
            if !is_whole {
                assert!(connection.is_closed(), "{target}: the rest of it would be the next one's");
            }
            self.note(&target, answer.as_ref());
            if !is_whole || answer.as_ref().is_some_and(says_close) {
                connection = self.gateway.connect();
            }
        }
    }

    fn note(&self, target: &str, answer: Option<&Answer>) {
        let came = self.judge(target, answer);
        self.tally.lock().unwrap().0[came as usize] += 1;
    }

    fn judge(&self, target: &str, answer: Option<&Answer>) -> Came {
        let Some(answer) = answer.filter(|answer| answer.complete) else {
            // Not even the header may have come before the end did.
            assert!(answer.is_none_or(|answer| answer.status == 200), "{target}: {answer:?}");
            return Cut;
        };
        if answer.status == 200 {
            let mine = answer.body == body_for(target).into_bytes();
            assert!(mine || self.garbled.load(Ordering::SeqCst), "{target}: {answer:?}");
            return Whole;
        }
        assert_eq!(answer.status, 500, "{target}: {answer:?}");
        assert_eq!(answer.header("X-Fail-Open"), Some("true"));
        match answer.json()["error"].as_str().unwrap() {
            "upstream_unavailable" => Unavailable,
            "upstream_timeout" => Timeout,
            other => panic!("{target}: {other}"),
        }
    }

    fn said(&self) -> Tally {
        *self.tally.lock().unwrap()
    }
}

/// 65 bytes that belong to this target alone.
fn body_for(target: &str) -> String {
    format!("{target:065}")
}

/// Says to each who asks what it asked for.
fn echo(seen: &Seen) -> Vec<Step> {
    let target = seen.line().split(' ').nth(1).unwrap();
    let bytes = answer(200, "", &body_for(target));
    vec![Step::Send(bytes)]
}

/// A fault, what of it must be seen until it ends, and what else may be.
struct Trouble {
    begin: Begin,
    until: Came,
    or: &'static [Came],
}

#[derive(Clone, Copy, Debug)]
enum Begin {
    Door(Door),
    Requests(Fault),
    Answers(Fault),
}

impl Trouble {
    fn or(self, or: &'static [Came]) -> Trouble {
        Trouble { or, ..self }
    }

    fn begin(&self, proxy: &FaultProxy) {
        match self.begin {
            Begin::Door(door) => proxy.door(door),
            Begin::Requests(fault) => proxy.requests(fault),
            Begin::Answers(fault) => proxy.answers(fault),
        }
    }

    fn garbles(&self) -> bool {
        matches!(self.begin, Begin::Answers(Fault::Garble { .. }))
    }

    /// Of these failures, those that this trouble accounts for.
    fn accounts_for(&self, before: Tally, after: Tally) -> usize {
        let failures = self.or.iter().chain([&self.until]).filter(|came| **came != Whole);
        failures.map(|came| after.of(*came) - before.of(*came)).sum()
    }
}

fn door(door: Door, until: Came) -> Trouble {
    Trouble { begin: Begin::Door(door), until, or: &[] }
}

fn requests(fault: Fault, until: Came) -> Trouble {
    Trouble { begin: Begin::Requests(fault), until, or: &[] }
}

fn answers(fault: Fault, until: Came) -> Trouble {
    Trouble { begin: Begin::Answers(fault), until, or: &[] }
}

/// Callers of one gateway through several faults, one after the other, and out of each.
fn through(troubles: &[Trouble]) {
    let stand_in = StandIn::playing(echo);
    let proxy = FaultProxy::before(stand_in.address);
    let setup = Setup::new().upstream(&[proxy.address]).text("upstream.deadline", "1s");
    let setup = setup.text("upstream.connect_timeout", "300ms").set("plans.free", "1000000");
    let gateway = setup.start();
    let key = gateway.key("acme", &[]);
    let callers = Callers {
        gateway: &gateway,
        key: &key,
        done: AtomicBool::new(false),
        garbled: AtomicBool::new(false),
        tally: Mutex::default(),
    };
    std::thread::scope(|scope| {
        let _ending = DoneOnDrop(&callers.done);
        for caller in 0..CALLERS {
            let callers = &callers;
            scope.spawn(move || callers.ask_on(caller));
        }
        until_true("calls are under way", || callers.said().of(Whole) > 20 * CALLERS);
        let (descriptors, threads) = (gateway.descriptors(), gateway.threads());
        for trouble in troubles {
            let before = callers.said();
            callers.garbled.store(trouble.garbles(), Ordering::SeqCst);
            trouble.begin(&proxy);
            until_true("callers see it", || {
                callers.said().of(trouble.until) >= before.of(trouble.until) + CALLERS
            });
            proxy.heal();
            all_get_their_own(&callers);
            let after = callers.said();
            let failed = after.failed() - before.failed();
            let expected = trouble.accounts_for(before, after);
            assert_eq!(expected, failed, "{:?}: {before:?} {after:?}", trouble.begin);
            until_true("no connection is left over", || {
                gateway.descriptors() <= descriptors + 2 * CALLERS
                    && proxy.connections() <= 2 * CALLERS
            });
            assert!(gateway.threads() <= threads + 8);
        }
    });
    let said = callers.said();
    println!("{said:?}, {} reached the upstream", stand_in.count());
    let given_back = gateway.metric("riskgate_calls_given_back_total", &[]) as usize;
    assert_eq!(given_back, said.of(Unavailable), "what could not be served, and nothing else");
    assert_eq!(gateway.month_count(&key) as usize, said.asked() - given_back);
    until_true("nothing is in flight", || {
        gateway.metric("riskgate_requests_in_flight", &[]) == 0.0
    });
    assert_eq!(gateway.metric("riskgate_panics_total", &[]), 0.0);
}

/// Waits until a good while went by without a failure; from then on each body must be the caller's
/// own.
fn all_get_their_own(callers: &Callers<'_>) {
    let mut since = callers.said();
    until_true("calls succeed again", || {
        let now = callers.said();
        if now.failed() > since.failed() {
            since = now;
        }
        now.of(Whole) >= since.of(Whole) + 10 * CALLERS
    });
    callers.garbled.store(false, Ordering::SeqCst);
    let since = callers.said();
    until_true("all get their own", || callers.said().of(Whole) >= since.of(Whole) + 10 * CALLERS);
    // A machine that stands still for a second makes an exchange late, and no answer wrong.
    let broken = |said: Tally| said.failed() - said.of(Timeout);
    assert_eq!(broken(callers.said()), broken(since), "it was over");
}

#[test]
fn an_upstream_that_cannot_be_reached_is_our_failure_and_the_call_is_given_back() {
    through(&[door(Door::Shut, Unavailable).or(&[Cut]), door(Door::Full, Unavailable).or(&[Cut])]);
}

#[test]
fn an_upstream_that_says_nothing_is_our_failure_and_the_call_stays_counted() {
    through(&[
        answers(Fault::Swallow, Timeout),
        requests(Fault::Swallow, Timeout),
        door(Door::Deaf, Timeout).or(&[Unavailable, Cut]),
    ]);
}

#[test]
fn an_answer_that_comes_too_late_is_our_failure_and_the_call_stays_counted() {
    through(&[
        answers(Fault::Delay(Duration::from_secs(2)), Timeout),
        // Some thirty bytes of the header within the second that there is.
        answers(Fault::Trickle(Duration::from_millis(35)), Timeout),
    ]);
}

#[test]
fn an_answer_that_ends_before_its_header_does_is_our_failure_and_the_call_is_given_back() {
    through(&[
        answers(Fault::Cut { after: 0, by: End::Reset }, Unavailable),
        answers(Fault::Cut { after: 0, by: End::Close }, Unavailable),
        answers(Fault::Cut { after: 0, by: End::Half }, Unavailable),
        answers(Fault::Cut { after: 20, by: End::Reset }, Unavailable),
        answers(Fault::Cut { after: 20, by: End::Close }, Unavailable),
        answers(Fault::Cut { after: 20, by: End::Half }, Unavailable),
        requests(Fault::Cut { after: 30, by: End::Reset }, Unavailable),
    ]);
}

#[test]
fn only_what_has_not_begun_to_answer_on_a_kept_connection_is_asked_again() {
    let stand_in = StandIn::playing(echo);
    let proxy = FaultProxy::before(stand_in.address);
    let gateway = Setup::new().upstream(&[proxy.address]).start();
    let key = gateway.key("acme", &[]);
    for (after, asked) in [(0, 2), (1, 1), (20, 1)] {
        proxy.heal();
        // Each way keeps one; the first call has none in hand for the lane.
        gateway.get("/v1/check/kept", &key).expect(200);
        gateway.get("/v1/check/kept", &key).expect(200);
        let before = stand_in.count();
        proxy.answers(Fault::Cut { after, by: End::Close });
        let failed = gateway.get("/v1/check/cut", &key).expect(500);
        assert_eq!(failed.json()["error"], "upstream_unavailable");
        assert_eq!(stand_in.count() - before, asked, "{after}");
    }
    assert_eq!(gateway.month_count(&key), 6);
}

#[test]
fn an_answer_that_ends_inside_its_body_never_looks_complete_and_stays_counted() {
    through(&[
        // A reset may overtake the header.
        answers(Fault::Cut { after: HEADER + 30, by: End::Reset }, Cut).or(&[Unavailable]),
        answers(Fault::Cut { after: HEADER + 30, by: End::Close }, Cut),
        answers(Fault::Cut { after: HEADER + 64, by: End::Half }, Cut),
        // The header within the second that there is, and not the body.
        answers(Fault::Trickle(Duration::from_millis(13)), Cut).or(&[Timeout]),
    ]);
}

#[test]
fn a_garbled_answer_harms_nobody_who_comes_next() {
    let length = |bits| Fault::Garble { from: LENGTH_DIGIT, every: usize::MAX, bits };
    through(&[
        // No header at all.
        answers(Fault::Garble { from: 0, every: 7, bits: 0x80 }, Unavailable),
        // 65 becomes 64, in the first answer on each connection: a byte is left over.
        answers(length(0x01), Whole),
        // 65 becomes 67: two never come.
        answers(length(0x02), Cut).or(&[Unavailable, Timeout]),
    ]);
}

#[test]
fn the_faults_hit_the_parts_of_an_answer_that_they_name() {
    let bytes = answer(200, "", &body_for("/"));
    assert_eq!(&bytes[HEADER - 4..HEADER], b"\r\n\r\n");
    assert_eq!(&bytes[LENGTH_DIGIT - 1..=LENGTH_DIGIT], b"65");
}
