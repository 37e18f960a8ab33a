//! The case of letters, as servers ignore it.

/// Returns a text in lower case. Letters beyond ASCII that are ASCII letters in another case become
/// these ASCII letters. Two names for which this text is equal may be one name for a server that
/// ignores the case of letters.
pub fn fold_case(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    let mut folded = String::with_capacity(text.len());
    for c in text.chars() {
        match ascii_letters_in_other_case(c) {
            Some(letters) => folded.push_str(letters),
            None => folded.extend(c.to_lowercase()),
        }
    }
    folded
}

/// Does what [`fold_case`] does, for bytes of which only some are UTF-8. The others stay.
pub fn fold_case_of_bytes(bytes: &[u8]) -> Vec<u8> {
    let mut folded = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        folded.extend_from_slice(fold_case(chunk.valid()).as_bytes());
        folded.extend_from_slice(chunk.invalid());
    }
    folded
}

/// The ASCII letters that a letter beyond ASCII is in another case, by the files `UnicodeData.txt`,
/// `SpecialCasing.txt` and `CaseFolding.txt` of Unicode 17. Some servers compare names in upper
/// case, others in lower case, and regular expressions that ignore case fold them.
fn ascii_letters_in_other_case(c: char) -> Option<&'static str> {
    Some(match c {
        '\u{df}' | '\u{1e9e}' => "ss",
        '\u{130}' | '\u{131}' => "i",
        '\u{17f}' => "s",
        '\u{212a}' => "k",
        '\u{fb00}' => "ff",
        '\u{fb01}' => "fi",
        '\u{fb02}' => "fl",
        '\u{fb03}' => "ffi",
        '\u{fb04}' => "ffl",
        '\u{fb05}' | '\u{fb06}' => "st",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
