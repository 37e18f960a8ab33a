//! `riskgate demo --upstream-only`: the demo's checking service without a gateway.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{BINARY, DemoUpstream, Setup, get, request, run_command};

const ANY_PORT: &str = "127.0.0.1:0";

fn get_check_result(address: SocketAddr, target: &str) -> Value {
    get(format!("/v1/check/{target}")).send(address).expect(200).json()
}

#[test]
fn the_demo_upstream_answers_with_ten_fields_from_the_bundled_table() {
    let upstream = DemoUpstream::start(&[ANY_PORT]);
    assert_eq!(
        get_check_result(upstream.address, "jane%40mail.yopmail.com?trace=1"),
        json!({
            "email": "j****@mail.yopmail.com",
            "is_risky": true,
            "risk_score": 100,
            "reason": "disposable",
            "deliverability_score": 95,
            "did_you_mean": null,
            "is_free_provider": false,
            "is_corporate_email": false,
            "is_alias_email": false,
            "mx_provider_label": "Yopmail",
        })
    );
    assert_eq!(get_check_result(upstream.address, "gmial.com")["did_you_mean"], "gmail.com");
    assert_eq!(get_check_result(upstream.address, "gmail.com")["is_free_provider"], true);
    assert_eq!(get_check_result(upstream.address, "a@simplelogin.com")["is_alias_email"], true);
    let nowhere = get_check_result(upstream.address, "a@nowhere.invalid");
    assert_eq!((&nowhere["deliverability_score"], &nowhere["is_risky"]), (&json!(0), &json!(true)));
}

#[test]
fn the_demo_upstream_refuses_malformed_checks_and_other_paths_and_methods() {
    let upstream = DemoUpstream::start(&[ANY_PORT]);
    let status = |target: &str| get(target).send(upstream.address).status;
    assert_eq!(status("/healthz"), 200);
    assert_eq!(status("/v1/check/a@b@"), 422);
    assert_eq!(status("/v1/check/%FF"), 422);
    assert_eq!(status("/v1/check/"), 422);
    assert_eq!(status("/v1/signup"), 404);
    assert_eq!(request("HEAD", "/v1/check/a.com").send(upstream.address).status, 200);
    let post = request("POST", "/v1/check/a.com").body("{}");
    assert_eq!(post.send(upstream.address).status, 405);
}

#[test]
fn the_demo_upstream_closes_after_http_1_0_and_after_connection_close() {
    let upstream = DemoUpstream::start(&[ANY_PORT]);
    for header in
        ["GET /healthz HTTP/1.0\r\n\r\n", "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n"]
    {
        let mut stream = TcpStream::connect(upstream.address).unwrap();
        stream.write_all(header.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.ends_with("{\"status\":\"ok\"}"), "{response}");
    }
}

#[test]
fn a_gateway_with_http_health_checks_forwards_calls_to_the_demo_upstream() {
    let upstream = DemoUpstream::start(&[ANY_PORT]);
    let setup = Setup::new().with_upstreams(&[upstream.address]);
    let gateway = setup
        .set_text("upstream.health_interval", "50ms")
        .set_text("upstream.health_path", "/healthz")
        .start();
    let key = gateway.create_active_key("acme", &[]);
    let checked = gateway.get("/v1/check/jane%40example.com", &key).expect(200).json();
    assert_eq!(checked["email"], "j****@example.com");
    assert_eq!(gateway.get_month_count(&key), 1);
}

#[test]
fn the_demo_upstream_exits_with_0_on_sigint_and_sigterm() {
    for name in ["INT", "TERM"] {
        let mut upstream = DemoUpstream::start(&[ANY_PORT]);
        upstream.send_signal(name);
        assert_eq!(upstream.wait_for_exit().code(), Some(0), "{name}");
    }
}

#[test]
fn a_second_demo_upstream_without_an_address_listens_on_a_free_port() {
    let (first, second) = (DemoUpstream::start(&[]), DemoUpstream::start(&[]));
    assert_ne!(first.address, second.address);
    assert_eq!(get("/healthz").send(second.address).status, 200);
}

#[test]
fn the_demo_upstream_reports_an_address_in_use_and_advises_another() {
    let listener = TcpListener::bind(ANY_PORT).unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let ran = run_command(Command::new(BINARY).args(["demo", "--upstream-only", &taken])).expect(1);
    assert!(
        ran.stderr.contains(&format!("expected to listen on {taken}, but found ")),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("name another address"), "{}", ran.stderr);
    run_command(Command::new(BINARY).args(["demo", "--upstream-only", "localhost"])).expect(2);
}
