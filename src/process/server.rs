//! The process: starts whole or not at all, listens, drains, ends.
//!
//! Owns the order of start and end, the signals, and what Pingora's server is told. It decides
//! nothing about a request.

mod exit;
pub(super) mod inputs;
mod signals;
mod sockets;
pub(super) mod startup;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::path::Path;
use std::sync::{Arc, Mutex};

use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server};
use pingora_core::services::background::GenBackgroundService;

use crate::config::{Config, ConfigOverrides};
use crate::downstream::ConnectionTracker;
use crate::gate::{Gate, GateState};
use crate::keys::KeyRing;
use crate::observe::process_log::ProcessLog;
use crate::process::admin::AdminApp;
use crate::process::admin::connection::AdminListener;
use crate::process::listener::{DescriptorBudget, ListenerService, MIN_OPEN_FILES};
use crate::process::reload::Reloader;
use crate::process::systemd::{Heartbeat, Watchdog};
use crate::process::upgrade::{Predecessor, RuntimeDir, UpgradeSocket};
use crate::proxy::upstream::{MAX_ATTEMPTS, MAX_IDLE_CONNECTIONS, Upstreams};
use crate::support::certificates::CurrentCertificates;

pub use super::mount::Mount;
pub use exit::ExitHook;
use exit::{ExitTasks, UpgradeState, claim_runtime_dir};
use inputs::check_log_file;
pub use inputs::{StartError, StartupInputs};
use signals::{SignalHandler, SignalStreams};
use sockets::{DownstreamListeners, ListenSockets};
use startup::build_state;

/// How the process begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartMode {
    /// It binds its own sockets.
    Standalone,
    /// It takes them over from the process that serves, if there is one.
    Upgrade,
}

/// Runs the gateway until a signal ends it.
pub fn run(
    overrides: ConfigOverrides,
    start: StartMode,
    process_log: &Arc<ProcessLog>,
    exit_hook: Option<ExitHook>,
) -> Result<(), StartError> {
    signals::ignore_sighup();
    // A successor is in place before it has read everything: who hands over waits for it. What is
    // wrong with the config is told with all other faults.
    let upgrade = match (start, Config::read(&overrides)) {
        (StartMode::Upgrade, Ok(config)) => Some(open_upgrade_socket(&config)?),
        _ => None,
    };
    let mut inputs = StartupInputs::read(&overrides).map_err(StartError::Config)?;
    let wanted = inputs.config.clone();
    let (config, upstreams) = resolve_resources(&wanted)?;
    let certificates =
        inputs.certificates.take().map(|set| Arc::new(CurrentCertificates::new(set)));
    let (folder, upgrade_socket) = upgrade.unwrap_or_else(|| (open_runtime_dir(&config), None));
    let mut upgrade = open_upgrade(&config, folder, upgrade_socket.is_some())?;
    let (state, reloader, reload_trigger) = build_state(inputs, certificates.clone(), overrides)?;
    install_panic_hook(&state);
    if let Some(upgrade_socket) = upgrade_socket {
        take_over_sockets(&config, &mut upgrade, upgrade_socket)?;
    }
    log_startup(&config, &wanted, &state);

    let PreparedStart { runtime_dir, sockets, signal_streams, predecessor } = upgrade;
    let gate = Gate::new(state, config.trusted_proxies.clone());
    let traffic = Arc::new(ConnectionTracker::new(config.connection_limits.clone()));
    let upgrade_state = UpgradeState { folder: runtime_dir, sockets: sockets.try_clone()? };
    let mut server = Server::new_with_opt_and_conf(None, pingora_server_conf(&config));
    server.bootstrap();
    let admin = AdminApp::new(
        Arc::clone(gate.state()),
        Arc::clone(&traffic),
        Arc::clone(&upstreams),
        reloader.status(),
        reload_trigger.clone(),
        &config,
    )
    .with_process_log(process_log);
    let listeners = DownstreamListeners {
        config: &config,
        gate: &gate,
        upstreams: &upstreams,
        traffic: &traffic,
        certificates,
        heart: &Heartbeat::default(),
    };
    add_services(&mut server, listeners, sockets, admin, reloader)?;
    let upgrade_state = Arc::new(Mutex::new(upgrade_state));
    let process_log = Arc::clone(process_log);
    let end =
        Arc::new(ExitTasks { gate, at_end: Mutex::new(exit_hook), upgrade_state, process_log });
    let signals = SignalHandler {
        traffic,
        trigger: reload_trigger,
        exit_tasks: Arc::clone(&end),
        drain_delay: config.drain_delay,
        predecessor: Mutex::new(predecessor),
        heard: Mutex::new(signal_streams),
    };
    server.run(RunArgs { shutdown_signal: Box::new(signals) });
    end.run();
    Ok(())
}

/// What a process has before it serves, and its successor takes over from it.
struct PreparedStart {
    runtime_dir: Option<RuntimeDir>,
    sockets: ListenSockets,
    /// Signals, from when this process can be found.
    signal_streams: Option<SignalStreams>,
    /// The process that serves until this one does.
    predecessor: Option<Predecessor>,
}

/// Claims the directory and binds the sockets, unless a predecessor hands them over.
fn open_upgrade(
    config: &Config,
    mut runtime_dir: Option<RuntimeDir>,
    has_predecessor: bool,
) -> Result<PreparedStart, StartError> {
    if has_predecessor {
        let sockets = ListenSockets::default();
        return Ok(PreparedStart { runtime_dir, sockets, signal_streams: None, predecessor: None });
    }
    let signal_streams = Some(signals::install_signals());
    // Before it binds: who comes to succeed it now waits, and binds nothing.
    claim_runtime_dir(&mut runtime_dir);
    let sockets = ListenSockets::bind(config, Vec::new())?;
    Ok(PreparedStart { runtime_dir, sockets, signal_streams, predecessor: None })
}

/// Takes the sockets over, and binds those that nobody hands over.
fn take_over_sockets(
    config: &Config,
    start: &mut PreparedStart,
    upgrade_socket: UpgradeSocket,
) -> Result<(), StartError> {
    let Some(runtime_dir) = &start.runtime_dir else { return Ok(()) };
    log::info!("ready to take over: waiting for the serving process to get SIGQUIT");
    let inherited = upgrade_socket.receive_sockets(runtime_dir).map_err(|error| {
        StartError::Failed(format!("expected to take sockets over, but found {error}"))
    })?;
    start.signal_streams = Some(signals::install_signals());
    let (inherited, predecessor_stream) = inherited.unzip();
    if predecessor_stream.is_none() {
        log::warn!("the serving process has ended: starting as without --upgrade");
        claim_runtime_dir(&mut start.runtime_dir);
    }
    start.sockets = ListenSockets::bind(config, inherited.unwrap_or_default())?;
    start.predecessor = predecessor_stream;
    Ok(())
}

/// Adds what serves, and what runs beside it.
fn add_services(
    server: &mut Server,
    listeners: DownstreamListeners<'_>,
    mut sockets: ListenSockets,
    admin: AdminApp,
    reloader: Reloader,
) -> Result<(), StartError> {
    if let Some(socket) = sockets.remove("admin") {
        let admin = AdminListener::new(admin);
        let timeout = listeners.config.downstream.write_timeout;
        server.add_service(ListenerService::new("admin", socket, admin, timeout));
    }
    let (balancer, heartbeat) = (listeners.upstreams.balancer(), listeners.heart.clone());
    listeners.add_services(server, sockets)?;
    server.add_service(GenBackgroundService::new("health".to_owned(), balancer));
    server.add_service(GenBackgroundService::new("reload".to_owned(), Arc::new(reloader)));
    server.add_service(GenBackgroundService::new(
        "watchdog".to_owned(),
        Arc::new(Watchdog(heartbeat)),
    ));
    Ok(())
}

/// What a start needs beside what was read: the config with limits that can be had, and the pool of
/// servers; or all that keeps a process from starting with it. It starts nothing and makes nothing,
/// so `check` asks it too.
pub fn resolve_resources(config: &Config) -> Result<(Config, Arc<Upstreams>), StartError> {
    let files = check_log_file(config);
    let limited = fit_descriptor_limit(config.clone());
    let upstreams = resolve_upstreams(limited.as_ref().unwrap_or(config));
    match (files, limited, upstreams) {
        (Ok(()), Ok(limited), Ok(upstreams)) => Ok((limited, upstreams)),
        (files, limited, upstreams) => {
            let faults = [files.err(), limited.err(), upstreams.err()];
            let lines = faults.iter().flatten().map(ToString::to_string).collect();
            Err(StartError::Config(lines))
        }
    }
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

/// The config with as many connections and exchanges as there are descriptors for.
fn fit_descriptor_limit(mut config: Config) -> Result<Config, StartError> {
    let wanted = DescriptorBudget {
        connections: config.connection_limits.connections,
        exchanges: config.upstream.max_in_flight,
    };
    let given = DescriptorBudget::allocate(wanted).map_err(|limit| {
        let expected = format!("limit of open files: expected at least {MIN_OPEN_FILES}");
        StartError::Config(vec![format!("{expected}, but found {limit}")])
    })?;
    config.connection_limits.connections = given.connections;
    if given.exchanges < config.upstream.max_in_flight {
        let upstream = &mut config.upstream;
        let per_address = upstream.max_in_flight_per_address.min(given.exchanges.div_ceil(2));
        (upstream.max_in_flight, upstream.max_in_flight_per_address) =
            (given.exchanges, per_address);
    }
    Ok(config)
}

/// The process's directory, without which it serves all the same.
fn open_runtime_dir(config: &Config) -> Option<RuntimeDir> {
    let path = config.runtime_dir.as_ref()?;
    match RuntimeDir::open(path) {
        Ok(folder) => Some(folder),
        Err(error) => {
            log::warn!("an upgrade will not be possible: {}", runtime_dir_error(path, &error));
            None
        }
    }
}

/// The process's directory, without which there is nobody to succeed, and the meeting place in it, if
/// there is somebody to meet.
fn open_upgrade_socket(
    config: &Config,
) -> Result<(Option<RuntimeDir>, Option<UpgradeSocket>), StartError> {
    let Some(path) = &config.runtime_dir else {
        return Err(StartError::Config(vec![
            "config: process.runtime_dir: expected a directory shared with the process that serves, \
             but found none"
                .to_owned(),
        ]));
    };
    let failed = |error| StartError::Failed(runtime_dir_error(path, &error));
    let folder = RuntimeDir::open(path).map_err(failed)?;
    if !folder.is_claimed() {
        log::info!("no process serves from process.runtime_dir: starting as without --upgrade");
        return Ok((Some(folder), None));
    }
    let upgrade_socket = folder.bind_upgrade_socket().map_err(failed)?;
    Ok((Some(folder), Some(upgrade_socket)))
}

fn runtime_dir_error(path: &Path, error: &std::io::Error) -> String {
    let path = path.display();
    format!(
        "process.runtime_dir: expected a directory that only this user can write to, but found {error}: {path}"
    )
}

/// Says what begins to serve, and what of the config could not be had.
fn log_startup(config: &Config, wanted: &Config, state: &GateState) {
    let (connections, exchanges) =
        (config.connection_limits.connections, config.upstream.max_in_flight);
    let per_address = config.upstream.max_in_flight_per_address;
    if connections < wanted.connection_limits.connections
        || exchanges < wanted.upstream.max_in_flight
    {
        log::warn!(
            "the limit of open files leaves {connections} connections \
             (listen.max_connections {}) and {exchanges} exchanges \
             (upstream.max_in_flight {}), {per_address} of them for an address \
             (upstream.max_in_flight_per_address {}): raise it with ulimit -n or LimitNOFILE",
            wanted.connection_limits.connections,
            wanted.upstream.max_in_flight,
            wanted.upstream.max_in_flight_per_address,
        );
    }
    let table = state.table.peek();
    log::info!(
        "{} on http://{}{}, admin on http://{}, table {} with {} rows, {} keys",
        env!("CARGO_PKG_VERSION"),
        config.http,
        config.https.map(|address| format!(" and https://{address}")).unwrap_or_default(),
        config.admin,
        table.version(),
        table.row_count(),
        state.keys.peek().as_ref().as_ref().map_or(0, KeyRing::len),
    );
}

fn pingora_server_conf(config: &Config) -> ServerConf {
    ServerConf {
        threads: config.threads,
        // One thread has nobody to look for work at.
        work_stealing: config.threads > 1,
        max_retries: MAX_ATTEMPTS,
        // The drain ends by our own count; this is only how long it may take at the latest.
        grace_period_seconds: Some(config.drain_grace.as_secs_f64().ceil() as u64),
        graceful_shutdown_timeout_seconds: Some(1),
        upstream_keepalive_pool_size: MAX_IDLE_CONNECTIONS,
        ca_file: config.upstream.tls.as_ref().and_then(|tls| tls.ca_file.clone()),
        ..ServerConf::default()
    }
}

/// A panic costs its connection; it is counted, and told with where it happened.
pub fn install_panic_hook(state: &Arc<GateState>) {
    let state = Arc::clone(state);
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        state.metrics.connections.panics.inc();
        if !log::log_enabled!(log::Level::Error) {
            return default(info);
        }
        // By the log, which waits for nobody; the library's own hook writes to standard error.
        let trace = Backtrace::capture();
        match trace.status() {
            BacktraceStatus::Captured => log::error!("{info}\n{trace}"),
            _ => log::error!("{info}"),
        }
    }));
}
