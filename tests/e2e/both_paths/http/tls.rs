//! Tests which certificate riskgate presents and which TLS versions it accepts, and that a renewed
//! certificate closes no open connection.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{
    CertificateAuthority, Connection, FakeClock, Gateway, MockUpstream, ReceivedRequest, Setup,
    Step, get, response_bytes, wait_for, wait_until,
};

const DOMAIN: &str = "/v1/public/domain/first.test";

/// A gateway with two certificates, the authority that signed them, and a key.
fn start_with_certificates() -> (Gateway, CertificateAuthority, String) {
    let setup = Setup::new();
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let first = authority.issue_certificate("first", "DNS:gate.test,IP:127.0.0.1");
    let second = authority.issue_certificate("second", "DNS:*.other.test,DNS:other.test");
    let gateway = setup.with_certificates(&[first, second]).start();
    let key = gateway.create_active_key("acme", &[]);
    (gateway, authority, key)
}

/// Performs a handshake for this server name. Returns the error of a failed handshake.
fn try_handshake(
    gateway: &Gateway,
    authority: &CertificateAuthority,
    name: &str,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Result<(), String> {
    let stream = TcpStream::connect(gateway.https_address()).unwrap();
    let shaken = authority.try_tls_handshake(gateway.https_address(), name, versions, &[], stream);
    shaken.map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn each_server_name_gets_its_certificate_and_unknown_names_get_the_first() {
    let (gateway, authority, key) = start_with_certificates();
    for name in ["gate.test", "other.test", "any.other.test", "ANY.other.test", "127.0.0.1"] {
        let mut connection = authority.connect_with_tls(gateway.https_address(), name);
        connection.send_request(&get(DOMAIN).key(&key)).expect(200);
        connection.send_request(&get(DOMAIN).key(&key)).expect(200);
    }
    // riskgate presents the first certificate, which the client refuses for these names.
    for name in ["nobody.test", "two.labels.other.test"] {
        let error = try_handshake(&gateway, &authority, name, rustls::ALL_VERSIONS).unwrap_err();
        assert!(error.contains("not valid for name"), "{name}: {error}");
    }
}

#[test]
fn the_tls_listener_accepts_tls_1_2_and_1_3_but_no_older_tls_and_no_plain_http() {
    let (gateway, authority, _) = start_with_certificates();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        try_handshake(&gateway, &authority, "gate.test", &[version]).unwrap();
    }
    // A ClientHello of TLS 1.1 gets an alert, and nothing else.
    let mut hello = b"\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x02".to_vec();
    hello.extend([7u8; 32]);
    hello.extend(b"\x00\x00\x02\x00\x2f\x01\x00");
    for bytes in [&hello[..], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut connection = Connection::open(gateway.https_address());
        connection.send(bytes);
        let heard = connection.read_to_end();
        assert_eq!(heard.first(), Some(&0x15), "{heard:?}");
        assert!(heard.len() < 16, "{heard:?}");
    }
    wait_until("they are counted", || {
        gateway.sum_of_samples("riskgate_tls_handshake_failures_total", &[]) >= 2.0
    });
}

#[test]
fn a_removed_https_listener_serves_until_the_restart_and_is_no_fault() {
    let (gateway, authority, key) = start_with_certificates();
    gateway.edit_config(|text| {
        let kept = text.lines().take_while(|line| *line != "[[listen.certificate]]");
        let kept: Vec<&str> = kept.filter(|line| !line.starts_with("https = ")).collect();
        assert!(kept.len() + 7 <= text.lines().count() && kept.len() > 5, "{text}");
        kept.join("\n") + "\n"
    });
    let status = || gateway.get_admin_page("/status").json();
    wait_until("the change is seen", || {
        status()["needs_restart"].to_string().contains("listen.https")
    });
    assert_eq!(status()["degraded"].to_string(), "[]");
    gateway.send_signal("HUP");
    wait_until("it is reloaded", || gateway.stderr().contains("reload"));
    assert_eq!(status()["degraded"].to_string(), "[]");
    let mut connection = authority.connect_with_tls(gateway.https_address(), "gate.test");
    connection.send_request(&get(DOMAIN).key(&key)).expect(200);
}

#[test]
fn a_client_without_a_common_protocol_gets_the_alert_no_application_protocol() {
    let (gateway, authority, _) = start_with_certificates();
    let at = gateway.https_address();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let handshake = |alpn: &[&str]| {
            let stream = TcpStream::connect(at).unwrap();
            authority.try_tls_handshake(at, "gate.test", &[version], alpn, stream)
        };
        for alpn in [&["h3"][..], &["http/1.0", "spdy/3"], &["H2"]] {
            let error = handshake(alpn).unwrap_err().into_inner().unwrap();
            let error = error.downcast::<rustls::Error>().unwrap();
            let expected = rustls::AlertDescription::NoApplicationProtocol;
            assert_eq!(*error, rustls::Error::AlertReceived(expected), "{version:?} {alpn:?}");
        }
        for alpn in [&["h3", "h2"][..], &["http/1.1"], &[]] {
            handshake(alpn).unwrap();
        }
    }
}

#[test]
fn a_renewed_certificate_is_used_without_closing_open_connections() {
    let (gateway, authority, key) = start_with_certificates();
    let ask = get(DOMAIN).key(&key);
    let mut open = authority.connect_with_tls(gateway.https_address(), "gate.test");
    open.send_request(&ask).expect(200);
    authority.issue_certificate("first", "DNS:renewed.test,IP:127.0.0.1");
    wait_until("the renewed certificate is presented", || {
        try_handshake(&gateway, &authority, "renewed.test", rustls::ALL_VERSIONS).is_ok()
    });
    open.send_request(&ask).expect(200);

    // The test writes a key of another certificate, and later a file without a certificate.
    // riskgate keeps the last good certificate.
    let key_file = gateway.path("first.key");
    let good = std::fs::read(&key_file).unwrap();
    std::fs::copy(gateway.path("second.key"), &key_file).unwrap();
    let problem = wait_for("riskgate reports the fault", || {
        let text = gateway.readyz().text();
        text.contains("certificates").then_some(text)
    });
    assert!(problem.contains("expected the key of the certificate"), "{problem}");
    try_handshake(&gateway, &authority, "renewed.test", rustls::ALL_VERSIONS).unwrap();
    std::fs::write(gateway.path("first.pem"), "no certificate").unwrap();
    wait_until("riskgate reports it too", || gateway.readyz().text().contains("in PEM form"));
    try_handshake(&gateway, &authority, "renewed.test", rustls::ALL_VERSIONS).unwrap();
    std::fs::write(&key_file, good).unwrap();
    authority.issue_certificate("first", "DNS:third.test,IP:127.0.0.1");
    wait_until("the third certificate is presented", || {
        try_handshake(&gateway, &authority, "third.test", rustls::ALL_VERSIONS).is_ok()
    });
    wait_until("/readyz reports no fault of the certificates", || {
        !gateway.readyz().text().contains("certificates")
    });
    open.send_request(&ask).expect(200);
}

/// A block in PEM form that no client can read as a certificate.
const BROKEN_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

#[test]
fn a_chain_with_a_broken_certificate_does_not_replace_the_good_one() {
    let (gateway, authority, _) = start_with_certificates();
    let chain = gateway.path("first.pem");
    let broken = std::fs::read_to_string(&chain).unwrap() + BROKEN_CERTIFICATE;
    std::fs::write(gateway.path("broken.pem"), broken).unwrap();
    std::fs::rename(gateway.path("broken.pem"), &chain).unwrap();
    wait_until("riskgate reports the fault", || {
        gateway.readyz().text().contains("one that can't be read: number 2 of the file")
    });
    try_handshake(&gateway, &authority, "gate.test", rustls::ALL_VERSIONS).unwrap();
}

#[test]
fn certificates_of_a_listener_that_needs_a_restart_are_checked_at_the_reload() {
    let setup = Setup::new();
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let (chain, good_key) = authority.issue_certificate("first", "DNS:gate.test");
    let (_, other_key) = authority.issue_certificate("second", "DNS:gate.test");
    let gateway = setup.start();
    let before = std::fs::read_to_string(gateway.path("riskgate.toml")).unwrap();
    let add_certificate = |key: &std::path::Path| {
        let https = "[listen]\nhttps = \"127.0.0.1:0\"\n";
        let text = before.replacen("[listen]\n", https, 1);
        assert_ne!(text, before);
        format!("{text}\n[[listen.certificate]]\nchain = {chain:?}\nkey = {key:?}\n")
    };
    gateway.edit_config(|_| add_certificate(&other_key));
    let fault = "certificates: ";
    let found = wait_for("riskgate reports the fault", || {
        let found = gateway.readyz().text();
        found.contains(fault).then_some(found)
    });
    assert!(found.contains("expected the key of the certificate"), "{found}");
    gateway.edit_config(|_| add_certificate(&good_key));
    wait_until("the fault has ended", || !gateway.readyz().text().contains(fault));
    gateway.edit_config(|_| add_certificate(&other_key));
    wait_until("the fault is back", || gateway.readyz().text().contains(fault));
    gateway.edit_config(|_| before.clone());
    wait_until("a removed certificate has no fault", || !gateway.readyz().text().contains(fault));
}

/// Performs a handshake with `openssl s_client`. Returns the kind of the key with which the server
/// has signed.
fn find_signature_type(gateway: &Gateway, words: &str) -> String {
    let mut command = std::process::Command::new("openssl");
    let address = gateway.https_address().to_string();
    command.args(["s_client", "-connect", &address]).args(words.split(' '));
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = text.lines().find_map(|line| line.strip_prefix("Peer signature type: "));
    found.unwrap_or_else(|| panic!("{words}: {text}{output:?}")).to_owned()
}

#[test]
fn of_two_certificates_for_a_name_a_client_gets_one_that_it_can_verify() {
    let setup = Setup::new();
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let certificates = [
        authority.issue_rsa_certificate("rsa", "DNS:gate.test,DNS:*.gate.test"),
        authority.issue_certificate("other", "DNS:other.test"),
        authority.issue_certificate("ec", "DNS:gate.test,DNS:*.gate.test"),
    ];
    let gateway = setup.with_certificates(&certificates).start();
    assert!(!gateway.stderr().contains("no client gets"), "{}", gateway.stderr());
    for version in ["-tls1_2", "-tls1_3"] {
        for name in ["-servername gate.test", "-servername a.gate.test", "-noservername"] {
            let ask = |signatures: &str| {
                find_signature_type(&gateway, &format!("{version} {name}{signatures}"))
            };
            assert_eq!(ask(""), "ECDSA", "{name}");
            assert_eq!(ask(" -sigalgs ECDSA+SHA256"), "ECDSA", "{name}");
            assert_eq!(ask(" -sigalgs RSA-PSS+SHA256"), "RSA-PSS", "{name}");
        }
    }
    // The second certificate has another name, so it is no default.
    let error = try_handshake(&gateway, &authority, "nobody.test", rustls::ALL_VERSIONS);
    let error = error.unwrap_err();
    assert!(error.contains("gate.test") && !error.contains("other.test"), "{error}");
}

#[test]
fn check_and_run_warn_of_a_certificate_that_no_client_gets() {
    let setup = Setup::new();
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let certificates = [
        authority.issue_certificate("first", "DNS:gate.test,IP:127.0.0.1"),
        authority.issue_certificate("again", "DNS:gate.test,IP:127.0.0.1"),
        authority.issue_certificate("nameless", "IP:127.0.0.2"),
        authority.issue_rsa_certificate("rsa", "DNS:gate.test"),
        authority.issue_certificate("further", "DNS:gate.test,DNS:further.test"),
    ];
    let gateway = setup.with_certificates(&certificates).start();
    let checked = gateway.cli(&["check"]).expect(0);
    for text in [checked.stderr, gateway.stderr()] {
        for expected in [
            "listen.certificate 2: chain: expected a name or a type of key that no earlier",
            "listen.certificate 3: chain: expected a DNS name in subjectAltName, but found none",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert_eq!(text.matches("no client gets this certificate").count(), 2, "{text}");
    }
}

#[test]
fn a_certificate_that_is_not_valid_yet_is_reported_as_an_expired_one_is() {
    let setup = Setup::new();
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let clock = FakeClock::starting_at("2999-01-01T00:00:00Z");
    let certificate = authority.issue_certificate_by_clock(&clock, "first", "DNS:gate.test");
    let gateway = setup.with_certificates(&[certificate]).start();
    let expected = "expected a certificate that is valid, but found one that becomes valid in ";
    let degraded = gateway.readyz().json()["degraded"].to_string();
    assert!(degraded.contains(expected), "{degraded}");
    let checked = gateway.cli(&["check"]).expect(0);
    let warning = format!("listen.certificate 1: chain: {expected}");
    assert!(checked.stderr.contains(&warning), "{}", checked.stderr);
    let error = try_handshake(&gateway, &authority, "gate.test", rustls::ALL_VERSIONS).unwrap_err();
    assert!(error.contains("certificate not valid yet"), "{error}");
    authority.issue_certificate("first", "DNS:gate.test");
    wait_until("a valid one ends the fault", || !gateway.readyz().text().contains(expected));
}

#[test]
fn a_certificate_that_is_not_valid_yet_replaces_a_valid_one_once_it_is_valid() {
    let (gateway, authority, _) = start_with_certificates();
    let clock = FakeClock::starting_at("2999-01-01T00:00:00Z");
    authority.issue_certificate_by_clock(&clock, "first", "DNS:late.test");
    let problem = "first.pem: expected a certificate that is valid, but found one that becomes";
    wait_until("riskgate reports it", || gateway.readyz().text().contains(problem));
    let failing = ["part=\"certificates\""];
    assert_eq!(gateway.sum_of_samples("riskgate_reload_failing", &failing), 1.0);
    try_handshake(&gateway, &authority, "gate.test", rustls::ALL_VERSIONS).unwrap();
    clock.set_to(&jiff::Timestamp::now().to_string());
    clock.step(8);
    authority.issue_certificate_by_clock(&clock, "first", "DNS:soon.test");
    wait_until("it is presented", || {
        try_handshake(&gateway, &authority, "soon.test", rustls::ALL_VERSIONS).is_ok()
    });
    wait_until("the fault has ended", || !gateway.readyz().text().contains("certificates"));
    let log = gateway.stderr();
    assert!(log.contains(&format!("{problem} valid in less than a day")), "{log}");
}

#[test]
fn a_certificate_that_has_expired_replaces_no_valid_one_and_serves_after_a_restart() {
    let clock = FakeClock::starting_at("2031-01-01T00:00:00Z");
    let setup = Setup::new().with_clock(&clock);
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let issue = |name: &str, days: u32| {
        let names = format!("DNS:{name},IP:127.0.0.1 -days {days}");
        authority.issue_certificate("first", &names)
    };
    let problem = |gateway: &Gateway| {
        let problems = gateway.get_admin_page("/status").json()["problems"].clone();
        let found = problems.as_array().unwrap().iter();
        let found = found.filter(|it| it["component"] == "certificates").collect::<Vec<_>>();
        assert!(found.len() <= 1, "{problems}");
        found.first().map(|it| it["problem"].as_str().unwrap().to_owned())
    };
    let gateway = setup.with_certificates(&[issue("gate.test", 3_650)]).start();
    assert_eq!(problem(&gateway), None);
    issue("expired.test", 90);
    let found = wait_for("riskgate reports the certificate", || problem(&gateway));
    let chain = gateway.path("first.pem").display().to_string();
    let expected = "expected a certificate that is valid, but found one that expired ";
    assert!(found.starts_with(&format!("{chain}: {expected}")), "{found}");
    let degraded = format!("error: certificates is degraded: {chain}: ");
    wait_until("the log says so", || gateway.stderr().contains(&degraded));
    let log = gateway.stderr();
    assert!(!log.contains("certificates: the fault has ended"), "{log}");
    let failing = ["part=\"certificates\""];
    assert_eq!(gateway.sum_of_samples("riskgate_reload_failing", &failing), 1.0);
    try_handshake(&gateway, &authority, "gate.test", rustls::ALL_VERSIONS).unwrap();
    let gateway = gateway.restart();
    assert!(problem(&gateway).is_some_and(|it| it.contains(expected)));
    // The client of this test has another clock, so it accepts the certificate.
    try_handshake(&gateway, &authority, "expired.test", rustls::ALL_VERSIONS).unwrap();
    issue("gate.test", 3_650);
    wait_until("a new certificate ends the fault", || problem(&gateway).is_none());
    wait_until("the log says so", || {
        gateway.stderr().contains("certificates: the fault has ended")
    });
}

/// OpenSSL issues such a certificate from a request without a file of extensions.
fn issue_certificate_of_version_1(setup: &Setup, key: &Path) -> PathBuf {
    let (key, chain) = (key.display(), setup.path("version_1.pem"));
    let script = format!(
        "openssl req -new -key {key} -subj /CN=gate.test |
         openssl x509 -req -signkey {key} -days 9 -out {}",
        chain.display()
    );
    let made = std::process::Command::new("sh").args(["-ec", &script]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    chain
}

#[test]
fn a_certificate_or_key_that_is_cut_off_is_told_as_such() {
    let setup = Setup::new();
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let (chain, key) = authority.issue_certificate("first", "DNS:gate.test");
    let [leaf, key_text] = [&chain, &key].map(|it| std::fs::read_to_string(it).unwrap());
    let write = |name: &str, text: &str| {
        std::fs::write(setup.path(name), text).unwrap();
        setup.path(name)
    };
    let half = write("half.pem", &leaf[..leaf.len() - 40]);
    let first_line = write("first_line.pem", "-----BEGIN CERTIF");
    let garbled = write("garbled.pem", &leaf.replacen("\nM", "\n!", 1));
    let half_key = write("half.key", &key_text[..key_text.len() - 40]);
    for (files, expected) in [
        ((half, key.clone()), "found a certificate without its END line; is the file complete?\n"),
        ((first_line, key.clone()), "found a BEGIN line that does not end with -----; is the"),
        ((garbled, key), "found a certificate with lines that are no base64; is the file"),
        ((chain, half_key), "found a key that can't be read; is the file complete?\n"),
    ] {
        let told = Setup::new().with_certificates(&[files]).cli(&["check"]).expect(78).stderr;
        assert!(told.contains(expected), "{expected}: {told}");
    }
}

#[test]
fn check_refuses_a_broken_certificate_and_names_its_file() {
    let setup = Setup::new();
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let (chain, key) = authority.issue_certificate("first", "DNS:gate.test");
    let (_, other) = authority.issue_certificate("second", "DNS:gate.test");
    let (der, locked) = (setup.path("first.der"), setup.path("locked.pem"));
    std::fs::write(&der, [0x30, 0x82, 0x01, 0x0a, 0x02, 0x82]).unwrap();
    let block = "ENCRYPTED PRIVATE KEY-----";
    std::fs::write(&locked, format!("-----BEGIN {block}\nMIIB\n-----END {block}\n")).unwrap();
    let old_form = setup.path("old_form.pem");
    let block = "RSA PRIVATE KEY-----";
    let fields = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00";
    std::fs::write(&old_form, format!("-----BEGIN {block}\n{fields}\n\nMIIB\n-----END {block}\n"))
        .unwrap();
    let request = setup.path("first.csr");
    let block = "CERTIFICATE REQUEST-----";
    std::fs::write(&request, format!("-----BEGIN {block}\nMIIB\n-----END {block}\n")).unwrap();
    let version_1 = issue_certificate_of_version_1(&setup, &key);
    let (broken, misordered) = (setup.path("broken.pem"), setup.path("misordered.pem"));
    let leaf = std::fs::read_to_string(&chain).unwrap();
    std::fs::write(&broken, format!("{leaf}{BROKEN_CERTIFICATE}")).unwrap();
    let issuer = std::fs::read_to_string(authority.certificate_path()).unwrap();
    std::fs::write(&misordered, issuer + &leaf).unwrap();
    for (files, expected) in [
        (
            (broken, key.clone()),
            "chain: expected certificates in PEM form, but found one that can't be read: number 2",
        ),
        (
            (misordered, key.clone()),
            "chain: expected the server's certificate first, and those of its issuers behind it, \
             but found the server's certificate as number 2 of the file\n",
        ),
        ((version_1, key.clone()), "but found one of an older version; issue it again with an"),
        ((request, key.clone()), "but found a request for a certificate; write the certificate"),
        ((der, key.clone()), "but found DER or PKCS#12; write it as PEM: openssl x509"),
        ((chain.clone(), locked), "a key with a passphrase; write it without: openssl pkey"),
        ((chain.clone(), old_form), "a key with a passphrase; write it without: openssl pkey"),
        (
            (chain.clone(), other),
            "key: expected the key of the certificate, but found another key than that of",
        ),
        (
            (key.clone(), key.clone()),
            "chain: expected certificates in PEM form, but found a private key\n",
        ),
        ((key.clone(), chain.clone()), "are swapped\n"),
        (
            (chain.clone(), chain),
            "key: expected a private key in PEM form, but found a certificate\n",
        ),
        ((setup.path("nowhere"), key), "chain: expected certificates in PEM form, but found"),
    ] {
        let setup = Setup::new().with_certificates(&[files]);
        let ran = setup.cli(&["check"]).expect(78);
        assert!(ran.stderr.contains(expected), "{expected}: {}", ran.stderr);
        assert!(ran.stderr.contains("listen.certificate 1: "), "{}", ran.stderr);
        assert!(!ran.stderr.contains("PRIVATE"), "{}", ran.stderr);
    }
    let ran = Setup::new().set_text("listen.https", "127.0.0.1:0").cli(&["check"]).expect(78);
    assert!(
        ran.stderr.contains("listen.https: expected a [[listen.certificate]] too"),
        "{}",
        ran.stderr
    );
}

#[test]
fn x_forwarded_proto_tells_the_upstream_whether_the_client_used_tls() {
    let upstream = MockUpstream::start();
    let setup = Setup::new().with_upstreams(&[upstream.address]);
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let certificate = authority.issue_certificate("first", "DNS:gate.test");
    let gateway = setup.with_certificates(&[certificate]).start();
    let key = gateway.create_active_key("acme", &[]);
    let ask = get("/v1/check/a@b.com").key(&key);
    authority.connect_with_tls(gateway.https_address(), "gate.test").send_request(&ask).expect(200);
    assert_eq!(upstream.last_request().header("X-Forwarded-Proto"), "https");
    gateway.send_request(&ask).expect(200);
    assert_eq!(upstream.last_request().header("X-Forwarded-Proto"), "http");
}

#[test]
fn the_first_bytes_of_a_slow_response_are_forwarded_at_once() {
    let late = MockUpstream::with_script(|_| {
        let begun = b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n0123456789".to_vec();
        vec![Step::Send(begun), Step::Trickle(b"abcd".to_vec(), Duration::from_millis(400))]
    });
    let setup = Setup::new().with_upstreams(&[late.address]);
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let gateway =
        setup.with_certificates(&[authority.issue_certificate("first", "DNS:gate.test")]).start();
    let key = gateway.create_active_key("acme", &[]);
    for mut connection in
        [gateway.connect(), authority.connect_with_tls(gateway.https_address(), "gate.test")]
    {
        connection.send(&get("/v1/check/a@b.com").key(&key).to_bytes());
        connection.wait_for_bytes();
        let first = Instant::now();
        let answer = connection.read_response().expect("an answer").expect(200);
        assert_eq!(answer.text(), "0123456789abcd");
        assert!(first.elapsed() > Duration::from_millis(800), "{:?}", first.elapsed());
    }
}

#[test]
fn riskgate_verifies_the_certificate_of_a_tls_upstream() {
    // A second gateway is the upstream server: it answers below /v1/public.
    let (upstream, authority, its_key) = start_with_certificates();
    let route = "[[upstream.route]]\nprefix = \"/v1/behind\"\nkey = false\n";
    let setup = |name: &str| {
        let setup =
            Setup::new().with_upstreams(&[upstream.https_address()]).set("upstream.tls", "true");
        setup.set_text("upstream.tls_name", name).append_toml(route)
    };
    let authorities = authority.certificate_path().display().to_string();
    let ask = get("/v1/behind").key(&its_key);
    let trusting = setup("other.test").set_text("upstream.tls_ca", &authorities).start();
    // The second gateway has no such route, and the client gets its 404.
    let answer = trusting.send_request(&ask).expect(404);
    assert_eq!(answer.header("X-Riskgate-Source"), Some("upstream"));
    drop(trusting);
    for (setup, status) in [
        (setup("nobody.test").set_text("upstream.tls_ca", &authorities), 500),
        (setup("other.test"), 500),
        (setup("other.test").set("upstream.tls_verify", "false"), 404),
    ] {
        let gateway = setup.start();
        gateway.send_request(&ask).expect(status);
    }
    let ran = Setup::new().set("upstream.tls", "true").set_text("upstream.tls_ca", "nowhere");
    let ran = ran.cli(&["check"]).expect(78);
    assert!(ran.stderr.contains("upstream.tls_ca: expected certificates"), "{}", ran.stderr);
}

/// A gateway in front of this server, which it reaches by TLS.
fn start_before_tls_server(authority: &CertificateAuthority, server: SocketAddr) -> Gateway {
    Setup::new()
        .with_upstreams(&[authority.start_tls_server_for(server, "upstream.test")])
        .set("upstream.tls", "true")
        .set_text("upstream.tls_name", "upstream.test")
        .set_text("upstream.tls_ca", &authority.certificate_path().display().to_string())
        .start()
}

#[test]
fn bytes_behind_a_response_in_its_tls_record_answer_no_other_request() {
    let folder = tempfile::tempdir().unwrap();
    let authority = CertificateAuthority::new(folder.path());
    let surplus = response_bytes(200, "", "surplus");
    // A read of the response may end within the surplus bytes, before them or behind them.
    let lengths = [200, 2_047, 2_048, 2_049, 2_048 + surplus.len()];
    let length = Arc::new(AtomicUsize::new(0));
    let script = {
        let length = Arc::clone(&length);
        move |seen: &ReceivedRequest| match seen.request_line().contains("first") {
            true => {
                // The field `Content-Length` takes up to three bytes more for a longer body.
                let head_bytes = response_bytes(200, "", "").len() + 3;
                let body = "x".repeat(length.load(Ordering::SeqCst) - head_bytes);
                let own = response_bytes(200, "", &body);
                vec![Step::Send([own, surplus.clone()].concat())]
            }
            false => vec![Step::Send(response_bytes(200, "", "own"))],
        }
    };
    let upstream = MockUpstream::with_script(script);
    let gateway = start_before_tls_server(&authority, upstream.address);
    let key = gateway.create_active_key("acme", &[]);
    for response_length in lengths {
        length.store(response_length, Ordering::SeqCst);
        gateway.get("/v1/check/first@b.com", &key).expect(200);
        let second = gateway.get("/v1/check/second@b.com", &key).expect(200);
        assert_eq!(second.text(), "own", "{response_length}");
    }
}

#[test]
fn a_get_is_retried_once_if_its_reused_tls_connection_closes() {
    let folder = tempfile::tempdir().unwrap();
    let authority = CertificateAuthority::new(folder.path());
    // Each connection answers once. At the second request the server sends a TLS alert and closes.
    let upstream = MockUpstream::with_script(|seen| match seen.index_on_connection {
        0 => vec![Step::Send(response_bytes(200, "", "{}"))],
        _ => vec![Step::Close],
    });
    let gateway = start_before_tls_server(&authority, upstream.address);
    let key = gateway.create_active_key("acme", &[]);
    for _ in 0..6 {
        gateway.get("/v1/check/a@b.com", &key).expect(200);
    }
    assert_eq!(gateway.get_month_count(&key), 6, "a retry counts nothing");
    assert!(upstream.connection_count() >= 6);
    assert!(upstream.request_count() > 6, "a connection was reused");
}
