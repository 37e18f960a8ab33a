//! The texts of its lists that a compiled table carries, so that more can be added to them.

use std::borrow::Cow;

use super::disk::Bytes;
use super::fault::Fault;
use super::layout::sections::{SECTIONS, damaged, section_range};

/// Each file's name and text.
pub(super) type Carried = Vec<(String, Cow<'static, str>)>;

/// Each file's name behind its length in one byte, and its text behind its length in four.
pub(super) fn write(carried: &Carried) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    for (file, text) in carried {
        let too_long = || Fault::expected(file, "a list of at most 4 GiB", "more");
        out.push(u8::try_from(file.len()).map_err(|_| too_long())?);
        out.extend_from_slice(file.as_bytes());
        out.extend_from_slice(&u32::try_from(text.len()).map_err(|_| too_long())?.to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
    Ok(out)
}

/// The texts of the lists that a compiled table carries; none if it was compiled without them.
pub(super) fn read(bytes: &Bytes, place: &str) -> Result<Carried, Fault> {
    let all = bytes.of();
    let mut rest = &all[section_range(all, SECTIONS - 1, place)?];
    let mut carried = Carried::new();
    while !rest.is_empty() {
        let (file, text, after) = split(rest).ok_or_else(|| damaged(place, "lists"))?;
        carried.push((file.to_owned(), Cow::Owned(text.to_owned())));
        rest = after;
    }
    Ok(carried)
}

fn split(bytes: &[u8]) -> Option<(&str, &str, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (file, rest) = rest.split_at_checked(usize::from(*length))?;
    let (length, rest) = rest.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((std::str::from_utf8(file).ok()?, std::str::from_utf8(text).ok()?, rest))
}
