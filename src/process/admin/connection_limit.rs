//! Limits the open connections of a listener, in total and per client.
//!
//! If either limit is reached, a new connection evicts an older one, so that no client can keep
//! other clients out by holding connections open. The owner of a connection can mark it as busy: a
//! busy connection is not evicted. This module knows no protocol and reads nothing.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::model::network::ClientPrefix;
use crate::support::lock::lock;

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
    /// Sets the flag until the returned guard is dropped.
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
        let mut open = lock(&self.open_connections);
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
        lock(&self.connection_limit.open_connections).connections.retain(|open| open.id != self.id);
    }
}

#[cfg(test)]
mod tests;
