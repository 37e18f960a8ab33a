//! The option that names the config file.

use std::path::PathBuf;

use super::failure::CommandFailure;
use crate::config::{Config, ConfigFile, ConfigOverrides};

/// The option that names the config file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConfigArgs {
    /// The config file; conf/riskgate.toml if it is there, else built-in defaults.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigArgs {
    pub fn read(&self) -> Result<Config, CommandFailure> {
        Config::read(&self.overrides()).map_err(CommandFailure::config)
    }

    pub fn overrides(&self) -> ConfigOverrides {
        let file = self.config.clone().map_or_else(ConfigFile::find_default, ConfigFile::Path);
        ConfigOverrides { file, flags: Vec::new() }
    }
}
