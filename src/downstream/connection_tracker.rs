//! The counts of open listeners, open connections and requests in flight, for the limits, the drain
//! and the metrics.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::model::network::Networks;
use crate::support::per_client_limit::{PerClientGuard, PerClientLimit};

/// The limits on open connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The most connections in total.
    pub max_connections: usize,
    /// The most connections from one address (one /64 of IPv6).
    pub max_per_address: usize,
    /// Clients in these networks are exempt from the limit per address.
    pub exempt_networks: Networks,
}

/// Counts open listeners, open connections and requests in flight, and knows whether the HTTP
/// listener has begun to accept, and whether the process is draining.
pub struct ConnectionTracker {
    max_connections: usize,
    open_listeners: AtomicUsize,
    is_http_accepting: AtomicBool,
    open_connections: AtomicUsize,
    connections_per_client: Arc<PerClientLimit>,
    requests_in_flight: AtomicUsize,
    admin_connections: AtomicUsize,
    is_draining: AtomicBool,
    drain_began_at: OnceLock<Instant>,
    /// See [`ConnectionTracker::drain_keepalive`]; in milliseconds.
    drain_keepalive_ms: AtomicU64,
    drain_started: Notify,
    count_changed: Notify,
}

impl ConnectionTracker {
    /// Creates a tracker with these limits.
    pub fn new(limits: ConnectionLimits) -> ConnectionTracker {
        ConnectionTracker {
            max_connections: limits.max_connections,
            open_listeners: AtomicUsize::new(0),
            is_http_accepting: AtomicBool::new(false),
            open_connections: AtomicUsize::new(0),
            connections_per_client: Arc::new(PerClientLimit::new(
                limits.max_per_address,
                limits.exempt_networks,
            )),
            requests_in_flight: AtomicUsize::new(0),
            admin_connections: AtomicUsize::new(0),
            is_draining: AtomicBool::new(false),
            drain_began_at: OnceLock::new(),
            drain_keepalive_ms: AtomicU64::new(0),
            drain_started: Notify::new(),
            count_changed: Notify::new(),
        }
    }

    /// Returns the number of open connections.
    pub fn count_open_connections(&self) -> usize {
        self.open_connections.load(Ordering::SeqCst)
    }

    /// Returns the number of requests in flight. Requests of HTTP/1.1 that the fast path answers
    /// together count as one.
    pub fn count_requests_in_flight(&self) -> usize {
        self.requests_in_flight.load(Ordering::SeqCst)
    }

    /// Starts the drain. The response to each request over HTTP/1.1 that arrives from now on says
    /// that its connection closes. Once Pingora shuts down, after `drain.delay`, an idle connection
    /// of HTTP/1.1 stays open until `drain_keepalive` after its last response, so that the client
    /// may send one more request.
    pub fn start_drain(&self, drain_keepalive: Duration) {
        let millis = u64::try_from(drain_keepalive.as_millis()).unwrap_or(u64::MAX);
        self.drain_keepalive_ms.store(millis, Ordering::SeqCst);
        self.drain_began_at.get_or_init(Instant::now);
        self.is_draining.store(true, Ordering::SeqCst);
        self.drain_started.notify_waiters();
    }

    /// Returns when the drain started, if it has.
    pub fn drain_began_at(&self) -> Option<Instant> {
        self.drain_began_at.get().copied()
    }

    /// Returns true once the drain has started.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }

    /// Returns for how long a drain keeps an idle connection after the connection's last response.
    /// The client may be sending one more request.
    pub fn drain_keepalive(&self) -> Duration {
        Duration::from_millis(self.drain_keepalive_ms.load(Ordering::SeqCst))
    }

    /// Resolves once the drain starts.
    pub async fn wait_until_drain_starts(&self) {
        wait_until(&self.drain_started, || self.is_draining()).await;
    }

    /// Returns true once no listener accepts any more.
    pub fn are_listeners_closed(&self) -> bool {
        self.open_listeners.load(Ordering::Acquire) == 0
    }

    /// Resolves once no listener accepts any more.
    pub async fn wait_until_listeners_closed(&self) {
        wait_until(&self.count_changed, || self.are_listeners_closed()).await;
    }

    /// Resolves once no request is in flight and no connection is open. Connections of the admin
    /// listener count as well.
    pub async fn wait_until_all_connections_close(&self) {
        wait_until(&self.count_changed, || {
            self.count_requests_in_flight() == 0
                && self.count_open_connections() == 0
                && self.admin_connections.load(Ordering::SeqCst) == 0
        })
        .await;
    }

    /// Counts a listener that starts to accept, until [`ConnectionTracker::remove_listener`].
    pub fn add_listener(&self) {
        self.open_listeners.fetch_add(1, Ordering::Release);
    }

    /// Counts a listener as closed: the listener accepts no more connections.
    pub fn remove_listener(&self) {
        self.open_listeners.fetch_sub(1, Ordering::Release);
        self.count_changed.notify_waiters();
    }

    /// Notes that the HTTP listener begins to accept connections.
    pub fn set_http_accepting(&self) {
        self.is_http_accepting.store(true, Ordering::Release);
    }

    /// Returns true once the HTTP listener has begun to accept connections.
    pub fn is_http_accepting(&self) -> bool {
        self.is_http_accepting.load(Ordering::Acquire)
    }

    /// Counts one more connection until the guard is dropped. `None` if all clients together have
    /// too many connections.
    pub(super) fn track_connection(self: &Arc<Self>) -> Option<CountGuard> {
        CountGuard::start_below(self.max_connections, self, |tracker| &tracker.open_connections)
    }

    /// Counts one more connection from this address until the guard is dropped. `None` if this
    /// client has too many connections.
    pub(super) fn track_connection_from(&self, address: IpAddr) -> Option<PerClientGuard> {
        self.connections_per_client.acquire(address)
    }

    /// Counts one more connection of the admin listener until the guard is dropped. The metrics and
    /// the limits don't count these connections.
    pub fn track_admin_connection(self: &Arc<Self>) -> CountGuard {
        CountGuard::start(self, |tracker| &tracker.admin_connections)
    }

    /// Counts one more request, or batch of requests, in flight until the guard is dropped.
    pub(super) fn track_request(self: &Arc<Self>) -> CountGuard {
        CountGuard::start(self, |tracker| &tracker.requests_in_flight)
    }
}

/// Resolves once the condition is true. Tests the condition at the start, and again whenever
/// `changed` is notified.
async fn wait_until(changed: &Notify, condition: impl Fn() -> bool) {
    loop {
        let notified = changed.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if condition() {
            return;
        }
        notified.await;
    }
}

/// Counts one open connection, one connection of the admin listener, or one request in flight,
/// until the guard is dropped. A panic drops the guard as well.
pub struct CountGuard {
    tracker: Arc<ConnectionTracker>,
    select_counter: fn(&ConnectionTracker) -> &AtomicUsize,
}

impl CountGuard {
    fn start(
        tracker: &Arc<ConnectionTracker>,
        select_counter: fn(&ConnectionTracker) -> &AtomicUsize,
    ) -> CountGuard {
        select_counter(tracker).fetch_add(1, Ordering::SeqCst);
        CountGuard { tracker: Arc::clone(tracker), select_counter }
    }

    /// Counts only if the count is below `max`.
    fn start_below(
        max: usize,
        tracker: &Arc<ConnectionTracker>,
        select_counter: fn(&ConnectionTracker) -> &AtomicUsize,
    ) -> Option<CountGuard> {
        let add_one = |count| Some(count + 1).filter(|after| *after <= max);
        select_counter(tracker).fetch_update(Ordering::SeqCst, Ordering::SeqCst, add_one).ok()?;
        Some(CountGuard { tracker: Arc::clone(tracker), select_counter })
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        (self.select_counter)(&self.tracker).fetch_sub(1, Ordering::SeqCst);
        // Tasks wait for the count only during a drain. This function decrements the count and then
        // reads `is_draining`. If the drain starts between the two, its tasks read the new count.
        if self.tracker.is_draining() {
            self.tracker.count_changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
