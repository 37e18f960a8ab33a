//! Connections of our own to the servers: made, asked, and kept for the next request.
//!
//! Pingora keeps those of the Pingora path; these are the lane's. Owns how long one is kept without
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
const EVICTION_INTERVAL: Duration = Duration::from_secs(1);
/// So many are out of the pool while they are looked at: others find all the rest.
const EVICTION_BATCH: usize = 16;

/// A connection to a server, for one exchange after the other.
#[derive(Debug)]
pub struct UpstreamConnection {
    stream: TcpStream,
    server: SocketAddr,
    /// An exchange took place on it before.
    pub is_reused: bool,
}

impl UpstreamConnection {
    /// A new one; `unread` is what the kernel may hold of answers that nobody takes yet, in bytes.
    pub async fn open(server: SocketAddr, unread: usize) -> Result<UpstreamConnection> {
        let socket = if server.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_recv_buffer_size(u32::try_from(unread).unwrap_or(u32::MAX))?;
        let stream = socket.connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(UpstreamConnection { stream, server, is_reused: false })
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
    fn is_reusable(&self) -> bool {
        let peeked = SockRef::from(&self.stream).peek(&mut [MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

/// Connections without work.
pub struct IdlePool {
    max: usize,
    idle_timeout: Duration,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    by_server: HashMap<SocketAddr, Vec<(UpstreamConnection, Instant)>>,
    /// Somebody looks at them from time to time.
    is_evictor_running: bool,
}

impl IdlePool {
    /// None yet; so many may be kept, and each for so long.
    pub fn new(max: usize, idle_timeout: Duration) -> IdlePool {
        IdlePool { max, idle_timeout, state: Mutex::default() }
    }

    /// The one that had work last.
    pub fn checkout(&self, server: SocketAddr) -> Option<UpstreamConnection> {
        loop {
            // The kernel is asked without the lock.
            let (mut connection, since) = self.lock_state().by_server.get_mut(&server)?.pop()?;
            if since.elapsed() < self.idle_timeout && connection.is_reusable() {
                connection.is_reused = true;
                return Some(connection);
            }
        }
    }

    /// Keeps one on which an exchange has ended.
    pub fn put(self: &Arc<Self>, connection: UpstreamConnection) {
        let mut shelf = self.lock_state();
        if shelf.by_server.values().map(Vec::len).sum::<usize>() >= self.max {
            return;
        }
        let kept = shelf.by_server.entry(connection.server).or_default();
        kept.push((connection, Instant::now()));
        if !std::mem::replace(&mut shelf.is_evictor_running, true) {
            tokio::spawn(IdlePool::evict_periodically(Arc::downgrade(self)));
        }
    }

    /// Closes what was kept for too long, or has ended, until there is none.
    async fn evict_periodically(idle: Weak<IdlePool>) {
        loop {
            tokio::time::sleep(EVICTION_INTERVAL).await;
            let Some(idle) = idle.upgrade() else { return };
            idle.evict_unusable(UpstreamConnection::is_reusable).await;
            let mut shelf = idle.lock_state();
            shelf.by_server.retain(|_, kept| !kept.is_empty());
            if shelf.by_server.is_empty() {
                shelf.is_evictor_running = false;
                return;
            }
        }
    }

    /// Closes those that are not good. The kernel is asked without the lock, so that nobody who
    /// wants a connection waits for it.
    async fn evict_unusable(&self, is_good: impl Fn(&UpstreamConnection) -> bool) {
        let servers: Vec<SocketAddr> = self.lock_state().by_server.keys().copied().collect();
        for server in servers {
            let mut seen = 0;
            while let Some(mut some) = self.take_batch(server, seen) {
                some.retain(|(connection, since)| {
                    since.elapsed() < self.idle_timeout && is_good(connection)
                });
                seen += self.put_back_batch(server, seen, some);
                tokio::task::yield_now().await;
            }
        }
    }

    /// Takes some out, of those that had no work for longest and behind so many that were seen.
    fn take_batch(
        &self,
        server: SocketAddr,
        seen: usize,
    ) -> Option<Vec<(UpstreamConnection, Instant)>> {
        let mut shelf = self.lock_state();
        let kept = shelf.by_server.get_mut(&server)?;
        let end = kept.len().min(seen + EVICTION_BATCH);
        (seen < end).then(|| kept.drain(seen..end).collect())
    }

    /// Puts them back where they were, as far as there is room; how many that were.
    fn put_back_batch(
        &self,
        server: SocketAddr,
        seen: usize,
        mut some: Vec<(UpstreamConnection, Instant)>,
    ) -> usize {
        let mut shelf = self.lock_state();
        let room = self.max.saturating_sub(shelf.by_server.values().map(Vec::len).sum());
        let surplus = some.split_off(room.min(some.len()));
        let (kept, count) = (shelf.by_server.entry(server).or_default(), some.len());
        let at = seen.min(kept.len());
        kept.splice(at..at, some);
        drop(shelf);
        // Closed without the lock too.
        drop(surplus);
        count
    }

    fn lock_state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn only_a_connection_without_unread_bytes_is_reused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let idle = Arc::new(IdlePool::new(1, Duration::from_secs(60)));
        assert!(idle.checkout(server).is_none());
        let made = async || {
            let connection = UpstreamConnection::open(server, 32 * 1024).await.unwrap();
            (connection, listener.accept().await.unwrap().0)
        };
        let (connection, mut other) = made().await;
        assert!(!connection.is_reused);
        idle.put(connection);
        let mut again = idle.checkout(server).unwrap();
        assert!(again.is_reused && idle.checkout(server).is_none());
        idle.put(again);
        // Something that nobody asked for, and then an end.
        other.write_all(b"HTTP/1.1 408 Late\r\n\r\n").await.unwrap();
        wait_until_evicted(&idle, server).await;
        (again, other) = made().await;
        idle.put(again);
        drop(other);
        wait_until_evicted(&idle, server).await;
    }

    /// More than a task may ask of the runtime in one go.
    #[tokio::test]
    async fn of_many_connections_with_unread_bytes_none_is_reused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let idle = IdlePool::new(300, Duration::from_secs(60));
        let mut others = Vec::new();
        for _ in 0..300 {
            let connection = UpstreamConnection::open(server, 32 * 1024).await.unwrap();
            let (mut other, _) = listener.accept().await.unwrap();
            other.write_all(b"HTTP/1.1 408 Late\r\n\r\n").await.unwrap();
            others.push(other);
            idle.lock_state()
                .by_server
                .entry(server)
                .or_default()
                .push((connection, Instant::now()));
        }
        // On one machine the kernel has handed over what it took.
        assert!(tokio::spawn(async move { idle.checkout(server).is_none() }).await.unwrap());
    }

    #[tokio::test]
    async fn no_checkout_waits_until_all_idle_connections_are_inspected() {
        const KEPT: usize = 50;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let idle = Arc::new(IdlePool::new(KEPT, Duration::from_secs(60)));
        let mut others = Vec::new();
        for _ in 0..KEPT {
            idle.put(UpstreamConnection::open(server, 32 * 1024).await.unwrap());
            others.push(listener.accept().await.unwrap());
        }
        let (looks, last) = (Cell::new(0), Cell::new(None));
        idle.evict_unusable(|connection| {
            assert!(idle.state.try_lock().is_ok(), "the pool is locked during a look");
            looks.set(looks.get() + 1);
            let gone = KEPT - idle.lock_state().by_server[&server].len();
            assert!(gone <= EVICTION_BATCH + looks.get() / 2, "{gone} of them are out");
            last.set(Some(connection.stream.local_addr().unwrap()));
            // Every other one has ended.
            looks.get() % 2 == 0
        })
        .await;
        assert_eq!(looks.get(), KEPT, "each is looked at once");
        assert_eq!(idle.lock_state().by_server[&server].len(), KEPT / 2);
        // The order is as it was: the one that had work last comes first.
        let first = idle.checkout(server).unwrap();
        assert_eq!(Some(first.stream.local_addr().unwrap()), last.get());
    }

    #[tokio::test(start_paused = true)]
    async fn no_connection_is_kept_beyond_the_idle_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let idle = Arc::new(IdlePool::new(1, Duration::ZERO));
        idle.put(UpstreamConnection::open(server, 32 * 1024).await.unwrap());
        assert!(idle.checkout(server).is_none());
        idle.put(UpstreamConnection::open(server, 32 * 1024).await.unwrap());
        tokio::time::sleep(EVICTION_INTERVAL * 2).await;
        let shelf = idle.lock_state();
        assert!(shelf.by_server.is_empty() && !shelf.is_evictor_running);
    }

    /// What the other side does reaches this one in its own time.
    async fn wait_until_evicted(idle: &Arc<IdlePool>, server: SocketAddr) {
        for _ in 0..500 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            match idle.checkout(server) {
                Some(connection) => idle.put(connection),
                None => return,
            }
        }
        panic!("still kept");
    }
}
