//! What is open and what is under way: for the caps, the drain and the metrics.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::model::network::Networks;
use crate::support::per_client_limit::{PerClientGuard, PerClientLimit};

/// Connections that may be open at the same time.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// In all.
    pub connections: usize,
    /// From one address (one /64 of IPv6).
    pub per_address: usize,
    /// Whom the second does not concern.
    pub exempt: Networks,
}

/// What is open and what is under way.
pub struct ConnectionTracker {
    max_connections: usize,
    listeners: AtomicUsize,
    connections: AtomicUsize,
    connections_per_client: Arc<PerClientLimit>,
    in_flight: AtomicUsize,
    is_draining: AtomicBool,
    /// In milliseconds.
    drain_keepalive: AtomicU64,
    drain_begun: Notify,
    changed: Notify,
}

impl ConnectionTracker {
    /// Nothing yet, under these caps.
    pub fn new(caps: ConnectionLimits) -> ConnectionTracker {
        ConnectionTracker {
            max_connections: caps.connections,
            listeners: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            connections_per_client: Arc::new(PerClientLimit::new(caps.per_address, caps.exempt)),
            in_flight: AtomicUsize::new(0),
            is_draining: AtomicBool::new(false),
            drain_keepalive: AtomicU64::new(0),
            drain_begun: Notify::new(),
            changed: Notify::new(),
        }
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Requests between their first byte and the end of their answer.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// From now on every answer says that its connection closes. Where none was under way, a last
    /// request is waited for until so long after the answer before it.
    pub fn start_drain(&self, drain_keepalive: Duration) {
        let millis = u64::try_from(drain_keepalive.as_millis()).unwrap_or(u64::MAX);
        self.drain_keepalive.store(millis, Ordering::SeqCst);
        self.is_draining.store(true, Ordering::SeqCst);
        self.drain_begun.notify_waiters();
    }

    /// Whether the process is about to end.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }

    /// How long after its last answer a connection is kept for one more request.
    pub fn drain_keepalive(&self) -> Duration {
        Duration::from_millis(self.drain_keepalive.load(Ordering::SeqCst))
    }

    /// Resolves once the drain begins.
    pub async fn wait_for_drain(&self) {
        wait_until(&self.drain_begun, || self.is_draining()).await;
    }

    /// Resolves once no listener accepts any more.
    pub async fn wait_until_listeners_closed(&self) {
        wait_until(&self.changed, || self.listeners.load(Ordering::Acquire) == 0).await;
    }

    /// Resolves once nothing is in flight and no connection is open.
    pub async fn wait_until_finished(&self) {
        wait_until(&self.changed, || self.in_flight() == 0 && self.connections() == 0).await;
    }

    /// A listener begins to accept; one that stopped is [`ConnectionTracker::remove_listener`].
    pub fn add_listener(&self) {
        self.listeners.fetch_add(1, Ordering::Release);
    }

    /// A listener accepts no more.
    pub fn remove_listener(&self) {
        self.listeners.fetch_sub(1, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// One more connection, if there may be one; it counts until the answer is dropped.
    pub(super) fn track_connection(self: &Arc<Self>) -> Option<InFlightGuard> {
        let counted = InFlightGuard::start(self, |traffic| &traffic.connections);
        (self.connections() <= self.max_connections).then_some(counted)
    }

    /// One more connection from this address, if there may be one.
    pub(super) fn track_address(&self, address: IpAddr) -> Option<PerClientGuard> {
        self.connections_per_client.acquire(address)
    }

    /// One more request, until the answer is dropped.
    pub(super) fn track_request(self: &Arc<Self>) -> InFlightGuard {
        InFlightGuard::start(self, |traffic| &traffic.in_flight)
    }
}

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

/// Counts one connection or request for as long as it lives, panics included.
pub(super) struct InFlightGuard {
    tracker: Arc<ConnectionTracker>,
    count: fn(&ConnectionTracker) -> &AtomicUsize,
}

impl InFlightGuard {
    fn start(
        traffic: &Arc<ConnectionTracker>,
        count: fn(&ConnectionTracker) -> &AtomicUsize,
    ) -> InFlightGuard {
        count(traffic).fetch_add(1, Ordering::SeqCst);
        InFlightGuard { tracker: Arc::clone(traffic), count }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        (self.count)(&self.tracker).fetch_sub(1, Ordering::SeqCst);
        // Only the end waits for it: counted down first, then looked, so that none is missed.
        if self.tracker.is_draining() {
            self.tracker.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_counted_and_capped() {
        let caps = ConnectionLimits { connections: 3, per_address: 2, exempt: Networks::default() };
        let traffic = Arc::new(ConnectionTracker::new(caps));
        let open: Vec<InFlightGuard> =
            (0..3).map(|_| traffic.track_connection().unwrap()).collect();
        assert!(traffic.track_connection().is_none());
        drop(open);
        assert!(traffic.track_connection().is_some());
        assert_eq!(traffic.connections(), 0);
    }
}
