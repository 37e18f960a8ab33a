//! The servers behind us: which one is asked, for how long, and with which headers.
//!
//! Owns the pool with its active and passive health. It judges no request; who comes here has a
//! permit.

mod attempts;
mod connection;
mod deadline;
mod response;

use std::net::{IpAddr, SocketAddr as StdAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use pingora_core::Result;
use pingora_core::connectors::ConnectorOptions;
use pingora_core::connectors::http::Connector as HttpConnector;
use pingora_core::protocols::l4::socket::SocketAddr;
use pingora_core::upstreams::peer::{HttpPeer, HttpUpstreamRequestPolicy};
use pingora_load_balancing::health_check::{HttpHealthCheck, TcpHealthCheck};
use pingora_load_balancing::selection::RoundRobin;
use pingora_load_balancing::{Backend, LoadBalancer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::message::forwarding::{self, ClientInfo};
use crate::model::network::Networks;
use crate::support::per_client_limit::{PerClientGuard, PerClientLimit};

pub use attempts::{Attempts, Failure, MAX_ATTEMPTS};
use connection::IdlePool;
pub use connection::UpstreamConnection;
pub use deadline::DeadlineGuard;
pub use response::{BodyState, MalformedResponse, ResponseContext, ResponseHead, forward_head};

/// Idle connections that are kept, on each way: Pingora's and the lane's.
pub const MAX_IDLE_CONNECTIONS: usize = 512;
/// What the kernel may hold of an upstream's answer that its client does not take yet, in bytes; it
/// doubles the number for its own needs.
const RECV_BUFFER_BYTES: usize = 32 * 1024;

/// Connections, deadlines and health.
#[derive(Clone, Debug)]
pub struct UpstreamOptions {
    /// `host:port` of each server.
    pub servers: Vec<String>,
    /// What `Host` says; the server's own name when empty.
    pub host: Option<String>,
    /// Whether TLS is spoken to them, and how.
    pub tls: Option<UpstreamTls>,
    /// Exchanges at the same time; what comes beyond is refused at once.
    pub max_in_flight: usize,
    /// Of those, for clients of one address (one /64 of IPv6).
    pub max_in_flight_per_address: usize,
    /// Whom that does not concern.
    pub exempt_networks: Networks,
    /// For one connection to be made.
    pub connect_timeout: Duration,
    /// For the whole exchange, from the request's header to the last byte of the answer.
    pub deadline: Duration,
    /// How long an idle connection is kept for reuse.
    pub idle_timeout: Duration,
    /// How often servers are checked; zero switches it off.
    pub health_interval: Duration,
    /// A path to ask for; a mere connection when empty.
    pub health_path: Option<String>,
    /// How long a server that refused a connection is passed over.
    pub eject_for: Duration,
}

/// TLS to the servers.
#[derive(Clone, Debug)]
pub struct UpstreamTls {
    /// A file with the authorities to trust, instead of the system's; the connector reads it.
    pub ca_file: Option<String>,
    /// The name that their certificate must be for.
    pub server_name: String,
    /// Whether it is looked at.
    pub verify: bool,
}

/// A place among the exchanges under way.
pub struct ExchangePermit {
    _permit: OwnedSemaphorePermit,
    _share: Option<PerClientGuard>,
}

/// The servers and how they are.
pub struct Upstreams {
    balancer: Arc<LoadBalancer<RoundRobin>>,
    options: UpstreamOptions,
    ejected: DashMap<SocketAddr, Instant>,
    /// Connections of the lane without work.
    idle_pool: Arc<IdlePool>,
    exchange_permits: Arc<Semaphore>,
    body_permits: Semaphore,
    bodies_per_client: Arc<PerClientLimit>,
    exchanges_per_client: Arc<PerClientLimit>,
    retry_count: AtomicU64,
}

impl Upstreams {
    /// A pool of these servers; names are resolved here.
    pub fn new(options: UpstreamOptions) -> std::io::Result<Upstreams> {
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
        let most = options.max_in_flight_per_address;
        let shares = || Arc::new(PerClientLimit::new(most, options.exempt_networks.clone()));
        Ok(Upstreams {
            balancer: Arc::new(balancer),
            exchange_permits: Arc::new(Semaphore::new(options.max_in_flight)),
            body_permits: Semaphore::new(options.max_in_flight),
            bodies_per_client: shares(),
            exchanges_per_client: shares(),
            idle_pool: Arc::new(IdlePool::new(
                options.max_in_flight.min(MAX_IDLE_CONNECTIONS),
                options.idle_timeout,
            )),
            options,
            ejected: DashMap::new(),
            retry_count: AtomicU64::new(0),
        })
    }

    /// The pool, to be run as a background service: it does the active checks.
    pub fn balancer(&self) -> Arc<LoadBalancer<RoundRobin>> {
        Arc::clone(&self.balancer)
    }

    /// Servers that may be asked now, of all.
    pub fn count_healthy(&self) -> (usize, usize) {
        let backends = self.balancer.backends().get_backend();
        let good = |backend: &&Backend| {
            self.balancer.backends().ready(backend) && !self.is_ejected(backend)
        };
        (backends.iter().filter(good).count(), backends.len())
    }

    /// One more exchange for a client of this address, until the answer is dropped; `None` when
    /// there are too many. Who has no address has no share.
    pub fn acquire_exchange(&self, client: Option<IpAddr>) -> Option<ExchangePermit> {
        let share = acquire_per_client(&self.exchanges_per_client, client)?;
        let permit = Arc::clone(&self.exchange_permits).try_acquire_owned().ok()?;
        Some(ExchangePermit { _permit: permit, _share: share })
    }

    /// Room for one more body that is waited for before a server is asked: for as many as there are
    /// places, and with the same share for an address, so that bodies take no more memory than
    /// exchanges do.
    pub fn acquire_body(
        &self,
        client: Option<IpAddr>,
    ) -> Option<(SemaphorePermit<'_>, Option<PerClientGuard>)> {
        let share = acquire_per_client(&self.bodies_per_client, client)?;
        Some((self.body_permits.try_acquire().ok()?, share))
    }

    /// The next server to ask, with what is left of the deadline; `None` when there is none or
    /// no time. A second try takes a connection of its own: of those that are kept, the next could
    /// have closed like the first.
    pub fn select_peer(&self, started: Instant, is_retry: bool) -> Option<HttpPeer> {
        let left = self.time_left(started)?;
        let backend = self.select_backend()?;
        let name = self.options.tls.as_ref().map(|tls| tls.server_name.clone());
        let mut peer = HttpPeer::new(backend.addr, name.is_some(), name.unwrap_or_default());
        let verify = self.options.tls.as_ref().is_none_or(|tls| tls.verify);
        peer.options.verify_cert = verify;
        peer.options.verify_hostname = verify;
        let connect = self.options.connect_timeout.min(left);
        peer.options.connection_timeout = Some(connect);
        peer.options.total_connection_timeout = Some(connect);
        peer.options.read_timeout = Some(left);
        peer.options.write_timeout = Some(left);
        peer.options.idle_timeout = Some(self.options.idle_timeout);
        if is_retry {
            peer.group_key = 1 + self.retry_count.fetch_add(1, Ordering::Relaxed);
            peer.options.idle_timeout = Some(Duration::ZERO);
        }
        peer.options.tcp_recv_buf = Some(RECV_BUFFER_BYTES);
        // What is for one hop only stays behind by our own rule, as on the lane: Pingora's has no
        // answer for an option that it does not understand.
        peer.options.http_upstream_request_policy = HttpUpstreamRequestPolicy::preserve();
        Some(peer)
    }

    /// Whether a server can be asked on a connection of our own: one that is spoken to in clear.
    pub fn is_cleartext(&self) -> bool {
        self.options.tls.is_none()
    }

    /// The next server to ask on a connection of our own; `None` when there is none.
    pub fn select_server(&self) -> Option<StdAddr> {
        self.select_backend()?.addr.as_inet().copied()
    }

    /// A connection to this server: one that is kept, where there is one, but for a second try.
    pub async fn connect(
        &self,
        server: StdAddr,
        is_retry: bool,
    ) -> std::io::Result<UpstreamConnection> {
        if !is_retry && let Some(connection) = self.idle_pool.checkout(server) {
            return Ok(connection);
        }
        tokio::time::timeout(
            self.options.connect_timeout,
            UpstreamConnection::open(server, RECV_BUFFER_BYTES),
        )
        .await?
    }

    /// Keeps a connection on which an exchange has ended, for the next one.
    pub fn keep_idle(&self, connection: UpstreamConnection) {
        self.idle_pool.put(connection);
    }

    /// Passes a server over for a while: it did not take a connection.
    pub fn eject_server(&self, server: &SocketAddr) {
        self.ejected.insert(server.clone(), Instant::now() + self.options.eject_for);
    }

    fn select_backend(&self) -> Option<Backend> {
        let healthy = |backend: &Backend, ready: bool| ready && !self.is_ejected(backend);
        self.balancer
            .select_with(b"", 64, healthy)
            // When none is known to be well, one that may have recovered is better than none.
            .or_else(|| self.balancer.select_with(b"", 64, |_, _| true))
    }

    /// When the exchange of a request that began then is out of time.
    pub fn exchange_deadline(&self, started: Instant) -> Instant {
        started + self.options.deadline
    }

    /// What the exchange has left of its time.
    pub fn time_left(&self, started: Instant) -> Option<Duration> {
        let left = self.options.deadline.checked_sub(started.elapsed())?;
        (!left.is_zero()).then_some(left)
    }

    /// Whether the exchange is out of time.
    pub fn is_past_deadline(&self, started: Instant) -> bool {
        self.time_left(started).is_none()
    }

    /// Ends the exchange at its deadline whatever trickles: see [`DeadlineGuard`].
    pub fn start_deadline(&self, started: Instant, connection: RawFd) -> Option<DeadlineGuard> {
        DeadlineGuard::start(self.exchange_deadline(started), connection)
    }

    /// What `Host` says to this server, which is its own name if nothing else is set.
    pub fn host_header<'h>(&'h self, server: &'h str) -> &'h str {
        self.options.host.as_deref().unwrap_or(server)
    }

    /// The request that crosses to `server`, as bytes, for one without a body: the canonical
    /// target, our headers, nothing forged; from its header, which was found good.
    pub fn write_request(
        &self,
        header: &[u8],
        request_line: (&str, &[u8]),
        server: StdAddr,
        client_info: &ClientInfo<'_>,
        out: &mut Vec<u8>,
    ) {
        let name;
        let host = match &self.options.host {
            Some(host) => host,
            None => {
                name = server.to_string();
                &name
            }
        };
        forwarding::write_request(header, request_line, host, client_info, out);
    }

    fn is_ejected(&self, backend: &Backend) -> bool {
        self.ejected.get(&backend.addr).is_some_and(|until| Instant::now() < *until)
    }
}

/// One of this address's share; none is needed without an address.
fn acquire_per_client(
    shares: &Arc<PerClientLimit>,
    client: Option<IpAddr>,
) -> Option<Option<PerClientGuard>> {
    client.map_or(Some(None), |address| shares.acquire(address).map(Some))
}

fn tcp_health_check(options: &UpstreamOptions) -> Box<TcpHealthCheck> {
    // A connection is all that is looked for, also where TLS would be spoken on it.
    let mut check = TcpHealthCheck::new();
    check.peer_template.options.connection_timeout = Some(options.connect_timeout);
    check
}

fn http_health_check(options: &UpstreamOptions, path: &str) -> Result<Box<HttpHealthCheck>> {
    let name = options.tls.as_ref().map(|tls| tls.server_name.as_str());
    let host = options.host.as_deref().or(name).unwrap_or("upstream");
    let mut check: HttpHealthCheck = HttpHealthCheck::new(host, options.tls.is_some());
    if let Some(tls) = &options.tls {
        let mut connector = ConnectorOptions::new(1);
        connector.ca_file.clone_from(&tls.ca_file);
        check.set_connector(HttpConnector::new(Some(connector)));
        check.peer_template.sni.clone_from(&tls.server_name);
        check.peer_template.options.verify_cert = tls.verify;
        check.peer_template.options.verify_hostname = tls.verify;
    }
    check.req.set_raw_path(path.as_bytes())?;
    check.peer_template.options.connection_timeout = Some(options.connect_timeout);
    check.peer_template.options.read_timeout = Some(options.deadline);
    Ok(Box::new(check))
}
