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

/// Returns true if the text is an address, with or without a name before it, or a list of
/// addresses: as it is, without its blanks, or up to a NUL, where some software ends a text. A
/// sentence with an address in it is none.
pub(super) fn is_lone_address(text: &str) -> bool {
    let is_lone = |text: &str| {
        has_address(text) && text.contains('<')
            || has_address_without_blanks(text) && !is_sentence(text)
    };
    is_lone(text) || text.split_once('\0').is_some_and(|(start, _)| is_lone(start))
}

/// Returns true if the text has several words that are no part of an address. A word with an at
/// sign is a part of an address, and so is a word beside an at sign.
fn is_sentence(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_behind_at = |at: usize| at > 0 && words[at - 1].ends_with(AT_SIGNS);
    let is_before_at = |at: usize| words.get(at + 1).is_some_and(|it| it.starts_with(AT_SIGNS));
    let is_of_sentence = |&at: &usize| {
        let may_be_of_address =
            words[at].contains(AT_SIGNS) || is_behind_at(at) || is_before_at(at);
        words[at].contains(char::is_alphanumeric) && !may_be_of_address
    };
    (0..words.len()).filter(is_of_sentence).count() > 1
}

fn is_domain(text: &str) -> bool {
    text.split(DOTS).filter(|label| label.contains(char::is_alphanumeric)).count() >= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_few_words_with_an_address_is_a_lone_address() {
        for text in [
            "c@d.com",
            " Joe <c@d.com> ",
            "a long name <c@d.com>",
            "c @d.com",
            "c@ d.com",
            "c @ d.com",
            "c@d .com",
            "c@d.com, x@y.com",
            "c@d.com x@y.com, a@b.com",
            "c@d.com\0 x",
            "c@d.com\0 and many more words",
            "foo,bar,c@d.com",
            "meet @ 5. Bye",
        ] {
            assert!(is_lone_address(text), "{text:?}");
        }
        for text in [
            "",
            "a@b",
            "Please use c@d.com",
            "c@d.com is taken",
            "is c@d.com, x@y.com or a@b.com yours?",
            "we meet @ the c.d today",
            "see\0c@d.com or ask",
        ] {
            assert!(!is_lone_address(text), "{text:?}");
        }
    }
}
