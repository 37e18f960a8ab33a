//! Sockets that listen: bound at the start or taken over, and the loops that accept on them.
//!
//! Owns the options of sockets, and how many descriptors may go to whom. What is done with a
//! connection is its app's matter. A loop never ends for want of descriptors.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pingora_core::apps::ServerApp;
use pingora_core::server::{ListenFds, ShutdownWatch};
use pingora_core::services::Service;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::SockRef;
use tokio::time::timeout;

use crate::downstream::ClientIo;
use crate::process::systemd::Heartbeat;

/// Connections that the kernel keeps until they are accepted; it has a limit of its own.
const LISTEN_BACKLOG: i32 = 65_535;
/// What the kernel may hold of an answer beyond what the client has room for, in bytes. Left alone
/// it grows to megabytes, and a thousand slow readers of large answers leave no memory to other
/// sockets. What is on its way to a fast client is not counted, so that it costs none of the speed.
const NOTSENT_LOWAT_BYTES: u32 = 16 * 1024;
/// For descriptors to come free, when there are none.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// Between two complaints of one kind.
const ACCEPT_ERROR_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// How often an accepting loop shows that it lives.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// Descriptors for everything but connections: store, log, table, listeners, the runtime's own.
const RESERVED_DESCRIPTORS: u64 = 128;
/// Open files without which no process begins.
pub const MIN_OPEN_FILES: u64 = 64;

/// Binds a socket that listens.
pub fn bind_listener(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    rustix::net::listen(&listener, LISTEN_BACKLOG)?;
    Ok(listener)
}

/// Sets what connections inherit from the socket that they come from: at no cost for each. They
/// are served without, where the kernel does not know an option.
fn set_socket_options(name: &str, listener: &TcpListener, user_timeout: Duration) {
    let socket = SockRef::from(listener);
    let set = socket
        .set_tcp_nodelay(true)
        .and_then(|()| socket.set_tcp_user_timeout(Some(user_timeout)))
        .and_then(|()| socket.set_tcp_notsent_lowat(NOTSENT_LOWAT_BYTES));
    if let Err(error) = set {
        log::warn!("{name}: an option of its socket could not be set: {error}");
    }
}

/// How many connections may be open, and how many exchanges with the upstream under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorBudget {
    /// Connections of clients.
    pub connections: usize,
    /// Exchanges with the upstream.
    pub exchanges: usize,
}

impl DescriptorBudget {
    /// Raises the limit of open files as far as it goes, and shares it out: some are kept back
    /// for the process itself, a connection takes one, an exchange three: its own, a duplicate that
    /// ends it, and an idle one of the other way. What was wanted is given where there is enough.
    /// The limit, where that is not enough to begin with.
    pub fn allocate(wanted: DescriptorBudget) -> Result<DescriptorBudget, u64> {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // What can't be raised is shared out as it is.
        let current = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(_) => limit.current,
        };
        match current {
            Some(limit) if limit < MIN_OPEN_FILES => Err(limit),
            limit => Ok(wanted.fit_within(limit.unwrap_or(u64::MAX))),
        }
    }

    fn fit_within(self, limit: u64) -> DescriptorBudget {
        let spare = limit.saturating_sub(RESERVED_DESCRIPTORS).max(8);
        let spare = usize::try_from(spare).unwrap_or(usize::MAX);
        let exchanges = self.exchanges.min(spare / 6).max(1);
        let connections = self.connections.min(spare - 3 * exchanges);
        DescriptorBudget { connections, exchanges }
    }
}

/// A service that accepts on one socket and gives each connection to its app, which bounds them.
pub struct ListenerService<A> {
    name: &'static str,
    socket: Option<TcpListener>,
    app: Arc<A>,
    threads: usize,
    /// For what was sent to be acknowledged, before the peer is taken for dead.
    user_timeout: Duration,
    heart: Heartbeat,
    last_error_logged: Mutex<Option<Instant>>,
}

impl<A> ListenerService<A> {
    /// A service with one thread.
    pub fn new(
        name: &'static str,
        socket: TcpListener,
        app: A,
        user_timeout: Duration,
    ) -> ListenerService<A> {
        let (socket, app, heart) = (Some(socket), Arc::new(app), Heartbeat::default());
        let last_error_logged = Mutex::new(None);
        ListenerService { name, socket, app, threads: 1, user_timeout, heart, last_error_logged }
    }

    /// The same with this many threads, and a heart that beats for as long as it accepts.
    pub fn with_threads(mut self, threads: usize, heart: Heartbeat) -> ListenerService<A> {
        (self.threads, self.heart) = (threads, heart);
        self
    }
}

impl<A: ServerApp + Send + Sync + 'static> ListenerService<A> {
    /// Says what goes wrong, but not at each of many times.
    fn log_accept_error(&self, error: &io::Error) {
        let mut told = self.last_error_logged.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() > ACCEPT_ERROR_LOG_INTERVAL) {
            *told = Some(Instant::now());
            log::error!("{}: accepting failed, and goes on: {error}", self.name);
        }
    }

    async fn accept(&self, socket: &tokio::net::TcpListener, shutdown: &ShutdownWatch) {
        match socket.accept().await {
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
            // The one client left before it was accepted.
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
            set_socket_options(self.name, &socket, self.user_timeout);
            socket.set_nonblocking(true)?;
            tokio::net::TcpListener::from_std(socket)
        });
        match socket {
            Some(Ok(socket)) => {
                let stopping = shutdown.clone();
                let mut heartbeat_interval = tokio::time::interval(HEARTBEAT_INTERVAL);
                loop {
                    tokio::select! {
                        biased;
                        _ = shutdown.wait_for(|stop| *stop) => break,
                        _ = heartbeat_interval.tick() => self.heart.beat(),
                        () = self.accept(&socket, &stopping) => {}
                    }
                }
                // Closing resets who is connected and waits; they are served like all others.
                while timeout(Duration::ZERO, self.accept(&socket, &stopping)).await.is_ok() {}
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
mod tests {
    use super::*;

    #[test]
    fn connections_inherit_the_socket_options_of_their_listener() {
        let listener = bind_listener("127.0.0.1:0".parse().unwrap()).unwrap();
        set_socket_options("test", &listener, Duration::from_secs(7));
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let socket = SockRef::from(&accepted);
        assert!(socket.tcp_nodelay().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(7)));
        assert_eq!(socket.tcp_notsent_lowat().unwrap(), NOTSENT_LOWAT_BYTES);
    }

    #[test]
    fn descriptors_are_kept_back_for_store_and_upstream() {
        let wanted = DescriptorBudget { connections: 20_000, exchanges: 1_000 };
        assert_eq!(wanted.fit_within(1 << 20), wanted);
        for limit in [64, 256, 1_024, 4_096, 20_000] {
            let shared = wanted.fit_within(limit);
            let used = shared.connections + 3 * shared.exchanges;
            assert!(shared.connections > 0 && shared.exchanges > 0, "{limit}: {shared:?}");
            assert!(
                limit < 256 || used as u64 + RESERVED_DESCRIPTORS <= limit,
                "{limit}: {shared:?}"
            );
        }
    }
}
