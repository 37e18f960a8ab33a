//! Tests the runner: each of its checks must detect a wrong result.

use std::time::Duration;

use super::targets::FIRST_TEST_VERDICT_BODY;
use super::{Case, CaseGroup, ForwardedRequest};
use crate::harness::{Connection, Step, get, response_bytes, stream_from};

fn check_request() -> crate::harness::Request {
    get("/v1/check/a").key("{key}")
}

fn forwarded_check() -> ForwardedRequest {
    ForwardedRequest::with_request_line("GET /v1/check/a HTTP/1.1")
}

fn verdict_case(name: &str) -> Case {
    let request = get("/v1/public/domain/first.test").key("{key}");
    Case::with_upstream_script(name, request, |_| Vec::new())
        .then_verdict()
        .body(FIRST_TEST_VERDICT_BODY)
}

#[test]
fn the_runner_reports_each_failing_case_with_its_difference() {
    let keep_connection =
        |_: &crate::harness::ReceivedRequest| vec![Step::Send(response_bytes(200, "", "{}"))];
    let kept = Case::with_upstream_script("reuse", check_request(), keep_connection)
        .then_forwarded(forwarded_check())
        .body("{}");
    // The runner waits its full time-out for a result that never comes.
    let with_short_timeout = |client, address| {
        let stream = stream_from(client, address);
        stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        Connection::from_stream(Box::new(stream))
    };
    let (passed, failed) =
        CaseGroup::new("runner", 13).with_connector(with_short_timeout).run_cases(vec![
            verdict_case("right"),
            Case::answered_by_gateway("status", 404, check_request()),
            verdict_case("body").body("{}"),
            verdict_case("header").expect_header("Vary", "Accept"),
            verdict_case("absence").expect_no_headers(&["Vary"]),
            verdict_case("an answer too many").then_verdict(),
            verdict_case("connection").then_closed(),
            Case::refused_and_closed("kept", 400, get("nowhere").key("{key}")),
            verdict_case("upstream").then_upstream_gets(forwarded_check()),
            Case::forwarded("bytes", check_request(), forwarded_check().with_field("X-Extra: 1")),
            verdict_case("count").expect_counts(2, 0),
            verdict_case("another's count").expect_counts(1, 1),
            verdict_case("log").expect_logs(&[(200, "ok", None)]),
            verdict_case("no log").expect_logs(&[]),
            kept.clone(),
            kept.also_check_next_client(),
        ]);
    assert_eq!(passed, ["runner: right", "runner: reuse"]);
    let fault_line = |name: &str| {
        let line = failed.iter().find(|line| line.starts_with(&format!("runner: {name} | ")));
        line.unwrap_or_else(|| panic!("{name} did not fail: {failed:?}")).clone()
    };
    for (name, why) in [
        ("status", "answered 200, and not 404"),
        ("body", "said"),
        ("header", "Vary"),
        ("absence", "Vary"),
        ("an answer too many", "1 answers, and not 2"),
        ("connection", "the connection was kept"),
        ("kept", "answered 404, and not 400"),
        ("upstream", "the upstream saw 0 requests, and not 1"),
        ("bytes", "x-extra: 1"),
        ("count", "counted Some(1), and not 2"),
        ("another's count", "counted Some(0), and not 1"),
        ("log", "logged"),
        ("no log", "logged"),
        ("reuse", "riskgate reused the upstream connection"),
    ] {
        assert!(fault_line(name).contains(why), "{name}: {}", fault_line(name));
    }
}
