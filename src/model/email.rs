//! E-mail addresses: their grammar (RFC 5321 section 4.1.2, RFC 6531), the masked text, and role
//! addresses.
//!
//! An [`EmailAddress`] always obeys the grammar. This module does not judge whether an address is
//! risky, and does not ask whether its mailbox exists.

use arrayvec::ArrayString;

use crate::model::domain::{Domain, DomainError, find_last};
use crate::model::role_names::is_role_name;

/// Longest local part in bytes (RFC 5321 section 4.5.3.1.1).
pub const MAX_LOCAL_PART_LEN: usize = 64;
/// Longest address in bytes (RFC 5321 section 4.5.3.1.3, without the angle brackets).
pub const MAX_ADDRESS_LEN: usize = 254;
/// How many characters of a local part stay visible at each end of a masked address, if the local
/// part has five characters or more.
const VISIBLE_CHARACTERS: usize = 2;

/// An e-mail address: a local part and a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmailAddress {
    /// The local part as it was written, with the quotes of a quoted string.
    local_part: String,
    domain: Domain,
}

/// Why a text is not an e-mail address. The message says what was expected and never repeats the
/// input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmailError {
    /// The text has no `@`.
    #[error("expected an e-mail address: a local part, @ and a domain")]
    NoAt,
    /// The local part breaks the grammar.
    #[error(
        "expected a local part of 1 to 64 bytes, of letters, digits and !#$%&'*+-/=?^_`{{|}}~ \
             with single dots inside, or a quoted string"
    )]
    LocalPart,
    /// Some software reads another address in the local part. Only `TypedAddress` returns this
    /// error.
    #[error("expected a local part without another address in it")]
    OtherAddress,
    /// The address is over 254 bytes with the canonical domain, or over 1,016 bytes as written.
    #[error("expected an e-mail address of at most 254 bytes")]
    Length,
    /// The domain is not valid.
    #[error(transparent)]
    Domain(#[from] DomainError),
}

impl EmailAddress {
    /// Parses an address as it follows `MAIL FROM` and `RCPT TO`, without the angle brackets. The
    /// address may contain characters beyond ASCII (RFC 6531). Comments, folding and address
    /// literals are errors: mail to `user@[192.0.2.1]` belongs to no domain.
    ///
    /// # Errors
    /// Returns an error if the text is not an address.
    pub fn parse(text: &str) -> Result<EmailAddress, EmailError> {
        // Bounds the work. The text may be longer than an address, because its domain may be
        // shorter in the canonical form.
        if text.len() > 4 * MAX_ADDRESS_LEN {
            return Err(EmailError::Length);
        }
        // The domain has no `@`, but a quoted local part may have one.
        let at = find_last(text, b'@').ok_or(EmailError::NoAt)?;
        let (local_part, domain) = (&text[..at], &text[at + 1..]);
        if local_part.len() > MAX_LOCAL_PART_LEN
            || !(is_dot_string(local_part) || is_quoted_string(local_part))
        {
            return Err(EmailError::LocalPart);
        }
        let domain = Domain::parse(domain)?;
        if local_part.len() + 1 + domain.as_str().len() > MAX_ADDRESS_LEN {
            return Err(EmailError::Length);
        }
        Ok(EmailAddress { local_part: local_part.to_owned(), domain })
    }

    /// The local part as it was written, with the quotes of a quoted string. The local part must
    /// not reach a log, a file or a metric.
    pub fn local_part(&self) -> &str {
        &self.local_part
    }

    /// Returns true if this local part needs no quotes.
    pub fn is_unquoted_local_part(local_part: &str) -> bool {
        is_dot_string(local_part)
    }

    /// The domain, in its canonical form.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The address with the first two and the last two characters of its local part, and `****`
    /// between them. A local part of fewer than five characters shows only its first character.
    /// Log lines must not contain even the masked address.
    pub fn masked(&self) -> String {
        let characters: Vec<char> = self.local_part.chars().collect();
        let (start, end) = match characters.len() {
            0..=4 => (1, 0),
            _ => (VISIBLE_CHARACTERS, VISIBLE_CHARACTERS),
        };
        let first: String = characters[..start.min(characters.len())].iter().collect();
        let last: String = characters[characters.len() - end..].iter().collect();
        format!("{first}****{last}@{}", self.domain)
    }

    /// Returns true if the address belongs to a function or a machine, such as `info@` and
    /// `no-reply@`. What follows a `+` does not matter: mail to `info+news@` reaches `info@`.
    pub fn is_role(&self) -> bool {
        let mut name = ArrayString::<MAX_LOCAL_PART_LEN>::new();
        let mut letters = self.local_part.chars().map(narrow_character).take_while(|c| *c != '+');
        let mut has_space_for = |c| name.try_push(c).is_ok();
        // A few letters are longer in lower case; no role name has any of these letters.
        let fits = letters.all(|c| match c.is_ascii() {
            true => has_space_for(c.to_ascii_lowercase()),
            false => c.to_lowercase().all(&mut has_space_for),
        });
        fits && is_role_name(name.trim_matches('"'))
    }
}

/// Returns the ASCII character that a full-width one stands for, such as `i` for `ｉ`, and any other
/// character unchanged.
fn narrow_character(c: char) -> char {
    match c {
        '\u{ff01}'..='\u{ff5e}' => {
            char::from_u32(u32::from(c) - 0xff01 + u32::from('!')).unwrap_or(c)
        }
        _ => c,
    }
}

/// `Dot-string` of RFC 5321, with the characters that RFC 6531 adds.
fn is_dot_string(text: &str) -> bool {
    // `specials` of RFC 5322 section 3.2.3.
    let is_atext = |byte: u8| match byte {
        b'"' | b'(' | b')' | b',' | b'.' | b':' | b';' | b'<' | b'>' | b'@' | b'[' | b'\\'
        | b']' => false,
        _ => byte.is_ascii_graphic() || !byte.is_ascii(),
    };
    let is_allowed = |c: char| c.is_ascii() || !c.is_control() && !c.is_whitespace();
    let is_atom = |atom: &[u8]| !atom.is_empty() && atom.iter().copied().all(is_atext);
    text.as_bytes().split(|byte| *byte == b'.').all(is_atom)
        && (text.is_ascii() || text.chars().all(is_allowed))
}

/// `Quoted-string` of RFC 5321 that is not empty, with the characters that RFC 6531 adds.
fn is_quoted_string(text: &str) -> bool {
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let Some(inner) = inner.filter(|_| text.len() >= 3) else { return false };
    let mut characters = inner.chars();
    while let Some(c) = characters.next() {
        let is_allowed = match c {
            '\\' => characters.next().is_some_and(|escaped| matches!(escaped, ' '..='~')),
            '"' => false,
            _ => matches!(c, ' '..='~') || !c.is_ascii() && !c.is_control(),
        };
        if !is_allowed {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests;
