//! The header of a table, and where its sections are.
//!
//! All integers are little endian. The header has 256 bytes: the magic, the format (`u32`), a zero
//! (`u32`), the length of the table (`u64`), a checksum (`u64`), the content hash (`u128`), the
//! hash key (16 bytes), then the offset and the length of each section (two `u64`). The checksum is
//! the xxh3 of all bytes that follow it.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use crate::table::fault::TableFault;

/// The version of the layout.
pub(in crate::table) const FORMAT_VERSION: u32 = 6;
/// The first bytes of every compiled table.
pub(super) const MAGIC: &[u8; 8] = b"riskgate";
/// The size of the header, in bytes.
pub(super) const TABLE_HEADER_BYTES: usize = 256;
/// The offset of the first byte that the checksum covers.
pub(super) const CHECKSUMMED_BYTES_START: usize = 32;
/// The number of sections.
pub(in crate::table) const SECTION_COUNT: usize = 9;
/// The size of an answer, in bytes.
pub(super) const ANSWER_BYTES: usize = 24;
/// The size of an entry, in bytes.
pub(super) const ENTRY_BYTES: usize = 12;

/// Computes the checksum and writes it into the header.
pub(in crate::table) fn write_checksum(table_bytes: &mut [u8]) {
    let sum = xxh3_64(&table_bytes[CHECKSUMMED_BYTES_START..]);
    table_bytes[24..32].copy_from_slice(&sum.to_le_bytes());
}

/// Iterates over length-prefixed texts; yields `None` for a truncated text.
pub(in crate::table) struct LengthPrefixedTexts<'b> {
    pub remaining_bytes: &'b [u8],
}

impl<'b> Iterator for LengthPrefixedTexts<'b> {
    type Item = Option<&'b [u8]>;

    fn next(&mut self) -> Option<Option<&'b [u8]>> {
        let (length, rest) = self.remaining_bytes.split_first()?;
        match rest.split_at_checked(usize::from(*length)) {
            Some((text, after)) => {
                self.remaining_bytes = after;
                Some(Some(text))
            }
            None => {
                self.remaining_bytes = &[];
                Some(None)
            }
        }
    }
}

/// The fault of a damaged table.
pub(in crate::table) fn damage_fault(name_in_faults: &str, damaged_part: &str) -> TableFault {
    TableFault::expected(name_in_faults, format!("valid {damaged_part}"), "a damaged file")
}

/// Reads an integer of `byte_count` bytes at the offset `at`.
pub(super) fn read_integer(
    table_bytes: &[u8],
    at: usize,
    byte_count: usize,
    name_in_faults: &str,
) -> Result<u64, TableFault> {
    let found = table_bytes.get(at..at + byte_count).ok_or_else(|| {
        TableFault::expected(
            name_in_faults,
            format!("at least {TABLE_HEADER_BYTES} bytes"),
            format!("{}", table_bytes.len()),
        )
    })?;
    Ok(found.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The range of a section.
pub(in crate::table) fn section_range(
    table_bytes: &[u8],
    section_number: usize,
    name_in_faults: &str,
) -> Result<Range<usize>, TableFault> {
    let offset = read_integer(table_bytes, 64 + 16 * section_number, 8, name_in_faults)?;
    let length = read_integer(table_bytes, 72 + 16 * section_number, 8, name_in_faults)?;
    let end = offset.checked_add(length).filter(|end| *end <= table_bytes.len() as u64);
    match end {
        Some(end) if offset >= TABLE_HEADER_BYTES as u64 => Ok(offset as usize..end as usize),
        _ => Err(damage_fault(name_in_faults, "sections")),
    }
}
