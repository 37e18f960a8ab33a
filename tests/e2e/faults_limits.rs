//! Limits of the host: a log that nobody reads.

use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Setup, get, run};

const DOMAIN: &str = "/v1/public/domain/first.test";

/// A pipe with a name, held open by somebody who never reads from it.
fn unread_pipe(setup: &Setup) -> (String, std::fs::File) {
    let path = setup.path("pipe");
    run(Command::new("mkfifo").arg(&path)).expect(0);
    let reader = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&path)
        .unwrap();
    (path.display().to_string(), reader)
}

/// Far more lines than a pipe takes; then the process is to end in time. How many were dropped.
fn goes_on_and_ends(setup: Setup) -> f64 {
    let mut gateway = setup.set("plans.free", "1000000").start();
    let key = gateway.key("acme", &[]);
    let mut connection = gateway.connect();
    for _ in 0..1_500 {
        connection.ask(&get(DOMAIN).key(&key)).expect(200);
    }
    let dropped = gateway.metric("riskgate_access_log_dropped", &[]);
    let begun = Instant::now();
    gateway.signal("TERM");
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.stderr());
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(gateway.start_again().month_count(&key), 1_500);
    dropped
}

#[test]
fn a_log_to_a_pipe_that_nobody_reads_holds_nothing_up() {
    let setup = Setup::new();
    let (path, _reader) = unread_pipe(&setup);
    let dropped = goes_on_and_ends(setup.text("log.path", &path));
    assert!(dropped > 500.0, "{dropped}");
}

#[test]
fn a_log_to_a_pipe_that_nobody_has_open_stops_the_start() {
    let setup = Setup::new();
    let (path, reader) = unread_pipe(&setup);
    drop(reader);
    let ran = setup.text("log.path", &path).under(&["timeout", "20"]).cli(&["run"]).expect(78);
    assert!(ran.stderr.contains("log.path: expected a file to append to"), "{}", ran.stderr);
}

#[test]
fn a_standard_output_that_nobody_reads_holds_nothing_up() {
    let setup = Setup::new();
    let (path, _reader) = unread_pipe(&setup);
    let script = format!("[ \"$2\" != run ] || exec >>{path}; exec \"$@\"");
    let setup = setup.unset("log.path").under(&["sh", "-c", &script, "sh"]);
    goes_on_and_ends(setup);
}
