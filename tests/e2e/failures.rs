//! An upstream that is down, late, broken or lying: our failure, said as one, and counted right.

use std::time::{Duration, Instant};

use crate::harness::{Answer, Setup, StandIn, Step, answer, free_port, get};
use crate::upstream::playing;

fn ok(body: &str) -> Step {
    Step::Send(answer(200, "", body))
}

const UNAVAILABLE: &str = r#"{"error":"upstream_unavailable","message":"The checking service cannot be reached. Let your user through.","detail":null}"#;
const TIMEOUT: &str = r#"{"error":"upstream_timeout","message":"The checking service did not answer in time. Let your user through.","detail":null}"#;

#[track_caller]
fn assert_our_failure(answer: &Answer, body: &str) {
    assert_eq!((answer.status, answer.text().as_str()), (500, body));
    assert_eq!(answer.header("X-Fail-Open"), Some("true"));
    assert_eq!(answer.header("Content-Type"), Some("application/json"));
    assert_eq!(answer.header("Cache-Control"), Some("no-store"));
    assert!(!answer.has("X-Riskgate-Source"), "the upstream did not say this");
}

#[test]
fn a_call_that_finds_no_upstream_is_given_back() {
    let gateway = Setup::new().upstream(&[free_port()]).set("plans.free", "100").start();
    let key = gateway.key("acme", &[]);
    gateway.domain("first.test", &key).expect(200);
    for _ in 0..5 {
        let mut connection = gateway.connect();
        let answer = connection.ask(&get("/v1/check/a@b.com").key(&key));
        assert_our_failure(&answer, UNAVAILABLE);
        assert!(answer.complete && answer.has("Content-Length"));
        if answer.header("Connection") != Some("close") {
            connection.ask(&get("/v1/usage").key(&key)).expect(200);
        }
    }
    assert_eq!(gateway.month_count(&key), 1);
    assert_eq!(gateway.domain("first.test", &key).expect(200).remaining(), 98);
    assert_eq!(gateway.metric("riskgate_calls_given_back_total", &[]), 5.0);
}

#[test]
fn a_silent_upstream_is_cut_in_time_and_the_call_stays_counted() {
    let (stand_in, gateway, key) = playing(|_| vec![Step::Silence]);
    let begun = Instant::now();
    let answer = gateway.get("/v1/check/a@b.com", &key);
    assert_our_failure(&answer, TIMEOUT);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(2_400) && took < Duration::from_secs(10), "{took:?}");
    assert_eq!(stand_in.count(), 1, "what the upstream has received is not tried again");
    assert_eq!(gateway.month_count(&key), 1);
}

#[test]
fn an_answer_that_is_reset_never_looks_complete() {
    for part in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
    ] {
        let (_stand_in, gateway, key) =
            playing(move |_| vec![Step::Send(part.as_bytes().to_vec()), Step::Reset]);
        let mut connection = gateway.connect();
        let answer = connection.try_ask(&get("/v1/check/a@b.com").key(&key));
        // A reset may overtake the header; then it is our failure, said whole.
        let Some(answer) = answer else { continue };
        match answer.status {
            200 => assert!(!answer.complete && connection.is_closed(), "{part:?}"),
            _ => assert_eq!(answer.status, 500, "{part:?}"),
        }
    }
}

#[test]
fn a_reused_connection_that_closed_is_tried_once_more() {
    // Each connection answers once and closes when it is asked again.
    let (stand_in, gateway, key) = playing(|seen| match seen.number {
        0 => vec![ok("{}")],
        _ => vec![Step::Close],
    });
    for _ in 0..6 {
        gateway.get("/v1/check/a@b.com", &key).expect(200);
    }
    assert_eq!(gateway.month_count(&key), 6, "a second try counts nothing");
    assert!(stand_in.connections() >= 6);
}

#[test]
fn a_second_try_takes_none_of_the_kept_connections() {
    // As above, but that several were kept: the first answers take their time.
    let (_stand_in, gateway, key) = playing(|seen| match seen.number {
        0 => vec![Step::Trickle(answer(200, "", "{}"), Duration::from_millis(5))],
        _ => vec![Step::Close],
    });
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| gateway.get("/v1/check/a@b.com", &key).expect(200));
        }
    });
    for _ in 0..4 {
        gateway.get("/v1/check/a@b.com", &key).expect(200);
    }
}

#[test]
fn with_one_of_several_servers_down_every_call_succeeds() {
    let (one, two) = (StandIn::start(), StandIn::start());
    let gateway = Setup::new().upstream(&[one.address, free_port(), two.address]).start();
    let key = gateway.key("acme", &["--plan", "pro"]);
    for _ in 0..60 {
        gateway.get("/v1/check/a@b.com", &key).expect(200);
    }
    assert_eq!(one.count() + two.count(), 60);
    assert!(one.count() > 10 && two.count() > 10, "{} and {}", one.count(), two.count());
    assert_eq!(gateway.month_count(&key), 60);
}

#[test]
fn an_answer_far_larger_than_any_buffer_comes_back_whole() {
    let body = "0123456789".repeat(200_000);
    let sent = body.clone();
    let (_stand_in, gateway, key) = playing(move |_| vec![ok(&sent)]);
    let answer = gateway.get("/v1/check/a@b.com", &key).expect(200);
    assert!(answer.complete);
    assert_eq!(answer.text(), body);
}
