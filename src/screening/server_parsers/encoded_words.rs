//! Encoded words (RFC 2047), which some clients write and some servers decode.

use std::borrow::Cow;

use base64::Engine;

/// The result of decoding the encoded words of a text, such as `=?utf-8?Q?email?=` (RFC 2047).
#[derive(Debug, PartialEq, Eq)]
pub(in crate::screening) enum DecodedWords {
    /// The decoded text. A text without `=?` is unchanged. Another loses the blanks at its end.
    Text(String),
    /// riskgate can't decode a word that some servers may decode.
    Unreadable,
}

/// Tomcat (`decodeText` in fileupload/util/mime/MimeUtility.java): splits the text at blanks, and
/// decodes each encoded word. Drops the rest of a word behind its `?=`.
pub(in crate::screening) fn decode_words_as_tomcat(text: &str) -> DecodedWords {
    if !text.contains("=?") {
        return DecodedWords::Text(text.to_owned());
    }
    let is_blank = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let (mut decoded, mut blanks) = (String::new(), "");
    let mut is_behind_encoded = false;
    let mut rest = text;
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.find(is_blank).unwrap_or(rest.len()));
        if !word.is_empty() {
            let (word, is_encoded) = match decode_word(word) {
                Some(Some(text)) => (Cow::Owned(text), true),
                Some(None) => return DecodedWords::Unreadable,
                None => (Cow::Borrowed(word), false),
            };
            // Tomcat drops the blanks between two encoded words.
            if !(is_encoded && is_behind_encoded) {
                decoded.push_str(blanks);
            }
            decoded.push_str(&word);
            is_behind_encoded = is_encoded;
        }
        let (between, words) = after.split_at(after.find(|c| !is_blank(c)).unwrap_or(after.len()));
        (blanks, rest) = (between, words);
    }
    DecodedWords::Text(decoded)
}

/// Returns the text of an encoded word. `Some(None)` if riskgate can't decode the word, and `None`
/// if it is no encoded word.
fn decode_word(word: &str) -> Option<Option<String>> {
    let (charset, rest) = word.strip_prefix("=?")?.split_once('?')?;
    let (encoding, rest) = rest.split_once('?')?;
    let (text, _) = rest.split_once("?=")?;
    let bytes = match encoding {
        "B" | "b" => base64::engine::general_purpose::STANDARD.decode(text).ok(),
        "Q" | "q" => decode_q(text),
        _ => None,
    };
    let text = bytes.and_then(|bytes| match charset.to_ascii_lowercase().as_str() {
        "utf-8" | "us-ascii" => Some(String::from_utf8_lossy(&bytes).into_owned()),
        "iso-8859-1" => Some(bytes.into_iter().map(char::from).collect()),
        _ => None,
    });
    Some(text)
}

/// Decodes the Q encoding (RFC 2047 section 4.2).
fn decode_q(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'_' => bytes.push(b' '),
            b'=' => {
                let digits = std::str::from_utf8(after.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &after[2..];
            }
            byte => bytes.push(*byte),
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
