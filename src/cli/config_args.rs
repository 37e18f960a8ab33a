//! Which config a command reads.

use std::path::PathBuf;

use super::failure::Failure;
use crate::config::{Config, ConfigFile, Overrides};

/// Where the config is.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConfigArgs {
    /// The config file; conf/riskgate.toml if it is there, else built-in defaults.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigArgs {
    pub fn read(&self) -> Result<Config, Failure> {
        Config::read(&self.overrides()).map_err(Failure::config)
    }

    pub fn overrides(&self) -> Overrides {
        let file = self.config.clone().map_or_else(ConfigFile::usual, ConfigFile::At);
        Overrides { file, flags: Vec::new() }
    }
}
