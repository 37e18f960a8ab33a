//! Bodies of `multipart/form-data` (RFC 7578), as browsers and HTTP clients write them. Servers
//! disagree about every other spelling, so such a body counts as broken.

use super::content_type::ContentType;
use super::field_path::FieldPath;
use super::field_values::{FieldValues, Unscreened};

/// The longest boundary (RFC 2046 section 5.1.1).
const MAX_BOUNDARY_BYTES: usize = 70;

/// Reads all values of the fields.
pub(super) fn read_values(
    body: &[u8],
    boundary: &str,
    fields: &[FieldPath],
) -> Result<FieldValues, Unscreened> {
    if boundary.is_empty() || boundary.len() > MAX_BOUNDARY_BYTES || boundary.ends_with(' ') {
        return Err(Unscreened::Broken);
    }
    let delimiter = format!("\r\n--{boundary}");
    let mut found = FieldValues::default();
    // The first delimiter has no line before it.
    let mut rest = body.strip_prefix(&delimiter.as_bytes()[2..]).ok_or(Unscreened::Broken)?;
    loop {
        if let Some(end) = rest.strip_prefix(b"--") {
            // Some servers would go on behind the end.
            return match end {
                b"" | b"\r\n" => Ok(found),
                _ => Err(Unscreened::Broken),
            };
        }
        let part = rest.strip_prefix(b"\r\n").ok_or(Unscreened::Broken)?;
        let end = memchr::memmem::find(part, delimiter.as_bytes()).ok_or(Unscreened::Broken)?;
        read_part(&part[..end], fields, &mut found)?;
        rest = &part[end + delimiter.len()..];
    }
}

fn read_part(part: &[u8], fields: &[FieldPath], found: &mut FieldValues) -> Result<(), Unscreened> {
    let header_end = memchr::memmem::find(part, b"\r\n\r\n").ok_or(Unscreened::Broken)?;
    let header = std::str::from_utf8(&part[..header_end]).map_err(|_| Unscreened::Broken)?;
    let mut name = None;
    let (mut is_file, mut has_own_encoding) = (false, false);
    for line in header.split("\r\n") {
        let (field, value) = line.split_once(':').ok_or(Unscreened::Broken)?;
        if line.contains(['\r', '\n', '\0']) || field.contains([' ', '\t']) {
            return Err(Unscreened::Broken);
        }
        match field.to_ascii_lowercase().as_str() {
            "content-disposition" if name.is_none() => {
                let disposition = parse_disposition(value).ok_or(Unscreened::Broken)?;
                (name, is_file) = (Some(disposition.0), disposition.1);
            }
            "content-disposition" => return Err(Unscreened::Broken),
            "content-type" => {
                let parsed = ContentType::parse(value.as_bytes());
                has_own_encoding |= !parsed.is_some_and(|parsed| parsed.is_utf8());
            }
            "content-transfer-encoding" => has_own_encoding = true,
            _ => {}
        }
    }
    let name = name.ok_or(Unscreened::Broken)?;
    if fields.iter().any(|field| field.matches_form_name(&name)) {
        match is_file || has_own_encoding {
            true => found.unread = Some(Unscreened::Broken),
            false => found.push_bytes(&part[header_end + 4..]),
        }
    }
    Ok(())
}

/// Returns the name of the part, and whether it is a file. `None` for every spelling that servers
/// read in different ways.
fn parse_disposition(value: &str) -> Option<(String, bool)> {
    let mut rest = value.trim_start_matches([' ', '\t']);
    rest =
        rest.get(..9).filter(|kind| kind.eq_ignore_ascii_case("form-data")).map(|_| &rest[9..])?;
    let (mut name, mut is_file) = (None, false);
    while !rest.is_empty() {
        let parameter = rest.strip_prefix(';')?.trim_start_matches([' ', '\t']);
        let (key, quoted) = parameter.split_once('=')?;
        let (text, after) = quoted.strip_prefix('"')?.split_once('"')?;
        if text.contains('\\') {
            return None;
        }
        match key.to_ascii_lowercase().as_str() {
            "name" if name.is_none() => name = Some(decode_browser_escapes(text)),
            "filename" => is_file = true,
            _ => return None,
        }
        rest = after.trim_end_matches([' ', '\t']);
    }
    Some((name?, is_file))
}

/// Browsers write a quote and the ends of lines in a name as `%22`, `%0D` and `%0A` (HTML standard
/// section 4.10.21.8).
fn decode_browser_escapes(name: &str) -> String {
    name.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n")
}
