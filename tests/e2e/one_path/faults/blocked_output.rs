//! If nothing reads the gateway's standard error or standard output, the gateway still serves,
//! reports its state, reloads and stops.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{BINARY, Gateway, Setup, request, run_command, wait_for, wait_until};
use crate::redis_server::RedisServer;

/// Longer than an orderly stop takes on a loaded machine with blocked output.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// A full FIFO, held open while this value lives.
struct FullPipe {
    path: PathBuf,
    _open: File,
}

impl FullPipe {
    fn create_and_fill(path: PathBuf) -> FullPipe {
        run_command(Command::new("mkfifo").arg(&path)).expect(0);
        let mut options = OpenOptions::new();
        // Opening a FIFO for reading and writing does not block.
        let mut pipe =
            options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        let full = |error: &std::io::Error| error.kind() == ErrorKind::WouldBlock;
        for size in [4_096, 1] {
            while !pipe.write(&vec![b'.'; size]).is_err_and(|error| full(&error)) {}
        }
        FullPipe { path, _open: pipe }
    }

    /// Redirects this file descriptor of the gateway, `2` or `1`, to the FIFO.
    fn with_output_to_pipe(&self, descriptor: u8, setup: Setup) -> Setup {
        let redirect = format!("exec \"$0\" \"$@\" {descriptor}> {:?}", self.path);
        setup.run_under(&["sh", "-c", &redirect])
    }
}

/// Runs a command with the gateway's config; the command's own output is not blocked.
fn run_cli(config: &Path, arguments: &[&str]) -> String {
    run_command(Command::new(BINARY).args(arguments).arg("-c").arg(config)).expect(0).stdout
}

fn create_active_key(gateway: &Gateway, account: &str) -> String {
    let key = run_cli(&gateway.config, &["keys", "create", "--account", account]);
    let key = key.trim_end().to_owned();
    wait_until("the key is accepted", || gateway.get("/v1/usage", &key).status == 200);
    key
}

fn spent_calls_in_store(gateway: &Gateway) -> u64 {
    let output = run_cli(&gateway.config, &["usage", "--json"]);
    let rows: serde_json::Value = serde_json::from_str(&output).unwrap();
    rows.as_array().unwrap().iter().map(|row| row["month_count"].as_u64().unwrap()).sum()
}

fn post_reload_status(gateway: &Gateway) -> u16 {
    request("POST", "/reload").with_header("Host", "localhost").send(gateway.admin).status
}

/// Asserts that the gateway ends in time, and returns what it wrote to standard error.
#[track_caller]
fn assert_graceful_exit(mut gateway: Gateway) -> String {
    let begun = Instant::now();
    gateway.send_signal("TERM");
    let status = wait_for("the gateway has ended", || gateway.exit_status());
    assert_eq!(status.code(), Some(0));
    assert!(begun.elapsed() < SHUTDOWN_TIMEOUT, "{:?}", begun.elapsed());
    gateway.stderr()
}

#[test]
fn if_nothing_reads_stderr_the_gateway_still_serves_reloads_and_stops() {
    let server = RedisServer::start();
    let setup = Setup::new().with_redis(&server).set("plans.free", "1000000");
    let setup = setup.set_text("store.deadline", "1s");
    let pipe = FullPipe::create_and_fill(setup.path("stderr"));
    let gateway = pipe.with_output_to_pipe(2, setup).start();
    let key = create_active_key(&gateway, "acme");
    let mut asked = 0;
    let mut ask = |count: u64| {
        for _ in 0..count {
            gateway.get("/v1/public/top-domains", &key).expect(200);
        }
        asked += count;
        wait_until("the store has the spent calls", || spent_calls_in_store(&gateway) == asked);
    };
    ask(30);
    // During this outage, the ledger's thread writes many log lines.
    server.pause();
    wait_until("the store counts as down", || {
        gateway.get("/v1/usage", &key);
        gateway.sum_of_samples("riskgate_store_down", &[]) == 1.0
    });
    server.resume();
    wait_until("the store is back", || gateway.sum_of_samples("riskgate_store_down", &[]) == 0.0);
    ask(30);

    let config = std::fs::read_to_string(&gateway.config).unwrap();
    let broken: String =
        (0..2_000).map(|at| format!("[a_section_that_nobody_knows_{at}]\n")).collect();
    std::fs::write(&gateway.config, config.clone() + &broken).unwrap();
    assert_eq!(post_reload_status(&gateway), 422);
    assert!(
        gateway.sum_of_samples("riskgate_process_log_lines_dropped_total", &[]) > 0.0,
        "no line was dropped"
    );
    std::fs::write(&gateway.config, config).unwrap();
    assert_eq!(post_reload_status(&gateway), 200);
    let reloads = || gateway.sum_of_samples("riskgate_reloads_total", &["part=\"config\""]);
    let before = reloads();
    gateway.send_signal("HUP");
    wait_until("SIGHUP reloads", || reloads() > before);
    ask(30);
    assert_graceful_exit(gateway);
}

#[test]
fn if_nothing_reads_stdout_the_gateway_still_serves_reloads_and_stops() {
    let setup = Setup::new().unset("log.path");
    let pipe = FullPipe::create_and_fill(setup.path("stdout"));
    let gateway = pipe.with_output_to_pipe(1, setup).start();
    let key = create_active_key(&gateway, "acme");
    for _ in 0..30 {
        gateway.get("/v1/public/top-domains", &key).expect(200);
    }
    wait_until("the store has the spent calls", || spent_calls_in_store(&gateway) == 30);
    assert_eq!(post_reload_status(&gateway), 200);
    let log = assert_graceful_exit(gateway);
    let hung = "log.path: expected to write the last lines within 1s, but found that standard \
                output takes none";
    assert!(log.contains(hung) && !log.contains("was not flushed"), "{log}");
}

#[test]
fn a_failed_start_writes_every_config_fault_but_does_not_wait_for_a_reader() {
    let setup = Setup::new();
    let config = setup.path("broken.toml");
    let faults = 500;
    let text: String = (0..faults).map(|at| format!("unknown_{at} = 1\n")).collect();
    std::fs::write(&config, text).unwrap();
    let start = |stderr: Stdio| {
        let mut command = Command::new(BINARY);
        command.args(["run", "-c"]).arg(&config).stdin(Stdio::null()).stderr(stderr);
        command.spawn().unwrap()
    };
    let output = start(Stdio::piped()).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(78));
    // Each fault has a line, and three with the line of the file and a mark.
    assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 4 * faults);

    let pipe = FullPipe::create_and_fill(setup.path("stderr"));
    let mut blocked = start(OpenOptions::new().write(true).open(&pipe.path).unwrap().into());
    let status = wait_for("the start has failed", || blocked.try_wait().unwrap());
    assert_eq!(status.code(), Some(78));
}
