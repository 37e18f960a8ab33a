//! Bodies of `multipart/form-data` (RFC 7578), as browsers and HTTP clients write them. Lines may
//! end with LF, and the last delimiter may be missing: the last part then ends with the body. A
//! body that breaks the grammar in another way counts as not read completely.

mod line_end;
mod part;
mod part_header;
mod server_action;

use std::cell::RefCell;

use memchr::memmem;

use super::content_type::Charset;
use super::field_path::FieldPath;
use super::field_values::{FieldValues, UnreadCause};
use super::json;
use super::name_budget::NameBudget;
use super::server_parsers::{count_part_names, may_begin_json};
use line_end::{LineEnd, detect_line_end};
use part::{Part, PartContext};
use part_header::{NamesToRead, PartHeader, parse_part_header};

/// The name of a part that names the charset of the other parts (RFC 7578 section 4.6).
const NAME_OF_CHARSET: &str = "_charset_";

/// The longest header of a part that riskgate reads. Some servers accept fewer bytes (Django:
/// 1 KiB), and some accept more.
const MAX_PART_HEADER_BYTES: usize = 4 * 1024;

/// The most names of one part for which riskgate reads the content as JSON, to limit its work. No
/// honest part has more.
const MAX_NAMES_OF_JSON: usize = 3;

/// Reads all values of the fields. The first of `boundaries` is the boundary by the grammar, if the
/// type has one. Only some servers read the others.
pub(super) fn read_values(body: &[u8], boundaries: &[String], fields: &[FieldPath]) -> FieldValues {
    let budget = RefCell::<NameBudget>::default();
    let line_end = detect_line_end(body);
    let context = PartContext { fields, line_end, is_inner: false, budget: &budget };
    let mut readings = boundaries.iter().map(|it| read_with_boundary(body, it, context));
    let by_grammar = readings.next().flatten();
    let mut found = by_grammar.unwrap_or_else(|| FieldValues::of_unread_body(UnreadCause::Broken));
    // A boundary by which only some servers read counts if the body has this boundary.
    for other in readings.flatten() {
        found.append(other);
        found.mark_unread(UnreadCause::Broken);
    }
    found
}

/// Reads the values of a body with this boundary. `None` if the body does not have the boundary.
fn read_with_boundary(
    body: &[u8],
    boundary: &str,
    context: PartContext<'_>,
) -> Option<FieldValues> {
    let mut found = FieldValues::default();
    let delimiters = find_delimiters(body, boundary, context.line_end, &mut found);
    let first = delimiters.first()?;
    let before = &body[..first.start];
    if may_begin_json(before) {
        found.mark_unread(UnreadCause::Broken);
    }
    read_outside_parts(before, context, &mut found);
    let mut parts = Vec::new();
    for (number, delimiter) in delimiters.iter().enumerate() {
        let next = delimiters.get(number + 1);
        let end = next.map_or(body.len(), |next| next.start);
        let text = &body[delimiter.end.min(end)..end];
        if !delimiter.is_last {
            parts.extend(read_part(text, context, &mut found));
            continue;
        }
        // Some servers read further parts behind the last delimiter.
        if next.is_some() {
            found.mark_unread(UnreadCause::Broken);
        }
        read_outside_parts(text, context, &mut found);
    }
    if !context.is_inner {
        server_action::read_values(&parts, context, &mut found);
        check_charset_of_parts(&parts, &mut found);
    }
    Some(found)
}

/// Marks the body as unread if a part names a charset in which a value may be another text.
fn check_charset_of_parts(parts: &[Part<'_>], found: &mut FieldValues) {
    let named = parts.iter().filter(|part| part.names().any(|name| name == NAME_OF_CHARSET));
    let charset = named.map(|part| Charset::of_text(part.content)).max().unwrap_or_default();
    let are_ascii = found.values.iter().all(|value| value.is_ascii());
    if charset == Charset::Other || charset != Charset::Utf8 && !are_ascii {
        found.mark_unread(UnreadCause::OtherCharset);
    }
}

/// Reads a text before the first delimiter or behind the last delimiter as a part. Django does so,
/// and other servers do not.
fn read_outside_parts(text: &[u8], context: PartContext<'_>, found: &mut FieldValues) {
    let Some((header_end, _)) = find_empty_line(text) else { return };
    if text[..header_end].trim_ascii().is_empty() {
        return;
    }
    let mut outside = FieldValues::default();
    read_part(text, context, &mut outside);
    if outside != FieldValues::default() {
        found.append(outside);
        found.mark_unread(UnreadCause::Broken);
    }
}

/// A line between two parts.
struct Delimiter {
    /// The offset of the line end before the delimiter.
    start: usize,
    /// The offset of the next part.
    end: usize,
    /// Whether `--` follows the boundary, as in the last delimiter of a body.
    is_last: bool,
}

fn find_delimiters(
    body: &[u8],
    boundary: &str,
    line_end: LineEnd,
    found: &mut FieldValues,
) -> Vec<Delimiter> {
    let dashed = format!("--{boundary}");
    let mut delimiters = Vec::new();
    let count = |text: &str| memmem::find_iter(body, text.as_bytes()).count();
    if count(boundary) > count(&dashed) {
        // Sanic ends a part at a boundary even without the two dashes before it.
        found.mark_unread(UnreadCause::Broken);
    }
    for at in memmem::find_iter(body, dashed.as_bytes()) {
        let end = at + dashed.len();
        let rest = &body[end..];
        let is_last = rest.starts_with(b"--");
        let end_of_line = match rest.strip_prefix(b"--") {
            Some(after) => Some((
                2,
                after.is_empty() || after.starts_with(b"\r\n") || after.starts_with(b"\n"),
            )),
            None => match_line_end(rest, line_end),
        };
        let start_of_line = find_line_end_before(&body[..at], line_end);
        let (Some((start, is_start_regular)), Some((length, is_end_regular))) =
            (start_of_line, end_of_line)
        else {
            // By the grammar, this is no delimiter. Some servers end a part here.
            found.mark_unread(UnreadCause::Broken);
            continue;
        };
        if !is_start_regular || !is_end_regular {
            found.mark_unread(UnreadCause::Broken);
        }
        delimiters.push(Delimiter { start, end: end + length, is_last });
    }
    delimiters
}

/// Returns the offset of the line end at the end of a text, and whether it is the line end that the
/// body uses. An empty text counts as a line end. `None` if the text ends in another way.
fn find_line_end_before(text: &[u8], line_end: LineEnd) -> Option<(usize, bool)> {
    match (text, line_end) {
        ([], _) => Some((0, true)),
        ([rest @ .., b'\r', b'\n'], LineEnd::Crlf) => Some((rest.len(), true)),
        ([rest @ .., b'\r', b'\n'], LineEnd::Lf) => Some((rest.len(), false)),
        ([rest @ .., b'\n'], line_end) => Some((rest.len(), matches!(line_end, LineEnd::Lf))),
        _ => None,
    }
}

/// Returns the length of the blanks and the line end at the start of a text. The second result is
/// false if the text begins with blanks, if it is empty, or if its line end is not the one that the
/// body uses. `None` if the text starts in another way.
fn match_line_end(text: &[u8], line_end: LineEnd) -> Option<(usize, bool)> {
    let line_end = line_end.as_str().as_bytes();
    if text.starts_with(line_end) {
        return Some((line_end.len(), true));
    }
    if text.is_empty() {
        return Some((0, false));
    }
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
    (text.get(blanks) == Some(&b'\n')).then_some((blanks + 1, false))
}

/// Returns the offset and the length of the line ends around the first empty line.
fn find_empty_line(text: &[u8]) -> Option<(usize, usize)> {
    let line_ends = [&b"\r\n\r\n"[..], b"\n\r\n", b"\n\n"];
    line_ends.iter().filter_map(|it| Some((memmem::find(text, it)?, it.len()))).min()
}

/// Reads the values of a part. Returns the part, unless its header is too long or has no end. If
/// the part has more names than riskgate may still read, only those by the grammar count.
fn read_part<'b>(
    text: &'b [u8],
    context: PartContext<'_>,
    found: &mut FieldValues,
) -> Option<Part<'b>> {
    let PartContext { line_end, is_inner, budget, .. } = context;
    let empty_line = find_empty_line(text).filter(|(at, _)| *at <= MAX_PART_HEADER_BYTES);
    let Some((header_end, length)) = empty_line else {
        found.mark_unread(UnreadCause::Broken);
        return None;
    };
    let content = &text[header_end + length..];
    let header = String::from_utf8_lossy(&text[..header_end]);
    let names = match budget.borrow_mut().allows_part(count_part_names(&header)) {
        true => NamesToRead::OfAllServers,
        false => NamesToRead::ByGrammar,
    };
    let header = parse_part_header(&header, line_end, names);
    // hapi adds the text of a part without a name to the field before this part. Clients send
    // several files of one field as parts without names in a part.
    let lacks_name = !header.has_name && !is_inner;
    if header.is_broken || lacks_name || length != 2 * line_end.as_str().len() {
        found.mark_unread(UnreadCause::Broken);
    }
    if !is_inner {
        header.read_inner_parts(content, PartContext { is_inner: true, ..context }, found);
    } else if !header.inner_boundaries.is_empty() {
        found.mark_unread(UnreadCause::Broken);
    }
    let part = Part { header, content };
    let names = context.names_to_compare(part.names(), found);
    let may_have_field = |name: &&&str| {
        let is_above =
            |it: &FieldPath| it.may_begin_with_member(name) && !it.matches_form_name(name);
        context.fields.iter().any(is_above)
    };
    if part.header.has_other_members && names.iter().any(|name| may_have_field(&name)) {
        found.mark_unread(UnreadCause::OtherType);
    }
    if !(part.header.is_json && part.header.read_json(content, &names, context.fields, found)) {
        part.read_field(&names, context, found);
    }
    Some(part)
}

impl PartHeader {
    /// Reads the values of a part whose type is JSON: once as if the JSON were a whole body, and
    /// once as the value of each of `names` that may lead to a field. Returns false if the content
    /// is surely no JSON: then the part is a text.
    fn read_json(
        &self,
        content: &[u8],
        names: &[&str],
        fields: &[FieldPath],
        found: &mut FieldValues,
    ) -> bool {
        let mut of_json = json::read_values(content, None, fields);
        let leads_to_field =
            |name: &&&str| fields.iter().any(|field| field.may_begin_with_member(name));
        for (index, name) in names.iter().filter(leads_to_field).enumerate() {
            match index < MAX_NAMES_OF_JSON {
                true => of_json.append(json::read_values(content, Some(name), fields)),
                false => found.mark_unread(UnreadCause::Broken),
            }
        }
        // Some servers read the values in an uploaded file. Most servers do not.
        let is_upload = self.is_file && !self.is_blob;
        let may_be_json = match is_upload {
            // Files with settings begin with comments.
            true => matches!(content.trim_ascii_start().first(), Some(b'{' | b'[')),
            false => may_begin_json(content),
        };
        if of_json.unread.is_some() && of_json.values.is_empty() && !may_be_json {
            return false;
        }
        if is_upload && of_json == FieldValues::default() {
            return true;
        }
        match is_upload || self.is_encoded(content) {
            true => found.mark_unread(UnreadCause::Broken),
            false => found.append(of_json),
        }
        true
    }

    /// Reads the values of parts in the content of this part. Mojolicious reads them as fields, and
    /// other servers take them for files of one field. Jetty skips the header of a part that it
    /// finds malformed, and reads the text behind the header as the next header.
    fn read_inner_parts(&self, content: &[u8], context: PartContext<'_>, found: &mut FieldValues) {
        let mut inner = FieldValues::default();
        if let Some(boundary) = self.inner_boundaries.first() {
            inner = read_with_boundary(content, boundary, context).unwrap_or_default();
        } else if find_empty_line(content).is_some() {
            read_part(content, context, &mut inner);
            // An honest text has empty lines, and what is before them is no header.
            if self.is_form_data && inner.values.is_empty() {
                return;
            }
            inner.mark_unread(UnreadCause::Broken);
        }
        if inner != FieldValues::default() {
            found.append(inner);
            found.mark_unread(UnreadCause::Broken);
        }
    }
}
