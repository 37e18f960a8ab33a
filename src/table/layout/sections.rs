//! The header of a compiled table, and the places of its sections.
//!
//! All integers are little endian. The header has 256 bytes: magic, `u32` format, `u32` 0, `u64`
//! length, `u64` xxh3 of the bytes that follow it, `u128` content hash, the hash key (16 bytes),
//! then offset and length of each section as two `u64`.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use crate::table::fault::TableFault;

/// The version of the layout.
pub(in crate::table) const FORMAT_VERSION: u32 = 4;
/// The first bytes of every compiled table.
pub(super) const MAGIC: &[u8; 8] = b"riskgate";
/// The size of the header, in bytes.
pub(super) const HEADER_BYTES: usize = 256;
/// The offset of the first byte that the checksum covers.
pub(super) const CHECKSUM_START: usize = 32;
/// The number of sections.
pub(in crate::table) const SECTION_COUNT: usize = 9;
/// The size of an answer, in bytes.
pub(super) const ANSWER_BYTES: usize = 24;
/// The size of an entry, in bytes.
pub(super) const ENTRY_BYTES: usize = 8;

/// Computes the checksum and writes it into the header.
pub(in crate::table) fn write_checksum(all: &mut [u8]) {
    let sum = xxh3_64(&all[CHECKSUM_START..]);
    all[24..32].copy_from_slice(&sum.to_le_bytes());
}

/// Iterates over length-prefixed texts; yields `None` for a truncated text.
pub(in crate::table) struct LengthPrefixedTexts<'b> {
    pub rest: &'b [u8],
}

impl<'b> Iterator for LengthPrefixedTexts<'b> {
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

/// The fault of a damaged table.
pub(in crate::table) fn damage_fault(display_name: &str, what: &str) -> TableFault {
    TableFault::expected(display_name, format!("valid {what}"), "a damaged file")
}

/// Reads an integer of `size` bytes at an offset.
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

/// The range of a section.
pub(in crate::table) fn section_range(
    all: &[u8],
    section_number: usize,
    display_name: &str,
) -> Result<Range<usize>, TableFault> {
    let offset = read_integer(all, 64 + 16 * section_number, 8, display_name)?;
    let length = read_integer(all, 72 + 16 * section_number, 8, display_name)?;
    let end = offset.checked_add(length).filter(|end| *end <= all.len() as u64);
    match end {
        Some(end) if offset >= HEADER_BYTES as u64 => Ok(offset as usize..end as usize),
        _ => Err(damage_fault(display_name, "sections")),
    }
}
