//! Hides what may be a key or an e-mail address in texts of clients and of other crates, before
//! riskgate logs such a text or shows it in an answer.

use crate::keys::MIN_KEY_LEN;
use crate::model::typed_address::first_mark_of_address;

/// The shortest word of ASCII letters alone that may be a key. The names of types are shorter.
const MIN_KEY_LETTERS: usize = 24;

/// Returns the text with `…` in place of each part that may be a key or an e-mail address.
pub fn redact_secrets(text: &str) -> String {
    redact_words(text, may_be_key)
}

/// Like [`redact_secrets`], for a text that a client sent in place of a name or a value: leaves
/// names and numbers as they are, because the client needs them to mend the request.
pub fn redact_sent_text(text: &str) -> String {
    redact_words(text, |word| may_be_key(word) && may_be_sent_key(word))
}

/// Returns true if a text that a client sent in place of an id or a name may be a key. Numbers, ids
/// of keys, and names of small letters, `-`, `_` and `.` are none.
pub fn may_be_sent_key(text: &str) -> bool {
    let is_number = || text.bytes().all(|byte| byte.is_ascii_digit());
    let is_name = || text.bytes().all(|byte| byte.is_ascii_lowercase() || b"-_.".contains(&byte));
    let is_id = |rest: &str| rest.len() == 16 && rest.bytes().all(|it| it.is_ascii_hexdigit());
    let is_key_id = || text.strip_prefix("key_").is_some_and(is_id);
    text.len() >= MIN_KEY_LEN && !is_number() && !is_name() && !is_key_id()
}

/// Returns the text with `…` in place of each part that is an e-mail address, or a key by `is_key`.
fn redact_words(text: &str, is_key: impl Fn(&str) -> bool) -> String {
    let is_in_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let mut redacted = String::with_capacity(text.len());
    for word in text.split_inclusive(char::is_whitespace) {
        // A mark alone, as in "a text without @,", is no address.
        let may_be_address = word.contains(char::is_alphanumeric);
        if may_be_address && first_mark_of_address(word).is_some() {
            redacted.push('…');
            redacted.extend(word.chars().next_back().filter(|c| c.is_whitespace()));
            continue;
        }
        for part in word.split_inclusive(|c| !is_in_word(c)) {
            let run = part.trim_end_matches(|c| !is_in_word(c));
            if is_key(run) {
                redacted.push('…');
                redacted.push_str(&part[run.len()..]);
            } else {
                redacted.push_str(part);
            }
        }
    }
    redacted
}

fn may_be_key(word: &str) -> bool {
    let has_letters_alone = word.bytes().all(|byte| byte.is_ascii_alphabetic());
    word.len() >= if has_letters_alone { MIN_KEY_LETTERS } else { MIN_KEY_LEN }
}

#[cfg(test)]
mod tests;
