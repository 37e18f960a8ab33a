//! The upstream servers: which server gets a request, how long the exchange may take, and which
//! `Host` the server gets unless the route says otherwise.
//!
//! Owns the set of servers with their active and passive health checks, and the limits on
//! concurrent exchanges. The callers have the permit of the gates for each request.

mod broken_responses;
mod connection;
mod connection_guard;
mod counted_attempts;
mod deadline;
mod health_check;
mod host_addresses;
mod name_resolver;
mod options;
mod response;
mod server_health;
mod server_name;
mod server_set;
mod tls;
mod turns;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pingora::connectors::TransportConnector;
use pingora::server::ShutdownWatch;
use pingora::upstreams::peer::{HttpPeer, HttpUpstreamRequestPolicy};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::exchange::Failure;
use crate::gate::RequestContext;
use crate::observe::metrics::{UpstreamMetrics, UpstreamSnapshot};
use crate::support::per_client_limit::{PerClientGuard, PerClientLimit};
use crate::support::test_fault::{TestFault, is_injected};
use crate::support::time_limit::TimeLimit;

use broken_responses::BrokenResponseLog;
use connection::IdlePool;
pub use connection::UpstreamConnection;
pub use connection_guard::{ConnectionGuard, GuardedSocket};
pub use counted_attempts::CountedAttempts;
pub use deadline::{DeadlinePassed, ExchangeDeadline, wait_at_most_until};
pub use health_check::describe_error;
use health_check::{HealthClient, check_periodically, describe_connect_error};
use name_resolver::NameResolver;
pub use options::UpstreamOptions;
pub use response::{
    ClientResponseHeader, Http1Header, Http2Header, ResponseBody, ResponseContext, ResponseHead,
    forward_response_head,
};
pub use server_health::{ServerFailure, ServerStatus};
pub use server_name::ServerName;
use server_set::ServerSet;
pub use tls::{
    UpstreamTls, check_connector_authorities, connector_ca_file, connector_options,
    find_other_verified_name,
};

/// The most idle upstream connections that Pingora's pool keeps for the Pingora path. The fast path
/// keeps as many, but no more than `max_in_flight`.
pub const MAX_IDLE_CONNECTIONS: usize = 512;
/// `max_in_flight` divided by this number is the share of exchanges with a streamed body: see
/// [`max_uploads`].
const UPLOAD_SHARE_DIVISOR: usize = 4;
/// `max_in_flight_per_address` divided by this number is one client's share of exchanges with a
/// streamed body: see [`max_uploads`].
const CLIENT_UPLOAD_SHARE_DIVISOR: usize = 8;
/// No such share is smaller than this number, unless there may be fewer other exchanges: a page may
/// send as many files at a time.
const MIN_UPLOADS: usize = 8;
/// The size of the kernel's receive buffer of an upstream connection, in bytes. If a client reads
/// slowly, the buffer holds a part of its response. The kernel doubles this number for its own
/// bookkeeping.
const RECV_BUFFER_BYTES: usize = 32 * 1024;

/// How long a successor waits at most for the addresses of the servers when it takes over. The
/// process that it replaces serves meanwhile.
const MAX_ADDRESS_CATCH_UP_TIME: Duration = Duration::from_secs(1);

/// The permit for one of the concurrent exchanges. Until it is dropped, the exchange counts against
/// a limit of all clients, and against the limit of its client, if the client has one.
pub struct ExchangePermit {
    _permit: OwnedSemaphorePermit,
    _client_guard: Option<PerClientGuard>,
}

/// The upstream servers and their health.
pub struct Upstreams {
    servers: ServerSet,
    /// Whether the names are to be resolved as soon as this process watches the servers.
    is_resolution_due: AtomicBool,
    options: UpstreamOptions,
    /// Opens TLS connections for this module; `None` without TLS to the servers.
    tls_connector: Option<TransportConnector>,
    /// Requests the path of health checks.
    health_client: HealthClient,
    /// Idle connections of the fast path.
    idle_pool: Arc<IdlePool>,
    exchange_permits: Arc<Semaphore>,
    exchanges_per_client: Arc<PerClientLimit>,
    /// The permits of exchanges with a streamed body. They are separate, because a client decides
    /// how long its body takes.
    upload_permits: Arc<Semaphore>,
    uploads_per_client: Arc<PerClientLimit>,
    broken_responses: BrokenResponseLog,
    /// Makes the group key of each retry unique, so that Pingora opens a new connection for it.
    retry_group_counter: AtomicU64,
}

impl Upstreams {
    /// Creates the set of servers and resolves their names.
    pub fn new(mut options: UpstreamOptions) -> std::io::Result<Upstreams> {
        if is_injected(TestFault::NoDeadline) {
            options.exchange_time_limit = Duration::from_hours(1);
        }
        let names = NameResolver::new(options.servers.clone(), options.resolvers.clone());
        let servers = ServerSet::new(names, options.eject_for)?;
        let connector_options = connector_options(options.tls.as_ref());
        let per_address = options.max_in_flight_per_address;
        let exempt = &options.exempt_networks;
        Ok(Upstreams {
            servers,
            is_resolution_due: AtomicBool::new(false),
            exchange_permits: Arc::new(Semaphore::new(options.max_in_flight)),
            exchanges_per_client: Arc::new(PerClientLimit::new(per_address, exempt.clone())),
            upload_permits: Arc::new(Semaphore::new(max_uploads(
                options.max_in_flight,
                UPLOAD_SHARE_DIVISOR,
            ))),
            uploads_per_client: Arc::new(PerClientLimit::new(
                max_uploads(per_address, CLIENT_UPLOAD_SHARE_DIVISOR),
                exempt.clone(),
            )),
            idle_pool: Arc::new(IdlePool::new(
                options.max_in_flight.min(MAX_IDLE_CONNECTIONS),
                options.idle_timeout,
            )),
            tls_connector: options
                .tls
                .is_some()
                .then(|| TransportConnector::new(Some(connector_options.clone()))),
            health_client: HealthClient::new(connector_options),
            options,
            broken_responses: BrokenResponseLog::default(),
            retry_group_counter: AtomicU64::new(0),
        })
    }

    /// Resolves the names of the servers again: a successor may have waited long for the process
    /// that it replaces. Waits at most one second. If the names are not resolved by then,
    /// [`Upstreams::watch_servers`] begins with them.
    pub fn catch_up(&self) {
        let caught_up = self.servers.block_on_resolve(Some(MAX_ADDRESS_CATCH_UP_TIME));
        if !matches!(caught_up, Ok(true)) {
            log::warn!(
                "upstream.servers: expected their addresses within {MAX_ADDRESS_CATCH_UP_TIME:?}, \
                 but found none: serving with earlier ones until the DNS answers"
            );
            self.is_resolution_due.store(true, Ordering::Relaxed);
        }
    }

    /// Lists what is wrong with the names of the servers, one line for each problem.
    pub fn list_name_problems(&self) -> Vec<String> {
        self.servers.list_name_problems()
    }

    /// Lists the servers: the addresses of all names, by the last good answer for each name.
    pub fn list_servers(&self) -> Vec<SocketAddr> {
        self.servers.list_servers()
    }

    /// Describes each server for an operator.
    pub fn describe_servers(&self) -> Vec<ServerStatus> {
        self.servers.describe()
    }

    /// Notes whether the only server is the default, because the config names none. The log then
    /// tells an outage as no error.
    pub fn set_server_is_default(&self, is_default: bool) {
        self.servers.set_server_is_default(is_default);
    }

    /// Says that no server is healthy, and why. `None` if a server is healthy, or without servers.
    pub fn describe_outage(&self) -> Option<String> {
        self.servers.describe_outage()
    }

    /// Returns the number of healthy servers, and the number of all servers. A server is healthy
    /// until a request can't connect to it or a health check fails.
    pub fn count_healthy_and_all(&self) -> (usize, usize) {
        let healths = self.servers.list_healths();
        (healths.iter().filter(|(_, is_healthy)| *is_healthy).count(), healths.len())
    }

    /// Returns a permit for one more exchange of the client with this address. `None` if this
    /// client, or all clients together, have too many. A client without an address has no limit of
    /// its own.
    pub fn acquire_exchange_permit(
        &self,
        client_address: Option<IpAddr>,
    ) -> Option<ExchangePermit> {
        acquire_permit(&self.exchange_permits, &self.exchanges_per_client, client_address)
    }

    /// Like [`Upstreams::acquire_exchange_permit`], for an exchange that begins before the whole
    /// body of its request has arrived.
    pub fn acquire_upload_permit(&self, client_address: Option<IpAddr>) -> Option<ExchangePermit> {
        acquire_permit(&self.upload_permits, &self.uploads_per_client, client_address)
    }

    /// Selects the next server for the Pingora path; `None` if there is no server or no time left.
    /// The connect, read and write timeouts are no longer than the time that the exchange has left.
    /// A retry opens a new connection, because the server may have closed all its idle connections.
    pub fn select_peer(&self, deadline: &ExchangeDeadline, is_retry: bool) -> Option<HttpPeer> {
        let left = deadline.time_left();
        let mut peer = match left {
            Some(Duration::ZERO) => return None,
            left => self.build_peer(self.servers.select()?, left),
        };
        if is_retry {
            peer.group_key = 1 + self.retry_group_counter.fetch_add(1, Ordering::Relaxed);
            peer.options.idle_timeout = Some(Duration::ZERO);
        }
        // riskgate has removed the hop-by-hop fields by its own rule. Pingora's rule would fail if
        // it can't parse an option of `Connection`.
        peer.options.http_upstream_request_policy = HttpUpstreamRequestPolicy::preserve();
        if is_injected(TestFault::ParseConnectionInPingora) {
            peer.options.http_upstream_request_policy = HttpUpstreamRequestPolicy::deny_upgrades();
        }
        Some(peer)
    }

    /// Returns how Pingora reaches this server. The connect, each read and each write may take
    /// `time_left`. If `time_left` is `None`, only the connect has a time limit.
    fn build_peer(&self, server: SocketAddr, time_left: Option<Duration>) -> HttpPeer {
        let name = self.options.tls.as_ref().map(|tls| tls.server_name.clone());
        let mut peer = HttpPeer::new(server, name.is_some(), name.unwrap_or_default());
        let verify = self.options.tls.as_ref().is_none_or(|tls| tls.verify_certificate);
        peer.options.verify_cert = verify;
        peer.options.verify_hostname = verify;
        let connect = self.options.connect_timeout;
        let connect = time_left.map_or(connect, |left| connect.min(left));
        peer.options.connection_timeout = Some(connect);
        peer.options.total_connection_timeout = Some(connect);
        peer.options.read_timeout = time_left;
        peer.options.write_timeout = time_left;
        peer.options.idle_timeout = Some(self.options.idle_timeout);
        peer.options.tcp_recv_buf = Some(RECV_BUFFER_BYTES);
        peer
    }

    /// Selects the next server for the fast path; `None` if there is none.
    pub fn select_server(&self) -> Option<SocketAddr> {
        self.servers.select()
    }

    /// Returns a connection to this server for the fast path: an idle connection from the pool, or
    /// a new connection if the pool has none. A retry always gets a new connection. If the server
    /// does not accept a connection, riskgate ejects the server.
    pub async fn reuse_or_connect(
        &self,
        server: SocketAddr,
        is_retry: bool,
    ) -> std::io::Result<UpstreamConnection> {
        if !is_retry && let Some(connection) = self.idle_pool.checkout(server) {
            return Ok(connection);
        }
        let began_at = Instant::now();
        // This future is large. Without a box, it would be a part of the future of each exchange,
        // even of an exchange that reuses a connection.
        let opened = Box::pin(self.open_connection(server)).await;
        match &opened {
            Ok(_) => self.record_connection(server, began_at),
            Err(error) => self.eject_server(server, &describe_connect_error(error)),
        }
        opened
    }

    /// Opens a connection to this server within `connect_timeout`.
    async fn open_connection(&self, server: SocketAddr) -> std::io::Result<UpstreamConnection> {
        let opened = async {
            let Some(connector) = &self.tls_connector else {
                return UpstreamConnection::open(server, RECV_BUFFER_BYTES).await;
            };
            let peer = self.build_peer(server, Some(self.options.connect_timeout));
            let stream = connector.new_stream(&peer).await.map_err(std::io::Error::other)?;
            UpstreamConnection::from_tls(stream, server)
        };
        tokio::time::timeout(self.options.connect_timeout, opened).await?
    }

    /// Keeps a connection whose exchange has ended, for the next exchange of the fast path.
    pub fn return_to_idle_pool(&self, connection: UpstreamConnection) {
        self.idle_pool.put(connection);
    }

    /// Skips a server for at most `eject_for`, because it did not accept a connection.
    pub fn eject_server(&self, server: SocketAddr, why: &str) {
        self.servers.eject(server, why);
    }

    /// Records that the server accepted a connection, which a request began to open at `began_at`.
    pub fn record_connection(&self, server: SocketAddr, began_at: Instant) {
        self.servers.record_connection(server, began_at);
    }

    /// If the failure of an exchange is a response that riskgate can't forward, says so in the log,
    /// as often as `BrokenResponseLog` allows. `ctx` has the attempts of the exchange.
    pub(crate) fn log_if_broken(&self, failure: Failure, ctx: &RequestContext) {
        if let (Failure::BrokenResponse(found), Some(attempt)) = (failure, ctx.attempts.last()) {
            self.broken_responses.log(attempt.server, found, ctx.request_id());
        }
    }

    /// Returns the deadline of an exchange whose request was complete at `since`. `since` is `None`
    /// if the client is still sending. `limit` is the limit of the route. Without `limit`, the
    /// exchange has the limit of a check.
    pub fn exchange_deadline(
        &self,
        limit: Option<TimeLimit>,
        since: Option<Instant>,
    ) -> ExchangeDeadline {
        let limit = limit.unwrap_or(TimeLimit::Whole(self.options.exchange_time_limit));
        ExchangeDeadline::new(limit, since)
    }

    /// Returns a guard of this connection for an exchange (see [`ConnectionGuard`]); `None` if
    /// riskgate can't watch the connection.
    pub fn guard_connection(
        &self,
        deadline: &ExchangeDeadline,
        connection_fd: RawFd,
    ) -> Option<ConnectionGuard> {
        ConnectionGuard::start(deadline.end_time(), connection_fd, self.options.tls.is_some())
    }

    /// Returns the value of `Host` for a request to a server: `upstream.host`, or `server` if the
    /// config has no `upstream.host`. The caller passes the server's address and port.
    pub fn host_header<'h>(&'h self, server: &'h str) -> &'h str {
        self.options.host_header.as_deref().unwrap_or(server)
    }

    /// Sets the gauges of the servers in the metrics.
    pub fn update_metrics(&self, metrics: &UpstreamMetrics) {
        metrics.set_gauges(&UpstreamSnapshot {
            is_healthy_by_server: self.servers.list_healths(),
            exchanges_in_flight: self.options.max_in_flight
                + max_uploads(self.options.max_in_flight, UPLOAD_SHARE_DIVISOR)
                - self.exchange_permits.available_permits()
                - self.upload_permits.available_permits(),
            idle_connections: self.idle_pool.connection_count(),
        });
    }

    /// Resolves the names of the servers once per `resolve_interval` until the shutdown, the first
    /// time at once if [`Upstreams::catch_up`] could not. Returns at once if the config has only
    /// addresses.
    async fn keep_resolving(&self, mut shutdown: ShutdownWatch) {
        if self.options.servers.iter().all(|name| matches!(name, ServerName::Address(_))) {
            return;
        }
        loop {
            let is_due = self.is_resolution_due.swap(false, Ordering::Relaxed);
            let pause = if is_due { Duration::ZERO } else { self.options.resolve_interval };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = shutdown.changed() => return,
            }
            if let Some(servers) = self.servers.resolve().await {
                let listed: Vec<String> = servers.iter().map(ToString::to_string).collect();
                log::info!("upstream servers: {}", listed.join(", "));
                self.idle_pool.close_connections_to_others(&servers);
            }
        }
    }

    /// Checks the servers' health and resolves their names again, until the shutdown. Checks the
    /// health only while a request may need a server.
    pub async fn watch_servers(
        self: &Arc<Self>,
        is_needed: impl Fn() -> bool,
        shutdown: ShutdownWatch,
    ) {
        let list_servers = || if is_needed() { self.servers.list_servers() } else { Vec::new() };
        let check = |server| {
            let upstreams = Arc::clone(self);
            async move { upstreams.check_and_record(server).await }
        };
        let interval = self.options.health_interval;
        tokio::join!(
            check_periodically(interval, list_servers, check, shutdown.clone()),
            self.keep_resolving(shutdown)
        );
    }

    /// Checks the health of a server. The whole check has one deadline.
    async fn check_and_record(&self, server: SocketAddr) {
        let (began_at, limit) = (Instant::now(), self.options.exchange_time_limit);
        let checked = tokio::time::timeout(limit, self.check_server(server)).await;
        let outcome = checked.unwrap_or_else(|_| {
            Err(format!("expected a whole response within {limit:?}, but found none"))
        });
        self.servers.record_check(server, began_at, outcome);
    }

    /// Requests `health_path` from the server, with the TLS settings of forwarded requests. Without
    /// `health_path`, only opens a connection.
    async fn check_server(&self, server: SocketAddr) -> Result<(), String> {
        let Some(path) = &self.options.health_path else {
            let opened = self.open_connection(server).await;
            return opened.map(drop).map_err(|error| describe_connect_error(&error));
        };
        let peer = self.build_peer(server, Some(self.options.exchange_time_limit));
        let address = server.to_string();
        self.health_client.request(&peer, self.host_header(&address), path).await
    }
}

/// Returns the most exchanges with a streamed body, if there may be `max_others` other exchanges.
fn max_uploads(max_others: usize, divisor: usize) -> usize {
    (max_others / divisor).max(MIN_UPLOADS).min(max_others)
}

fn acquire_permit(
    permits: &Arc<Semaphore>,
    per_client: &Arc<PerClientLimit>,
    client_address: Option<IpAddr>,
) -> Option<ExchangePermit> {
    let client_guard = acquire_client_guard(per_client, client_address)?;
    let permit = Arc::clone(permits).try_acquire_owned().ok()?;
    Some(ExchangePermit { _permit: permit, _client_guard: client_guard })
}

/// Counts one more exchange for the client with this address, until the guard is dropped. Returns
/// `None` if the client is at its limit. A client without an address has no limit: for it, the
/// result is `Some(None)`.
fn acquire_client_guard(
    limit: &Arc<PerClientLimit>,
    client_address: Option<IpAddr>,
) -> Option<Option<PerClientGuard>> {
    let client = client_address.filter(|_| !is_injected(TestFault::IgnoreClientLimit));
    client.map_or(Some(None), |address| limit.acquire(address).map(Some))
}

#[cfg(test)]
mod tests;
