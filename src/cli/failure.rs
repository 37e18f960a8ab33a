//! Failures of commands: their messages and exit codes.

use crate::config::ConfigFault;
use crate::management::ManagementFault;
use crate::process::server::StartError;
use crate::store::StoreError;

/// The exit code for bad config or data: EX_CONFIG of sysexits.h.
pub const EXIT_CONFIG: u8 = 78;

/// The messages and the exit code of a failed command.
pub struct CommandFailure {
    /// Messages for standard error. Empty if the command has written its messages already, or has
    /// none.
    pub message_lines: Vec<String>,
    pub exit_code: u8,
}

impl CommandFailure {
    /// A failure with exit code 1.
    pub fn failed(line: impl Into<String>) -> CommandFailure {
        CommandFailure { message_lines: vec![line.into()], exit_code: 1 }
    }

    /// Wrong arguments: exit code 2.
    pub fn usage(line: impl Into<String>) -> CommandFailure {
        CommandFailure { message_lines: vec![line.into()], exit_code: 2 }
    }

    /// The option `--account` has a name that neither the store nor the key file has.
    pub fn unknown_account(name: &str) -> CommandFailure {
        CommandFailure::failed(format!(
            "--account: expected the name of an account, but found {name:?}; `riskgate accounts \
             list` shows all"
        ))
    }

    /// Faults of the config: exit code 78.
    pub fn config_faults(faults: Vec<ConfigFault>) -> CommandFailure {
        CommandFailure::config(faults.iter().map(ConfigFault::to_text).collect())
    }

    /// Bad config or data: exit code 78.
    pub fn config(message_lines: Vec<String>) -> CommandFailure {
        CommandFailure { message_lines, exit_code: EXIT_CONFIG }
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
            | StoreError::OtherPlan { .. }
            | StoreError::Conflict(_) => 1,
        };
        CommandFailure { message_lines: vec![error.to_string()], exit_code: code }
    }
}

impl From<ManagementFault> for CommandFailure {
    fn from(fault: ManagementFault) -> CommandFailure {
        match fault {
            ManagementFault::Invalid { field, .. } => {
                // `NAME` and `domain` are arguments without `--`.
                let is_option = !field.starts_with(char::is_uppercase) && field != "domain";
                let option = if is_option { "--" } else { "" };
                CommandFailure::usage(format!("{option}{fault}"))
            }
            ManagementFault::NotFound(line) | ManagementFault::NoRandomBits(line) => {
                CommandFailure::failed(line)
            }
            ManagementFault::Conflict(line) => CommandFailure::failed(line),
            ManagementFault::ForceRequired(line) => {
                CommandFailure::failed(format!("{line}; to deny it all the same, write --force"))
            }
            ManagementFault::File(lines) => CommandFailure::config(lines),
            ManagementFault::Store(error) => error.into(),
            ManagementFault::Table(faults) => faults.into(),
        }
    }
}

impl From<std::io::Error> for CommandFailure {
    fn from(error: std::io::Error) -> CommandFailure {
        CommandFailure::failed(error.to_string())
    }
}
