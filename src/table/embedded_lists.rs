//! The texts of the lists that a compiled table carries, so that overrides and feeds can be added.

use std::borrow::Cow;

use super::aligned_bytes::AlignedBytes;
use super::fault::TableFault;
use super::layout::sections::{SECTION_COUNT, damage_fault, section_range};

/// The name and text of each list in the file of a compiled table. These lists are not those inside
/// riskgate's binary, which are `SourceFiles::Bundled`.
pub(super) type ListsInCompiledTable = Vec<(String, Cow<'static, str>)>;

/// Writes for each file: `u8` length of the name, the name, `u32` length of the text, the text.
pub(super) fn encode_lists(lists: &ListsInCompiledTable) -> Result<Vec<u8>, TableFault> {
    let mut out = Vec::new();
    for (file, text) in lists {
        let too_long = || TableFault::expected(file, "a list of at most 4 GiB", "more");
        out.push(u8::try_from(file.len()).map_err(|_| too_long())?);
        out.extend_from_slice(file.as_bytes());
        out.extend_from_slice(&u32::try_from(text.len()).map_err(|_| too_long())?.to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
    Ok(out)
}

/// Reads the texts of the lists from a compiled table; empty if it was compiled without them.
pub(super) fn decode_lists(
    bytes: &AlignedBytes,
    name_in_faults: &str,
) -> Result<ListsInCompiledTable, TableFault> {
    let all = bytes.as_slice();
    let mut rest = &all[section_range(all, SECTION_COUNT - 1, name_in_faults)?];
    let mut lists = ListsInCompiledTable::new();
    while !rest.is_empty() {
        let (file, text, after) =
            split_off_first_list(rest).ok_or_else(|| damage_fault(name_in_faults, "lists"))?;
        lists.push((file.to_owned(), Cow::Owned(text.to_owned())));
        rest = after;
    }
    Ok(lists)
}

fn split_off_first_list(bytes: &[u8]) -> Option<(&str, &str, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (file, rest) = rest.split_at_checked(usize::from(*length))?;
    let (length, rest) = rest.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((std::str::from_utf8(file).ok()?, std::str::from_utf8(text).ok()?, rest))
}
