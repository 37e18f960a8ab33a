//! Tells the commands of this machine which SQLite store a gateway serves, without a file.
//!
//! A gateway with an SQLite store binds Unix sockets in the abstract namespace. The name of a
//! socket contains:
//! - a hash of the store's address,
//! - whether the gateway drains,
//! - the inode and the id of the store, and
//! - the id of the process.
//!
//! A command reads these names in `/proc/net/unix`. So a command finds the gateway even if:
//! - the files of the store or of the runtime directory were moved away or replaced,
//! - the gateway has no runtime directory, or
//! - another process has claimed the runtime directory.
//!
//! The kernel removes the names when the process ends. Nobody can connect to the sockets.
//!
//! A command sees only the names of its own network namespace. A gateway in another namespace is
//! found by the runtime directory, if the containers share that directory. Every local user can
//! bind such names. A forged name can make a command refuse its change, but never makes a command
//! change another store.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind as bind_socket, socket_with,
};
use sha2::{Digest, Sha256};

use super::served_store::{SERVED_STORE_RETRY_PAUSE, ServedStore};
use crate::config::StoreOptions;
use crate::support::lock::lock;

/// The kernel's list of the Unix sockets of this network namespace.
const SOCKET_LIST: &str = "/proc/net/unix";
const NAME_PREFIX: &str = "riskgate-store/";
/// The kernel shows the zero byte of an abstract name as `@`.
const LISTED_PREFIX: &str = "@riskgate-store/";

/// The sockets whose names describe the store of this process. Clones share the sockets.
#[derive(Clone, Debug)]
pub struct StoreNameSockets(Arc<Mutex<Sockets>>);

#[derive(Debug, Default)]
struct Sockets {
    address_hashes: Vec<String>,
    /// The store that the names describe; `None` before the first update.
    served: Option<ServedStore>,
    is_draining: bool,
    /// The names of the last attempt to bind, whether it succeeded or failed.
    names: Vec<String>,
    /// When the last attempt failed; `None` if it succeeded, or if there was none yet.
    failed_at: Option<Instant>,
    bound: Vec<OwnedFd>,
}

/// A gateway on this machine, as the name of its socket describes it.
#[derive(Debug, PartialEq, Eq)]
pub struct LocalGateway {
    /// The store that the gateway serves.
    pub served: ServedStore,
    /// Whether the gateway accepts no connections any more.
    pub is_draining: bool,
}

impl StoreNameSockets {
    /// Creates the sockets of a process that serves this store. Binds none before the first update,
    /// and none for a Redis server.
    pub fn new(store: &StoreOptions) -> StoreNameSockets {
        let address_hashes = hash_addresses(store);
        StoreNameSockets(Arc::new(Mutex::new(Sockets { address_hashes, ..Sockets::default() })))
    }

    /// Lets the names describe this store.
    ///
    /// # Errors
    /// If a socket can't be bound. Later calls try again, with the same store after a pause. Of
    /// several failures with one store, only the first is returned.
    pub fn update(&self, served: &ServedStore) -> io::Result<()> {
        self.change_and_bind(|sockets| sockets.served = Some(served.clone()))
    }

    /// Lets the names say that this process accepts no connections any more, and still writes what
    /// it counted to the store.
    ///
    /// # Errors
    /// If a socket can't be bound.
    pub fn set_draining(&self) -> io::Result<()> {
        self.change_and_bind(|sockets| sockets.is_draining = true)
    }

    fn change_and_bind(&self, change: impl FnOnce(&mut Sockets)) -> io::Result<()> {
        let mut sockets = lock(&self.0);
        change(&mut sockets);
        let names = sockets.names_to_bind();
        let has_tried = names == sockets.names;
        if has_tried && sockets.failed_at.is_none_or(|at| at.elapsed() < SERVED_STORE_RETRY_PAUSE) {
            return Ok(());
        }
        // The earlier sockets close only when the new ones are bound, so that a command always sees
        // the gateway.
        let bound = names.iter().map(|name| bind_name(name)).collect::<io::Result<_>>();
        sockets.names = names;
        sockets.failed_at = bound.is_err().then(Instant::now);
        match bound {
            Ok(bound) => sockets.bound = bound,
            Err(error) if !has_tried => return Err(error),
            Err(_) => {}
        }
        Ok(())
    }
}

impl Sockets {
    fn names_to_bind(&self) -> Vec<String> {
        let Some(ServedStore { id, inode, .. }) = &self.served else { return Vec::new() };
        let state = if self.is_draining { "draining" } else { "serving" };
        let id = id.as_deref().unwrap_or_default();
        let inode = inode.map_or(String::new(), |inode| inode.to_string());
        // Two processes can't bind the same name.
        let process = std::process::id();
        let name = |hash| format!("{NAME_PREFIX}{hash}/{state}/{inode}/{id}/{process}");
        self.address_hashes.iter().map(name).collect()
    }
}

/// Binds a socket on which nobody listens.
fn bind_name(name: &str) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind_socket(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

/// Finds the gateways on this machine whose store is at the address of `store`. Finds none if
/// `/proc` is not mounted, or if the store is a Redis server. A gateway that changes its name
/// meanwhile may be found under both names.
///
/// # Errors
/// If this process can't read the kernel's list of sockets.
pub fn find_local_gateways(store: &StoreOptions) -> io::Result<Vec<LocalGateway>> {
    let (hashes, address) = (hash_addresses(store), store.shown_address());
    let mut found = Vec::new();
    // The kernel writes the list in pieces. While sockets come and go, one reading may miss a
    // socket that exists all the time.
    for _ in 0..2 {
        let list = match fs::read(SOCKET_LIST) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            list => list?,
        };
        // Names that other programs bind may not be UTF-8.
        let list = String::from_utf8_lossy(&list);
        let gateways = list.lines().filter_map(|line| parse_line(line, &hashes, &address));
        for gateway in gateways {
            if !found.contains(&gateway) {
                found.push(gateway);
            }
        }
    }
    Ok(found)
}

/// Parses a line of the kernel's list. Returns `None` if the line is no socket of a gateway whose
/// store has one of these address hashes.
fn parse_line(line: &str, hashes: &[String], address: &str) -> Option<LocalGateway> {
    let name = line.split_whitespace().next_back()?.strip_prefix(LISTED_PREFIX)?;
    let mut parts = name.split('/');
    let mut next = || parts.next();
    let (hash, state, inode, id) = (next()?, next()?, next()?, next()?);
    hashes.iter().any(|known| known == hash).then(|| LocalGateway {
        served: ServedStore {
            address: address.to_owned(),
            id: Some(id.to_owned()).filter(|id| !id.is_empty()),
            inode: inode.parse().ok(),
        },
        is_draining: state == "draining",
    })
}

/// Hashes each address of an SQLite file, because the name of a socket is too short for a path. The
/// root directory is part of the hash, because containers that share a network namespace may have
/// different files at the same path. Returns no hash for a Redis server.
fn hash_addresses(store: &StoreOptions) -> Vec<String> {
    let root = fs::metadata("/").ok();
    let root = root.as_ref().map(|root: &Metadata| (root.dev(), root.ino())).unwrap_or_default();
    let hash = |address: &String| {
        let digest = Sha256::digest(format!("{root:?} {address}"));
        digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    };
    store.file_addresses().iter().map(hash).collect()
}

#[cfg(test)]
mod tests;
