//! The tests give the gateway just enough memory. Clients that use all connections must neither end
//! the process nor block other clients. riskgate must refuse files that are far too large.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{
    Gateway, LoadGenerator, MockUpstream, SetOnDrop, Setup, Step, TEST_TIMEOUT, response_bytes,
    run_command, wait_until,
};

const DOMAIN: &str = "/v1/public/domain/first.test";
const MAX_CONNECTIONS: usize = 400;
const MAX_EXCHANGES: usize = 50;
/// How long a flood keeps a connection at least.
const KEPT_FOR: Duration = Duration::from_secs(3);
/// The anonymous memory that the process may use, including stacks; see docs/operations.md.
const DATA_LIMIT_OPTION: &str = "--data=192000000";

/// What clients can make a gateway buffer, each at its largest size.
#[derive(Clone, Copy)]
enum FloodKind {
    /// A header without its end.
    Headers,
    /// A body without its end.
    Bodies,
    /// A body without its last byte, short enough that riskgate buffers it.
    ShortBodies,
    /// Responses that the client does not read.
    Answers,
}

impl FloodKind {
    fn request_bytes(self, key: &str) -> Vec<u8> {
        let fields = format!("X-Field: {}\r\n", "a".repeat(970)).repeat(16);
        let own = format!("Host: a\r\nAuthorization: Bearer {key}\r\n");
        let body = "b".repeat(128 << 10);
        let text = match self {
            FloodKind::Headers => format!("GET {DOMAIN} HTTP/1.1\r\n{own}{fields}"),
            FloodKind::Bodies => {
                format!("POST /v1/signup HTTP/1.1\r\n{own}Content-Length: 1048576\r\n\r\n{body}")
            }
            FloodKind::ShortBodies => {
                let body = "b".repeat((64 << 10) - 1);
                format!("POST /v1/signup HTTP/1.1\r\n{own}Content-Length: 65536\r\n\r\n{body}")
            }
            FloodKind::Answers => format!("GET /v1/check/a@b.com HTTP/1.1\r\n{own}\r\n"),
        };
        text.into_bytes()
    }

    /// Opens connections continuously, and keeps the last ones open, each long enough that also a
    /// gateway without much processor time accepts it.
    fn run_flood(self, gateway: &Gateway, key: &str, is_over: &AtomicBool) {
        let bytes = self.request_bytes(key);
        let mut kept = VecDeque::new();
        while !is_over.load(Ordering::Relaxed) {
            let Ok(mut stream) = TcpStream::connect(gateway.http) else { continue };
            stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            // The gateway may refuse the connection.
            let _ = stream.write_all(&bytes);
            kept.push_back((Instant::now(), stream));
            while kept.len() > MAX_CONNECTIONS && !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
                if kept.front().is_some_and(|(opened_at, _)| opened_at.elapsed() > KEPT_FOR) {
                    kept.pop_front();
                }
            }
        }
    }
}

/// Starts a gateway with a compiled table under the memory limit, and creates a key.
fn start_gateway_with_key(upstream: &MockUpstream) -> (Gateway, String) {
    let route = "[[upstream.route]]\nprefix = \"/v1/signup\"\nmethods = [\"POST\"]\n";
    let setup = Setup::new().with_upstreams(&[upstream.address]).append_toml(route);
    let setup = setup.set("listen.max_connections", &MAX_CONNECTIONS.to_string());
    let setup = setup.set("upstream.max_in_flight", &MAX_EXCHANGES.to_string());
    let setup = setup.set("plans.free", "10000000").run_under(&["prlimit", DATA_LIMIT_OPTION]);
    let keys = setup.path("keys.toml");
    std::fs::write(&keys, "# None.\n").unwrap();
    let table = setup.path("built.table");
    let mut build = std::process::Command::new(crate::harness::BINARY);
    build.args(["table", "build"]).arg(setup.path("lists")).arg("-o").arg(&table);
    run_command(&mut build).expect(0);
    let setup = setup.set_text("keys.file", keys.to_str().unwrap());
    let gateway = setup.set_text("table.path", table.to_str().unwrap()).start();
    let key = gateway.create_active_key("acme", &[]);
    (gateway, key)
}

/// The line of `/proc/PID/status` that begins with this name, such as `VmData:   1234 kB`.
fn proc_status_line(gateway: &Gateway, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    status.lines().find(|line| line.starts_with(name)).unwrap().to_owned()
}

#[test]
fn with_limited_memory_a_flood_at_the_connection_limits_fails_no_other_client() {
    let large = "x".repeat(2 << 20);
    let upstream =
        MockUpstream::with_script(move |seen| match seen.request_line().contains("/v1/check/") {
            true => vec![Step::Send(response_bytes(200, "", &large))],
            false => vec![Step::Send(response_bytes(200, "", "{}"))],
        });
    let (gateway, key) = start_gateway_with_key(&upstream);
    let other = gateway.create_active_key("other", &[]);
    println!("before: {}", proc_status_line(&gateway, "VmData"));
    let clients = LoadGenerator::new(DOMAIN, &key).with_pause(Duration::from_millis(2));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop_guard = (clients.stop_on_drop(), SetOnDrop(&is_over));
        clients.spawn_clients(scope, gateway.http, 2);
        wait_until("calls are under way", || clients.response_counts().admitted > 20);
        for flood in
            [FloodKind::Headers, FloodKind::Bodies, FloodKind::ShortBodies, FloodKind::Answers]
        {
            let (gateway, key, is_over) = (&gateway, &other, &is_over);
            scope.spawn(move || flood.run_flood(gateway, key, is_over));
        }
        wait_until("connections are turned away", || {
            gateway.sum_of_samples("riskgate_connections_rejected_total", &[]) > 100.0
        });
        let before = clients.response_counts();
        wait_until("others are served", || {
            clients.response_counts().admitted > before.admitted + 200
        });
        println!(
            "in the flood: {}, {}",
            proc_status_line(&gateway, "VmData"),
            proc_status_line(&gateway, "VmRSS")
        );
    });
    println!("{:?} {:?}", clients.response_counts(), clients.latency_p99_and_max());
    assert_eq!(
        (clients.response_counts().internal_errors, clients.response_counts().unknown),
        (0, 0)
    );
    assert!(
        clients.latency_p99_and_max().1 < TEST_TIMEOUT / 2,
        "{:?}",
        clients.latency_p99_and_max()
    );
    wait_until("the connections of the flood are closed", || {
        gateway.sum_of_samples("riskgate_connections", &[]) <= 1.0
    });
    assert_eq!(gateway.sum_of_samples("riskgate_panics_total", &[]), 0.0);
    gateway.get_domain("first.test", &key).expect(200);
    gateway.restart().get_domain("first.test", &key).expect(200);
}

#[test]
fn with_limited_memory_a_reload_refuses_far_too_large_files() {
    let (gateway, key) = start_gateway_with_key(&MockUpstream::start());
    let fails = |part: &str| gateway.sum_of_samples("riskgate_reload_failing", &[part]) == 1.0;
    let table = std::fs::read(gateway.path("built.table")).unwrap();
    let swap = |name: &str, bytes: &[u8], length: u64| {
        let beside = gateway.path("beside");
        std::fs::write(&beside, bytes).unwrap();
        // The sparse rest of the file takes no disk space.
        File::options().write(true).open(&beside).unwrap().set_len(length).unwrap();
        std::fs::rename(&beside, gateway.path(name)).unwrap();
    };
    // First the file is larger than riskgate ever reads.
    for (length, words) in [(2 << 30, "at most"), (900 << 20, "out of memory")] {
        swap("built.table", &table, length);
        wait_until("it is refused", || fails("table") && gateway.stderr().contains(words));
    }
    swap("keys.toml", b"", 1 << 30);
    wait_until("it is refused", || fails("keys"));
    gateway.get_domain("first.test", &key).expect(200);
    assert_eq!(gateway.readyz().status, 200);
    // The next files load.
    swap("keys.toml", b"# None.\n", 8);
    wait_until("the keys are accepted", || !fails("keys"));
    swap("built.table", &table, table.len() as u64);
    wait_until("a table is accepted", || !fails("table"));
}
