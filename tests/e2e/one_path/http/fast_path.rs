//! The fast path and the Pingora path behave alike. Two gateways, with and without the fast path,
//! receive the same bytes over HTTP/1.1, over TLS and over HTTP/2. Both must send the same
//! responses, count the same calls, forward the same requests, write the same log lines, and close
//! the connection in the same way.
//!
//! `RISKGATE_TEST_SEEDS=1000..2000` tests other random connections than the usual ones.
//! `scripts/differences` tests further seeds for a given time.

mod compared_gateway;
mod comparison;
mod http1_input;
mod http2_exchange;
mod http2_input;
mod http2_odd_requests;
mod normalization;
mod random_posts;
pub mod random_requests;
mod upstream_script;

use crate::harness::http2_frames::{
    DATA, END_HEADERS, END_STREAM, FrameClient, HEADERS, RST_STREAM, encode_frame,
    encode_request_fields,
};
use crate::harness::{Gateway, MockUpstream, Setup, Step, get, response_bytes, wait_until};

use comparison::{Transport, compare_paths};

#[test]
fn the_fast_path_and_the_pingora_path_respond_alike() {
    compare_paths(Transport::Http1);
}

#[test]
fn the_fast_path_and_the_pingora_path_respond_alike_over_tls() {
    compare_paths(Transport::Http1OverTls);
}

#[test]
fn the_fast_path_and_the_pingora_path_respond_alike_over_http2() {
    compare_paths(Transport::Http2);
}

/// Posts a form on this stream; returns the status.
fn post_form(frames: &mut FrameClient, stream: u32, form: &str) -> u16 {
    let length = form.len().to_string();
    let fields =
        [("content-type", "application/x-www-form-urlencoded"), ("content-length", &*length)];
    let block = encode_request_fields("POST", "/signup", "none", &fields);
    let header = encode_frame(HEADERS, END_HEADERS, stream, &block);
    let body = encode_frame(DATA, END_STREAM, stream, form.as_bytes());
    assert!(frames.try_send(&[header, body].concat()));
    frames.read_status(stream)
}

#[test]
fn over_http2_the_fast_path_forwards_and_screens_forms() {
    let upstream = MockUpstream::with_script(|_| vec![Step::Send(response_bytes(200, "", "ok"))]);
    let gateway = start_with_form_route(&upstream, "");
    let mut frames = FrameClient::open(gateway.http);
    for (stream, form, status) in
        [(1, "email=jane%40gmail.com", 200), (3, "email=x%40first.test", 422), (5, "", 200)]
    {
        assert_eq!(post_form(&mut frames, stream, form), status, "{form}");
    }
    let bodies = upstream.received_requests();
    let bodies: Vec<&[u8]> = bodies.iter().map(|request| &*request.body).collect();
    assert_eq!(bodies, [&b"email=jane%40gmail.com"[..], b""]);
    let on_fast_path = || gateway.sum_of_samples("riskgate_fast_path_requests_total", &[]);
    wait_until("all are counted", || on_fast_path() == 3.0);
    // The connection to the server is kept for the next request.
    assert_eq!(upstream.connection_count(), 1);
}

#[test]
fn over_http2_a_reset_ends_the_exchange_with_the_server() {
    let begin = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345";
    reset_during_exchange(vec![Step::StaySilent], false);
    // An event stream: the response has begun.
    reset_during_exchange(vec![Step::Send(begin.to_vec()), Step::StaySilent], true);
}

fn reset_during_exchange(script: Vec<Step>, begins_response: bool) {
    let upstream = MockUpstream::with_script(move |_| script.clone());
    let gateway = start_with_form_route(&upstream, "deadline = \"1h\"\n");
    let mut frames = FrameClient::open(gateway.http);
    let block = encode_request_fields("GET", "/signup", "none", &[]);
    assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)));
    if begins_response {
        assert_eq!(frames.read_status(1), 200);
    }
    let under_way = || gateway.sum_of_samples("riskgate_upstream_exchanges_in_flight", &[]);
    wait_until("the exchange has begun", || under_way() == 1.0 && upstream.request_count() == 1);
    // 8 is CANCEL.
    assert!(frames.try_send(&encode_frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])));
    wait_until("the exchange has ended", || under_way() == 0.0);
    wait_until("the request is logged", || gateway.read_access_log().len() == 1);
    assert_eq!(gateway.read_access_log()[0]["outcome"], "aborted");
    assert_eq!(gateway.sum_of_samples("riskgate_fast_path_requests_total", &[]), 1.0);
}

#[test]
fn over_http2_a_body_of_no_bytes_is_complete_without_its_end() {
    let upstream = MockUpstream::with_script(|_| vec![Step::Send(response_bytes(200, "", "ok"))]);
    let gateway = start_with_form_route(&upstream, "");
    let mut frames = FrameClient::open(gateway.http);
    let block = encode_request_fields("POST", "/signup", "none", &[("content-length", "0")]);
    assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS, 1, &block)));
    assert_eq!(frames.read_status(1), 200);
    let head = upstream.last_request().head.to_ascii_lowercase();
    assert!(head.contains("content-length: 0"), "{head}");
}

/// A gateway in front of this server, with a screened route that needs no key.
fn start_with_form_route(upstream: &MockUpstream, more: &str) -> Gateway {
    let setup = Setup::new().with_upstreams(&[upstream.address]).set("listen.h2c", "true");
    let setup = setup.set("listen.fast_path", "true");
    let route = format!(
        "[[upstream.route]]\nprefix = \"/signup\"\nkey = false\nmethods = [\"GET\", \"POST\"]\n{more}\
         [upstream.route.screen]\nfields = [\"email\"]\nmode = \"block\"\n"
    );
    setup.append_toml(&route).start()
}

#[test]
fn a_connection_that_returns_to_the_fast_path_has_the_keepalive_timeout() {
    let setup = Setup::new().set("listen.fast_path", "true");
    let setup = setup.set_text("listen.keepalive_timeout", "1s");
    let gateway = setup.set_text("listen.header_timeout", "1h").start();
    let key = gateway.create_active_key("acme", &[]);
    let answers = || gateway.sum_of_samples("riskgate_fast_path_requests_total", &[]);
    let mut connection = gateway.connect();
    let before = answers();
    // `Keep-Alive` takes the Pingora path.
    let other = get("/v1/usage").key(&key).with_header("Keep-Alive", "timeout=1");
    connection.send_request(&other).expect(200);
    assert_eq!(answers(), before);
    connection.send_request(&get("/v1/public/top-domains")).expect(401);
    assert_eq!(answers(), before + 1.0);
    // An idle connection closes after the keep-alive time-out of one second, not after the header
    // time-out of one hour.
    assert!(connection.ends_without_more_bytes());
}

#[test]
fn an_upstream_connection_with_unexpected_bytes_is_not_reused() {
    let unasked = response_bytes(200, "", "nobody asked");
    let upstream = MockUpstream::with_script(move |seen| {
        let behind = if seen.request_line().contains("/0 ") {
            Step::Send(unasked.clone())
        } else {
            Step::Close
        };
        vec![Step::Send(response_bytes(200, "", seen.request_line())), behind]
    });
    for fast_path in ["true", "false"] {
        let setup =
            Setup::new().with_upstreams(&[upstream.address]).set("listen.fast_path", fast_path);
        let gateway = setup.set("plans.free", "1000000").start();
        let key = gateway.create_key_with_lease("acme");
        for number in 0..3 {
            let own = gateway.get(format!("/v1/check/{number}"), &key).expect(200).text();
            assert_eq!(own, format!("GET /v1/check/{number} HTTP/1.1"), "fast_path = {fast_path}");
            wait_until("the upstream connection is closed", || {
                gateway.count_connections_to(upstream.address) == 0
            });
        }
    }
}

/// An account of a small plan holds one leased call or none, so most of its calls wait for the
/// store.
#[test]
fn every_plan_admits_exactly_its_limit_with_and_without_the_fast_path() {
    for fast_path in ["true", "false"] {
        let setup = Setup::new().set("listen.fast_path", fast_path);
        let plans = [("free", 1), ("few", 3), ("some", 120), ("more", 1_500)];
        let setup = plans.iter().fold(setup, |setup, (plan, limit)| {
            setup.set(&format!("plans.{plan}"), &limit.to_string())
        });
        let gateway = setup.start();
        for (plan, limit) in plans {
            let key = gateway.create_active_key(plan, &["--plan", plan]);
            let mut left: Vec<u64> = std::thread::scope(|scope| {
                let spend = || remaining_after_each_call(&gateway, &key);
                let clients: Vec<_> = (0..6).map(|_| scope.spawn(spend)).collect();
                clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
            });
            left.sort_unstable();
            assert_eq!(left, (0..limit).collect::<Vec<_>>(), "{plan}, fast_path = {fast_path}");
            assert_eq!(gateway.get_month_count(&key), limit);
        }
        let answers = gateway.sum_of_samples("riskgate_fast_path_requests_total", &[]);
        assert_eq!(answers > 0.0, fast_path == "true");
    }
}

/// The remaining calls of the month after each call, until none is left.
fn remaining_after_each_call(gateway: &Gateway, key: &str) -> Vec<u64> {
    let mut connection = gateway.connect();
    let mut left = Vec::new();
    loop {
        let answer = connection.send_request(&get("/v1/public/domain/first.test").key(key));
        if answer.status == 429 {
            return left;
        }
        left.push(answer.expect(200).rate_limit_remaining());
    }
}
