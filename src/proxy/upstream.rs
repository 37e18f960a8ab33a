//! The upstream servers: which server gets a request, how long the exchange may take, and which
//! `Host` the server gets.
//!
//! Owns the set of servers with their active and passive health checks, and the limits on
//! concurrent exchanges. It judges no request: its callers hold a permit.

mod attempt_timer;
mod connection;
mod connection_guard;
mod response;

use std::net::{IpAddr, SocketAddr as StdAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use pingora::Result;
use pingora::connectors::http::Connector as HttpConnector;
use pingora::connectors::{ConnectorOptions, TransportConnector};
use pingora::lb::health_check::{HttpHealthCheck, TcpHealthCheck};
use pingora::lb::selection::RoundRobin;
use pingora::lb::{Backend, LoadBalancer};
use pingora::protocols::l4::socket::SocketAddr;
use pingora::services::background::GenBackgroundService;
use pingora::upstreams::peer::{HttpPeer, HttpUpstreamRequestPolicy};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::model::network::Networks;
use crate::observe::metrics::{UpstreamMetrics, UpstreamSnapshot};
use crate::support::per_client_limit::{PerClientGuard, PerClientLimit};
use crate::support::test_fault::{TestFault, is_injected};

pub use attempt_timer::AttemptTimer;
use connection::IdlePool;
pub use connection::UpstreamConnection;
pub use connection_guard::ConnectionGuard;
pub use response::{BodyState, ResponseContext, ResponseHead, forward_response_head};

/// The most idle upstream connections that the fast path keeps. Pingora's own pool, for the Pingora
/// path, keeps as many.
pub const MAX_IDLE_CONNECTIONS: usize = 512;
/// The size of the kernel's receive buffer of an upstream connection, in bytes. If a client reads
/// slowly, the buffer holds a part of its response. The kernel doubles this number for its own
/// bookkeeping.
const RECV_BUFFER_BYTES: usize = 32 * 1024;

/// The settings of upstream connections, deadlines and health checks.
#[derive(Clone, Debug)]
pub struct UpstreamOptions {
    /// `host:port` of each server.
    pub servers: Vec<String>,
    /// The value of `Host` in upstream requests; the server's address and port if `None`.
    pub host_header: Option<String>,
    /// TLS to the servers; cleartext if `None`.
    pub tls: Option<UpstreamTls>,
    /// The most concurrent exchanges; a request beyond them is refused at once.
    pub max_in_flight: usize,
    /// The most concurrent exchanges for clients of one address (one /64 of IPv6).
    pub max_in_flight_per_address: usize,
    /// Clients in these networks are exempt from the limit per address.
    pub exempt_networks: Networks,
    /// The time to open a connection.
    pub connect_timeout: Duration,
    /// The time for the whole exchange, from the request's header to the last byte of the response.
    pub exchange_time_limit: Duration,
    /// The time for which an idle connection is kept for reuse.
    pub idle_timeout: Duration,
    /// The interval of health checks; zero turns them off.
    pub health_interval: Duration,
    /// The path that a health check requests; if `None`, the check only opens a connection.
    pub health_path: Option<String>,
    /// The time for which a server that refused a connection is skipped.
    pub eject_for: Duration,
}

/// TLS to the servers.
#[derive(Clone, Debug)]
pub struct UpstreamTls {
    /// A file with the certificate authorities to trust instead of the system's. Pingora's
    /// connector reads the file.
    pub ca_file: Option<String>,
    /// The name that the servers' certificate must be valid for.
    pub server_name: String,
    /// Whether the servers' certificate is verified, including its name.
    pub verify_certificate: bool,
}

/// The permit for one of the concurrent exchanges: it counts against `max_in_flight` and the limit
/// per address until it is dropped.
pub struct ExchangePermit {
    _permit: OwnedSemaphorePermit,
    _client_guard: Option<PerClientGuard>,
}

/// The upstream servers and their health.
pub struct Upstreams {
    balancer: Arc<LoadBalancer<RoundRobin>>,
    options: UpstreamOptions,
    /// The servers that refused a connection, each with the time until which it is skipped.
    ejected_until: DashMap<SocketAddr, Instant>,
    /// Opens the TLS connections of the fast path; `None` without TLS to the servers.
    tls_connector: Option<TransportConnector>,
    /// Idle connections of the fast path.
    idle_pool: Arc<IdlePool>,
    exchange_permits: Arc<Semaphore>,
    /// The permits to wait for a request body before a server is asked.
    body_permits: Semaphore,
    bodies_per_client: Arc<PerClientLimit>,
    exchanges_per_client: Arc<PerClientLimit>,
    /// Counts the selections of a server, so that the servers take turns.
    selection_counter: AtomicUsize,
    /// Makes the group key of each retry unique, so that Pingora opens a new connection for it.
    retry_group_counter: AtomicU64,
}

impl Upstreams {
    /// Creates the set of servers and resolves their names.
    pub fn new(mut options: UpstreamOptions) -> std::io::Result<Upstreams> {
        if is_injected(TestFault::NoDeadline) {
            options.exchange_time_limit = Duration::from_secs(3600);
        }
        let mut balancer = LoadBalancer::<RoundRobin>::try_from_iter(&options.servers)?;
        if !options.health_interval.is_zero() {
            balancer.health_check_frequency = Some(options.health_interval);
            match &options.health_path {
                None => balancer.set_health_check(tcp_health_check(&options)),
                Some(path) => {
                    let check = http_health_check(&options, path)
                        .map_err(|error| std::io::Error::other(error.to_string()))?;
                    balancer.set_health_check(check);
                }
            }
        }
        let per_address = options.max_in_flight_per_address;
        let client_limit =
            || Arc::new(PerClientLimit::new(per_address, options.exempt_networks.clone()));
        Ok(Upstreams {
            balancer: Arc::new(balancer),
            exchange_permits: Arc::new(Semaphore::new(options.max_in_flight)),
            body_permits: Semaphore::new(options.max_in_flight),
            bodies_per_client: client_limit(),
            exchanges_per_client: client_limit(),
            idle_pool: Arc::new(IdlePool::new(
                options.max_in_flight.min(MAX_IDLE_CONNECTIONS),
                options.idle_timeout,
            )),
            tls_connector: options
                .tls
                .as_ref()
                .map(|tls| TransportConnector::new(Some(connector_options(tls)))),
            options,
            ejected_until: DashMap::new(),
            selection_counter: AtomicUsize::new(0),
            retry_group_counter: AtomicU64::new(0),
        })
    }

    /// Returns the background service that does the active health checks.
    pub fn health_service(&self) -> GenBackgroundService<LoadBalancer<RoundRobin>> {
        GenBackgroundService::new("health".to_owned(), Arc::clone(&self.balancer))
    }

    /// Returns the number of healthy servers (neither ejected nor failing their health check), and
    /// the number of all servers.
    pub fn count_healthy_and_all(&self) -> (usize, usize) {
        let backends = self.balancer.backends().get_backend();
        (backends.iter().filter(|backend| self.is_healthy(backend)).count(), backends.len())
    }

    /// Returns a permit for one more exchange for a client of this address; `None` if there are too
    /// many. The exchange counts until the permit is dropped. A client without an address is exempt
    /// from the limit per address.
    pub fn acquire_exchange_permit(
        &self,
        client_address: Option<IpAddr>,
    ) -> Option<ExchangePermit> {
        let client_guard = acquire_client_guard(&self.exchanges_per_client, client_address)?;
        let permit = Arc::clone(&self.exchange_permits).try_acquire_owned().ok()?;
        Some(ExchangePermit { _permit: permit, _client_guard: client_guard })
    }

    /// Returns a permit to wait for one more request body before a server is asked; `None` if
    /// riskgate already waits for too many. The limits are those of exchanges, so that these bodies
    /// take no more memory than exchanges do.
    pub fn acquire_body_permit(
        &self,
        client_address: Option<IpAddr>,
    ) -> Option<(SemaphorePermit<'_>, Option<PerClientGuard>)> {
        let client_guard = acquire_client_guard(&self.bodies_per_client, client_address)?;
        Some((self.body_permits.try_acquire().ok()?, client_guard))
    }

    /// Selects the next server for the Pingora path; `None` if there is no server or no time left.
    /// The connect, read and write timeouts are no longer than the time that the exchange has left.
    /// A retry opens a new connection, because the server may have closed its other idle
    /// connections too.
    pub fn select_peer(&self, request_started_at: Instant, is_retry: bool) -> Option<HttpPeer> {
        let left = self.time_left(request_started_at)?;
        let mut peer = self.peer(self.select_address()?, left);
        if is_retry {
            peer.group_key = 1 + self.retry_group_counter.fetch_add(1, Ordering::Relaxed);
            peer.options.idle_timeout = Some(Duration::ZERO);
        }
        // Pingora's own rule for hop-by-hop fields fails if it can't parse a `Connection` option.
        // So Pingora leaves these fields alone: riskgate has removed them by its own rule.
        peer.options.http_upstream_request_policy = HttpUpstreamRequestPolicy::preserve();
        if is_injected(TestFault::ParseConnectionInPingora) {
            peer.options.http_upstream_request_policy = HttpUpstreamRequestPolicy::deny_upgrades();
        }
        Some(peer)
    }

    /// Returns how Pingora reaches this server. Connecting, each read and each write may take
    /// `time_left`.
    fn peer(&self, server: SocketAddr, time_left: Duration) -> HttpPeer {
        let name = self.options.tls.as_ref().map(|tls| tls.server_name.clone());
        let mut peer = HttpPeer::new(server, name.is_some(), name.unwrap_or_default());
        let verify = self.options.tls.as_ref().is_none_or(|tls| tls.verify_certificate);
        peer.options.verify_cert = verify;
        peer.options.verify_hostname = verify;
        let connect = self.options.connect_timeout.min(time_left);
        peer.options.connection_timeout = Some(connect);
        peer.options.total_connection_timeout = Some(connect);
        peer.options.read_timeout = Some(time_left);
        peer.options.write_timeout = Some(time_left);
        peer.options.idle_timeout = Some(self.options.idle_timeout);
        peer.options.tcp_recv_buf = Some(RECV_BUFFER_BYTES);
        peer
    }

    /// Selects the next server for the fast path; `None` if there is none.
    pub fn select_server(&self) -> Option<StdAddr> {
        self.select_address()?.as_inet().copied()
    }

    /// Returns a connection to this server for the fast path: an idle one from the pool if there is
    /// one, otherwise a new one. A retry always gets a new one.
    pub async fn reuse_or_connect(
        &self,
        server: StdAddr,
        is_retry: bool,
    ) -> std::io::Result<UpstreamConnection> {
        if !is_retry && let Some(connection) = self.idle_pool.checkout(server) {
            return Ok(connection);
        }
        // The future is boxed because it is large: unboxed, it would be a part of the future of
        // each exchange, also of those that reuse a connection.
        let opened = Box::pin(async {
            let Some(connector) = &self.tls_connector else {
                return UpstreamConnection::open(server, RECV_BUFFER_BYTES).await;
            };
            let peer = self.peer(server.into(), self.options.connect_timeout);
            let stream = connector.new_stream(&peer).await.map_err(std::io::Error::other)?;
            UpstreamConnection::from_tls(stream, server)
        });
        tokio::time::timeout(self.options.connect_timeout, opened).await?
    }

    /// Keeps a connection whose exchange has ended, for the next exchange of the fast path.
    pub fn return_to_idle_pool(&self, connection: UpstreamConnection) {
        self.idle_pool.put(connection);
    }

    /// Skips a server for `eject_for`, because it did not accept a connection.
    pub fn eject_server(&self, server: &SocketAddr) {
        self.ejected_until.insert(server.clone(), Instant::now() + self.options.eject_for);
    }

    /// Returns the next healthy server in turn. Pingora's own selection allocates for each request.
    fn select_address(&self) -> Option<SocketAddr> {
        let backends = self.balancer.backends().get_backend();
        let turn = self.selection_counter.fetch_add(1, Ordering::Relaxed);
        let next = backends.iter().nth(turn % backends.len().max(1))?;
        if self.is_healthy(next) {
            return Some(next.addr.clone());
        }
        // The healthy servers take the turns of the others in turn. If none is healthy, riskgate asks
        // any: it may have recovered.
        let healthy: Vec<&Backend> = backends.iter().filter(|it| self.is_healthy(it)).collect();
        let round = turn / backends.len();
        Some(healthy.get(round % healthy.len().max(1)).unwrap_or(&next).addr.clone())
    }

    /// Returns the deadline of the exchange for a request that started then.
    pub fn exchange_deadline(&self, request_started_at: Instant) -> Instant {
        request_started_at + self.options.exchange_time_limit
    }

    /// Returns the time that the exchange has left; `None` after its deadline.
    pub fn time_left(&self, request_started_at: Instant) -> Option<Duration> {
        let left = self.options.exchange_time_limit.checked_sub(request_started_at.elapsed())?;
        (!left.is_zero()).then_some(left)
    }

    /// Returns true after the deadline of the exchange.
    pub fn is_past_deadline(&self, request_started_at: Instant) -> bool {
        self.time_left(request_started_at).is_none()
    }

    /// Returns a guard of this connection for the exchange of a request that started then (see
    /// [`ConnectionGuard`]); `None` if the connection's descriptor can't be duplicated.
    pub fn guard_connection(
        &self,
        request_started_at: Instant,
        connection_fd: RawFd,
    ) -> Option<ConnectionGuard> {
        let deadline = self.exchange_deadline(request_started_at);
        ConnectionGuard::start(deadline, connection_fd, self.options.tls.is_some())
    }

    /// Returns the value of `Host` for a request to this server: the configured value, or else the
    /// server's address and port, which the caller passes.
    pub fn host_header<'h>(&'h self, server: &'h str) -> &'h str {
        self.options.host_header.as_deref().unwrap_or(server)
    }

    /// Sets the gauges of the servers, for a scraper.
    pub fn update_metrics(&self, metrics: &UpstreamMetrics) {
        let backends = self.balancer.backends().get_backend();
        let healths = backends.iter().filter_map(|backend| {
            Some((backend.addr.as_inet().copied()?, self.is_healthy(backend)))
        });
        metrics.set_gauges(&UpstreamSnapshot {
            is_healthy_by_server: healths.collect(),
            exchanges_in_flight: self.options.max_in_flight
                - self.exchange_permits.available_permits(),
            idle_connections: self.idle_pool.connection_count(),
        });
    }

    /// Returns true if the server neither fails its health check nor is ejected.
    fn is_healthy(&self, backend: &Backend) -> bool {
        let is_ejected =
            || self.ejected_until.get(&backend.addr).is_some_and(|until| Instant::now() < *until);
        self.balancer.backends().ready(backend) && !is_ejected()
    }
}

/// Counts one more exchange or body for the client with this address, until the guard is dropped.
/// Returns `None` if the client is at its limit. A client without an address has no limit, so the
/// result is `Some(None)`.
fn acquire_client_guard(
    limit: &Arc<PerClientLimit>,
    client_address: Option<IpAddr>,
) -> Option<Option<PerClientGuard>> {
    let client = client_address.filter(|_| !is_injected(TestFault::IgnoreClientLimit));
    client.map_or(Some(None), |address| limit.acquire(address).map(Some))
}

/// Returns the options of a connector that trusts the configured authorities. riskgate does not use
/// the connector's own pool of connections.
fn connector_options(tls: &UpstreamTls) -> ConnectorOptions {
    let mut options = ConnectorOptions::new(1);
    options.ca_file.clone_from(&tls.ca_file);
    options
}

fn tcp_health_check(options: &UpstreamOptions) -> Box<TcpHealthCheck> {
    // The check only opens a connection, without a TLS handshake even if TLS is configured.
    let mut check = TcpHealthCheck::new();
    check.peer_template.options.connection_timeout = Some(options.connect_timeout);
    check
}

fn http_health_check(options: &UpstreamOptions, path: &str) -> Result<Box<HttpHealthCheck>> {
    let name = options.tls.as_ref().map(|tls| tls.server_name.as_str());
    let host = options.host_header.as_deref().or(name).unwrap_or("upstream");
    let mut check: HttpHealthCheck = HttpHealthCheck::new(host, options.tls.is_some());
    if let Some(tls) = &options.tls {
        check.set_connector(HttpConnector::new(Some(connector_options(tls))));
        check.peer_template.sni.clone_from(&tls.server_name);
        check.peer_template.options.verify_cert = tls.verify_certificate;
        check.peer_template.options.verify_hostname = tls.verify_certificate;
    }
    check.req.set_raw_path(path.as_bytes())?;
    check.peer_template.options.connection_timeout = Some(options.connect_timeout);
    check.peer_template.options.read_timeout = Some(options.exchange_time_limit);
    Ok(Box::new(check))
}

#[cfg(test)]
mod tests;
