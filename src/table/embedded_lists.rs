//! The texts of its lists that a compiled table carries, so that more can be added to them.

use std::borrow::Cow;

use super::aligned_bytes::AlignedBytes;
use super::fault::TableFault;
use super::layout::sections::{SECTION_COUNT, damage_fault, section_range};

/// Each file's name and text.
pub(super) type EmbeddedLists = Vec<(String, Cow<'static, str>)>;

/// Each file's name behind its length in one byte, and its text behind its length in four.
pub(super) fn encode_lists(carried: &EmbeddedLists) -> Result<Vec<u8>, TableFault> {
    let mut out = Vec::new();
    for (file, text) in carried {
        let too_long = || TableFault::expected(file, "a list of at most 4 GiB", "more");
        out.push(u8::try_from(file.len()).map_err(|_| too_long())?);
        out.extend_from_slice(file.as_bytes());
        out.extend_from_slice(&u32::try_from(text.len()).map_err(|_| too_long())?.to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
    Ok(out)
}

/// The texts of the lists that a compiled table carries; none if it was compiled without them.
pub(super) fn decode_lists(
    bytes: &AlignedBytes,
    display_name: &str,
) -> Result<EmbeddedLists, TableFault> {
    let all = bytes.as_slice();
    let mut rest = &all[section_range(all, SECTION_COUNT - 1, display_name)?];
    let mut carried = EmbeddedLists::new();
    while !rest.is_empty() {
        let (file, text, after) =
            split_first_list(rest).ok_or_else(|| damage_fault(display_name, "lists"))?;
        carried.push((file.to_owned(), Cow::Owned(text.to_owned())));
        rest = after;
    }
    Ok(carried)
}

fn split_first_list(bytes: &[u8]) -> Option<(&str, &str, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (file, rest) = rest.split_at_checked(usize::from(*length))?;
    let (length, rest) = rest.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((std::str::from_utf8(file).ok()?, std::str::from_utf8(text).ok()?, rest))
}
