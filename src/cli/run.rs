//! `riskgate run`: runs the gateway.

use std::sync::Arc;

use super::config_args::GatewayConfigArgs;
use super::failure::CommandFailure;
use crate::config::ConfigSources;
use crate::observe::process_log::ProcessLog;
use crate::process::server::{self, ExitHook, StartMode};

#[derive(Debug, Default, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub config: GatewayConfigArgs,
    /// Take over from the serving process: start, wait until that process gets SIGQUIT, then serve
    /// on its sockets. Starts as usual if no process serves from process.runtime_dir.
    #[arg(long)]
    pub upgrade: bool,
}

pub fn run(args: Args) -> Result<(), CommandFailure> {
    let start_mode = if args.upgrade { StartMode::Upgrade } else { StartMode::Standalone };
    run_server(args.config.config_sources(), start_mode, None)
}

/// Runs the gateway with this config, and calls `exit_hook` at the end. Writes all messages through
/// the process log. Only the thread of that log waits for standard error, so the process serves and
/// ends even if standard error is a full pipe.
pub fn run_server(
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
