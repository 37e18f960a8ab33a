//! Starts the gateway completely or not at all, and runs it until a signal ends the process.
//!
//! This module owns the order of start and exit, the signals, and the config of Pingora's server.
//! It decides nothing about a request.

mod exit;
mod signals;
mod sockets;
pub(super) mod startup;
pub(super) mod startup_inputs;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::path::Path;
use std::sync::{Arc, Mutex};

use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server};
use pingora::services::background::GenBackgroundService;

use crate::config::{Config, ConfigSources};
use crate::downstream::ConnectionTracker;
use crate::exchange::MAX_EXCHANGE_ATTEMPTS;
use crate::gate::{Gate, GateState};
use crate::keys::KeyRing;
use crate::observe::process_log::ProcessLog;
use crate::process::admin::AdminApp;
use crate::process::admin::api::AdminApi;
use crate::process::admin::connection::AdminServerApp;
use crate::process::listener::{DescriptorBudget, ListenerService, MIN_OPEN_FILES_LIMIT};
use crate::process::reload::Reloader;
use crate::process::runtime_dir::RuntimeDir;
use crate::process::served_store_sockets::StoreNameSockets;
use crate::process::systemd::{Heartbeat, WatchdogNotifier};
use crate::process::upgrade::{PredecessorConnection, UpgradeSocket};
use crate::proxy::upstream::{MAX_IDLE_CONNECTIONS, UpstreamOptions, Upstreams, connector_ca_file};
use crate::proxy::upstream_service::UpstreamWatchService;
use crate::support::certificates::CurrentCertificates;
use crate::support::counted::CountedNoun;

pub use exit::ExitHook;
use exit::{ExitTasks, UpgradeState, claim_runtime_dir_or_warn};
pub use signals::survive_file_size_limit;
use signals::{SignalHandler, SignalStreams};
use sockets::{ListenSockets, ProxyServiceParts, check_predecessor};
use startup::start_gate_state_and_reloader;
pub(in crate::process) use startup_inputs::check_log_paths;
pub use startup_inputs::{
    StartError, StartupInputs, warnings_of_invalid_certificates,
    warnings_of_unreachable_certificates,
};

/// How the process gets its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartMode {
    /// The process binds its own sockets.
    Standalone,
    /// The process takes the sockets over from the process that serves. If none serves, it binds
    /// its own sockets.
    Upgrade,
}

/// Runs the gateway until a signal ends it.
pub fn run(
    config_sources: ConfigSources,
    start_mode: StartMode,
    process_log: &Arc<ProcessLog>,
    exit_hook: Option<ExitHook>,
) -> Result<(), StartError> {
    signals::ignore_sighup();
    let runtime_dir_and_socket = open_socket_if_upgrading(start_mode, &config_sources)?;
    let mut inputs = StartupInputs::read(&config_sources).map_err(StartError::Config)?;
    let configured = inputs.config.clone();
    process_log.set_options(configured.reloadable.process_log.clone());
    let (config, upstreams) = check_log_limits_and_upstreams(&configured)?;
    upstreams.set_server_is_default(inputs.watches.is_default("upstream.servers"));
    let certificates =
        inputs.certificates.take().map(|set| Arc::new(CurrentCertificates::new(set)));
    let (runtime_dir, upgrade_socket) =
        runtime_dir_and_socket.unwrap_or_else(|| (open_runtime_dir(&config), None));
    let mut prepared_start = bind_unless_upgrading(&config, runtime_dir, upgrade_socket.is_some())?;
    let (state, reloader, reload_trigger) =
        start_gate_state_and_reloader(inputs, certificates.clone(), config_sources)?;
    install_panic_hook(&state);
    if let Some(upgrade_socket) = upgrade_socket {
        take_over_sockets(&config, &mut prepared_start, upgrade_socket, &reloader, &upstreams)?;
    }
    log_startup(&config, &configured, &state, certificates.as_deref());
    let PreparedStart { runtime_dir, sockets, signal_streams, predecessor } = prepared_start;
    let gate = Gate::new(state, config.startup.startup_rules.clone());
    let connection_tracker =
        Arc::new(ConnectionTracker::new(config.startup.connection_limits.clone()));
    let store_sockets = StoreNameSockets::new(&config.startup.store);
    let signs = (store_sockets.clone(), runtime_dir.as_ref().map(RuntimeDir::served_store_file));
    let reloader = reloader.with_served_store_signs(signs, &config.startup.store);
    let duplicate_sockets = sockets.try_clone()?;
    let upgrade_state = UpgradeState { runtime_dir, duplicate_sockets, store_sockets };
    let mut server = Server::new_with_opt_and_conf(None, pingora_server_conf(&config));
    server.bootstrap();
    let admin_api = AdminApi::new(
        Arc::clone(gate.state()),
        Arc::clone(&connection_tracker),
        Arc::clone(&upstreams),
        &reloader,
        reload_trigger.clone(),
        certificates.clone(),
    );
    let admin = AdminApp::new(admin_api, Arc::clone(process_log));
    let service_parts = ProxyServiceParts {
        config: &config,
        gate: &gate,
        upstreams: &upstreams,
        connection_tracker: &connection_tracker,
        certificates,
        heartbeat: &Heartbeat::default(),
    };
    let reloader = reloader.with_process_log(process_log);
    add_services(&mut server, service_parts, sockets, admin, reloader)?;
    let exit_tasks =
        ExitTasks::new(gate, &connection_tracker, exit_hook, upgrade_state, process_log);
    let signals = SignalHandler {
        connection_tracker,
        drain_grace: config.startup.drain_grace,
        reload_trigger,
        exit_tasks: Arc::clone(&exit_tasks),
        drain_delay: config.startup.drain_delay,
        predecessor: Mutex::new(predecessor),
        signal_streams: Mutex::new(signal_streams),
    };
    server.run(RunArgs { shutdown_signal: Box::new(signals) });
    exit_tasks.run_and_exit_if_failed();
    Ok(())
}

/// The runtime directory, and the socket in this directory to which the serving process connects.
type DirAndUpgradeSocket = (Option<RuntimeDir>, Option<UpgradeSocket>);

/// In an upgrade, opens the runtime directory and, if a process serves from it, the upgrade socket.
/// This process loads lists, keys and certificates only after that, so the serving process can
/// connect meanwhile. If the config is faulty, opens nothing: `StartupInputs::read` reads the
/// config again and reports all faults.
fn open_socket_if_upgrading(
    start_mode: StartMode,
    config_sources: &ConfigSources,
) -> Result<Option<DirAndUpgradeSocket>, StartError> {
    match (start_mode, Config::read(config_sources)) {
        (StartMode::Upgrade, Ok(config)) => open_dir_and_upgrade_socket(&config).map(Some),
        _ => Ok(None),
    }
}

/// The sockets and the runtime directory of a process that has not begun to serve.
struct PreparedStart {
    runtime_dir: Option<RuntimeDir>,
    sockets: ListenSockets,
    /// The streams of signals; `None` until the handlers are installed.
    signal_streams: Option<SignalStreams>,
    /// The process that this one replaces; `None` if this one has taken no sockets over.
    predecessor: Option<PredecessorConnection>,
}

/// Installs the signal handlers, claims the runtime directory and binds the sockets. If a
/// predecessor serves, does nothing: [`take_over_sockets`] takes the predecessor's sockets over.
fn bind_unless_upgrading(
    config: &Config,
    mut runtime_dir: Option<RuntimeDir>,
    has_predecessor: bool,
) -> Result<PreparedStart, StartError> {
    if has_predecessor {
        let sockets = ListenSockets::default();
        return Ok(PreparedStart { runtime_dir, sockets, signal_streams: None, predecessor: None });
    }
    let signal_streams = Some(signals::install_signal_handlers());
    // riskgate claims the directory before it binds. So a successor that starts at this moment
    // waits for the sockets, and does not bind its own.
    claim_runtime_dir_or_warn(&mut runtime_dir);
    let serving_pid = runtime_dir.as_ref().and_then(RuntimeDir::find_serving_pid);
    let sockets = ListenSockets::bind(config, Vec::new(), serving_pid)?;
    Ok(PreparedStart { runtime_dir, sockets, signal_streams, predecessor: None })
}

/// Waits for the sockets of the predecessor. Binds each configured address for which the
/// predecessor sent no socket. If the predecessor releases the runtime directory without sending
/// sockets, claims the directory and binds all addresses. Then reads what has changed meanwhile.
/// Fails if the predecessor is another gateway, which then keeps serving.
fn take_over_sockets(
    config: &Config,
    prepared_start: &mut PreparedStart,
    upgrade_socket: UpgradeSocket,
    reloader: &Reloader,
    upstreams: &Upstreams,
) -> Result<(), StartError> {
    let Some(runtime_dir) = &prepared_start.runtime_dir else { return Ok(()) };
    log::info!("ready to take over: waiting for the serving process to get SIGQUIT");
    let inherited = upgrade_socket.receive_sockets(runtime_dir).map_err(|error| {
        StartError::Failed(format!("expected to take sockets over, but found {error}"))
    })?;
    if let Some((sockets, _)) = &inherited {
        check_predecessor(config, sockets, runtime_dir.read_served_store().as_ref())?;
    }
    prepared_start.signal_streams = Some(signals::install_signal_handlers());
    let (inherited, predecessor_stream) = inherited.unzip();
    if predecessor_stream.is_none() {
        log::warn!("the serving process accepts no more: starting as without --upgrade");
        claim_runtime_dir_or_warn(&mut prepared_start.runtime_dir);
    }
    prepared_start.sockets = ListenSockets::bind(config, inherited.unwrap_or_default(), None)?;
    prepared_start.predecessor = predecessor_stream;
    reloader.catch_up();
    upstreams.catch_up();
    Ok(())
}

/// Adds the listeners and the background services to Pingora's server.
fn add_services(
    server: &mut Server,
    service_parts: ProxyServiceParts<'_>,
    mut sockets: ListenSockets,
    admin: AdminApp,
    reloader: Reloader,
) -> Result<(), StartError> {
    if let Some(socket) = sockets.remove_socket("admin") {
        server.add_service(GenBackgroundService::new("history".to_owned(), admin.history()));
        let admin = AdminServerApp::new(admin);
        let timeout = service_parts.config.startup.downstream.write_timeout;
        server.add_service(ListenerService::new("admin", socket, admin, timeout));
    }
    let upstreams = UpstreamWatchService::new(
        Arc::clone(service_parts.upstreams),
        Arc::clone(service_parts.gate.state()),
    );
    let heartbeat = service_parts.heartbeat.clone();
    service_parts.add_services(server, sockets)?;
    server.add_service(GenBackgroundService::new("upstream".to_owned(), Arc::new(upstreams)));
    server.add_service(GenBackgroundService::new("reload".to_owned(), Arc::new(reloader)));
    server.add_service(GenBackgroundService::new(
        "watchdog".to_owned(),
        Arc::new(WatchdogNotifier(heartbeat)),
    ));
    Ok(())
}

/// Checks the paths of the access log and of the audit, fits the limits of connections and
/// exchanges to the limit of open files, and resolves the upstream servers. Returns the config with
/// the fitted limits, or the faults of all three steps. Both `riskgate run` and `riskgate check`
/// call this function. No thread that it starts outlives the call.
pub fn check_log_limits_and_upstreams(
    config: &Config,
) -> Result<(Config, Arc<Upstreams>), StartError> {
    let files = check_log_paths(config);
    let limited = lower_limits_to_open_files(config.clone());
    let upstreams = create_upstreams(limited.as_ref().unwrap_or(config));
    match (files, limited, upstreams) {
        (Ok(()), Ok(limited), Ok(upstreams)) => Ok((limited, upstreams)),
        (files, limited, upstreams) => {
            let faults = [files.err(), limited.err(), upstreams.err()];
            let lines = faults.iter().flatten().map(ToString::to_string).collect();
            Err(StartError::Config(lines))
        }
    }
}

/// Creates the upstream servers of a config, and resolves their names. If a name does not resolve,
/// this is no error: riskgate tries again while it runs.
pub fn create_upstreams(config: &Config) -> Result<Arc<Upstreams>, StartError> {
    let upstreams = Upstreams::new(config.startup.upstream.clone()).map_err(|error| {
        StartError::Config(vec![format!("upstream: expected to resolve names, but found {error}")])
    })?;
    Ok(Arc::new(upstreams))
}

/// Raises the process's limit of open files to its hard limit. Then lowers `listen.max_connections`
/// and `upstream.max_in_flight` to what the open files allow. If it lowers
/// `upstream.max_in_flight`, it lowers `upstream.max_in_flight_per_address` to at most the default
/// for the new value.
fn lower_limits_to_open_files(mut config: Config) -> Result<Config, StartError> {
    let wanted = DescriptorBudget {
        max_connections: config.startup.connection_limits.max_connections,
        max_exchanges: config.startup.upstream.max_in_flight,
    };
    let given = DescriptorBudget::raise_nofile_limit_and_divide(wanted).map_err(|limit| {
        let expected = format!("limit of open files: expected at least {MIN_OPEN_FILES_LIMIT}");
        StartError::Config(vec![format!("{expected}, but found {limit}")])
    })?;
    config.startup.connection_limits.max_connections = given.max_connections;
    if given.max_exchanges < config.startup.upstream.max_in_flight {
        let upstream = &mut config.startup.upstream;
        let per_address = upstream
            .max_in_flight_per_address
            .min(UpstreamOptions::default_max_in_flight_per_address(given.max_exchanges));
        (upstream.max_in_flight, upstream.max_in_flight_per_address) =
            (given.max_exchanges, per_address);
    }
    Ok(config)
}

/// Opens the runtime directory. If that fails, logs a warning: the process serves without the
/// directory, but can't be upgraded. If only the path is too long for an upgrade, logs this warning
/// as well, and uses the directory: commands find this process by it.
fn open_runtime_dir(config: &Config) -> Option<RuntimeDir> {
    let path = config.startup.runtime_dir.as_ref()?;
    let warn = |error| {
        log::warn!("an upgrade will not be possible: {}", runtime_dir_error(path, &error));
    };
    let runtime_dir = RuntimeDir::open(path).map_err(warn).ok()?;
    if let Err(error) = RuntimeDir::check_fits_upgrade_socket(path) {
        warn(error);
    }
    Some(runtime_dir)
}

/// Opens the runtime directory, which an upgrade requires. If a process serves from the directory,
/// binds the upgrade socket in it.
fn open_dir_and_upgrade_socket(config: &Config) -> Result<DirAndUpgradeSocket, StartError> {
    let Some(path) = &config.startup.runtime_dir else {
        return Err(StartError::Config(vec![
            "config: process.runtime_dir: expected a directory shared with the process that serves, \
             but found none"
                .to_owned(),
        ]));
    };
    let failed = |error| StartError::Failed(runtime_dir_error(path, &error));
    RuntimeDir::check_fits_upgrade_socket(path).map_err(failed)?;
    let runtime_dir = RuntimeDir::open(path).map_err(failed)?;
    if !runtime_dir.is_claimed() {
        log::info!("no process serves from process.runtime_dir: starting as without --upgrade");
        return Ok((Some(runtime_dir), None));
    }
    let upgrade_socket = UpgradeSocket::bind(&runtime_dir).map_err(|error| {
        let expected = "expected to wait there for the serving process, but found";
        let path = path.display();
        StartError::Failed(format!("{RUNTIME_DIR_SETTING}: {expected} {error}: {path}"))
    })?;
    Ok((Some(runtime_dir), Some(upgrade_socket)))
}

fn runtime_dir_error(path: &Path, error: &std::io::Error) -> String {
    format!("{RUNTIME_DIR_SETTING}: {}", runtime_dir_problem(path, error))
}

fn runtime_dir_problem(path: &Path, error: &std::io::Error) -> String {
    let path = path.display();
    format!("expected a directory that only this user can write to, but found {error}: {path}")
}

/// Returns a warning if the runtime directory can't be used for an upgrade.
pub fn check_runtime_dir(config: &Config) -> Option<String> {
    let path = config.startup.runtime_dir.as_ref()?;
    let fits = || RuntimeDir::check_fits_upgrade_socket(path);
    let error = RuntimeDir::check_openable(path).and_then(|()| fits()).err()?;
    let problem = runtime_dir_problem(path, &error);
    let fault = config.file_setting_places.fault_at_setting(path, RUNTIME_DIR_SETTING, &problem);
    let words = "an upgrade without a refused connection would not be possible";
    Some(format!("{words}: {}", fault.to_text()))
}

const RUNTIME_DIR_SETTING: &str = "process.runtime_dir";

/// Logs what the process serves, the limits that were lowered, and the warnings about the config.
fn log_startup(
    config: &Config,
    configured: &Config,
    state: &GateState,
    certificates: Option<&CurrentCertificates>,
) {
    let (connections, exchanges) =
        (config.startup.connection_limits.max_connections, config.startup.upstream.max_in_flight);
    let per_address = config.startup.upstream.max_in_flight_per_address;
    if connections < configured.startup.connection_limits.max_connections
        || exchanges < configured.startup.upstream.max_in_flight
    {
        log::warn!(
            "the limit of open files leaves {connections} connections \
             (listen.max_connections {}) and {exchanges} exchanges \
             (upstream.max_in_flight {}), {per_address} of them for an address \
             (upstream.max_in_flight_per_address {}): raise it with ulimit -n or LimitNOFILE",
            configured.startup.connection_limits.max_connections,
            configured.startup.upstream.max_in_flight,
            configured.startup.upstream.max_in_flight_per_address,
        );
    }
    let keys = state.keys.peek();
    let ring = Option::as_ref(&keys);
    let certificates = certificates.map(CurrentCertificates::describe).unwrap_or_default();
    let of_certificates = warnings_of_unreachable_certificates(config, &certificates);
    let warnings = config.warnings(ring.is_some_and(KeyRing::has_origins)).into_iter();
    for warning in warnings.chain(of_certificates) {
        log::warn!("{warning}");
    }
    let table = state.table.peek();
    log::info!(
        "{} on http://{}{}{}, admin on http://{}, table {} with {}, {}, {}",
        env!("CARGO_PKG_VERSION"),
        config.startup.http,
        config.startup.https.map(|address| format!(" and https://{address}")).unwrap_or_default(),
        config.startup.redirect.map(|it| format!(", redirects on http://{it}")).unwrap_or_default(),
        config.startup.admin,
        table.version(),
        CountedNoun(table.row_count(), "row"),
        CountedNoun(ring.map_or(0, KeyRing::len), "key"),
        match &config.file {
            Some(file) => format!("config {}", file.display()),
            None => "no config file".to_owned(),
        },
    );
}

fn pingora_server_conf(config: &Config) -> ServerConf {
    ServerConf {
        threads: config.startup.threads,
        // If there is one thread, it has no other thread to steal work from.
        work_stealing: config.startup.threads > 1,
        max_retries: MAX_EXCHANGE_ATTEMPTS,
        // A drain ends once the tracker counts no connections, but after this time at the latest.
        grace_period_seconds: Some(config.startup.drain_grace.as_secs()),
        graceful_shutdown_timeout_seconds: Some(1),
        upstream_keepalive_pool_size: MAX_IDLE_CONNECTIONS,
        ca_file: connector_ca_file(config.startup.upstream.tls.as_ref()),
        ..ServerConf::default()
    }
}

/// Makes the process count and log each panic, with its backtrace if one was captured. A panic in
/// the task of a connection ends only that connection. If the log shows no errors, the hook that
/// was installed before writes the panic.
pub fn install_panic_hook(state: &Arc<GateState>) {
    let state = Arc::clone(state);
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        state.metrics.connections.panics.inc();
        if !log::log_enabled!(log::Level::Error) {
            return default(info);
        }
        // Writing to the log does not block. The standard library's hook writes to standard error,
        // and that may block.
        let trace = Backtrace::capture();
        match trace.status() {
            BacktraceStatus::Captured => log::error!("{info}\n{trace}"),
            _ => log::error!("{info}"),
        }
    }));
}
