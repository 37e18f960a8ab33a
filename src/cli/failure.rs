//! Failures of commands: their messages and exit codes.

use crate::process::server::StartError;
use crate::store::StoreError;

/// Bad config or data (sysexits' EX_CONFIG).
pub const EXIT_CONFIG: u8 = 78;
/// The messages and the exit code of a failed command.
pub struct CommandFailure {
    /// Messages for standard error; none if they were written already.
    pub lines: Vec<String>,
    pub code: u8,
}

impl CommandFailure {
    /// A failure with exit code 1.
    pub fn failed(line: impl Into<String>) -> CommandFailure {
        CommandFailure { lines: vec![line.into()], code: 1 }
    }

    /// Wrong arguments: exit code 2.
    pub fn usage(line: impl Into<String>) -> CommandFailure {
        CommandFailure { lines: vec![line.into()], code: 2 }
    }

    /// Bad config or data: exit code 78.
    pub fn config(lines: Vec<String>) -> CommandFailure {
        CommandFailure { lines, code: EXIT_CONFIG }
    }
}

impl From<StartError> for CommandFailure {
    fn from(error: StartError) -> CommandFailure {
        match error {
            StartError::Config(lines) => CommandFailure::config(lines),
            StartError::Failed(line) => CommandFailure::failed(line),
        }
    }
}

impl From<StoreError> for CommandFailure {
    fn from(error: StoreError) -> CommandFailure {
        let code = match error {
            StoreError::InvalidUrl { .. } | StoreError::Unusable { .. } => EXIT_CONFIG,
            StoreError::Sqlite { .. }
            | StoreError::Unavailable { .. }
            | StoreError::InvalidReply { .. }
            | StoreError::Conflict(_) => 1,
        };
        CommandFailure { lines: vec![error.to_string()], code }
    }
}

impl From<std::io::Error> for CommandFailure {
    fn from(error: std::io::Error) -> CommandFailure {
        CommandFailure::failed(error.to_string())
    }
}
