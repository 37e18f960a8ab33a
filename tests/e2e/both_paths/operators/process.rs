//! The process: how it stops, what it finishes first, which files it leaves, and the demo.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::harness::{
    BINARY, CALLS_TO_OBTAIN_LEASE, CertificateAuthority, Connection, Demo, Fault, FaultProxy,
    KillOnDrop, MockUpstream, Setup, Step, TEST_TIMEOUT, get, response_bytes, run_command,
    wait_for, wait_until,
};
use crate::redis_server::RedisServer;

/// Longer than an immediate stop takes, shorter than any grace period.
const IMMEDIATE_STOP_LIMIT: Duration = Duration::from_secs(5);

#[test]
fn sigterm_ends_an_idle_gateway_at_once_with_exit_code_0() {
    let mut gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &[]);
    gateway.get_domain("first.test", &key).expect(200);
    // A kept connection without a request is idle too.
    let mut idle = gateway.connect();
    idle.send_request(&get("/v1/usage").key(&key)).expect(200);
    let begun = Instant::now();
    gateway.send_signal("TERM");
    assert_eq!(gateway.wait_for_exit().code(), Some(0), "{}", gateway.stderr());
    assert!(begun.elapsed() < IMMEDIATE_STOP_LIMIT, "{:?}", begun.elapsed());
    assert!(idle.ends_without_more_bytes());
}

#[test]
fn silent_connections_do_not_delay_the_shutdown() {
    let setups = [Setup::new(), Setup::new().set("listen.h2c", "true")];
    for mut gateway in setups.map(Setup::start) {
        let mut silent = gateway.connect();
        wait_until("riskgate has accepted the connection", || {
            gateway.sum_of_samples("riskgate_connections", &[]) >= 1.0
        });
        let begun = Instant::now();
        gateway.send_signal("TERM");
        assert_eq!(gateway.wait_for_exit().code(), Some(0), "{}", gateway.stderr());
        assert!(begun.elapsed() < IMMEDIATE_STOP_LIMIT, "{:?}", begun.elapsed());
        assert!(silent.ends_without_more_bytes());
    }
}

#[test]
fn signals_are_handled_once_the_process_reports_ready() {
    let setup = Setup::new();
    let setup =
        setup.set_text("listen.http", "127.0.0.1:0").set_text("listen.admin", "127.0.0.1:0");
    let config = setup.write_config();
    for name in ["QUIT", "TERM", "QUIT", "TERM", "QUIT", "TERM"] {
        let child = Command::new(BINARY)
            .args(["run", "-c"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut child = KillOnDrop(child);
        let lines = BufReader::new(child.0.stderr.take().unwrap()).lines();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let expect_stderr_line = |words: &str| {
            let next = || receiver.recv_timeout(TEST_TIMEOUT).ok();
            let is_found = std::iter::from_fn(next).any(|line| line.contains(words));
            assert!(is_found, "{name}: expected {words} on standard error");
        };
        let send = |name: &str| {
            let kill = format!("kill -{name} {}", child.0.id());
            assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        };
        expect_stderr_line(" on http://");
        send(name);
        if name == "QUIT" {
            expect_stderr_line("serving on");
            send("TERM");
        }
        let ended = wait_for("it has ended", || child.0.try_wait().unwrap());
        assert_eq!(ended.code(), Some(0), "{name}");
    }
}

#[test]
fn sigint_ends_the_gateway_and_keeps_its_counts() {
    let gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &[]);
    for _ in 0..7 {
        gateway.get_domain("first.test", &key).expect(200);
    }
    let mut gateway = gateway;
    gateway.send_signal("INT");
    gateway.wait_for_exit();
    let log = gateway.stderr();
    assert!(log.contains("info: SIGINT: ended without a drain: all requests had"), "{log}");
    let gateway = gateway.start_after_exit();
    assert_eq!(gateway.get_month_count(&key), 7);
}

#[test]
fn after_sigterm_a_request_in_flight_is_completed_and_counted() {
    let slow = MockUpstream::with_script(|_| {
        vec![Step::Trickle(
            response_bytes(200, "", "the response arrives late but complete"),
            Duration::from_millis(15),
        )]
    });
    let mut gateway =
        Setup::new().with_upstreams(&[slow.address]).set("plans.free", "1000000").start();
    let key = gateway.create_key_with_lease("acme");
    let mut connection = gateway.connect();
    connection.send(&get("/v1/check/a@b.com").key(&key).to_bytes());
    wait_until("the request reached the upstream", || slow.request_count() == 1);
    gateway.send_signal("TERM");
    let answer = connection.read_response().expect("an answer").expect(200);
    assert!(answer.is_complete);
    assert_eq!(answer.text(), "the response arrives late but complete");
    assert_eq!(answer.header("Connection"), Some("close"));
    assert!(connection.ends_without_more_bytes(), "a process that ends keeps no connection");
    assert_eq!(gateway.wait_for_exit().code(), Some(0), "{}", gateway.stderr());
    let log = gateway.stderr();
    let last = log.lines().rev().take(2).collect::<Vec<_>>();
    assert!(
        last[1].ends_with("SIGTERM: drains: 1 request left, ends after 30s at the latest"),
        "{log}"
    );
    assert!(
        last[0].ends_with("s after the drain began: all requests had their responses"),
        "{log}"
    );
    let gateway = gateway.start_after_exit();
    assert_eq!(gateway.get_month_count(&key), CALLS_TO_OBTAIN_LEASE + 1);
}

#[test]
fn a_request_that_waits_for_the_store_at_sigterm_is_answered_and_its_connection_closes() {
    let server = RedisServer::start();
    let proxy = FaultProxy::in_front_of(([127, 0, 0, 1], server.port()).into());
    let setup = Setup::new().with_redis(&server);
    setup.cli(&["store", "init"]).expect(0);
    let url = format!("redis://{}", proxy.address);
    let mut gateway = setup.set_text("store.url", &url).set_text("store.deadline", "2s").start();
    let key = gateway.create_active_key("acme", &[]);
    proxy.set_response_fault(Fault::Blackhole);
    let mut connection = gateway.connect();
    connection.send(&get("/v1/usage").key(&key).to_bytes());
    wait_until("the request waits", || {
        gateway.sum_of_samples("riskgate_requests_in_flight", &[]) == 1.0
    });
    gateway.send_signal("TERM");
    let answer = connection.read_response().expect("an answer").expect(200);
    assert_eq!(answer.header("Connection"), Some("close"));
    assert!(connection.ends_without_more_bytes());
    gateway.wait_for_exit();
}

#[test]
fn a_keepalive_connection_gets_one_more_response_during_a_drain() {
    let slow = MockUpstream::with_script(|_| {
        vec![Step::Trickle(
            response_bytes(200, "", "the response arrives late but complete"),
            Duration::from_millis(15),
        )]
    });
    let setup = Setup::new().with_upstreams(&[slow.address]).set_text("drain.delay", "3s");
    let mut gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    let mut connection = gateway.connect();
    connection.send(&get("/v1/check/a@b.com").key(&key).to_bytes());
    wait_until("the request reached the upstream", || slow.request_count() == 1);
    gateway.send_signal("TERM");
    wait_until("it drains", || gateway.readyz().status == 503);
    let answer = connection.read_response().expect("an answer").expect(200);
    if answer.header("Connection") != Some("close") {
        let last = connection.send_request(&get("/v1/usage").key(&key)).expect(200);
        assert_eq!(last.header("Connection"), Some("close"));
    }
    assert!(connection.ends_without_more_bytes());
    assert_eq!(gateway.wait_for_exit().code(), Some(0), "{}", gateway.stderr());
}

#[test]
fn during_drain_delay_readyz_says_503_and_new_connections_are_served() {
    let mut gateway = Setup::new().set_text("drain.delay", "3s").start();
    let key = gateway.create_active_key("acme", &[]);
    let mut kept = gateway.connect();
    kept.send_request(&get("/v1/usage").key(&key)).expect(200);
    gateway.send_signal("TERM");
    wait_until("/readyz says 503", || gateway.readyz().status == 503);
    assert_eq!(gateway.readyz().json()["draining"], true);
    let fresh = gateway.get("/v1/usage", &key).expect(200);
    assert_eq!(fresh.header("Connection"), Some("close"));
    if let Some(answer) = kept.try_send_request(&get("/v1/usage").key(&key)) {
        assert_eq!((answer.status, answer.header("Connection")), (200, Some("close")));
    }
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
    assert!(std::net::TcpStream::connect(gateway.http).is_err());
}

#[test]
fn a_log_that_is_rotated_during_a_drain_loses_no_line() {
    // An upstream server that answers when the test says so.
    let upstream = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let setup = Setup::new().with_upstreams(&[upstream.local_addr().unwrap()]);
    let setup = setup.set_text("drain.delay", "3s").set_text("upstream.deadline", "15s");
    let mut gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    let mut connection = gateway.connect();
    connection.send(&get("/v1/check/a@b.com").key(&key).to_bytes());
    let (mut exchange, _) = upstream.accept().unwrap();
    assert!(exchange.read(&mut [0; 4_096]).unwrap() > 0);
    let rotate = |number: u32| {
        let log = gateway.path("access.log");
        std::fs::rename(&log, gateway.path(&format!("access.log.{number}"))).unwrap();
        gateway.send_signal("HUP");
        wait_until("the log is opened again", || log.exists());
    };
    gateway.send_signal("TERM");
    wait_until("it drains", || gateway.stderr().contains("SIGTERM: drains"));
    rotate(1);
    wait_until("the listeners are closed", || std::net::TcpStream::connect(gateway.http).is_err());
    rotate(2);
    exchange.write_all(&response_bytes(200, "", "late")).unwrap();
    assert_eq!(connection.read_response().expect("an answer").expect(200).text(), "late");
    assert_eq!(gateway.wait_for_exit().code(), Some(0), "{}", gateway.stderr());
    let log = gateway.read_access_log();
    assert!(log.len() == 1 && log[0]["route"] == "check", "{log:?}");
}

#[test]
fn connections_without_a_whole_request_header_do_not_hold_up_the_end() {
    let setup = Setup::new();
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let certificate = authority.issue_certificate("first", "DNS:gate.test");
    let mut gateway = setup.with_certificates(&[certificate]).start();
    let (http, https) = (gateway.http, gateway.https_address());
    let half = |address, bytes: &[u8]| {
        let mut connection = Connection::open(address);
        connection.send(bytes);
        connection
    };
    let tcp = std::net::TcpStream::connect(https).unwrap();
    let without_preface =
        authority.try_tls_handshake(https, "gate.test", rustls::ALL_VERSIONS, &["h2"], tcp);
    let open = [
        half(http, b"GET /v1/usage HTTP/1.1\r\nHost: a\r\n"),
        half(https, b"\x16\x03\x01\x02\x00\x01\x00"),
    ];
    wait_until("they are open", || gateway.sum_of_samples("riskgate_connections", &[]) >= 3.0);
    let begun = Instant::now();
    gateway.send_signal("TERM");
    assert_eq!(gateway.wait_for_exit().code(), Some(0), "{}", gateway.stderr());
    assert!(begun.elapsed() < IMMEDIATE_STOP_LIMIT, "{:?}", begun.elapsed());
    drop((open, without_preface.expect("a handshake")));
}

#[test]
fn a_drain_ends_after_drain_grace_even_with_a_request_in_flight() {
    let silent = MockUpstream::with_script(|_| vec![Step::StaySilent]);
    let setup = Setup::new().with_upstreams(&[silent.address]).set_text("drain.grace", "1s");
    let mut gateway = setup.set_text("upstream.deadline", "15s").start();
    let key = gateway.create_active_key("acme", &[]);
    let mut connection = gateway.connect();
    connection.send(&get("/v1/check/a@b.com").key(&key).to_bytes());
    wait_until("the request reached the upstream", || silent.request_count() == 1);
    let begun = Instant::now();
    gateway.send_signal("TERM");
    gateway.wait_for_exit();
    // Pingora gives its tasks a second more. The server would have 15.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let log = gateway.stderr();
    assert!(log.contains("warn: ended ") && log.contains(": 1 request was cut"), "{log}");
    assert_eq!(log.matches(" ended ").count(), 1, "{log}");
    assert!(!log.contains("was not flushed"), "{log}");
}

#[test]
fn sigquit_without_a_successor_is_refused_and_sighup_reloads() {
    let mut gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &[]);
    gateway.send_signal("QUIT");
    wait_until("riskgate reports the refusal", || gateway.stderr().contains("successor"));
    gateway.send_signal("HUP");
    wait_until("the reload was done", || {
        gateway.sum_of_samples("riskgate_reloads_total", &["part=\"table\"", "outcome=\"ok\""])
            >= 1.0
    });
    assert!(gateway.exit_status().is_none());
    gateway.get_domain("first.test", &key).expect(200);
}

#[test]
fn run_fails_if_another_gateway_has_its_port() {
    let gateway = Setup::new().start();
    let setup = Setup::new().set_text("listen.http", &gateway.http.to_string());
    let setup = setup.set_text("listen.admin", "127.0.0.1:0");
    let ran = setup.cli(&["run"]).expect(1);
    assert!(
        ran.stderr.contains(&format!("expected to listen on {}", gateway.http)),
        "{}",
        ran.stderr
    );
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
}

#[test]
fn calls_are_served_and_counted_while_commands_write_to_the_store() {
    let gateway = Setup::new().set("plans.free", "1000000000").start();
    let key = gateway.create_active_key("acme", &[]);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for at in 0..10 {
                gateway.create_key(&format!("other-{at}"), &[]);
            }
        });
        let mut connection = gateway.connect();
        let mut calls = 0;
        while !writer.is_finished() || calls == 0 {
            connection.send_request(&get("/v1/public/domain/first.test").key(&key)).expect(200);
            calls += 1;
        }
        writer.join().unwrap();
        assert_eq!(gateway.get_month_count(&key), calls);
    });
}

#[test]
fn the_three_curl_lines_of_the_demo_work_and_the_demo_removes_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let demo = Demo::start(folder.path());
    let pasted = demo.curl_lines();
    assert_eq!(pasted.len(), 3);
    let shell = |line: &str| {
        let ran = run_command(Command::new("sh").args(["-c", line]));
        assert_eq!(ran.exit_code, 0, "curl is needed here: {line}\n{}", ran.stderr);
        serde_json::from_str::<serde_json::Value>(&ran.stdout)
            .unwrap_or_else(|e| panic!("{e}: {line}: {}", ran.stdout))
    };
    let answers: Vec<_> = pasted.iter().map(|line| shell(line)).collect();
    assert_eq!(
        (&answers[0]["domain"], &answers[0]["risk_score"]),
        (&"yopmail.com".into(), &100.into())
    );
    assert_eq!(answers[1]["count"], 100);
    assert_eq!(answers[2]["email"], "j****@example.org");
    assert!(answers.iter().all(|answer| answer.get("error").is_none()), "{answers:?}");
    let entries = || std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(entries(), 1, "only its own folder");
    demo.interrupt();
    assert_eq!(entries(), 0, "the demo's store is removed");
}

#[test]
fn a_second_demo_runs_beside_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let (first, second) = (Demo::start(folder.path()), Demo::start(folder.path()));
    let (one, two) = (first.curl_lines()[0], second.curl_lines()[0]);
    assert_ne!(one, two);
    for line in [one, two] {
        let ran = run_command(Command::new("sh").args(["-c", line])).expect(0);
        assert!(ran.stdout.contains("yopmail.com"), "{line}: {}", ran.stdout);
    }
    assert!(begun.elapsed() < TEST_TIMEOUT * 2);
}
