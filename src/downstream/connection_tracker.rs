//! What is open and what is under way: for the caps, the drain and the metrics.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::model::network::Networks;
use crate::support::per_client_limit::{Share, Shares};

/// Connections that may be open at the same time.
#[derive(Clone, Debug)]
pub struct Caps {
    /// In all.
    pub connections: usize,
    /// From one address (one /64 of IPv6).
    pub per_address: usize,
    /// Whom the second does not concern.
    pub exempt: Networks,
}

/// What is open and what is under way.
pub struct Traffic {
    most: usize,
    listeners: AtomicUsize,
    connections: AtomicUsize,
    shares: Arc<Shares>,
    in_flight: AtomicUsize,
    draining: AtomicBool,
    /// In milliseconds.
    last_call: AtomicU64,
    drain_begun: Notify,
    changed: Notify,
}

impl Traffic {
    /// Nothing yet, under these caps.
    pub fn new(caps: Caps) -> Traffic {
        Traffic {
            most: caps.connections,
            listeners: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            shares: Arc::new(Shares::new(caps.per_address, caps.exempt)),
            in_flight: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            last_call: AtomicU64::new(0),
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
    pub fn drain(&self, last_call: Duration) {
        let millis = u64::try_from(last_call.as_millis()).unwrap_or(u64::MAX);
        self.last_call.store(millis, Ordering::SeqCst);
        self.draining.store(true, Ordering::SeqCst);
        self.drain_begun.notify_waiters();
    }

    /// Whether the process is about to end.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// How long after its last answer a connection is kept for one more request.
    pub fn last_call(&self) -> Duration {
        Duration::from_millis(self.last_call.load(Ordering::SeqCst))
    }

    /// Resolves once the drain begins.
    pub async fn drain_begun(&self) {
        until(&self.drain_begun, || self.is_draining()).await;
    }

    /// Resolves once no listener accepts any more.
    pub async fn closed(&self) {
        until(&self.changed, || self.listeners.load(Ordering::Acquire) == 0).await;
    }

    /// Resolves once nothing is in flight and no connection is open.
    pub async fn finished(&self) {
        until(&self.changed, || self.in_flight() == 0 && self.connections() == 0).await;
    }

    /// A listener begins to accept; one that stopped is [`Traffic::listener_closed`].
    pub fn listener_opened(&self) {
        self.listeners.fetch_add(1, Ordering::Release);
    }

    /// A listener accepts no more.
    pub fn listener_closed(&self) {
        self.listeners.fetch_sub(1, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// One more connection, if there may be one; it counts until the answer is dropped.
    pub(super) fn connect(self: &Arc<Self>) -> Option<Counted> {
        let counted = Counted::enter(self, |traffic| &traffic.connections);
        (self.connections() <= self.most).then_some(counted)
    }

    /// One more connection from this address, if there may be one.
    pub(super) fn connect_from(&self, address: IpAddr) -> Option<Share> {
        self.shares.take(address)
    }

    /// One more request, until the answer is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Counted {
        Counted::enter(self, |traffic| &traffic.in_flight)
    }
}

async fn until(changed: &Notify, condition: impl Fn() -> bool) {
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
pub(super) struct Counted {
    traffic: Arc<Traffic>,
    count: fn(&Traffic) -> &AtomicUsize,
}

impl Counted {
    fn enter(traffic: &Arc<Traffic>, count: fn(&Traffic) -> &AtomicUsize) -> Counted {
        count(traffic).fetch_add(1, Ordering::SeqCst);
        Counted { traffic: Arc::clone(traffic), count }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.count)(&self.traffic).fetch_sub(1, Ordering::SeqCst);
        // Only the end waits for it: counted down first, then looked, so that none is missed.
        if self.traffic.is_draining() {
            self.traffic.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_counted_and_capped() {
        let caps = Caps { connections: 3, per_address: 2, exempt: Networks::default() };
        let traffic = Arc::new(Traffic::new(caps));
        let open: Vec<Counted> = (0..3).map(|_| traffic.connect().unwrap()).collect();
        assert!(traffic.connect().is_none());
        drop(open);
        assert!(traffic.connect().is_some());
        assert_eq!(traffic.connections(), 0);
    }
}
