//! `listen.client_address`: behind trusted proxies, log and limits are about the client and not
//! about the proxy.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use crate::harness::{
    Connection, FrontProxy, Gateway, MockUpstream, ProxyKind, Request, Setup, Step, get, request,
    response_bytes, run_command, wait_until,
};

const TRUSTED_PROXIES: &str = "[\"127.0.0.1\", \"10.0.0.0/8\"]";
const ROUTE: &str =
    "[[upstream.route]]\nprefix = \"/signup\"\nmethods = [\"GET\", \"POST\"]\nkey = false\n";

fn start(setup: Setup, source: &str) -> Gateway {
    let log = setup.path("access.log").display().to_string();
    let setup = setup.set_text("log.path", &log).set("listen.h2c", "true").append_toml(ROUTE);
    let setup = setup.set("listen.trusted_proxies", TRUSTED_PROXIES);
    setup.set_text("listen.client_address", source).start()
}

/// The clients of the logged requests, in the order of their ids.
fn logged_clients(gateway: &Gateway, count: usize) -> Vec<String> {
    wait_until("all requests are logged", || gateway.read_access_log().len() >= count);
    let mut log = gateway.read_access_log();
    assert_eq!(log.len(), count);
    log.sort_by_key(|line| line["request_id"].as_str().unwrap().to_owned());
    log.iter().map(|line| line["client"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_log_names_the_client_whom_trusted_proxies_report() {
    for (source, name, spell) in [
        ("x-forwarded-for", "X-Forwarded-For", (|address| address) as fn(&'static str) -> _),
        ("forwarded", "Forwarded", |address| match address {
            "2001:db8::1" => "for=\"[2001:db8::1]:80\";proto=https",
            "192.0.2.1" => "proto=https;For=192.0.2.1",
            _ => "for=10.0.0.7",
        }),
    ] {
        let upstream = MockUpstream::start();
        let gateway = start(Setup::new().with_upstreams(&[upstream.address]), source);
        let with_id = |request: Request, id: &str| request.with_header("X-Request-Id", id);
        let forwarded = |request: Request, id: &str, hops: &[&'static str]| {
            let list: Vec<&str> = hops.iter().map(|hop| spell(hop)).collect();
            with_id(request, id).with_header(name, &list.join(", "))
        };
        let verdict = || get("/v1/public/domain/a.com");
        for request in [
            forwarded(verdict(), "1", &["192.0.2.1"]),
            forwarded(verdict(), "2", &["192.0.2.1", "2001:db8::1", "10.0.0.7"]),
            forwarded(get("/signup"), "3", &["192.0.2.1"]).with_header(name, spell("10.0.0.7")),
            forwarded(request("POST", "/signup").body("x"), "4", &["192.0.2.1"]),
            // A refusal before the gates has only a peer.
            forwarded(get("/signup").with_header("Content-Length", "x"), "", &["192.0.2.1"]),
        ] {
            gateway.send_request(&request);
        }
        let target = format!("http://{}/v1/public/domain/a.com", gateway.http);
        let mut http2 = Command::new("curl");
        http2.args(["-s", "--http2-prior-knowledge", "--max-time", "20", "-H", "X-Request-Id: 5"]);
        run_command(http2.arg("-H").arg(format!("{name}: {}", spell("192.0.2.1"))).arg(&target))
            .expect(0);
        // This peer is no proxy.
        let elsewhere = IpAddr::V4(Ipv4Addr::new(127, 31, 0, 9));
        let mut connection = Connection::open_from(elsewhere, gateway.http);
        connection.send_request(&forwarded(verdict(), "6", &["192.0.2.1"])).expect(401);
        let clients = logged_clients(&gateway, 7);
        let mut expected =
            ["192.0.2.1", "2001:db8::1", "192.0.2.1", "192.0.2.1", "192.0.2.1", "127.31.0.9"]
                .to_vec();
        let before_gates = clients.iter().position(|client| client == "127.0.0.1").unwrap();
        expected.insert(before_gates, "127.0.0.1");
        assert_eq!(clients, expected, "{source}");
        // The upstream server gets the whole chain as before: the peer is its last hop.
        let seen = upstream.received_requests();
        assert!(seen.iter().all(|seen| seen.header("X-Forwarded-For").ends_with("127.0.0.1")));
    }
}

#[test]
fn a_quoted_comma_in_forwarded_does_not_evade_the_rate_of_a_client() {
    let route = "[[upstream.route]]\nprefix = \"/signup\"\nmethods = [\"GET\"]\nkey = false\n\
                 max_per_client = \"3/h\"\n";
    let upstream = MockUpstream::start();
    let setup = Setup::new().with_upstreams(&[upstream.address]).append_toml(route);
    let setup = setup.set("listen.trusted_proxies", TRUSTED_PROXIES);
    let gateway = setup.set_text("listen.client_address", "forwarded").start();
    let statuses: Vec<u16> = (0..6)
        .map(|at| {
            // The proxy repeats the client's Host, and quotes it by the grammar.
            let value = format!("for=192.0.2.1;host=\"a\\\", for=6.6.6.{at};b=\\\"\";proto=http");
            gateway.send_request(&get("/signup").with_header("Forwarded", &value)).status
        })
        .collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
    let seen = upstream.last_request();
    assert_eq!(seen.header("X-Forwarded-For"), "192.0.2.1, 127.0.0.1");
}

#[test]
fn the_server_is_told_the_scheme_of_the_client_of_two_proxies() {
    let upstream = MockUpstream::start();
    let gateway = start(Setup::new().with_upstreams(&[upstream.address]), "x-forwarded-for");
    // A POST takes the Pingora path.
    for method in ["GET", "POST"] {
        let asked =
            request(method, "/signup").with_header("X-Forwarded-For", "192.0.2.1, 10.0.0.7");
        let asked = asked.with_header("X-Forwarded-Proto", "https, http");
        let asked = asked.with_header("X-Forwarded-Host", "shop.test, inner.test");
        gateway.send_request(&asked.with_header("X-Forwarded-Port", "443, 80")).expect(200);
        let seen = upstream.last_request();
        let told = ["Proto", "Host", "Port"]
            .map(|name| seen.header(&format!("X-Forwarded-{name}")).to_owned());
        assert_eq!(told, ["https", "shop.test", "443"], "{method}");
    }
}

#[test]
fn real_proxies_name_their_client() {
    for proxy in [ProxyKind::HaProxy, ProxyKind::Nginx, ProxyKind::NginxSecondLine] {
        let gateway = start(Setup::new(), "x-forwarded-for");
        let front = FrontProxy::start(proxy, gateway.http);
        let client = IpAddr::V4(Ipv4Addr::new(127, 31, 0, 9));
        let forged = get("/v1/usage").with_header("X-Forwarded-For", "6.6.6.6");
        Connection::open_from(client, front.address).send_request(&forged).expect(401);
        assert_eq!(logged_clients(&gateway, 1), ["127.31.0.9"], "{proxy:?}");
    }
}

#[test]
fn exchanges_are_limited_for_each_client_behind_a_proxy() {
    for target in ["/signup?fast", "/signup"] {
        let upstream =
            MockUpstream::with_script(|seen| match seen.request_line().contains("hang") {
                true => vec![Step::StaySilent],
                false => vec![Step::Send(response_bytes(200, "", "whole"))],
            });
        let setup = Setup::new().with_upstreams(&[upstream.address]);
        let setup = setup.set("upstream.max_in_flight_per_address", "1");
        let setup = setup.set_text("upstream.deadline", "20s");
        let gateway = start(setup, "x-forwarded-for");
        // A POST takes the Pingora path.
        let method = if target == "/signup" { "POST" } else { "GET" };
        let send = |path: &str, client: &str| {
            let request = request(method, path).with_header("X-Forwarded-For", client);
            let mut connection = gateway.connect();
            connection.send(&request.to_bytes());
            connection
        };
        let _hanging = send(&format!("{target}/hang").replace("?fast/hang", "/hang"), "192.0.2.1");
        wait_until("the exchange runs", || upstream.request_count() == 1);
        let status = |client: &str| send(target, client).read_response_to(method).unwrap().status;
        assert_eq!(status("192.0.2.1"), 500, "{target}");
        assert_eq!(status("192.0.2.2"), 200, "{target}");
    }
}

#[test]
fn a_source_needs_trusted_proxies() {
    let setup = Setup::new().set_text("listen.client_address", "forwarded");
    let refused = setup.cli(&["check"]).expect(78);
    assert!(refused.stderr.contains("listen.trusted_proxies: expected"), "{}", refused.stderr);
    let refused = Setup::new().set_text("listen.client_address", "x-real-ip").cli(&["check"]);
    let stderr = refused.expect(78).stderr;
    assert!(stderr.contains("listen.client_address: expected \"peer\" or"), "{stderr}");
}
