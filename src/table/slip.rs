//! Slips of the finger that leave no domain, or another one, but clearly mean one provider.

use super::Table;
use crate::model::domain::Domain;

/// The longest text that riskgate repairs, in bytes.
const MAX_SLIP_BYTES: usize = 64;
/// What people copy with an address: brackets and quotes around it.
const ENCLOSING_CHARACTERS: [char; 14] =
    ['<', '>', '(', ')', '[', ']', '{', '}', '"', '\'', '`', '\u{201c}', '\u{201d}', '\u{2019}'];

impl Table {
    /// Returns the provider that the user of an address clearly meant, such as `gmail.com` for
    /// `jane@gmail,com`, `jane@gmail..com`, `jane@gmailcom`, `jane@gmail-com`, `jane@gmial`,
    /// `jane@@gmail.com` and `<jane@gmail.com>`. `text` is the text behind the first `@`. `None`
    /// for a text that needs no repair, and for a text that riskgate can't repair.
    pub fn suggest_provider_for_slip(&self, text: &str, unix_now: i64) -> Option<String> {
        if text.len() > MAX_SLIP_BYTES {
            return None;
        }
        let repaired = repair_dots(text.trim_start_matches('@'));
        if repaired.is_empty() || repaired.contains('@') {
            return None;
        }
        match repaired.contains('.') {
            false => self.find_provider_in_one_word(&repaired, unix_now),
            true if repaired == text.to_lowercase() => None,
            true => self.provider_or_suggestion(&repaired, unix_now),
        }
    }

    /// Finds the provider of a name without dots: `gmailcom`, `gmailcon`, `gmail`, `gmial`.
    fn find_provider_in_one_word(&self, name: &str, unix_now: i64) -> Option<String> {
        let compared = self.unlisted_rules.find_provider_without_dots(name);
        let hyphen_as_dot = || {
            let (start, end) = name.rsplit_once('-')?;
            self.find_free_provider(&format!("{start}.{end}"), unix_now)
        };
        compared.map(str::to_owned).or_else(hyphen_as_dot).or_else(|| {
            let ends = (1..name.len()).filter(|at| name.is_char_boundary(*at));
            let with_dot = |at| format!("{}.{}", &name[..at], &name[at..]);
            ends.map(with_dot).find_map(|name| self.find_free_provider(&name, unix_now))
        })
    }

    fn provider_or_suggestion(&self, name: &str, unix_now: i64) -> Option<String> {
        self.find_free_provider(name, unix_now).or_else(|| {
            let domain = Domain::parse(name).ok()?;
            self.lookup(&domain, unix_now).suggest_provider(&domain).map(str::to_owned)
        })
    }

    /// Returns the canonical name of a domain, if it is a safe free provider.
    fn find_free_provider(&self, name: &str, unix_now: i64) -> Option<String> {
        let domain = Domain::parse(name).ok()?;
        let lookup = self.lookup(&domain, unix_now);
        let is_whole_name = lookup.matched_name_offset == Some(0);
        let is_provider =
            is_whole_name && lookup.verdict.is_free_provider && lookup.verdict.reason.is_safe();
        is_provider.then(|| domain.to_string())
    }
}

/// Replaces characters that people type in place of a dot, and removes blanks, needless dots, and
/// brackets and quotes around the text.
fn repair_dots(text: &str) -> String {
    let to_dot = |c: char| {
        if matches!(c, ',' | ';' | ':' | '/' | '_' | '。' | '，' | '．') { '.' } else { c }
    };
    let bare = text.trim_matches(|c: char| c.is_whitespace() || ENCLOSING_CHARACTERS.contains(&c));
    let dotted: String = bare.chars().filter(|c| !c.is_whitespace()).map(to_dot).collect();
    let labels: Vec<&str> = dotted.split('.').filter(|label| !label.is_empty()).collect();
    labels.join(".").to_lowercase()
}
