//! A proxy on the way to a server that does to bytes and connections what networks do to them.
//!
//! It carries each direction of a connection in a thread of its own, and can be told otherwise at
//! any moment, also for connections that are open. What it carries it does not understand.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use super::{free_address, wait_for};

/// What befalls the bytes of one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    None,
    /// Each piece comes this much later.
    Delay(Duration),
    /// One byte, and a rest.
    Trickle(Duration),
    /// They are taken and never arrive. When that is over the connection is reset, as by a peer
    /// that vanished and came back.
    Blackhole,
    /// Bits of the byte at `from` and of each `every`th one behind it are flipped.
    FlipBits {
        from: usize,
        every: usize,
        bits: u8,
    },
    /// Ends the connection once so many bytes have passed.
    Cut {
        after: usize,
        by: CloseMode,
    },
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CloseMode {
    /// In both directions, with all that was on its way.
    Close,
    /// By a reset on both sides.
    Reset,
    /// The receiver hears that it is over; what it says is still taken, and goes nowhere.
    HalfClose,
}

/// What becomes of new connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AcceptMode {
    Forward,
    /// Refused.
    Refuse,
    /// Made, and nothing more happens on them.
    AcceptOnly,
    /// Never made and never refused: there is no more room.
    BacklogFull,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests = 0,
    Responses = 1,
}

struct FaultPlan {
    /// Counts the changes: the bytes of a fault are counted from there.
    version: u64,
    faults: [Fault; 2],
    door: AcceptMode,
}

struct SharedState {
    target: SocketAddr,
    plan: Mutex<FaultPlan>,
    pairs: Mutex<Vec<Weak<ConnectionPair>>>,
    ended: AtomicBool,
}

/// Both sides of one connection.
struct ConnectionPair {
    client: TcpStream,
    server: TcpStream,
}

pub struct FaultProxy {
    pub address: SocketAddr,
    shared: Arc<SharedState>,
}

impl FaultProxy {
    /// Carries everything to this server, unharmed.
    pub fn in_front_of(target: SocketAddr) -> FaultProxy {
        let address = free_address();
        let plan = FaultPlan { version: 1, faults: [Fault::None; 2], door: AcceptMode::Forward };
        let shared = Arc::new(SharedState {
            target,
            plan: Mutex::new(plan),
            pairs: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        let listener = bind_listener(address);
        std::thread::spawn(move || run_accept_loop(address, listener, &accepting));
        FaultProxy { address, shared }
    }

    /// Harms what goes to the server from here on.
    pub fn set_request_fault(&self, fault: Fault) {
        self.update_plan(|plan| plan.faults[Direction::Requests as usize] = fault);
    }

    /// Harms what comes from the server from here on.
    pub fn set_response_fault(&self, fault: Fault) {
        self.update_plan(|plan| plan.faults[Direction::Responses as usize] = fault);
    }

    /// Ends all connections, and treats those that come like this.
    pub fn set_accept_mode(&self, door: AcceptMode) {
        self.update_plan(|plan| plan.door = door);
        if matches!(door, AcceptMode::Refuse | AcceptMode::BacklogFull) {
            let wait = Duration::from_millis(50);
            wait_for("nobody comes in", || TcpStream::connect_timeout(&self.address, wait).err());
        }
        self.close_all(CloseMode::Reset);
    }

    /// Carries all that is to come unharmed.
    pub fn clear_faults(&self) {
        self.update_plan(|plan| {
            plan.faults = [Fault::None; 2];
            plan.door = AcceptMode::Forward;
        });
    }

    /// Ends the connections that are open now.
    pub fn close_all(&self, by: CloseMode) {
        let open: Vec<Arc<ConnectionPair>> =
            self.pairs().iter().filter_map(Weak::upgrade).collect();
        open.iter().for_each(|pair| pair.end(Direction::Responses, by));
    }

    /// Connections that are open.
    pub fn connection_count(&self) -> usize {
        self.pairs().iter().filter(|pair| pair.strong_count() > 0).count()
    }

    fn update_plan(&self, change: impl FnOnce(&mut FaultPlan)) {
        let mut plan = self.shared.plan.lock().unwrap();
        plan.version += 1;
        change(&mut plan);
    }

    fn pairs(&self) -> MutexGuard<'_, Vec<Weak<ConnectionPair>>> {
        let mut pairs = self.shared.pairs.lock().unwrap();
        pairs.retain(|pair| pair.strong_count() > 0);
        pairs
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.close_all(CloseMode::Reset);
    }
}

fn bind_listener(address: SocketAddr) -> TcpListener {
    let listener = wait_for("the proxy has its port", || TcpListener::bind(address).ok());
    listener.set_nonblocking(true).unwrap();
    listener
}

/// Looks often at what it shall do, and so needs nobody to wake it.
fn run_accept_loop(address: SocketAddr, listener: TcpListener, shared: &Arc<SharedState>) {
    const POLL_INTERVAL: Duration = Duration::from_millis(2);
    let mut listening = Some(listener);
    let (mut unread_connections, mut backlog) = (Vec::new(), Vec::new());
    while !shared.ended.load(Ordering::SeqCst) {
        let door = shared.plan.lock().unwrap().door;
        if door != AcceptMode::AcceptOnly {
            unread_connections.drain(..).for_each(|stream| reset_connection(&stream));
        }
        if door == AcceptMode::Refuse {
            listening = None;
        }
        if door != AcceptMode::BacklogFull && !backlog.is_empty() {
            backlog.clear();
            listening = None;
        }
        let accepted = match door {
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
            Some((stream, _)) if door == AcceptMode::AcceptOnly => unread_connections.push(stream),
            Some((stream, _)) => start_forwarding(stream, shared),
        }
    }
}

/// Takes all the room there is for connections that nobody accepts.
fn fill_backlog(listener: &TcpListener, address: SocketAddr) -> Vec<TcpStream> {
    // SAFETY: the descriptor is open for as long as `listener` is borrowed.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let mut backlog = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        backlog.push(stream);
    }
    backlog
}

fn start_forwarding(client: TcpStream, shared: &Arc<SharedState>) {
    let Ok(server) = TcpStream::connect(shared.target) else { return reset_connection(&client) };
    for stream in [&client, &server] {
        stream.set_nonblocking(false).unwrap();
        stream.set_nodelay(true).unwrap();
    }
    let pair = Arc::new(ConnectionPair { client, server });
    shared.pairs.lock().unwrap().push(Arc::downgrade(&pair));
    for way in [Direction::Requests, Direction::Responses] {
        let (shared, pair) = (Arc::clone(shared), Arc::clone(&pair));
        std::thread::spawn(move || pair.forward(way, &shared));
    }
}

impl ConnectionPair {
    fn forward(&self, way: Direction, shared: &SharedState) {
        let (mut from, to) = self.source_and_destination(way);
        let mut buffer = [0; 16 * 1024];
        let (mut version, mut passed, mut has_swallowed) = (0, 0, false);
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            let (now, fault) = shared.fault(way);
            if now != version {
                (version, passed) = (now, 0);
            }
            if has_swallowed && fault != Fault::Blackhole {
                return self.end(way, CloseMode::Reset);
            }
            has_swallowed = fault == Fault::Blackhole;
            if let Fault::Cut { after, by } = fault
                && passed + read > after
            {
                write(to, &buffer[..after - passed]);
                self.end(way, by);
                // Of half a connection: what is still said is heard by nobody.
                while by == CloseMode::HalfClose && matches!(from.read(&mut buffer), Ok(1..)) {}
                break;
            }
            if !forward_with_fault(to, fault, &mut buffer[..read], passed) {
                break;
            }
            passed += read;
        }
        // The other direction may have more to say.
        let _ = to.shutdown(Shutdown::Write);
    }

    /// Who speaks and who listens.
    fn source_and_destination(&self, way: Direction) -> (&TcpStream, &TcpStream) {
        match way {
            Direction::Requests => (&self.client, &self.server),
            Direction::Responses => (&self.server, &self.client),
        }
    }

    fn end(&self, way: Direction, by: CloseMode) {
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

impl SharedState {
    fn fault(&self, way: Direction) -> (u64, Fault) {
        let plan = self.plan.lock().unwrap();
        (plan.version, plan.faults[way as usize])
    }
}

/// Passes bytes on as the fault says; `passed` came before them. False once nobody takes them.
fn forward_with_fault(to: &TcpStream, fault: Fault, bytes: &mut [u8], passed: usize) -> bool {
    match fault {
        Fault::None | Fault::Cut { .. } => {}
        Fault::Blackhole => return true,
        Fault::Delay(pause) => std::thread::sleep(pause),
        Fault::Trickle(pause) => {
            return bytes.chunks(1).all(|byte| {
                std::thread::sleep(pause);
                write(to, byte)
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
    write(to, bytes)
}

fn write(mut to: &TcpStream, bytes: &[u8]) -> bool {
    to.write_all(bytes).is_ok()
}

/// Ends a connection at once and lets the other side see a reset, whoever else holds it here.
fn reset_connection(stream: &TcpStream) {
    let unspecified = libc::sockaddr {
        sa_family: libc::AF_UNSPEC as libc::sa_family_t,
        sa_data: Default::default(),
    };
    // SAFETY: the descriptor is open for as long as `stream` is borrowed, and the address is a
    // whole `sockaddr` whose size is given with it. A failure means that it has ended already.
    unsafe {
        let size = size_of::<libc::sockaddr>() as libc::socklen_t;
        libc::connect(stream.as_raw_fd(), &raw const unspecified, size);
    }
}
