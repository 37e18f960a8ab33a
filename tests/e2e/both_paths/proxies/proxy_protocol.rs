//! Tests which PROXY headers riskgate accepts from proxies in front of it, and how many connections
//! one client address may have.

use crate::harness::{CertificateAuthority, Connection, MockUpstream, Setup, get, wait_until};

fn assert_check_gets_a_200(connection: &mut Connection, key: &str) {
    connection.send_request(&get("/v1/check/a@b.com").key(key)).expect(200);
}

#[test]
fn both_proxy_protocol_versions_give_the_clients_address() {
    let upstream = MockUpstream::start();
    let setup =
        Setup::new().with_upstreams(&[upstream.address]).set("listen.proxy_protocol", "true");
    let gateway = setup.set("listen.trusted_proxies", r#"["127.0.0.0/30"]"#).start();
    let key = gateway.create_key("acme", &[]);
    let mut binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    binary.extend([192, 0, 2, 9, 127, 0, 0, 1, 0x0f, 0xa0, 1, 187]);
    let mut local = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\0\0".to_vec();
    local.truncate(16);
    for (header, client) in [
        (b"PROXY TCP4 192.0.2.7 127.0.0.1 4000 80\r\n".to_vec(), "192.0.2.7"),
        (b"PROXY TCP6 2001:db8::7 ::1 4000 80\r\n".to_vec(), "2001:db8::7"),
        // UNKNOWN and LOCAL connections have no client address: riskgate forwards no
        // X-Forwarded-For, and drops the one that the client sent.
        (b"PROXY UNKNOWN\r\n".to_vec(), ""),
        (binary, "192.0.2.9"),
        (local, ""),
    ] {
        let request = get("/v1/check/a@b.com").key(&key);
        let request = request.with_header("X-Forwarded-For", "198.51.100.9");
        wait_until("the key is accepted", || {
            let mut connection = gateway.connect();
            connection.send(&[&header[..], &request.to_bytes()].concat());
            connection.read_response().expect("an answer").status == 200
        });
        assert_eq!(upstream.last_request().header_values("X-Forwarded-For").concat(), client);
        // The PROXY header may arrive in parts, before the first byte of a request.
        let mut connection = gateway.connect();
        for byte in &header {
            connection.send(&[*byte]);
        }
        assert_check_gets_a_200(&mut connection, &key);
        assert_check_gets_a_200(&mut connection, &key);
        wait_until("it is logged", || {
            gateway.read_access_log().last().is_some_and(|line| line["client"] == client)
        });
    }
}

#[test]
fn a_connection_without_a_trusted_proxy_header_is_closed() {
    let setup = Setup::new().set("listen.proxy_protocol", "true");
    let setup = setup.set("listen.trusted_proxies", r#"["127.0.0.5"]"#);
    let gateway = setup.set_text("listen.header_timeout", "1s").start();
    let refused = || gateway.sum_of_samples("riskgate_connections_rejected_total", &[]);
    assert_eq!(gateway.readyz().status, 200);
    assert_eq!(refused(), 0.0, "riskgate connects to no listener of its own");
    assert!(!gateway.stderr().contains("listen.proxy_protocol"), "{}", gateway.stderr());
    let mut untrusted = gateway.connect();
    let _ = untrusted.try_send(b"PROXY TCP4 192.0.2.7 127.0.0.1 4000 80\r\nGET / HTTP/1.1\r\n\r\n");
    assert!(untrusted.ends_without_more_bytes());
    for bytes in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "PROXY TCP4 nowhere\r\n", "PROXY TCP"] {
        let mut silent = Connection::open_from([127, 0, 0, 5].into(), gateway.http);
        let _ = silent.try_send(bytes.as_bytes());
        assert!(silent.ends_without_more_bytes(), "{bytes:?}");
    }
    wait_until("all are counted", || refused() == 4.0);
    assert!(gateway.read_access_log().is_empty(), "none of the bytes became a request");
}

#[test]
fn a_long_proxy_header_is_read_and_a_refused_one_is_counted_and_logged() {
    let setup = Setup::new().set("listen.proxy_protocol", "true");
    let gateway = setup.set("listen.trusted_proxies", r#"["127.0.0.1"]"#).start();
    for length in [2_032, 2_033, 16_000, 65_535_usize] {
        // A record of an unknown type fills the header.
        let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec();
        header.extend((length as u16).to_be_bytes());
        header.extend([192, 0, 2, 9, 127, 0, 0, 1, 0x0f, 0xa0, 1, 187, 0xe0]);
        header.extend((length as u16 - 15).to_be_bytes());
        header.resize(16 + length, 7);
        let before = gateway.access_log_length();
        let mut connection = gateway.connect();
        connection.send(&header);
        connection.send_request(&get("/v1/usage")).expect(401);
        wait_until("it is logged", || gateway.access_log_length() > before);
        assert_eq!(gateway.read_access_log_from(before)[0]["client"], "192.0.2.9", "{length}");
    }
    let refused = || gateway.sum_of_samples("riskgate_connections_rejected_total", &[]);
    let before = refused();
    let mut connection = gateway.connect();
    connection.send(b"\r\n\r\n\0\r\nQUIT\n\x11\x11\0\x0c");
    assert!(connection.ends_without_more_bytes());
    wait_until("it is counted", || refused() == before + 1.0);
    let line = "listen.proxy_protocol: expected that each connection starts with a PROXY header, \
                but found other bytes on one from 127.0.0.1";
    wait_until("it is logged", || gateway.stderr().contains(line));
}

#[test]
fn without_listen_proxy_protocol_a_proxy_header_gets_a_400() {
    let gateway = Setup::new().set("listen.trusted_proxies", r#"["127.0.0.1"]"#).start();
    let mut connection = gateway.connect();
    connection.send(b"PROXY TCP4 192.0.2.7 127.0.0.1 4000 80\r\nGET / HTTP/1.1\r\n\r\n");
    connection.read_response().expect("an answer").expect(400);
    assert!(connection.ends_without_more_bytes());
}

#[test]
fn a_client_address_has_a_connection_limit_and_a_trusted_proxy_has_none() {
    let gateway = Setup::new().set("listen.max_connections_per_address", "20").start();
    let key = gateway.create_active_key("acme", &[]);
    let ask = get("/v1/usage").key(&key);
    let source = [127, 0, 0, 9];
    let mut open: Vec<Connection> =
        (0..20).map(|_| Connection::open_from(source.into(), gateway.http)).collect();
    for connection in &mut open {
        connection.send_request(&ask).expect(200);
    }
    let mut beyond = Connection::open_from(source.into(), gateway.http);
    let _ = beyond.try_send(&ask.to_bytes());
    assert!(beyond.ends_without_more_bytes());
    assert!(gateway.sum_of_samples("riskgate_connections_rejected_total", &[]) >= 1.0);
    gateway.send_request(&ask).expect(200);
    open.truncate(10);
    wait_until("a connection is accepted again", || {
        Connection::open_from(source.into(), gateway.http)
            .try_send_request(&ask)
            .is_some_and(|a| a.status == 200)
    });
    let setup = gateway.shut_down().set("listen.trusted_proxies", r#"["127.0.0.8/30"]"#);
    let gateway = setup.start();
    let mut many: Vec<Connection> =
        (0..40).map(|_| Connection::open_from(source.into(), gateway.http)).collect();
    for connection in &mut many {
        connection.send_request(&ask).expect(200);
    }
}

#[test]
fn a_connection_counts_for_its_address_before_it_sends_a_byte() {
    let setup =
        Setup::new().set("listen.max_connections_per_address", "5").set("listen.h2c", "true");
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let files = authority.issue_certificate("only", "DNS:gate.test,IP:127.0.0.1");
    let gateway = setup.with_certificates(&[files]).start();
    for address in [gateway.http, gateway.https_address()] {
        let source = [127, 0, 0, 9];
        let count_open = || gateway.sum_of_samples("riskgate_connections", &[]);
        let silent: Vec<Connection> =
            (0..5).map(|_| Connection::open_from(source.into(), address)).collect();
        wait_until("they are counted", || count_open() == 5.0);
        assert!(Connection::open_from(source.into(), address).ends_without_more_bytes());
        wait_until("only the last one is closed", || count_open() == 5.0);
        drop(silent);
        wait_until("they are gone", || count_open() == 0.0);
    }
}

#[test]
fn connections_beyond_listen_max_connections_are_closed_until_others_end() {
    let gateway = Setup::new().set("listen.max_connections", "10").start();
    let key = gateway.create_active_key("acme", &[]);
    let ask = get("/v1/usage").key(&key);
    let mut open = Vec::new();
    wait_until("all connections are in use", || {
        let mut connection = gateway.connect();
        let served = connection.try_send_request(&ask).is_some();
        if served {
            open.push(connection);
        }
        !served
    });
    assert!((8..=10).contains(&open.len()), "{}", open.len());
    open.clear();
    wait_until("a connection is accepted again", || {
        Connection::try_open(gateway.http).and_then(|mut c| c.try_send_request(&ask)).is_some()
    });
}
