//! Standard error, standard output or a service manager that nobody reads: the gateway serves,
//! states, reloads and ends all the same.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{BINARY, Gateway, Setup, request, run, until, until_true};
use crate::redis_server::RedisServer;

/// Longer than an end in order may take on a loaded machine, whoever does not read.
const END: Duration = Duration::from_secs(12);

/// A FIFO that is full, and open as long as this lives.
struct FullPipe {
    path: PathBuf,
    _open: File,
}

impl FullPipe {
    fn at(path: PathBuf) -> FullPipe {
        run(Command::new("mkfifo").arg(&path)).expect(0);
        let mut options = OpenOptions::new();
        // Opened for both, it waits for nobody.
        let mut pipe =
            options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        let full = |error: &std::io::Error| error.kind() == ErrorKind::WouldBlock;
        for size in [4_096, 1] {
            while !pipe.write(&vec![b'.'; size]).is_err_and(|error| full(&error)) {}
        }
        FullPipe { path, _open: pipe }
    }

    /// Has the gateway write there: `2` or `1`.
    fn behind(&self, descriptor: u8, setup: Setup) -> Setup {
        let redirect = format!("exec \"$0\" \"$@\" {descriptor}> {:?}", self.path);
        setup.under(&["sh", "-c", &redirect])
    }
}

/// A command of the same config that can speak.
fn cli(config: &Path, arguments: &[&str]) -> String {
    run(Command::new(BINARY).args(arguments).arg("-c").arg(config)).expect(0).stdout
}

fn new_key(gateway: &Gateway, account: &str) -> String {
    let key = cli(&gateway.config, &["keys", "create", "--account", account]);
    let key = key.trim_end().to_owned();
    until_true("the key opens", || gateway.get("/v1/usage", &key).status == 200);
    key
}

fn spent(gateway: &Gateway) -> u64 {
    let told = cli(&gateway.config, &["usage", "--json"]);
    let rows: serde_json::Value = serde_json::from_str(&told).unwrap();
    rows.as_array().unwrap().iter().map(|row| row["month_count"].as_u64().unwrap()).sum()
}

fn reload(gateway: &Gateway) -> u16 {
    request("POST", "/reload").with("Host", "localhost").send(gateway.admin).status
}

#[track_caller]
fn assert_ends_in_order(mut gateway: Gateway) {
    let begun = Instant::now();
    gateway.signal("TERM");
    let status = until("the gateway has ended", || gateway.has_ended());
    assert_eq!(status.code(), Some(0));
    assert!(begun.elapsed() < END, "{:?}", begun.elapsed());
}

#[test]
fn a_standard_error_that_nobody_reads_holds_nothing_up() {
    let server = RedisServer::start();
    let setup = Setup::new().redis(&server).set("plans.free", "1000000");
    let pipe = FullPipe::at(setup.path("stderr"));
    let gateway = pipe.behind(2, setup).start();
    let key = new_key(&gateway, "acme");
    let mut asked = 0;
    let mut ask = |count: u64| {
        for _ in 0..count {
            gateway.get("/v1/public/top-domains", &key).expect(200);
        }
        asked += count;
        until_true("the store has what was spent", || spent(&gateway) == asked);
    };
    ask(30);
    // The ledger's thread has much to say about that.
    server.stop();
    until_true("the store counts as down", || {
        gateway.get("/v1/usage", &key);
        gateway.metric("riskgate_store_down", &[]) == 1.0
    });
    server.cont();
    until_true("the store is back", || gateway.metric("riskgate_store_down", &[]) == 0.0);
    ask(30);

    let config = std::fs::read_to_string(&gateway.config).unwrap();
    let broken: String =
        (0..4_000).map(|at| format!("[a_section_that_nobody_knows_{at}]\n")).collect();
    std::fs::write(&gateway.config, config.clone() + &broken).unwrap();
    assert_eq!(reload(&gateway), 422);
    assert!(gateway.metric("riskgate_error_log_dropped", &[]) > 0.0, "there was room for all");
    std::fs::write(&gateway.config, config).unwrap();
    assert_eq!(reload(&gateway), 200);
    let reloads = || gateway.metric("riskgate_reload_total", &["part=\"config\""]);
    let before = reloads();
    gateway.signal("HUP");
    until_true("SIGHUP reloads", || reloads() > before);
    ask(30);
    assert_ends_in_order(gateway);
}

#[test]
fn a_standard_output_that_nobody_reads_costs_lines_alone() {
    let setup = Setup::new().unset("log.path");
    let pipe = FullPipe::at(setup.path("stdout"));
    let gateway = pipe.behind(1, setup).start();
    let key = new_key(&gateway, "acme");
    for _ in 0..30 {
        gateway.get("/v1/public/top-domains", &key).expect(200);
    }
    until_true("the store has what was spent", || spent(&gateway) == 30);
    assert_eq!(reload(&gateway), 200);
    assert_ends_in_order(gateway);
}

#[test]
fn every_fault_of_a_start_is_told_to_who_reads_and_nobody_is_waited_for() {
    let setup = Setup::new();
    let config = setup.path("broken.toml");
    let faults = 5_000;
    let text: String = (0..faults).map(|at| format!("unknown_{at} = 1\n")).collect();
    std::fs::write(&config, text).unwrap();
    let start = |stderr: Stdio| {
        let mut command = Command::new(BINARY);
        command.args(["run", "-c"]).arg(&config).stdin(Stdio::null()).stderr(stderr);
        command.spawn().unwrap()
    };
    let told = start(Stdio::piped()).wait_with_output().unwrap();
    assert_eq!(told.status.code(), Some(78));
    assert_eq!(String::from_utf8(told.stderr).unwrap().lines().count(), faults);

    let pipe = FullPipe::at(setup.path("stderr"));
    let begun = Instant::now();
    let mut unheard = start(OpenOptions::new().write(true).open(&pipe.path).unwrap().into());
    let status = until("the start has failed", || unheard.try_wait().unwrap());
    assert_eq!(status.code(), Some(78));
    assert!(begun.elapsed() < END, "{:?}", begun.elapsed());
}
