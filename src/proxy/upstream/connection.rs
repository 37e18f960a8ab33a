//! The fast path's connections to the upstream servers, and the pool of idle ones.
//!
//! The Pingora path uses Pingora's own pool instead. This module closes connections that were idle
//! for too long. No request gets a connection from the pool whose end has arrived, or that has
//! received bytes without a request.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Result};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use pingora::protocols::Stream;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::unconstrained;
use tokio::time::timeout;

use crate::support::lock::lock;
use crate::support::socket_reset::duplicate_fd;

/// The memory that a connection keeps for the header of a request, in bytes.
const REQUEST_HEADER_BYTES: usize = 2 * 1024;
/// The most memory that an idle connection keeps for the bytes that arrive, in bytes.
const MAX_IDLE_READ_BYTES: usize = 4 * 1024;
/// How long the server of a complete response may take the rest of the request.
const REST_OF_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How often riskgate inspects the idle connections.
const EVICTION_INTERVAL: Duration = Duration::from_secs(1);
/// The most connections that riskgate takes out of the pool at a time to inspect them. Meanwhile,
/// requests can use all other connections.
const EVICTION_BATCH_CONNECTIONS: usize = 16;

/// A connection to an upstream server, for one exchange after the other.
#[derive(Debug)]
pub struct UpstreamConnection {
    stream: ServerStream,
    server: SocketAddr,
    /// The server's address and port as text.
    pub server_address: String,
    /// Whether the connection has served an earlier exchange.
    pub is_reused: bool,
    /// The request to send. The next exchange uses the same memory.
    pub request_buffer: Vec<u8>,
    /// How many bytes of the request were sent.
    sent_bytes: usize,
    /// Whether the server has closed the connection before it had the whole request.
    is_request_cut: bool,
    /// The bytes that have arrived from the server. The next exchange uses the same memory.
    pub arrived: BytesMut,
}

#[derive(Debug)]
enum ServerStream {
    Tcp(TcpStream),
    Tls {
        stream: Stream,
        /// Another descriptor of the stream's socket.
        socket: OwnedFd,
    },
}

impl UpstreamConnection {
    /// Opens a connection. `recv_buffer_bytes` is the size of the kernel's receive buffer.
    pub async fn open(server: SocketAddr, recv_buffer_bytes: usize) -> Result<UpstreamConnection> {
        let socket = if server.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_recv_buffer_size(u32::try_from(recv_buffer_bytes).unwrap_or(u32::MAX))?;
        let stream = socket.connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(UpstreamConnection::new(ServerStream::Tcp(stream), server))
    }

    /// Wraps a TLS stream to this server, which Pingora has opened.
    pub fn from_tls(stream: Stream, server: SocketAddr) -> Result<UpstreamConnection> {
        let socket = duplicate_fd(stream.id()).ok_or(ErrorKind::NotConnected)?;
        Ok(UpstreamConnection::new(ServerStream::Tls { stream, socket }, server))
    }

    fn new(stream: ServerStream, server: SocketAddr) -> UpstreamConnection {
        UpstreamConnection {
            stream,
            server,
            server_address: server.to_string(),
            is_reused: false,
            request_buffer: Vec::with_capacity(REQUEST_HEADER_BYTES),
            sent_bytes: 0,
            is_request_cut: false,
            arrived: BytesMut::new(),
        }
    }

    /// Sends the request in `request_buffer`, and empties the buffer. If the server answers before
    /// it has the whole request, returns true once bytes have arrived, after reserving `capacity`
    /// bytes for them; then [`UpstreamConnection::read`] sends the rest. Else returns false.
    ///
    /// # Errors
    /// Returns an error if the request can't be sent and no byte of an answer has arrived.
    pub async fn send_request(&mut self, capacity: usize) -> Result<bool> {
        let mut send_error = None;
        poll_fn(|task| {
            if send_error.is_none() {
                match self.poll_send(task) {
                    Poll::Ready(Ok(())) => return Poll::Ready(Ok(false)),
                    Poll::Ready(Err(error)) => send_error = Some(error),
                    Poll::Pending => {}
                }
            }
            // A server may answer early, and then close the connection with a reset.
            self.is_request_cut = send_error.is_some();
            let read = ready!(self.poll_read(task, capacity));
            let error = match read {
                Ok(1..) => return Poll::Ready(Ok(true)),
                Ok(0) => ErrorKind::UnexpectedEof.into(),
                Err(error) => error,
            };
            Poll::Ready(Err(send_error.take().unwrap_or(error)))
        })
        .await
    }

    /// Reads more of a response into `arrived`, after reserving `capacity` bytes. Returns 0 at the
    /// end of the connection. Meanwhile sends the rest of the request, if there is one.
    ///
    /// # Errors
    /// Returns an error if the connection has ended before the server had the whole request: then
    /// the end is no end of a response.
    pub async fn read(&mut self, capacity: usize) -> Result<usize> {
        poll_fn(|task| {
            if self.has_rest_to_send() {
                self.is_request_cut = matches!(self.poll_send(task), Poll::Ready(Err(_)));
            }
            match self.poll_read(task, capacity) {
                Poll::Ready(Ok(0)) if self.is_request_cut => {
                    Poll::Ready(Err(ErrorKind::ConnectionReset.into()))
                }
                read => read,
            }
        })
        .await
    }

    /// Sends what is left of a request whose server has answered in full, so that the server gets
    /// the whole request. Returns false if the server does not take it in
    /// [`REST_OF_REQUEST_TIMEOUT`].
    async fn send_rest(&mut self) -> bool {
        let sent = poll_fn(|task| self.poll_send(task));
        matches!(timeout(REST_OF_REQUEST_TIMEOUT, sent).await, Ok(Ok(())))
    }

    fn has_rest_to_send(&self) -> bool {
        !self.request_buffer.is_empty() && !self.is_request_cut
    }

    /// Sends the rest of the request, and then empties `request_buffer`.
    fn poll_send(&mut self, task: &mut Context<'_>) -> Poll<Result<()>> {
        while self.sent_bytes < self.request_buffer.len() {
            let rest = &self.request_buffer[self.sent_bytes..];
            let written = match &mut self.stream {
                ServerStream::Tcp(stream) => ready!(Pin::new(stream).poll_write(task, rest)),
                ServerStream::Tls { stream, .. } => ready!(Pin::new(stream).poll_write(task, rest)),
            };
            match written? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                written => self.sent_bytes += written,
            }
        }
        if let ServerStream::Tls { stream, .. } = &mut self.stream {
            ready!(Pin::new(stream).poll_flush(task))?;
        }
        self.sent_bytes = 0;
        self.request_buffer.clear();
        self.request_buffer.shrink_to(REQUEST_HEADER_BYTES);
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, task: &mut Context<'_>, capacity: usize) -> Poll<Result<usize>> {
        self.arrived.reserve(capacity);
        match &mut self.stream {
            ServerStream::Tcp(stream) => pin!(stream.read_buf(&mut self.arrived)).poll(task),
            ServerStream::Tls { stream, .. } => pin!(stream.read_buf(&mut self.arrived)).poll(task),
        }
    }

    /// Returns true if no part of an exchange is left in this process: the server has the whole
    /// request, and neither `arrived` nor TLS holds a byte behind its response.
    fn is_between_exchanges(&mut self) -> bool {
        if !self.request_buffer.is_empty() || !self.arrived.is_empty() {
            return false;
        }
        match &mut self.stream {
            ServerStream::Tcp(_) => true,
            ServerStream::Tls { stream, .. } => {
                let mut byte = [0];
                // Tokio's budget for this task must not look like a stream without bytes.
                let read = pin!(unconstrained(stream.read(&mut byte)));
                read.poll(&mut Context::from_waker(Waker::noop())).is_pending()
            }
        }
    }

    /// Returns true if neither bytes nor the end of the connection have arrived since the last
    /// response. This function asks the kernel, because Tokio's record of the socket may be old.
    fn is_reusable(&self) -> bool {
        let peeked = self.socket().peek(&mut [MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    fn socket(&self) -> SockRef<'_> {
        match &self.stream {
            ServerStream::Tcp(stream) => SockRef::from(stream),
            ServerStream::Tls { socket, .. } => SockRef::from(socket),
        }
    }
}

/// The idle connections to all servers.
pub struct IdlePool {
    max_connections: usize,
    idle_timeout: Duration,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// The idle connections to each server, each with the start of its idle time. The connection
    /// that is idle for longest comes first.
    by_server: HashMap<SocketAddr, Vec<(UpstreamConnection, Instant)>>,
    /// Whether the task of `evict_periodically` is running.
    is_evictor_running: bool,
}

impl PoolState {
    fn connection_count(&self) -> usize {
        self.by_server.values().map(Vec::len).sum()
    }
}

impl IdlePool {
    /// Creates an empty pool that keeps at most `max_connections`, each for `idle_timeout`.
    pub fn new(max_connections: usize, idle_timeout: Duration) -> IdlePool {
        IdlePool { max_connections, idle_timeout, state: Mutex::default() }
    }

    /// Returns the number of connections in the pool.
    pub fn connection_count(&self) -> usize {
        lock(&self.state).connection_count()
    }

    /// Takes out the connection to this server that was used last and can be reused. `None` if no
    /// connection can be reused.
    pub fn checkout(&self, server: SocketAddr) -> Option<UpstreamConnection> {
        loop {
            // `can_reuse` asks the kernel, so the lock is released before.
            let idle = lock(&self.state).by_server.get_mut(&server)?.pop()?;
            if self.can_reuse(&idle, &UpstreamConnection::is_reusable) {
                let (mut connection, _) = idle;
                connection.is_reused = true;
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose exchange has ended. If a part of the request is left, a task sends
    /// this part first. Closes the connection if bytes behind the response have arrived, if the
    /// request can't be sent, or if the pool is full.
    pub fn put(self: &Arc<Self>, mut connection: UpstreamConnection) {
        if connection.has_rest_to_send() {
            let pool = Arc::clone(self);
            tokio::spawn(async move {
                if connection.send_rest().await {
                    pool.put(connection);
                }
            });
            return;
        }
        if !connection.is_between_exchanges() {
            return;
        }
        // The memory of bytes that were taken counts as well.
        if connection.arrived.try_reclaim(MAX_IDLE_READ_BYTES + 1) {
            connection.arrived = BytesMut::new();
        }
        let mut state = lock(&self.state);
        if state.connection_count() >= self.max_connections {
            return;
        }
        let kept = state.by_server.entry(connection.server).or_default();
        kept.push((connection, Instant::now()));
        if !std::mem::replace(&mut state.is_evictor_running, true) {
            tokio::spawn(IdlePool::evict_periodically(Arc::downgrade(self)));
        }
    }

    /// Closes the connections to all servers but these.
    pub fn close_connections_to_others(&self, servers: &[SocketAddr]) {
        lock(&self.state).by_server.retain(|server, _| servers.contains(server));
    }

    /// Runs [`IdlePool::evict_unusable`] once per `EVICTION_INTERVAL`, until the pool is empty.
    async fn evict_periodically(pool: Weak<IdlePool>) {
        loop {
            tokio::time::sleep(EVICTION_INTERVAL).await;
            let Some(pool) = pool.upgrade() else { return };
            pool.evict_unusable(UpstreamConnection::is_reusable).await;
            let mut state = lock(&pool.state);
            state.by_server.retain(|_, kept| !kept.is_empty());
            if state.by_server.is_empty() {
                state.is_evictor_running = false;
                return;
            }
        }
    }

    /// Returns true if an idle connection may serve another exchange.
    fn can_reuse(
        &self,
        (connection, idle_since): &(UpstreamConnection, Instant),
        is_reusable: &impl Fn(&UpstreamConnection) -> bool,
    ) -> bool {
        idle_since.elapsed() < self.idle_timeout && is_reusable(connection)
    }

    /// Closes connections that were idle for too long or have ended. Asks the kernel without the
    /// lock, so that no request waits.
    async fn evict_unusable(&self, is_reusable: impl Fn(&UpstreamConnection) -> bool) {
        let servers: Vec<SocketAddr> = lock(&self.state).by_server.keys().copied().collect();
        for server in servers {
            let mut inspected_count = 0;
            while let Some(mut batch) = self.take_batch(server, inspected_count) {
                batch.retain(|idle| self.can_reuse(idle, &is_reusable));
                inspected_count += self.put_back_batch(server, inspected_count, batch);
                tokio::task::yield_now().await;
            }
        }
    }

    /// Takes the next batch of connections to this server out of the pool. The first
    /// `inspected_count` connections in the pool were inspected before. `None` if all were.
    fn take_batch(
        &self,
        server: SocketAddr,
        inspected_count: usize,
    ) -> Option<Vec<(UpstreamConnection, Instant)>> {
        let mut state = lock(&self.state);
        let kept = state.by_server.get_mut(&server)?;
        let end = kept.len().min(inspected_count + EVICTION_BATCH_CONNECTIONS);
        (inspected_count < end).then(|| kept.drain(inspected_count..end).collect())
    }

    /// Puts a batch back behind the first `inspected_count` connections, up to the pool's limit.
    /// Closes the rest. Returns how many connections it has put back.
    fn put_back_batch(
        &self,
        server: SocketAddr,
        inspected_count: usize,
        mut batch: Vec<(UpstreamConnection, Instant)>,
    ) -> usize {
        let mut state = lock(&self.state);
        let free = self.max_connections.saturating_sub(state.connection_count());
        let surplus = batch.split_off(free.min(batch.len()));
        let (kept, count) = (state.by_server.entry(server).or_default(), batch.len());
        let at = inspected_count.min(kept.len());
        kept.splice(at..at, batch);
        drop(state);
        // Closing these connections takes time, so the lock is released before.
        drop(surplus);
        count
    }
}

#[cfg(test)]
mod tests;
