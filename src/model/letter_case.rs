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
mod tests {
    use super::*;

    #[test]
    fn each_letter_whose_other_case_is_ascii_becomes_ascii() {
        let in_other_case = |c: char| {
            let upper: String = c.to_lowercase().flat_map(char::to_uppercase).collect();
            [upper, c.to_lowercase().collect(), c.to_uppercase().collect()]
                .into_iter()
                .find(|text| text.is_ascii())
                .map(|text| text.to_ascii_lowercase())
        };
        for c in ('\u{80}'..=char::MAX).filter(|c| *c != '\u{130}') {
            let letters = ascii_letters_in_other_case(c);
            assert_eq!(letters.map(str::to_owned), in_other_case(c), "{c:?}");
        }
        // The lower case of this letter is `i` with a dot above, and `i` where one character
        // becomes one.
        assert_eq!(ascii_letters_in_other_case('\u{130}'), Some("i"));
    }

    #[test]
    fn names_in_another_case_have_one_spelling() {
        for (text, expected) in [
            ("EMAIL", "email"),
            ("ema\u{131}l", "email"),
            ("EMA\u{130}L", "email"),
            ("u\u{17f}er", "user"),
            ("to\u{212a}en", "token"),
            ("Pa\u{df}word", "password"),
            ("\u{c4}MTER", "\u{e4}mter"),
        ] {
            assert_eq!(fold_case(text), expected);
            let with_other_byte = [text.as_bytes(), b"\xff"].concat();
            let folded = [expected.as_bytes(), b"\xff"].concat();
            assert_eq!(fold_case_of_bytes(&with_other_byte), folded);
        }
    }
}
