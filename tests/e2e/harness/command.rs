//! Runs a command and collects its output.

use std::process::{Command, Stdio};

use serde_json::Value;

pub const BINARY: &str = env!("CARGO_BIN_EXE_riskgate");

/// A command that has ended.
#[derive(Debug)]
pub struct CommandOutput {
    pub exit_code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl CommandOutput {
    #[track_caller]
    pub fn expect(self, code: i32) -> CommandOutput {
        assert_eq!(self.exit_code, code, "{}{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }
}

pub fn run_command(command: &mut Command) -> CommandOutput {
    let output = command.stdin(Stdio::null()).output().unwrap();
    CommandOutput {
        exit_code: output.status.code().expect("an end by exit"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
