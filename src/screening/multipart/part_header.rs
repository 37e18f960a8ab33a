//! The header of a part of a multipart body.

use super::line_end::LineEnd;
use crate::screening::content_type::{BodyKind, Charset, ContentType};
use crate::screening::parameters::{is_token, parse_value_with_parameters};
use crate::screening::server_parsers::{
    DecodedWords, decode_words_as_tomcat, read_parameter_as_python, read_part_name_as_formidable,
    read_part_name_as_php, read_part_name_as_rack, read_unquoted_as_werkzeug, search_part_names,
    without_skipped_characters,
};
use crate::screening::urlencoded;

/// The name of a file that a browser writes for a `Blob` of a script (XMLHttpRequest standard,
/// "create an entry").
const BLOB_FILE_NAME: &str = "blob";

/// The most names of one part that riskgate keeps, to limit its work. No honest part has more.
const MAX_PART_NAMES: usize = 8;

/// How the types of formats with members end, apart from JSON and forms.
const FORMATS_WITH_MEMBERS: [&str; 5] = ["xml", "yaml", "yml", "cbor", "msgpack"];

/// What the header of a part says.
#[derive(Default)]
pub(super) struct PartHeader {
    /// The names that servers may read.
    pub(super) names: Vec<String>,
    /// Whether `Content-Disposition` has a name.
    pub(super) has_name: bool,
    /// Whether the disposition is `form-data`. Jetty finds a header malformed without it.
    pub(super) is_form_data: bool,
    pub(super) is_file: bool,
    /// Whether the file has a name that is not empty. Some servers take any other file for a text.
    pub(super) is_named_file: bool,
    /// Whether the file has the name that browsers give to a `Blob` of a script.
    pub(super) is_blob: bool,
    /// The transfer encodings of the content that change some texts.
    transfer_encodings: Vec<TransferEncoding>,
    pub(super) is_json: bool,
    /// Whether the type is of another format with members, such as XML. Some servers make an object
    /// of such a part.
    pub(super) has_other_members: bool,
    /// The boundaries of the parts in the content.
    pub(super) inner_boundaries: Vec<String>,
    pub(super) charset: Charset,
    /// Whether the header breaks the grammar, so that servers may read it in different ways.
    pub(super) is_broken: bool,
}

/// Which names in the header of a part are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NamesToRead {
    /// All names that the parser of some server reads.
    OfAllServers,
    /// Only those of a parameter `name`, to limit the work. The header counts as broken.
    ByGrammar,
}

/// Parses the lines before the empty line of a part.
pub(super) fn parse_part_header(
    text: &str,
    line_end: LineEnd,
    names_to_read: NamesToRead,
) -> PartHeader {
    // Some servers end a line at a bare LF, even in a body with CRLF lines.
    let is_broken = names_to_read == NamesToRead::ByGrammar
        || text.split(line_end.as_str()).any(|line| line.contains('\n'));
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
                header.is_broken |= field.contains('_');
                // Of several dispositions, some servers read the first, others the last.
                header.is_broken |= !header.names.is_empty();
                header.read_disposition(value, names_to_read);
            }
            "content-type" => header.read_content_type(value),
            "content-transfer-encoding" => {
                // Django ignores parameters. The other values of RFC 2045 section 6.1 encode
                // nothing.
                let encoding = value.split(';').next().unwrap_or_default().trim();
                header.transfer_encodings.extend(match encoding.to_ascii_lowercase().as_str() {
                    "base64" => Some(TransferEncoding::Base64),
                    "quoted-printable" => Some(TransferEncoding::QuotedPrintable),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    if names_to_read == NamesToRead::ByGrammar {
        return header;
    }
    header.add_name(read_part_name_as_rack(text));
    search_part_names(text).into_iter().for_each(|name| header.add_name(Some(name)));
    header
}

/// A transfer encoding whose encoded texts differ from their originals (RFC 2045 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransferEncoding {
    Base64,
    QuotedPrintable,
}

impl PartHeader {
    /// Returns true if a server that decodes the content may read another text than a server that
    /// does not decode it.
    pub(super) fn is_encoded(&self, content: &[u8]) -> bool {
        self.transfer_encodings.iter().any(|encoding| match encoding {
            TransferEncoding::Base64 => true,
            // Each escape begins with `=`. Blanks at the end of a line may be removed.
            TransferEncoding::QuotedPrintable => {
                content.iter().any(|byte| matches!(byte, b'=' | b' ' | b'\t' | b'\r' | b'\n'))
            }
        })
    }

    /// Adds a name that some server reads.
    fn add_name(&mut self, name: Option<String>) {
        let Some(name) = name.map(decode_browser_escapes) else { return };
        if self.names.contains(&name) {
            return;
        }
        let without_skipped = without_skipped_characters(&name);
        for name in [Some(&name), without_skipped.as_ref()].into_iter().flatten() {
            self.add_if_new(name);
            self.add_if_new(trim_as_servers(name));
        }
    }

    fn add_if_new(&mut self, name: &str) {
        if self.names.iter().any(|known| known == name) {
            return;
        }
        match self.names.len() < MAX_PART_NAMES {
            true => self.names.push(name.to_owned()),
            false => self.is_broken = true,
        }
    }

    fn read_disposition(&mut self, value: &str, names_to_read: NamesToRead) {
        let parsed = parse_value_with_parameters(value);
        // Some servers skip a part whose disposition is not `form-data`. The other servers read the
        // same name as riskgate, so this is no fault.
        self.is_broken |= !is_token(parsed.value) || parsed.is_broken;
        self.is_form_data = parsed.value.eq_ignore_ascii_case("form-data");
        for (index, parameter) in parsed.parameters.into_iter().enumerate() {
            let by_werkzeug = read_unquoted_as_werkzeug(&parameter).map(str::to_owned);
            match parameter.name.as_str() {
                "name" if names_to_read == NamesToRead::ByGrammar => {
                    self.has_name = true;
                    self.add_if_new(&decode_browser_escapes(parameter.value));
                }
                "name" => {
                    // Of several names, some servers read the first, others the last.
                    self.is_broken |= std::mem::replace(&mut self.has_name, true);
                    // .NET writes encoded words, which Tomcat decodes.
                    match decode_words_as_tomcat(&parameter.value) {
                        // ASP.NET decodes words that Tomcat leaves.
                        DecodedWords::Text(name) if name.contains("=?") => self.is_broken = true,
                        DecodedWords::Text(name) => self.add_name(Some(name)),
                        DecodedWords::Unreadable => self.is_broken = true,
                    }
                    self.add_name(Some(parameter.value));
                    self.add_name(Some(parameter.raw_value.to_owned()));
                    self.add_name(by_werkzeug);
                }
                "filename" | "filename*" => {
                    self.is_file = true;
                    self.is_named_file = !parameter.value.is_empty();
                    self.is_blob = parameter.value == BLOB_FILE_NAME;
                }
                // Django, Werkzeug and Tomcat read this spelling of RFC 2231. Some of them join the
                // pieces of a name, such as `name*0`.
                "name*" => {
                    let name = decode_extended_value(&parameter.value);
                    self.is_broken |= name.is_none();
                    self.has_name = true;
                    self.add_name(name);
                    self.add_name(by_werkzeug.as_deref().and_then(decode_extended_value));
                }
                name if name.starts_with("name*") => self.is_broken = true,
                // The package parse-multipart-data of Node.js takes the first one for the name.
                _ if index == 0 && names_to_read == NamesToRead::OfAllServers => {
                    self.add_name(Some(parameter.value));
                }
                _ => {}
            }
        }
        if names_to_read == NamesToRead::ByGrammar {
            return;
        }
        self.add_name(read_part_name_as_php(value));
        self.add_name(read_part_name_as_formidable(value));
        self.add_name(read_parameter_as_python(value, "name"));
    }

    fn read_content_type(&mut self, value: &str) {
        let Some(parsed) = ContentType::parse(value.as_bytes()) else { return };
        self.charset = self.charset.max(parsed.charset);
        self.is_json |= parsed.kind == BodyKind::Json;
        let media_type = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        self.has_other_members |= parsed.kind == BodyKind::Urlencoded
            || FORMATS_WITH_MEMBERS.iter().any(|format| media_type.ends_with(format));
        if let BodyKind::Multipart { boundaries } = parsed.kind {
            self.inner_boundaries = boundaries;
        }
    }
}

/// aiohttp removes slashes before a name, and Netty removes blanks and the other characters around
/// a name.
fn trim_as_servers(name: &str) -> &str {
    let is_removed = |c: char| c.is_whitespace() || r#"/\:,=;"'"#.contains(c);
    name.trim_matches(is_removed)
}

/// Decodes `%22`, `%0D` and `%0A`, as which browsers write a quote, a CR and an LF in a name (HTML
/// standard section 4.10.21.8).
fn decode_browser_escapes(name: String) -> String {
    if !name.contains('%') {
        return name;
    }
    name.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n")
}

/// Returns the text of an extended value, such as `utf-8''n%C3%A4me` (RFC 8187 section 3.2). `None`
/// if the text is not ASCII and in another charset, or if riskgate does not know the charset.
fn decode_extended_value(value: &str) -> Option<String> {
    let (charset, text) = value.split_once('\'').unwrap_or(("", value));
    let text = text.split_once('\'').map_or(text, |(_, text)| text);
    let is_any_of = |known: &[&str]| known.iter().any(|it| charset.eq_ignore_ascii_case(it));
    let bytes = urlencoded::decode(text.as_bytes());
    let is_readable =
        is_any_of(&["", "utf-8"]) || bytes.is_ascii() && is_any_of(&["us-ascii", "iso-8859-1"]);
    is_readable.then(|| String::from_utf8_lossy(&bytes).into_owned())
}
