//! riskgate still serves with too few file descriptors, while clients make it use memory, and while
//! nothing reads its access log.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{
    Connection, Gateway, LoadGenerator, MockUpstream, SetOnDrop, Setup, Step, get, response_bytes,
    run_command, wait_until,
};

const DOMAIN: &str = "/v1/public/domain/first.test";

/// Sets the number of file descriptors that the process may have.
fn limit_descriptors(gateway: &Gateway, most: usize) {
    let (pid, limit) = (gateway.pid().to_string(), format!("--nofile={most}:{most}"));
    run_command(Command::new("prlimit").args(["--pid", &pid, &limit])).expect(0);
}

#[test]
fn without_free_descriptors_earlier_connections_are_still_served() {
    let upstream = MockUpstream::start();
    let setup = Setup::new().with_upstreams(&[upstream.address]).set("plans.free", "1000000");
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    let mut first = gateway.connect();
    first.send_request(&get("/v1/check/a@b.com").key(&key)).expect(200);
    let spare = 20;
    limit_descriptors(&gateway, gateway.open_descriptor_count() + spare);
    let clients: Vec<Connection> =
        (0..200).filter_map(|_| Connection::try_open(gateway.http)).collect();
    assert!(clients.len() > spare);
    for _ in 0..50 {
        first.send_request(&get(DOMAIN).key(&key)).expect(200);
        // riskgate keeps its upstream connection.
        first.send_request(&get("/v1/check/a@b.com").key(&key)).expect(200);
    }
    drop(clients);
    wait_until("others are served again", || {
        Connection::try_open(gateway.http)
            .and_then(|mut connection| connection.try_send_request(&get(DOMAIN).key(&key)))
            .is_some_and(|answer| answer.status == 200)
    });
    assert_eq!(gateway.get_month_count(&key), upstream.request_count() as u64 + 51);
    assert_eq!(gateway.sum_of_samples("riskgate_panics_total", &[]), 0.0);
    gateway.restart().get(DOMAIN, &key).expect(200);
}

/// Kinds of requests that a gateway must buffer for a while.
#[derive(Clone, Copy, PartialEq)]
enum FloodKind {
    /// A header that exceeds the limit.
    LargeHeaders,
    /// A header that never ends.
    UnfinishedHeaders,
    /// A body of which most bytes never arrive.
    UnfinishedBodies,
}

impl FloodKind {
    fn request_bytes(self, key: &str) -> Vec<u8> {
        let value = "a".repeat(900);
        let fields: String = (0..16).map(|at| format!("X-Field-{at}: {value}\r\n")).collect();
        let bytes = match self {
            FloodKind::LargeHeaders => {
                format!("GET {DOMAIN} HTTP/1.1\r\nHost: a\r\n{fields}{fields}\r\n")
            }
            FloodKind::UnfinishedHeaders => format!("GET {DOMAIN} HTTP/1.1\r\nHost: a\r\n{fields}"),
            FloodKind::UnfinishedBodies => format!(
                "POST /v1/signup HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\
                 Content-Length: 1048576\r\n\r\n{}",
                "b".repeat(64 * 1024)
            ),
        };
        bytes.into_bytes()
    }

    /// Opens connections continuously, and keeps the last hundred open.
    fn run_flood(self, gateway: SocketAddr, key: &str, is_over: &AtomicBool) {
        let bytes = self.request_bytes(key);
        let mut kept = VecDeque::new();
        while !is_over.load(Ordering::Relaxed) {
            let Some(mut connection) = Connection::try_open(gateway) else { continue };
            connection.try_send(&bytes);
            kept.push_back(connection);
            if kept.len() > 100 {
                kept.pop_front();
                // The others need some of the processor too.
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

#[test]
fn a_flood_of_headers_and_bodies_takes_less_than_128_mib() {
    const KIB_PER_MIB: u64 = 1_024;
    let upstream = MockUpstream::start();
    let route = "[[upstream.route]]\nprefix = \"/v1/signup\"\nmethods = [\"POST\"]\n";
    let setup = Setup::new().with_upstreams(&[upstream.address]).append_toml(route);
    let gateway = setup.set("plans.free", "1000000").set("log.access", "false").start();
    let key = gateway.create_active_key("acme", &[]);
    let clients = LoadGenerator::new(DOMAIN, &key).with_pause(Duration::from_millis(2));
    let is_over = AtomicBool::new(false);
    let before = gateway.peak_memory_kib();
    std::thread::scope(|scope| {
        let _stop_guard = (clients.stop_on_drop(), SetOnDrop(&is_over));
        clients.spawn_clients(scope, gateway.http, 2);
        for flood in
            [FloodKind::LargeHeaders, FloodKind::UnfinishedHeaders, FloodKind::UnfinishedBodies]
        {
            let (address, key, is_over) = (gateway.http, &key, &is_over);
            scope.spawn(move || flood.run_flood(address, key, is_over));
        }
        wait_until("the flood is high", || {
            gateway.sum_of_samples("riskgate_connections", &[]) > 150.0
                && gateway.sum_of_samples("riskgate_requests_total", &["headers_too_large"]) > 100.0
                && clients.response_counts().admitted > 20
        });
    });
    let grown = gateway.peak_memory_kib() - before;
    println!(
        "{before} KiB, and {grown} more; {:?} {:?}",
        clients.response_counts(),
        clients.latency_p99_and_max()
    );
    assert!(grown < 128 * KIB_PER_MIB, "{grown} KiB");
    assert_eq!(
        (clients.response_counts().internal_errors, clients.response_counts().unknown),
        (0, 0)
    );
    wait_until("the connections of the flood are closed", || {
        gateway.sum_of_samples("riskgate_connections", &[]) <= 1.0
    });
    gateway.get(DOMAIN, &key).expect(200);
}

/// A named pipe, held open by a reader that never reads.
fn create_unread_pipe(setup: &Setup) -> (String, std::fs::File) {
    let path = setup.path("pipe");
    run_command(Command::new("mkfifo").arg(&path)).expect(0);
    let reader = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&path)
        .unwrap();
    (path.display().to_string(), reader)
}

/// Writes far more lines than the pipe holds, then stops the process in time. Returns the number of
/// dropped lines.
fn overflow_log_and_shut_down(setup: Setup) -> f64 {
    let mut gateway = setup.set("plans.free", "1000000").start();
    let key = gateway.create_active_key("acme", &[]);
    let mut connection = gateway.connect();
    for _ in 0..1_500 {
        connection.send_request(&get(DOMAIN).key(&key)).expect(200);
    }
    let dropped = gateway.sum_of_samples("riskgate_access_log_lines_dropped_total", &[]);
    let begun = Instant::now();
    gateway.send_signal("TERM");
    assert_eq!(gateway.wait_for_exit().code(), Some(0), "{}", gateway.stderr());
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(gateway.start_after_exit().get_month_count(&key), 1_500);
    dropped
}

#[test]
fn an_unread_access_log_pipe_delays_no_request_and_no_stop() {
    let setup = Setup::new();
    let (path, _reader) = create_unread_pipe(&setup);
    let dropped = overflow_log_and_shut_down(setup.set_text("log.path", &path));
    assert!(dropped > 500.0, "{dropped}");
}

#[test]
fn run_refuses_an_access_log_pipe_without_a_reader() {
    let setup = Setup::new();
    let (path, reader) = create_unread_pipe(&setup);
    drop(reader);
    let ran =
        setup.set_text("log.path", &path).run_under(&["timeout", "20"]).cli(&["run"]).expect(78);
    assert!(ran.stderr.contains("log.path: expected a file to append to"), "{}", ran.stderr);
}

#[test]
fn an_access_log_to_an_unread_stdout_delays_no_request_and_no_stop() {
    let setup = Setup::new();
    let (path, _reader) = create_unread_pipe(&setup);
    let script = format!("[ \"$2\" != run ] || exec >>{path}; exec \"$@\"");
    let setup = setup.unset("log.path").run_under(&["sh", "-c", &script, "sh"]);
    overflow_log_and_shut_down(setup);
}

#[test]
fn run_refuses_a_limit_of_63_descriptors_and_starts_with_64() {
    let expected = "limit of open files: expected at least 64, but found 63";
    let ran = Setup::new().run_under(&["timeout", "20", "prlimit", "--nofile=63:63"]).cli(&["run"]);
    assert!(ran.expect(78).stderr.contains(expected));
    let gateway = Setup::new().run_under(&["prlimit", "--nofile=64:64"]).start();
    let key = gateway.create_active_key("acme", &[]);
    gateway.get(DOMAIN, &key).expect(200);
}

#[test]
fn with_64_descriptors_a_flood_leaves_the_admin_listener_reachable() {
    let setup = Setup::new().set("listen.threads", "2");
    let gateway = setup.run_under(&["prlimit", "--nofile=64:64"]).start();
    let key = gateway.create_active_key("acme", &[]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop_guard = SetOnDrop(&is_over);
        for _ in 0..3 {
            scope.spawn(|| {
                let mut kept = VecDeque::new();
                while !is_over.load(Ordering::Relaxed) {
                    kept.extend(Connection::try_open(gateway.http));
                    if kept.len() > 100 {
                        kept.pop_front();
                    }
                }
            });
        }
        for _ in 0..100 {
            get("/readyz").send(gateway.admin).expect(200);
        }
    });
    wait_until("clients are served again", || {
        Connection::try_open(gateway.http)
            .and_then(|mut connection| connection.try_send_request(&get(DOMAIN).key(&key)))
            .is_some_and(|answer| answer.status == 200)
    });
}

#[test]
fn many_clients_leave_descriptors_for_the_upstream_the_store_and_reloads() {
    // The upstream server closes each connection, so every exchange needs a new descriptor.
    let closing = MockUpstream::with_script(|_| {
        vec![Step::Send(response_bytes(200, "Connection: close\r\n", "{}")), Step::Close]
    });
    let setup = Setup::new().with_upstreams(&[closing.address]).set("plans.free", "1000000");
    let gateway = setup.run_under(&["prlimit", "--nofile=256:256"]).start();
    wait_until("it is told", || gateway.stderr().contains("the limit of open files leaves"));
    let key = gateway.create_active_key("acme", &[]);
    let mut first = gateway.connect();
    first.send_request(&get("/v1/usage").key(&key)).expect(200);
    let clients: Vec<Connection> =
        (0..300).filter_map(|_| Connection::try_open(gateway.http)).collect();
    wait_until("all connections are in use", || {
        gateway.sum_of_samples("riskgate_connections_rejected_total", &[]) > 100.0
    });
    for _ in 0..50 {
        first.send_request(&get("/v1/check/a@b.com").key(&key)).expect(200);
    }
    // The store and the files can still be opened.
    gateway.create_key("other", &[]);
    gateway.send_signal("HUP");
    wait_until("it reloads", || {
        gateway.sum_of_samples("riskgate_reloads_total", &["part=\"table\"", "outcome=\"ok\""])
            >= 1.0
    });
    drop(clients);
    wait_until("others are served again", || {
        Connection::try_open(gateway.http)
            .and_then(|mut connection| connection.try_send_request(&get(DOMAIN).key(&key)))
            .is_some_and(|answer| answer.status == 200)
    });
    assert_eq!(gateway.get_month_count(&key), 51);
}
