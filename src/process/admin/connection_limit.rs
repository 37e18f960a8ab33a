//! How many connections one listener keeps open, in all and for each client.
//!
//! If a client has its share, or all places are taken, an older connection is closed for a new one,
//! so that no client can keep others out by holding connections open. One whose answer is being
//! made is not closed: only where all are such, the new one is. It knows no protocol and reads
//! nothing.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::model::network::ClientPrefix;

/// Connections that are open at the same time: at most `max`, and `max_per_client` from one IPv4
/// address or one /64 of IPv6.
#[derive(Debug)]
pub struct ConnectionLimit {
    max: usize,
    max_per_client: usize,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    /// The oldest first.
    connections: Vec<OpenConnection>,
    next_id: u64,
}

#[derive(Debug)]
struct OpenConnection {
    id: u64,
    client: ClientPrefix,
    busy_flag: BusyFlag,
    /// Dropped to close the connection.
    _keep_open: oneshot::Sender<()>,
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub struct ConnectionGuard {
    connection_limit: Arc<ConnectionLimit>,
    id: u64,
    busy_flag: BusyFlag,
    evicted: oneshot::Receiver<()>,
}

/// Whether a connection keeps its place.
#[derive(Clone, Debug, Default)]
pub struct BusyFlag(Arc<AtomicBool>);

/// A place that is kept, until it is dropped.
#[derive(Debug)]
pub struct BusyGuard<'p>(&'p BusyFlag);

impl BusyFlag {
    /// Nobody displaces this connection until the answer is dropped.
    pub fn mark_busy(&self) -> BusyGuard<'_> {
        self.0.store(true, Ordering::SeqCst);
        BusyGuard(self)
    }

    fn is_busy(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::SeqCst);
    }
}

impl ConnectionLimit {
    /// Nothing is open yet.
    pub fn new(max: usize, max_per_client: usize) -> ConnectionLimit {
        ConnectionLimit { max, max_per_client, open: Mutex::default() }
    }

    /// Takes a place for a connection from `address`, and closes another one for it if it must;
    /// none where all those keep theirs.
    pub fn register(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionGuard> {
        let client = ClientPrefix::from(address);
        let (keep_open, displaced) = oneshot::channel();
        let mut open = self.lock_open();
        if open.count_of(client) >= self.max_per_client {
            open.evict_oldest_of(client)?;
        } else if open.connections.len() >= self.max {
            open.evict_oldest_of_largest_client()?;
        }
        let (id, place) = (open.next_id, BusyFlag::default());
        open.next_id += 1;
        let kept = place.clone();
        open.connections.push(OpenConnection {
            id,
            client,
            busy_flag: kept,
            _keep_open: keep_open,
        });
        Some(ConnectionGuard {
            connection_limit: Arc::clone(self),
            id,
            busy_flag: place,
            evicted: displaced,
        })
    }

    fn lock_open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    fn count_of(&self, client: ClientPrefix) -> usize {
        self.connections.iter().filter(|connection| connection.client == client).count()
    }

    fn evict_oldest_of(&mut self, client: ClientPrefix) -> Option<()> {
        let is_evictable =
            |open: &OpenConnection| open.client == client && !open.busy_flag.is_busy();
        let at = self.connections.iter().position(is_evictable)?;
        self.connections.remove(at);
        Some(())
    }

    /// Of clients that have equally many, the one whose oldest connection is older.
    fn evict_oldest_of_largest_client(&mut self) -> Option<()> {
        let is_evictable = self.connections.iter().rev().filter(|open| !open.busy_flag.is_busy());
        let largest =
            is_evictable.map(|open| open.client).max_by_key(|client| self.count_of(*client))?;
        self.evict_oldest_of(largest)
    }
}

impl ConnectionGuard {
    /// What keeps it from being displaced.
    pub fn place(&self) -> BusyFlag {
        self.busy_flag.clone()
    }

    /// Resolves once this connection must be closed, because another one took its place.
    pub async fn wait_until_evicted(&mut self) {
        let _ = (&mut self.evicted).await;
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.connection_limit.lock_open().connections.retain(|open| open.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(max: usize, max_per_client: usize) -> Arc<ConnectionLimit> {
        Arc::new(ConnectionLimit::new(max, max_per_client))
    }

    fn register(limit: &Arc<ConnectionLimit>, address: &str) -> ConnectionGuard {
        limit.register(address.parse().unwrap()).unwrap()
    }

    /// One that was displaced has no sender any more.
    fn is_open(guard: &mut ConnectionGuard) -> bool {
        matches!(guard.evicted.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    #[test]
    fn a_client_over_its_limit_evicts_its_own_oldest_connection() {
        let limit = limit(10, 2);
        let mut other = register(&limit, "192.0.2.2");
        let (mut first, mut second) =
            (register(&limit, "192.0.2.1"), register(&limit, "192.0.2.1"));
        let mut third = register(&limit, "192.0.2.1");
        assert!(!is_open(&mut first) && is_open(&mut second) && is_open(&mut third));
        assert!(is_open(&mut other));
        drop(second);
        let _fourth = register(&limit, "192.0.2.1");
        assert!(is_open(&mut third), "a place that came free is used first");
    }

    #[test]
    fn a_full_listener_evicts_a_connection_of_the_client_with_the_most() {
        let limit = limit(4, 3);
        let mut alone = register(&limit, "192.0.2.9");
        let mut many: Vec<_> = (0..3).map(|_| register(&limit, "2001:db8::1")).collect();
        let mut newcomer = register(&limit, "192.0.2.7");
        assert!(is_open(&mut alone) && is_open(&mut newcomer));
        assert!(!is_open(&mut many[0]) && is_open(&mut many[1]) && is_open(&mut many[2]));
        assert_eq!(limit.lock_open().connections.len(), 4);
        drop((alone, many, newcomer));
        assert!(limit.lock_open().connections.is_empty(), "nothing is kept of who left");
    }

    #[test]
    fn between_equal_clients_the_oldest_connection_is_evicted() {
        let limit = limit(3, 2);
        let mut open: Vec<_> =
            (1..=3).map(|last| register(&limit, &format!("192.0.2.{last}"))).collect();
        let _newcomer = register(&limit, "192.0.2.9");
        assert_eq!(open.iter_mut().map(is_open).collect::<Vec<_>>(), [false, true, true]);
    }

    #[test]
    fn a_busy_connection_is_not_evicted() {
        let limit = limit(3, 2);
        let (mut first, mut second) =
            (register(&limit, "192.0.2.1"), register(&limit, "192.0.2.1"));
        let (place, other) = (first.place(), second.place());
        let held = place.mark_busy();
        let mut third = register(&limit, "192.0.2.1");
        assert!(is_open(&mut first) && !is_open(&mut second) && is_open(&mut third));
        drop(second);
        // It is another place's that was given up.
        drop(other.mark_busy());
        let last = third.place();
        let other = last.mark_busy();
        assert!(limit.register("192.0.2.1".parse().unwrap()).is_none(), "both keep theirs");
        assert!(is_open(&mut first) && is_open(&mut third));
        // Where all places are taken, the smaller client has the only one that may go.
        let mut small = register(&limit, "192.0.2.7");
        let _newcomer = register(&limit, "192.0.2.9");
        assert!(is_open(&mut first) && is_open(&mut third) && !is_open(&mut small));
        drop((held, other));
        let _latest = register(&limit, "192.0.2.1");
        assert!(!is_open(&mut first) && is_open(&mut third));
    }
}
