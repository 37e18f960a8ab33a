//! The runtime directory: which process serves from it, and which store that process serves.
//!
//! A process *claims* the directory to serve from it, and releases it when it stops accepting
//! connections. `upgrade` transfers sockets through this directory.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::process::served_store::{ServedStore, ServedStoreFile};
use crate::support::regular_file::check_dir_writable;

/// How long a claim waits for commands that hold the lock of the pid file for a moment.
const MAX_CLAIM_WAIT: Duration = Duration::from_secs(1);
/// The pause between two attempts of a claim.
const CLAIM_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The file with the id of the process that serves. The process that serves has an exclusive lock
/// on this file.
const PID_FILE: &str = "riskgate.pid";
/// The file that each process locks from its claim to its end. Several processes may hold this lock
/// at once, because an old process may drain while its successor serves.
const USERS_LOCK_FILE: &str = "users.lock";
/// The socket at which a successor waits for the sockets of the process that serves.
const UPGRADE_SOCKET: &str = "successor.sock";
/// The file that describes the store of the process that serves.
const SERVED_STORE_FILE: &str = "store";

/// The runtime directory. A process serves only from a directory to which no other user can write.
#[derive(Debug)]
pub struct RuntimeDir {
    path: PathBuf,
    /// The pid file, open and locked while this process has claimed the directory.
    pid_file: Option<File>,
    /// Whether this process has claimed the directory.
    is_claimed_by_this_process: Arc<AtomicBool>,
    /// The file [`USERS_LOCK_FILE`], locked from the claim to the end of this process.
    users_lock: Option<File>,
}

impl RuntimeDir {
    /// Opens the directory. If the directory does not exist, creates it with mode 0700. Fails if
    /// there is something else or a link at the path, or if another user owns the directory or can
    /// write to it.
    pub fn open(path: &Path) -> io::Result<RuntimeDir> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        RuntimeDir::check_owner_and_mode(path)?;
        Ok(RuntimeDir::unclaimed(path))
    }

    /// Checks whether [`RuntimeDir::open`] would open the directory, and creates nothing.
    pub fn check_openable(path: &Path) -> io::Result<()> {
        if path.symlink_metadata().is_ok() {
            return RuntimeDir::check_owner_and_mode(path);
        }
        let absolute = std::path::absolute(path)?;
        let parent = absolute.ancestors().skip(1).find(|it| it.symlink_metadata().is_ok());
        match parent {
            Some(parent) if !parent.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
            Some(parent) => check_dir_writable(parent),
            None => Ok(()),
        }
    }

    /// Fails if the path of the directory is too long for the socket of an upgrade.
    pub fn check_fits_upgrade_socket(path: &Path) -> io::Result<()> {
        let socket = path.join(UPGRADE_SOCKET);
        SocketAddr::from_pathname(&socket).map(drop).map_err(|_| {
            let length = path.as_os_str().len();
            io::Error::other(format!("a path of {length} bytes, too long for a socket in it"))
        })
    }

    fn check_owner_and_mode(path: &Path) -> io::Result<()> {
        // A symbolic link is refused, because the owner of the link could redirect it later.
        let meta = fs::symlink_metadata(path)?;
        if !meta.is_dir() {
            return Err(io::Error::other("something that is not a directory"));
        }
        if meta.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("a directory of another user"));
        }
        if meta.mode() & 0o022 != 0 {
            return Err(io::Error::other("a directory that others may write to"));
        }
        Ok(())
    }

    fn unclaimed(path: &Path) -> RuntimeDir {
        RuntimeDir {
            path: path.to_owned(),
            pid_file: None,
            is_claimed_by_this_process: Arc::default(),
            users_lock: None,
        }
    }

    /// Opens the directory for a command, which may run as another user, such as root. Returns
    /// `None` if no process has claimed the directory.
    ///
    /// # Errors
    /// Returns an error if this user may not see whether a process has claimed the directory.
    pub fn open_if_claimed(path: &Path) -> io::Result<Option<RuntimeDir>> {
        let runtime_dir = RuntimeDir::unclaimed(path);
        Ok(runtime_dir.look_for_claim()?.then_some(runtime_dir))
    }

    /// Returns true if a process that claimed the directory at `path` has not ended yet. The
    /// process serves, or it drains and still writes what it counted to the store.
    ///
    /// # Errors
    /// Returns an error if this user may not see whether such a process exists.
    pub fn has_serving_or_draining_process(path: &Path) -> io::Result<bool> {
        is_lock_refused(&path.join(USERS_LOCK_FILE), File::try_lock)
    }

    /// Claims the directory: locks the pid file, writes the id of this process to it, and locks
    /// [`USERS_LOCK_FILE`]. Returns false if another process has claimed the directory.
    ///
    /// # Errors
    /// If the system refuses to open, to lock or to write a file of the directory.
    pub fn claim(&mut self) -> io::Result<bool> {
        if self.pid_file.is_some() {
            return Ok(true);
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(self.pid_file_path())?;
        let last_attempt = Instant::now() + MAX_CLAIM_WAIT;
        while !try_lock(&file)? {
            // A command that looks for a claim holds the lock for a moment.
            if Instant::now() >= last_attempt {
                return Ok(false);
            }
            std::thread::sleep(CLAIM_RETRY_INTERVAL);
        }
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        let users_lock = options.open(self.path.join(USERS_LOCK_FILE))?;
        // This waits only for commands, which hold the exclusive lock for a moment.
        users_lock.lock_shared()?;
        self.users_lock = Some(users_lock);
        self.pid_file = Some(file);
        self.is_claimed_by_this_process.store(true, Ordering::Release);
        Ok(true)
    }

    /// Gives the claim up, so that another process can claim the directory.
    pub fn release(&mut self) {
        self.is_claimed_by_this_process.store(false, Ordering::Release);
        if let Some(file) = self.pid_file.take() {
            // People who read an empty pid file see that no process serves.
            let _ = file.set_len(0);
        }
    }

    /// Returns the process that has claimed the directory, if it is another one.
    pub fn find_serving_pid(&self) -> Option<u32> {
        let is_of_other = self.pid_file.is_none() && self.is_claimed();
        let text = is_of_other.then(|| fs::read_to_string(self.pid_file_path()))?.ok()?;
        text.trim().parse().ok()
    }

    /// Returns true if a process has claimed the directory. Returns false if this can't be found
    /// out.
    pub fn is_claimed(&self) -> bool {
        self.look_for_claim().unwrap_or(false)
    }

    fn look_for_claim(&self) -> io::Result<bool> {
        is_lock_refused(&self.pid_file_path(), File::try_lock_shared)
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the socket at which a successor waits.
    pub fn upgrade_socket_path(&self) -> PathBuf {
        self.path.join(UPGRADE_SOCKET)
    }

    /// Returns the file in which this process describes the store that it serves.
    pub fn served_store_file(&self) -> ServedStoreFile {
        let is_claimed = Arc::clone(&self.is_claimed_by_this_process);
        ServedStoreFile::new(self.path.join(SERVED_STORE_FILE), is_claimed)
    }

    /// Reads the file that describes the served store. Returns `None` if the file can't be read.
    /// Just after a claim, the file may still describe the store of an earlier process.
    pub fn read_served_store(&self) -> Option<ServedStore> {
        ServedStore::read(&self.path.join(SERVED_STORE_FILE)).ok()
    }

    fn pid_file_path(&self) -> PathBuf {
        self.path.join(PID_FILE)
    }
}

/// Returns true if `try_lock` gets no lock on the file, because another process holds one. Returns
/// false if the file does not exist.
fn is_lock_refused(
    path: &Path,
    try_lock: impl Fn(&File) -> Result<(), TryLockError>,
) -> io::Result<bool> {
    let file = match OpenOptions::new().read(true).open(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(false);
        }
        opened => opened?,
    };
    match try_lock(&file) {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Locks a file. Returns false if another process holds a lock on it. Fails on a file system that
/// has no locks.
pub(super) fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => {
            let expected = "expected a file system on which files can be locked";
            Err(io::Error::other(format!("{expected}, but found: {error}")))
        }
    }
}

#[cfg(test)]
mod tests;
