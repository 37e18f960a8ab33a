//! The keys of the key file.

use crate::cli::failure::CommandFailure;
use crate::config::Config;
use crate::keys::{DeclaredKey, read_key_file};

/// Reads the key file of the config; no keys if there is none.
pub fn read_declared_keys(config: &Config) -> Result<Vec<DeclaredKey>, CommandFailure> {
    match &config.key_file {
        Some(path) => read_key_file(path, &Config::env_var).map_err(|faults| {
            CommandFailure::config(faults.iter().map(ToString::to_string).collect())
        }),
        None => Ok(Vec::new()),
    }
}
