//! Characters that a text for people may have.

/// Returns true for a character that controls a terminal, or that is invisible and may change the
/// order in which the characters around it are shown.
pub fn is_control_or_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_all_scripts_are_visible_and_marks_of_direction_are_not() {
        assert!(!"Ünïcode 日本 עברית 👩, a".chars().any(is_control_or_invisible));
        for c in ['\n', '\u{85}', '\u{200b}', '\u{200f}', '\u{202e}', '\u{2066}', '\u{2069}'] {
            assert!(is_control_or_invisible(c), "{c:?}");
        }
    }
}
