//! Tests the tests. A gateway with an injected fault breaks one rule. The tests and cases that
//! `EXPECTED_FAILURES` lists for this fault must fail: this shows that they check the rule.
//!
//! This test runs other tests of this program, each in its own process, with a fault and without.
//! The faults exist in a gateway with debug assertions: in a release build, this file is empty.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread::{scope, sleep, spawn};
use std::time::{Duration, Instant};

use riskgate::support::test_fault::TestFault::{self, *};

/// The test runs that run at the same time. Most of them wait for a time-out.
const PARALLEL_RUNS: usize = 4;
/// How long a test may take: only a test that hangs takes longer.
const TEST_RUN_TIME_LIMIT: Duration = Duration::from_secs(200);

/// An injected fault, and the test that must fail because of it.
struct ExpectedFailure {
    fault: TestFault,
    uses_fast_path: bool,
    test: &'static str,
    /// The full names of the cases that fail. Empty if the test has no cases: the whole test fails
    /// instead.
    failing_cases: &'static [&'static str],
    /// A case of the same test that passes in spite of the fault.
    passing_case: Option<&'static str>,
}

impl ExpectedFailure {
    const fn new_for_test(fault: TestFault, test: &'static str) -> ExpectedFailure {
        ExpectedFailure {
            fault,
            uses_fast_path: false,
            test,
            failing_cases: &[],
            passing_case: None,
        }
    }

    const fn with_failing_cases(self, failing_cases: &'static [&'static str]) -> ExpectedFailure {
        ExpectedFailure { failing_cases, ..self }
    }

    const fn with_passing_case(self, case: &'static str) -> ExpectedFailure {
        ExpectedFailure { passing_case: Some(case), ..self }
    }

    const fn on_fast_path(self) -> ExpectedFailure {
        ExpectedFailure { uses_fast_path: true, ..self }
    }
}

const AUTHORIZATION_TEST: &str = "both_paths::http::edge_cases::authorization::only_one_valid_bearer_token_is_accepted_and_all_else_gets_the_same_401";
const FRAMING_TEST: &str = "both_paths::http::edge_cases::framing::requests_that_two_parsers_could_read_differently_are_refused";
const PIPELINING_TEST: &str = "both_paths::http::edge_cases::pipelining::pipelined_requests_are_authorized_counted_and_answered_one_by_one";
const SLOW_TEST: &str = "both_paths::http::edge_cases::slow::an_exchange_ends_at_its_deadline_however_slowly_bytes_arrive";
const TARGETS_TEST: &str =
    "both_paths::http::edge_cases::targets::only_an_unambiguous_target_matches_a_route";
const UPSTREAMS_TEST: &str = "both_paths::http::edge_cases::upstreams::a_broken_upstream_response_never_looks_complete_or_reaches_another_client";
const EXCHANGE_LIMIT_TEST: &str = "both_paths::quota::concurrency::a_client_address_gets_at_most_its_limit_of_concurrent_exchanges";
const BODY_LIMIT_TEST: &str =
    "both_paths::http::request_bodies::slow_bodies_of_one_client_take_its_share_and_no_more";

/// The slowest rows come first, so that the others run beside them.
const EXPECTED_FAILURES: [ExpectedFailure; 18] = [
    ExpectedFailure::new_for_test(ForwardInformational, UPSTREAMS_TEST)
        .with_failing_cases(&[
            "upstreams: an early hint is not passed on",
            "upstreams: several of them are not passed on",
        ])
        .with_passing_case("upstreams: chunks come whole"),
    ExpectedFailure::new_for_test(
        ReadBodyBeforeRefusal,
        "both_paths::http::uploads::a_refusal_comes_before_the_body_and_a_short_body_keeps_the_connection",
    ),
    ExpectedFailure::new_for_test(
        NoDeadline,
        "one_path::operators::admin::the_admin_listener_closes_slow_clients_and_every_answered_connection",
    ),
    ExpectedFailure::new_for_test(
        NoDeadline,
        "both_paths::http::slow_readers::a_slow_reader_is_disconnected_at_the_deadline_and_its_call_stays_counted",
    )
    .on_fast_path(),
    ExpectedFailure::new_for_test(NoDeadline, SLOW_TEST).with_failing_cases(&DEADLINE_CASES),
    ExpectedFailure::new_for_test(NoDeadline, SLOW_TEST)
        .with_failing_cases(&DEADLINE_CASES)
        .on_fast_path(),
    ExpectedFailure::new_for_test(
        IgnoreDrainWhileIdle,
        "both_paths::operators::process::silent_connections_do_not_delay_the_shutdown",
    ),
    ExpectedFailure::new_for_test(
        InstallSignalsLate,
        "both_paths::operators::process::signals_are_handled_once_the_process_reports_ready",
    ),
    ExpectedFailure::new_for_test(IgnoreClientLimit, BODY_LIMIT_TEST),
    ExpectedFailure::new_for_test(IgnoreClientLimit, EXCHANGE_LIMIT_TEST),
    ExpectedFailure::new_for_test(IgnoreClientLimit, EXCHANGE_LIMIT_TEST).on_fast_path(),
    ExpectedFailure::new_for_test(AcceptAnyKey, AUTHORIZATION_TEST)
        .with_failing_cases(&[
            "authorization: no header",
            "authorization: an empty header",
            "authorization: a scheme alone",
            "authorization: a scheme and a space",
            "authorization: Basic with the token in it",
            "authorization: a token in quotes",
            "authorization: a token that is not ASCII",
            "authorization: a token of 257 characters",
            "authorization: a token of three characters",
            "authorization: two headers, the first one empty",
            "authorization: an unknown key",
            "authorization: a key with another letter's case",
            "authorization: a key on a route that asks the ledger",
            "authorization: no key on a prefix that requires a key",
            "authorization: the digest of a key in place of the key",
            "authorization: a key in the query",
            "authorization: a key in X-Api-Key",
            "authorization: a key in Proxy-Authorization",
            "authorization: a key in a cookie",
            "authorization: a key in Author_ization",
            "authorization: an unauthorised request gets no format error",
        ])
        .with_passing_case("authorization: a token after Bearer"),
    ExpectedFailure::new_for_test(ReuseFirstKey, PIPELINING_TEST)
        .with_failing_cases(&[
            "pipelining: each request has its own key",
            "pipelining: a key does not authorize the next request",
            "pipelining: a refused key does not affect the next request",
        ])
        .with_passing_case("pipelining: responses keep the order of the requests"),
    ExpectedFailure::new_for_test(PassWholeReadBuffer, PIPELINING_TEST).with_failing_cases(&[
        "pipelining: responses keep the order of the requests",
        "pipelining: forty requests in one packet",
        "pipelining: each request has its own key",
    ]),
    ExpectedFailure::new_for_test(AlterResponseBody, UPSTREAMS_TEST).with_failing_cases(&[
        "upstreams: more bytes than its length",
        "upstreams: bytes after its last chunk",
        "upstreams: chunks come whole",
        "upstreams: a body without a length comes whole",
    ]),
    ExpectedFailure::new_for_test(ParseConnectionInPingora, FRAMING_TEST)
        .with_failing_cases(&[
            "framing: a connection option with a parameter",
            "framing: a close with a semicolon is no close",
            "framing: a connection option that is no token",
            "framing: a quoted connection option",
            "framing: a connection option that is not ASCII",
            "framing: ten connection options",
            "framing: the largest number of connection options",
            "framing: a POST with an option that is no token",
            "framing: a POST with ten options",
        ])
        .with_passing_case("framing: an address as a host passes"),
    ExpectedFailure::new_for_test(CountUsage, TARGETS_TEST)
        .with_failing_cases(&["targets: a query on riskgate's own response is ignored"])
        .on_fast_path(),
    ExpectedFailure::new_for_test(ForwardRawTarget, TARGETS_TEST)
        .with_failing_cases(&[
            "targets: an address as people write it",
            "targets: letters that are encoded",
            "targets: upper case stays",
            "targets: a plus sign",
            "targets: encoding in lower case",
            "targets: raw UTF-8",
            "targets: reserved characters",
            "targets: a raw backslash",
            "targets: a target below the prefix is forwarded unchanged",
        ])
        .with_passing_case("targets: a target of 1,024 bytes passes"),
];

/// The cases in which the upstream server's bytes arrive one by one, until after the deadline.
const DEADLINE_CASES: [&str; 3] = [
    "slow: its header trickles",
    "slow: its body of known length trickles",
    "slow: its chunks trickle",
];

#[test]
fn every_fault_is_noticed() {
    for fault in TestFault::ALL {
        assert!(
            EXPECTED_FAILURES.iter().any(|row| row.fault == fault),
            "{fault:?} has no row in EXPECTED_FAILURES"
        );
    }
    // Without a fault, the cases of all rows of a test run in one process.
    let mut tests = BTreeMap::<(&str, bool), Vec<&str>>::new();
    for row in &EXPECTED_FAILURES {
        let cases = tests.entry((row.test, row.uses_fast_path)).or_default();
        cases.extend(row.failing_cases.iter().chain(&row.passing_case));
    }
    let with_fault = EXPECTED_FAILURES.iter().map(|row| TestRun {
        fault: Some(row.fault),
        uses_fast_path: row.uses_fast_path,
        test: row.test,
        failing_cases: row.failing_cases.to_vec(),
        passing_cases: row.passing_case.into_iter().collect(),
    });
    let without_fault = tests.into_iter().map(|((test, uses_fast_path), passing_cases)| TestRun {
        fault: None,
        uses_fast_path,
        test,
        failing_cases: Vec::new(),
        passing_cases,
    });
    let runs = Mutex::new(with_fault.chain(without_fault).collect::<Vec<_>>().into_iter());
    let next_run = || runs.lock().unwrap().next();
    let wrong = Mutex::new(Vec::new());
    scope(|scope| {
        for _ in 0..PARALLEL_RUNS {
            scope.spawn(|| {
                while let Some(run) = next_run() {
                    let difference = run.run_and_compare();
                    wrong.lock().unwrap().extend(difference);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One test in a process of its own, and what it must report.
struct TestRun {
    fault: Option<TestFault>,
    uses_fast_path: bool,
    test: &'static str,
    failing_cases: Vec<&'static str>,
    passing_cases: Vec<&'static str>,
}

impl TestRun {
    /// Runs the test. Returns its output if the result differs from the expected one; else None.
    fn run_and_compare(&self) -> Option<String> {
        let begun = Instant::now();
        let output = self.run_and_capture_output();
        let reports = |outcome: &str, case: &&str| {
            let line = format!("case {outcome}: {case}");
            output.lines().any(|found| {
                found
                    .strip_prefix(&line)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(" | "))
            })
        };
        let (result, outcome) = match self.fault {
            Some(_) => ("test result: FAILED. 0 passed; 1 failed", "to fail"),
            None => ("test result: ok. 1 passed", "to pass"),
        };
        let is_expected = output.contains(result)
            && self.failing_cases.iter().all(|case| reports("failed", case))
            && self.passing_cases.iter().all(|case| reports("passed", case));
        let path = if self.uses_fast_path { "fast path" } else { "Pingora path" };
        let run = format!("{:?} on the {path}: {}", self.fault, self.test);
        println!("{:.1} s: {run}", begun.elapsed().as_secs_f32());
        (!is_expected).then(|| {
            let (failing, passing) = (&self.failing_cases, &self.passing_cases);
            format!(
                "{run}: expected it {outcome}, with failing cases {failing:?} and passing cases \
                     {passing:?}, but found:\n{output}\n"
            )
        })
    }

    /// Returns what the test prints. A test that does not end in time is killed.
    fn run_and_capture_output(&self) -> String {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--nocapture", "--exact", self.test]).env("RUST_BACKTRACE", "0");
        command.env_remove("RISKGATE_TEST_CASES").env_remove("RISKGATE_TEST_PINGORA_PATH");
        command.env_remove("RISKGATE_TEST_FAULT");
        let cases = [&self.passing_cases[..], &self.failing_cases].concat();
        if !cases.is_empty() {
            command.env("RISKGATE_TEST_CASES", cases.join("\n"));
        }
        if !self.uses_fast_path {
            command.env("RISKGATE_TEST_PINGORA_PATH", "1");
        }
        if let Some(fault) = self.fault {
            command.env("RISKGATE_TEST_FAULT", format!("{fault:?}"));
        }
        // A process group, so that a test that hangs is killed with its gateways.
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let readers =
            [spawn(move || read_text_to_end(stdout)), spawn(move || read_text_to_end(stderr))];
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > TEST_RUN_TIME_LIMIT {
                let group = format!("-{}", child.id());
                Command::new("kill").args(["-KILL", "--", &group]).status().unwrap();
            }
            sleep(Duration::from_millis(20));
        }
        readers.map(|reader| reader.join().unwrap()).concat()
    }
}

fn read_text_to_end(mut stream: impl Read) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}
