//! Runs a command and collects its output.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

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
    collect(command.stdin(Stdio::null()).output().unwrap())
}

/// Runs a command that reads this from its standard input.
pub fn run_command_with_input(command: &mut Command, input: &[u8]) -> CommandOutput {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that fails early reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input);
    collect(child.wait_with_output().unwrap())
}

fn collect(output: Output) -> CommandOutput {
    CommandOutput {
        exit_code: output.status.code().expect("an end by exit"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
