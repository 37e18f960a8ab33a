//! How many connections one listener keeps open, in all and for each client.
//!
//! A new connection always gets in: if its client has its share, or all places are taken, an older
//! connection is closed for it. So no client can keep others out by holding connections open. It
//! knows no protocol and reads nothing.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::network::Site;

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
    client: Site,
    /// Dropped to close the connection.
    _keep_open: oneshot::Sender<()>,
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub struct ConnectionGuard {
    limit: Arc<ConnectionLimit>,
    id: u64,
    displaced: oneshot::Receiver<()>,
}

impl ConnectionLimit {
    /// Nothing is open yet.
    pub fn new(max: usize, max_per_client: usize) -> ConnectionLimit {
        ConnectionLimit { max, max_per_client, open: Mutex::default() }
    }

    /// Takes a place for a connection from `address`, and closes another one for it if it must.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> ConnectionGuard {
        let client = Site::from(address);
        let (keep_open, displaced) = oneshot::channel();
        let mut open = self.open();
        if open.of(client) >= self.max_per_client {
            open.close_oldest_of(client);
        } else if open.connections.len() >= self.max {
            open.close_oldest_of_the_largest_client();
        }
        let id = open.next_id;
        open.next_id += 1;
        open.connections.push(OpenConnection { id, client, _keep_open: keep_open });
        ConnectionGuard { limit: Arc::clone(self), id, displaced }
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    fn of(&self, client: Site) -> usize {
        self.connections.iter().filter(|connection| connection.client == client).count()
    }

    fn close_oldest_of(&mut self, client: Site) {
        if let Some(at) = self.connections.iter().position(|open| open.client == client) {
            self.connections.remove(at);
        }
    }

    /// Of clients that have equally many, the one whose oldest connection is older.
    fn close_oldest_of_the_largest_client(&mut self) {
        let clients = self.connections.iter().rev().map(|open| open.client);
        if let Some(largest) = clients.max_by_key(|client| self.of(*client)) {
            self.close_oldest_of(largest);
        }
    }
}

impl ConnectionGuard {
    /// Resolves once this connection must be closed, because another one took its place.
    pub async fn displaced(&mut self) {
        let _ = (&mut self.displaced).await;
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.limit.open().connections.retain(|open| open.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(max: usize, max_per_client: usize) -> Arc<ConnectionLimit> {
        Arc::new(ConnectionLimit::new(max, max_per_client))
    }

    fn enter(limit: &Arc<ConnectionLimit>, address: &str) -> ConnectionGuard {
        limit.enter(address.parse().unwrap())
    }

    /// One that was displaced has no sender any more.
    fn is_open(guard: &mut ConnectionGuard) -> bool {
        matches!(guard.displaced.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    #[test]
    fn a_client_beyond_its_share_displaces_its_own_oldest_connection() {
        let limit = limit(10, 2);
        let mut other = enter(&limit, "192.0.2.2");
        let (mut first, mut second) = (enter(&limit, "192.0.2.1"), enter(&limit, "192.0.2.1"));
        let mut third = enter(&limit, "192.0.2.1");
        assert!(!is_open(&mut first) && is_open(&mut second) && is_open(&mut third));
        assert!(is_open(&mut other));
        drop(second);
        let _fourth = enter(&limit, "192.0.2.1");
        assert!(is_open(&mut third), "a place that came free is used first");
    }

    #[test]
    fn a_full_listener_displaces_a_connection_of_the_client_with_the_most() {
        let limit = limit(4, 3);
        let mut alone = enter(&limit, "192.0.2.9");
        let mut many: Vec<_> = (0..3).map(|_| enter(&limit, "2001:db8::1")).collect();
        let mut newcomer = enter(&limit, "192.0.2.7");
        assert!(is_open(&mut alone) && is_open(&mut newcomer));
        assert!(!is_open(&mut many[0]) && is_open(&mut many[1]) && is_open(&mut many[2]));
        assert_eq!(limit.open().connections.len(), 4);
        drop((alone, many, newcomer));
        assert!(limit.open().connections.is_empty(), "nothing is kept of who left");
    }

    #[test]
    fn of_clients_with_equally_many_the_oldest_connection_goes() {
        let limit = limit(3, 2);
        let mut open: Vec<_> =
            (1..=3).map(|last| enter(&limit, &format!("192.0.2.{last}"))).collect();
        let _newcomer = enter(&limit, "192.0.2.9");
        assert_eq!(open.iter_mut().map(is_open).collect::<Vec<_>>(), [false, true, true]);
    }
}
