//! The process: how it ends, what it finishes first, what it leaves behind, and the demo.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::harness::{
    BINARY, PATIENCE, Setup, StandIn, Step, USED, answer, get, run, until, until_true,
};

/// Longer than it takes to end at once, shorter than any grace.
const AT_ONCE: Duration = Duration::from_secs(5);

#[test]
fn sigterm_ends_an_idle_gateway_at_once_with_0() {
    let mut gateway = Setup::new().start();
    let key = gateway.key("acme", &[]);
    gateway.domain("first.test", &key).expect(200);
    // A kept connection on which nothing happens is idle too.
    let mut idle = gateway.connect();
    idle.ask(&get("/v1/usage").key(&key)).expect(200);
    let begun = Instant::now();
    gateway.signal("TERM");
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.stderr());
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    assert!(idle.is_closed());
}

#[test]
fn connections_that_never_said_a_word_hold_up_no_end() {
    let setups = [Setup::new(), Setup::new().set("listen.h2c", "true")];
    for mut gateway in setups.map(Setup::start) {
        let mut silent = gateway.connect();
        until_true("it is there", || gateway.metric("riskgate_connections", &[]) >= 1.0);
        let begun = Instant::now();
        gateway.signal("TERM");
        assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.stderr());
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
        assert!(silent.is_closed());
    }
}

#[test]
fn a_signal_is_heard_as_soon_as_the_process_says_that_it_serves() {
    let setup = Setup::new();
    let setup = setup.text("listen.http", "127.0.0.1:0").text("listen.admin", "127.0.0.1:0");
    let config = setup.write();
    for name in ["QUIT", "TERM", "QUIT", "TERM", "QUIT", "TERM"] {
        let child = Command::new(BINARY)
            .args(["run", "-c"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut child = Running(child);
        let lines = BufReader::new(child.0.stderr.take().unwrap()).lines();
        let (said, heard) = mpsc::channel();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| said.send(line))
        });
        let says = |words: &str| {
            let next = || heard.recv_timeout(PATIENCE).ok();
            let said = std::iter::from_fn(next).any(|line| line.contains(words));
            assert!(said, "{name}: it does not say {words}");
        };
        let send = |name: &str| {
            let kill = format!("kill -{name} {}", child.0.id());
            assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        };
        says(" on http://");
        send(name);
        if name == "QUIT" {
            says("serving on");
            send("TERM");
        }
        let ended = until("it has ended", || child.0.try_wait().unwrap());
        assert_eq!(ended.code(), Some(0), "{name}");
    }
}

#[test]
fn sigint_ends_the_gateway_and_keeps_its_counts() {
    let gateway = Setup::new().start();
    let key = gateway.key("acme", &[]);
    for _ in 0..7 {
        gateway.domain("first.test", &key).expect(200);
    }
    let mut gateway = gateway;
    gateway.signal("INT");
    gateway.wait();
    let gateway = gateway.start_again();
    assert_eq!(gateway.month_count(&key), 7);
}

#[test]
fn sigterm_lets_what_is_in_flight_finish() {
    let slow = StandIn::playing(|_| {
        vec![Step::Trickle(answer(200, "", "late but whole"), Duration::from_millis(15))]
    });
    let mut gateway = Setup::new().upstream(&[slow.address]).set("plans.free", "1000000").start();
    let key = gateway.key_in_use("acme");
    let mut connection = gateway.connect();
    connection.send(&get("/v1/check/a@b.com").key(&key).bytes());
    until_true("the request reached the upstream", || slow.count() == 1);
    gateway.signal("TERM");
    let answer = connection.read().expect("an answer").expect(200);
    assert!(answer.complete);
    assert_eq!(answer.text(), "late but whole");
    assert_eq!(answer.header("Connection"), Some("close"));
    assert!(connection.is_closed(), "a process that ends keeps no connection");
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.stderr());
    let gateway = gateway.start_again();
    assert_eq!(gateway.month_count(&key), USED + 1);
}

#[test]
fn a_connection_that_was_told_it_stays_is_answered_once_more_in_a_drain() {
    let slow = StandIn::playing(|_| {
        vec![Step::Trickle(answer(200, "", "late but whole"), Duration::from_millis(15))]
    });
    let setup = Setup::new().upstream(&[slow.address]).text("drain.delay", "3s");
    let mut gateway = setup.start();
    let key = gateway.key("acme", &[]);
    let mut connection = gateway.connect();
    connection.send(&get("/v1/check/a@b.com").key(&key).bytes());
    until_true("the request reached the upstream", || slow.count() == 1);
    gateway.signal("TERM");
    until_true("it drains", || gateway.readyz().status == 503);
    let answer = connection.read().expect("an answer").expect(200);
    if answer.header("Connection") != Some("close") {
        let last = connection.ask(&get("/v1/usage").key(&key)).expect(200);
        assert_eq!(last.header("Connection"), Some("close"));
    }
    assert!(connection.is_closed());
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.stderr());
}

#[test]
fn a_drain_says_so_and_accepts_for_its_delay() {
    let mut gateway = Setup::new().text("drain.delay", "3s").start();
    let key = gateway.key("acme", &[]);
    let mut kept = gateway.connect();
    kept.ask(&get("/v1/usage").key(&key)).expect(200);
    gateway.signal("TERM");
    until_true("/readyz says 503", || gateway.readyz().status == 503);
    assert_eq!(gateway.readyz().json()["draining"], true);
    let fresh = gateway.get("/v1/usage", &key).expect(200);
    assert_eq!(fresh.header("Connection"), Some("close"));
    if let Some(answer) = kept.try_ask(&get("/v1/usage").key(&key)) {
        assert_eq!((answer.status, answer.header("Connection")), (200, Some("close")));
    }
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(std::net::TcpStream::connect(gateway.http).is_err());
}

#[test]
fn a_drain_ends_after_its_grace_whatever_is_in_flight() {
    let silent = StandIn::playing(|_| vec![Step::Silence]);
    let setup = Setup::new().upstream(&[silent.address]).text("drain.grace", "1s");
    let mut gateway = setup.text("upstream.deadline", "15s").start();
    let key = gateway.key("acme", &[]);
    let mut connection = gateway.connect();
    connection.send(&get("/v1/check/a@b.com").key(&key).bytes());
    until_true("the request reached the upstream", || silent.count() == 1);
    let begun = Instant::now();
    gateway.signal("TERM");
    gateway.wait();
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
}

#[test]
fn sigquit_without_a_successor_is_refused_and_sighup_reloads() {
    let mut gateway = Setup::new().start();
    let key = gateway.key("acme", &[]);
    gateway.signal("QUIT");
    until_true("the refusal is told", || gateway.stderr().contains("successor"));
    gateway.signal("HUP");
    until_true("the reload was done", || {
        gateway.metric("riskgate_reload_total", &["part=\"table\"", "outcome=\"ok\""]) >= 1.0
    });
    assert!(gateway.has_ended().is_none());
    gateway.domain("first.test", &key).expect(200);
}

#[test]
fn two_gateways_do_not_share_a_port() {
    let gateway = Setup::new().start();
    let setup = Setup::new().text("listen.http", &gateway.http.to_string());
    let setup = setup.text("listen.admin", "127.0.0.1:0");
    let ran = setup.cli(&["run"]).expect(1);
    assert!(
        ran.stderr.contains(&format!("expected to listen on {}", gateway.http)),
        "{}",
        ran.stderr
    );
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
}

#[test]
fn calls_go_on_while_the_command_line_writes_to_the_store() {
    let gateway = Setup::new().set("plans.free", "1000000000").start();
    let key = gateway.key("acme", &[]);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for at in 0..10 {
                gateway.create_key(&format!("other-{at}"), &[]);
            }
        });
        let mut connection = gateway.connect();
        let mut calls = 0;
        while !writer.is_finished() || calls == 0 {
            connection.ask(&get("/v1/public/domain/first.test").key(&key)).expect(200);
            calls += 1;
        }
        writer.join().unwrap();
        assert_eq!(gateway.month_count(&key), calls);
    });
}

/// A process that runs; dropped, it is killed.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_three_lines_of_the_demo_work_as_pasted_and_it_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Running(
        Command::new(BINARY)
            .arg("demo")
            .current_dir(folder.path())
            .env("TMPDIR", folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let lines = BufReader::new(demo.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let pasted: Vec<String> = lines.filter(|line| line.starts_with("curl ")).take(3).collect();
    assert_eq!(pasted.len(), 3);
    let shell = |line: &str| {
        let ran = run(Command::new("sh").args(["-c", line]));
        assert_eq!(ran.code, 0, "curl is needed here: {line}\n{}", ran.stderr);
        serde_json::from_str::<serde_json::Value>(&ran.stdout)
            .unwrap_or_else(|e| panic!("{e}: {line}: {}", ran.stdout))
    };
    let answers: Vec<_> = pasted.iter().map(|line| shell(line)).collect();
    assert_eq!(
        (&answers[0]["domain"], &answers[0]["risk_score"]),
        (&"yopmail.com".into(), &100.into())
    );
    assert_eq!(answers[1]["count"], 100);
    assert_eq!(answers[2]["email"], "****@example.org");
    assert!(answers.iter().all(|answer| answer.get("error").is_none()), "{answers:?}");
    let entries = || std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(entries(), 1, "only its own folder");
    let stop = format!("kill -INT {}", demo.0.id());
    assert!(Command::new("sh").args(["-c", &stop]).status().unwrap().success());
    until("the demo has ended", || demo.0.try_wait().unwrap());
    assert_eq!(entries(), 0, "its store is removed");
}

#[test]
fn a_second_demo_runs_beside_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let mut child = Command::new(BINARY)
            .arg("demo")
            .env("TMPDIR", folder.path())
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let line = out.lines().map_while(Result::ok).find(|line| line.starts_with("curl "));
        (Running(child), line.expect("a line to paste"))
    };
    let begun = Instant::now();
    let (_first, one) = start();
    let (_second, two) = start();
    assert_ne!(one, two);
    for line in [one, two] {
        let ran = run(Command::new("sh").args(["-c", &line])).expect(0);
        assert!(ran.stdout.contains("yopmail.com"), "{line}: {}", ran.stdout);
    }
    assert!(begun.elapsed() < PATIENCE * 2);
}
