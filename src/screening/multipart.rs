//! Bodies of `multipart/form-data` (RFC 7578), as browsers and HTTP clients write them. A body that
//! breaks the grammar is read as far as some server may read it, and counts as not read completely.

use memchr::memmem;

use super::content_type::{BodyKind, Charset, ContentType};
use super::field_path::FieldPath;
use super::field_values::{FieldValues, UnreadCause};
use super::json;
use super::parameters::{is_token, parse_value_with_parameters};
use super::server_parsers::{
    DecodedWords, decode_words_as_tomcat, read_parameter_as_python, read_part_name_as_formidable,
    read_part_name_as_php, read_part_name_as_rack,
};

/// The name of a file that a browser writes for a `Blob` of a script (XMLHttpRequest standard,
/// "create an entry").
const BLOB_FILE_NAME: &str = "blob";

/// The most names of one part that are read. It bounds the work for a part; no honest part has
/// more.
const MAX_PART_NAMES: usize = 8;

/// Reads all values of the fields. Of the boundaries, the first is that of the grammar, and other
/// servers read the others. A body that ends without its last delimiter is read to its end.
pub(super) fn read_values(body: &[u8], boundaries: &[String], fields: &[FieldPath]) -> FieldValues {
    let mut readings = boundaries.iter().map(|it| read_with_boundary(body, it, fields));
    let Some(mut found) = readings.next().flatten() else {
        return FieldValues::unread(UnreadCause::Broken);
    };
    // Another boundary counts only if the body has it.
    for other in readings.flatten() {
        found.append(other);
        found.mark_unread(UnreadCause::Broken);
    }
    found
}

/// Returns `None` if the body does not have the boundary.
fn read_with_boundary(body: &[u8], boundary: &str, fields: &[FieldPath]) -> Option<FieldValues> {
    let mut found = FieldValues::default();
    let line_end = detect_line_end(body);
    let delimiters = find_delimiters(body, boundary, line_end, &mut found);
    let first = delimiters.first()?;
    read_outside_parts(&body[..first.start], line_end, fields, &mut found);
    for (number, delimiter) in delimiters.iter().enumerate() {
        let next = delimiters.get(number + 1);
        let end = next.map_or(body.len(), |next| next.start);
        let text = &body[delimiter.end.min(end)..end];
        if !delimiter.is_last {
            read_part(text, line_end, fields, &mut found);
            continue;
        }
        // Some servers go on behind the last delimiter.
        if next.is_some() {
            found.mark_unread(UnreadCause::Broken);
        }
        read_outside_parts(text, line_end, fields, &mut found);
    }
    Some(found)
}

/// Django reads a part before the first delimiter, and behind the last one. Other servers do not.
fn read_outside_parts(
    text: &[u8],
    line_end: LineEnd,
    fields: &[FieldPath],
    found: &mut FieldValues,
) {
    let Some((header_end, _)) = find_empty_line(text) else { return };
    if text[..header_end].trim_ascii().is_empty() {
        return;
    }
    let mut outside = FieldValues::default();
    read_part(text, line_end, fields, &mut outside);
    if outside != FieldValues::default() {
        found.append(outside);
        found.mark_unread(UnreadCause::Broken);
    }
}

/// What ends the lines of a body.
#[derive(Clone, Copy)]
enum LineEnd {
    /// CRLF, as RFC 2046 section 4.1.1 says.
    Crlf,
    /// LF, which PHP and others read. Some client programs write the line end of their platform.
    Lf,
}

impl LineEnd {
    fn as_str(self) -> &'static str {
        match self {
            LineEnd::Crlf => "\r\n",
            LineEnd::Lf => "\n",
        }
    }
}

/// No server finds a part with CRLF lines in a body without an empty CRLF line.
fn detect_line_end(body: &[u8]) -> LineEnd {
    match memmem::find(body, b"\r\n\r\n") {
        Some(_) => LineEnd::Crlf,
        None => LineEnd::Lf,
    }
}

/// A line between two parts.
struct Delimiter {
    /// The offset of the line end before the delimiter.
    start: usize,
    /// The offset of the next part.
    end: usize,
    /// Whether it ends the body.
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
        // Sanic ends a part at a boundary without its dashes.
        found.mark_unread(UnreadCause::Broken);
    }
    for at in memmem::find_iter(body, dashed.as_bytes()) {
        let end = at + dashed.len();
        let rest = &body[end..];
        let is_last = rest.starts_with(b"--");
        let end_of_line = match rest.strip_prefix(b"--") {
            Some(after) => {
                Some((2, after.is_empty() || after.starts_with(line_end.as_str().as_bytes())))
            }
            None => match_line_end(rest, line_end),
        };
        let start_of_line = find_line_end_before(&body[..at], line_end);
        let (Some((start, is_start_regular)), Some((length, is_end_regular))) =
            (start_of_line, end_of_line)
        else {
            // It is no delimiter by the grammar, but some servers end a part here.
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

/// Returns the offset of the line end before a line, and whether it is the line end of the body.
/// `None` if the text does not end with a line end.
fn find_line_end_before(text: &[u8], line_end: LineEnd) -> Option<(usize, bool)> {
    match (text, line_end) {
        ([], _) => Some((0, true)),
        ([rest @ .., b'\r', b'\n'], LineEnd::Crlf) => Some((rest.len(), true)),
        ([rest @ .., b'\r', b'\n'], LineEnd::Lf) => Some((rest.len(), false)),
        ([rest @ .., b'\n'], line_end) => Some((rest.len(), matches!(line_end, LineEnd::Lf))),
        _ => None,
    }
}

/// Returns the length of the blanks and the line end at the start of a text, and whether they are
/// nothing but the line end of the body. `None` if the text starts in another way.
fn match_line_end(text: &[u8], line_end: LineEnd) -> Option<(usize, bool)> {
    let line_end = line_end.as_str().as_bytes();
    if text.starts_with(line_end) {
        return Some((line_end.len(), true));
    }
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
    (text.get(blanks) == Some(&b'\n')).then_some((blanks + 1, false))
}

/// Returns the offset and the length of the line ends around the first empty line.
fn find_empty_line(text: &[u8]) -> Option<(usize, usize)> {
    let line_ends = [&b"\r\n\r\n"[..], b"\n\r\n", b"\n\n"];
    line_ends.iter().filter_map(|it| Some((memmem::find(text, it)?, it.len()))).min()
}

/// What the header of a part tells.
#[derive(Default)]
struct PartHeader {
    /// The names that servers may read. All servers read the only one.
    names: Vec<String>,
    is_file: bool,
    /// Whether a script of a page has made the file.
    is_blob: bool,
    /// Whether the content has a transfer encoding that changes it.
    is_encoded: bool,
    is_json: bool,
    /// The boundaries of the parts in the content.
    inner_boundaries: Vec<String>,
    charset: Charset,
    /// Whether the header breaks the grammar, so that servers may read it in different ways.
    is_broken: bool,
}

fn read_part(part: &[u8], line_end: LineEnd, fields: &[FieldPath], found: &mut FieldValues) {
    let Some((header_end, length)) = find_empty_line(part) else {
        return found.mark_unread(UnreadCause::Broken);
    };
    let content = &part[header_end + length..];
    let header = parse_part_header(&String::from_utf8_lossy(&part[..header_end]), line_end);
    // hapi adds a part without a name to the field before it.
    let is_nameless = header.names.is_empty();
    if header.is_broken || is_nameless || length != 2 * line_end.as_str().len() {
        found.mark_unread(UnreadCause::Broken);
    }
    if !header.inner_boundaries.is_empty() {
        header.read_inner_parts(content, fields, found);
    }
    if header.is_json && header.read_json(content, fields, found) {
        return;
    }
    let matches = |name: &String| fields.iter().any(|field| field.matches_form_name(name));
    let may_match = |name: &String| matches(name) || matches(&remove_skipped_characters(name));
    if !header.names.iter().any(may_match) {
        return;
    }
    // Only some servers read such a part as a text, and they decode it in different ways.
    let has_own_encoding = header.is_encoded || header.charset == Charset::Other;
    if header.is_file || !header.inner_boundaries.is_empty() || has_own_encoding {
        return found.mark_unread(UnreadCause::Broken);
    }
    if !header.names.iter().all(matches) {
        found.mark_unread(UnreadCause::Broken);
    }
    if header.charset != Charset::Utf8 && !content.is_ascii() {
        found.mark_unread(UnreadCause::OtherCharset);
    }
    for name in &header.names {
        found.push_if_field(name, content, fields);
        found.push_if_field(&remove_skipped_characters(name), content, fields);
    }
}

/// Removes a byte order mark, which Node skips, and characters that could not be decoded, which
/// some servers skip.
fn remove_skipped_characters(name: &str) -> String {
    name.replace(['\u{feff}', char::REPLACEMENT_CHARACTER], "")
}

/// Parses the lines before the empty line of a part.
fn parse_part_header(text: &str, line_end: LineEnd) -> PartHeader {
    // Some servers end a line at a bare LF.
    let is_broken = text.split(line_end.as_str()).any(|line| line.contains('\n'));
    let mut header = PartHeader { is_broken, ..PartHeader::default() };
    for line in text.split('\n').map(|line| line.trim_end_matches('\r')) {
        let has_control = line.contains(|c: char| c.is_control() && c != '\t');
        let Some((field, value)) = line.split_once(':').filter(|(field, _)| is_token(field)) else {
            header.is_broken = true;
            continue;
        };
        header.is_broken |= has_control;
        // Bottle reads `_` in the name of a field as `-`.
        match field.to_ascii_lowercase().replace('_', "-").as_str() {
            "content-disposition" => {
                // Servers read the first or the last of several.
                header.is_broken |= !header.names.is_empty();
                header.read_disposition(value);
            }
            "content-type" => header.read_content_type(value),
            "content-transfer-encoding" => {
                // All other values of RFC 2045 section 6.1 encode nothing.
                let encoding = value.trim().to_ascii_lowercase();
                header.is_encoded |= ["base64", "quoted-printable"].contains(&encoding.as_str());
            }
            _ => {}
        }
    }
    header.add_name(read_part_name_as_rack(text));
    header
}

impl PartHeader {
    /// Reads the values of a part that is JSON, in an object of its own and below the name of the
    /// part. Returns false if the part is no JSON, in spite of its type: then it is a text.
    fn read_json(&self, content: &[u8], fields: &[FieldPath], found: &mut FieldValues) -> bool {
        let mut of_json = json::read_values(content, None, fields);
        for name in &self.names {
            of_json.append(json::read_values(content, Some(name), fields));
        }
        let has_structure = matches!(content.trim_ascii_start().first(), Some(b'{' | b'['));
        if of_json.unread.is_some() && of_json.values.is_empty() && !has_structure {
            return false;
        }
        // Some servers read the values of an uploaded file, and most do not.
        let is_upload = self.is_file && !self.is_blob;
        if is_upload && of_json == FieldValues::default() {
            return true;
        }
        match is_upload || self.is_encoded {
            true => found.mark_unread(UnreadCause::Broken),
            false => found.append(of_json),
        }
        true
    }

    /// Mojolicious reads the fields of inner parts. Others take them for files of one field.
    fn read_inner_parts(&self, content: &[u8], fields: &[FieldPath], found: &mut FieldValues) {
        let boundaries = self.inner_boundaries.iter();
        for inner in boundaries.filter_map(|it| read_with_boundary(content, it, fields)) {
            if !inner.values.is_empty() {
                found.append(inner);
                found.mark_unread(UnreadCause::Broken);
            }
        }
    }

    /// Adds a name that some server reads.
    fn add_name(&mut self, name: Option<String>) {
        let name = name.map(|name| decode_browser_escapes(&name));
        let Some(name) = name.filter(|name| !self.names.contains(name)) else { return };
        match self.names.len() < MAX_PART_NAMES {
            true => self.names.push(name),
            false => self.is_broken = true,
        }
    }

    fn read_disposition(&mut self, value: &str) {
        let parsed = parse_value_with_parameters(value);
        // Some servers skip a part that is no `form-data`. No server reads another name of it.
        self.is_broken |= !is_token(parsed.value) || parsed.is_broken;
        let mut has_name = false;
        for parameter in parsed.parameters {
            match parameter.name.as_str() {
                "name" => {
                    // Servers read the first or the last of several.
                    self.is_broken |= std::mem::replace(&mut has_name, true);
                    // Tomcat decodes what .NET encodes; others don't.
                    match decode_words_as_tomcat(&parameter.value) {
                        DecodedWords::Text(name) => self.add_name(Some(name)),
                        DecodedWords::Unreadable => self.is_broken = true,
                    }
                    self.add_name(Some(parameter.value));
                    self.add_name(Some(parameter.raw_value.to_owned()));
                }
                "filename" | "filename*" => {
                    self.is_file = true;
                    self.is_blob = parameter.value == BLOB_FILE_NAME;
                }
                // Django, Werkzeug and Tomcat read this spelling of RFC 2231, and some of them read
                // names in pieces.
                "name*" => match decode_extended_value(&parameter.value) {
                    Some(name) => self.add_name(Some(name)),
                    None => self.is_broken = true,
                },
                name if name.starts_with("name*") => self.is_broken = true,
                _ => {}
            }
        }
        self.add_name(read_part_name_as_php(value));
        self.add_name(read_part_name_as_formidable(value));
        self.add_name(read_parameter_as_python(value, "name"));
    }

    fn read_content_type(&mut self, value: &str) {
        let Some(parsed) = ContentType::parse(value.as_bytes()) else { return };
        self.charset = self.charset.max(parsed.charset);
        self.is_json |= parsed.kind == BodyKind::Json;
        if let BodyKind::Multipart { boundaries } = parsed.kind {
            self.inner_boundaries = boundaries;
        }
    }
}

/// Browsers write a quote and the ends of lines in a name as `%22`, `%0D` and `%0A` (HTML standard
/// section 4.10.21.8).
fn decode_browser_escapes(name: &str) -> String {
    name.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n")
}

/// Returns the text of an extended value, such as `utf-8''n%C3%A4me` (RFC 8187 section 3.2). `None`
/// if riskgate can't read its charset.
fn decode_extended_value(value: &str) -> Option<String> {
    let (charset, text) = value.split_once('\'').unwrap_or(("", value));
    let text = text.split_once('\'').map_or(text, |(_, text)| text);
    let is_known =
        ["", "utf-8", "us-ascii", "iso-8859-1"].iter().any(|it| charset.eq_ignore_ascii_case(it));
    let bytes = super::urlencoded::decode(text.as_bytes());
    is_known.then(|| String::from_utf8_lossy(&bytes).into_owned())
}
