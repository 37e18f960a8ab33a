//! Rules for names in no list: typing errors of large providers, and words in the name.
//!
//! Owns the comparison of names. The table stores the answer and score of each rule.

use aho_corasick::AhoCorasick;
use serde::{Deserialize, Serialize};

use super::source_packages::vote_bit;

/// The settings under `[rules]` in the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnlistedRuleSettings {
    /// Providers. An unlisted name one edit away from one of these counts as a typing error.
    pub typos_of: Vec<String>,
    /// Further providers to suggest for a similar name. These providers do not affect the verdict.
    pub suggest: Vec<String>,
    /// Words that occur only in the names of services for throw-away addresses.
    pub throwaway_words: Vec<String>,
    /// The letter (`vote` in sources.toml) of the source that lists names whose MX host answered.
    /// For such a name riskgate suggests no similar provider, even if the name is disposable.
    #[serde(default)]
    pub verified_mx_vote: Option<char>,
    /// Words that are rare in names of companies and common in names of mail services.
    pub mail_words: Vec<String>,
}

/// A rule that applies to an unlisted name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnlistedRule {
    Typo,
    ThrowawayName,
    MailInName,
}

/// The rules for unlisted names.
pub(super) struct UnlistedRules {
    settings: UnlistedRuleSettings,
    /// Finds the words of the settings: `throwaway_words`, then `mail_words`.
    word_finder: Option<AhoCorasick>,
}

impl UnlistedRules {
    pub(super) fn new(settings: &UnlistedRuleSettings) -> UnlistedRules {
        let words = settings.throwaway_words.iter().chain(&settings.mail_words);
        // The crate refuses only words of gigabytes, which no manifest can contain.
        let word_finder = AhoCorasick::new(words).ok();
        UnlistedRules { settings: settings.clone(), word_finder }
    }

    /// The first rule that applies to this unlisted name. `registrable_label` is the first label of
    /// the name's registrable domain: the label that the owner chose.
    pub(super) fn find_rule(&self, name: &str, registrable_label: &str) -> Option<UnlistedRule> {
        if self.settings.typos_of.iter().any(|provider| is_one_edit_away(name, provider)) {
            return Some(UnlistedRule::Typo);
        }
        let found_words = self.word_finder.as_ref()?.find_overlapping_iter(registrable_label);
        // The throw-away words have the lowest numbers, and take precedence.
        let first_word = found_words.map(|found| found.pattern().as_usize()).min()?;
        Some(match first_word < self.settings.throwaway_words.len() {
            true => UnlistedRule::ThrowawayName,
            false => UnlistedRule::MailInName,
        })
    }

    /// Whether these votes include the source that checks MX hosts.
    pub(super) fn has_verified_mx(&self, votes: u32) -> bool {
        self.settings.verified_mx_vote.is_some_and(|letter| votes & vote_bit(letter) != 0)
    }

    /// Whether the name is one of the providers that names are compared with.
    pub(super) fn is_compared_provider(&self, name: &str) -> bool {
        let UnlistedRuleSettings { typos_of, suggest, .. } = &self.settings;
        typos_of.iter().chain(suggest).any(|provider| provider == name)
    }

    /// The first provider that has this name without its dots, or with it as its first label.
    pub(super) fn find_provider_without_dots(&self, name: &str) -> Option<&str> {
        let UnlistedRuleSettings { typos_of, suggest, .. } = &self.settings;
        let is_meant = |provider: &&String| {
            provider.split('.').next() == Some(name) || provider.replace('.', "") == name
        };
        typos_of.iter().chain(suggest).find(is_meant).map(String::as_str)
    }

    /// The first provider that is one edit away from this name. If there is none and the name can't
    /// receive mail, the first provider that is two edits away.
    pub(super) fn suggest_provider(&self, name: &str, cannot_receive_mail: bool) -> Option<&str> {
        let providers = || self.settings.typos_of.iter().chain(&self.settings.suggest);
        let near = providers().find(|provider| is_one_edit_away(name, provider));
        let near = near.or_else(|| {
            let is_two_away = |provider: &&String| {
                provider.len().abs_diff(name.len()) <= 2
                    && strsim::osa_distance(name, provider) == 2
            };
            cannot_receive_mail.then(|| providers().find(is_two_away)).flatten()
        });
        near.map(String::as_str)
    }
}

/// Whether one edit turns one text into the other: a character inserted, deleted or replaced, or
/// two neighbours swapped (Damerau 1964). A text is not one edit away from itself.
fn is_one_edit_away(text: &str, other: &str) -> bool {
    let (a, b) = (text.as_bytes(), other.as_bytes());
    if a.len().abs_diff(b.len()) > 1 {
        return false;
    }
    let prefix = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[prefix..], &b[prefix..]);
    let suffix = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    match (&a[..a.len() - suffix], &b[..b.len() - suffix]) {
        ([], [_]) | ([_], []) | ([_], [_]) => true,
        ([first, second], [other_first, other_second]) => {
            first == other_second && second == other_first
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_edit_agrees_with_strsim_on_examples() {
        for (text, other) in [
            ("gmail.com", "gmail.com"),
            ("gmial.com", "gmail.com"),
            ("gmal.com", "gmail.com"),
            ("gmaill.com", "gmail.com"),
            ("gmail.co", "gmail.com"),
            ("gmail.comm", "gmail.com"),
            ("hmail.com", "gmail.com"),
            ("ggmail.com", "gmail.com"),
            ("mgail.com", "gmail.com"),
            ("gmali.cmo", "gmail.com"),
            ("gamil.com", "gmail.com"),
            ("iamgl.com", "gmail.com"),
            ("", "a"),
            ("", ""),
            ("ab", "ba"),
            ("abc", "cba"),
            ("aab", "aba"),
        ] {
            let is_one = strsim::osa_distance(text, other) == 1;
            assert_eq!(is_one_edit_away(text, other), is_one, "{text} {other}");
            assert_eq!(is_one_edit_away(other, text), is_one, "{other} {text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn one_edit_agrees_with_strsim_on_random_texts(a in "[ab.]{0,6}", b in "[ab.]{0,6}") {
            let expected = strsim::osa_distance(&a, &b) == 1;
            proptest::prop_assert_eq!(is_one_edit_away(&a, &b), expected);
        }
    }
}
