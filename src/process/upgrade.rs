//! Handing the listening sockets over to a successor, and the directory where both meet.
//!
//! The successor waits at a socket in a private directory; the process that serves gives it the
//! listeners, waits until it accepts on them, and says goodbye. Until the goodbye either side can
//! fail and the one that served goes on serving. No connection is refused: the kernel keeps them
//! with the socket, whoever holds it.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// How long either side waits for the other's next word.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// How often who waits looks whether it should.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The most sockets that are handed over.
const MAX_SOCKETS: usize = 8;
const ACCEPTING_MESSAGE: &[u8] = b"accepting\n";
const RELEASED_MESSAGE: &[u8] = b"released\n";

/// The process's directory: for its owner only, with its pid and the socket of a successor.
#[derive(Debug)]
pub struct RuntimeDir {
    path: PathBuf,
    /// Held, and locked, by the process that serves from here.
    pid_file: Option<File>,
}

impl RuntimeDir {
    /// Opens the directory, and makes it if it is not there.
    pub fn open(path: &Path) -> io::Result<RuntimeDir> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        // Not what a link leads to: who made the link could make it lead elsewhere.
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
        Ok(RuntimeDir { path: path.to_owned(), pid_file: None })
    }

    /// Writes the pid down; `false` if another process serves from here.
    pub fn claim(&mut self) -> io::Result<bool> {
        if self.pid_file.is_some() {
            return Ok(true);
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(self.path.join("riskgate.pid"))?;
        if file.try_lock().is_err() {
            return Ok(false);
        }
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        self.pid_file = Some(file);
        Ok(true)
    }

    /// Lets another process claim the directory.
    pub fn release(&mut self) {
        if let Some(file) = self.pid_file.take() {
            // An empty file says that nobody serves.
            let _ = file.set_len(0);
        }
    }

    /// Whether a process serves from here.
    pub fn is_claimed(&self) -> bool {
        let file = OpenOptions::new().read(true).open(self.path.join("riskgate.pid"));
        file.is_ok_and(|file| file.try_lock_shared().is_err())
    }

    /// Opens the meeting place, as a successor; there can be one at a time.
    pub fn bind_upgrade_socket(&self) -> io::Result<UpgradeSocket> {
        let path = self.socket_path();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(self.path.join("successor.lock"))?;
        if lock.try_lock().is_err() {
            return Err(io::Error::other("another waiting successor"));
        }
        // One that was left behind by a process that died.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(UpgradeSocket { listener, path, _lock: lock })
    }

    /// Gives the sockets to a successor, if one is in place and takes over; an error says why
    /// not, and that nothing has changed. This process should stop accepting then.
    /// `gives_up` is asked while there is no answer.
    pub fn transfer_sockets(
        &mut self,
        sockets: &[(&str, OwnedFd)],
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let mut successor = UnixStream::connect(self.socket_path())
            .map_err(|_| io::Error::other("no successor is waiting"))?;
        successor.set_write_timeout(Some(REPLY_TIMEOUT))?;
        send_fds(&successor, sockets)?;
        expect_message(&mut successor, ACCEPTING_MESSAGE, is_cancelled)?;
        self.release();
        successor.write_all(RELEASED_MESSAGE).inspect_err(|_| {
            // It has left after all: we are the one who serves.
            let _ = self.claim();
        })
    }

    fn socket_path(&self) -> PathBuf {
        self.path.join("successor.sock")
    }
}

/// Where a successor waits for the process that serves.
pub struct UpgradeSocket {
    listener: UnixListener,
    path: PathBuf,
    _lock: File,
}

impl Drop for UpgradeSocket {
    fn drop(&mut self) {
        // A socket that stays behind answers nobody.
        let _ = fs::remove_file(&self.path);
    }
}

impl UpgradeSocket {
    /// Waits until the predecessor comes, and takes its sockets, by their names; nothing if it
    /// ends without having come.
    pub fn receive_sockets(self, folder: &RuntimeDir) -> io::Result<Option<InheritedSockets>> {
        let stream = loop {
            match self.listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !folder.is_claimed() {
                        return Ok(None);
                    }
                    std::thread::sleep(POLL_INTERVAL);
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

/// Sockets by their names, and the process that they come from.
pub type InheritedSockets = (Vec<(String, TcpListener)>, Predecessor);

/// The process that served before, until it has said goodbye.
pub struct Predecessor(UnixStream);

impl Predecessor {
    /// Tells that this process accepts; `Ok` once the other one has said goodbye, or is no more.
    pub fn confirm_accepting(mut self, folder: &RuntimeDir) -> io::Result<()> {
        let reply = self
            .0
            .write_all(ACCEPTING_MESSAGE)
            .and_then(|()| expect_message(&mut self.0, RELEASED_MESSAGE, &|| false));
        let begun = Instant::now();
        // What it held is free a moment after its words end.
        while reply.is_err() && begun.elapsed() < 5 * POLL_INTERVAL {
            if !folder.is_claimed() {
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        reply
    }
}

fn expect_message(
    stream: &mut UnixStream,
    message: &[u8],
    is_cancelled: &dyn Fn() -> bool,
) -> io::Result<()> {
    let (begun, mut heard) = (Instant::now(), 0);
    let mut bytes = vec![0; message.len()];
    stream.set_read_timeout(Some(POLL_INTERVAL))?;
    while heard < message.len() {
        match stream.read(&mut bytes[heard..]) {
            Ok(0) => return Err(io::Error::other("the other process has left")),
            Ok(read) => heard += read,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock) => {
                if is_cancelled() {
                    return Err(io::Error::other("SIGTERM came first"));
                }
                if begun.elapsed() > REPLY_TIMEOUT {
                    return Err(io::Error::other("the other process sent nothing for 30 s"));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if bytes == message { Ok(()) } else { Err(io::Error::other("another message than expected")) }
}

/// Sends the sockets with their names, one name a line, in one message.
fn send_fds(stream: &UnixStream, sockets: &[(&str, OwnedFd)]) -> io::Result<()> {
    let names: String = sockets.iter().map(|(name, _)| format!("{name}\n")).collect();
    let fds: Vec<_> = sockets.iter().map(|(_, fd)| fd.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("more sockets than can be handed over"));
    }
    let sent =
        sendmsg(stream, &[IoSlice::new(names.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent == names.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

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
    fn sockets_are_transferred_and_either_side_may_fail_until_the_last_message() {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut serving = RuntimeDir::open(folder.path()).unwrap();
        assert!(serving.claim().unwrap() && serving.is_claimed());
        let sockets = || [("http", OwnedFd::from(listener.try_clone().unwrap()))];
        assert!(serving.transfer_sockets(&sockets(), &|| false).is_err(), "nobody is there");

        let path = folder.path().to_owned();
        let successor = RuntimeDir::open(&path).unwrap();
        let meeting = successor.bind_upgrade_socket().unwrap();
        assert!(successor.bind_upgrade_socket().is_err(), "one is there");
        let leaves = std::thread::spawn(move || drop(meeting.receive_sockets(&successor).unwrap()));
        assert!(serving.transfer_sockets(&sockets(), &|| false).is_err(), "it left again");
        assert!(serving.is_claimed());
        leaves.join().unwrap();

        let successor = RuntimeDir::open(&path).unwrap();
        let meeting = successor.bind_upgrade_socket().unwrap();
        let stays = std::thread::spawn(move || {
            let (mut sockets, predecessor) = meeting.receive_sockets(&successor).unwrap().unwrap();
            predecessor.confirm_accepting(&successor).unwrap();
            sockets.remove(0)
        });
        serving.transfer_sockets(&sockets(), &|| false).unwrap();
        let (name, taken) = stays.join().unwrap();
        assert_eq!((name.as_str(), taken.local_addr().unwrap()), ("http", address));
        let mut successor = RuntimeDir::open(&path).unwrap();
        assert!(!successor.is_claimed() && successor.claim().unwrap());
    }

    #[test]
    fn a_successor_serves_if_its_predecessor_has_died() {
        let folder = tempfile::tempdir().unwrap();
        let mut serving = RuntimeDir::open(folder.path()).unwrap();
        assert!(serving.claim().unwrap());
        let path = folder.path().to_owned();
        let waiting = || {
            let successor = RuntimeDir::open(&path).unwrap();
            let meeting = successor.bind_upgrade_socket().unwrap();
            std::thread::spawn(move || match meeting.receive_sockets(&successor).unwrap() {
                None => "nobody came",
                Some((_, predecessor)) => match predecessor.confirm_accepting(&successor) {
                    Ok(()) => "it is no more",
                    Err(_) => "it serves on",
                },
            })
        };
        // It dies before its goodbye: what it held is free.
        let waits = waiting();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = UnixStream::connect(folder.path().join("successor.sock")).unwrap();
        send_fds(&stream, &[("http", OwnedFd::from(listener))]).unwrap();
        (&stream).read_exact(&mut [0; ACCEPTING_MESSAGE.len()]).unwrap();
        drop((stream, serving));
        assert_eq!(waits.join().unwrap(), "it is no more");
        // It dies before it comes.
        let mut serving = RuntimeDir::open(folder.path()).unwrap();
        assert!(serving.claim().unwrap());
        let waits = waiting();
        drop(serving);
        assert_eq!(waits.join().unwrap(), "nobody came");
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(RuntimeDir::open(folder.path()).is_err());
    }
}
