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

use super::{free_port, until};

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
    Swallow,
    /// Bits of the byte at `from` and of each `every`th one behind it are flipped.
    Garble {
        from: usize,
        every: usize,
        bits: u8,
    },
    /// Ends the connection once so many bytes have passed.
    Cut {
        after: usize,
        by: End,
    },
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// In both directions, with all that was on its way.
    Close,
    /// By a reset on both sides.
    Reset,
    /// The receiver hears that it is over; what it says is still taken, and goes nowhere.
    Half,
}

/// What becomes of new connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Door {
    Open,
    /// Refused.
    Shut,
    /// Made, and nothing more happens on them.
    Deaf,
    /// Never made and never refused: there is no more room.
    Full,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Requests = 0,
    Answers = 1,
}

struct Plan {
    /// Counts the changes: the bytes of a fault are counted from there.
    version: u64,
    faults: [Fault; 2],
    door: Door,
}

struct Shared {
    target: SocketAddr,
    plan: Mutex<Plan>,
    carried: Mutex<Vec<Weak<Pair>>>,
    ended: AtomicBool,
}

/// Both sides of one connection.
struct Pair {
    client: TcpStream,
    server: TcpStream,
}

pub struct FaultProxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

impl FaultProxy {
    /// Carries everything to this server, unharmed.
    pub fn before(target: SocketAddr) -> FaultProxy {
        let address = free_port();
        let plan = Plan { version: 1, faults: [Fault::None; 2], door: Door::Open };
        let shared = Arc::new(Shared {
            target,
            plan: Mutex::new(plan),
            carried: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        let listener = listen(address);
        std::thread::spawn(move || accept(address, listener, &accepting));
        FaultProxy { address, shared }
    }

    /// Harms what goes to the server from here on.
    pub fn requests(&self, fault: Fault) {
        self.change(|plan| plan.faults[Way::Requests as usize] = fault);
    }

    /// Harms what comes from the server from here on.
    pub fn answers(&self, fault: Fault) {
        self.change(|plan| plan.faults[Way::Answers as usize] = fault);
    }

    /// Ends all connections, and treats those that come like this.
    pub fn door(&self, door: Door) {
        self.change(|plan| plan.door = door);
        if matches!(door, Door::Shut | Door::Full) {
            let wait = Duration::from_millis(50);
            until("nobody comes in", || TcpStream::connect_timeout(&self.address, wait).err());
        }
        self.end_all(End::Reset);
    }

    /// Carries all that is to come unharmed.
    pub fn heal(&self) {
        self.change(|plan| {
            plan.faults = [Fault::None; 2];
            plan.door = Door::Open;
        });
    }

    /// Ends the connections that are open now.
    pub fn end_all(&self, by: End) {
        let open: Vec<Arc<Pair>> = self.carried().iter().filter_map(Weak::upgrade).collect();
        open.iter().for_each(|pair| pair.end(Way::Answers, by));
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.carried().iter().filter(|pair| pair.strong_count() > 0).count()
    }

    fn change(&self, change: impl FnOnce(&mut Plan)) {
        let mut plan = self.shared.plan.lock().unwrap();
        plan.version += 1;
        change(&mut plan);
    }

    fn carried(&self) -> MutexGuard<'_, Vec<Weak<Pair>>> {
        let mut carried = self.shared.carried.lock().unwrap();
        carried.retain(|pair| pair.strong_count() > 0);
        carried
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.end_all(End::Reset);
    }
}

fn listen(address: SocketAddr) -> TcpListener {
    let listener = until("the proxy has its port", || TcpListener::bind(address).ok());
    listener.set_nonblocking(true).unwrap();
    listener
}

/// Looks often at what it shall do, and so needs nobody to wake it.
fn accept(address: SocketAddr, listener: TcpListener, shared: &Arc<Shared>) {
    const OFTEN: Duration = Duration::from_millis(2);
    let mut listening = Some(listener);
    let (mut deaf, mut waiting) = (Vec::new(), Vec::new());
    while !shared.ended.load(Ordering::SeqCst) {
        let door = shared.plan.lock().unwrap().door;
        if door != Door::Deaf {
            deaf.drain(..).for_each(|stream| reset(&stream));
        }
        if door == Door::Shut {
            listening = None;
        }
        if door != Door::Full && !waiting.is_empty() {
            waiting.clear();
            listening = None;
        }
        let accepted = match door {
            Door::Shut => None,
            Door::Full => {
                let listener = listening.get_or_insert_with(|| listen(address));
                if waiting.is_empty() {
                    waiting = fill(listener, address);
                }
                None
            }
            Door::Open | Door::Deaf => {
                listening.get_or_insert_with(|| listen(address)).accept().ok()
            }
        };
        match accepted {
            None => std::thread::sleep(OFTEN),
            Some((stream, _)) if door == Door::Deaf => deaf.push(stream),
            Some((stream, _)) => carry(stream, shared),
        }
    }
}

/// Takes all the room there is for connections that nobody accepts.
fn fill(listener: &TcpListener, address: SocketAddr) -> Vec<TcpStream> {
    // SAFETY: the descriptor is open for as long as `listener` is borrowed.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        waiting.push(stream);
    }
    waiting
}

fn carry(client: TcpStream, shared: &Arc<Shared>) {
    let Ok(server) = TcpStream::connect(shared.target) else { return reset(&client) };
    for stream in [&client, &server] {
        stream.set_nonblocking(false).unwrap();
        stream.set_nodelay(true).unwrap();
    }
    let pair = Arc::new(Pair { client, server });
    shared.carried.lock().unwrap().push(Arc::downgrade(&pair));
    for way in [Way::Requests, Way::Answers] {
        let (shared, pair) = (Arc::clone(shared), Arc::clone(&pair));
        std::thread::spawn(move || pair.carry(way, &shared));
    }
}

impl Pair {
    fn carry(&self, way: Way, shared: &Shared) {
        let (mut from, to) = self.sides(way);
        let mut buffer = [0; 16 * 1024];
        let (mut version, mut passed, mut has_swallowed) = (0, 0, false);
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            let (now, fault) = shared.fault(way);
            if now != version {
                (version, passed) = (now, 0);
            }
            if has_swallowed && fault != Fault::Swallow {
                return self.end(way, End::Reset);
            }
            has_swallowed = fault == Fault::Swallow;
            if let Fault::Cut { after, by } = fault
                && passed + read > after
            {
                write(to, &buffer[..after - passed]);
                self.end(way, by);
                // Of half a connection: what is still said is heard by nobody.
                while by == End::Half && matches!(from.read(&mut buffer), Ok(1..)) {}
                break;
            }
            if !harm(to, fault, &mut buffer[..read], passed) {
                break;
            }
            passed += read;
        }
        // The other direction may have more to say.
        let _ = to.shutdown(Shutdown::Write);
    }

    /// Who speaks and who listens.
    fn sides(&self, way: Way) -> (&TcpStream, &TcpStream) {
        match way {
            Way::Requests => (&self.client, &self.server),
            Way::Answers => (&self.server, &self.client),
        }
    }

    fn end(&self, way: Way, by: End) {
        for stream in [&self.client, &self.server] {
            match by {
                End::Close => drop(stream.shutdown(Shutdown::Both)),
                End::Reset => reset(stream),
                End::Half => {}
            }
        }
        if by == End::Half {
            let _ = self.sides(way).1.shutdown(Shutdown::Write);
        }
    }
}

impl Shared {
    fn fault(&self, way: Way) -> (u64, Fault) {
        let plan = self.plan.lock().unwrap();
        (plan.version, plan.faults[way as usize])
    }
}

/// Passes bytes on as the fault says; `passed` came before them. False once nobody takes them.
fn harm(to: &TcpStream, fault: Fault, bytes: &mut [u8], passed: usize) -> bool {
    match fault {
        Fault::None | Fault::Cut { .. } => {}
        Fault::Swallow => return true,
        Fault::Delay(pause) => std::thread::sleep(pause),
        Fault::Trickle(pause) => {
            return bytes.chunks(1).all(|byte| {
                std::thread::sleep(pause);
                write(to, byte)
            });
        }
        Fault::Garble { from, every, bits } => {
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
fn reset(stream: &TcpStream) {
    let nowhere = libc::sockaddr {
        sa_family: libc::AF_UNSPEC as libc::sa_family_t,
        sa_data: Default::default(),
    };
    // SAFETY: the descriptor is open for as long as `stream` is borrowed, and the address is a
    // whole `sockaddr` whose size is given with it. A failure means that it has ended already.
    unsafe {
        let size = size_of::<libc::sockaddr>() as libc::socklen_t;
        libc::connect(stream.as_raw_fd(), &raw const nowhere, size);
    }
}
