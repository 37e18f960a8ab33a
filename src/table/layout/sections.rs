//! The head of a compiled table, and where its sections lie.
//!
//! Little endian throughout. Head (256 bytes): magic, `u32` format, `u32` 0, `u64` length, `u64`
//! xxh3 of all that follows, `u128` content hash, the hash key, then offset and length of each
//! section as two `u64`.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use crate::table::fault::TableFault;

/// The layout that this reads and writes.
pub(in crate::table) const FORMAT_VERSION: u32 = 4;
/// How every compiled table begins.
pub(super) const MAGIC: &[u8; 8] = b"riskgate";
/// The bytes of the head.
pub(super) const HEADER_BYTES: usize = 256;
/// Where that begins which the checksum covers.
pub(super) const CHECKSUM_START: usize = 32;
/// How many sections a table has.
pub(in crate::table) const SECTION_COUNT: usize = 9;
/// The bytes of an answer.
pub(super) const ANSWER_BYTES: usize = 24;
/// The bytes of an entry.
pub(super) const ENTRY_BYTES: usize = 8;

/// Writes the checksum over all that it covers.
pub(in crate::table) fn write_checksum(all: &mut [u8]) {
    let sum = xxh3_64(&all[CHECKSUM_START..]);
    all[24..32].copy_from_slice(&sum.to_le_bytes());
}

/// Texts that each stand behind their length; `None` where one is cut off.
pub(in crate::table) struct LengthPrefixed<'b> {
    pub rest: &'b [u8],
}

impl<'b> Iterator for LengthPrefixed<'b> {
    type Item = Option<&'b [u8]>;

    fn next(&mut self) -> Option<Option<&'b [u8]>> {
        let (length, rest) = self.rest.split_first()?;
        match rest.split_at_checked(usize::from(*length)) {
            Some((text, after)) => {
                self.rest = after;
                Some(Some(text))
            }
            None => {
                self.rest = &[];
                Some(None)
            }
        }
    }
}

/// The fault of bytes that no build wrote so.
pub(in crate::table) fn damage_fault(display_name: &str, what: &str) -> TableFault {
    TableFault::expected(display_name, format!("valid {what}"), "a damaged file")
}

/// The number of this many bytes at an offset.
pub(super) fn read_integer(
    all: &[u8],
    at: usize,
    size: usize,
    display_name: &str,
) -> Result<u64, TableFault> {
    let found = all.get(at..at + size).ok_or_else(|| {
        TableFault::expected(
            display_name,
            format!("at least {HEADER_BYTES} bytes"),
            format!("{}", all.len()),
        )
    })?;
    Ok(found.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Where a section lies.
pub(in crate::table) fn section_range(
    all: &[u8],
    i: usize,
    display_name: &str,
) -> Result<Range<usize>, TableFault> {
    let offset = read_integer(all, 64 + 16 * i, 8, display_name)?;
    let length = read_integer(all, 72 + 16 * i, 8, display_name)?;
    let end = offset.checked_add(length).filter(|end| *end <= all.len() as u64);
    match end {
        Some(end) if offset >= HEADER_BYTES as u64 => Ok(offset as usize..end as usize),
        _ => Err(damage_fault(display_name, "sections")),
    }
}
