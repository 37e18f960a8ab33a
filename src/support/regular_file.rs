//! Files that others put in place: read only if they are regular, and no larger than they may be.
//!
//! A FIFO or a device never keeps the caller waiting, whenever it was put there. What is read is
//! not looked at. Also whether a folder takes files, and where a new file would be made.

use std::fs::{File, FileType, OpenOptions};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The system follows no more links than these for one path.
const MOST_LINKS: usize = 40;

/// Why a file was not read: what was found in its place.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Nothing, or what can't be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Something that is no regular file.
    #[error("{0}")]
    Kind(&'static str),
    /// More bytes than there may be.
    #[error("{found} bytes, more than {most}")]
    TooLarge {
        /// As many there may be.
        most: u64,
        /// As many there are, at least.
        found: u64,
    },
}

/// Opens a regular file of at most `most` bytes; and its length.
pub fn open_regular(path: &Path, most: u64) -> Result<(File, u64), Unreadable> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if let Some(kind) = other_kind(metadata.file_type()) {
        return Err(Unreadable::Kind(kind));
    }
    match metadata.len() {
        length if length > most => Err(Unreadable::TooLarge { most, found: length }),
        length => Ok((file, length)),
    }
}

/// What something is that is no regular file.
pub fn other_kind(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a folder"),
        kind if kind.is_fifo() => Some("a FIFO"),
        kind if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}

/// Reads a whole regular file of at most `most` bytes, also if it grows meanwhile.
pub fn read_regular(path: &Path, most: u64) -> Result<Vec<u8>, Unreadable> {
    let (file, length) = open_regular(path, most)?;
    let mut bytes = Vec::new();
    // That there is not so much memory must end no process.
    bytes.try_reserve_exact(usize::try_from(length).unwrap_or(0)).map_err(io::Error::from)?;
    file.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        found if found > most => Err(Unreadable::TooLarge { most, found }),
        _ => Ok(bytes),
    }
}

/// The same for a text in UTF-8.
pub fn read_regular_text(path: &Path, most: u64) -> Result<String, Unreadable> {
    let bytes = read_regular(path, most)?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
        Unreadable::Io(io::Error::other(format!("no UTF-8 in line {line}")))
    })
}

/// The folder that a path lies in.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Where opening a path would make a file, if nothing is there: at the end of its links.
pub fn end_of_links(path: &Path) -> PathBuf {
    let mut place = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(target) = std::fs::read_link(&place) else { break };
        place = folder_of(&place).join(target);
    }
    place
}

/// Whether opening a path that leads to nothing would make a file.
pub fn check_new_file(path: &Path) -> io::Result<()> {
    let place = end_of_links(path);
    match place.as_os_str().as_bytes().ends_with(b"/") {
        true => Err(ErrorKind::IsADirectory.into()),
        false => check_folder(folder_of(&place)),
    }
}

/// Whether two paths lead to one file, also where none is yet.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    match (std::fs::metadata(one), std::fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => {
            let place = |path: &Path| {
                let end = end_of_links(path);
                folder_of(&end)
                    .canonicalize()
                    .map(|folder| folder.join(end.file_name().unwrap_or_default()))
            };
            matches!((place(one), place(other)), (Ok(one), Ok(other)) if one == other)
        }
        _ => false,
    }
}

/// Gives a new file the rights and the owner of the one at `path` that it will replace: whoever
/// could read that one can read it. The owner stays as it is where it can't be changed.
fn keep_rights(path: &Path, file: &File) -> io::Result<()> {
    let Ok(before) = std::fs::metadata(path) else { return Ok(()) };
    let _ = std::os::unix::fs::fchown(file, Some(before.uid()), Some(before.gid()));
    file.set_permissions(before.permissions())
}

/// Writes a file beside the path, then puts it in its place: a reader sees the old file or the new
/// one, also after a power cut. Whatever goes wrong, nothing half-written stays behind.
pub fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = folder_of(path);
    let random = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
    let mut beside = path.file_name().unwrap_or_default().to_owned();
    beside.push(format!(".{random:016x}.new"));
    let beside = folder.join(beside);
    let written = File::create_new(&beside)
        .and_then(|file| keep_rights(path, &file).map(|()| file))
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&beside, path))
        .and_then(|()| File::open(folder)?.sync_all());
    if written.is_err() {
        _ = std::fs::remove_file(&beside);
    }
    written
}

/// Whether files can be made in a folder: one is made, since rights alone do not tell. It has no
/// name, so that nothing is left of it; where a file system knows no such files, it is removed.
pub fn check_folder(folder: &Path) -> io::Result<()> {
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
    fn what_is_no_regular_file_or_too_large_is_told_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let said = |name: &str| read_regular_text(&at(name), 10).map_err(|e| e.to_string());
        std::fs::write(at("good"), "0123456789").unwrap();
        assert_eq!(said("good").as_deref(), Ok("0123456789"));
        std::fs::write(at("large"), "0123456789a").unwrap();
        assert_eq!(said("large").unwrap_err(), "11 bytes, more than 10");
        std::fs::write(at("bytes"), b"a\nb\xff").unwrap();
        assert_eq!(said("bytes").unwrap_err(), "no UTF-8 in line 2");
        std::fs::create_dir(at("folder")).unwrap();
        assert_eq!(said("folder").unwrap_err(), "a folder");
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(made.success());
        assert_eq!(said("pipe").unwrap_err(), "a FIFO");
        assert!(said("none").unwrap_err().contains("No such file"));
    }
}
