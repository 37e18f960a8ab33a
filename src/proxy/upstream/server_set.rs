//! The set of upstream servers, their health, and the turns that they take.
//!
//! riskgate resolves the names of the servers independently of the health checks, so that a slow
//! resolver delays no check.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::name_resolver::{NameResolver, Resolution};
use super::server_health::{ServerHealthTracker, ServerStatus};
use super::turns::Turns;
use crate::support::snapshot::SnapshotCell;

/// The upstream servers and their health.
pub struct ServerSet {
    servers: SnapshotCell<Vec<SocketAddr>>,
    health: ServerHealthTracker,
    turns: SnapshotCell<Turns>,
    /// Counts the selections of a server, so that the servers take turns.
    selection_counter: AtomicUsize,
    resolver: Mutex<NameResolver>,
    /// See [`Resolution::problems`], of the last round.
    problems: SnapshotCell<Vec<String>>,
}

impl ServerSet {
    /// Creates the set and resolves the names. A name that does not resolve adds no server.
    ///
    /// # Errors
    /// Returns an error if the thread or the runtime that resolves the names can't start.
    pub fn new(resolver: NameResolver, eject_for: Duration) -> std::io::Result<ServerSet> {
        let servers = ServerSet {
            servers: SnapshotCell::new(Vec::new()),
            health: ServerHealthTracker::new(eject_for),
            turns: SnapshotCell::new(Turns::default()),
            selection_counter: AtomicUsize::new(0),
            resolver: Mutex::new(resolver),
            problems: SnapshotCell::new(Vec::new()),
        };
        servers.block_on_resolve(None)?;
        Ok(servers)
    }

    /// Resolves the names, at most for `max_wait` if there is such a limit. Returns false if the
    /// time was too short: the servers are then the same as before.
    ///
    /// # Errors
    /// Returns an error if the thread or the runtime that resolves the names can't start.
    pub fn block_on_resolve(&self, max_wait: Option<Duration>) -> std::io::Result<bool> {
        // The caller may be in a runtime of Tokio, where another runtime can't block. So a thread
        // of its own resolves the names.
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("resolve".to_owned());
            let resolving = thread.spawn_scoped(scope, || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                Ok(runtime.block_on(async {
                    let Some(max_wait) = max_wait else {
                        self.resolve().await;
                        return true;
                    };
                    tokio::time::timeout(max_wait, self.resolve()).await.is_ok()
                }))
            })?;
            resolving.join().unwrap_or_else(|_| Err(std::io::Error::other("a panic")))
        })
    }

    /// Resolves the names. Returns the servers if they have changed.
    pub async fn resolve(&self) -> Option<Vec<SocketAddr>> {
        let Resolution { targets, problems } = self.resolver.lock().await.resolve().await;
        let mut servers: Vec<SocketAddr> = targets.iter().map(|target| target.address).collect();
        servers.sort_unstable();
        let has_changed = **self.servers.peek() != servers;
        if has_changed {
            self.health.retain(&servers);
            self.servers.publish(servers.clone());
            self.health.log_outage(&servers);
        }
        // Weights may change even if the servers stay the same.
        self.turns.publish(Turns::new(&targets));
        // `/readyz` must not say that a name resolves again before requests reach its servers, so
        // this comes last.
        self.record_and_log_problems(problems);
        has_changed.then_some(servers)
    }

    fn record_and_log_problems(&self, problems: Vec<String>) {
        let known = self.problems.snapshot();
        for problem in problems.iter().filter(|problem| !known.contains(problem)) {
            log::warn!("upstream.servers: {problem}");
        }
        if problems.is_empty() && !known.is_empty() {
            log::info!("upstream.servers: all names resolve again");
        }
        self.problems.publish(problems);
    }

    /// Lists the problems of the last round, one line for each.
    pub fn list_name_problems(&self) -> Vec<String> {
        self.problems.peek().to_vec()
    }

    /// See [`ServerHealthTracker::set_server_is_default`].
    pub fn set_server_is_default(&self, is_default: bool) {
        self.health.set_server_is_default(is_default);
    }

    /// Lists the servers.
    pub fn list_servers(&self) -> Vec<SocketAddr> {
        self.servers.peek().to_vec()
    }

    /// Lists each server, and whether it is healthy.
    pub fn list_healths(&self) -> Vec<(SocketAddr, bool)> {
        let servers = self.servers.peek();
        servers.iter().map(|server| (*server, self.health.is_healthy(server))).collect()
    }

    /// Describes each server for an operator.
    pub fn describe(&self) -> Vec<ServerStatus> {
        self.servers.peek().iter().map(|server| self.health.describe(*server)).collect()
    }

    /// See [`ServerHealthTracker::describe_outage`].
    pub fn describe_outage(&self) -> Option<String> {
        self.health.describe_outage(&self.servers.peek())
    }

    /// Returns the server of the next turn: see [`Turns::select`].
    pub fn select(&self) -> Option<SocketAddr> {
        let turn = self.selection_counter.fetch_add(1, Ordering::Relaxed);
        self.turns.peek().select(turn, |server| self.health.is_selectable(server))
    }

    /// Records the outcome of a health check, which began at `began_at`. The error says why the
    /// server is not healthy.
    pub fn record_check(&self, server: SocketAddr, began_at: Instant, outcome: Result<(), String>) {
        self.update_health(server, |health| match outcome {
            Ok(()) => health.record_passed_check(server, began_at),
            Err(why) => health.record_failed_check(server, &why),
        });
    }

    /// Skips a server for at most `eject_for`, because it did not accept a connection.
    pub fn eject(&self, server: SocketAddr, why: &str) {
        self.update_health(server, |health| health.record_refusal(server, why));
    }

    /// See [`ServerHealthTracker::record_connection`].
    pub fn record_connection(&self, server: SocketAddr, began_at: Instant) {
        if !self.health.is_healthy(&server) {
            self.update_health(server, |health| health.record_connection(server, began_at));
        }
    }

    fn update_health(&self, server: SocketAddr, update: impl FnOnce(&ServerHealthTracker)) {
        let servers = self.servers.peek();
        // A new round of queries may have removed the server from the set.
        if servers.contains(&server) {
            update(&self.health);
            self.health.log_outage(&servers);
        }
    }
}
