//! Limits the open connections of a listener, in total and per client.
//!
//! If either limit is reached, a new connection evicts an older one, so that no client can keep
//! other clients out by holding connections open. The owner of a connection can mark it as busy: a
//! busy connection is not evicted. If all candidates are busy, the owner must close the new
//! connection. This module knows no protocol and reads nothing.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::model::network::ClientPrefix;

/// Limits the connections that are open at the same time: `max_connections` in total, and
/// `max_per_client` from one IPv4 address or one /64 of IPv6.
#[derive(Debug)]
pub struct ConnectionLimit {
    max_connections: usize,
    max_per_client: usize,
    open_connections: Mutex<OpenConnections>,
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
    /// The connection closes when this sender is dropped.
    _keep_open: oneshot::Sender<()>,
}

/// Keeps one connection registered until this guard is dropped.
#[derive(Debug)]
pub struct ConnectionGuard {
    connection_limit: Arc<ConnectionLimit>,
    id: u64,
    busy_flag: BusyFlag,
    eviction: oneshot::Receiver<()>,
}

/// A flag that is set while a connection must not be evicted.
#[derive(Clone, Debug, Default)]
pub struct BusyFlag(Arc<AtomicBool>);

/// Keeps a connection from being evicted until this guard is dropped.
#[derive(Debug)]
pub struct BusyGuard<'f>(&'f BusyFlag);

impl BusyFlag {
    /// Keeps the connection from being evicted until the returned guard is dropped.
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
    /// Creates a limit with no open connection.
    pub fn new(max_connections: usize, max_per_client: usize) -> ConnectionLimit {
        ConnectionLimit { max_connections, max_per_client, open_connections: Mutex::default() }
    }

    /// Registers a connection from `address`. If a limit is reached, evicts another connection. If
    /// all candidates are busy, returns `None`: the caller must then close the new connection.
    pub fn register(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionGuard> {
        let client = ClientPrefix::from(address);
        let (keep_open, evicted) = oneshot::channel();
        let mut open = self.lock_open_connections();
        if open.count_connections_of(client) >= self.max_per_client {
            open.evict_oldest_of_client(client)?;
        } else if open.connections.len() >= self.max_connections {
            open.evict_oldest_of_largest_client()?;
        }
        let (id, busy_flag) = (open.next_id, BusyFlag::default());
        open.next_id += 1;
        open.connections.push(OpenConnection {
            id,
            client,
            busy_flag: busy_flag.clone(),
            _keep_open: keep_open,
        });
        Some(ConnectionGuard {
            connection_limit: Arc::clone(self),
            id,
            busy_flag,
            eviction: evicted,
        })
    }

    fn lock_open_connections(&self) -> MutexGuard<'_, OpenConnections> {
        self.open_connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    fn count_connections_of(&self, client: ClientPrefix) -> usize {
        self.connections.iter().filter(|connection| connection.client == client).count()
    }

    /// Evicts the oldest connection of this client that is not busy. Returns `None` if all
    /// connections of the client are busy.
    fn evict_oldest_of_client(&mut self, client: ClientPrefix) -> Option<()> {
        let is_evictable =
            |open: &OpenConnection| open.client == client && !open.busy_flag.is_busy();
        let at = self.connections.iter().position(is_evictable)?;
        self.connections.remove(at);
        Some(())
    }

    /// Evicts a connection that is not busy. Takes the client with the most connections, among the
    /// clients with a connection that is not busy, and evicts its oldest such connection. If
    /// several clients have equally many connections, evicts the oldest such connection of them
    /// all. Returns `None` if all connections are busy.
    fn evict_oldest_of_largest_client(&mut self) -> Option<()> {
        let is_evictable = self.connections.iter().rev().filter(|open| !open.busy_flag.is_busy());
        let largest = is_evictable
            .map(|open| open.client)
            .max_by_key(|client| self.count_connections_of(*client))?;
        self.evict_oldest_of_client(largest)
    }
}

impl ConnectionGuard {
    /// Returns the flag that keeps this connection from being evicted.
    pub fn busy_flag(&self) -> BusyFlag {
        self.busy_flag.clone()
    }

    /// Resolves once this connection must be closed, because a new one took its place.
    pub async fn wait_until_evicted(&mut self) {
        let _ = (&mut self.eviction).await;
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.connection_limit.lock_open_connections().connections.retain(|open| open.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_connection_limit(max: usize, max_per_client: usize) -> Arc<ConnectionLimit> {
        Arc::new(ConnectionLimit::new(max, max_per_client))
    }

    fn register_connection(limit: &Arc<ConnectionLimit>, address: &str) -> ConnectionGuard {
        limit.register(address.parse().unwrap()).unwrap()
    }

    /// An evicted connection has no sender any more.
    fn is_open(guard: &mut ConnectionGuard) -> bool {
        matches!(guard.eviction.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    #[test]
    fn a_client_over_its_limit_evicts_its_own_oldest_connection() {
        let limit = new_connection_limit(10, 2);
        let mut other = register_connection(&limit, "192.0.2.2");
        let (mut first, mut second) =
            (register_connection(&limit, "192.0.2.1"), register_connection(&limit, "192.0.2.1"));
        let mut third = register_connection(&limit, "192.0.2.1");
        assert!(!is_open(&mut first) && is_open(&mut second) && is_open(&mut third));
        assert!(is_open(&mut other));
        drop(second);
        let _fourth = register_connection(&limit, "192.0.2.1");
        assert!(is_open(&mut third), "a closed connection makes room first");
    }

    #[test]
    fn a_full_listener_evicts_from_the_client_with_the_most_connections() {
        let limit = new_connection_limit(4, 3);
        let mut alone = register_connection(&limit, "192.0.2.9");
        let mut many: Vec<_> = (0..3).map(|_| register_connection(&limit, "2001:db8::1")).collect();
        let mut newcomer = register_connection(&limit, "192.0.2.7");
        assert!(is_open(&mut alone) && is_open(&mut newcomer));
        assert!(!is_open(&mut many[0]) && is_open(&mut many[1]) && is_open(&mut many[2]));
        assert_eq!(limit.lock_open_connections().connections.len(), 4);
        drop((alone, many, newcomer));
        assert!(
            limit.lock_open_connections().connections.is_empty(),
            "closed connections are not kept"
        );
    }

    #[test]
    fn if_clients_have_equally_many_the_oldest_connection_is_evicted() {
        let limit = new_connection_limit(3, 2);
        let mut open: Vec<_> =
            (1..=3).map(|last| register_connection(&limit, &format!("192.0.2.{last}"))).collect();
        let _newcomer = register_connection(&limit, "192.0.2.9");
        assert_eq!(open.iter_mut().map(is_open).collect::<Vec<_>>(), [false, true, true]);
    }

    #[test]
    fn a_busy_connection_is_not_evicted() {
        let limit = new_connection_limit(3, 2);
        let (mut first, mut second) =
            (register_connection(&limit, "192.0.2.1"), register_connection(&limit, "192.0.2.1"));
        let (first_flag, second_flag) = (first.busy_flag(), second.busy_flag());
        let first_busy = first_flag.mark_busy();
        let mut third = register_connection(&limit, "192.0.2.1");
        assert!(is_open(&mut first) && !is_open(&mut second) && is_open(&mut third));
        drop(second);
        // The flag of a closed connection has no effect on others.
        drop(second_flag.mark_busy());
        let third_flag = third.busy_flag();
        let third_busy = third_flag.mark_busy();
        assert!(limit.register("192.0.2.1".parse().unwrap()).is_none(), "both are busy");
        assert!(is_open(&mut first) && is_open(&mut third));
        // The listener is full, and only the client with one connection has one that is not busy.
        let mut small = register_connection(&limit, "192.0.2.7");
        let _newcomer = register_connection(&limit, "192.0.2.9");
        assert!(is_open(&mut first) && is_open(&mut third) && !is_open(&mut small));
        drop((first_busy, third_busy));
        let _latest = register_connection(&limit, "192.0.2.1");
        assert!(!is_open(&mut first) && is_open(&mut third));
    }
}
