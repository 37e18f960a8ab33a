//! `riskgate run`: runs the gateway.

use std::sync::Arc;

use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use crate::config::{ConfigFile, ConfigSources};
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
    let start = if args.upgrade { StartMode::Upgrade } else { StartMode::Standalone };
    run_server(args.config_sources(), start, None)
}

/// Runs the gateway with these settings and no config file, and calls `exit_hook` at the end.
pub fn run_with_flags(
    flags: Vec<(String, String)>,
    exit_hook: ExitHook,
) -> Result<(), CommandFailure> {
    let config_sources = ConfigSources { file: ConfigFile::None, flags };
    run_server(config_sources, StartMode::Standalone, Some(exit_hook))
}

/// Runs the gateway, with all messages written through the process log. The log does not block, so
/// a full pipe on standard error does not keep the process from serving or from ending.
fn run_server(
    config_sources: ConfigSources,
    start: StartMode,
    exit_hook: Option<ExitHook>,
) -> Result<(), CommandFailure> {
    let log = Arc::new(ProcessLog::install()?);
    server::run(config_sources, start, &log, exit_hook).map_err(|error| {
        let failure = CommandFailure::from(error);
        log.write_final_lines(&failure.lines);
        CommandFailure { lines: Vec::new(), ..failure }
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
