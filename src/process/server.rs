//! The process: starts whole or not at all, listens, drains, ends.
//!
//! Owns the order of start and end, the signals, and what Pingora's server is told. It decides
//! nothing about a request.

pub(super) mod assemble;
mod exit;
pub(super) mod inputs;
mod signals;
mod sockets;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::path::Path;
use std::sync::{Arc, Mutex};

use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server};
use pingora_core::services::background::GenBackgroundService;

use crate::config::{Config, Overrides};
use crate::downstream::Traffic;
use crate::gate::{Gate, State};
use crate::keys::KeyRing;
use crate::observe::process_log::ErrorLog;
use crate::process::admin::Admin;
use crate::process::admin::serve::AdminListener;
use crate::process::listener::{Descriptors, LEAST_FILES, Listening};
use crate::process::reload::Reloader;
use crate::process::systemd::{Heart, Watchdog};
use crate::process::upgrade::{Folder, Meeting, Predecessor};
use crate::proxy::upstream::{MAX_TRIES, MOST_IDLE, Upstreams};
use crate::support::certificates::Certificates;

pub use super::mount::Mount;
use assemble::assemble;
pub use exit::AtEnd;
use exit::{End, Post, claim};
use inputs::check_files;
pub use inputs::{Loaded, StartError};
use signals::{Heard, Signals};
use sockets::{Doors, Sockets};

/// How the process begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It binds its own sockets.
    Fresh,
    /// It takes them over from the process that serves, if there is one.
    Successor,
}

/// Runs the gateway until a signal ends it.
pub fn run(
    overrides: Overrides,
    start: Start,
    error_log: &Arc<ErrorLog>,
    at_end: Option<AtEnd>,
) -> Result<(), StartError> {
    signals::outlive_hangup();
    // A successor is in place before it has read everything: who hands over waits for it. What is
    // wrong with the config is told with all other faults.
    let place = match (start, Config::read(&overrides)) {
        (Start::Successor, Ok(config)) => Some(take_place(&config)?),
        _ => None,
    };
    let mut loaded = Loaded::read(&overrides).map_err(StartError::Config)?;
    let wanted = loaded.config.clone();
    let (config, upstreams) = prepare(&wanted)?;
    let certificates = loaded.certificates.take().map(|set| Arc::new(Certificates::new(set)));
    let (folder, meeting) = place.unwrap_or_else(|| (open_folder(&config), None));
    let mut upgrade = open_upgrade(&config, folder, meeting.is_some())?;
    let (state, reloader, trigger) = assemble(loaded, certificates.clone(), overrides)?;
    count_panics(&state);
    if let Some(meeting) = meeting {
        take_over_sockets(&config, &mut upgrade, meeting)?;
    }
    announce(&config, &wanted, &state);

    let UpgradeState { folder, sockets, heard, predecessor } = upgrade;
    let gate = Gate::new(state, config.trusted_proxies.clone());
    let traffic = Arc::new(Traffic::new(config.caps.clone()));
    let post = Post { folder, sockets: sockets.duplicates()? };
    let mut server = Server::new_with_opt_and_conf(None, server_conf(&config));
    server.bootstrap();
    let admin = Admin::new(
        Arc::clone(gate.state()),
        Arc::clone(&traffic),
        Arc::clone(&upstreams),
        reloader.status(),
        trigger.clone(),
        &config,
    )
    .with_error_log(error_log);
    let doors = Doors {
        config: &config,
        gate: &gate,
        upstreams: &upstreams,
        traffic: &traffic,
        certificates,
        heart: &Heart::default(),
    };
    add_services(&mut server, doors, sockets, admin, reloader)?;
    let post = Arc::new(Mutex::new(post));
    let error_log = Arc::clone(error_log);
    let end = Arc::new(End { gate, at_end: Mutex::new(at_end), post, error_log });
    let signals = Signals {
        traffic,
        trigger,
        end: Arc::clone(&end),
        delay: config.drain_delay,
        predecessor: Mutex::new(predecessor),
        heard: Mutex::new(heard),
    };
    server.run(RunArgs { shutdown_signal: Box::new(signals) });
    end.now();
    Ok(())
}

/// What a process has before it serves, and its successor takes over from it.
struct UpgradeState {
    folder: Option<Folder>,
    sockets: Sockets,
    /// Signals, from when this process can be found.
    heard: Option<Heard>,
    /// The process that serves until this one does.
    predecessor: Option<Predecessor>,
}

/// Claims the folder and binds the sockets, unless a predecessor hands them over.
fn open_upgrade(
    config: &Config,
    mut folder: Option<Folder>,
    has_predecessor: bool,
) -> Result<UpgradeState, StartError> {
    if has_predecessor {
        let sockets = Sockets::default();
        return Ok(UpgradeState { folder, sockets, heard: None, predecessor: None });
    }
    let heard = Some(signals::heed());
    // Before it binds: who comes to succeed it now waits, and binds nothing.
    claim(&mut folder);
    let sockets = Sockets::bind(config, Vec::new())?;
    Ok(UpgradeState { folder, sockets, heard, predecessor: None })
}

/// Takes the sockets over, and binds those that nobody hands over.
fn take_over_sockets(
    config: &Config,
    upgrade: &mut UpgradeState,
    meeting: Meeting,
) -> Result<(), StartError> {
    let Some(place) = &upgrade.folder else { return Ok(()) };
    log::info!("ready to take over: waiting for SIGQUIT to the process that serves");
    let handed = meeting.take_over(place).map_err(|error| {
        StartError::Failed(format!("expected to take sockets over, but found {error}"))
    })?;
    upgrade.heard = Some(signals::heed());
    let (handed, before) = handed.unzip();
    if before.is_none() {
        log::warn!("the process that served has ended: starting as without --upgrade");
        claim(&mut upgrade.folder);
    }
    upgrade.sockets = Sockets::bind(config, handed.unwrap_or_default())?;
    upgrade.predecessor = before;
    Ok(())
}

/// Adds what serves, and what runs beside it.
fn add_services(
    server: &mut Server,
    doors: Doors<'_>,
    mut sockets: Sockets,
    admin: Admin,
    reloader: Reloader,
) -> Result<(), StartError> {
    if let Some(socket) = sockets.take("admin") {
        let admin = AdminListener::new(admin);
        let timeout = doors.config.door.write_timeout;
        server.add_service(Listening::new("admin", socket, admin, timeout));
    }
    let (balancer, heart) = (doors.upstreams.balancer(), doors.heart.clone());
    doors.add(server, sockets)?;
    server.add_service(GenBackgroundService::new("health".to_owned(), balancer));
    server.add_service(GenBackgroundService::new("reload".to_owned(), Arc::new(reloader)));
    server.add_service(GenBackgroundService::new("watchdog".to_owned(), Arc::new(Watchdog(heart))));
    Ok(())
}

/// What a start needs beside what was read: the config with limits that can be had, and the pool of
/// servers; or all that keeps a process from starting with it. It starts nothing and makes nothing,
/// so `check` asks it too.
pub fn prepare(config: &Config) -> Result<(Config, Arc<Upstreams>), StartError> {
    let files = check_files(config);
    let limited = limited(config.clone());
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
fn limited(mut config: Config) -> Result<Config, StartError> {
    let wanted = Descriptors {
        connections: config.caps.connections,
        exchanges: config.upstream.max_in_flight,
    };
    let given = Descriptors::share(wanted).map_err(|limit| {
        let expected = format!("limit of open files: expected at least {LEAST_FILES}");
        StartError::Config(vec![format!("{expected}, but found {limit}")])
    })?;
    config.caps.connections = given.connections;
    if given.exchanges < config.upstream.max_in_flight {
        let upstream = &mut config.upstream;
        let share = upstream.max_in_flight_per_address.min(given.exchanges.div_ceil(2));
        (upstream.max_in_flight, upstream.max_in_flight_per_address) = (given.exchanges, share);
    }
    Ok(config)
}

/// The process's folder, without which it serves all the same.
fn open_folder(config: &Config) -> Option<Folder> {
    let path = config.process_folder.as_ref()?;
    match Folder::open(path) {
        Ok(folder) => Some(folder),
        Err(error) => {
            log::warn!("no hand-over will be possible: {}", folder_problem(path, &error));
            None
        }
    }
}

/// The process's folder, without which there is nobody to succeed, and the meeting place in it, if
/// there is somebody to meet.
fn take_place(config: &Config) -> Result<(Option<Folder>, Option<Meeting>), StartError> {
    let Some(path) = &config.process_folder else {
        return Err(StartError::Config(vec![
            "config: process.folder: expected a folder to meet the process that serves in, \
             but found none"
                .to_owned(),
        ]));
    };
    let failed = |error| StartError::Failed(folder_problem(path, &error));
    let folder = Folder::open(path).map_err(failed)?;
    if !folder.is_claimed() {
        log::info!("nobody serves from process.folder: starting as without --upgrade");
        return Ok((Some(folder), None));
    }
    let meeting = folder.await_predecessor().map_err(failed)?;
    Ok((Some(folder), Some(meeting)))
}

fn folder_problem(path: &Path, error: &std::io::Error) -> String {
    let path = path.display();
    format!("process.folder: expected a folder for this process alone, but found {error}: {path}")
}

/// Says what begins to serve, and what of the config could not be had.
fn announce(config: &Config, wanted: &Config, state: &State) {
    let (connections, exchanges) = (config.caps.connections, config.upstream.max_in_flight);
    let share = config.upstream.max_in_flight_per_address;
    if connections < wanted.caps.connections || exchanges < wanted.upstream.max_in_flight {
        log::warn!(
            "the limit of open files leaves {connections} connections \
             (listen.max_connections {}) and {exchanges} exchanges \
             (upstream.max_in_flight {}), {share} of them for an address \
             (upstream.max_in_flight_per_address {}): raise it with ulimit -n or LimitNOFILE",
            wanted.caps.connections,
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
        table.rows(),
        state.keys.peek().as_ref().as_ref().map_or(0, KeyRing::len),
    );
}

fn server_conf(config: &Config) -> ServerConf {
    ServerConf {
        threads: config.threads,
        // One thread has nobody to look for work at.
        work_stealing: config.threads > 1,
        max_retries: MAX_TRIES,
        // The drain ends by our own count; this is only how long it may take at the latest.
        grace_period_seconds: Some(config.drain_grace.as_secs_f64().ceil() as u64),
        graceful_shutdown_timeout_seconds: Some(1),
        upstream_keepalive_pool_size: MOST_IDLE,
        ca_file: config.upstream.tls.as_ref().and_then(|tls| tls.authorities.clone()),
        ..ServerConf::default()
    }
}

/// A panic costs its connection; it is counted, and told with where it happened.
pub fn count_panics(state: &Arc<State>) {
    let counted = Arc::clone(state);
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        counted.metrics.connections.panics.inc();
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
