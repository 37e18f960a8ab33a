//! The upstream servers: which there are, which are healthy, and whose turn it is.
//!
//! Pingora's load balancer holds the servers and checks their health. riskgate resolves their names
//! on a schedule of its own, so that a slow resolver delays no health check.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr as StdAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use dashmap::DashMap;
use pingora::lb::discovery::ServiceDiscovery;
use pingora::lb::health_check::HealthCheck;
use pingora::lb::selection::RoundRobin;
use pingora::lb::{Backend, Backends, LoadBalancer};
use pingora::protocols::l4::socket::SocketAddr;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::sync::Mutex;

use super::name_resolver::{NameResolver, Resolution};
use super::turns::{Turns, backend};
use crate::support::snapshot::SnapshotCell;

/// The upstream servers and their health.
pub struct ServerSet {
    balancer: LoadBalancer<RoundRobin>,
    /// The servers that the balancer takes over at its next update.
    resolved: Arc<SnapshotCell<BTreeSet<Backend>>>,
    turns: SnapshotCell<Turns>,
    /// Counts the selections of a server, so that the servers take turns.
    selection_counter: AtomicUsize,
    /// The servers that refused a connection, each with the time until which it is skipped.
    ejected_until: DashMap<SocketAddr, Instant>,
    eject_for: Duration,
    resolver: Mutex<NameResolver>,
    /// One line for each name that had no answer in the last round.
    problems: SnapshotCell<Vec<String>>,
}

/// The servers that were resolved last, for Pingora's load balancer.
struct ResolvedServers(Arc<SnapshotCell<BTreeSet<Backend>>>);

#[async_trait]
impl ServiceDiscovery for ResolvedServers {
    async fn discover(&self) -> pingora::Result<(BTreeSet<Backend>, HashMap<u64, bool>)> {
        // No server is disabled.
        Ok((BTreeSet::clone(&self.0.peek()), HashMap::new()))
    }
}

impl ServerSet {
    /// Creates the set and resolves its names. A name that does not resolve has no servers yet.
    ///
    /// # Errors
    /// If no thread can be started that resolves the names.
    pub fn new(
        resolver: NameResolver,
        eject_for: Duration,
        health_check: Option<(Box<dyn HealthCheck + Send + Sync>, Duration)>,
    ) -> std::io::Result<ServerSet> {
        let resolved = Arc::new(SnapshotCell::new(BTreeSet::new()));
        let discovery = Box::new(ResolvedServers(Arc::clone(&resolved)));
        let mut balancer = LoadBalancer::from_backends(Backends::new(discovery));
        if let Some((check, interval)) = health_check {
            balancer.set_health_check(check);
            balancer.health_check_frequency = Some(interval);
        }
        let servers = ServerSet {
            balancer,
            resolved,
            turns: SnapshotCell::new(Turns::default()),
            selection_counter: AtomicUsize::new(0),
            ejected_until: DashMap::new(),
            eject_for,
            resolver: Mutex::new(resolver),
            problems: SnapshotCell::new(Vec::new()),
        };
        // The caller may be within a runtime, which must not be blocked by another one.
        std::thread::scope(|scope| {
            let resolving = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(servers.resolve());
                Ok(())
            });
            resolving.join().unwrap_or_else(|_| Err(std::io::Error::other("a panic")))
        })?;
        Ok(servers)
    }

    /// Resolves the names. Returns the servers if they have changed.
    pub async fn resolve(&self) -> Option<Vec<StdAddr>> {
        let Resolution { targets, problems } = self.resolver.lock().await.resolve().await;
        self.report(problems);
        let servers: Vec<StdAddr> = targets.iter().map(|target| target.address).collect();
        let backends: BTreeSet<Backend> = servers.iter().map(|it| backend(*it)).collect();
        let has_changed = **self.resolved.peek() != backends;
        if has_changed {
            self.resolved.publish(backends);
            // The balancer's discovery can't fail.
            let _ = self.balancer.update().await;
            self.ejected_until.retain(|server, _| {
                server.as_inet().is_some_and(|address| servers.contains(address))
            });
        }
        // Weights may change while the servers stay.
        self.turns.publish(Turns::new(&targets));
        has_changed.then_some(servers)
    }

    fn report(&self, problems: Vec<String>) {
        let known = self.problems.snapshot();
        for problem in problems.iter().filter(|problem| !known.contains(problem)) {
            log::warn!("upstream.servers: {problem}");
        }
        if problems.is_empty() && !known.is_empty() {
            log::info!("upstream.servers: all names resolve again");
        }
        self.problems.publish(problems);
    }

    /// Lists one line for each name that had no answer in the last round.
    pub fn problems(&self) -> Vec<String> {
        self.problems.peek().to_vec()
    }

    /// Checks the servers' health until the shutdown.
    pub async fn check_health(&self, shutdown: ShutdownWatch) {
        self.balancer.start(shutdown).await;
    }

    /// Lists each server, and whether it is healthy.
    pub fn list_healths(&self) -> Vec<(StdAddr, bool)> {
        let backends = self.balancer.backends().get_backend();
        let healths = backends.iter().filter_map(|backend| {
            Some((backend.addr.as_inet().copied()?, self.is_healthy(backend)))
        });
        healths.collect()
    }

    /// Returns the next healthy server in turn; `None` if there is no server. Pingora's own
    /// selection allocates for each request.
    pub fn select(&self) -> Option<SocketAddr> {
        let turn = self.selection_counter.fetch_add(1, Ordering::Relaxed);
        let turns = self.turns.peek();
        let selected = turns.select(turn, |backend| self.is_healthy(backend))?;
        Some(selected.addr.clone())
    }

    /// Skips a server for `eject_for`, because it did not accept a connection.
    pub fn eject(&self, server: &SocketAddr) {
        self.ejected_until.insert(server.clone(), Instant::now() + self.eject_for);
    }

    /// Returns true if the server neither fails its health check nor is ejected.
    fn is_healthy(&self, backend: &Backend) -> bool {
        let is_ejected =
            || self.ejected_until.get(&backend.addr).is_some_and(|until| Instant::now() < *until);
        self.balancer.backends().ready(backend) && !is_ejected()
    }
}
