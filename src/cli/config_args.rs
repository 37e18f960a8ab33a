//! The option that names the config file.

use std::path::PathBuf;

use super::failure::CommandFailure;
use crate::config::{Config, ConfigFile, ConfigSources};

/// The option that names the config file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConfigArgs {
    /// The config file; conf/riskgate.toml if it is there, else built-in defaults.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigArgs {
    pub fn read_config(&self) -> Result<Config, CommandFailure> {
        Config::read(&self.config_sources()).map_err(CommandFailure::config)
    }

    pub fn config_sources(&self) -> ConfigSources {
        let file = self.config.clone().map_or_else(ConfigFile::find_default, ConfigFile::Path);
        ConfigSources { file, flags: Vec::new() }
    }
}
