//! A new binary takes over: nobody is refused, nothing is counted twice, and until it serves the
//! old one does.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::harness::{Connection, DoneOnDrop, Setup, StandIn, get, until_true};

const DOMAIN: &str = "/v1/public/domain/first.test";

#[test]
fn a_hand_over_under_load_refuses_nobody_and_counts_each_call_once() {
    let stand_in = StandIn::start();
    let setup = Setup::new().upstream(&[stand_in.address]).set("plans.free", "1000000");
    let mut gateway = setup.start();
    let key = gateway.key("acme", &[]);
    let address = gateway.http;
    let (done, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for client in 0..6 {
            let (key, done, answered) = (&key, &done, &answered);
            let path = if client % 2 == 0 { DOMAIN } else { "/v1/check/a@b.com" };
            scope.spawn(move || {
                let mut connection = Connection::open(address);
                while !done.load(Ordering::Relaxed) {
                    // A connection that is closed says so in its last answer: nothing is lost.
                    let answer = connection.ask(&get(path).key(key)).expect(200);
                    assert!(answer.complete);
                    answered.fetch_add(1, Ordering::SeqCst);
                    // Half of them open a connection for each call, as the hardest case.
                    if client % 3 == 0 || answer.header("Connection") == Some("close") {
                        connection = Connection::open(address);
                    }
                }
            });
        }
        let ended = DoneOnDrop(&done);
        for _ in 0..3 {
            let successor = gateway.successor();
            successor.wait_until_ready();
            gateway.signal("QUIT");
            gateway.becomes(successor);
            until_true("the successor tells that it took over", || {
                gateway.stderr().contains("took over")
            });
            let before = answered.load(Ordering::SeqCst);
            until_true("it serves", || answered.load(Ordering::SeqCst) > before + 100);
        }
        drop(ended);
    });
    assert_eq!(gateway.metric("riskgate_panics_total", &[]), 0.0);
    let gateway = gateway.restart();
    assert_eq!(gateway.month_count(&key), answered.into_inner());
}

#[test]
fn a_successor_that_fails_changes_nothing() {
    let gateway = Setup::new().start();
    let key = gateway.key("acme", &[]);
    let mut successor = gateway.successor();
    successor.wait_until_ready();
    successor.kill();
    gateway.signal("QUIT");
    until_true("the refusal is told", || gateway.stderr().contains("no successor in place"));
    gateway.domain("first.test", &key).expect(200);

    // One that is there but never takes over.
    let path = gateway.path("run/successor.sock");
    let _ = std::fs::remove_file(&path);
    let impostor = std::os::unix::net::UnixListener::bind(&path).unwrap();
    gateway.signal("QUIT");
    let (stream, _) = impostor.accept().unwrap();
    gateway.domain("first.test", &key).expect(200);
    drop(stream);
    until_true("it is told", || gateway.stderr().matches("serving on").count() == 2);
    gateway.domain("first.test", &key).expect(200);
    assert_eq!(gateway.readyz().status, 200);
}

#[test]
fn a_reload_is_no_end_for_a_successor_that_waits() {
    let mut gateway = Setup::new().start();
    let key = gateway.key("acme", &[]);
    let successor = gateway.successor();
    successor.wait_until_ready();
    successor.signal("HUP");
    gateway.signal("QUIT");
    gateway.becomes(successor);
    until_true("it took over", || gateway.stderr().contains("took over"));
    gateway.domain("first.test", &key).expect(200);
}

#[test]
fn a_successor_with_a_broken_config_ends_and_the_old_one_serves() {
    let gateway = Setup::new().start();
    let key = gateway.key("acme", &[]);
    let good = std::fs::read_to_string(&gateway.config).unwrap();
    std::fs::write(&gateway.config, good.replace("[store]", "[store]\nnonsense = 1")).unwrap();
    let mut successor = gateway.successor();
    until_true("it has ended", || successor.has_ended().is_some());
    assert_eq!(successor.has_ended().unwrap().code(), Some(78), "{}", successor.stderr());
    gateway.domain("first.test", &key).expect(200);
}

#[test]
fn with_nobody_to_take_over_from_it_starts_as_usual_and_the_folder_is_private() {
    let gateway = Setup::new().start();
    let key = gateway.key("acme", &[]);
    let folder = gateway.path("run");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("riskgate.pid"))), (0o700, 0o600));
    let pid = std::fs::read_to_string(folder.join("riskgate.pid")).unwrap();
    assert_eq!(pid.trim(), gateway.pid().to_string());
    let setup = gateway.end();
    assert_eq!(std::fs::read_to_string(folder.join("riskgate.pid")).unwrap(), "");
    let mut gateway = setup.start();
    gateway.kill();
    // The pid file of a process that was killed keeps nobody from starting.
    let mut successor = gateway.successor();
    until_true("it serves", || {
        successor.has_ended().is_none()
            && Connection::try_open(gateway.http)
                .is_some_and(|mut c| c.try_ask(&get(DOMAIN).key(&key)).is_some())
    });
    gateway.becomes(successor);
    gateway.domain("first.test", &key).expect(200);
}

#[test]
fn who_kept_a_connection_is_answered_once_more_by_the_old_one() {
    let mut gateway = Setup::new().start();
    let key = gateway.key("acme", &[]);
    let mut kept = gateway.connect();
    kept.ask(&get(DOMAIN).key(&key)).expect(200);
    let successor = gateway.successor();
    successor.wait_until_ready();
    gateway.signal("QUIT");
    until_true("the successor serves", || successor.stderr().contains("took over"));
    // Longer than what a connection that was just used is given at any other end.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let last = kept.ask(&get(DOMAIN).key(&key)).expect(200);
    assert_eq!(last.header("Connection"), Some("close"));
    assert!(kept.is_closed());
    gateway.becomes(successor);
    assert_eq!(gateway.month_count(&key), 2);
}
