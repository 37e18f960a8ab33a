//! What all tests stand on: a gateway process, a client, an upstream, a folder of lists.

mod authority;
mod clock;
mod crowd;
mod demo_upstream;
mod disk;
mod dns_server;
mod fault_proxy;
mod footprint;
mod forwarder;
mod front;
mod gateway;
mod http;
mod lists;
mod secrets;
mod stand_in;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use authority::Authority;
pub use clock::Clock;
pub use crowd::{Crowd, high};
pub use demo_upstream::DemoUpstream;
pub use disk::Disk;
pub use dns_server::{DnsServer, SlowDns};
pub use fault_proxy::{Door, End, Fault, FaultProxy};
pub use forwarder::Forwarder;
pub use front::{Front, Software};
pub use gateway::{BINARY, Gateway, Ran, Setup, USED, has_lane, run, shared};
pub use http::{Answer, Connection, Request, get, request, stream_from};
pub use lists::Lists;
pub use secrets::Secrets;
pub use stand_in::{Seen, StandIn, Step, answer, free_port};

/// Longer than anything takes on a loaded machine; only a failing test ever waits for it.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Asks until there is something, and says what was awaited if there never is.
#[track_caller]
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// As [`until`], for a condition.
#[track_caller]
pub fn until_true(what: &str, mut ask: impl FnMut() -> bool) {
    until(what, || ask().then_some(()));
}

/// Tells threads that go on until then, also when the test fails.
pub struct DoneOnDrop<'d>(pub &'d AtomicBool);

impl Drop for DoneOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What lies in a folder, and below it.
pub fn listing(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        names.push(entry.path().display().to_string());
        if entry.path().is_dir() {
            names.extend(listing(&entry.path()));
        }
    }
    names.sort();
    names
}

/// Words that run a command as somebody whom the modes of files bind: root they do not.
pub fn as_nobody() -> &'static [&'static str] {
    let user = run(Command::new("id").arg("-u")).expect(0).stdout;
    match user.trim() {
        "0" => &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
        _ => &[],
    }
}
