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

use std::time::Duration;

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
        wait_until("clients are gone", || {
            gateway.sum_of_samples("riskgate_connections", &[]) == 0.0
        });
        // The connection that asked for the metrics closes a moment later.
        let polls = (0..20).map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            gateway.open_descriptor_count()
        });
        let before = polls.min().unwrap();
        for number in 0..3 {
            let own = gateway.get(format!("/v1/check/{number}"), &key).expect(200).text();
            assert_eq!(own, format!("GET /v1/check/{number} HTTP/1.1"), "fast_path = {fast_path}");
            wait_until("the upstream connection is closed", || {
                gateway.open_descriptor_count() <= before
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
