//! Names in letters that look like the Latin ones: `gmаil.com` with a Cyrillic `а` (UTS 39).
//!
//! This module has no lists of names: `unlisted_rules` decides which look-alikes are deceptive.

use std::sync::LazyLock;

/// The letters that look like each ASCII character, as Unicode's `confusables.txt` says.
const LOOK_ALIKES: &str = include_str!("look_alikes.txt");

/// Each letter of [`LOOK_ALIKES`] with the ASCII character that it looks like, in the order of the
/// letters.
static ASCII_OF_LETTERS: LazyLock<Vec<(char, char)>> = LazyLock::new(|| {
    let lines = LOOK_ALIKES.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once(' ')).flat_map(|(ascii, letters)| {
        ascii.chars().take(1).flat_map(|ascii| letters.chars().map(move |letter| (letter, ascii)))
    });
    let mut ascii_of_letters: Vec<(char, char)> = pairs.collect();
    ascii_of_letters.sort_by_key(|(letter, _)| *letter);
    ascii_of_letters
});

/// Stands in an apparent name for the one letter that looks like no ASCII character.
pub(super) const UNREADABLE: char = '?';
/// The fewest other letters of a label with an unreadable letter.
const MIN_READABLE_LETTERS: usize = 4;

/// A name with look-alikes, as a person reads it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LookAlike {
    /// The name in ASCII, as a person reads it.
    pub apparent_name: String,
    /// Whether all letters are readable, and a label has ASCII letters and letters of a script
    /// other than Latin.
    pub is_mixed: bool,
}

/// Reads a name in Unicode as a person would. `None` if the name is ASCII, or if it does not
/// pretend to be Latin, because its characters look like no ASCII characters. One such letter may
/// stand in the first label, among ASCII letters: `gмail.com`.
pub(super) fn read_look_alike(name: &str) -> Option<LookAlike> {
    let read = |c| apparent_character(c).unwrap_or(UNREADABLE);
    let apparent_name: String = name.chars().map(read).collect();
    if apparent_name.contains(UNREADABLE) {
        let has_ascii_letters = name.split('.').next()?.contains(|c: char| c.is_ascii_alphabetic());
        let label = apparent_name.split('.').next()?;
        let is_one_in_label = apparent_name.matches(UNREADABLE).count() == 1
            && label.contains(UNREADABLE)
            && label.len() > MIN_READABLE_LETTERS;
        let is_read = is_one_in_label && has_ascii_letters;
        return is_read.then_some(LookAlike { apparent_name, is_mixed: false });
    }
    let is_mixed = name.split('.').any(|label| {
        label.contains(|c: char| c.is_ascii_alphabetic())
            && label.contains(|c: char| !c.is_ascii() && !is_latin(c))
    });
    (apparent_name != name).then_some(LookAlike { apparent_name, is_mixed })
}

/// The ASCII character that this character looks like, if there is one.
fn apparent_character(c: char) -> Option<char> {
    if c.is_ascii() {
        return Some(c);
    }
    let found = ASCII_OF_LETTERS.binary_search_by_key(&c, |(letter, _)| *letter);
    found.ok().map(|at| ASCII_OF_LETTERS[at].1)
}

/// Whether a letter is in one of Unicode's blocks for Latin letters.
fn is_latin(c: char) -> bool {
    matches!(
        c,
        '\u{aa}'..='\u{2af}'
            | '\u{1d00}'..='\u{1eff}'
            | '\u{2c60}'..='\u{2c7f}'
            | '\u{a720}'..='\u{a7ff}'
            | '\u{ab30}'..='\u{ab6f}'
    )
}

#[cfg(test)]
mod tests;
