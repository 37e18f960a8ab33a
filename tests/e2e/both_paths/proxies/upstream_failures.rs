//! If the upstream server is down, late or broken, riskgate answers 500 or truncates the response.
//! riskgate retries a request where a retry is safe, and counts each call correctly.

use std::time::{Duration, Instant};

use crate::both_paths::proxies::proxying::gateway_with_script;
use crate::harness::{
    MockUpstream, Response, Setup, Step, free_address, get, response_bytes, wait_until,
};

fn send_200_step(body: &str) -> Step {
    Step::Send(response_bytes(200, "", body))
}

const UNAVAILABLE_BODY: &str = r#"{"error":"upstream_unavailable","message":"The checking service cannot be reached. Let your user through.","detail":null}"#;
const TIMEOUT_BODY: &str = r#"{"error":"upstream_timeout","message":"The checking service did not answer in time. Let your user through.","detail":null}"#;

#[track_caller]
fn assert_own_500(answer: &Response, body: &str) {
    assert_eq!((answer.status, answer.text().as_str()), (500, body));
    assert_eq!(answer.header("X-Fail-Open"), Some("true"));
    assert_eq!(answer.header("Content-Type"), Some("application/json"));
    assert_eq!(answer.header("Cache-Control"), Some("no-store"));
    assert!(!answer.has_header("X-Riskgate-Source"), "this is not the upstream server's response");
}

#[test]
fn a_call_without_a_reachable_upstream_is_refunded() {
    let gateway = Setup::new().with_upstreams(&[free_address()]).set("plans.free", "100").start();
    let key = gateway.create_active_key("acme", &[]);
    gateway.get_domain("first.test", &key).expect(200);
    for _ in 0..5 {
        let mut connection = gateway.connect();
        let answer = connection.send_request(&get("/v1/check/a@b.com").key(&key));
        assert_own_500(&answer, UNAVAILABLE_BODY);
        assert!(answer.is_complete && answer.has_header("Content-Length"));
        if answer.header("Connection") != Some("close") {
            connection.send_request(&get("/v1/usage").key(&key)).expect(200);
        }
    }
    assert_eq!(gateway.get_month_count(&key), 1);
    assert_eq!(gateway.get_domain("first.test", &key).expect(200).rate_limit_remaining(), 98);
    assert_eq!(gateway.sum_of_samples("riskgate_quota_refunds_total", &[]), 5.0);
}

#[test]
fn with_a_silent_upstream_the_client_gets_a_500_in_time_and_the_call_is_counted() {
    let (upstream, gateway, key) = gateway_with_script(|_| vec![Step::StaySilent]);
    let begun = Instant::now();
    let answer = gateway.get("/v1/check/a@b.com", &key);
    assert_own_500(&answer, TIMEOUT_BODY);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(2_400) && took < Duration::from_secs(10), "{took:?}");
    assert_eq!(
        upstream.request_count(),
        1,
        "a request that the upstream server received is not retried"
    );
    assert_eq!(gateway.get_month_count(&key), 1);
}

#[test]
fn a_response_that_the_upstream_resets_never_looks_complete() {
    for part in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
    ] {
        let (_stand_in, gateway, key) =
            gateway_with_script(move |_| vec![Step::Send(part.as_bytes().to_vec()), Step::Reset]);
        let mut connection = gateway.connect();
        let answer = connection.try_send_request(&get("/v1/check/a@b.com").key(&key));
        // A reset may overtake the header; then riskgate sends a complete 500.
        let Some(answer) = answer else { continue };
        match answer.status {
            200 => assert!(!answer.is_complete && connection.ends_without_more_bytes(), "{part:?}"),
            _ => assert_eq!(answer.status, 500, "{part:?}"),
        }
    }
}

#[test]
fn the_log_says_why_a_response_cannot_be_forwarded() {
    let many_fields = "a: b\r\n".repeat(257);
    for (behind_status, is_header_refused, expected) in [
        (
            "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            true,
            "found another Transfer-Encoding than one \"chunked\" (request first)",
        ),
        ("Content-Length: five\r\n\r\nhello", true, "found a Content-Length that is no number"),
        ("no colon\r\n\r\n", true, "found bytes that are no response header of HTTP/1.1 (req"),
        (&format!("{many_fields}\r\n"), true, "found more than 256 fields in the header (req"),
        (
            "Transfer-Encoding: chunked\r\n\r\nx\r\nabc\r\n",
            false,
            "found a malformed chunk in the body (request first)",
        ),
        (
            "Content-Length: 9\r\n\r\nabc",
            false,
            "found the end of the connection within the response (request first)",
        ),
    ] {
        let sent = format!("HTTP/1.1 200 OK\r\n{behind_status}").into_bytes();
        let (upstream, gateway, key) =
            gateway_with_script(move |_| vec![Step::Send(sent.clone()), Step::Close]);
        for id in ["first", "second"] {
            let request = get("/v1/check/a@b.com").key(&key).with_header("X-Request-Id", id);
            let answer = gateway.connect().try_send_request(&request);
            match answer {
                Some(answer) if is_header_refused => assert_own_500(&answer, UNAVAILABLE_BODY),
                other => {
                    let looks_complete = other.is_some_and(|it| it.is_complete);
                    assert!(!is_header_refused && !looks_complete, "{expected}");
                }
            }
        }
        let line = format!(
            "upstream server {}: expected a response that riskgate can forward, but {expected}",
            upstream.address
        );
        wait_until("the line", || gateway.stderr().contains(&line));
        assert_eq!(gateway.stderr().matches("can forward, but").count(), 1);
        let refused = gateway
            .sum_of_samples("riskgate_upstream_requests_total", &["outcome=\"broken_response\""]);
        assert_eq!(refused, if is_header_refused { 2.0 } else { 0.0 }, "{expected}");
    }
}

#[test]
fn a_get_is_retried_once_if_its_reused_connection_closes() {
    // Each connection answers once and closes at the second request.
    let (upstream, gateway, key) = gateway_with_script(|seen| match seen.index_on_connection {
        0 => vec![send_200_step("{}")],
        _ => vec![Step::Close],
    });
    for _ in 0..6 {
        gateway.get("/v1/check/a@b.com", &key).expect(200);
    }
    assert_eq!(gateway.get_month_count(&key), 6, "a retry counts nothing");
    assert!(upstream.connection_count() >= 6);
}

#[test]
fn a_retry_opens_a_new_connection_and_uses_no_kept_one() {
    // As above, but with several kept connections: the first responses take their time.
    let (_stand_in, gateway, key) = gateway_with_script(|seen| match seen.index_on_connection {
        0 => vec![Step::Trickle(response_bytes(200, "", "{}"), Duration::from_millis(5))],
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
    let (one, two) = (MockUpstream::start(), MockUpstream::start());
    let gateway = Setup::new().with_upstreams(&[one.address, free_address(), two.address]).start();
    let key = gateway.create_active_key("acme", &["--plan", "pro"]);
    for _ in 0..60 {
        gateway.get("/v1/check/a@b.com", &key).expect(200);
    }
    assert_eq!(one.request_count() + two.request_count(), 60);
    assert!(
        one.request_count() > 10 && two.request_count() > 10,
        "{} and {}",
        one.request_count(),
        two.request_count()
    );
    assert_eq!(gateway.get_month_count(&key), 60);
}

#[test]
fn a_response_larger_than_every_buffer_is_forwarded_complete() {
    let body = "0123456789".repeat(200_000);
    let sent = body.clone();
    let (_stand_in, gateway, key) = gateway_with_script(move |_| vec![send_200_step(&sent)]);
    let answer = gateway.get("/v1/check/a@b.com", &key).expect(200);
    assert!(answer.is_complete);
    assert_eq!(answer.text(), body);
}
