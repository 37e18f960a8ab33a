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
        has_address(text) && text.contains('<') || has_address_in_pieces(text) && !is_sentence(text)
    };
    is_lone(text) || text.split_once('\0').is_some_and(|(start, _)| is_lone(start))
}

/// Returns true if a domain stands behind an at sign, perhaps with blanks in it. Its last label has
/// a letter first, so `3 @ 2.50` is no address.
fn has_address_in_pieces(text: &str) -> bool {
    text.split(AT_SIGNS).skip(1).any(|behind_at| words_of_domain(behind_at).is_some())
}

/// Returns how many words of the text make a domain, from the start of the text. `None` if they
/// make none.
fn words_of_domain(text: &str) -> Option<usize> {
    let mut domain = String::new();
    for (at, word) in text.split_whitespace().enumerate() {
        domain.push_str(word);
        if is_domain(&domain) {
            let last = domain.trim_end_matches(|it: char| !it.is_alphanumeric()).rsplit(DOTS);
            let is_name = last.take(1).any(|label| label.starts_with(char::is_alphabetic));
            return is_name.then_some(at + 1);
        }
    }
    None
}

/// Returns true if the text has a word that is no part of an address. A word is a part of one if it
/// has an at sign, stands beside one, or belongs to the domain behind one. A word of one or two
/// ASCII letters may be a piece of an address.
fn is_sentence(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut of_domain_until = 0;
    (0..words.len()).any(|at| {
        let word = words[at];
        if let Some((_, behind_at)) = word.rsplit_once(AT_SIGNS) {
            let rest = words[at + 1..].iter().copied();
            let domain = std::iter::once(behind_at).chain(rest).collect::<Vec<_>>().join(" ");
            let begins_here = usize::from(!behind_at.is_empty());
            let count = words_of_domain(&domain).unwrap_or_default();
            of_domain_until = of_domain_until.max(at + 1 + count.saturating_sub(begins_here));
        }
        let is_before_at = words.get(at + 1).is_some_and(|it| it.starts_with(AT_SIGNS));
        let letters = || word.chars().filter(|it| it.is_alphanumeric());
        let is_piece = || letters().count() <= 2 && word.is_ascii();
        at >= of_domain_until && !is_before_at && letters().count() > 0 && !is_piece()
    })
}

fn is_domain(text: &str) -> bool {
    text.split(DOTS).filter(|label| label.contains(char::is_alphanumeric)).count() >= 2
}

#[cfg(test)]
mod tests;
