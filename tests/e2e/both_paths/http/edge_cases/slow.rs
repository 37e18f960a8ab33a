//! A slow upstream server: one deadline covers the whole exchange, even if bytes trickle in.

use std::time::Duration;

use super::{Case, CaseGroup, ForwardedRequest};
use crate::harness::{Step, get, request};

fn upstream_case(name: &str, steps: Vec<Step>) -> Case {
    let forwarded = ForwardedRequest::with_request_line("GET /v1/check/a%40b.com HTTP/1.1");
    Case::with_upstream_script(name, get("/v1/check/a@b.com").key("{key}"), move |_| steps.clone())
        .then_upstream_gets(forwarded)
}

/// riskgate answers 500 at the deadline. The upstream server has received the call, so it stays
/// counted.
fn expect_timeout(case: Case) -> Case {
    Case {
        logs: vec![(500, "upstream_timeout", None)],
        ..case.then_status(500).expect_counts(1, 0).then_closed()
    }
    .also_check_next_client()
}

fn expect_truncation(case: Case) -> Case {
    case.then_status(200)
        .expect_truncated()
        .expect_counts(1, 0)
        .then_closed()
        .expect_logs(&[(200, "aborted", None)])
        .also_check_next_client()
}

fn trickle_steps(head: &str, body: String) -> Vec<Step> {
    let pause = Duration::from_millis(100);
    let head = format!("HTTP/1.1 200 OK\r\n{head}\r\n").into_bytes();
    vec![Step::Send(head), Step::Trickle(body.into_bytes(), pause), Step::Close]
}

#[test]
fn an_exchange_ends_at_its_deadline_however_slowly_bytes_arrive() {
    let settings = |setup: crate::harness::Setup| setup.set_text("upstream.deadline", "1s");
    let header =
        format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\nContent-Length: 0\r\n\r\n", "a".repeat(30));
    let trickled_header = vec![Step::Trickle(header.into_bytes(), Duration::from_millis(100))];
    let hints = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(6);
    let hints = format!("{hints}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let post = request("POST", "/v1/signup").key("{key}").body("hello");
    let silent_post =
        Case::with_upstream_script("it is silent to a POST", post, |_| vec![Step::StaySilent])
            .then_upstream_gets(
                ForwardedRequest::with_request_line("POST /v1/signup HTTP/1.1").body("hello"),
            );
    CaseGroup::new("slow", 12).with_settings(settings).run(vec![
        expect_timeout(upstream_case("it sends nothing", vec![Step::StaySilent])),
        expect_timeout(silent_post),
        expect_timeout(upstream_case("its header trickles", trickled_header)),
        expect_timeout(upstream_case(
            "it sends 103 without end",
            vec![Step::Trickle(hints.into_bytes(), Duration::from_millis(20))],
        )),
        expect_truncation(upstream_case(
            "its body of known length trickles",
            trickle_steps("Content-Length: 30\r\n", "a".repeat(30)),
        )),
        expect_truncation(upstream_case(
            "its chunks trickle",
            trickle_steps("Transfer-Encoding: chunked\r\n", "1\r\na\r\n".repeat(6) + "0\r\n\r\n"),
        )),
        expect_truncation(upstream_case(
            "its body without a length trickles",
            trickle_steps("", "a".repeat(30)),
        )),
        expect_truncation(upstream_case(
            "it stops within its body",
            vec![
                Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc".to_vec()),
                Step::StaySilent,
            ],
        )),
    ]);
}
