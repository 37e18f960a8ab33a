//! `riskgate run`: the gateway.

use std::sync::Arc;

use super::config_args::ConfigArgs;
use super::failure::Failure;
use crate::config::{ConfigFile, Overrides};
use crate::observe::process_log::ErrorLog;
use crate::process::server::{self, AtEnd, Start};

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
    /// with its sockets. Starts as usual when nobody serves from process.folder.
    #[arg(long)]
    pub upgrade: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let start = if args.upgrade { Start::Successor } else { Start::Fresh };
    serve(args.overrides(), start, None)
}

/// As [`run`], with flags from elsewhere and something to do at the end.
pub fn run_with(flags: Vec<(String, String)>, at_end: AtEnd) -> Result<(), Failure> {
    let overrides = Overrides { file: ConfigFile::Nowhere, flags };
    serve(overrides, Start::Fresh, Some(at_end))
}

/// Whatever is to be said is said by the log: a standard error that nobody reads keeps no process
/// from serving or from ending.
fn serve(overrides: Overrides, start: Start, at_end: Option<AtEnd>) -> Result<(), Failure> {
    let log = Arc::new(ErrorLog::install()?);
    server::run(overrides, start, &log, at_end).map_err(|error| {
        let failure = Failure::from(error);
        log.write_last(&failure.lines);
        Failure { lines: Vec::new(), ..failure }
    })
}

impl Args {
    fn overrides(self) -> Overrides {
        let mut flags = Vec::new();
        let mut add = |key: &str, value: Option<String>| {
            flags.extend(value.map(|value| (key.to_owned(), value)));
        };
        add("listen.http", self.listen);
        add("listen.admin", self.admin);
        add("upstream.servers", Some(self.upstream.join(",")).filter(|all| !all.is_empty()));
        Overrides { flags, ..self.config.overrides() }
    }
}
