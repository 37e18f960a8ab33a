//! Whether a text that need not be an address has one.

use crate::model::typed_address::AT_SIGNS;

/// The characters that some software takes for the dot of a domain (UTS 46, and Unicode's
/// compatibility mapping NFKC).
pub(super) const DOTS: [char; 6] =
    ['.', '\u{3002}', '\u{ff0e}', '\u{ff61}', '\u{2024}', '\u{fe52}'];

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

/// Returns true if the text is an address that is not in `known`, with or without a name before it,
/// or a list of such addresses: as it is, without its blanks, without its characters beyond ASCII,
/// or up to a NUL, where some software ends a text. A sentence with an address is none, unless it
/// has a `<` as well: some software then reads the address alone.
pub(super) fn is_new_lone_address(text: &str, known: &[String]) -> bool {
    let is_new = |text: &str| {
        let start = text.split_once('\0').map(|(start, _)| start);
        is_new_as_written(text, known) || start.is_some_and(|it| is_new_as_written(it, known))
    };
    let in_ascii = || text.chars().filter(char::is_ascii).collect::<String>();
    is_new(text) || !text.is_ascii() && is_new(&in_ascii())
}

fn is_new_as_written(text: &str, known: &[String]) -> bool {
    if has_no_local_part(text) || is_path_of_file(text) {
        return false;
    }
    let is_in_brackets =
        || has_address(text) && text.contains('<') && !has_only_known_mailboxes(text, known);
    let is_in_pieces = || has_address_in_pieces(text) && !is_sentence(text);
    (is_in_brackets() || is_in_pieces())
        && !is_known(text, known)
        && !has_only_known_words(text, known)
}

fn is_known(text: &str, known: &[String]) -> bool {
    known.iter().any(|it| it.eq_ignore_ascii_case(text))
}

/// Returns true if nothing stands before the only at sign, as in the name of an account
/// (`@jane.doe`).
fn has_no_local_part(text: &str) -> bool {
    text.trim_start().strip_prefix(AT_SIGNS).is_some_and(|behind| !behind.contains(AT_SIGNS))
}

/// Endings of files that are no top-level domains.
const FILE_ENDINGS: [&str; 11] =
    ["css", "gif", "ico", "jpeg", "jpg", "js", "json", "png", "svg", "webp", "woff2"];

/// Returns true for the name or the URL of a file, such as `logo@2x.png` or `a@5.3.0/b.css`: the
/// text ends with the ending of a file, where an address has its top-level domain. In a URL, the
/// number of a version stands behind the at sign.
fn is_path_of_file(text: &str) -> bool {
    let text = text.trim();
    let is_of_path = |byte: u8| byte.is_ascii_alphanumeric() || b".-_/:@".contains(&byte);
    let Some((before, behind)) = text.split_once('@').filter(|_| text.bytes().all(is_of_path))
    else {
        return false;
    };
    let has_ending = behind
        .rsplit_once('.')
        .is_some_and(|(_, ending)| FILE_ENDINGS.iter().any(|it| it.eq_ignore_ascii_case(ending)));
    let is_digit_or_dot = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    // Four numbers may be an address of IPv4.
    let is_version = |text: &str| text.bytes().all(is_digit_or_dot) && text.split('.').count() < 4;
    has_ending
        && !before.is_empty()
        && !behind.contains(['@', ':'])
        && behind.split_once('/').is_none_or(|(version, _)| is_version(version))
}

/// Returns true if software that reads `Name <address>`, and software that removes tags, finds only
/// known addresses in the text.
fn has_only_known_mailboxes(text: &str, known: &[String]) -> bool {
    let has_at = |word: &str| word.contains(AT_SIGNS);
    let pieces = || {
        text.split('<').enumerate().map(|(index, piece)| match index {
            0 => ("", piece),
            _ => piece.split_once('>').unwrap_or((piece, "")),
        })
    };
    let goes_on = |text: &str| text.starts_with(|c: char| c.is_alphanumeric() || DOTS.contains(&c));
    let without_tags: String = pieces().map(|(_, outside)| outside).collect();
    let mut words = without_tags.split_whitespace().filter(|word| has_at(word));
    words.all(|word| is_known(without_marks_around(word), known))
        && (!has_address_in_pieces(&without_tags)
            || is_sentence(&without_tags)
            || has_only_known_words(&without_tags, known))
        && pieces().all(|(inside, outside)| {
            !has_at(inside) || is_known(inside.trim(), known) && !goes_on(outside)
        })
}

/// Words that stand beside an address in an answer. A longer word makes a sentence.
const SHORT_WORDS: [&str; 7] = ["hi", "ok", "to", "an", "is", "it", "de"];

/// Returns true if each word of the text is a known address, one of [`SHORT_WORDS`], or a mark such
/// as `✓`. Other words beside an address may become a part of it where software removes blanks.
fn has_only_known_words(text: &str, known: &[String]) -> bool {
    let is_mark = |word: &str| {
        word.chars().all(|c| !c.is_alphanumeric() && !DOTS.contains(&c) && !"%&=@_\\".contains(c))
    };
    text.split_whitespace().all(|word| {
        let inner = without_marks_around(word);
        let is_short_word = || SHORT_WORDS.iter().any(|it| it.eq_ignore_ascii_case(inner));
        is_known(inner, known) || is_short_word() || is_mark(word)
    })
}

/// Returns a word without the marks around it, and without `mailto:`.
fn without_marks_around(word: &str) -> &str {
    const SCHEME: &str = "mailto:";
    let word = word.trim_start_matches(|c| "\"'([<,;:".contains(c) || is_beside_words(c));
    let has_scheme = word.get(..SCHEME.len()).is_some_and(|it| it.eq_ignore_ascii_case(SCHEME));
    let word = if has_scheme { &word[SCHEME.len()..] } else { word };
    word.trim_end_matches(|c| "\"')]>,;:!?.".contains(c) || is_beside_words(c))
}

/// Returns true for a character that stands beside words in a text, and hardly in an address: a
/// sign of punctuation, an emoji, or a Chinese, Japanese or Korean character. Few providers give
/// out such local parts, and no top-level domain has such a character behind ASCII letters.
fn is_beside_words(c: char) -> bool {
    matches!(c,
        '\u{ab}' | '\u{bb}' | '\u{2013}'..='\u{201f}' | '\u{2026}' | '\u{2039}'..='\u{203a}'
        | '\u{2600}'..='\u{27bf}' | '\u{3000}'..='\u{3001}' | '\u{300a}'..='\u{3011}'
        | '\u{3041}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}'
        | '\u{fe0f}' | '\u{ff01}' | '\u{ff08}'..='\u{ff09}' | '\u{ff0c}'
        | '\u{ff1a}'..='\u{ff1b}' | '\u{ff1f}' | '\u{1f300}'..='\u{1faff}')
}

/// Returns true if a domain stands behind an at sign, perhaps with blanks in it.
fn has_address_in_pieces(text: &str) -> bool {
    text.split(AT_SIGNS).skip(1).any(|behind| count_words_of_domain(behind).is_some())
}

/// Returns how many words behind an at sign make a domain. `None` if they make none. `behind` ends
/// at the next at sign of the text. A number is no domain, as in `3 @ 2.50`, unless it may be an
/// address of IPv4.
fn count_words_of_domain(behind: &str) -> Option<usize> {
    let (mut labels, mut is_in_label, mut is_number) = (0, false, true);
    let mut words = behind.split_whitespace().enumerate().peekable();
    while let Some((at, word)) = words.next() {
        for c in word.chars() {
            if DOTS.contains(&c) {
                is_in_label = false;
            } else if c.is_alphanumeric() {
                labels += usize::from(!is_in_label);
                is_number = c.is_ascii_digit() && (is_number || !is_in_label);
                is_in_label = true;
            }
        }
        if labels >= 2 && (!is_number || labels == 4) {
            return Some(at + 1);
        }
        let goes_on = word.ends_with(DOTS) || words.peek().is_some_and(|it| it.1.starts_with(DOTS));
        if labels >= 2 && !goes_on {
            return None;
        }
    }
    None
}

/// Returns true if the text has a word that is no part of an address. A word is a part of one if it
/// has an at sign, stands before one, or belongs to the domain behind one. A word of one or two
/// letters may be a piece of an address, unless a character of its script may be a whole word.
fn is_sentence(text: &str) -> bool {
    let pieces: Vec<&str> = text.split(AT_SIGNS).collect();
    let last = pieces.len() - 1;
    let is_other = |word: &&str| {
        let letters = word.chars().filter(|it| it.is_alphanumeric()).count();
        letters > 2 || word.chars().any(|c| c.is_alphanumeric() && is_beside_words(c))
    };
    (0..=last).any(|at| {
        let words: Vec<&str> = pieces[at].split_whitespace().collect();
        let of_domain = match at {
            0 => 0,
            _ => {
                let has_at_sign = !pieces[at].starts_with(char::is_whitespace);
                let of_domain = count_words_of_domain(pieces[at]);
                of_domain.unwrap_or_default().max(usize::from(has_at_sign))
            }
        };
        let before_next = words.len().saturating_sub(usize::from(at < last));
        words.get(of_domain..before_next).unwrap_or_default().iter().any(is_other)
    })
}

fn is_domain(text: &str) -> bool {
    text.split(DOTS).filter(|label| label.contains(char::is_alphanumeric)).count() >= 2
}

#[cfg(test)]
mod tests;
