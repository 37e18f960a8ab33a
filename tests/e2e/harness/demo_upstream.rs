//! A process of `riskgate demo --upstream-only`.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::{BINARY, run_command, wait_for};

/// Dropping this value kills the process.
pub struct DemoUpstream {
    pub address: SocketAddr,
    child: Child,
}

impl DemoUpstream {
    /// Starts the process with these arguments after `--upstream-only`, and reads its address.
    #[track_caller]
    pub fn start(words: &[&str]) -> DemoUpstream {
        let mut child = Command::new(BINARY)
            .args(["demo", "--upstream-only"])
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let prefix = "riskgate run --upstream ";
        let address = lines.find_map(|line| line.unwrap().strip_prefix(prefix)?.parse().ok());
        let address = address.unwrap_or_else(|| {
            let _ = child.kill();
            panic!("expected an address, but found none: {:?}", child.wait());
        });
        DemoUpstream { address, child }
    }

    #[track_caller]
    pub fn send_signal(&self, name: &str) {
        run_command(Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()))
            .expect(0);
    }

    #[track_caller]
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        wait_for("the demo upstream has ended", || self.child.try_wait().unwrap())
    }
}

impl Drop for DemoUpstream {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
