//! Loopback ports for the servers that tests start. No other test gets such a port while this
//! process lives, even while nothing listens on it.
//!
//! `tests/ports.py` reserves the ports of the scripts in the same way.
#![allow(dead_code, reason = "each test program that includes this file uses only a part of it")]

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixSocketAddr, UnixListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ephemeral ports of Linux, so that no outgoing connection takes one.
const PORTS: Range<u16> = 10_000..30_000;
/// In cluster mode, a Redis server listens for the other members on its port plus this number.
/// Redis 6.2 cannot be told another port.
const BUS_PORT_OFFSET: u16 = 10_000;

/// Returns an address on which nothing listens.
pub fn free_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()))
}

/// Returns a port on which nothing listens.
pub fn free_port() -> u16 {
    find_port(PORTS, reserve)
}

/// Returns a port for a Redis server in cluster mode, which listens on a second port.
pub fn free_port_of_member() -> u16 {
    let ports = PORTS.start..PORTS.end - BUS_PORT_OFFSET;
    find_port(ports, |port| reserve(port + BUS_PORT_OFFSET) && reserve(port))
}

/// Tries the ports in turn. The processes of tests begin at different ports.
fn find_port(ports: Range<u16>, try_port: impl Fn(u16) -> bool) -> u16 {
    static NEXT_OFFSET: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(631);
    for _ in ports.clone() {
        let offset = begin.wrapping_add(NEXT_OFFSET.fetch_add(1, Ordering::Relaxed));
        let port = ports.start + (offset % ports.len() as u32) as u16;
        if try_port(port) {
            return port;
        }
    }
    panic!("expected a free port in {ports:?}, but found none");
}

/// Reserves a port until this process ends. Returns false if another test has it, or if a process
/// listens on it. The kernel knows the reservation by the name of a socket that no file shows.
fn reserve(port: u16) -> bool {
    let name = UnixSocketAddr::from_abstract_name(format!("riskgate-test-port-{port}")).unwrap();
    let Some(reservation) = unless_in_use(UnixListener::bind_addr(&name)) else { return false };
    let is_free = unless_in_use(TcpListener::bind((Ipv4Addr::LOCALHOST, port))).is_some();
    if is_free {
        std::mem::forget(reservation);
    }
    is_free
}

/// `None` if another socket has the address. Fails for any other reason, such as a lack of
/// descriptors.
fn unless_in_use<T>(bound: std::io::Result<T>) -> Option<T> {
    match bound {
        Err(error) if error.kind() == ErrorKind::AddrInUse => None,
        bound => Some(bound.expect("a socket for a free port")),
    }
}
