//! Files that others put in place: read only if they are regular, and no larger than they may be.
//!
//! A FIFO or a device never keeps the caller waiting, whenever it was put there. What is read is
//! not looked at. Also whether a directory takes files, and where a new file would be made.

use std::fs::{File, FileType, OpenOptions};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The system follows no more links than these for one path.
const MAX_SYMLINKS: usize = 40;

/// Why a file was not read: what was found in its place.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Nothing, or what can't be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Something that is no regular file.
    #[error("{0}")]
    NotRegular(&'static str),
    /// More bytes than there may be.
    #[error("{found} bytes, more than {max}")]
    TooLarge {
        /// As many there may be.
        max: u64,
        /// As many there are, at least.
        found: u64,
    },
}

/// Opens a regular file of at most `most` bytes; and its length.
pub fn open_regular_file(path: &Path, most: u64) -> Result<(File, u64), ReadError> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if let Some(kind) = non_regular_kind(metadata.file_type()) {
        return Err(ReadError::NotRegular(kind));
    }
    match metadata.len() {
        length if length > most => Err(ReadError::TooLarge { max: most, found: length }),
        length => Ok((file, length)),
    }
}

/// What something is that is no regular file.
pub fn non_regular_kind(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a directory"),
        kind if kind.is_fifo() => Some("a FIFO"),
        kind if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}

/// Reads a whole regular file of at most `most` bytes, also if it grows meanwhile.
pub fn read_regular_file(path: &Path, most: u64) -> Result<Vec<u8>, ReadError> {
    let (file, length) = open_regular_file(path, most)?;
    let mut bytes = Vec::new();
    // That there is not so much memory must end no process.
    bytes.try_reserve_exact(usize::try_from(length).unwrap_or(0)).map_err(io::Error::from)?;
    file.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        found if found > most => Err(ReadError::TooLarge { max: most, found }),
        _ => Ok(bytes),
    }
}

/// The same for a text in UTF-8.
pub fn read_regular_text(path: &Path, most: u64) -> Result<String, ReadError> {
    let bytes = read_regular_file(path, most)?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
        ReadError::Io(io::Error::other(format!("no UTF-8 in line {line}")))
    })
}

/// The directory that a path lies in.
pub fn parent_dir(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Where opening a path would make a file, if nothing is there: at the end of its links.
pub fn follow_symlinks(path: &Path) -> PathBuf {
    let mut end = path.to_owned();
    for _ in 0..MAX_SYMLINKS {
        let Ok(target) = std::fs::read_link(&end) else { break };
        end = parent_dir(&end).join(target);
    }
    end
}

/// Whether opening a path that leads to nothing would make a file.
pub fn check_creatable(path: &Path) -> io::Result<()> {
    let end = follow_symlinks(path);
    match end.as_os_str().as_bytes().ends_with(b"/") {
        true => Err(ErrorKind::IsADirectory.into()),
        false => check_dir_writable(parent_dir(&end)),
    }
}

/// Whether two paths lead to one file, also where none is yet.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    match (std::fs::metadata(one), std::fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => {
            let end = |path: &Path| {
                let end = follow_symlinks(path);
                parent_dir(&end)
                    .canonicalize()
                    .map(|folder| folder.join(end.file_name().unwrap_or_default()))
            };
            matches!((end(one), end(other)), (Ok(one), Ok(other)) if one == other)
        }
        _ => false,
    }
}

/// Gives a new file the rights and the owner of the one at `path` that it will replace: whoever
/// could read that one can read it. The owner stays as it is where it can't be changed.
fn copy_owner_and_mode(path: &Path, file: &File) -> io::Result<()> {
    let Ok(before) = std::fs::metadata(path) else { return Ok(()) };
    let _ = std::os::unix::fs::fchown(file, Some(before.uid()), Some(before.gid()));
    file.set_permissions(before.permissions())
}

/// Writes a file beside the path, then puts it in its place: a reader sees the old file or the new
/// one, also after a power cut. Whatever goes wrong, nothing half-written stays behind.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = parent_dir(path);
    let random = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
    let mut beside = path.file_name().unwrap_or_default().to_owned();
    beside.push(format!(".{random:016x}.new"));
    let beside = folder.join(beside);
    let written = File::create_new(&beside)
        .and_then(|file| copy_owner_and_mode(path, &file).map(|()| file))
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&beside, path))
        .and_then(|()| File::open(folder)?.sync_all());
    if written.is_err() {
        _ = std::fs::remove_file(&beside);
    }
    written
}

/// Whether files can be made in a directory: one is made, since rights alone do not tell. It has no
/// name, so that nothing is left of it; where a file system knows no such files, it is removed.
pub fn check_dir_writable(folder: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    match options.clone().custom_flags(libc::O_TMPFILE).open(folder) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {}
        outcome => return outcome.map(drop),
    }
    // Processes in containers share their ids, so the name is drawn.
    let drawn = RandomState::new().build_hasher().finish();
    let probe = folder.join(format!(".riskgate-check-{drawn:016x}"));
    match options.create_new(true).open(&probe) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome.and_then(|_| std::fs::remove_file(probe)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn irregular_or_large_files_are_reported_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let said = |name: &str| read_regular_text(&at(name), 10).map_err(|e| e.to_string());
        std::fs::write(at("good"), "0123456789").unwrap();
        assert_eq!(said("good").as_deref(), Ok("0123456789"));
        std::fs::write(at("large"), "0123456789a").unwrap();
        assert_eq!(said("large").unwrap_err(), "11 bytes, more than 10");
        std::fs::write(at("bytes"), b"a\nb\xff").unwrap();
        assert_eq!(said("bytes").unwrap_err(), "no UTF-8 in line 2");
        std::fs::create_dir(at("directory")).unwrap();
        assert_eq!(said("directory").unwrap_err(), "a directory");
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(made.success());
        assert_eq!(said("pipe").unwrap_err(), "a FIFO");
        assert!(said("none").unwrap_err().contains("No such file"));
    }
}
