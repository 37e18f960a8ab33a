//! The process: starts whole or not at all, listens, drains, ends.
//!
//! Owns the order of start and end, the signals, and what Pingora's server is told. It decides
//! nothing about a request.

use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use pingora_core::apps::http_app::HttpServer;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server, ShutdownSignal, ShutdownSignalWatch};
use pingora_core::services::background::GenBackgroundService;
use pingora_core::services::listening::Service;
use pingora_proxy::http_proxy;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::access_log::{AccessLog, LogTarget};
use crate::admin::Admin;
use crate::config::{Config, Overrides};
use crate::door::{Door, Traffic};
use crate::gate::{Gate, State};
use crate::gateway::{Gateway, MAX_TRIES};
use crate::keys::{KeyRing, read_key_file};
use crate::live::Live;
use crate::metrics::Metrics;
use crate::quota::{Ledger, LedgerOptions};
use crate::reload::{Keys, Reloader, Trigger};
use crate::store::StoreError;
use crate::table::Table;
use crate::top::Top;
use crate::upstream::Upstreams;

/// Why the process did not start; nothing was started and nothing overwritten.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Config or data: exit code 78.
    #[error("{}", .0.join("\n"))]
    Config(Vec<String>),
    /// Anything else: exit code 1.
    #[error("{0}")]
    Failed(String),
}

/// What happens when the process ends in order.
pub type AtEnd = Box<dyn FnOnce() + Send>;

/// Everything that was read, as `run` needs it and `check` reports it.
pub struct Loaded {
    /// The config.
    pub config: Config,
    /// The table.
    pub table: Table,
    /// Keys declared in a file.
    pub declared: Vec<crate::keys::DeclaredKey>,
}

impl Loaded {
    /// Reads config, table and key file; or every fault of all of them.
    pub fn read(overrides: &Overrides) -> Result<Loaded, Vec<String>> {
        let (config, mut faults) = Config::attempt(overrides);
        let Some(config) = config else { return Err(faults) };
        let table = Table::load(&config.table);
        let declared = match &config.key_file {
            Some(path) => read_key_file(path, &Config::variable),
            None => Ok(Vec::new()),
        };
        if let Err(error) = &table {
            faults.extend(error.to_string().lines().map(str::to_owned));
        }
        if let Err(errors) = &declared {
            faults.extend(errors.iter().map(ToString::to_string));
        }
        match (table, declared) {
            (Ok(table), Ok(declared)) if faults.is_empty() => {
                Ok(Loaded { config, table, declared })
            }
            _ => Err(faults),
        }
    }
}

/// Runs the gateway until a signal ends it.
pub fn run(overrides: Overrides, at_end: Option<AtEnd>) -> Result<(), StartError> {
    let loaded = Loaded::read(&overrides).map_err(StartError::Config)?;
    let config = loaded.config.clone();
    let upstreams = prepare_sockets(&config)?;
    let (state, reloader, trigger) = assemble(loaded, overrides)?;
    count_panics(&state);
    announce(&config, &state);

    let gate = Gate::new(state);
    let traffic = Arc::new(Traffic::default());
    let mut server = Server::new_with_opt_and_conf(None, server_conf(&config));
    server.bootstrap();
    server.add_service(http_service(&server, &config, &gate, &upstreams, &traffic));
    let admin = Admin::new(
        Arc::clone(gate.state()),
        Arc::clone(&traffic),
        Arc::clone(&upstreams),
        reloader.status(),
        trigger.clone(),
        &config,
    );
    let mut admin = Service::new("admin".to_owned(), HttpServer::new_app(admin));
    admin.add_tcp(&config.admin.to_string());
    admin.threads = Some(1);
    server.add_service(admin);
    server.add_service(GenBackgroundService::new("health".to_owned(), upstreams.balancer()));
    server.add_service(GenBackgroundService::new("reload".to_owned(), Arc::new(reloader)));

    let end = Arc::new(End { gate, at_end: Mutex::new(at_end) });
    let delay = config.drain_delay;
    let signals = Signals { traffic, trigger, end: Arc::clone(&end), delay };
    server.run(RunArgs { shutdown_signal: Box::new(signals) });
    end.now();
    Ok(())
}

/// Looks whether we can listen, and whom we would pass requests to.
fn prepare_sockets(config: &Config) -> Result<Arc<Upstreams>, StartError> {
    for address in [config.http, config.admin] {
        // Pingora would panic in a task; this says which address and why.
        TcpListener::bind(address).map_err(|error| {
            StartError::Failed(format!("expected to listen on {address}, but found {error}"))
        })?;
    }
    resolve_upstreams(config)
}

/// The pool of servers that a config names.
pub fn resolve_upstreams(config: &Config) -> Result<Arc<Upstreams>, StartError> {
    let upstreams = Upstreams::new(config.upstream.clone()).map_err(|error| {
        let servers = config.upstream.servers.join(", ");
        let expected = "upstream.servers: expected names that resolve";
        StartError::Config(vec![format!("{expected}, but found {error} in {servers}")])
    })?;
    Ok(Arc::new(upstreams))
}

fn http_service(
    server: &Server,
    config: &Config,
    gate: &Gate,
    upstreams: &Arc<Upstreams>,
    traffic: &Arc<Traffic>,
) -> Service<Door<Gateway>> {
    let trusted = config.trusted_proxies.clone();
    let gateway = Gateway::new(gate.clone(), Arc::clone(upstreams), trusted);
    let proxy = http_proxy(&server.configuration, gateway);
    let door = Door::new(proxy, gate.clone(), config.door.clone(), Arc::clone(traffic));
    let mut http = Service::new("http".to_owned(), door);
    http.add_tcp(&config.http.to_string());
    http.threads = Some(config.threads);
    http
}

fn announce(config: &Config, state: &State) {
    let table = state.table.peek();
    log::info!(
        "{} on http://{}, admin on http://{}, table {} with {} rows, {} keys",
        env!("CARGO_PKG_VERSION"),
        config.http,
        config.admin,
        table.version(),
        table.rows(),
        state.keys.peek().as_ref().as_ref().map_or(0, KeyRing::len),
    );
}

/// A gate for a Pingora server of your own: the same state, kept fresh the same way.
pub struct Mount {
    gate: Gate,
    reloader: Reloader,
}

impl Mount {
    /// Reads config, table, keys and store as `riskgate run` would, and listens nowhere.
    pub fn new(overrides: Overrides) -> Result<Mount, StartError> {
        let loaded = Loaded::read(&overrides).map_err(StartError::Config)?;
        let (state, reloader, _) = assemble(loaded, overrides)?;
        Ok(Mount { gate: Gate::new(state), reloader })
    }

    /// The gate: it can be cloned into as many proxies as there are.
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// The service that reloads table, keys and config; add it to your server.
    pub fn into_service(self) -> GenBackgroundService<Reloader> {
        GenBackgroundService::new("riskgate".to_owned(), Arc::new(self.reloader))
    }
}

/// Makes the state that requests are judged by, and the one that keeps it fresh.
fn assemble(
    loaded: Loaded,
    overrides: Overrides,
) -> Result<(Arc<State>, Reloader, Trigger), StartError> {
    let Loaded { config, table, declared } = loaded;
    let unusable = |error: StoreError| StartError::Config(vec![error.to_string()]);
    let failed = |error: &dyn std::fmt::Display| StartError::Failed(error.to_string());
    let open = || config.store.open(config.store.deadline);
    let now = unix_now();
    let options = LedgerOptions {
        deadline: config.store.deadline,
        on_failure: config.on_failure,
        max_unsettled: config.store.max_unsettled,
    };
    let mut ring_store = open().map_err(unusable)?;
    ring_store.check().map_err(unusable)?;
    let ledger = Ledger::start(open().map_err(unusable)?, open().map_err(unusable)?, options, now)
        .map_err(unusable)?;
    let (keys, ring) = Keys::load(ring_store, declared, &config, &ledger)
        .map_err(|problem| StartError::Config(vec![problem]))?;
    let table = Arc::new(Live::new(table));
    let (judge, seed) = (Arc::clone(&table), Arc::clone(&table));
    let top = Top::start(
        open().map_err(unusable)?,
        config.top,
        Box::new(move |name| {
            let table = judge.peek();
            let verdict = table.row_of(name)?.own.verdict;
            verdict.reason.is_flagged().then_some((verdict.reason, verdict.score))
        }),
        Box::new(move || seed.peek().seed().to_vec()),
        now,
    )
    .map_err(unusable)?;
    let log = AccessLog::start(config.log_target.clone(), config.access_log).map_err(|error| {
        let target = match &config.log_target {
            LogTarget::File(path) => path.display().to_string(),
            LogTarget::Stdout => "standard output".to_owned(),
        };
        let what = format!("config: log.path: expected a file to append to, but found {error}");
        StartError::Config(vec![format!("{what}: {target}")])
    })?;
    let state = Arc::new(State {
        table,
        keys: Live::new(ring),
        ledger,
        top,
        metrics: Metrics::new().map_err(|error| failed(&error))?,
        log,
        policy: Live::new(config.policy()),
    });
    let (reloader, trigger) = Reloader::new(Arc::clone(&state), config, overrides, keys);
    Ok((state, reloader, trigger))
}

fn server_conf(config: &Config) -> ServerConf {
    ServerConf {
        threads: config.threads,
        max_retries: MAX_TRIES,
        // The drain ends by our own count; this is only how long it may take at the latest.
        grace_period_seconds: Some(config.drain_grace.as_secs_f64().ceil() as u64),
        graceful_shutdown_timeout_seconds: Some(1),
        upstream_keepalive_pool_size: 512,
        ..ServerConf::default()
    }
}

/// A panic costs its connection; it is counted, and told with where it happened.
fn count_panics(state: &Arc<State>) {
    let counted = Arc::clone(state);
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        counted.metrics.panics.inc();
        default(info);
    }));
}

fn unix_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}

/// The last things, done once however the process ends.
struct End {
    gate: Gate,
    at_end: Mutex<Option<AtEnd>>,
}

impl End {
    fn now(&self) {
        self.gate.close();
        let at_end = self.at_end.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(at_end) = at_end {
            at_end();
        }
    }
}

/// Our own signals: Pingora's would stop accepting at once and then sleep blindly, and know
/// nothing of SIGHUP.
struct Signals {
    traffic: Arc<Traffic>,
    trigger: Trigger,
    end: Arc<End>,
    delay: Duration,
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        let listen = |kind: SignalKind| signal(kind).map_err(|error| log::error!("{error}")).ok();
        let mut hangup = listen(SignalKind::hangup());
        let mut quit = listen(SignalKind::quit());
        let mut terminate = listen(SignalKind::terminate());
        let mut interrupt = listen(SignalKind::interrupt());
        loop {
            tokio::select! {
                () = next(&mut hangup) => self.trigger.everything(),
                () = next(&mut quit) => log::warn!("SIGQUIT without a successor in place: serving on"),
                () = next(&mut interrupt) => {
                    self.end.now();
                    return ShutdownSignal::FastShutdown;
                }
                () = next(&mut terminate) => break,
            }
        }
        self.traffic.drain();
        tokio::select! {
            () = tokio::time::sleep(self.delay) => {}
            () = next(&mut interrupt) => {
                self.end.now();
                return ShutdownSignal::FastShutdown;
            }
        }
        self.exit_once_drained(interrupt);
        ShutdownSignal::GracefulTerminate
    }
}

async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

impl Signals {
    /// Ends the process as soon as nothing is in flight: Pingora's grace is a blind sleep.
    fn exit_once_drained(&self, mut interrupt: Option<Signal>) {
        let (traffic, end) = (Arc::clone(&self.traffic), Arc::clone(&self.end));
        tokio::spawn(async move {
            let drained = async {
                traffic.closed().await;
                traffic.finished().await;
            };
            tokio::select! {
                () = drained => {}
                () = next(&mut interrupt) => {}
            }
            let last_words = tokio::task::spawn_blocking(move || end.now()).await;
            std::process::exit(i32::from(last_words.is_err()));
        });
    }
}
