//! The bytes of a table in memory, and how they are read from and written to disk.
//!
//! This module does not interpret the bytes.

use std::io::{self, Read};
use std::path::Path;

use super::buckets::BUCKET_BYTES;
use super::fault::{TableFault, fault_from_read_error};
use crate::support::regular_file::{open_regular_file, write_atomically};

/// The largest compiled table, in bytes.
const MAX_COMPILED_BYTES: u64 = 1 << 30;

/// Bytes in memory that begin on a cache line, so that no bucket spans two cache lines.
pub(super) struct AlignedBytes {
    buffer: Box<[u8]>,
    start_offset: usize,
    length: usize,
}

impl AlignedBytes {
    pub(super) fn zeroed(length: usize) -> AlignedBytes {
        AlignedBytes::from_buffer(vec![0; length + BUCKET_BYTES], length)
    }

    /// Like `zeroed`, but returns an error if memory is short. The length comes from a file, which
    /// may be very large and no table at all.
    fn try_zeroed(length: usize) -> io::Result<AlignedBytes> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(length + BUCKET_BYTES)?;
        buffer.resize(length + BUCKET_BYTES, 0);
        Ok(AlignedBytes::from_buffer(buffer, length))
    }

    fn from_buffer(buffer: Vec<u8>, length: usize) -> AlignedBytes {
        let buffer = buffer.into_boxed_slice();
        let start_offset = buffer.as_ptr().align_offset(BUCKET_BYTES).min(BUCKET_BYTES);
        AlignedBytes { buffer, start_offset, length }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.buffer[self.start_offset..self.start_offset + self.length]
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start_offset..self.start_offset + self.length]
    }
}

/// Reads a compiled table into memory.
pub(super) fn read_compiled_table(path: &Path) -> Result<AlignedBytes, TableFault> {
    let opened = open_regular_file(path, MAX_COMPILED_BYTES);
    let (mut file, length) = opened.map_err(|found| fault_from_read_error(path, found))?;
    let mut bytes =
        AlignedBytes::try_zeroed(length as usize).map_err(|e| TableFault::io(path, e))?;
    file.read_exact(bytes.as_mut_slice()).map_err(|e| TableFault::io(path, e))?;
    Ok(bytes)
}

/// Writes a file atomically: a reader sees the old file or the new file, also after a power
/// failure.
pub(super) fn write_file_atomically(path: &Path, bytes: &[u8]) -> Result<(), TableFault> {
    if path.file_name().is_none() {
        let found = path.display().to_string();
        return Err(TableFault::expected(found, "the path of a file", "a directory"));
    }
    write_atomically(path, bytes).map_err(|error| TableFault::io(path, error))
}
