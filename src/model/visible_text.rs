//! Characters that a text for people must not have.

/// Returns true for a character that controls a terminal, separates lines, is blank without a
/// width, or changes the order of the characters around it. Joiners, and the marks that Hebrew and
/// Arabic texts have between words, are part of the spelling.
pub fn is_control_or_invisible(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{180e}' | '\u{200b}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2064}'
                | '\u{2066}'..='\u{2069}' | '\u{feff}'
        )
}

#[cfg(test)]
mod tests;
