//! `riskgate run`: the gateway.

use std::sync::Arc;

use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use crate::config::{ConfigFile, ConfigOverrides};
use crate::observe::process_log::ProcessLog;
use crate::process::server::{self, ExitHook, StartMode};

#[derive(Debug, Default, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Where requests come in.
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Where the operator looks in.
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// A server behind the gateway; can be given several times.
    #[arg(long, value_name = "ADDR")]
    pub upstream: Vec<String>,
    /// Take over from the process that serves: start, wait until it is sent SIGQUIT, then go on
    /// with its sockets. Starts as usual when nobody serves from process.runtime_dir.
    #[arg(long)]
    pub upgrade: bool,
}

pub fn run(args: Args) -> Result<(), CommandFailure> {
    let start = if args.upgrade { StartMode::Upgrade } else { StartMode::Standalone };
    run_server(args.overrides(), start, None)
}

/// As [`run`], with flags from elsewhere and something to do at the end.
pub fn run_with_flags(
    flags: Vec<(String, String)>,
    exit_hook: ExitHook,
) -> Result<(), CommandFailure> {
    let overrides = ConfigOverrides { file: ConfigFile::None, flags };
    run_server(overrides, StartMode::Standalone, Some(exit_hook))
}

/// Whatever is to be said is said by the log: a standard error that nobody reads keeps no process
/// from serving or from ending.
fn run_server(
    overrides: ConfigOverrides,
    start: StartMode,
    exit_hook: Option<ExitHook>,
) -> Result<(), CommandFailure> {
    let log = Arc::new(ProcessLog::install()?);
    server::run(overrides, start, &log, exit_hook).map_err(|error| {
        let failure = CommandFailure::from(error);
        log.write_final_lines(&failure.lines);
        CommandFailure { lines: Vec::new(), ..failure }
    })
}

impl Args {
    fn overrides(self) -> ConfigOverrides {
        let mut flags = Vec::new();
        let mut add = |key: &str, value: Option<String>| {
            flags.extend(value.map(|value| (key.to_owned(), value)));
        };
        add("listen.http", self.listen);
        add("listen.admin", self.admin);
        add("upstream.servers", Some(self.upstream.join(",")).filter(|all| !all.is_empty()));
        ConfigOverrides { flags, ..self.config.overrides() }
    }
}
