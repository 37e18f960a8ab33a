//! How commands fail: the lines that they leave behind, and their exit codes.

use crate::process::server::StartError;
use crate::store::StoreError;

/// Bad config or data (sysexits' EX_CONFIG).
pub const BAD_CONFIG: u8 = 78;
/// What a command that failed leaves behind: its lines and its exit code.
pub struct Failure {
    pub lines: Vec<String>,
    pub code: u8,
}

impl Failure {
    pub fn failed(line: impl Into<String>) -> Failure {
        Failure { lines: vec![line.into()], code: 1 }
    }

    pub fn usage(line: impl Into<String>) -> Failure {
        Failure { lines: vec![line.into()], code: 2 }
    }

    pub fn config(lines: Vec<String>) -> Failure {
        Failure { lines, code: BAD_CONFIG }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Failure {
        match error {
            StartError::Config(lines) => Failure::config(lines),
            StartError::Failed(line) => Failure::failed(line),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        let code = match error {
            StoreError::Url { .. } | StoreError::Unusable { .. } => BAD_CONFIG,
            StoreError::Failed { .. } | StoreError::Unanswered { .. } | StoreError::Conflict(_) => {
                1
            }
        };
        Failure { lines: vec![error.to_string()], code }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::failed(error.to_string())
    }
}
