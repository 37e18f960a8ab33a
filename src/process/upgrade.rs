//! Transfers the listening sockets to a successor process.
//!
//! The successor listens on a Unix socket in the runtime directory. The old process sends its
//! listening sockets to this socket, waits until the successor accepts connections, and then sends
//! a final message. If the successor fails before the final message, the old process keeps serving.
//! If the old process ends, the successor serves. No client is refused: the kernel queues the
//! client's connection as long as one of the two processes has the listening socket open.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::process::runtime_dir::{RuntimeDir, try_lock};

/// Once the two processes are connected: how long each waits for the next message of the other.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a waiting process checks whether it should stop waiting.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// The most sockets that can be transferred.
const MAX_SOCKETS: usize = 8;
/// The message by which the successor says that it accepts connections.
const ACCEPTING_MESSAGE: &[u8] = b"accepting\n";
/// The final message of the old process: the successor may claim the runtime directory.
const RUNTIME_DIR_RELEASED_MESSAGE: &[u8] = b"released\n";

/// Sends the sockets to the successor that waits at the runtime directory. Asks `is_cancelled`
/// again and again until the successor replies.
///
/// After `Ok`, the successor accepts connections, and this process has released the directory and
/// should stop. After an error, this process should keep serving. If the error came after the
/// release, this process has tried to claim the directory again.
pub fn transfer_sockets(
    runtime_dir: &mut RuntimeDir,
    sockets: &[(String, TcpListener)],
    is_cancelled: &dyn Fn() -> bool,
) -> io::Result<()> {
    let mut successor = UnixStream::connect(runtime_dir.upgrade_socket_path())
        .map_err(|_| io::Error::other("no successor is waiting"))?;
    successor.set_write_timeout(Some(REPLY_TIMEOUT))?;
    send_fds(&successor, sockets)?;
    read_expected_message(&mut successor, ACCEPTING_MESSAGE, is_cancelled)?;
    runtime_dir.release();
    successor.write_all(RUNTIME_DIR_RELEASED_MESSAGE).inspect_err(|_| {
        // The successor has died after all, so this process keeps serving.
        let _ = runtime_dir.claim();
    })
}

/// The Unix socket at which a successor waits for the serving process.
pub struct UpgradeSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Locked while this successor waits, so that a second successor is refused.
    _lock: File,
}

impl Drop for UpgradeSocket {
    fn drop(&mut self) {
        // If the file stays, a process that connects to it gets an error: no harm is done.
        let _ = fs::remove_file(&self.path);
    }
}

impl UpgradeSocket {
    /// Binds the upgrade socket in the runtime directory, as the successor.
    ///
    /// # Errors
    /// If another successor waits already, or if the system refuses a file, a lock or the socket.
    pub fn bind(runtime_dir: &RuntimeDir) -> io::Result<UpgradeSocket> {
        let path = runtime_dir.upgrade_socket_path();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(runtime_dir.path().join("successor.lock"))?;
        if !try_lock(&lock)? {
            return Err(io::Error::other("another waiting successor"));
        }
        // A successor that died may have left its socket behind.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(UpgradeSocket { listener, path, _lock: lock })
    }

    /// Waits for the predecessor and receives its sockets. Returns `None` if the predecessor
    /// releases the runtime directory, for example by its end, without connecting.
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
        Ok(Some((sockets.collect(), PredecessorConnection(stream))))
    }
}

/// Sockets by name, and the connection to the process that sent the sockets.
pub type InheritedSockets = (Vec<(String, TcpListener)>, PredecessorConnection);

/// The connection to the serving process, which this process is about to replace.
pub struct PredecessorConnection(UnixStream);

impl PredecessorConnection {
    /// Tells the predecessor that this process accepts connections. Returns `Ok` once the
    /// predecessor has released the runtime directory or has ended. Fails if neither happens in
    /// time.
    pub fn confirm_accepting(mut self, runtime_dir: &RuntimeDir) -> io::Result<()> {
        let reply = self.0.write_all(ACCEPTING_MESSAGE).and_then(|()| {
            read_expected_message(&mut self.0, RUNTIME_DIR_RELEASED_MESSAGE, &|| false)
        });
        let started = Instant::now();
        // If the predecessor has died, the kernel unlocks the pid file a moment later.
        while reply.is_err() && started.elapsed() < 5 * STOP_CHECK_INTERVAL {
            if !runtime_dir.is_claimed() {
                return Ok(());
            }
            std::thread::sleep(STOP_CHECK_INTERVAL);
        }
        reply
    }
}

/// Reads `message`.
///
/// # Errors
/// - If other bytes arrive.
/// - If the other process closes the connection first.
/// - If the whole message has not arrived within [`REPLY_TIMEOUT`].
/// - If `is_cancelled` returns true while this process waits.
/// - If the system can't read from the connection.
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
                    return Err(io::Error::other("this process ends first"));
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

/// Sends the sockets in one message. The text of the message has one line for the name of each.
fn send_fds(stream: &UnixStream, sockets: &[(String, TcpListener)]) -> io::Result<()> {
    let names: String = sockets.iter().map(|(name, _)| format!("{name}\n")).collect();
    let fds: Vec<_> = sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("more sockets than can be transferred"));
    }
    let sent =
        sendmsg(stream, &[IoSlice::new(names.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent == names.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives the sockets that [`send_fds`] sent, each with its name.
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
mod tests;
