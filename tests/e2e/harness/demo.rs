//! A running `riskgate demo`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{BINARY, run_command, wait_for};

/// A demo that serves. Dropping this value kills it.
pub struct Demo {
    child: Child,
    printed: Vec<String>,
}

impl Demo {
    /// Starts a demo that keeps its files below `folder`, and waits until it serves.
    pub fn start(folder: &Path) -> Demo {
        // Held while a demo starts. A demo chooses its ports before it binds them, so two that
        // start at the same moment choose the same ones.
        let start_lock = File::open(BINARY).unwrap();
        start_lock.lock().unwrap();
        let mut child = Command::new(BINARY)
            .arg("demo")
            .current_dir(folder)
            .env("TMPDIR", folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut printed = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            printed.push(line.unwrap());
            if printed.last().is_some_and(|line| line.starts_with("Or open ")) {
                break;
            }
        }
        let demo = Demo { child, printed };
        assert!(!demo.page().is_empty(), "{:?}", demo.printed);
        demo
    }

    /// The commands to paste.
    pub fn curl_lines(&self) -> Vec<&str> {
        let lines = self.printed.iter().map(String::as_str);
        lines.filter(|line| line.starts_with("curl ")).collect()
    }

    /// The address of the sign-up page.
    pub fn page(&self) -> &str {
        let rest = self.printed.last().and_then(|line| line.strip_prefix("Or open "));
        rest.and_then(|rest| rest.split(' ').next()).unwrap_or_default()
    }

    /// Ends the demo as Ctrl-C does.
    pub fn interrupt(mut self) {
        let stop = format!("kill -INT {}", self.child.id());
        run_command(Command::new("sh").args(["-c", &stop])).expect(0);
        wait_for("the demo has ended", || self.child.try_wait().unwrap());
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
