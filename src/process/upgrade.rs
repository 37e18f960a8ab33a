//! Transfers the listening sockets to a successor process.
//!
//! The successor listens on a Unix socket in a private directory. The old process sends its
//! listening sockets there, waits until the successor accepts connections, and then sends a final
//! message. If the successor fails before that message, the old process keeps serving. If the old
//! process ends, the successor serves. No client is refused, because the kernel queues its
//! connection as long as one of the two processes has the listening socket open.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::process::served_store::{ServedStore, ServedStoreFile};
use crate::support::regular_file::check_dir_writable;

/// How long each process waits for the other's next message.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a waiting process checks whether it should stop waiting.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// How long a process waits for commands that look whether another one serves.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// The most sockets that can be transferred.
const MAX_SOCKETS: usize = 8;
/// The successor's message: it accepts connections now.
const ACCEPTING_MESSAGE: &[u8] = b"accepting\n";
/// The old process's final message: the successor may claim the runtime directory now.
const RUNTIME_DIR_RELEASED_MESSAGE: &[u8] = b"released\n";

/// The file that each process locks from its claim to its end. Several may hold this lock.
const USERS_LOCK_FILE: &str = "users.lock";
/// The file that names the store of the serving process.
const SERVED_STORE_FILE: &str = "store";

/// The runtime directory, which only its owner can write to. It contains the pid file of the
/// serving process, the name of its store, and the socket of a successor.
#[derive(Debug)]
pub struct RuntimeDir {
    path: PathBuf,
    /// Open and locked while this process serves from the directory.
    pid_file: Option<File>,
    /// Whether this process serves from the directory.
    is_claimed_by_this_process: Arc<AtomicBool>,
    /// Locked from the claim to the end of the process, also while it drains.
    users_lock: Option<File>,
}

impl RuntimeDir {
    /// Opens the directory, and creates it if it does not exist.
    pub fn open(path: &Path) -> io::Result<RuntimeDir> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        RuntimeDir::check(path)?;
        Ok(RuntimeDir::unclaimed(path))
    }

    /// Checks whether [`RuntimeDir::open`] would open the directory, and creates nothing.
    pub fn check_openable(path: &Path) -> io::Result<()> {
        if path.symlink_metadata().is_ok() {
            return RuntimeDir::check(path);
        }
        let absolute = std::path::absolute(path)?;
        let parent = absolute.ancestors().skip(1).find(|it| it.symlink_metadata().is_ok());
        match parent {
            Some(parent) if !parent.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
            Some(parent) => check_dir_writable(parent),
            None => Ok(()),
        }
    }

    fn check(path: &Path) -> io::Result<()> {
        // Symbolic links are not followed, because the owner of a link could redirect it later.
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
    /// `None` if no process serves from it.
    ///
    /// # Errors
    /// Returns an error if this user may not see whether a process serves from it.
    pub fn open_if_claimed(path: &Path) -> io::Result<Option<RuntimeDir>> {
        let runtime_dir = RuntimeDir::unclaimed(path);
        let is_claimed = is_locked_by(&runtime_dir.pid_file_path(), File::try_lock_shared)?;
        Ok(is_claimed.then_some(runtime_dir))
    }

    /// Returns true if a process has served from the directory at `path` and still writes what it
    /// counted: it serves, or it drains.
    ///
    /// # Errors
    /// As [`RuntimeDir::open_if_claimed`].
    pub fn has_draining_process(path: &Path) -> io::Result<bool> {
        is_locked_by(&path.join(USERS_LOCK_FILE), File::try_lock)
    }

    /// Locks the pid file and writes this process's id to it. Returns false if another process
    /// holds the lock, because it serves from this directory.
    pub fn claim(&mut self) -> io::Result<bool> {
        if self.pid_file.is_some() {
            return Ok(true);
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(self.pid_file_path())?;
        let last_attempt = Instant::now() + PROBE_TIMEOUT;
        while !try_lock(&file)? {
            // A command that looks whether a process serves holds the lock for a moment.
            if Instant::now() >= last_attempt {
                return Ok(false);
            }
            std::thread::sleep(PROBE_TIMEOUT / 50);
        }
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let users_lock = options.open(self.path.join(USERS_LOCK_FILE))?;
        // Commands hold the other lock for a moment only.
        users_lock.lock_shared()?;
        self.users_lock = Some(users_lock);
        self.pid_file = Some(file);
        self.is_claimed_by_this_process.store(true, Ordering::Release);
        Ok(true)
    }

    /// Lets another process claim the directory.
    pub fn release(&mut self) {
        self.is_claimed_by_this_process.store(false, Ordering::Release);
        if let Some(file) = self.pid_file.take() {
            // An empty pid file means that no process serves.
            let _ = file.set_len(0);
        }
    }

    /// Returns true if a process serves from this directory.
    pub fn is_claimed(&self) -> bool {
        let file = OpenOptions::new().read(true).open(self.pid_file_path());
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Returns the file that names the store of the process that serves from this directory.
    pub fn served_store_file(&self) -> ServedStoreFile {
        let is_claimed = Arc::clone(&self.is_claimed_by_this_process);
        ServedStoreFile::new(self.path.join(SERVED_STORE_FILE), is_claimed)
    }

    /// Reads which store the process serves that serves from this directory.
    pub fn read_served_store(&self) -> Option<ServedStore> {
        ServedStore::read(&self.path.join(SERVED_STORE_FILE)).ok()
    }

    fn pid_file_path(&self) -> PathBuf {
        self.path.join("riskgate.pid")
    }

    /// Opens the upgrade socket, as the successor. Only one successor can wait at a time.
    pub fn bind_upgrade_socket(&self) -> io::Result<SuccessorSocket> {
        let path = self.upgrade_socket_path();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(self.path.join("successor.lock"))?;
        if !try_lock(&lock)? {
            return Err(io::Error::other("another waiting successor"));
        }
        // A successor that died may have left its socket behind.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(SuccessorSocket { listener, path, _lock: lock })
    }

    /// Sends the sockets to the waiting successor. After `Ok`, the successor accepts connections
    /// and this process should stop. After an error, this process keeps the directory and should
    /// keep serving. `is_cancelled` is polled until the successor replies.
    pub fn transfer_sockets(
        &mut self,
        sockets: &[(&str, OwnedFd)],
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let mut successor = UnixStream::connect(self.upgrade_socket_path())
            .map_err(|_| io::Error::other("no successor is waiting"))?;
        successor.set_write_timeout(Some(REPLY_TIMEOUT))?;
        send_fds(&successor, sockets)?;
        read_expected_message(&mut successor, ACCEPTING_MESSAGE, is_cancelled)?;
        self.release();
        successor.write_all(RUNTIME_DIR_RELEASED_MESSAGE).inspect_err(|_| {
            // The successor has died after all, so this process keeps serving.
            let _ = self.claim();
        })
    }

    fn upgrade_socket_path(&self) -> PathBuf {
        self.path.join("successor.sock")
    }
}

/// Returns true if another process holds a lock on the file that excludes this one.
fn is_locked_by(
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

/// Locks a file. Returns false if another process holds the lock. Not every file system has locks.
fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => {
            let expected = "expected a file system on which files can be locked";
            Err(io::Error::other(format!("{expected}, but found: {error}")))
        }
    }
}

/// The socket at which a successor waits for the serving process.
pub struct SuccessorSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Locked while this successor waits, so that a second one is refused.
    _lock: File,
}

impl Drop for SuccessorSocket {
    fn drop(&mut self) {
        // If it can't be removed, connecting to it fails, which does no harm.
        let _ = fs::remove_file(&self.path);
    }
}

impl SuccessorSocket {
    /// Waits for the predecessor and receives its sockets. Returns None if the predecessor ends
    /// without connecting.
    pub fn receive_sockets(self, runtime_dir: &RuntimeDir) -> io::Result<Option<InheritedSockets>> {
        let stream = loop {
            match self.listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !runtime_dir.is_claimed() {
                        return Ok(None);
                    }
                    std::thread::sleep(STOP_CHECK_INTERVAL);
                }
                Err(error) => return Err(error),
            }
        };
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        let sockets = receive_fds(&stream)?;
        let sockets = sockets.into_iter().map(|(name, fd)| (name, TcpListener::from(fd)));
        Ok(Some((sockets.collect(), Predecessor(stream))))
    }
}

/// Sockets by name, and the process that sent them.
pub type InheritedSockets = (Vec<(String, TcpListener)>, Predecessor);

/// The connection to the serving process, which this process is about to replace.
pub struct Predecessor(UnixStream);

impl Predecessor {
    /// Tells the predecessor that this process accepts connections. Returns `Ok` once the
    /// predecessor has released the runtime directory or has ended.
    pub fn confirm_accepting(mut self, runtime_dir: &RuntimeDir) -> io::Result<()> {
        let reply = self.0.write_all(ACCEPTING_MESSAGE).and_then(|()| {
            read_expected_message(&mut self.0, RUNTIME_DIR_RELEASED_MESSAGE, &|| false)
        });
        let started = Instant::now();
        // If the predecessor has died, the kernel unlocks its pid file a moment later.
        while reply.is_err() && started.elapsed() < 5 * STOP_CHECK_INTERVAL {
            if !runtime_dir.is_claimed() {
                return Ok(());
            }
            std::thread::sleep(STOP_CHECK_INTERVAL);
        }
        reply
    }
}

/// Reads `message`. Fails if other bytes arrive, if nothing arrives for [`REPLY_TIMEOUT`], or once
/// `is_cancelled` returns true.
fn read_expected_message(
    stream: &mut UnixStream,
    message: &[u8],
    is_cancelled: &dyn Fn() -> bool,
) -> io::Result<()> {
    let (started, mut received) = (Instant::now(), 0);
    let mut bytes = vec![0; message.len()];
    stream.set_read_timeout(Some(STOP_CHECK_INTERVAL))?;
    while received < message.len() {
        match stream.read(&mut bytes[received..]) {
            Ok(0) => return Err(io::Error::other("the other process has left")),
            Ok(read) => received += read,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock) => {
                if is_cancelled() {
                    return Err(io::Error::other("SIGTERM came first"));
                }
                if started.elapsed() > REPLY_TIMEOUT {
                    return Err(io::Error::other("the other process sent nothing for 30 s"));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if bytes == message { Ok(()) } else { Err(io::Error::other("another message than expected")) }
}

/// Sends the sockets and their names, one per line, in one message.
fn send_fds(stream: &UnixStream, sockets: &[(&str, OwnedFd)]) -> io::Result<()> {
    let names: String = sockets.iter().map(|(name, _)| format!("{name}\n")).collect();
    let fds: Vec<_> = sockets.iter().map(|(_, fd)| fd.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("more sockets than can be transferred"));
    }
    let sent =
        sendmsg(stream, &[IoSlice::new(names.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent == names.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives what [`send_fds`] sent: the sockets by name.
fn receive_fds(stream: &UnixStream) -> io::Result<Vec<(String, OwnedFd)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut text = [0; 1024];
    let message = recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut text)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let names = String::from_utf8_lossy(&text[..message.bytes]).into_owned();
    let names: Vec<&str> = names.lines().collect();
    if names.is_empty() || names.len() != fds.len() {
        return Err(io::Error::other("no sockets, or not as many as names"));
    }
    Ok(names.into_iter().map(str::to_owned).zip(fds).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_another_user_finds_the_process_that_serves() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        assert!(RuntimeDir::open_if_claimed(&path).unwrap().is_none());
        let mut serving = RuntimeDir::open(&path).unwrap();
        assert!(RuntimeDir::open_if_claimed(&path).unwrap().is_none());
        assert!(serving.claim().unwrap());
        // A directory that this user would not serve from.
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        assert!(RuntimeDir::open(&path).is_err());
        assert!(RuntimeDir::open_if_claimed(&path).unwrap().is_some());
        serving.release();
        assert!(RuntimeDir::open_if_claimed(&path).unwrap().is_none());
    }

    #[test]
    fn a_command_that_looks_for_a_process_keeps_none_from_serving() {
        let folder = tempfile::tempdir().unwrap();
        let mut serving = RuntimeDir::open(folder.path()).unwrap();
        let pid_file = File::create(serving.pid_file_path()).unwrap();
        pid_file.try_lock_shared().unwrap();
        let looks = std::thread::spawn(move || {
            std::thread::sleep(PROBE_TIMEOUT / 20);
            drop(pid_file);
        });
        assert!(serving.claim().unwrap());
        looks.join().unwrap();
    }

    #[test]
    fn a_failed_transfer_keeps_the_directory_claimed_and_a_later_one_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut serving = RuntimeDir::open(folder.path()).unwrap();
        assert!(serving.claim().unwrap() && serving.is_claimed());
        let sockets = || [("http", OwnedFd::from(listener.try_clone().unwrap()))];
        assert!(serving.transfer_sockets(&sockets(), &|| false).is_err(), "no successor waits");

        let path = folder.path().to_owned();
        let successor = RuntimeDir::open(&path).unwrap();
        let upgrade_socket = successor.bind_upgrade_socket().unwrap();
        assert!(successor.bind_upgrade_socket().is_err(), "one successor waits already");
        let leaves =
            std::thread::spawn(move || drop(upgrade_socket.receive_sockets(&successor).unwrap()));
        assert!(serving.transfer_sockets(&sockets(), &|| false).is_err(), "the successor left");
        assert!(serving.is_claimed());
        leaves.join().unwrap();

        let successor = RuntimeDir::open(&path).unwrap();
        let upgrade_socket = successor.bind_upgrade_socket().unwrap();
        let stays = std::thread::spawn(move || {
            let (mut sockets, predecessor) =
                upgrade_socket.receive_sockets(&successor).unwrap().unwrap();
            predecessor.confirm_accepting(&successor).unwrap();
            sockets.remove(0)
        });
        serving.transfer_sockets(&sockets(), &|| false).unwrap();
        let (name, received) = stays.join().unwrap();
        assert_eq!((name.as_str(), received.local_addr().unwrap()), ("http", address));
        let mut successor = RuntimeDir::open(&path).unwrap();
        assert!(!successor.is_claimed() && successor.claim().unwrap());
    }

    #[test]
    fn a_successor_may_serve_after_its_predecessor_died_before_or_after_connecting() {
        let folder = tempfile::tempdir().unwrap();
        let mut serving = RuntimeDir::open(folder.path()).unwrap();
        assert!(serving.claim().unwrap());
        let path = folder.path().to_owned();
        let waiting = || {
            let successor = RuntimeDir::open(&path).unwrap();
            let upgrade_socket = successor.bind_upgrade_socket().unwrap();
            std::thread::spawn(move || match upgrade_socket.receive_sockets(&successor).unwrap() {
                None => "the predecessor did not connect",
                Some((_, predecessor)) => match predecessor.confirm_accepting(&successor) {
                    Ok(()) => "the predecessor has ended",
                    Err(_) => "the predecessor keeps serving",
                },
            })
        };
        // The predecessor dies before its final message.
        let waits = waiting();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = UnixStream::connect(folder.path().join("successor.sock")).unwrap();
        send_fds(&stream, &[("http", OwnedFd::from(listener))]).unwrap();
        (&stream).read_exact(&mut [0; ACCEPTING_MESSAGE.len()]).unwrap();
        drop((stream, serving));
        assert_eq!(waits.join().unwrap(), "the predecessor has ended");
        // The predecessor dies before it connects.
        let mut serving = RuntimeDir::open(folder.path()).unwrap();
        assert!(serving.claim().unwrap());
        let waits = waiting();
        drop(serving);
        assert_eq!(waits.join().unwrap(), "the predecessor did not connect");
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(RuntimeDir::open(folder.path()).is_err());
    }
}
