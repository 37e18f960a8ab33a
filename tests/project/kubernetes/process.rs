//! What the tests need of processes and HTTP.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

pub use crate::child_process::{BINARY, Process, TIMEOUT, wait_until};
pub use crate::free_ports::free_address;

impl Process {
    /// Ends the process as Kubernetes and Docker do.
    pub fn send_sigterm(&self) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    /// Waits until the process has ended with success. Returns the time since `begun`.
    #[track_caller]
    pub fn wait_for_end(&mut self, begun: Instant) -> Duration {
        let mut status = None;
        wait_until("the process has ended", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success(), "{status:?}");
        begun.elapsed()
    }
}

/// Runs a command that must succeed. Returns its standard output.
#[track_caller]
pub fn run_to_success(command: &mut Command) -> String {
    run(command).0
}

/// Runs a command that must succeed and warn of nothing. Returns its standard output.
#[track_caller]
pub fn run_without_warning(command: &mut Command) -> String {
    let (stdout, stderr) = run(command);
    assert!(!stderr.contains("warn"), "{command:?}: {stderr}");
    stdout
}

#[track_caller]
fn run(command: &mut Command) -> (String, String) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {stdout}{stderr}");
    (stdout.trim_end().to_owned(), stderr)
}

/// Sends a GET. Returns status and body, or `None` without an answer.
pub fn get(address: SocketAddr, path: &str, token: Option<&str>) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let token = token.map_or(String::new(), |it| format!("Authorization: Bearer {it}\r\n"));
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{token}\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}
