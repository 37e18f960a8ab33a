//! The command-line options that name the config file and override settings.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::failure::CommandFailure;
use super::output::print_warning;
use crate::config::{
    Config, ConfigFile, ConfigSources, DEFAULT_CONFIG_PATHS, TextKind, guess_text,
};

/// Says what to write in place of a text that is no address of this kind. The text is empty if that
/// is not known.
pub fn hint_for_address(text: &str, kind: TextKind) -> String {
    guess_address(text, kind).map(|it| format!("; write {it}")).unwrap_or_default()
}

/// Returns the address of this kind that a text is meant for.
pub fn guess_address(text: &str, kind: TextKind) -> Option<String> {
    let is_address = |it: &str| it.parse::<SocketAddr>().is_ok_and(|it| it.port() > 0);
    // Behind the user of a URL stands its address.
    let behind_user = || guess_text(text.rsplit_once('@')?.1, kind, is_address);
    guess_text(text, kind, is_address).or_else(behind_user)
}

/// The option that names the config file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConfigArgs {
    /// The config file. Without it: the file that RISKGATE_CONFIG names, else the first of
    /// riskgate.toml, conf/riskgate.toml and /etc/riskgate/riskgate.toml, else built-in defaults.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigArgs {
    /// Reads the config for a command that needs no secret except the address of the store.
    pub fn read_config(&self) -> Result<Config, CommandFailure> {
        self.read_config_with_secrets(&["store.url_file"])
    }

    /// Reads the config for a command that needs the address of the store and the secret of inbox
    /// ids.
    pub fn read_config_with_inbox_secret(&self) -> Result<Config, CommandFailure> {
        self.read_config_with_secrets(&["store.url_file", "inbox.secret_file"])
    }

    fn read_config_with_secrets(&self, needed: &[&str]) -> Result<Config, CommandFailure> {
        let config = Config::read_with_secrets(&self.config_sources(), needed)
            .map_err(CommandFailure::config_faults)?;
        for former in &config.former_defaults {
            print_warning(former.to_warning());
        }
        Ok(config)
    }

    pub fn config_sources(&self) -> ConfigSources {
        let file = self.config.clone().map_or_else(ConfigFile::find_default, ConfigFile::Path);
        ConfigSources { file, flags: Vec::new() }
    }
}

/// The options that decide the config of a gateway.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct GatewayConfigArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The address of the HTTP listener.
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// The address of the admin listener.
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// An upstream server; can be given several times.
    #[arg(long, value_name = "ADDR")]
    upstream: Vec<String>,
}

impl GatewayConfigArgs {
    pub fn config_sources(&self) -> ConfigSources {
        let mut flags = Vec::new();
        let mut add = |key: &str, value: Option<String>| {
            flags.extend(value.map(|value| (key.to_owned(), value)));
        };
        add("listen.http", self.listen.clone());
        add("listen.admin", self.admin.clone());
        add("upstream.servers", Some(self.upstream.join(",")).filter(|all| !all.is_empty()));
        ConfigSources { flags, ..self.config.config_sources() }
    }
}

/// Names the file that a config was read from; without a file, says that the defaults apply.
pub fn describe_source(config: &Config) -> String {
    match &config.file {
        Some(file) => file.display().to_string(),
        None => {
            format!("built-in defaults, because there is no {}", DEFAULT_CONFIG_PATHS.join(", "))
        }
    }
}
