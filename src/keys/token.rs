//! The text of an API key or an admin token. riskgate stores only the SHA-256 of the text. A text
//! that riskgate makes is shown only in the answer to the command or the request for it.

use sha2::{Digest, Sha256};

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const RANDOM_LEN: usize = 26;
const CHECKSUM_LEN: usize = 6;

/// The shortest key, in characters.
pub const MIN_KEY_LEN: usize = 16;
const MAX_KEY_LEN: usize = 256;

/// The text of a key or an admin token. This type has neither `Debug` nor `Display`, so that no key
/// gets into a log.
pub struct Token(String);

/// Why there is no token: the text can't be a key, or the system gave no random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The text is too short, too long, or not visible ASCII.
    #[error("expected a key of 16 to 256 visible ASCII characters")]
    InvalidForm,
    /// The system gave no random bits.
    #[error("expected random bits from the system, but found none")]
    NoRandomBits,
}

impl Token {
    /// Generates a key: the prefix, 26 random base62 characters (154 bits), and the CRC-32 of both
    /// in 6 characters. The checksum lets a secret scanner tell a key from a similar text.
    pub fn generate(prefix: &str) -> Result<Token, TokenError> {
        let mut text = prefix.to_owned();
        while text.len() < prefix.len() + RANDOM_LEN {
            let mut bytes = [0u8; 64];
            getrandom::fill(&mut bytes).map_err(|_| TokenError::NoRandomBits)?;
            push_base62_digits(&mut text, prefix.len() + RANDOM_LEN, &bytes);
        }
        text.extend(compute_checksum(text.as_bytes()).map(char::from));
        Token::parse(text)
    }

    /// Derives a key from a secret seed of 32 bytes or more. The same prefix and seed give the same
    /// key. The key has the form of a key that [`Token::generate`] makes.
    pub fn derive(prefix: &str, seed: &[u8]) -> Result<Token, TokenError> {
        let (mut text, mut block) = (prefix.to_owned(), sha256(seed));
        while text.len() < prefix.len() + RANDOM_LEN {
            push_base62_digits(&mut text, prefix.len() + RANDOM_LEN, &block);
            block = sha256(&[seed, &block].concat());
        }
        text.extend(compute_checksum(text.as_bytes()).map(char::from));
        Token::parse(text)
    }

    /// Whether a text ends with the checksum of 26 or more bytes before it. Such a text is almost
    /// certainly a key or an admin token that riskgate generated.
    pub fn has_valid_checksum(text: &[u8]) -> bool {
        let Some(split) = text.len().checked_sub(CHECKSUM_LEN) else { return false };
        let (before, sum) = text.split_at(split);
        before.len() >= RANDOM_LEN && compute_checksum(before) == *sum
    }

    /// Checks the length and the characters of a key's text. Another system may have generated it.
    pub fn parse(text: String) -> Result<Token, TokenError> {
        let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        if visible && (MIN_KEY_LEN..=MAX_KEY_LEN).contains(&text.len()) {
            Ok(Token(text))
        } else {
            Err(TokenError::InvalidForm)
        }
    }

    /// Computes the SHA-256 of the key, which the store keeps.
    pub fn sha256(&self) -> [u8; 32] {
        sha256(self.0.as_bytes())
    }

    /// The text of the key, for the answer that shows it.
    pub fn expose_text(&self) -> &str {
        &self.0
    }
}

/// [`hide_keys`] takes a word for a key of another system only if the part behind the last `_` has
/// this number of characters or more.
const MIN_LEN_BEHIND_PREFIX: usize = 16;

/// Returns a text in which `…` stands for each word that is a key that riskgate generated, or that
/// looks like a key of another system: a prefix, `_`, and 16 or more letters and digits, with at
/// least one of each. The id of a key, such as `key_0123456789abcdef`, stays.
pub fn hide_keys(text: &str) -> String {
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let shown = text.split_inclusive(is_end).map(|part| {
        let word = part.trim_end_matches(is_end);
        if looks_like_key(word) { part.replacen(word, "…", 1) } else { part.to_owned() }
    });
    shown.collect()
}

/// Returns true if a word of the text is a key that riskgate generated, by its checksum.
pub fn has_generated_key(text: &str) -> bool {
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    text.split(is_end).any(|word| Token::has_valid_checksum(word.as_bytes()))
}

fn looks_like_key(word: &str) -> bool {
    if Token::has_valid_checksum(word.as_bytes()) {
        return true;
    }
    let Some((prefix, rest)) = word.rsplit_once('_') else { return false };
    let has = |is: fn(&char) -> bool| rest.chars().any(|c| is(&c));
    rest.len() >= MIN_LEN_BEHIND_PREFIX
        && has(char::is_ascii_digit)
        && has(char::is_ascii_alphabetic)
        && !(prefix == "key" && rest.len() == MIN_LEN_BEHIND_PREFIX)
}

/// Appends base62 digits, made of random bytes, until the text has this length or no byte is left.
fn push_base62_digits(text: &mut String, length: usize, random: &[u8]) {
    // 248 is the largest multiple of 62 in a byte; values from 248 on would bias the digits.
    let unbiased = random.iter().filter(|byte| **byte < 248);
    let missing = length - text.len();
    text.extend(unbiased.take(missing).map(|byte| char::from(BASE62[usize::from(byte % 62)])));
}

/// Computes the CRC-32 of a text, in base62.
fn compute_checksum(text: &[u8]) -> [u8; CHECKSUM_LEN] {
    let mut check = crc32fast::hash(text);
    let mut digits = [b'0'; CHECKSUM_LEN];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[(check % 62) as usize];
        check /= 62;
    }
    digits
}

/// Computes the SHA-256 of bytes (FIPS 180-4).
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests;
