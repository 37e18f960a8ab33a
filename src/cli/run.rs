//! `riskgate run`: runs the gateway.

use std::sync::Arc;

use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use crate::config::ConfigSources;
use crate::observe::process_log::ProcessLog;
use crate::process::server::{self, ExitHook, StartMode};

#[derive(Debug, Default, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// The address of the HTTP listener.
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// The address of the admin listener.
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// An upstream server; can be given several times.
    #[arg(long, value_name = "ADDR")]
    pub upstream: Vec<String>,
    /// Take over from the serving process: start, wait until that process gets SIGQUIT, then serve
    /// on its sockets. Starts as usual if no process serves from process.runtime_dir.
    #[arg(long)]
    pub upgrade: bool,
}

pub fn run(args: Args) -> Result<(), CommandFailure> {
    let start_mode = if args.upgrade { StartMode::Upgrade } else { StartMode::Standalone };
    run_server(args.config_sources(), start_mode, None)
}

/// Runs the gateway with this config, and calls `exit_hook` at the end.
pub fn run_with_exit_hook(
    config_sources: ConfigSources,
    exit_hook: ExitHook,
) -> Result<(), CommandFailure> {
    run_server(config_sources, StartMode::Standalone, Some(exit_hook))
}

/// Runs the gateway and writes all messages through the process log. The log blocks no thread but
/// its own, so the process serves and ends even if standard error is a full pipe.
fn run_server(
    config_sources: ConfigSources,
    start_mode: StartMode,
    exit_hook: Option<ExitHook>,
) -> Result<(), CommandFailure> {
    let log = Arc::new(ProcessLog::install()?);
    server::run(config_sources, start_mode, &log, exit_hook).map_err(|error| {
        let failure = CommandFailure::from(error);
        log.write_final_lines(&failure.message_lines);
        CommandFailure { message_lines: Vec::new(), ..failure }
    })
}

impl Args {
    fn config_sources(self) -> ConfigSources {
        let mut flags = Vec::new();
        let mut add = |key: &str, value: Option<String>| {
            flags.extend(value.map(|value| (key.to_owned(), value)));
        };
        add("listen.http", self.listen);
        add("listen.admin", self.admin);
        add("upstream.servers", Some(self.upstream.join(",")).filter(|all| !all.is_empty()));
        ConfigSources { flags, ..self.config.config_sources() }
    }
}
