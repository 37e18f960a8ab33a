//! Tools that the end-to-end tests share. They start gateway processes, clients, upstream servers,
//! DNS servers and proxies, and cause faults.

mod browser;
mod certificate_authority;
mod command;
mod demo;
mod demo_upstream;
mod dns_server;
mod fake_clock;
mod fault_proxy;
mod front_proxy;
mod gateway;
mod hpack;
mod http;
pub mod http2_frames;
mod integrated_proxy;
mod list_folder;
mod load_generator;
mod mock_upstream;
mod process_stats;
mod secrets;
mod setup;
mod tcp_forwarder;
mod test_disk;

use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use crate::free_ports::free_address;
pub use browser::{Browser, ENTER_KEY, ESCAPE_KEY, REBOUND_HOST, TAB_KEY};
pub use certificate_authority::CertificateAuthority;
pub use command::{BINARY, CommandOutput, run_command, run_command_with_input};
pub use demo::Demo;
pub use demo_upstream::DemoUpstream;
pub use dns_server::{DelayingDnsProxy, DnsServer};
pub use fake_clock::FakeClock;
pub use fault_proxy::{AcceptMode, CloseMode, Fault, FaultProxy};
pub use front_proxy::{FrontProxy, ProxyKind};
pub use gateway::{CALLS_TO_OBTAIN_LEASE, Gateway, Successor, shared_gateway};
pub use http::{Connection, Request, Response, Stream, get, request, stream_from};
pub use integrated_proxy::{IntegratedProxy, start_haproxy_with_tls, start_integrated_proxy};
pub use list_folder::ListFolder;
pub use load_generator::{LoadGenerator, p99_and_max};
pub use mock_upstream::{MockUpstream, ReceivedRequest, Step, response_bytes};
pub use secrets::GatewaySecrets;
pub use setup::{Setup, is_fast_path_the_default};
pub use tcp_forwarder::TcpForwarder;
pub use test_disk::TestDisk;

/// Longer than any step takes on a loaded machine; only a failing test waits that long.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The most unspent calls that one process may hold or request of an account with this limit: a
/// crash may lose them. Computed here independently of the code.
pub fn max_held_calls(limit: u64) -> u64 {
    (limit / 100).min((limit / 10_000).clamp(64, 4_096)).max(1)
}

/// Calls `ask` until it returns a value. Panics with `what` if it never does.
#[track_caller]
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(begun.elapsed() < TEST_TIMEOUT, "timed out waiting until {what}");
        // Many tests wait at the same time, and asking costs them the processor.
        let pause = begun.elapsed() / 10;
        std::thread::sleep(pause.clamp(Duration::from_millis(5), Duration::from_millis(20)));
    }
}

/// As [`wait_for`], for a condition.
#[track_caller]
pub fn wait_until(what: &str, mut ask: impl FnMut() -> bool) {
    wait_for(what, || ask().then_some(()));
}

/// Sets the flag to true when dropped: threads that poll it stop, even if the test fails.
pub struct SetOnDrop<'d>(pub &'d AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A running process. Dropping this value kills it.
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The paths of all files and folders below a folder.
pub fn list_recursively(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        names.push(entry.path().display().to_string());
        if entry.path().is_dir() {
            names.extend(list_recursively(&entry.path()));
        }
    }
    names.sort();
    names
}

/// The command prefix that runs a command as a user to whom file modes apply, unlike root.
pub fn unprivileged_command_prefix() -> &'static [&'static str] {
    let user = run_command(Command::new("id").arg("-u")).expect(0).stdout;
    match user.trim() {
        "0" => &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
        _ => &[],
    }
}
