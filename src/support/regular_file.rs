//! Reads files that operators and other programs put in place: only regular files, and only up to a
//! maximum size. A FIFO or a device at the path never blocks the caller.
//!
//! This module also writes files atomically, locks files, and checks whether a file could be
//! created. It does not know what the files mean.

use std::fs::{File, FileType, OpenOptions, TryLockError};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::memory;

/// The most symbolic links that Linux follows for one path.
const MAX_SYMLINKS: usize = 40;
/// The largest file of certificates, of a key or of a password, in bytes.
const MAX_CREDENTIAL_BYTES: u64 = 1 << 20;
/// From this length on, a file is read only if memory is left for other threads too.
const LONG_FILE_BYTES: u64 = 1 << 20;
/// How often a lock is tried that another process holds.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Why a file was not read. The message says what was found instead.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file does not exist, can't be read, or is no text in UTF-8.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The path leads to something other than a regular file. The text names it: "a directory".
    #[error("{0}")]
    NotRegular(&'static str),
    /// The file is too large.
    #[error("{found} bytes, more than {max}")]
    TooLarge {
        /// The maximum size, in bytes.
        max: u64,
        /// The bytes that were found; the file may have more.
        found: u64,
    },
}

impl ReadError {
    /// Returns true if the system refused the read: the same file may be readable later without a
    /// change of it. Examples are a lack of descriptors or memory, a missing permission, and a
    /// network file system that does not answer. A missing file is another one, because its
    /// directory may be mounted again.
    pub fn is_transient(&self) -> bool {
        match self {
            ReadError::Io(error) => is_transient_io_error(error),
            ReadError::NotRegular(_) | ReadError::TooLarge { .. } => false,
        }
    }
}

/// See [`ReadError::is_transient`].
pub fn is_transient_io_error(error: &io::Error) -> bool {
    // What riskgate itself found in a file has no number of the system.
    error.raw_os_error().is_some() || error.kind() == ErrorKind::OutOfMemory
}

/// Opens a regular file of at most `max_bytes`. Returns the file and its length in bytes.
pub fn open_regular_file(path: &Path, max_bytes: u64) -> Result<(File, u64), ReadError> {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|error| match error.kind() {
        // Network and overlay file systems may not find a file for a moment, and a file may arrive
        // just now. If riskgate took the file for missing, it would drop what the file contains.
        ErrorKind::NotFound if path.exists() => io::Error::from_raw_os_error(libc::EAGAIN),
        _ => error,
    })?;
    let metadata = file.metadata()?;
    if let Some(kind) = non_regular_kind(metadata.file_type()) {
        return Err(ReadError::NotRegular(kind));
    }
    match metadata.len() {
        length if length > max_bytes => Err(ReadError::TooLarge { max: max_bytes, found: length }),
        length => Ok((file, length)),
    }
}

/// Names the type of a file that is not regular; `None` for a regular file.
pub fn non_regular_kind(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a directory"),
        kind if kind.is_fifo() => Some("a FIFO"),
        kind if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}

/// Reads a whole regular file of at most `max_bytes`. The limit also holds if the file grows during
/// the read.
pub fn read_regular_file(path: &Path, max_bytes: u64) -> Result<Vec<u8>, ReadError> {
    let (file, length) = open_regular_file(path, max_bytes)?;
    let mut bytes = Vec::new();
    // A failed allocation is an error here; it must not abort the process. A long file must leave
    // enough memory for the next allocations of other threads.
    let has_memory = length < LONG_FILE_BYTES || memory::check_available(length).is_ok();
    if !has_memory || bytes.try_reserve_exact(usize::try_from(length).unwrap_or(0)).is_err() {
        let found = format!("too little free memory for its {length} bytes");
        return Err(io::Error::new(io::ErrorKind::OutOfMemory, found).into());
    }
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        found if found > max_bytes => Err(ReadError::TooLarge { max: max_bytes, found }),
        _ => Ok(bytes),
    }
}

/// Reads a file of certificates, of a key or of a password, without a byte order mark.
pub fn read_credential_file(path: &Path) -> Result<Vec<u8>, ReadError> {
    read_regular_file(path, MAX_CREDENTIAL_BYTES).map(without_byte_order_mark)
}

/// Returns the bytes without the byte order mark of UTF-8, which some editors write.
fn without_byte_order_mark(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    bytes
}

/// Reads a regular file of at most `max_bytes` as UTF-8, without a byte order mark.
pub fn read_regular_text(path: &Path, max_bytes: u64) -> Result<String, ReadError> {
    decode_text(read_regular_file(path, max_bytes)?)
}

/// Returns bytes as a text, without a byte order mark. The error says in which line they are no
/// UTF-8.
pub fn decode_text(bytes: Vec<u8>) -> Result<String, ReadError> {
    // Editors of Windows write UTF-16 with one of these marks.
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(ReadError::Io(io::Error::other("UTF-16; save it as UTF-8")));
    }
    String::from_utf8(without_byte_order_mark(bytes)).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
        ReadError::Io(io::Error::other(format!("no UTF-8 in line {line}")))
    })
}

/// The directory that contains a path; `.` for a bare file name.
pub fn parent_dir(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Follows symbolic links to the place where opening `path` would create a file.
pub fn follow_symlinks(path: &Path) -> PathBuf {
    let mut end = path.to_owned();
    for _ in 0..MAX_SYMLINKS {
        let Ok(target) = std::fs::read_link(&end) else { break };
        end = parent_dir(&end).join(target);
    }
    end
}

/// Checks whether opening `path`, which does not exist, would create a file.
pub fn check_creatable(path: &Path) -> io::Result<()> {
    let end = follow_symlinks(path);
    match end.as_os_str().as_bytes().ends_with(b"/") {
        true => Err(ErrorKind::IsADirectory.into()),
        false => check_dir_writable(parent_dir(&end)),
    }
}

/// Locks a file, or a directory, that other processes lock too. Waits at most this long.
///
/// # Errors
/// With [`ErrorKind::TimedOut`] if another process holds the lock for longer, or with the error of
/// the system.
pub fn lock_within(file: &File, max_wait: Duration) -> io::Result<()> {
    let deadline = Instant::now() + max_wait;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                let found = format!("another process has held the lock for {max_wait:?}");
                return Err(io::Error::new(ErrorKind::TimedOut, found));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_RETRY_INTERVAL),
        }
    }
}

/// The device and inode of a file; `None` if there is no file, or if the system refuses to say.
pub fn file_identity(path: &Path) -> Option<(u64, u64)> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// The file to which a path leads. Paths with equal targets lead to the same file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathTarget {
    /// The device and inode of a file.
    File(u64, u64),
    /// The place in an existing folder where opening the path would create a file.
    Missing(PathBuf),
}

impl PathTarget {
    /// Returns the target of a path; `None` if neither its file nor the folder of its file exists.
    pub fn of(path: &Path) -> Option<PathTarget> {
        if let Some((device, inode)) = file_identity(path) {
            return Some(PathTarget::File(device, inode));
        }
        let end = follow_symlinks(path);
        let folder = parent_dir(&end).canonicalize().ok()?;
        Some(PathTarget::Missing(folder.join(end.file_name().unwrap_or_default())))
    }
}

/// Whether two paths lead to the same file. The file need not exist, but its folder must.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let target = PathTarget::of(one);
    target.is_some() && target == PathTarget::of(other)
}

/// Copies mode and owner of the file at `path`, if there is one, to the new file that will replace
/// it. So the same users can read the new file. If the owner can't be changed, the new file keeps
/// its own. The mode is set only if it differs, because some file systems have one mode for all
/// files and let nobody set it.
fn copy_owner_and_mode(path: &Path, file: &File) -> io::Result<()> {
    let Ok(before) = std::fs::metadata(path) else { return Ok(()) };
    let _ = std::os::unix::fs::fchown(file, Some(before.uid()), Some(before.gid()));
    match file.metadata()?.permissions() == before.permissions() {
        true => Ok(()),
        false => file.set_permissions(before.permissions()),
    }
}

/// Makes the names in a directory durable. On a file system that can't, the names are only as
/// durable as the file system makes them.
fn sync_dir(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
            Ok(())
        }
        outcome => outcome,
    }
}

/// Writes a temporary file in the same directory, and renames it to `path`. If `path` is a symbolic
/// link, replaces the file to which the link leads. A reader sees the old file or the new file,
/// also after a power failure. If writing fails, the temporary file is removed. If only the sync of
/// the directory fails, this function fails, but the new file stays.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let target = follow_symlinks(path);
    let (path, folder) = (target.as_path(), parent_dir(&target));
    let random = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
    let mut temp_name = path.file_name().unwrap_or_default().to_owned();
    temp_name.push(format!(".{random:016x}.new"));
    let temp_path = folder.join(temp_name);
    let written = File::create_new(&temp_path)
        .and_then(|file| copy_owner_and_mode(path, &file).map(|()| file))
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&temp_path, path))
        .and_then(|()| sync_dir(folder));
    if written.is_err() {
        _ = std::fs::remove_file(&temp_path);
    }
    written
}

/// Checks whether files can be created in a directory, by creating one, because permissions alone
/// don't show it. The file has no name (`O_TMPFILE`), so that nothing is left behind. Kernels and
/// file systems without such files answer with different errors. So after any error, the check
/// creates a file with a name, removes it, and returns the outcome of this second attempt.
pub fn check_dir_writable(folder: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    if options.clone().custom_flags(libc::O_TMPFILE).open(folder).is_ok() {
        return Ok(());
    }
    // A random name, because processes in different containers can have the same process id.
    let random = RandomState::new().build_hasher().finish();
    let probe = folder.join(format!(".riskgate-check-{random:016x}"));
    match options.create_new(true).open(&probe) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome.and_then(|_| std::fs::remove_file(probe)),
    }
}

#[cfg(test)]
mod tests;
