//! A TCP proxy in front of a server that applies the faults of a network to bytes and connections.
//!
//! Each direction of a connection has its own thread. A test can change the fault at any moment,
//! also for open connections. The proxy does not parse the bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use super::{free_address, wait_for};

/// A fault that applies to the bytes of one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    None,
    /// Each block of bytes that the proxy has read arrives this much later.
    Delay(Duration),
    /// The bytes arrive one by one, with this pause before each.
    Trickle(Duration),
    /// The proxy reads the bytes and drops them. When this fault ends, the proxy resets the
    /// connection, like a peer that vanished and came back.
    Blackhole,
    /// Flips bits of the byte at `from` and of every `every`th byte after it.
    FlipBits {
        from: usize,
        every: usize,
        bits: u8,
    },
    /// Ends the connection after this many bytes.
    Cut {
        after: usize,
        by: CloseMode,
    },
}

/// How the proxy ends a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CloseMode {
    /// Closes both directions and drops all bytes on their way.
    Close,
    /// Resets the connection on both sides.
    Reset,
    /// Sends the end of the stream to the receiver. The proxy still reads the sender's bytes, and
    /// drops them.
    HalfClose,
}

/// How the proxy treats new connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AcceptMode {
    Forward,
    /// Refuses new connections.
    Refuse,
    /// Accepts new connections, but forwards nothing.
    AcceptOnly,
    /// Neither accepts nor refuses new connections: the listen queue is full.
    BacklogFull,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests = 0,
    Responses = 1,
}

struct ActiveFaults {
    /// Counts the changes of the fault: a fault counts its bytes from the last change.
    version: u64,
    faults: [Fault; 2],
    accept_mode: AcceptMode,
}

struct ProxyState {
    target: SocketAddr,
    plan: Mutex<ActiveFaults>,
    pairs: Mutex<Vec<Weak<ConnectionPair>>>,
    is_done: AtomicBool,
}

/// Both sockets of one connection.
struct ConnectionPair {
    client: TcpStream,
    server: TcpStream,
}

pub struct FaultProxy {
    pub address: SocketAddr,
    shared: Arc<ProxyState>,
}

impl FaultProxy {
    /// Forwards everything to this server, without a fault.
    pub fn in_front_of(target: SocketAddr) -> FaultProxy {
        let address = free_address();
        let plan =
            ActiveFaults { version: 1, faults: [Fault::None; 2], accept_mode: AcceptMode::Forward };
        let shared = Arc::new(ProxyState {
            target,
            plan: Mutex::new(plan),
            pairs: Mutex::default(),
            is_done: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        let listener = bind_listener(address);
        std::thread::spawn(move || run_accept_loop(address, listener, &accepting));
        FaultProxy { address, shared }
    }

    /// Applies a fault to all bytes that go to the server from now on.
    pub fn set_request_fault(&self, fault: Fault) {
        self.update_plan(|plan| plan.faults[Direction::Requests as usize] = fault);
    }

    /// Applies a fault to all bytes that come from the server from now on.
    pub fn set_response_fault(&self, fault: Fault) {
        self.update_plan(|plan| plan.faults[Direction::Responses as usize] = fault);
    }

    /// Ends all connections, and treats new connections as `accept_mode` says.
    pub fn set_accept_mode(&self, accept_mode: AcceptMode) {
        self.update_plan(|plan| plan.accept_mode = accept_mode);
        if matches!(accept_mode, AcceptMode::Refuse | AcceptMode::BacklogFull) {
            let wait = Duration::from_millis(50);
            wait_for("connections are refused", || {
                TcpStream::connect_timeout(&self.address, wait).err()
            });
        }
        self.close_all(CloseMode::Reset);
    }

    /// Forwards everything without a fault from now on.
    pub fn clear_faults(&self) {
        self.update_plan(|plan| {
            plan.faults = [Fault::None; 2];
            plan.accept_mode = AcceptMode::Forward;
        });
    }

    /// Ends the connections that are open now.
    pub fn close_all(&self, by: CloseMode) {
        let open: Vec<Arc<ConnectionPair>> =
            self.lock_open_pairs().iter().filter_map(Weak::upgrade).collect();
        open.iter().for_each(|pair| pair.close(Direction::Responses, by));
    }

    /// The number of open connections.
    pub fn connection_count(&self) -> usize {
        self.lock_open_pairs().iter().filter(|pair| pair.strong_count() > 0).count()
    }

    fn update_plan(&self, change: impl FnOnce(&mut ActiveFaults)) {
        let mut plan = self.shared.plan.lock().unwrap();
        plan.version += 1;
        change(&mut plan);
    }

    fn lock_open_pairs(&self) -> MutexGuard<'_, Vec<Weak<ConnectionPair>>> {
        let mut pairs = self.shared.pairs.lock().unwrap();
        pairs.retain(|pair| pair.strong_count() > 0);
        pairs
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.is_done.store(true, Ordering::SeqCst);
        self.close_all(CloseMode::Reset);
    }
}

fn bind_listener(address: SocketAddr) -> TcpListener {
    let listener = wait_for("the proxy has its port", || TcpListener::bind(address).ok());
    listener.set_nonblocking(true).unwrap();
    listener
}

/// Polls the accept mode, so that no thread has to wake this thread.
fn run_accept_loop(address: SocketAddr, listener: TcpListener, shared: &Arc<ProxyState>) {
    const POLL_INTERVAL: Duration = Duration::from_millis(2);
    let mut listening = Some(listener);
    let (mut unread_connections, mut backlog) = (Vec::new(), Vec::new());
    while !shared.is_done.load(Ordering::SeqCst) {
        let accept_mode = shared.plan.lock().unwrap().accept_mode;
        if accept_mode != AcceptMode::AcceptOnly {
            unread_connections.drain(..).for_each(|stream| reset_connection(&stream));
        }
        if accept_mode == AcceptMode::Refuse {
            listening = None;
        }
        if accept_mode != AcceptMode::BacklogFull && !backlog.is_empty() {
            backlog.clear();
            listening = None;
        }
        let accepted = match accept_mode {
            AcceptMode::Refuse => None,
            AcceptMode::BacklogFull => {
                let listener = listening.get_or_insert_with(|| bind_listener(address));
                if backlog.is_empty() {
                    backlog = fill_backlog(listener, address);
                }
                None
            }
            AcceptMode::Forward | AcceptMode::AcceptOnly => {
                listening.get_or_insert_with(|| bind_listener(address)).accept().ok()
            }
        };
        match accepted {
            None => std::thread::sleep(POLL_INTERVAL),
            Some((stream, _)) if accept_mode == AcceptMode::AcceptOnly => {
                unread_connections.push(stream)
            }
            Some((stream, _)) => start_forwarding(stream, shared),
        }
    }
}

/// Fills the listen queue with connections that nothing accepts.
fn fill_backlog(listener: &TcpListener, address: SocketAddr) -> Vec<TcpStream> {
    // SAFETY: the descriptor is open for as long as `listener` is borrowed.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let mut backlog = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        backlog.push(stream);
    }
    backlog
}

fn start_forwarding(client: TcpStream, shared: &Arc<ProxyState>) {
    let Ok(server) = TcpStream::connect(shared.target) else { return reset_connection(&client) };
    for stream in [&client, &server] {
        stream.set_nonblocking(false).unwrap();
        stream.set_nodelay(true).unwrap();
    }
    let pair = Arc::new(ConnectionPair { client, server });
    shared.pairs.lock().unwrap().push(Arc::downgrade(&pair));
    for way in [Direction::Requests, Direction::Responses] {
        let (shared, pair) = (Arc::clone(shared), Arc::clone(&pair));
        std::thread::spawn(move || pair.forward_until_end(way, &shared));
    }
}

impl ConnectionPair {
    fn forward_until_end(&self, way: Direction, shared: &ProxyState) {
        let (mut from, to) = self.source_and_destination(way);
        let mut buffer = [0; 16 * 1024];
        let (mut version, mut passed, mut has_swallowed) = (0, 0, false);
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            let (now, fault) = shared.current_fault(way);
            if now != version {
                (version, passed) = (now, 0);
            }
            if has_swallowed && fault != Fault::Blackhole {
                return self.close(way, CloseMode::Reset);
            }
            has_swallowed = fault == Fault::Blackhole;
            if let Fault::Cut { after, by } = fault
                && passed + read > after
            {
                try_write_all(to, &buffer[..after - passed]);
                self.close(way, by);
                // The connection is half closed: the proxy drops what the sender still sends.
                while by == CloseMode::HalfClose && matches!(from.read(&mut buffer), Ok(1..)) {}
                break;
            }
            if !forward_with_fault(to, fault, &mut buffer[..read], passed) {
                break;
            }
            passed += read;
        }
        // The other direction may still have bytes to forward.
        let _ = to.shutdown(Shutdown::Write);
    }

    /// The sockets to read from and to write to.
    fn source_and_destination(&self, way: Direction) -> (&TcpStream, &TcpStream) {
        match way {
            Direction::Requests => (&self.client, &self.server),
            Direction::Responses => (&self.server, &self.client),
        }
    }

    fn close(&self, way: Direction, by: CloseMode) {
        for stream in [&self.client, &self.server] {
            match by {
                CloseMode::Close => drop(stream.shutdown(Shutdown::Both)),
                CloseMode::Reset => reset_connection(stream),
                CloseMode::HalfClose => {}
            }
        }
        if by == CloseMode::HalfClose {
            let _ = self.source_and_destination(way).1.shutdown(Shutdown::Write);
        }
    }
}

impl ProxyState {
    fn current_fault(&self, way: Direction) -> (u64, Fault) {
        let plan = self.plan.lock().unwrap();
        (plan.version, plan.faults[way as usize])
    }
}

/// Forwards bytes as the fault says; `passed` bytes came before. Returns false if the receiver
/// closed.
fn forward_with_fault(to: &TcpStream, fault: Fault, bytes: &mut [u8], passed: usize) -> bool {
    match fault {
        Fault::None | Fault::Cut { .. } => {}
        Fault::Blackhole => return true,
        Fault::Delay(pause) => std::thread::sleep(pause),
        Fault::Trickle(pause) => {
            return bytes.chunks(1).all(|byte| {
                std::thread::sleep(pause);
                try_write_all(to, byte)
            });
        }
        Fault::FlipBits { from, every, bits } => {
            for (at, byte) in (passed..).zip(bytes.iter_mut()) {
                if at >= from && (at - from).is_multiple_of(every) {
                    *byte ^= bits;
                }
            }
        }
    }
    try_write_all(to, bytes)
}

fn try_write_all(mut to: &TcpStream, bytes: &[u8]) -> bool {
    to.write_all(bytes).is_ok()
}

/// Resets a connection at once, even if other threads hold its socket.
fn reset_connection(stream: &TcpStream) {
    let unspecified = libc::sockaddr {
        sa_family: libc::AF_UNSPEC as libc::sa_family_t,
        sa_data: Default::default(),
    };
    // SAFETY: the descriptor is open while `stream` is borrowed. The address is a complete
    // `sockaddr`, passed with its size. The call may fail: the connection may have ended.
    unsafe {
        let size = size_of::<libc::sockaddr>() as libc::socklen_t;
        libc::connect(stream.as_raw_fd(), &raw const unspecified, size);
    }
}
