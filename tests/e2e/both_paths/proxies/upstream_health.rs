//! The health of the upstream servers: checks that are like traffic, and what operators are told of
//! servers that are down.

use std::time::Duration;

use crate::harness::{
    CertificateAuthority, DemoUpstream, Gateway, MockUpstream, ReceivedRequest, Setup, Step,
    free_address, response_bytes, wait_for, wait_until,
};

const PATH: &str = "/v1/check/a@b.com";
const HEALTH_PATH: &str = "/up?deep=1";

fn is_check(seen: &ReceivedRequest) -> bool {
    seen.request_line().starts_with("GET /up?deep=1 ")
}

fn with_checks(setup: Setup) -> Setup {
    setup.set_text("upstream.health_interval", "50ms").set_text("upstream.health_path", HEALTH_PATH)
}

fn healthy_servers(gateway: &Gateway) -> Vec<f64> {
    let metrics = gateway.metrics();
    let samples = metrics.lines().filter(|line| line.starts_with("riskgate_upstream_healthy{"));
    samples.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect()
}

fn degraded(gateway: &Gateway) -> String {
    gateway.readyz().expect(200).json()["degraded"].to_string()
}

/// Returns the `Host` of a health check, and that of a forwarded request.
fn hosts_of_check_and_traffic(setup: Setup, server: &MockUpstream) -> [String; 2] {
    let gateway = with_checks(setup).start();
    let key = gateway.create_active_key("acme", &[]);
    gateway.get(PATH, &key).expect(200);
    [true, false].map(|is_of_check| {
        wait_for("the server has the request", || {
            let seen = server.received_requests();
            let request = seen.iter().find(|seen| is_check(seen) == is_of_check)?;
            Some(request.header("Host").to_owned())
        })
    })
}

#[test]
fn a_health_check_has_the_host_that_traffic_has() {
    let server = MockUpstream::start();
    let setup = || Setup::new().with_upstreams(&[server.address]);
    let address = server.address.to_string();
    assert_eq!(hosts_of_check_and_traffic(setup(), &server), [address.clone(), address.clone()]);
    let server = MockUpstream::start();
    let setup = Setup::new().with_upstreams(&[server.address]);
    let setup = setup.set_text("upstream.host", "backend.test");
    assert_eq!(hosts_of_check_and_traffic(setup, &server), ["backend.test", "backend.test"]);
    // With TLS, the name of the certificate is no `Host`.
    let (server, folder) = (MockUpstream::start(), tempfile::tempdir().unwrap());
    let authority = CertificateAuthority::new(folder.path());
    let address = authority.start_tls_server_for(server.address, "upstream.test");
    let setup = Setup::new().with_upstreams(&[address]).set("upstream.tls", "true");
    let setup = setup.set_text("upstream.tls_name", "upstream.test");
    let certificates = authority.certificate_path().display().to_string();
    let setup = setup.set_text("upstream.tls_ca", &certificates);
    let address = address.to_string();
    assert_eq!(hosts_of_check_and_traffic(setup, &server), [address.clone(), address]);
}

#[test]
fn a_check_fails_with_a_certificate_that_traffic_refuses() {
    let (server, folder) = (MockUpstream::start(), tempfile::tempdir().unwrap());
    let authority = CertificateAuthority::new(folder.path());
    let address = authority.start_tls_server_for(server.address, "other.test");
    let certificates = authority.certificate_path().display().to_string();
    // With a path, and with a connection alone.
    for path in [HEALTH_PATH, ""] {
        let setup = Setup::new().with_upstreams(&[address]).set("upstream.tls", "true");
        let setup = setup.set_text("upstream.tls_name", "upstream.test");
        let gateway = with_checks(setup.set_text("upstream.tls_ca", &certificates));
        let gateway = gateway.set_text("upstream.health_path", path).start();
        wait_until("the server is down", || healthy_servers(&gateway) == [0.0]);
    }
    assert_eq!(server.request_count(), 0);
}

#[test]
fn a_check_fails_with_a_framing_that_traffic_refuses() {
    let server = MockUpstream::with_script(|_| {
        let header = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n";
        vec![Step::Send(header.as_bytes().to_vec())]
    });
    let gateway = with_checks(Setup::new().with_upstreams(&[server.address])).start();
    wait_until("the server is down", || healthy_servers(&gateway) == [0.0]);
    let found = "expected a response of HTTP/1.1, but found something else";
    wait_until("riskgate says why", || degraded(&gateway).contains(found));
}

#[test]
fn a_server_that_trickles_fails_at_the_deadline_and_delays_no_other_check() {
    let trickle = |at: usize| {
        move |seen: &ReceivedRequest| {
            let answer = response_bytes(200, "", &"x".repeat(400));
            let (header, body) = answer.split_at(answer.len() - 400);
            match (is_check(seen), at) {
                (true, 0) => vec![Step::Trickle(answer, Duration::from_millis(40))],
                (true, _) => vec![
                    Step::Send(header.to_vec()),
                    Step::Trickle(body.to_vec(), Duration::from_millis(40)),
                ],
                _ => vec![Step::Send(answer)],
            }
        }
    };
    let slow: [MockUpstream; 2] = std::array::from_fn(|at| MockUpstream::with_script(trickle(at)));
    let good = MockUpstream::start();
    let servers = [slow[0].address, slow[1].address, good.address];
    let setup = with_checks(Setup::new().with_upstreams(&servers));
    let gateway = setup.set_text("upstream.deadline", "2s").start();
    wait_until("the slow servers are being checked", || {
        slow.iter().all(|server| server.request_count() > 0)
    });
    // Both answers take 16 s, and both checks end after 2 s.
    wait_until("the other server is checked meanwhile", || good.request_count() >= 10);
    assert!(slow.iter().all(|server| server.request_count() == 1), "these checks are under way");
    wait_until("the slow servers are down", || {
        healthy_servers(&gateway).iter().sum::<f64>() == 1.0
    });
    let reason = "is down: expected a whole response within 2s, but found none";
    wait_until("the log has both", || gateway.stderr().matches(reason).count() == 2);
    let key = gateway.create_active_key("acme", &[]);
    for _ in 0..6 {
        gateway.get(PATH, &key).expect(200);
    }
    let forwarded = |server: &MockUpstream| {
        server.received_requests().iter().filter(|seen| !is_check(seen)).count()
    };
    assert_eq!([&slow[0], &slow[1], &good].map(forwarded), [0, 0, 6]);
}

#[test]
fn an_interim_response_is_not_the_answer_of_a_check() {
    let server = MockUpstream::with_script(|seen| {
        let status = if is_check(seen) { "HTTP/1.1 103 Early Hints\r\n\r\n" } else { "" };
        let answer = response_bytes(200, "", "{}");
        vec![Step::Send([status.as_bytes(), &answer].concat())]
    });
    let gateway = with_checks(Setup::new().with_upstreams(&[server.address])).start();
    wait_until("the server is checked", || server.request_count() >= 3);
    assert_eq!(healthy_servers(&gateway), [1.0]);
}

#[test]
fn servers_that_are_down_are_told_once_and_so_is_their_recovery() {
    let addresses = [free_address(), free_address()];
    let setup = Setup::new().with_upstreams(&addresses);
    let gateway = setup.set_text("upstream.health_interval", "50ms").start();
    wait_until("no server is healthy", || degraded(&gateway) != "[]");
    let [first, second] = addresses.map(|address| address.to_string());
    let reported = degraded(&gateway);
    let expected = "upstream: expected a healthy server, but found none of 2: ";
    assert!(reported.contains(expected), "{reported}");
    for address in [&first, &second] {
        assert!(reported.contains(&format!("{address}: connection refused")), "{reported}");
    }
    let status = gateway.get_admin_page("/status").expect(200).json();
    assert_eq!(status["upstream"]["healthy"], 0);
    assert_eq!(status["degraded"].to_string(), reported);
    assert_eq!(status["problems"][0]["component"], "upstream");
    let count = |text: &str| gateway.stderr().matches(text).count();
    // An outage that ends before the log has it is none for the log.
    wait_until("the log has it", || count("no upstream server is healthy") == 1);
    let server = DemoUpstream::start(&[&first]);
    wait_until("a server is healthy", || degraded(&gateway) == "[]");
    assert_eq!(healthy_servers(&gateway).iter().sum::<f64>(), 1.0);
    wait_until("the log has the recovery", || count("an upstream server is healthy again") == 1);
    assert_eq!(count("no upstream server is healthy"), 1, "{}", gateway.stderr());
    for address in [&first, &second] {
        assert_eq!(count(&format!("upstream server {address} is down: connection refused")), 1);
    }
    assert_eq!(count(&format!("upstream server {first} is up again")), 1);
    assert_eq!(count(" is up again"), 1, "{}", gateway.stderr());
    drop(server);
    wait_until("no server is healthy", || degraded(&gateway) != "[]");
    wait_until("the log has it again", || count("no upstream server is healthy") == 2);
}

#[test]
fn without_checks_a_refused_request_tells_of_a_dead_server_until_it_accepts_one() {
    let address = free_address();
    let setup = Setup::new().with_upstreams(&[address]).set_text("upstream.eject_for", "10ms");
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    assert_eq!(degraded(&gateway), "[]", "nobody has asked the server yet");
    for _ in 0..3 {
        gateway.get(PATH, &key).expect(500);
    }
    let reported = degraded(&gateway);
    assert!(reported.contains(&format!("none of 1: {address}: connection refused")), "{reported}");
    let _server = DemoUpstream::start(&[&address.to_string()]);
    wait_until("a request succeeds", || gateway.get(PATH, &key).status == 200);
    wait_until("the server has recovered", || {
        gateway.get(PATH, &key).expect(200);
        degraded(&gateway) == "[]"
    });
    let is_logged = || gateway.stderr().matches(" is down: connection refused").count() == 1;
    wait_until("the log has it once", is_logged);
}

#[test]
fn servers_that_no_request_needs_are_not_checked() {
    let setup = Setup::new().with_upstreams(&[free_address()]);
    let setup = setup.set_text("upstream.health_interval", "50ms");
    let gateway = setup.set_text("check.answer", "upstream").start();
    wait_until("no server is healthy", || degraded(&gateway).contains("upstream: "));
    gateway.edit_config(|text| text.replace("answer = \"upstream\"", "answer = \"table\""));
    wait_until("no request needs a server", || degraded(&gateway) == "[]");
    let route = "\n[[upstream.route]]\nprefix = \"/v1/behind\"\n";
    gateway.edit_config(|text| text + route);
    wait_until("a route needs one", || degraded(&gateway).contains("upstream: "));
}
