//! `riskgate run`: the gateway.

use std::io::Write as _;

use super::{ConfigArgs, Failure};
use crate::config::{ConfigFile, Overrides};
use crate::server::{self, AtEnd, Start};

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
    Logger::install();
    let start = if args.upgrade { Start::Successor } else { Start::Fresh };
    Ok(server::run(args.overrides(), start, None)?)
}

/// As [`run`], with flags from elsewhere and something to do at the end.
pub fn run_with(flags: Vec<(String, String)>, at_end: AtEnd) -> Result<(), Failure> {
    Logger::install();
    let overrides = Overrides { file: ConfigFile::Nowhere, flags };
    Ok(server::run(overrides, Start::Fresh, Some(at_end))?)
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

/// What the process itself has to say, on stderr: warnings and errors of any crate, our own
/// information.
struct Logger;

impl Logger {
    fn install() {
        // A second call, as from a test, changes nothing.
        if log::set_logger(&Logger).is_ok() {
            log::set_max_level(log::LevelFilter::Info);
        }
    }
}

impl log::Log for Logger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        let ours = metadata.target().starts_with("riskgate");
        metadata.level() <= if ours { log::Level::Info } else { log::Level::Error }
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = record.level().as_str().to_ascii_lowercase();
            let said = record.args().to_string();
            // Pingora quotes a header that it can't read whole, with the key or token in it.
            let said = said.split("buf: ").next().unwrap_or_default().trim_end();
            // `eprintln!` would end the thread that speaks when there is no room for its words.
            // In one piece: a predecessor writes to the same place.
            let line = format!("riskgate: {level}: {said}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}
