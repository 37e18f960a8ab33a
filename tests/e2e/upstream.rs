//! What crosses to the checking service and back, and what happens when it fails.

use std::time::{Duration, Instant};

use crate::harness::{
    Answer, Gateway, Seen, Setup, StandIn, Step, answer, free_port, get, request,
};

/// A gateway in front of this stand-in, and a key.
fn before(stand_in: &StandIn) -> (Gateway, String) {
    let gateway = Setup::new().upstream(&[stand_in.address]).start();
    let key = gateway.key("acme", &["--plan", "pro"]);
    (gateway, key)
}

fn playing(
    play: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static,
) -> (StandIn, Gateway, String) {
    let stand_in = StandIn::playing(play);
    let (gateway, key) = before(&stand_in);
    (stand_in, gateway, key)
}

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
fn the_upstream_s_answer_comes_back_as_it_was() {
    let body = r#"{"email":"user@example.com","ok":true}"#;
    let (_stand_in, gateway, key) = playing(move |_| {
        let headers = "Content-Type: application/json; charset=utf-8\r\nETag: \"7\"\r\n\
                       Content-Language: en\r\nCache-Control: max-age=60\r\n";
        vec![Step::Send(answer(203, headers, body))]
    });
    let answer = gateway.get("/v1/check/user@example.com", &key).expect(203);
    assert_eq!(answer.text(), body);
    for (name, value) in [
        ("Content-Type", "application/json; charset=utf-8"),
        ("ETag", "\"7\""),
        ("Content-Language", "en"),
        ("Cache-Control", "max-age=60"),
        ("X-Riskgate-Source", "upstream"),
        ("RateLimit-Policy", "\"monthly\";q=10000"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    assert_eq!(answer.remaining(), 9999);
    assert!(answer.has("X-Request-Id") && !answer.has("X-Fail-Open"));
}

#[test]
fn an_answer_without_cache_control_is_not_stored() {
    let (gateway, key) = before(&StandIn::start());
    let answer = gateway.get("/v1/check/a@b.com", &key).expect(200);
    assert_eq!(answer.header("Cache-Control"), Some("no-store"));
}

#[test]
fn a_chunked_answer_comes_back_whole() {
    let (_stand_in, gateway, key) = playing(|_| {
        vec![Step::Send(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n".to_vec(),
        )]
    });
    let mut connection = gateway.connect();
    for _ in 0..3 {
        let answer = connection.ask(&get("/v1/check/a@b.com").key(&key)).expect(200);
        assert!(answer.complete);
        assert_eq!(answer.text(), "abcdefg");
    }
}

#[test]
fn a_head_request_crosses_as_one() {
    let (stand_in, gateway, key) =
        playing(|_| vec![Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 42\r\n\r\n".to_vec())]);
    let mut connection = gateway.connect();
    let head = connection.ask(&request("HEAD", "/v1/check/a@b.com").key(&key)).expect(200);
    assert_eq!(head.header("Content-Length"), Some("42"));
    assert_eq!(stand_in.last().line(), "HEAD /v1/check/a%40b.com HTTP/1.1");
    connection.ask(&get("/v1/usage").key(&key)).expect(200);
}

#[test]
fn every_spelling_of_a_target_crosses_in_one_canonical_form() {
    let stand_in = StandIn::start();
    let (gateway, key) = before(&stand_in);
    for (written, canonical) in [
        ("user@example.com", "user%40example.com"),
        ("user%40example.com", "user%40example.com"),
        ("us%65r%40example%2ecom", "user%40example.com"),
        ("User@Example.com", "User%40Example.com"),
        ("a+b@c.de", "a%2Bb%40c.de"),
        ("a%20b@c.de", "a%20b%40c.de"),
        ("a~b_c-d.e@f.gh", "a~b_c-d.e%40f.gh"),
        ("b%c3%bccher.de", "b%C3%BCcher.de"),
        ("100%25@c.de", "100%25%40c.de"),
        ("a:b;c=d,e!f$g&h'i(j)k*l@m.no", "a%3Ab%3Bc%3Dd%2Ce%21f%24g%26h%27i%28j%29k%2Al%40m.no"),
        ("example.com", "example.com"),
        ("a@b.com?q=1&r=%2F%zz", "a%40b.com?q=1&r=%2F%zz"),
        ("a@b.com?", "a%40b.com?"),
        ("a%3Fb@c.de", "a%3Fb%40c.de"),
        ("a%5Cb@c.de", "a%5Cb%40c.de"),
    ] {
        gateway.get(format!("/v1/check/{written}"), &key).expect(200);
        let line = format!("GET /v1/check/{canonical} HTTP/1.1");
        assert_eq!(stand_in.last().line(), line, "{written}");
    }
}

#[test]
fn a_target_that_is_no_single_segment_of_text_never_crosses() {
    let stand_in = StandIn::start();
    let (gateway, key) = before(&stand_in);
    let long = format!("/v1/check/{}", "a".repeat(1025));
    for (path, status) in [
        ("/v1/check/a%2Fb", 422),
        ("/v1/check/..%2Fadmin", 422),
        ("/v1/check/a%00b", 422),
        ("/v1/check/a%0D%0Ab", 422),
        ("/v1/check/a%7f", 422),
        ("/v1/check/a%C2%85b", 422),
        ("/v1/check/a%ff", 422),
        ("/v1/check/a%4", 422),
        ("/v1/check/%", 422),
        (long.as_str(), 422),
        ("/v1/check/..", 404),
        ("/v1/check/%2e%2e", 404),
        ("/v1/check/a/b", 404),
        ("/v1/check//a", 404),
        ("/v1/check/", 404),
        ("/v1/check", 404),
        ("//v1/check/a", 404),
        ("/v1/check/../check/a", 404),
        ("/v1/check%2Fa", 404),
        ("v1/check/a", 404),
    ] {
        let answer = gateway.get(path, &key);
        assert_eq!(answer.status, status, "{path}");
        if status == 422 {
            assert!(answer.json()["detail"].as_str().unwrap().starts_with("expected"), "{path}");
        }
    }
    gateway.get(format!("/v1/check/{}", "a".repeat(1024)), &key).expect(200);
    assert_eq!(stand_in.count(), 1);
}

#[test]
fn who_may_not_pass_never_reaches_the_upstream() {
    let stand_in = StandIn::start();
    let gateway = Setup::new().upstream(&[stand_in.address]).set("plans.free", "1").start();
    let key = gateway.key("acme", &["--origin", "https://app.example.com"]);
    let check = || get("/v1/check/a@b.com");
    gateway.ask(&check()).expect(401);
    gateway.ask(&check().key("rg_00000000000000000000000000000000")).expect(401);
    gateway.ask(&check().key(&key).with("Origin", "https://evil.example")).expect(403);
    gateway.ask(&request("POST", "/v1/check/a@b.com").key(&key)).expect(405);
    gateway.ask(&request("OPTIONS", "/v1/check/a@b.com")).expect(204);
    gateway.get("/v1/usage", &key).expect(200);
    gateway.domain("first.test", &key).expect(200);
    gateway.ask(&check().key(&key)).expect(429);
    assert_eq!(stand_in.count(), 0);
    assert_eq!(stand_in.connections(), 0);
}

#[test]
fn the_upstream_learns_who_calls_from_us_alone() {
    let stand_in = StandIn::start();
    let gateway = Setup::new().upstream(&[stand_in.address]).start();
    let (key, id) = gateway.key_with_id("acme", &["--plan", "pro"]);
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let forged = get("/v1/check/a@b.com")
        .key(&key)
        .with("X-Riskgate-Account", "boss")
        .with("x-riskgate-key-id", "boss")
        .with("X-RISKGATE-PLAN", "boss")
        .with("X-Riskgate-Anything", "boss")
        .with("X-Forwarded-For", "6.6.6.6")
        .with("X-Forwarded-Proto", "https")
        .with("X-Forwarded-Host", "boss.example")
        .with("Forwarded", "for=6.6.6.6")
        .with("X-Real-IP", "6.6.6.6")
        .with("X-Request-Id", "mine-1")
        .with("traceparent", traceparent)
        .with("tracestate", "a=b")
        .with("Accept-Language", "de")
        .with("User-Agent", "test/1");
    let answer = gateway.ask(&forged).expect(200);
    assert_eq!(answer.header("X-Request-Id"), Some("mine-1"));
    let seen = stand_in.last();
    for (name, value) in [
        ("X-Riskgate-Account", "acme"),
        ("X-Riskgate-Key-Id", id.as_str()),
        ("X-Riskgate-Plan", "pro"),
        ("X-Request-Id", "mine-1"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Forwarded-Proto", "http"),
        ("X-Forwarded-Host", "gate.test"),
        ("Host", stand_in.address.to_string().as_str()),
        ("traceparent", traceparent),
        ("tracestate", "a=b"),
        ("Accept-Language", "de"),
        ("User-Agent", "test/1"),
    ] {
        assert_eq!(seen.header(name), value, "{name}");
    }
    let text = seen.head.to_lowercase();
    assert!(!text.contains("authorization") && !text.contains(&key.to_lowercase()), "{text}");
    assert!(!text.contains("boss") && !text.contains("6.6.6.6"), "{text}");
}

#[test]
fn a_new_request_id_is_the_same_on_both_sides() {
    let stand_in = StandIn::start();
    let (gateway, key) = before(&stand_in);
    let answer = gateway.get("/v1/check/a@b.com", &key).expect(200);
    assert_eq!(answer.header("X-Request-Id"), Some(stand_in.last().header("X-Request-Id")));
}

#[test]
fn forwarding_headers_are_kept_from_a_trusted_proxy_and_the_host_can_be_set() {
    let stand_in = StandIn::start();
    let gateway = Setup::new()
        .upstream(&[stand_in.address])
        .set("listen.trusted_proxies", "[\"127.0.0.1\"]")
        .text("upstream.host", "check.internal")
        .start();
    let key = gateway.key("acme", &[]);
    let request = get("/v1/check/a@b.com")
        .key(&key)
        .with("X-Forwarded-For", "6.6.6.6")
        .with("X-Forwarded-Proto", "https")
        .with("X-Forwarded-Host", "shop.example");
    gateway.ask(&request).expect(200);
    let seen = stand_in.last();
    assert_eq!(seen.header("X-Forwarded-For"), "6.6.6.6, 127.0.0.1");
    assert_eq!(seen.header("X-Forwarded-Proto"), "https");
    assert_eq!(seen.header("X-Forwarded-Host"), "shop.example");
    assert_eq!(seen.header("Host"), "check.internal");
}

#[test]
fn what_is_not_the_upstream_s_to_say_does_not_come_back() {
    let (_stand_in, gateway, key) = playing(|_| {
        let headers = "Set-Cookie: a=b\r\nSet-Cookie: c=d\r\nServer: secret/1.0\r\n\
            Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\n\
            Access-Control-Expose-Headers: X-Secret\r\nX-Riskgate-Source: me\r\n\
            X-Riskgate-Account: x\r\nX-Request-Id: theirs\r\nX-Fail-Open: true\r\n\
            RateLimit: \"other\";r=1;t=1\r\nRateLimit-Policy: \"other\";q=1\r\n\
            X-Other: stays\r\n";
        vec![Step::Send(answer(200, headers, "{}"))]
    });
    let origin = "https://app.example.com";
    let request = get("/v1/check/a@b.com").key(&key).with("Origin", origin);
    let answer = gateway.ask(&request.with("X-Request-Id", "mine")).expect(200);
    for name in ["Set-Cookie", "Access-Control-Allow-Credentials", "X-Riskgate-Account"] {
        assert!(!answer.has(name), "{name}");
    }
    assert_ne!(answer.header("Server"), Some("secret/1.0"));
    assert_eq!(answer.header("Access-Control-Allow-Origin"), Some(origin));
    assert!(!answer.header("Access-Control-Expose-Headers").unwrap().contains("Secret"));
    assert_eq!(answer.header("X-Riskgate-Source"), Some("upstream"));
    assert_eq!(answer.header("X-Request-Id"), Some("mine"));
    assert_eq!(answer.header("X-Other"), Some("stays"));
    assert_eq!(answer.header("RateLimit-Policy"), Some("\"monthly\";q=10000"));
    assert!(!answer.has("X-Fail-Open"), "a 200 is no failure");
}

#[test]
fn the_upstream_s_own_refusals_pass_and_its_failures_say_fail_open() {
    let (_stand_in, gateway, key) = playing(|seen| {
        let status = seen.line().split(['=', ' ']).nth(2).unwrap().parse().unwrap();
        vec![Step::Send(answer(status, "Content-Type: application/problem+json\r\n", "{\"n\":1}"))]
    });
    for (status, fails_open) in [
        (200, None),
        (201, None),
        (301, None),
        (400, None),
        (401, None),
        (404, None),
        (422, None),
        (429, Some("true")),
        (500, Some("true")),
        (502, Some("true")),
        (503, Some("true")),
        (599, Some("true")),
    ] {
        let answer = gateway.get(format!("/v1/check/a@b.com?status={status}"), &key);
        assert_eq!(answer.status, status);
        assert_eq!(answer.text(), "{\"n\":1}", "{status}");
        assert_eq!(answer.header("X-Fail-Open"), fails_open, "{status}");
        assert_eq!(answer.header("X-Riskgate-Source"), Some("upstream"), "{status}");
        assert_eq!(answer.header("Content-Type"), Some("application/problem+json"));
    }
    assert_eq!(gateway.month_count(&key), 12, "the upstream served every one of these calls");
}

#[test]
fn an_upgrade_is_not_passed_on() {
    let stand_in = StandIn::start();
    let (gateway, key) = before(&stand_in);
    let request = get("/v1/check/a@b.com")
        .key(&key)
        .with("Connection", "Upgrade")
        .with("Upgrade", "websocket");
    gateway.ask(&request).expect(200);
    let head = stand_in.last().head.to_lowercase();
    assert!(!head.contains("upgrade"), "{head}");
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
fn a_trickled_header_is_cut_at_the_same_deadline() {
    let (_stand_in, gateway, key) = playing(|_| {
        let head = format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\n\r\n", "a".repeat(500));
        vec![Step::Trickle(head.into_bytes(), Duration::from_millis(100))]
    });
    let begun = Instant::now();
    let answer = gateway.get("/v1/check/a@b.com", &key);
    assert_our_failure(&answer, TIMEOUT);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(gateway.month_count(&key), 1);
}

#[test]
fn a_trickled_body_is_cut_and_never_looks_complete() {
    for framing in ["Content-Length: 500\r\n", "Transfer-Encoding: chunked\r\n", ""] {
        let (_stand_in, gateway, key) = playing(move |_| {
            let head = format!("HTTP/1.1 200 OK\r\n{framing}\r\n").into_bytes();
            let body =
                if framing.starts_with('T') { "1\r\na\r\n".repeat(90) } else { "a".repeat(500) };
            vec![Step::Send(head), Step::Trickle(body.into_bytes(), Duration::from_millis(100))]
        });
        let begun = Instant::now();
        let mut connection = gateway.connect();
        let answer = connection.ask(&get("/v1/check/a@b.com").key(&key));
        assert_eq!(answer.status, 200, "{framing:?}");
        assert!(!answer.complete, "{framing:?} {:?} {}", answer.headers, answer.text());
        assert!(answer.body.len() < 90, "{framing:?}");
        assert!(
            answer.has("Content-Length") || answer.has("Transfer-Encoding"),
            "without framing a cut answer looks complete: {framing:?} {:?}",
            answer.headers
        );
        assert!(connection.is_closed(), "{framing:?}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{framing:?}");
        assert_eq!(gateway.month_count(&key), 1, "{framing:?}");
    }
}

#[test]
fn an_answer_that_breaks_off_never_looks_complete() {
    for part in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
    ] {
        for end in [Step::Close, Step::Reset] {
            let (_stand_in, gateway, key) =
                playing(move |_| vec![Step::Send(part.as_bytes().to_vec()), end.clone()]);
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
}

#[test]
fn garbage_from_the_upstream_is_our_500() {
    for garbage in [
        "SSH-2.0-OpenSSH_9.9\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "HTTP/1.1 two hundred\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
    ] {
        let (_stand_in, gateway, key) =
            playing(move |_| vec![Step::Send(garbage.as_bytes().to_vec()), Step::Close]);
        let answer = gateway.get("/v1/check/a@b.com", &key);
        assert_eq!(answer.status, 500, "{garbage:?}");
        assert_eq!(answer.header("X-Fail-Open"), Some("true"), "{garbage:?}");
        let error = answer.json()["error"].clone();
        assert_eq!(error, "upstream_unavailable", "{garbage:?}");
    }
}

#[test]
fn a_new_connection_that_closes_or_resets_is_our_500() {
    for step in [Step::Close, Step::Reset] {
        let (stand_in, gateway, key) = playing(move |_| vec![step.clone()]);
        assert_our_failure(&gateway.get("/v1/check/a@b.com", &key), UNAVAILABLE);
        assert_eq!(stand_in.count(), 1, "it had the request: no second try");
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
fn a_wrong_length_is_never_passed_on_as_right() {
    // Bytes beyond the length belong to nobody; they must not become the next answer.
    let (_stand_in, gateway, key) = playing(|seen| {
        let path = seen.line().to_owned();
        match path.contains("long") {
            true => vec![Step::Send(
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged".to_vec(),
            )],
            false => vec![ok("honest")],
        }
    });
    let mut connection = gateway.connect();
    for _ in 0..5 {
        let first = connection.ask(&get("/v1/check/long").key(&key)).expect(200);
        assert_eq!(first.text(), "{}");
        let next = connection.ask(&get("/v1/check/other").key(&key));
        assert_ne!(next.text(), "forged");
    }
}

#[test]
fn two_content_lengths_from_the_upstream_are_refused() {
    let (_stand_in, gateway, key) = playing(|_| {
        vec![Step::Send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 30\r\n\r\n{}".to_vec(),
        )]
    });
    let mut connection = gateway.connect();
    if let Some(answer) = connection.try_ask(&get("/v1/check/a").key(&key)) {
        let lengths = answer.all("Content-Length");
        assert!(answer.status == 500 || lengths.len() == 1, "{:?}", answer.headers);
    }
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
