//! `riskgate doctor` against running deployments, and against none.

use std::net::SocketAddr;

use crate::harness::{
    CertificateAuthority, CommandOutput, FakeClock, Gateway, MockUpstream, Setup, free_address,
    run_command, wait_until,
};
use crate::one_path::operators::admin_api::AdminTokens;

/// The lines that are no `good`.
fn find_problems(checked: &CommandOutput) -> Vec<&str> {
    let faults = checked.stdout.lines().filter(|line| line.starts_with("fault")).count();
    assert_eq!(checked.exit_code, i32::from(faults > 0), "{}{}", checked.stdout, checked.stderr);
    checked.stdout.lines().filter(|line| !line.starts_with("good ")).collect()
}

fn has_line(checked: &CommandOutput, start: &str) -> bool {
    checked.stdout.lines().any(|line| line.starts_with(start))
}

fn setup_of_site(server: SocketAddr) -> Setup {
    let site = "[[upstream.route]]\nprefix = \"/\"\nkey = false\n";
    Setup::with_bundled_table().with_upstreams(&[server]).append_toml(site)
}

/// A gateway for TLS whose authority its commands trust.
fn start_with_tls(setup: Setup, days: &str) -> (Gateway, CertificateAuthority) {
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let names = format!("DNS:localhost -days {days}");
    let certificate = authority.issue_certificate("site", &names);
    let trusted = authority.certificate_path().display().to_string();
    let setup = setup.with_certificates(&[certificate]).env("SSL_CERT_FILE", &trusted);
    (setup.start(), authority)
}

#[test]
fn doctor_finds_a_healthy_deployment_good() {
    let site = MockUpstream::start();
    let redirect = free_address().to_string();
    let setup = setup_of_site(site.address).set_text("listen.redirect", &redirect);
    let (gateway, _authority) = start_with_tls(setup.set_text("listen.hsts", "365d"), "90");
    let url = format!("https://localhost:{}/", gateway.https_address().port());
    let checked = gateway.cli(&["doctor", "--url", &url]);
    assert_eq!(find_problems(&checked), [""; 0], "{}", checked.stdout);
    for subject in [
        "config",
        "gateway",
        "version",
        "clock",
        "listen.http",
        "listen.https",
        "listen.redirect",
        "store file",
        "upstream",
        "certificate ",
        "url",
        "tls",
        "answer",
        "hsts",
        "date",
        "client address",
    ] {
        assert!(has_line(&checked, &format!("good     {subject}")), "{subject}: {checked:?}");
    }
    let findings = gateway.cli(&["doctor", "--json"]).expect(0).json();
    assert_eq!(findings["findings"][1]["subject"], "gateway");
    assert_eq!(findings["findings"][0]["level"], "good");
}

#[test]
fn doctor_names_a_server_that_is_gone_and_what_to_do() {
    let server = free_address();
    let gateway = setup_of_site(server).set_text("upstream.health_interval", "50ms").start();
    wait_until("the gateway knows that the server is down", || {
        gateway.readyz().json()["degraded"].to_string().contains("upstream")
    });
    let checked = gateway.cli(&["doctor"]);
    let problems = find_problems(&checked);
    let expected = format!("fault    upstream: {server}: Connection refused");
    assert!(problems.len() == 1 && problems[0].starts_with(&expected), "{problems:?}");
    assert!(problems[0].contains("; start this server, or"), "{problems:?}");
    // A gateway that needs no server has none that could be gone.
    let gateway = Setup::with_bundled_table().set_text("check.answer", "table").start();
    assert_eq!(find_problems(&gateway.cli(&["doctor"])), [""; 0]);
}

#[test]
fn doctor_tells_when_certificates_expire_and_that_clients_refuse_them() {
    let site = MockUpstream::start();
    let clock = FakeClock::starting_at("2026-11-10T12:00:00Z");
    let setup = setup_of_site(site.address).with_clock(&clock);
    let (gateway, _authority) = start_with_tls(setup, "90");
    clock.set_to("2031-01-01T00:00:00Z");
    let url = format!("https://localhost:{}/", gateway.https_address().port());
    let checked = gateway.cli(&["doctor", "--url", &url]);
    assert!(has_line(&checked, "fault    tls: expired "), "{}", checked.stdout);
    let refused = "fault    tls: clients refuse the certificate of localhost: it has expired; ";
    assert!(has_line(&checked, refused), "{}", checked.stdout);
    let file = format!("fault    certificate {}: expired ", gateway.path("site.pem").display());
    assert!(has_line(&checked, &file), "{}", checked.stdout);
}

#[test]
fn doctor_has_one_finding_of_a_certificate_that_has_expired_or_is_missing() {
    let site = MockUpstream::start();
    let clock = FakeClock::starting_at("2031-01-01T00:00:00Z");
    let (gateway, _authority) = start_with_tls(setup_of_site(site.address).with_clock(&clock), "9");
    let chain = gateway.path("site.pem");
    let of_certificates = |checked: &CommandOutput| {
        let problems = find_problems(checked).into_iter().filter(|it| it.contains("certificate"));
        problems.map(str::to_owned).collect::<Vec<_>>()
    };
    let found = of_certificates(&gateway.cli(&["doctor"]));
    let expected = format!("fault    certificate {}: expired ", chain.display());
    assert!(found.len() == 1 && found[0].starts_with(&expected), "{found:?}");
    std::fs::remove_file(&chain).unwrap();
    let checked = gateway.cli(&["doctor"]);
    let expected = "listen.certificate 1: chain: expected certificates in PEM form, but found";
    let is_fault = |it: &String| it.starts_with("fault    config: ") && it.contains(expected);
    assert!(of_certificates(&checked).iter().any(is_fault), "{}", checked.stdout);
    assert!(!has_line(&checked, "good     config"), "{}", checked.stdout);
}

#[test]
fn doctor_warns_of_a_certificate_that_expires_soon_and_of_missing_hsts() {
    let site = MockUpstream::start();
    let (gateway, authority) = start_with_tls(setup_of_site(site.address), "5");
    let port = gateway.https_address().port();
    let checked = gateway.cli(&["doctor", "--url", &format!("https://localhost:{port}/")]);
    let problems = find_problems(&checked);
    for start in ["warning  tls: expires in ", "warning  hsts: "] {
        assert!(problems.iter().any(|it| it.starts_with(start)), "{problems:?}");
    }
    let checked = gateway.cli(&["doctor", "--url", &format!("https://127.0.0.1:{port}/")]);
    let refused = "fault    tls: clients refuse the certificate of 127.0.0.1: it is for another";
    assert!(has_line(&checked, refused), "{}", checked.stdout);
    // Another program at the URL, with a certificate that is right.
    let other = authority.start_tls_server_for(site.address, "localhost").port();
    let checked = gateway.cli(&["doctor", "--url", &format!("https://localhost:{other}/")]);
    assert!(has_line(&checked, "fault    answer: 200 OK without X-Request-Id"), "{checked:?}");
}

#[test]
fn doctor_says_that_nothing_runs() {
    let setup = setup_of_site(free_address()).set_text("listen.http", &free_address().to_string());
    let setup = setup.set_text("listen.admin", &free_address().to_string());
    let checked = setup.cli(&["doctor"]);
    let problems = find_problems(&checked);
    for start in
        ["fault    gateway: expected an answer", "fault    listen.http: ", "fault    store"]
    {
        assert!(problems.iter().any(|it| it.starts_with(start)), "{start}: {problems:?}");
    }
    assert!(problems[0].contains("; start it with riskgate run"), "{problems:?}");
    assert!(!setup.path("riskgate.db").exists());
    let wrong = setup.cli(&["doctor", "--url", "signup.example.com"]).expect(2).stderr;
    assert!(wrong.contains("expected a URL such as https://"), "{wrong}");
}

#[test]
fn doctor_reads_the_status_only_with_a_token() {
    let site = MockUpstream::start();
    let setup = setup_of_site(site.address).set_text("admin.token", "a-token-of-the-operator");
    let gateway = setup.start();
    let checked = gateway.cli(&["doctor"]);
    let problems = find_problems(&checked);
    let expected = "warning  status: hidden, because the config has admin tokens; name a file";
    assert!(problems.len() == 1 && problems[0].starts_with(expected), "{problems:?}");
    let file = gateway.path("token");
    // An editor may have begun the file with a byte order mark, which admin.token_file may have.
    std::fs::write(&file, "\u{feff}a-token-of-the-operator\n").unwrap();
    let file = file.display().to_string();
    let checked = gateway.cli(&["doctor", "--token-file", &file]);
    assert_eq!(find_problems(&checked), [""; 0]);
    assert!(has_line(&checked, "good     version"), "{}", checked.stdout);
}

#[test]
fn doctor_says_that_a_token_is_refused_and_shows_no_secret_of_a_url() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let file = setup.path("token");
    let gateway = setup.start();
    let check_with = |token: &str| {
        std::fs::write(&file, token).unwrap();
        gateway.cli(&["doctor", "--token-file", file.to_str().unwrap()])
    };
    assert!(has_line(&check_with(&tokens.read), "good     version"));
    let expected = "fault    status: the token of --token-file may read one account only; name a";
    assert!(has_line(&check_with(&tokens.account), expected));
    assert!(has_line(&check_with("x".repeat(40).as_str()), "fault    status: the gateway refuses"));
    for (text, found) in [("", "found nothing"), ("a\u{1}b", "a character that no token has")] {
        assert!(check_with(text).expect(1).stderr.contains(found));
    }
    let with_user = gateway.cli(&["doctor", "--url", "https://user:pass@localhost/"]).expect(2);
    assert!(with_user.stderr.contains("without a user and a password"), "{}", with_user.stderr);
    let closed = format!("http://{}/x?token=secret", free_address());
    let checked = gateway.cli(&["doctor", "--url", &closed]);
    assert!(checked.stdout.contains("fault    url: ") && !checked.stdout.contains("secret"));
}

/// Listens, accepts and says nothing, for as long as the listener lives.
fn start_silent_server() -> (std::net::TcpListener, SocketAddr) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn doctor_waits_only_once_for_a_silent_store() {
    let (listener, silent) = start_silent_server();
    let setup = setup_of_site(free_address());
    let setup = setup.set_text("store.url", &format!("redis://{silent}"));
    let checked = setup.cli(&["doctor"]);
    let line = format!("fault    store: redis://{silent}: connecting: no answer within 1000 ms; ");
    assert!(has_line(&checked, &line), "{}", checked.stdout);
    listener.set_nonblocking(true).unwrap();
    let connections = std::iter::from_fn(|| listener.accept().ok()).count();
    // On the second, riskgate finds out what the server speaks. If each check waited, there would
    // be many.
    assert_eq!(connections, 2);
}

#[test]
fn doctor_tells_in_words_why_a_port_speaks_no_tls() {
    let (_listener, silent) = start_silent_server();
    let plain = MockUpstream::start();
    let upstreams =
        |server: SocketAddr| setup_of_site(server).set_text("upstream.tls_name", "localhost");
    let check = |server| upstreams(server).set("upstream.tls", "true").cli(&["doctor"]).stdout;
    let found = check(silent);
    let words =
        "expected a TLS handshake, but it accepts the connection and never answers; see that";
    assert!(found.contains(&format!("fault    upstream: {silent}: {words}")), "{found}");
    let found = check(plain.address);
    let words = "expected a TLS handshake, but it closes the connection; see that";
    assert!(found.contains(&format!("fault    upstream: {}: {words}", plain.address)), "{found}");
}

#[test]
fn doctor_says_that_a_certificate_has_signed_itself() {
    let site = MockUpstream::start();
    let setup = setup_of_site(site.address);
    let files = ["own.pem", "own.key"].map(|name| setup.path(name));
    let [certificate, key] = files.each_ref().map(|file| file.to_str().unwrap());
    let mut command = std::process::Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ]);
    command.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
    run_command(command.args(["-keyout", key, "-out", certificate])).expect(0);
    let gateway = setup.with_certificates(&[files.clone().into()]).start();
    let url = format!("https://localhost:{}/", gateway.https_address().port());
    let checked = gateway.cli(&["doctor", "--url", &url]);
    let refused = "fault    tls: clients refuse the certificate of localhost: it has signed itself";
    assert!(has_line(&checked, refused), "{}", checked.stdout);
    // That it lasts for long is no good news.
    assert!(!has_line(&checked, "good     tls"), "{}", checked.stdout);
    // openssl has made the certificate of an authority, so naming it changes nothing.
    let server = gateway.https_address();
    let asking = setup_of_site(server)
        .set("upstream.tls", "true")
        .set_text("upstream.tls_name", "localhost")
        .set_text("upstream.tls_ca", certificate);
    let refused = format!(
        "fault    upstream: {server}: riskgate refuses its certificate for localhost: it is the \
         certificate of an authority, and not of a server; make one with openssl req -x509 -addext \
         basicConstraints=CA:FALSE "
    );
    let found = asking.cli(&["doctor"]).stdout;
    assert!(found.contains(&refused), "{found}");
}

#[test]
fn doctor_says_whose_error_an_answer_of_502_is() {
    let site = free_address();
    let gateway_statuses = "failure_status = \"gateway\"\n";
    let gateway = setup_of_site(site).append_toml(gateway_statuses).start();
    let url = format!("http://{}/", gateway.http);
    let checked = gateway.cli(&["doctor", "--url", &url]);
    let expected = "fault    answer: 502 Bad Gateway: no server behind riskgate answers as a server \
                    does; start the servers of upstream.servers";
    assert!(has_line(&checked, expected), "{}", checked.stdout);
}

#[test]
fn doctor_says_that_it_can_not_read_the_access_log() {
    let site = MockUpstream::start();
    let gateway = setup_of_site(site.address).start();
    let log = gateway.path("access.log");
    std::fs::rename(&log, gateway.path("access.log.1")).unwrap();
    // Nobody can read a directory as a file, not even root.
    std::fs::create_dir(&log).unwrap();
    let checked = gateway.cli(&["doctor", "--url", &format!("http://{}/", gateway.http)]);
    let problems = find_problems(&checked);
    let expected = format!("warning  client address: {}: Is a directory", log.display());
    assert!(problems.iter().any(|it| it.starts_with(&expected)), "{problems:?}");
}
