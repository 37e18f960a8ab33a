//! Connections of our own to the servers: made, asked, and kept for the next request.
//!
//! Pingora keeps those of the general way; these are the lane's. Owns how long one is kept without
//! work, and that nobody gets one that has ended or on which something came unasked.

use std::collections::HashMap;
use std::io::{ErrorKind, Result};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// How often those are looked at that are kept.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many are out of the pool while they are looked at: others find all the rest.
const LOOKED_AT: usize = 16;

/// A connection to a server, for one exchange after the other.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    server: SocketAddr,
    /// An exchange took place on it before.
    pub is_reused: bool,
}

impl Connection {
    /// A new one; `unread` is what the kernel may hold of answers that nobody takes yet, in bytes.
    pub async fn open(server: SocketAddr, unread: usize) -> Result<Connection> {
        let socket = if server.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_recv_buffer_size(u32::try_from(unread).unwrap_or(u32::MAX))?;
        let stream = socket.connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, server, is_reused: false })
    }

    /// Sends a request.
    pub async fn send(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).await
    }

    /// Reads more of an answer, with room for so many bytes at least; 0 at the end.
    pub async fn read(&mut self, arrived: &mut BytesMut, room: usize) -> Result<usize> {
        arrived.reserve(room);
        self.stream.read_buf(arrived).await
    }

    /// Whether nothing came since the last answer, also no end. The kernel is asked: what the
    /// runtime knows is of the last time that it looked.
    fn is_silent(&self) -> bool {
        let peeked = SockRef::from(&self.stream).peek(&mut [MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

/// Connections without work.
pub struct Idle {
    most: usize,
    kept_for: Duration,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    kept: HashMap<SocketAddr, Vec<(Connection, Instant)>>,
    /// Somebody looks at them from time to time.
    is_watched: bool,
}

impl Idle {
    /// None yet; so many may be kept, and each for so long.
    pub fn new(most: usize, kept_for: Duration) -> Idle {
        Idle { most, kept_for, shelf: Mutex::default() }
    }

    /// The one that had work last.
    pub fn take(&self, server: SocketAddr) -> Option<Connection> {
        loop {
            // The kernel is asked without the lock.
            let (mut connection, since) = self.shelf().kept.get_mut(&server)?.pop()?;
            if since.elapsed() < self.kept_for && connection.is_silent() {
                connection.is_reused = true;
                return Some(connection);
            }
        }
    }

    /// Keeps one on which an exchange has ended.
    pub fn keep(self: &Arc<Self>, connection: Connection) {
        let mut shelf = self.shelf();
        if shelf.kept.values().map(Vec::len).sum::<usize>() >= self.most {
            return;
        }
        let kept = shelf.kept.entry(connection.server).or_default();
        kept.push((connection, Instant::now()));
        if !std::mem::replace(&mut shelf.is_watched, true) {
            tokio::spawn(Idle::watch(Arc::downgrade(self)));
        }
    }

    /// Closes what was kept for too long, or has ended, until there is none.
    async fn watch(idle: Weak<Idle>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let Some(idle) = idle.upgrade() else { return };
            idle.look(Connection::is_silent).await;
            let mut shelf = idle.shelf();
            shelf.kept.retain(|_, kept| !kept.is_empty());
            if shelf.kept.is_empty() {
                shelf.is_watched = false;
                return;
            }
        }
    }

    /// Closes those that are not good. The kernel is asked without the lock, so that nobody who
    /// wants a connection waits for it.
    async fn look(&self, is_good: impl Fn(&Connection) -> bool) {
        let servers: Vec<SocketAddr> = self.shelf().kept.keys().copied().collect();
        for server in servers {
            let mut seen = 0;
            while let Some(mut some) = self.take_some(server, seen) {
                some.retain(|(connection, since)| {
                    since.elapsed() < self.kept_for && is_good(connection)
                });
                seen += self.put_back(server, seen, some);
                tokio::task::yield_now().await;
            }
        }
    }

    /// Takes some out, of those that had no work for longest and behind so many that were seen.
    fn take_some(&self, server: SocketAddr, seen: usize) -> Option<Vec<(Connection, Instant)>> {
        let mut shelf = self.shelf();
        let kept = shelf.kept.get_mut(&server)?;
        let end = kept.len().min(seen + LOOKED_AT);
        (seen < end).then(|| kept.drain(seen..end).collect())
    }

    /// Puts them back where they were, as far as there is room; how many that were.
    fn put_back(
        &self,
        server: SocketAddr,
        seen: usize,
        mut some: Vec<(Connection, Instant)>,
    ) -> usize {
        let mut shelf = self.shelf();
        let room = self.most.saturating_sub(shelf.kept.values().map(Vec::len).sum());
        let surplus = some.split_off(room.min(some.len()));
        let (kept, count) = (shelf.kept.entry(server).or_default(), some.len());
        let at = seen.min(kept.len());
        kept.splice(at..at, some);
        drop(shelf);
        // Closed without the lock too.
        drop(surplus);
        count
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn only_a_silent_connection_is_used_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let idle = Arc::new(Idle::new(1, Duration::from_secs(60)));
        assert!(idle.take(server).is_none());
        let made = async || {
            let connection = Connection::open(server, 32 * 1024).await.unwrap();
            (connection, listener.accept().await.unwrap().0)
        };
        let (connection, mut other) = made().await;
        assert!(!connection.is_reused);
        idle.keep(connection);
        let mut again = idle.take(server).unwrap();
        assert!(again.is_reused && idle.take(server).is_none());
        idle.keep(again);
        // Something that nobody asked for, and then an end.
        other.write_all(b"HTTP/1.1 408 Late\r\n\r\n").await.unwrap();
        until_gone(&idle, server).await;
        (again, other) = made().await;
        idle.keep(again);
        drop(other);
        until_gone(&idle, server).await;
    }

    /// More than a task may ask of the runtime in one go.
    #[tokio::test]
    async fn of_many_connections_that_are_not_silent_none_is_used_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let idle = Idle::new(300, Duration::from_secs(60));
        let mut others = Vec::new();
        for _ in 0..300 {
            let connection = Connection::open(server, 32 * 1024).await.unwrap();
            let (mut other, _) = listener.accept().await.unwrap();
            other.write_all(b"HTTP/1.1 408 Late\r\n\r\n").await.unwrap();
            others.push(other);
            idle.shelf().kept.entry(server).or_default().push((connection, Instant::now()));
        }
        // On one machine the kernel has handed over what it took.
        assert!(tokio::spawn(async move { idle.take(server).is_none() }).await.unwrap());
    }

    #[tokio::test]
    async fn nobody_waits_for_a_look_at_all_that_are_kept() {
        const KEPT: usize = 50;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let idle = Arc::new(Idle::new(KEPT, Duration::from_secs(60)));
        let mut others = Vec::new();
        for _ in 0..KEPT {
            idle.keep(Connection::open(server, 32 * 1024).await.unwrap());
            others.push(listener.accept().await.unwrap());
        }
        let (looks, last) = (Cell::new(0), Cell::new(None));
        idle.look(|connection| {
            assert!(idle.shelf.try_lock().is_ok(), "the pool is locked during a look");
            looks.set(looks.get() + 1);
            let gone = KEPT - idle.shelf().kept[&server].len();
            assert!(gone <= LOOKED_AT + looks.get() / 2, "{gone} of them are out");
            last.set(Some(connection.stream.local_addr().unwrap()));
            // Every other one has ended.
            looks.get() % 2 == 0
        })
        .await;
        assert_eq!(looks.get(), KEPT, "each is looked at once");
        assert_eq!(idle.shelf().kept[&server].len(), KEPT / 2);
        // The order is as it was: the one that had work last comes first.
        let first = idle.take(server).unwrap();
        assert_eq!(Some(first.stream.local_addr().unwrap()), last.get());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_for_longer_than_it_may_be() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let idle = Arc::new(Idle::new(1, Duration::ZERO));
        idle.keep(Connection::open(server, 32 * 1024).await.unwrap());
        assert!(idle.take(server).is_none());
        idle.keep(Connection::open(server, 32 * 1024).await.unwrap());
        tokio::time::sleep(LOOK_EVERY * 2).await;
        let shelf = idle.shelf();
        assert!(shelf.kept.is_empty() && !shelf.is_watched);
    }

    /// What the other side does reaches this one in its own time.
    async fn until_gone(idle: &Arc<Idle>, server: SocketAddr) {
        for _ in 0..500 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            match idle.take(server) {
                Some(connection) => idle.keep(connection),
                None => return,
            }
        }
        panic!("still kept");
    }
}
