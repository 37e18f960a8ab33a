//! Tests riskgate behind real proxies. Whatever address a client claims to have, the upstream
//! server must get the address that the trusted proxies report.

use std::net::{IpAddr, Ipv4Addr};

use crate::harness::{
    Connection, FrontProxy, Gateway, MockUpstream, ProxyKind, ReceivedRequest, Request, Setup, get,
};

/// The number of requests through each proxy on each of the two paths.
const REQUEST_COUNT: usize = 1_000;
/// The number of requests that a client sends before it reads a response.
const PIPELINED_REQUESTS: usize = 10;
/// The number of requests on one connection.
const REQUESTS_PER_CONNECTION: usize = 40;
/// The addresses of the proxies, which the gateway trusts.
const TRUSTED_PROXY: &str = "127.0.0.1";

/// The address of the client of this request.
fn client_address_of_request(request: usize) -> Ipv4Addr {
    let [_, _, high, low] = ((request / REQUESTS_PER_CONNECTION) as u32).to_be_bytes();
    Ipv4Addr::new(127, 31, high, low + 1)
}

/// A request with forged X-Forwarded fields. `number` determines how many lines and list members
/// these fields have.
fn forged_request(number: usize, key: &str) -> Request {
    const LIST_MEMBERS: [&str; 7] =
        ["127.0.0.1", "6.6.6.6", "", " ", "::1", "unknown", "2001:db8::6, 10.0.0.1"];
    const FIELD_NAME_SPELLINGS: [&str; 4] =
        ["X-Forwarded-For", "x-forwarded-for", "X-FORWARDED-FOR", "x-Forwarded-fOR"];
    let mut request = get(format!("/v1/check/a@b.com?n={number}")).key(key);
    for line in 0..number % 5 {
        let members = (number + line) % 9;
        let mut list: Vec<&str> =
            (0..members).map(|at| LIST_MEMBERS[(number / 5 + at) % 7]).collect();
        if number % 100 == 1 {
            list = vec!["127.0.0.1"; 200];
        }
        request = request.with_header(FIELD_NAME_SPELLINGS[(number + line) % 4], &list.join(","));
    }
    if number % 3 == 1 {
        request = request
            .with_header("X-Forwarded-Proto", "gopher")
            .with_header("x-forwarded-proto", "wais");
        request = request.with_header("X-Forwarded-Host", "evil.test, more.test");
        request = request.with_header("X-Forwarded-Port", "1");
    }
    request
}

/// The client's address as a server determines it: the first untrusted address from the right.
fn first_untrusted_address(seen: &ReceivedRequest) -> &str {
    let mut members = seen.header("X-Forwarded-For").rsplit(',').map(str::trim);
    members.find(|member| *member != TRUSTED_PROXY).expect("an address that is no proxy's")
}

fn start_gateway(
    fast_path: bool,
    upstream: &MockUpstream,
    uses_proxy_protocol: bool,
) -> (Gateway, String) {
    let setup = Setup::new()
        .with_upstreams(&[upstream.address])
        .set("listen.fast_path", &fast_path.to_string());
    // The deadline is long, because this test is about addresses and not about speed.
    let setup = setup.set_text("upstream.deadline", "15s").set("plans.free", "1000000");
    let setup = setup.set("listen.trusted_proxies", &format!("[{TRUSTED_PROXY:?}]"));
    let gateway = setup.start();
    let key = gateway.create_key_with_lease("acme");
    if !uses_proxy_protocol {
        return (gateway, key);
    }
    // From now on each connection must begin with a PROXY header.
    let setup = gateway.shut_down().set("listen.proxy_protocol", "true");
    (setup.start(), key)
}

fn assert_true_client_is_forwarded(fast_path: bool, proxies: &[ProxyKind]) {
    let upstream = MockUpstream::start();
    let names_client = proxies.contains(&ProxyKind::HaProxyProtocol);
    let (gateway, key) = start_gateway(fast_path, &upstream, names_client);
    let mut fronts = Vec::new();
    for proxy in proxies {
        let behind = fronts.last().map_or(gateway.http, |front: &FrontProxy| front.address);
        fronts.push(FrontProxy::start(*proxy, behind));
    }
    let front = fronts.last().unwrap().address;
    for first in (0..REQUEST_COUNT).step_by(REQUESTS_PER_CONNECTION) {
        let mut connection =
            Connection::open_from(IpAddr::V4(client_address_of_request(first)), front);
        for batch in (first..first + REQUESTS_PER_CONNECTION).step_by(PIPELINED_REQUESTS) {
            let numbers = batch..batch + PIPELINED_REQUESTS;
            let bytes: Vec<Vec<u8>> =
                numbers.map(|at| forged_request(at, &key).to_bytes()).collect();
            connection.send(&bytes.concat());
            for _ in 0..PIPELINED_REQUESTS {
                connection.read_response().expect("an answer").expect(200);
            }
        }
    }
    let seen = upstream.received_requests();
    assert_eq!(seen.len(), REQUEST_COUNT);
    for seen in &seen {
        let (_, number) = seen.request_line().split_once("?n=").unwrap();
        let number = number.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(
            first_untrusted_address(seen),
            client_address_of_request(number).to_string(),
            "{}",
            seen.head
        );
        let mut members = seen.header("X-Forwarded-For").split(',').map(str::trim);
        assert!(members.all(|member| !member.is_empty()), "{}", seen.head);
        if names_client {
            // The PROXY header tells riskgate that the peer is the client, not the proxy. riskgate
            // does not trust the client, and drops its X-Forwarded fields.
            assert_eq!(
                seen.header("X-Forwarded-For"),
                client_address_of_request(number).to_string()
            );
            assert_eq!(seen.header("X-Forwarded-Proto"), "http", "{}", seen.head);
            assert_eq!(seen.header("X-Forwarded-Host"), "gate.test", "{}", seen.head);
            assert!(seen.header_values("X-Forwarded-Port").is_empty(), "{}", seen.head);
            continue;
        }
        assert_eq!(seen.header("X-Forwarded-Proto"), "https", "{}", seen.head);
        assert_eq!(seen.header("X-Forwarded-Host"), "front.test", "{}", seen.head);
        assert_eq!(seen.header("X-Forwarded-Port"), "443", "{}", seen.head);
    }
    let on_the_fast_path = gateway.sum_of_samples("riskgate_fast_path_requests_total", &[]);
    assert_eq!(on_the_fast_path > 0.0, fast_path, "{on_the_fast_path}");
}

/// Both paths run at the same time.
fn assert_true_client_on_both_paths(proxies: &[ProxyKind]) {
    std::thread::scope(|scope| {
        scope.spawn(|| assert_true_client_is_forwarded(false, proxies));
        assert_true_client_is_forwarded(true, proxies);
    });
}

#[test]
fn behind_haproxy_the_upstream_sees_the_true_client() {
    assert_true_client_on_both_paths(&[ProxyKind::HaProxy]);
    assert_true_client_on_both_paths(&[ProxyKind::HaProxyProtocol]);
}

#[test]
fn behind_nginx_the_upstream_sees_the_true_client() {
    assert_true_client_on_both_paths(&[ProxyKind::Nginx]);
    assert_true_client_on_both_paths(&[ProxyKind::NginxSecondLine]);
}

#[test]
fn behind_envoy_the_upstream_sees_the_true_client() {
    assert_true_client_on_both_paths(&[ProxyKind::Envoy]);
}

#[test]
fn behind_a_chain_of_proxies_the_upstream_sees_the_true_client() {
    assert_true_client_on_both_paths(&[ProxyKind::HaProxy, ProxyKind::Nginx, ProxyKind::HaProxy]);
}
