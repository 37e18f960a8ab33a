//! An upstream out of time: one deadline for the whole exchange, whatever trickles.

use std::time::Duration;

use super::{Case, Group, Saw};
use crate::harness::{Step, get, request};

fn does(name: &str, steps: Vec<Step>) -> Case {
    let saw = Saw::line("GET /v1/check/a%40b.com HTTP/1.1");
    Case::played(name, get("/v1/check/a@b.com").key("{key}"), move |_| steps.clone()).saw(saw)
}

/// Our failure, in time; the upstream has had the call, so it stays counted.
fn late(case: Case) -> Case {
    Case { logs: vec![(500, "upstream_timeout", None)], ..case.then(500).counts(1, 0).closed() }
        .next_is_honest()
}

fn cut(case: Case) -> Case {
    case.then(200).cut().counts(1, 0).closed().logs(&[(200, "aborted", None)]).next_is_honest()
}

fn trickled(head: &str, body: String) -> Vec<Step> {
    let pause = Duration::from_millis(100);
    let head = format!("HTTP/1.1 200 OK\r\n{head}\r\n").into_bytes();
    vec![Step::Send(head), Step::Trickle(body.into_bytes(), pause), Step::Close]
}

#[test]
fn an_exchange_ends_at_its_deadline_whatever_trickles() {
    let settings = |setup: crate::harness::Setup| setup.text("upstream.deadline", "1s");
    let header =
        format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\nContent-Length: 0\r\n\r\n", "a".repeat(30));
    let trickled_header = vec![Step::Trickle(header.into_bytes(), Duration::from_millis(100))];
    let hints = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(6);
    let hints = format!("{hints}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let post = request("POST", "/v1/signup").key("{key}").body("hello");
    let silent_post = Case::played("it is silent to a POST", post, |_| vec![Step::Silence])
        .saw(Saw::line("POST /v1/signup HTTP/1.1").body("hello"));
    Group::new("slow", 12).settings(settings).run(vec![
        late(does("it is silent", vec![Step::Silence])),
        late(silent_post),
        late(does("its header trickles", trickled_header)),
        late(does(
            "it hints and hints",
            vec![Step::Trickle(hints.into_bytes(), Duration::from_millis(20))],
        )),
        cut(does(
            "its body of known length trickles",
            trickled("Content-Length: 30\r\n", "a".repeat(30)),
        )),
        cut(does(
            "its chunks trickle",
            trickled("Transfer-Encoding: chunked\r\n", "1\r\na\r\n".repeat(6) + "0\r\n\r\n"),
        )),
        cut(does("its body without a length trickles", trickled("", "a".repeat(30)))),
        cut(does(
            "it stops within its body",
            vec![
                Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc".to_vec()),
                Step::Silence,
            ],
        )),
    ]);
}
