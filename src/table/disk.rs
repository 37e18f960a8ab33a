//! Bytes of a table in memory, and their way from and to the disk.
//!
//! What the bytes mean is not asked here.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::fault::Fault;
use super::lines::LINE;
use super::source::{MAX_COMPILED, unreadable};
use crate::regular_file::open_regular;

/// Bytes in memory that begin on a cache line, so that no hashed line lies on two.
///
/// A mapped file will be the second way to hold them; nothing but this type will notice.
pub(super) struct Bytes {
    buffer: Box<[u8]>,
    start: usize,
    length: usize,
}

impl Bytes {
    pub(super) fn zeroed(length: usize) -> Bytes {
        Bytes::within(vec![0; length + LINE], length)
    }

    /// As many as a file has, which may be none of ours: too little memory ends no process here.
    fn for_a_file(length: usize) -> io::Result<Bytes> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(length + LINE)?;
        buffer.resize(length + LINE, 0);
        Ok(Bytes::within(buffer, length))
    }

    fn within(buffer: Vec<u8>, length: usize) -> Bytes {
        let buffer = buffer.into_boxed_slice();
        let start = buffer.as_ptr().align_offset(LINE).min(LINE);
        Bytes { buffer, start, length }
    }

    pub(super) fn of(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.length]
    }

    pub(super) fn of_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.start + self.length]
    }
}

/// Reads a compiled file into memory.
pub(super) fn read(path: &Path) -> Result<Bytes, Fault> {
    let opened = open_regular(path, MAX_COMPILED);
    let (mut file, length) = opened.map_err(|found| unreadable(path, found))?;
    let mut bytes = Bytes::for_a_file(length as usize).map_err(|e| Fault::io(path, e))?;
    file.read_exact(bytes.of_mut()).map_err(|e| Fault::io(path, e))?;
    Ok(bytes)
}

/// Writes the bytes beside the path, then puts them in its place; a reader sees the old file or
/// the new one, also after a power cut.
pub(super) fn write(path: &Path, bytes: &Bytes) -> Result<(), Fault> {
    let Some(name) = path.file_name() else {
        let found = path.display().to_string();
        return Err(Fault::expected(found, "the path of a file", "a folder"));
    };
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let random = getrandom::u64().map_err(|e| Fault::io(path, io::Error::other(e.to_string())))?;
    let mut beside = name.to_owned();
    beside.push(format!(".{random:016x}.new"));
    let beside = folder.join(beside);
    let written = File::create_new(&beside)
        .and_then(|mut file| file.write_all(bytes.of()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&beside, path))
        .and_then(|()| File::open(&folder)?.sync_all());
    written.map_err(|error| {
        // Whatever went wrong, nothing half-written stays behind.
        _ = fs::remove_file(&beside);
        Fault::io(path, error)
    })
}
