//! Rules for names that no list has: typing errors of large providers, and words that say mail.
//!
//! Owns how close two names are. Values only: what a rule says, and its score, stand in the table.

use serde::{Deserialize, Serialize};

use super::source_packages::vote_bit;

/// What the rules go by, as the manifest says it under `[rules]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InferenceSettings {
    /// Providers: an unlisted name at distance one from one of these is a typing error.
    pub typos_of: Vec<String>,
    /// Further providers that are suggested for a name at distance one, which is not judged by it.
    pub suggest: Vec<String>,
    /// Words that only services for throw-away addresses have in their names.
    pub throwaway_words: Vec<String>,
    /// The letter of the source that votes for names whose MX answered: they work, whatever they
    /// are used for.
    #[serde(default)]
    pub verified_mx_vote: Option<char>,
    /// Words that are rare in the names of companies, and common in those of mail services.
    pub mail_words: Vec<String>,
}

/// What a rule found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InferredRule {
    Typo,
    ThrowawayName,
    MailInName,
}

/// The rules, ready to be asked.
pub(super) struct Inference {
    settings: InferenceSettings,
}

impl Inference {
    pub(super) fn new(settings: &InferenceSettings) -> Inference {
        Inference { settings: settings.clone() }
    }

    /// The first rule that knows this unlisted name. `label` is what the owner of its registrable
    /// domain chose.
    pub(super) fn infer_rule(&self, name: &str, label: &str) -> Option<InferredRule> {
        let InferenceSettings { typos_of, throwaway_words, mail_words, .. } = &self.settings;
        if typos_of.iter().any(|provider| is_one_edit_away(name, provider)) {
            return Some(InferredRule::Typo);
        }
        let has_one_of = |words: &[String]| words.iter().any(|word| label.contains(word.as_str()));
        if has_one_of(throwaway_words) {
            return Some(InferredRule::ThrowawayName);
        }
        has_one_of(mail_words).then_some(InferredRule::MailInName)
    }

    /// Whether the sources that vote for a name say that it works.
    pub(super) fn has_verified_mx(&self, votes: u32) -> bool {
        self.settings.verified_mx_vote.is_some_and(|letter| votes & vote_bit(letter) != 0)
    }

    /// Whether this is a provider that names are compared with.
    pub(super) fn is_provider(&self, name: &str) -> bool {
        let InferenceSettings { typos_of, suggest, .. } = &self.settings;
        typos_of.iter().chain(suggest).any(|provider| provider == name)
    }

    /// The provider that is closest to this name: one edit away, or two if no mail
    /// can arrive there.
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

/// Whether one inserted, left out or changed character, or two neighbours in the other order, make
/// one text the other (Damerau 1964). A text is not one edit away from itself.
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
        fn one_edit_agrees_with_the_reference(a in "[ab.]{0,6}", b in "[ab.]{0,6}") {
            let expected = strsim::osa_distance(&a, &b) == 1;
            proptest::prop_assert_eq!(is_one_edit_away(&a, &b), expected);
        }
    }
}
