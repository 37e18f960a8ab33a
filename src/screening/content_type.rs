//! `Content-Type` (RFC 9110 section 8.3).

use super::parameters::{Parameter, is_token, parse_value_with_parameters};
use super::server_parsers::{
    read_boundaries_as_servers, read_charset_as_tomcat, read_parameter_as_python,
};

const URLENCODED: &str = "application/x-www-form-urlencoded";

/// How riskgate reads a body, or a part of a multipart body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContentType {
    pub kind: BodyKind,
    pub charset: Charset,
    /// The boundaries in a type that is not multipart. formidable reads a body as multipart if
    /// `multipart` is anywhere in its type.
    pub disguised_boundaries: Vec<String>,
    /// Whether a type that is not urlencoded contains `application/x-www-form-urlencoded`.
    /// blacksheep then reads the body as a form.
    pub is_disguised_form: bool,
    /// Whether Django reads another boundary than the grammar has. Without its boundary, Django
    /// reads the whole body as one part.
    pub has_other_boundary_for_django: bool,
}

/// The kinds of bodies that riskgate tells apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// `application/json`, other types that servers read as JSON, such as `text/json`, and types
    /// with the suffix `+json` (RFC 6839).
    Json,
    /// `application/x-www-form-urlencoded`.
    Urlencoded,
    /// Each `multipart/` type whose boundaries riskgate can tell: Tomcat and Rack read all of them
    /// like `multipart/form-data`, and OkHttp and aiohttp send forms as `multipart/mixed`.
    Multipart {
        /// The boundary by the grammar, if the type has one, then the boundaries that only some
        /// servers read. Empty if no server reads a boundary.
        boundaries: Vec<String>,
    },
    /// `text/plain`.
    PlainText,
    /// A type that riskgate does not read, or whose boundaries it can't tell.
    Other,
}

/// The kinds of charsets that riskgate tells apart. riskgate reads values as UTF-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Charset {
    /// The text is UTF-8, which is also the default.
    #[default]
    Utf8,
    /// Each ASCII byte stands for its ASCII character. Other bytes stand for other characters than
    /// in UTF-8.
    AsciiSuperset,
    /// An ASCII byte stands for its ASCII character, unless it is a later byte of a character.
    MultiByte,
    /// riskgate can't read the text.
    Other,
}

impl ContentType {
    /// The type that browsers give to most forms.
    const URLENCODED: ContentType = ContentType {
        kind: BodyKind::Urlencoded,
        charset: Charset::Utf8,
        disguised_boundaries: Vec::new(),
        is_disguised_form: false,
        has_other_boundary_for_django: false,
    };

    /// Parses the value of `Content-Type`. Skips broken parameters, as most servers do. `None` if
    /// the value is not UTF-8.
    pub fn parse(value: &[u8]) -> Option<ContentType> {
        if value.eq_ignore_ascii_case(URLENCODED.as_bytes()) {
            return Some(ContentType::URLENCODED);
        }
        let text = std::str::from_utf8(value).ok()?;
        let parsed = parse_value_with_parameters(text);
        let charsets = parsed.parameters.iter().filter(|it| it.name == "charset");
        let charsets = charsets.map(|it| Charset::of(&it.value));
        let of_tomcat = read_charset_as_tomcat(text).map(Charset::of);
        // Starlette, aiohttp and Django read the spellings of RFC 2231, such as `charset*=`.
        let is_extended = |it: &Parameter| it.name.starts_with("charset*");
        let extended = parsed.parameters.iter().any(is_extended).then_some(Charset::Other);
        // Of several charsets, some servers read the first, others the last. The one that riskgate
        // can read least counts.
        let charset = charsets.chain(of_tomcat).chain(extended).max().unwrap_or_default();
        let media_type = parsed.value.to_ascii_lowercase();
        let kind = match media_type.split_once('/') {
            Some((kind, subtype)) if is_token(kind) && is_token(subtype) => match (kind, subtype) {
                ("multipart", _) => match read_boundaries_as_servers(text, &parsed.parameters) {
                    Some(boundaries) => BodyKind::Multipart { boundaries },
                    None => BodyKind::Other,
                },
                ("application" | "text", "json" | "x-json")
                | (
                    "application",
                    "jsonrequest" | "json-rpc" | "x-amz-json-1.0" | "x-amz-json-1.1",
                ) => BodyKind::Json,
                (_, subtype) if subtype.ends_with("+json") => BodyKind::Json,
                ("application", "x-www-form-urlencoded") => BodyKind::Urlencoded,
                ("text", "plain") => BodyKind::PlainText,
                _ => BodyKind::Other,
            },
            _ => BodyKind::Other,
        };
        let is_multipart = matches!(kind, BodyKind::Multipart { .. });
        let lower = text.to_ascii_lowercase();
        let disguised_boundaries = match !is_multipart && lower.contains("multipart") {
            true => read_boundaries_as_servers(text, &parsed.parameters),
            false => Some(Vec::new()),
        };
        let is_disguised_form = kind != BodyKind::Urlencoded && lower.contains(URLENCODED);
        // If riskgate does not know all boundaries, it can't tell what is in the body.
        let (kind, disguised_boundaries) = match disguised_boundaries {
            Some(boundaries) => (kind, boundaries),
            None => (BodyKind::Other, Vec::new()),
        };
        let has_other_boundary_for_django = match &kind {
            BodyKind::Multipart { boundaries } => {
                read_parameter_as_python(text, "boundary").as_ref() != boundaries.first()
            }
            _ => false,
        };
        Some(ContentType {
            kind,
            charset,
            disguised_boundaries,
            is_disguised_form,
            has_other_boundary_for_django,
        })
    }
}

impl Charset {
    /// Returns the kind of the charset that this text names. An empty text names none.
    pub fn of_text(name: &[u8]) -> Charset {
        match std::str::from_utf8(name.trim_ascii()) {
            Ok("") => Charset::default(),
            Ok(name) => Charset::of(name),
            Err(_) => Charset::Other,
        }
    }

    fn of(name: &str) -> Charset {
        /// Charsets of one byte for each character, by the names that clients write.
        const SINGLE_BYTE: &str = "iso-8859-1 iso-8859-2 iso-8859-3 iso-8859-4 iso-8859-5 \
            iso-8859-6 iso-8859-7 iso-8859-8 iso-8859-9 iso-8859-10 iso-8859-11 iso-8859-13 iso-8859-14 \
            iso-8859-15 iso-8859-16 iso8859-1 iso8859_1 iso_8859-1 csisolatin1 l1 latin1 latin-1 \
            iso8859-15 iso_8859-15 latin2 iso-8859-8-i windows-874 windows-1250 \
            windows-1251 windows-1252 windows-1253 windows-1254 windows-1255 windows-1256 \
            windows-1257 windows-1258 cp866 ibm866 x-mac-cyrillic x-user-defined cp1251 cp1252 koi8-r koi8-u macintosh tis-620";
        const MULTI_BYTE: &str = "big5 cp936 euc-jp euc-kr gb18030 gb2312 gbk ks_c_5601-1987 shift_jis \
            sjis windows-31j windows-949 x-sjis";
        let is_one_of =
            |names: &str, name: &str| names.split_ascii_whitespace().any(|it| it == name);
        match name.to_ascii_lowercase().as_str() {
            "utf-8" | "utf8" | "utf_8" | "us-ascii" | "ascii" | "ansi_x3.4-1968" => Charset::Utf8,
            name if is_one_of(SINGLE_BYTE, name) => Charset::AsciiSuperset,
            name if is_one_of(MULTI_BYTE, name) => Charset::MultiByte,
            _ => Charset::Other,
        }
    }
}

#[cfg(test)]
mod tests;
