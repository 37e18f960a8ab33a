//! Bytes of a table in memory, and their way from and to the disk.
//!
//! What the bytes mean is not asked here.

use std::io::{self, Read};
use std::path::Path;

use super::buckets::LINE;
use super::fault::{Fault, unreadable};
use crate::support::regular_file::{open_regular, write_beside};

/// The largest compiled table, in bytes.
const MAX_COMPILED: u64 = 1 << 30;

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
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), Fault> {
    if path.file_name().is_none() {
        let found = path.display().to_string();
        return Err(Fault::expected(found, "the path of a file", "a folder"));
    }
    write_beside(path, bytes).map_err(|error| Fault::io(path, error))
}
