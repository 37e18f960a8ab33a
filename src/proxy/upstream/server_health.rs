//! What riskgate knows about the health of each upstream server, and the lines of the process log
//! about it.
//!
//! Health checks and the connections of requests report here. A server counts as healthy until one
//! of them fails.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::support::lock::lock;

/// A connection proves that a server is up again only if a request began to open it this long after
/// the last refusal. Otherwise, a server that refuses every other connection would fill the log.
const MIN_REFUSAL_AGE: Duration = Duration::from_secs(1);
/// The most servers that the description of an outage names.
const MAX_NAMED_SERVERS: usize = 3;

/// The servers that are not healthy, and the last failure of each server.
pub struct ServerHealthTracker {
    unhealthy: DashMap<SocketAddr, HealthProblem>,
    last_failures: DashMap<SocketAddr, LastFailure>,
    /// For how long at most riskgate skips a server because it refused a connection.
    eject_for: Duration,
    /// Whether the last line of the log about an outage says that no server is healthy.
    is_outage_logged: Mutex<bool>,
    /// Whether the only server is the default of `upstream.servers`.
    is_server_default: AtomicBool,
}

/// A server, as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// The server.
    pub address: SocketAddr,
    /// Whether the server counts as healthy: the health check and the requests to it decide.
    pub is_healthy: bool,
    /// The last refusal of a connection or failed check; `None` if riskgate knows of none.
    pub last_failure: Option<ServerFailure>,
}

/// A failure of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFailure {
    /// What failed.
    pub reason: String,
    /// How long ago the server failed.
    pub age: Duration,
}

/// The last failure of a server.
struct LastFailure {
    reason: String,
    at: Instant,
}

/// Why a server is not healthy.
struct HealthProblem {
    reason: String,
    has_failed_check: bool,
    /// When the server last refused a connection of a request.
    refused_at: Option<Instant>,
}

impl ServerHealthTracker {
    /// Creates the record. Every server is healthy at first.
    pub fn new(eject_for: Duration) -> ServerHealthTracker {
        ServerHealthTracker {
            unhealthy: DashMap::new(),
            last_failures: DashMap::new(),
            eject_for,
            is_outage_logged: Mutex::new(false),
            is_server_default: AtomicBool::new(false),
        }
    }

    /// Notes whether the only server is the default of `upstream.servers`. An outage of a server
    /// that nobody has named is no error.
    pub fn set_server_is_default(&self, is_default: bool) {
        self.is_server_default.store(is_default, Ordering::Relaxed);
    }

    /// Returns true if riskgate may send requests to the server: the server is healthy, or it has
    /// not failed its last check and has last refused a connection longer than `eject_for` ago.
    pub fn is_selectable(&self, server: &SocketAddr) -> bool {
        self.unhealthy.get(server).is_none_or(|problem| {
            let is_ejected = |at: Instant| at.elapsed() < self.eject_for;
            !problem.has_failed_check && !problem.refused_at.is_some_and(is_ejected)
        })
    }

    /// A server is healthy until it refuses a connection or fails a check. After a failed check,
    /// the server must pass a check to be healthy again. After a refusal, the server must accept a
    /// connection or pass a check that begins [`MIN_REFUSAL_AGE`] later, or `eject_for` if shorter.
    pub fn is_healthy(&self, server: &SocketAddr) -> bool {
        !self.unhealthy.contains_key(server)
    }

    /// Describes a server for an operator.
    pub fn describe(&self, address: SocketAddr) -> ServerStatus {
        let last_failure = self.last_failures.get(&address).map(|failure| ServerFailure {
            reason: failure.reason.clone(),
            age: failure.at.elapsed(),
        });
        ServerStatus { address, is_healthy: self.is_healthy(&address), last_failure }
    }

    /// Records that a request could not connect to the server.
    pub fn record_refusal(&self, server: SocketAddr, reason: &str) {
        self.record_problem(server, reason, |problem| problem.refused_at = Some(Instant::now()));
    }

    /// Records that the server failed a health check.
    pub fn record_failed_check(&self, server: SocketAddr, reason: &str) {
        self.record_problem(server, reason, |problem| problem.has_failed_check = true);
    }

    fn record_problem(
        &self,
        server: SocketAddr,
        reason: &str,
        change: impl FnOnce(&mut HealthProblem),
    ) {
        let failure = LastFailure { reason: reason.to_owned(), at: Instant::now() };
        self.last_failures.insert(server, failure);
        let mut problem = self.unhealthy.entry(server).or_insert_with(|| {
            if let Some(line) = self.describe_failure(server, reason) {
                log::warn!("{line}");
            }
            HealthProblem { reason: String::new(), has_failed_check: false, refused_at: None }
        });
        reason.clone_into(&mut problem.reason);
        change(&mut problem);
    }

    /// Says that a server is down. `None` if nobody has named the server: then the line of the
    /// outage says enough.
    fn describe_failure(&self, server: SocketAddr, reason: &str) -> Option<String> {
        let is_default = self.is_server_default.load(Ordering::Relaxed);
        (!is_default).then(|| format!("upstream server {server} is down: {reason}"))
    }

    /// Records that the server passed a health check, which began at `began_at`.
    pub fn record_passed_check(&self, server: SocketAddr, began_at: Instant) {
        self.record_recovery(server, began_at, |problem| problem.has_failed_check = false);
    }

    /// Records that the server accepted a connection, which a request began to open at `began_at`.
    pub fn record_connection(&self, server: SocketAddr, began_at: Instant) {
        self.record_recovery(server, began_at, |_| {});
    }

    fn record_recovery(
        &self,
        server: SocketAddr,
        began_at: Instant,
        change: impl FnOnce(&mut HealthProblem),
    ) {
        let Entry::Occupied(mut known) = self.unhealthy.entry(server) else { return };
        let problem = known.get_mut();
        change(problem);
        let min_age = self.eject_for.min(MIN_REFUSAL_AGE);
        let is_refusal_over = problem.refused_at.is_none_or(|at| began_at >= at + min_age);
        if !problem.has_failed_check && is_refusal_over {
            known.remove();
            log::info!("upstream server {server} is up again");
        }
    }

    /// Forgets all servers but these.
    pub fn retain(&self, servers: &[SocketAddr]) {
        self.unhealthy.retain(|server, _| servers.contains(server));
        self.last_failures.retain(|server, _| servers.contains(server));
    }

    /// Says in the log that no server is healthy, or that a server is healthy again. Logs only
    /// changes.
    pub fn log_outage(&self, servers: &[SocketAddr]) {
        let mut is_logged = lock(&self.is_outage_logged);
        let is_outage = self.is_outage(servers);
        if std::mem::replace(&mut *is_logged, is_outage) == is_outage {
            return;
        }
        let (level, line) = self.choose_outage_line(is_outage);
        log::log!(level, "{line}");
    }

    fn choose_outage_line(&self, is_outage: bool) -> (log::Level, &'static str) {
        let is_default = self.is_server_default.load(Ordering::Relaxed);
        match (is_outage, is_default) {
            (true, true) => (
                log::Level::Info,
                "upstream.servers is not set, and no server is healthy at its default",
            ),
            (true, false) => (log::Level::Error, "no upstream server is healthy"),
            (false, _) => (log::Level::Info, "an upstream server is healthy again"),
        }
    }

    /// Returns true if there are servers, and none of them is healthy.
    fn is_outage(&self, servers: &[SocketAddr]) -> bool {
        !servers.is_empty() && !servers.iter().any(|server| self.is_healthy(server))
    }

    /// Says that no server is healthy, and why. `None` if a server is healthy, or without servers.
    pub fn describe_outage(&self, servers: &[SocketAddr]) -> Option<String> {
        if !self.is_outage(servers) {
            return None;
        }
        let reason = |server: &SocketAddr| {
            let problem = self.unhealthy.get(server)?;
            Some(format!("{server}: {}", problem.reason))
        };
        let named: Vec<String> =
            servers.iter().take(MAX_NAMED_SERVERS).filter_map(reason).collect();
        let more = match servers.len() - servers.len().min(MAX_NAMED_SERVERS) {
            0 => String::new(),
            count => format!(", and {count} more"),
        };
        let (count, named) = (servers.len(), named.join(", "));
        Some(format!("expected a healthy server, but found none of {count}: {named}{more}"))
    }
}

#[cfg(test)]
mod tests;
