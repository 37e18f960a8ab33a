//! An address as a user has typed or pasted it, and what other software than riskgate reads in it.

use std::borrow::Cow;

use crate::model::domain::{Domain, find_last};
use crate::model::email::{EmailAddress, EmailError};
use crate::model::letter_case::fold_case;

/// The characters that some software takes for the `@` of an address. Unicode's compatibility
/// mapping (NFKC) makes an `@` of the other two.
pub const AT_SIGNS: [char; 3] = ['@', '\u{ff20}', '\u{fe6b}'];

/// Returns true if some software reads an address in this text.
pub fn has_at_sign(text: &str) -> bool {
    text.contains('@') || !text.is_ascii() && text.contains(AT_SIGNS)
}

/// Returns the first character of a text that may belong to an e-mail address: an `@`, or the
/// character with which an encoded `@` begins, as in `%40`, `&commat;` and `\u0040`. A text without
/// such a character has no local part, so a log may show it.
pub fn first_mark_of_address(text: &str) -> Option<char> {
    text.chars().find(|c| AT_SIGNS.contains(c) || matches!(c, '%' | '&' | '\\'))
}

/// An address as a user has typed or pasted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedAddress {
    /// The address that riskgate reads.
    pub address: EmailAddress,
    /// What other software reads.
    pub other_readings: OtherReadings,
}

/// What only some software reads in a text. All are `None` for an address such as
/// `user@example.com`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherReadings {
    /// Software with the IDNA of 2003: Python's codec and Java's `IDN` write `ss` for `ß`
    /// (RFC 3490, UTS 46 section 4).
    pub by_idna_2003: Option<Domain>,
    /// Software that removes all characters beyond ASCII, as PHP's `FILTER_SANITIZE_EMAIL` does,
    /// and software that takes letters beyond ASCII for ASCII letters in another case: Go's
    /// `strings.ToLower` and C's `towlower` write `i` for U+0130.
    pub as_ascii: Vec<Domain>,
    /// The address that is left where software removes characters from an address, as PHP's
    /// `FILTER_SANITIZE_EMAIL` does. `None` if nothing is removed, or no address is left.
    pub sanitized: Option<EmailAddress>,
}

/// What a client asks to check: an address, or a domain alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressOrDomain {
    /// An address.
    Address(TypedAddress),
    /// A domain.
    Domain(Domain),
}

impl TypedAddress {
    /// Parses an address. Blanks around the address don't count, nor what
    /// `without_invisible_characters` removes.
    ///
    /// # Errors
    /// Returns an error if the text is not an address, or one that no honest user has, because some
    /// software reads another address in it.
    pub fn parse(text: &str) -> Result<TypedAddress, EmailError> {
        TypedAddress::parse_visible(without_invisible_characters(text).trim())
    }

    fn parse_visible(text: &str) -> Result<TypedAddress, EmailError> {
        let address = EmailAddress::parse(text)?;
        if hides_another_address(address.local_part()) {
            return Err(EmailError::OtherAddress);
        }
        let domain = &text[find_last(text, b'@').map_or(0, |at| at + 1)..];
        let sanitized = parse_sanitized(text);
        let other_readings = OtherReadings { sanitized, ..OtherReadings::of_domain(domain) };
        Ok(TypedAddress { address, other_readings })
    }
}

/// Returns true if some mail programs send to another address: they read one in the quoted local
/// part (CVE-2025-13033), or decode an encoded word in it (RFC 2047). No honest address has an `@`
/// or an encoded word in its local part.
fn hides_another_address(local_part: &str) -> bool {
    has_at_sign(local_part) || local_part.as_bytes().windows(2).any(|it| it == b"=?")
}

/// Returns the address without the characters that PHP's `FILTER_SANITIZE_EMAIL` removes, such as
/// `"`, blanks, `/` and all beyond ASCII. `None` if it removes none, or no address is left.
fn parse_sanitized(text: &str) -> Option<EmailAddress> {
    let is_kept = |byte: u8| match byte {
        b'"' | b'(' | b')' | b',' | b'/' | b':' | b';' | b'<' | b'>' | b'\\' => false,
        _ => byte.is_ascii_graphic(),
    };
    if text.bytes().all(is_kept) {
        return None;
    }
    let kept: String = text.bytes().filter(|byte| is_kept(*byte)).map(char::from).collect();
    EmailAddress::parse(&kept).ok()
}

impl OtherReadings {
    /// Reads the text of a domain as other software does.
    pub fn of_domain(text: &str) -> OtherReadings {
        if text.is_ascii() {
            return OtherReadings::default();
        }
        const DEVIATIONS: [char; 5] = ['ß', 'ẞ', 'ς', '\u{200c}', '\u{200d}'];
        let by_idna_2003 = text.contains(DEVIATIONS).then(|| {
            let mapped = text.replace(['ß', 'ẞ'], "ss").replace('ς', "σ");
            mapped.replace(['\u{200c}', '\u{200d}'], "")
        });
        let by_letter_case = text.contains(['\u{130}', '\u{131}']).then(|| fold_case(text));
        let without_others = text.replace(|c: char| !c.is_ascii(), "");
        let as_ascii = by_letter_case.into_iter().chain([without_others]);
        OtherReadings {
            by_idna_2003: by_idna_2003.and_then(|text| Domain::parse(&text).ok()),
            as_ascii: as_ascii.filter_map(|text| Domain::parse(&text).ok()).collect(),
            sanitized: None,
        }
    }
}

impl AddressOrDomain {
    /// Parses a text with an `@` as an address, and any other text as a domain. What
    /// `without_invisible_characters` removes does not count.
    ///
    /// # Errors
    /// Returns an error if the text is neither, or an address in which some software reads another.
    pub fn parse(text: &str) -> Result<AddressOrDomain, EmailError> {
        let visible = without_invisible_characters(text);
        match visible.contains('@') {
            true => TypedAddress::parse_visible(&visible).map(AddressOrDomain::Address),
            false => Ok(AddressOrDomain::Domain(Domain::parse(&visible)?)),
        }
    }

    /// The domain that is judged.
    pub fn domain(&self) -> &Domain {
        match self {
            AddressOrDomain::Address(typed) => typed.address.domain(),
            AddressOrDomain::Domain(domain) => domain,
        }
    }

    /// What other software reads in an address.
    pub fn other_readings(&self) -> OtherReadings {
        match self {
            AddressOrDomain::Address(typed) => typed.other_readings.clone(),
            AddressOrDomain::Domain(_) => OtherReadings::default(),
        }
    }

    /// The text for answers: the masked address, or the domain.
    pub fn masked(&self) -> String {
        match self {
            AddressOrDomain::Address(typed) => typed.address.masked(),
            AddressOrDomain::Domain(domain) => domain.to_string(),
        }
    }

    /// Whether this is an address of a role or a machine; see [`EmailAddress::is_role`].
    pub fn is_role(&self) -> bool {
        matches!(self, AddressOrDomain::Address(typed) if typed.address.is_role())
    }
}

/// Returns the text without the characters that no reader sees, such as U+200B and U+200E, which
/// phones paste beside an address. The byte order mark and the soft hyphen are among them. U+200C
/// and U+200D stay in an international domain, because its name may contain them (RFC 5892 appendix
/// A).
pub fn without_invisible_characters(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || !text.contains(is_invisible) {
        return Cow::Borrowed(text);
    }
    let (local_part, domain) = text.split_at(text.rfind('@').unwrap_or(0));
    let is_international = domain.chars().any(|c| !c.is_ascii() && !is_invisible(c));
    let is_joiner = |c: char| is_international && matches!(c, '\u{200c}' | '\u{200d}');
    let local_part = local_part.chars().filter(|c| !is_invisible(*c));
    let domain = domain.chars().filter(|c| !is_invisible(*c) || is_joiner(*c));
    Cow::Owned(local_part.chain(domain).collect())
}

/// Returns true if no reader sees this character: it has Unicode's property
/// `Default_Ignorable_Code_Point` (`DerivedCoreProperties.txt` of Unicode 14.0), or is U+2800, the
/// Braille pattern without dots.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests;
