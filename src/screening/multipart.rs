//! Bodies of `multipart/form-data` (RFC 7578), as browsers and HTTP clients write them. Servers
//! disagree about every other spelling, so such a body counts as broken.

use super::content_type::{ContentType, is_token};
use super::field_path::FieldPath;
use super::field_values::{FieldValues, UnreadCause};

/// The longest boundary (RFC 2046 section 5.1.1).
const MAX_BOUNDARY_BYTES: usize = 70;

/// Reads all values of the fields.
pub(super) fn read_values(
    body: &[u8],
    boundary: &str,
    fields: &[FieldPath],
) -> Result<FieldValues, UnreadCause> {
    if boundary.is_empty() || boundary.len() > MAX_BOUNDARY_BYTES || boundary.ends_with(' ') {
        return Err(UnreadCause::Broken);
    }
    let delimiter = format!("\r\n--{boundary}");
    let dashed = &delimiter.as_bytes()[2..];
    let mut found = FieldValues::default();
    // The first delimiter has no line before it.
    let mut rest = body.strip_prefix(dashed).ok_or(UnreadCause::Broken)?;
    loop {
        if let Some(end) = rest.strip_prefix(b"--") {
            // Some servers would go on behind the end.
            return match end {
                b"" | b"\r\n" => Ok(found),
                _ => Err(UnreadCause::Broken),
            };
        }
        let part = rest.strip_prefix(b"\r\n").ok_or(UnreadCause::Broken)?;
        let end = memchr::memmem::find(part, delimiter.as_bytes()).ok_or(UnreadCause::Broken)?;
        // Some servers end a part at a boundary behind another end of line, too.
        if memchr::memmem::find(&part[..end], dashed).is_some() {
            return Err(UnreadCause::Broken);
        }
        read_part(&part[..end], fields, &mut found)?;
        rest = &part[end + delimiter.len()..];
    }
}

fn read_part(
    part: &[u8],
    fields: &[FieldPath],
    found: &mut FieldValues,
) -> Result<(), UnreadCause> {
    let header_end = memchr::memmem::find(part, b"\r\n\r\n").ok_or(UnreadCause::Broken)?;
    let header = std::str::from_utf8(&part[..header_end]).map_err(|_| UnreadCause::Broken)?;
    let mut name = None;
    let (mut is_file, mut has_own_encoding, mut is_json) = (false, false, false);
    // Some servers search the whole header for this name.
    if header.to_ascii_lowercase().matches("content-disposition").count() != 1 {
        return Err(UnreadCause::Broken);
    }
    for line in header.split("\r\n") {
        let (field, value) = line.split_once(':').ok_or(UnreadCause::Broken)?;
        let has_control = line.contains(|c: char| c.is_control() && c != '\t');
        if has_control || !is_token(field) {
            return Err(UnreadCause::Broken);
        }
        match field.to_ascii_lowercase().as_str() {
            "content-disposition" => {
                let disposition = parse_disposition(value).ok_or(UnreadCause::Broken)?;
                (name, is_file) = (Some(disposition.0), disposition.1);
            }
            "content-type" => {
                let parsed = ContentType::parse(value.as_bytes());
                has_own_encoding |= !parsed.as_ref().is_some_and(ContentType::is_utf8);
                is_json |= parsed.is_some_and(|parsed| parsed.media_type == "application/json");
            }
            "content-transfer-encoding" => has_own_encoding = true,
            _ => {}
        }
    }
    let name = name.ok_or(UnreadCause::Broken)?;
    if is_json {
        // Some servers read the fields of an object in a part.
        found.unread = Some(UnreadCause::Broken);
    }
    if is_file || has_own_encoding {
        // Only some servers read such a part as a text, and they decode it in different ways.
        if fields.iter().any(|field| field.matches_form_name(&name)) {
            found.unread = Some(UnreadCause::Broken);
        }
    } else {
        found.push_if_field(&name, &part[header_end + 4..], fields);
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
        // Some servers end a parameter at a `;` in quotes.
        if text.contains(['\\', ';']) {
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
