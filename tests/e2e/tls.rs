//! TLS: which certificate, which versions, and how both change without a dropped connection.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::harness::{
    Authority, Connection, Gateway, Setup, StandIn, Step, get, until, until_true,
};

const DOMAIN: &str = "/v1/public/domain/first.test";

/// A gateway that shows two certificates, its authority, and a key.
fn secure() -> (Gateway, Authority, String) {
    let setup = Setup::new();
    let authority = Authority::new(setup.path("").as_path());
    let first = authority.certify("first", "DNS:gate.test,IP:127.0.0.1");
    let second = authority.certify("second", "DNS:*.other.test,DNS:other.test");
    let gateway = setup.https(&[first, second]).start();
    let key = gateway.key("acme", &[]);
    (gateway, authority, key)
}

/// The name in a handshake's certificate, or why there was no handshake.
fn shown(
    gateway: &Gateway,
    authority: &Authority,
    name: &str,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Result<(), String> {
    let stream = TcpStream::connect(gateway.https()).unwrap();
    let shaken = authority.try_shake_hands(gateway.https(), name, versions, &[], stream);
    shaken.map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn each_name_gets_its_certificate_and_unknown_ones_the_first() {
    let (gateway, authority, key) = secure();
    for name in ["gate.test", "other.test", "any.other.test", "ANY.other.test", "127.0.0.1"] {
        let mut connection = authority.connect(gateway.https(), name);
        connection.ask(&get(DOMAIN).key(&key)).expect(200);
        connection.ask(&get(DOMAIN).key(&key)).expect(200);
    }
    // The client sees the first certificate and does not take it for these names.
    for name in ["nobody.test", "two.labels.other.test"] {
        let error = shown(&gateway, &authority, name, rustls::ALL_VERSIONS).unwrap_err();
        assert!(error.contains("not valid for name"), "{name}: {error}");
    }
}

#[test]
fn only_tls_1_2_and_1_3_are_spoken_and_plain_http_is_not() {
    let (gateway, authority, _) = secure();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        shown(&gateway, &authority, "gate.test", &[version]).unwrap();
    }
    // TLS 1.1, in a hello of its time: an alert, and nothing else.
    let mut hello = b"\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x02".to_vec();
    hello.extend([7u8; 32]);
    hello.extend(b"\x00\x00\x02\x00\x2f\x01\x00");
    for bytes in [&hello[..], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut connection = Connection::open(gateway.https());
        connection.send(bytes);
        let heard = connection.read_to_end();
        assert_eq!(heard.first(), Some(&0x15), "{heard:?}");
        assert!(heard.len() < 16, "{heard:?}");
    }
    until_true("they are counted", || {
        gateway.metric("riskgate_tls_handshakes_failed_total", &[]) >= 2.0
    });
}

#[test]
fn a_renewed_certificate_serves_at_once_and_open_connections_go_on() {
    let (gateway, authority, key) = secure();
    let ask = get(DOMAIN).key(&key);
    let mut open = authority.connect(gateway.https(), "gate.test");
    open.ask(&ask).expect(200);
    authority.certify("first", "DNS:renewed.test,IP:127.0.0.1");
    until_true("the new one is shown", || {
        shown(&gateway, &authority, "renewed.test", rustls::ALL_VERSIONS).is_ok()
    });
    open.ask(&ask).expect(200);

    // A key of another certificate, and no certificate at all: the last good one serves.
    let key_file = gateway.path("first.key");
    let good = std::fs::read(&key_file).unwrap();
    std::fs::copy(gateway.path("second.key"), &key_file).unwrap();
    let problem = until("the fault is told", || {
        let text = gateway.readyz().text();
        text.contains("certificates").then_some(text)
    });
    assert!(problem.contains("expected the key of the certificate"), "{problem}");
    shown(&gateway, &authority, "renewed.test", rustls::ALL_VERSIONS).unwrap();
    std::fs::write(gateway.path("first.pem"), "no certificate").unwrap();
    until_true("it is told too", || gateway.readyz().text().contains("in PEM form"));
    shown(&gateway, &authority, "renewed.test", rustls::ALL_VERSIONS).unwrap();
    std::fs::write(&key_file, good).unwrap();
    authority.certify("first", "DNS:third.test,IP:127.0.0.1");
    until_true("the third one is shown", || {
        shown(&gateway, &authority, "third.test", rustls::ALL_VERSIONS).is_ok()
    });
    until_true("all is well", || !gateway.readyz().text().contains("certificates"));
    open.ask(&ask).expect(200);
}

#[test]
fn a_broken_certificate_stops_the_start_and_says_where() {
    let setup = Setup::new();
    let authority = Authority::new(setup.path("").as_path());
    let (chain, key) = authority.certify("first", "DNS:gate.test");
    let (_, other) = authority.certify("second", "DNS:gate.test");
    for (files, expected) in [
        ((chain.clone(), other), "second.key: expected the key of the certificate, but found"),
        (
            (key.clone(), key.clone()),
            "first.key: expected certificates in PEM form, but found none",
        ),
        ((chain.clone(), chain), "first.pem: expected a private key in PEM form, but found"),
        ((setup.path("nowhere"), key), "nowhere: expected certificates in PEM form, but found"),
    ] {
        let setup = Setup::new().https(&[files]);
        let ran = setup.cli(&["check"]).expect(78);
        assert!(ran.stderr.contains(expected), "{expected}: {}", ran.stderr);
        assert!(!ran.stderr.contains("PRIVATE"), "{}", ran.stderr);
    }
    let ran = Setup::new().text("listen.https", "127.0.0.1:0").cli(&["check"]).expect(78);
    assert!(ran.stderr.contains("listen.certificate: expected at least one"), "{}", ran.stderr);
}

#[test]
fn the_upstream_learns_how_the_client_came() {
    let stand_in = StandIn::start();
    let setup = Setup::new().upstream(&[stand_in.address]);
    let authority = Authority::new(setup.path("").as_path());
    let certificate = authority.certify("first", "DNS:gate.test");
    let gateway = setup.https(&[certificate]).start();
    let key = gateway.key("acme", &[]);
    let ask = get("/v1/check/a@b.com").key(&key);
    authority.connect(gateway.https(), "gate.test").ask(&ask).expect(200);
    assert_eq!(stand_in.last().header("X-Forwarded-Proto"), "https");
    gateway.ask(&ask).expect(200);
    assert_eq!(stand_in.last().header("X-Forwarded-Proto"), "http");
}

#[test]
fn what_has_come_of_an_answer_is_not_kept_back() {
    let late = StandIn::playing(|_| {
        let begun = b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n0123456789".to_vec();
        vec![Step::Send(begun), Step::Trickle(b"abcd".to_vec(), Duration::from_millis(400))]
    });
    let setup = Setup::new().upstream(&[late.address]);
    let authority = Authority::new(setup.path("").as_path());
    let gateway = setup.https(&[authority.certify("first", "DNS:gate.test")]).start();
    let key = gateway.key("acme", &[]);
    for mut connection in [gateway.connect(), authority.connect(gateway.https(), "gate.test")] {
        connection.send(&get("/v1/check/a@b.com").key(&key).bytes());
        connection.wait_for_bytes();
        let first = Instant::now();
        let answer = connection.read().expect("an answer").expect(200);
        assert_eq!(answer.text(), "0123456789abcd");
        assert!(first.elapsed() > Duration::from_millis(800), "{:?}", first.elapsed());
    }
}

#[test]
fn an_upstream_is_spoken_to_by_tls_and_must_be_who_it_says() {
    // A second gateway plays the upstream: it answers below /v1/public.
    let (upstream, authority, its_key) = secure();
    let route = "[[upstream.route]]\nprefix = \"/v1/behind\"\nkey = false\n";
    let setup = |name: &str| {
        let setup = Setup::new().upstream(&[upstream.https()]).set("upstream.tls", "true");
        setup.text("upstream.tls_name", name).tail(route)
    };
    let authorities = authority.path().display().to_string();
    let ask = get("/v1/behind").key(&its_key);
    let trusting = setup("other.test").text("upstream.tls_ca", &authorities).start();
    // What is behind has no such route: its own answer comes through.
    let answer = trusting.ask(&ask).expect(404);
    assert_eq!(answer.header("X-Riskgate-Source"), Some("upstream"));
    drop(trusting);
    for (setup, status) in [
        (setup("nobody.test").text("upstream.tls_ca", &authorities), 500),
        (setup("other.test"), 500),
        (setup("other.test").set("upstream.tls_verify", "false"), 404),
    ] {
        let gateway = setup.start();
        gateway.ask(&ask).expect(status);
    }
    let ran = Setup::new().set("upstream.tls", "true").text("upstream.tls_ca", "nowhere");
    let ran = ran.cli(&["check"]).expect(78);
    assert!(ran.stderr.contains("nowhere: expected certificates"), "{}", ran.stderr);
}
