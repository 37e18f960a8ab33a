//! `riskgate config`: checks the config, and shows what is in force.

use clap::Subcommand;

use super::check;
use super::config_args::{ConfigArgs, GatewayConfigArgs};
use super::failure::CommandFailure;
use super::output::print_result;
use crate::config::Config;

/// Check the config, and show what is in force.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Like `riskgate check`.
    Check(ConfigArgs),
    /// Print each setting in force, and where its value is from. Secrets are hidden.
    Show {
        #[command(flatten)]
        config: GatewayConfigArgs,
        /// Print a JSON array of objects with `key`, `value` (a text in TOML, or null) and
        /// `source`.
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of the config file, for editors.
    Schema,
}

pub fn run(command: ConfigCommand) -> Result<(), CommandFailure> {
    match command {
        ConfigCommand::Check(args) => check::run(&args),
        ConfigCommand::Show { config, json } => {
            let settings = Config::read_effective_settings(&config.config_sources());
            let settings = settings.map_err(CommandFailure::config_faults)?;
            match json {
                true => print_result(format!("{:#}\n", settings.to_json())),
                false => print_result(settings.to_toml()),
            }
        }
        ConfigCommand::Schema => print_result(format!("{:#}\n", Config::schema())),
    }
}
