//! Whether a text that need not be an address has one.

use crate::model::typed_address::AT_SIGNS;

/// The characters that some software takes for the dot of a domain (UTS 46, and Unicode's
/// compatibility mapping NFKC).
const DOTS: [char; 6] = ['.', '\u{3002}', '\u{ff0e}', '\u{ff61}', '\u{2024}', '\u{fe52}'];

/// Returns true if a word with a domain stands behind an at sign. The domain has a dot, so
/// `P@ssw0rd` is no address.
pub(super) fn has_address(text: &str) -> bool {
    let has_domain = |behind_at: &str| is_domain(behind_at.split_whitespace().next().unwrap_or(""));
    text.split(AT_SIGNS).skip(1).any(has_domain)
}

/// Returns true if [`has_address`] may hold for the text without its blanks.
pub(super) fn has_address_without_blanks(text: &str) -> bool {
    text.split(AT_SIGNS).skip(1).any(is_domain)
}

/// Returns true if the text is one address, with or without a name before it. A text with an
/// address among other words is not.
pub(super) fn is_lone_address(text: &str) -> bool {
    has_address(text) && (text.contains('<') || !text.trim().contains(char::is_whitespace))
}

fn is_domain(text: &str) -> bool {
    text.split(DOTS).filter(|label| label.contains(char::is_alphanumeric)).count() >= 2
}
