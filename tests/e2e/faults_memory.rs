//! A bound of memory that is tight but enough: floods at the caps neither end the process nor keep
//! it from others, and files that are far too large are refused.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::{
    Crowd, DoneOnDrop, Gateway, PATIENCE, Setup, StandIn, Step, answer, run, until_true,
};

const DOMAIN: &str = "/v1/public/domain/first.test";
const CONNECTIONS: usize = 400;
const EXCHANGES: usize = 50;
/// What the process may have of its own, its stacks included; see docs/operations.md.
const BOUND: &str = "--data=192000000";

/// What clients can make a gateway keep, each as much as it may be.
#[derive(Clone, Copy)]
enum Flood {
    /// A header that lacks its end.
    Headers,
    /// A body that lacks its end, and one that is short enough to be taken whole.
    Bodies,
    ShortBodies,
    /// Answers that are not taken.
    Answers,
}

impl Flood {
    fn bytes(self, key: &str) -> Vec<u8> {
        let fields = format!("X-Field: {}\r\n", "a".repeat(970)).repeat(16);
        let own = format!("Host: a\r\nAuthorization: Bearer {key}\r\n");
        let body = "b".repeat(128 << 10);
        let text = match self {
            Flood::Headers => format!("GET {DOMAIN} HTTP/1.1\r\n{own}{fields}"),
            Flood::Bodies => {
                format!("POST /v1/signup HTTP/1.1\r\n{own}Content-Length: 1048576\r\n\r\n{body}")
            }
            Flood::ShortBodies => {
                let body = "b".repeat((64 << 10) - 1);
                format!("POST /v1/signup HTTP/1.1\r\n{own}Content-Length: 65536\r\n\r\n{body}")
            }
            Flood::Answers => format!("GET /v1/check/a@b.com HTTP/1.1\r\n{own}\r\n"),
        };
        text.into_bytes()
    }

    /// Comes on and on, and keeps its last connections open.
    fn rise(self, gateway: &Gateway, key: &str, is_over: &AtomicBool) {
        let bytes = self.bytes(key);
        let mut kept = VecDeque::new();
        while !is_over.load(Ordering::Relaxed) {
            let Ok(mut stream) = TcpStream::connect(gateway.http) else { continue };
            stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            // Turned away is as good.
            let _ = stream.write_all(&bytes);
            kept.push_back(stream);
            if kept.len() > CONNECTIONS {
                kept.pop_front();
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// A gateway under the bound, in front of answers that no buffer takes; its table is compiled.
fn start(stand_in: &StandIn) -> (Gateway, String) {
    let route = "[[upstream.route]]\nprefix = \"/v1/signup\"\nmethods = [\"POST\"]\n";
    let setup = Setup::new().upstream(&[stand_in.address]).tail(route);
    let setup = setup.set("listen.max_connections", &CONNECTIONS.to_string());
    let setup = setup.set("upstream.max_in_flight", &EXCHANGES.to_string());
    let setup = setup.set("plans.free", "10000000").under(&["prlimit", BOUND]);
    let keys = setup.path("keys.toml");
    std::fs::write(&keys, "# None.\n").unwrap();
    let table = setup.path("built.table");
    let mut build = std::process::Command::new(crate::harness::BINARY);
    build.args(["table", "build"]).arg(setup.path("lists")).arg("-o").arg(&table);
    run(&mut build).expect(0);
    let setup = setup.text("keys.file", keys.to_str().unwrap());
    let gateway = setup.text("table.path", table.to_str().unwrap()).start();
    let key = gateway.key("acme", &[]);
    (gateway, key)
}

/// A memory of the process, as the kernel calls it, in KiB.
fn memory(gateway: &Gateway, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    status.lines().find(|line| line.starts_with(name)).unwrap().to_owned()
}

#[test]
fn within_a_bound_of_memory_a_flood_at_the_caps_ends_nothing() {
    let large = "x".repeat(2 << 20);
    let stand_in = StandIn::playing(move |seen| match seen.line().contains("/v1/check/") {
        true => vec![Step::Send(answer(200, "", &large))],
        false => vec![Step::Send(answer(200, "", "{}"))],
    });
    let (gateway, key) = start(&stand_in);
    let other = gateway.key("other", &[]);
    println!("before: {}", memory(&gateway, "VmData"));
    let crowd = Crowd::new(DOMAIN, &key).pausing(Duration::from_millis(2));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = (crowd.ending(), DoneOnDrop(&is_over));
        crowd.come(scope, gateway.http, 2);
        until_true("calls are under way", || crowd.said().admitted > 20);
        for flood in [Flood::Headers, Flood::Bodies, Flood::ShortBodies, Flood::Answers] {
            let (gateway, key, is_over) = (&gateway, &other, &is_over);
            scope.spawn(move || flood.rise(gateway, key, is_over));
        }
        until_true("connections are turned away", || {
            gateway.metric("riskgate_connections_refused_total", &[]) > 100.0
        });
        let before = crowd.said();
        until_true("others are served", || crowd.said().admitted > before.admitted + 200);
        println!("in the flood: {}, {}", memory(&gateway, "VmData"), memory(&gateway, "VmRSS"));
    });
    println!("{:?} {:?}", crowd.said(), crowd.took());
    assert_eq!((crowd.said().failed, crowd.said().unknown), (0, 0));
    assert!(crowd.took().1 < PATIENCE / 2, "{:?}", crowd.took());
    until_true("all of it is gone", || gateway.metric("riskgate_connections", &[]) <= 1.0);
    assert_eq!(gateway.metric("riskgate_panics_total", &[]), 0.0);
    gateway.domain("first.test", &key).expect(200);
    gateway.restart().domain("first.test", &key).expect(200);
}

#[test]
fn within_a_bound_of_memory_files_that_are_far_too_large_are_refused() {
    let (gateway, key) = start(&StandIn::start());
    let fails = |part: &str| gateway.metric("riskgate_reload_failing", &[part]) == 1.0;
    let table = std::fs::read(gateway.path("built.table")).unwrap();
    let swap = |name: &str, bytes: &[u8], length: u64| {
        let beside = gateway.path("beside");
        std::fs::write(&beside, bytes).unwrap();
        // What follows the bytes takes no room on the disk.
        File::options().write(true).open(&beside).unwrap().set_len(length).unwrap();
        std::fs::rename(&beside, gateway.path(name)).unwrap();
    };
    // First it is more than is ever read.
    for (length, words) in [(2 << 30, "at most"), (900 << 20, "out of memory")] {
        swap("built.table", &table, length);
        until_true("it is refused", || fails("table") && gateway.stderr().contains(words));
    }
    swap("keys.toml", b"", 1 << 30);
    until_true("it is refused", || fails("keys"));
    gateway.domain("first.test", &key).expect(200);
    assert_eq!(gateway.readyz().status, 200);
    // The next ones serve.
    swap("keys.toml", b"# None.\n", 8);
    until_true("keys are taken", || !fails("keys"));
    swap("built.table", &table, table.len() as u64);
    until_true("a table is taken", || !fails("table"));
}
