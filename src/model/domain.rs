//! E-mail domains in their one canonical form.
//!
//! Decodes percent-encoding, maps names by UTS-46, checks the labels, and finds public suffixes.
//! A [`Domain`] or a [`DnsName`] is always a checked name. This module does not judge whether a
//! domain is risky, and sends no DNS queries.

use std::borrow::Cow;
use std::fmt;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
use smol_str::SmolStr;

/// Longest domain name in bytes, without a trailing dot (RFC 1035 section 2.3.4).
pub const MAX_NAME_LEN: usize = 253;
/// Bounds the cost of the mapping of UTS-46: no name that people use is longer, even in Unicode.
const MAX_MAPPED_LEN: usize = 4 * (MAX_NAME_LEN + 1);
/// Longest label in bytes (RFC 1035 section 2.3.4).
pub const MAX_LABEL_LEN: usize = 63;

/// A domain that can follow the `@` of an e-mail address: lower case, A-labels, two labels or
/// more, no trailing dot (RFC 5890, UTS-46 non-transitional with STD3 rules).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Domain(SmolStr);

/// A name in a list. Unlike a [`Domain`] it may have only one label, because lists also name TLDs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DnsName(String);

/// Why a text is not a domain. The message says what was expected and never repeats the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DomainError {
    /// A `%` that is not followed by two hexadecimal digits.
    #[error("expected percent-encoding to be % and two hexadecimal digits")]
    PercentEncoding,
    /// The decoded bytes are not UTF-8.
    #[error("expected valid UTF-8")]
    Utf8,
    /// An `@`, `/`, `:` or `_`, a blank or a control character.
    #[error("expected a domain without @, /, :, spaces, control characters or underscores")]
    ForbiddenCharacter,
    /// A label that UTS-46 rejects.
    #[error("expected labels of letters, digits and inner hyphens, or valid international names")]
    InvalidLabel,
    /// Fewer than two labels.
    #[error("expected at least two labels, such as example.com")]
    SingleLabel,
    /// An empty label, or a label over 63 bytes.
    #[error("expected labels of 1 to 63 characters")]
    LabelLength,
    /// Over 253 bytes in the canonical form, or over 1,016 bytes as written.
    #[error("expected at most 253 characters")]
    NameLength,
    /// The last label is a number, as in an IPv4 address.
    #[error("expected a domain name, not an IP address or a number as its last label")]
    NumericLastLabel,
}

/// Who runs a public suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuffixKind {
    /// A registry (`com`, `co.uk`). Also the kind of a suffix that is not in the list (rule `*`).
    Icann,
    /// A private operator (`pp.ua`, `github.io`).
    Private,
}

impl Domain {
    /// Parses one raw path segment: decodes its percent-encoding once, and parses the result.
    pub fn from_path_segment(segment: &[u8]) -> Result<Domain, DomainError> {
        let decoded = match segment.contains(&b'%') {
            true => Cow::Owned(percent_decode(segment)?),
            false => Cow::Borrowed(segment),
        };
        let text = std::str::from_utf8(&decoded).map_err(|_| DomainError::Utf8)?;
        Domain::parse(text)
    }

    /// Parses a text whose percent-encoding is already decoded.
    pub fn parse(text: &str) -> Result<Domain, DomainError> {
        canonicalize(text).map(SmolStr::from).and_then(Domain::from_canonical)
    }

    fn from_canonical(name: SmolStr) -> Result<Domain, DomainError> {
        check_labels(&name)?;
        if !name.as_bytes().contains(&b'.') {
            return Err(DomainError::SingleLabel);
        }
        Ok(Domain(name))
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name in Unicode. `None` if no label is an A-label.
    pub fn to_unicode(&self) -> Option<String> {
        name_to_unicode(&self.0)
    }

    /// Returns the byte offset at which the public suffix begins, and the suffix's kind.
    pub fn public_suffix_start(&self) -> (usize, SuffixKind) {
        find_public_suffix_start(&self.0)
    }

    /// Where the registrable part begins, in bytes; `None` when the whole name is a public suffix.
    pub fn registrable_start(&self) -> Option<usize> {
        registrable_start(&self.0, self.public_suffix_start().0)
    }
}

/// Returns a canonical name in Unicode; `None` if no label is an A-label.
pub fn name_to_unicode(name: &str) -> Option<String> {
    let has_a_label =
        name.as_bytes().contains(&b'-') && (name.starts_with("xn--") || name.contains(".xn--"));
    has_a_label.then(|| {
        let (ascii, hyphens) = (AsciiDenyList::STD3, Hyphens::CheckFirstLast);
        Uts46::new().to_unicode(name.as_bytes(), ascii, hyphens).0.into_owned()
    })
}

/// Maps a part of a name as the mapping of whole names does (UTS-46, non-transitional), so that the
/// name in Unicode contains the result. A part that is no name of its own, for example because it
/// begins with a combining mark, is returned in lower case. `None` for a part that is too long.
pub fn map_name_part(part: &str) -> Option<String> {
    if part.len() > MAX_MAPPED_LEN {
        return None;
    }
    let (ascii, hyphens) = (AsciiDenyList::EMPTY, Hyphens::Allow);
    let (mapped, validity) = Uts46::new().to_unicode(part.as_bytes(), ascii, hyphens);
    Some(validity.map_or_else(|_| part.to_lowercase(), |()| mapped.into_owned()))
}

impl DnsName {
    /// Parses a name of a list like [`Domain::parse`], but accepts a single label.
    pub fn parse(text: &str) -> Result<DnsName, DomainError> {
        let name = canonicalize(text)?;
        check_labels(&name)?;
        Ok(DnsName(name.into_owned()))
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Where the registrable part begins, in bytes; `None` when the whole name is a public suffix.
    pub fn registrable_start(&self) -> Option<usize> {
        registrable_start(&self.0, find_public_suffix_start(&self.0).0)
    }

    /// The kind of the public suffix, if the whole name is a public suffix.
    pub fn kind_if_public_suffix(&self) -> Option<SuffixKind> {
        match find_public_suffix_start(&self.0) {
            (0, kind) => Some(kind),
            _ => None,
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The version of the public suffix list in this program. A compiled table stores the version that
/// the table was built with, because its look-up shortcuts hold only for that list.
pub fn suffix_list_version() -> &'static str {
    // The list is compiled into the crate, so the crate's version identifies it.
    "psl 2.1.247"
}

/// Finds an ASCII character as [`str::rfind`] does. In a text as short as a name or an address,
/// this takes a third of the time.
pub fn find_last(text: &str, ascii: u8) -> Option<usize> {
    text.as_bytes().iter().rposition(|byte| *byte == ascii)
}

/// The byte offsets of the name itself (`0`) and of each parent (behind each dot).
pub fn self_and_parent_offsets(name: &str) -> impl Iterator<Item = usize> + '_ {
    std::iter::once(0)
        .chain(name.bytes().enumerate().filter(|(_, b)| *b == b'.').map(|(i, _)| i + 1))
}

/// Decodes percent-encoding once (RFC 3986 section 2.1); a `+` stays a `+`.
pub fn percent_decode(segment: &[u8]) -> Result<Vec<u8>, DomainError> {
    let mut out = Vec::with_capacity(segment.len());
    let mut rest = segment.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let high = rest.next().and_then(|b| hex_digit(*b)).ok_or(DomainError::PercentEncoding)?;
        let low = rest.next().and_then(|b| hex_digit(*b)).ok_or(DomainError::PercentEncoding)?;
        out.push(high << 4 | low);
    }
    Ok(out)
}

/// The length of a character that is encoded as `%u0061`.
pub const PERCENT_U_BYTES: usize = 6;

/// Decodes a character such as `%u0061` at the start of a text, as ASP.NET, IIS and Jetty read it;
/// `None` if there is none.
pub fn decode_percent_u(text: &[u8]) -> Option<char> {
    let [b'%', b'u' | b'U', digits @ ..] = text else { return None };
    let digits = digits.get(..PERCENT_U_BYTES - 2)?;
    let number = digits
        .iter()
        .try_fold(0, |number, digit| hex_digit(*digit).map(|digit| number << 4 | u32::from(digit)));
    char::from_u32(number?)
}

fn hex_digit(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}

/// Returns true only if UTS-46 does not change the text, so that the mapping can be skipped. What
/// UTS-46 refuses in such a text, [`check_labels`] refuses. Returns false for A-labels, which the
/// mapping must check.
fn is_surely_canonical(text: &[u8]) -> bool {
    let is_allowed = |b: &u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    text.iter().all(is_allowed)
        && !(text.contains(&b'-') && text.windows(4).any(|w| w == b"xn--"))
        && text.last() != Some(&b'.')
}

fn canonicalize(text: &str) -> Result<Cow<'_, str>, DomainError> {
    if is_surely_canonical(text.as_bytes()) {
        return Ok(Cow::Borrowed(text));
    }
    let forbidden =
        |c: char| matches!(c, '@' | '/' | ':' | '_') || c.is_control() || c.is_whitespace();
    if text.chars().any(forbidden) {
        return Err(DomainError::ForbiddenCharacter);
    }
    if text.len() > MAX_MAPPED_LEN {
        return Err(DomainError::NameLength);
    }
    let mapped = Uts46::new()
        .to_ascii(text.as_bytes(), AsciiDenyList::STD3, Hyphens::CheckFirstLast, DnsLength::Ignore)
        .map_err(|_| DomainError::InvalidLabel)?
        .into_owned();
    let stripped = mapped.strip_suffix('.').map(str::to_owned);
    Ok(Cow::Owned(stripped.unwrap_or(mapped)))
}

/// Maps a host name to A-labels, as browsers send it (UTS-46, non-transitional). The host need not
/// be a [`Domain`]. `None` if the mapping fails or the host is too long.
pub fn host_to_ascii(host: &str) -> Option<String> {
    if host.len() > MAX_MAPPED_LEN {
        return None;
    }
    let ascii = Uts46::new().to_ascii(
        host.as_bytes(),
        AsciiDenyList::URL,
        Hyphens::Allow,
        DnsLength::Ignore,
    );
    ascii.ok().map(Cow::into_owned)
}

fn check_labels(name: &str) -> Result<(), DomainError> {
    if name.len() > MAX_NAME_LEN {
        return Err(DomainError::NameLength);
    }
    let mut last: &[u8] = b"";
    for label in name.as_bytes().split(|byte| *byte == b'.') {
        if label.is_empty() || label.len() > MAX_LABEL_LEN {
            return Err(DomainError::LabelLength);
        }
        if label.starts_with(b"-") || label.ends_with(b"-") {
            return Err(DomainError::InvalidLabel);
        }
        last = label;
    }
    // The C function inet_aton also reads 0x… as a number. No TLD begins with 0x.
    let is_hexadecimal =
        last.strip_prefix(b"0x").is_some_and(|h| h.iter().all(u8::is_ascii_hexdigit));
    if last.iter().all(u8::is_ascii_digit) || is_hexadecimal {
        return Err(DomainError::NumericLastLabel);
    }
    Ok(())
}

fn find_public_suffix_start(name: &str) -> (usize, SuffixKind) {
    match psl::suffix(name.as_bytes()) {
        Some(suffix) => {
            let kind = match suffix.typ() {
                Some(psl::Type::Private) => SuffixKind::Private,
                _ => SuffixKind::Icann,
            };
            (name.len() - suffix.as_bytes().len(), kind)
        }
        None => (0, SuffixKind::Icann),
    }
}

fn registrable_start(name: &str, suffix_start: usize) -> Option<usize> {
    if suffix_start == 0 {
        return None;
    }
    Some(find_last(&name[..suffix_start - 1], b'.').map_or(0, |dot| dot + 1))
}

#[cfg(test)]
mod tests;
