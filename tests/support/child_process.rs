//! Child processes, for test targets that do without the harness of the end-to-end tests.

use std::process::Child;
use std::time::{Duration, Instant};

pub const BINARY: &str = env!("CARGO_BIN_EXE_riskgate");
/// Longer than any step takes on a loaded machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A child process. Dropping this value kills it.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIMEOUT, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
