//! Files that others put in place: read only if they are regular, and no larger than they may be.
//!
//! A FIFO or a device never keeps the caller waiting, whenever it was put there. What is read is
//! not looked at. Also whether a folder takes files.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

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
    let kind = metadata.file_type();
    if !kind.is_file() {
        return Err(Unreadable::Kind(match kind {
            kind if kind.is_dir() => "a folder",
            kind if kind.is_fifo() => "a FIFO",
            kind if kind.is_socket() => "a socket",
            _ => "a device",
        }));
    }
    match metadata.len() {
        length if length > most => Err(Unreadable::TooLarge { most, found: length }),
        length => Ok((file, length)),
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

/// Whether files can be made in a folder: one is made and removed, since rights alone do not tell.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    let probe = folder.join(format!(".riskgate-check-{}", std::process::id()));
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&probe)?;
    std::fs::remove_file(probe)
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
