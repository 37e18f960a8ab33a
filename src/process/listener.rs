//! Binds the listening sockets and accepts connections on them.
//!
//! This file owns the socket options and the budget of file descriptors. Each listener passes its
//! connections to an app. If the kernel can't accept a connection, for example because no
//! descriptor is free, the listener tries again after a pause.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::ServerApp;
use pingora::server::{ListenFds, ShutdownWatch};
use pingora::services::Service;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::SockRef;
use tokio::time::timeout;

use crate::downstream::ClientIo;
use crate::process::systemd::Heartbeat;
use crate::support::log_interval::LogInterval;

/// The most connections that the kernel queues until riskgate accepts them. The kernel's own limit
/// (net.core.somaxconn) may be lower.
const LISTEN_BACKLOG: i32 = 65_535;
/// How many unsent bytes the kernel may buffer for a connection. Without this limit, the kernel
/// buffers megabytes, and a thousand slow readers of large responses leave no memory to other
/// sockets. Bytes in flight do not count as unsent, so fast clients are not slowed down.
const NOTSENT_LOWAT_BYTES: u32 = 16 * 1024;
/// How long an accept loop waits after a failed accept. Meanwhile, riskgate may close descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// How often an accept loop calls [`Heartbeat::beat`].
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// Descriptors that client connections and exchanges can't use. The store, the log, the table, the
/// listeners, the runtime, admin connections and DNS queries (`dns.concurrency`) need them. If the
/// process has fewer than 136 descriptors, client connections and exchanges share 8.
const RESERVED_DESCRIPTORS: u64 = 128;
/// The last twentieth of the descriptors is kept free of client connections, but at least
/// [`MIN_KEPT_DESCRIPTORS`] and at most [`MAX_KEPT_DESCRIPTORS`]. So the admin listener can be
/// reached even if riskgate uses more descriptors elsewhere than are reserved.
const KEPT_DESCRIPTORS_DIVISOR: u64 = 20;
/// The fewest descriptors that are kept free of client connections.
const MIN_KEPT_DESCRIPTORS: u64 = 3;
/// The most descriptors that are kept free of client connections.
const MAX_KEPT_DESCRIPTORS: u64 = 32;
/// The lowest limit of open files with which the process starts.
pub const MIN_OPEN_FILES_LIMIT: u64 = 64;

/// Binds a socket on which many connections may wait until they are accepted.
pub fn bind_listener(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    rustix::net::listen(&listener, LISTEN_BACKLOG)?;
    Ok(listener)
}

/// Sets options that accepted connections inherit, so that riskgate need not set options on each
/// connection. If the kernel rejects an option, riskgate logs the error, sets no further option,
/// and serves.
fn set_socket_options(name: &str, listener: &TcpListener, tcp_user_timeout: Duration) {
    let socket = SockRef::from(listener);
    let set = socket
        .set_tcp_nodelay(true)
        .and_then(|()| socket.set_tcp_user_timeout(Some(tcp_user_timeout)))
        .and_then(|()| socket.set_tcp_notsent_lowat(NOTSENT_LOWAT_BYTES));
    if let Err(error) = set {
        log::warn!("{name}: an option of its socket could not be set: {error}");
    }
}

/// How many client connections and how many exchanges may be open at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorBudget {
    /// The most client connections.
    pub max_connections: usize,
    /// The most exchanges with upstream servers.
    pub max_exchanges: usize,
}

impl DescriptorBudget {
    /// Raises the process's limit of open files to the hard limit, and divides the descriptors.
    /// Returns `wanted`, lowered to what the descriptors allow. Exchanges get at most half of the
    /// descriptors that are not reserved.
    ///
    /// A client connection needs one descriptor. An exchange needs three: for the upstream
    /// connection, for a duplicate with which riskgate can end the upstream connection, and for an
    /// idle connection of the other path (fast path or Pingora path).
    ///
    /// # Errors
    /// Returns the limit if it is below [`MIN_OPEN_FILES_LIMIT`].
    pub fn raise_nofile_limit_and_divide(
        wanted: DescriptorBudget,
    ) -> Result<DescriptorBudget, u64> {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // If the kernel does not raise the limit, the current limit is divided.
        let current = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(_) => limit.current,
        };
        match current {
            Some(limit) if limit < MIN_OPEN_FILES_LIMIT => Err(limit),
            limit => Ok(wanted.fit_within(limit.unwrap_or(u64::MAX))),
        }
    }

    /// Lowers both maxima so that they and [`RESERVED_DESCRIPTORS`] fit within `limit` descriptors.
    /// If `limit` is below 136, the maxima fit within 8 descriptors.
    fn fit_within(self, limit: u64) -> DescriptorBudget {
        let spare = limit.saturating_sub(RESERVED_DESCRIPTORS).max(8);
        let spare = usize::try_from(spare).unwrap_or(usize::MAX);
        let exchanges = self.max_exchanges.min(spare / 6).max(1);
        let connections = self.max_connections.min(spare - 3 * exchanges);
        DescriptorBudget { max_connections: connections, max_exchanges: exchanges }
    }
}

/// Accepts connections on one socket and passes them to an app. The app limits their number.
pub struct ListenerService<A> {
    name: &'static str,
    socket: Option<TcpListener>,
    app: Arc<A>,
    /// The number of threads.
    pub threads: usize,
    /// How long sent bytes may stay unacknowledged before the kernel closes the connection.
    tcp_user_timeout: Duration,
    /// The heartbeat that this service's accept loop beats.
    pub heartbeat: Heartbeat,
    accept_error_log: LogInterval,
    closed_connection_log: LogInterval,
    /// The service closes a connection at once if its descriptor has this number or a higher one.
    first_kept_descriptor: i32,
    /// Counts a connection that was closed because of its descriptor.
    count_closed_connection: Box<dyn Fn() + Send + Sync>,
    /// Called once, when the accept loop starts.
    pub tell_accepting: Box<dyn Fn() + Send + Sync>,
}

impl<A> ListenerService<A> {
    /// Creates a service with one thread. The service keeps no descriptors free.
    pub fn new(
        name: &'static str,
        socket: TcpListener,
        app: A,
        tcp_user_timeout: Duration,
    ) -> ListenerService<A> {
        ListenerService {
            name,
            socket: Some(socket),
            app: Arc::new(app),
            threads: 1,
            tcp_user_timeout,
            heartbeat: Heartbeat::default(),
            accept_error_log: LogInterval::default(),
            closed_connection_log: LogInterval::default(),
            first_kept_descriptor: i32::MAX,
            count_closed_connection: Box::new(|| ()),
            tell_accepting: Box::new(|| ()),
        }
    }

    /// Keeps the last descriptors of the process free of this service's connections, so that a
    /// flood of connections leaves some descriptors to the admin listener, the store and the logs.
    /// The service calls `count_closed_connection` for each connection that it closes for this
    /// reason.
    pub fn leaving_last_descriptors(
        mut self,
        count_closed_connection: impl Fn() + Send + Sync + 'static,
    ) -> ListenerService<A> {
        self.count_closed_connection = Box::new(count_closed_connection);
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let kept =
            (limit / KEPT_DESCRIPTORS_DIVISOR).clamp(MIN_KEPT_DESCRIPTORS, MAX_KEPT_DESCRIPTORS);
        self.first_kept_descriptor = i32::try_from(limit - kept).unwrap_or(i32::MAX);
        self
    }
}

impl<A: ServerApp + Send + Sync + 'static> ListenerService<A> {
    /// Logs a failed accept, unless another one was logged shortly before.
    fn log_accept_error(&self, error: &io::Error) {
        if self.accept_error_log.begin_if_due() {
            log::error!("{}: accepting a connection failed, will retry: {error}", self.name);
        }
    }

    /// Closes a connection that would take one of the last descriptors.
    fn close_to_keep_descriptor(&self, stream: tokio::net::TcpStream) {
        drop(stream);
        (self.count_closed_connection)();
        if self.closed_connection_log.begin_if_due() {
            log::warn!(
                "{}: closing new connections: all files that the process may open are in use, but \
                 for the last ones",
                self.name
            );
        }
    }

    /// Accepts one connection and serves it in a task of its own. Closes the connection at once if
    /// it would take one of the last descriptors. After a failed accept, waits for
    /// [`ACCEPT_BACKOFF`], unless the client has closed the connection.
    async fn accept_one(&self, socket: &tokio::net::TcpListener, shutdown: &ShutdownWatch) {
        match socket.accept().await {
            // The kernel gives each descriptor the lowest free number, so all lower ones are in
            // use.
            Ok((stream, _)) if stream.as_raw_fd() >= self.first_kept_descriptor => {
                self.close_to_keep_descriptor(stream);
            }
            Ok((stream, peer)) => {
                let (app, shutdown) = (Arc::clone(&self.app), shutdown.clone());
                tokio::spawn(async move {
                    let client_io = Box::new(ClientIo::from_tcp(stream, peer));
                    let mut next = app.process_new(client_io, &shutdown).await;
                    while let Some(stream) = next {
                        next = app.process_new(stream, &shutdown).await;
                    }
                });
            }
            // The client closed the connection before riskgate accepted it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                self.log_accept_error(&error);
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

#[async_trait]
impl<A: ServerApp + Send + Sync + 'static> Service for ListenerService<A> {
    async fn start_service(
        &mut self,
        _fds: Option<ListenFds>,
        mut shutdown: ShutdownWatch,
        _listeners_per_fd: usize,
    ) {
        let socket = self.socket.take().map(|socket| {
            set_socket_options(self.name, &socket, self.tcp_user_timeout);
            socket.set_nonblocking(true)?;
            tokio::net::TcpListener::from_std(socket)
        });
        match socket {
            Some(Ok(socket)) => {
                (self.tell_accepting)();
                let stopping = shutdown.clone();
                let mut heartbeat_interval = tokio::time::interval(HEARTBEAT_INTERVAL);
                loop {
                    tokio::select! {
                        biased;
                        _ = shutdown.wait_for(|stop| *stop) => break,
                        _ = heartbeat_interval.tick() => self.heartbeat.beat(),
                        () = self.accept_one(&socket, &stopping) => {}
                    }
                    // Lets the task of the connection run before the next accept. If too many
                    // connections are open, this task closes its connection. Otherwise, a flood of
                    // connections would take all descriptors.
                    tokio::task::yield_now().await;
                }
                // Closing the socket would reset the connections in the backlog, so the service
                // accepts these connections first.
                while timeout(Duration::ZERO, self.accept_one(&socket, &stopping)).await.is_ok() {
                    // The task of the connection counts it, so the drain waits for the connection.
                    tokio::task::yield_now().await;
                }
            }
            Some(Err(error)) => log::error!("{}: expected to listen, but found {error}", self.name),
            None => {}
        }
        self.app.cleanup().await;
    }

    fn name(&self) -> &str {
        self.name
    }

    fn threads(&self) -> Option<usize> {
        Some(self.threads)
    }
}

#[cfg(test)]
mod tests;
