//! Rules for names in no list: typing errors of large providers, look-alikes, words in names, and
//! names that are spelled like bulk registrations.
//!
//! The table stores the answer and score of each rule.

use aho_corasick::AhoCorasick;
use serde::{Deserialize, Serialize};

use super::bulk_names::BulkNameSettings;
use super::entry::FixedAnswer;
use super::look_alikes::{LookAlike, UNREADABLE};
use super::similar_names::{MistypedProviderFinder, TypedName};
use super::source_packages::vote_bit;

/// The settings under `[rules]` in the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnlistedRuleSettings {
    /// The largest providers. An unlisted name that is a slip of the finger away from one of these
    /// counts as a typing error.
    pub typos_of: Vec<String>,
    /// Further providers to suggest for a similar name. A slip of their names gives no verdict. If
    /// two providers are equally near, riskgate suggests the first.
    pub suggest: Vec<String>,
    /// Providers of the two lists above that have no other domain with the same first label.
    #[serde(default)]
    pub sole_domains: Vec<String>,
    /// Words that occur only in the names of services for throw-away addresses.
    pub throwaway_words: Vec<String>,
    /// The letter (`vote` in `sources.toml`) of the source that lists names whose MX host answered.
    /// Such a name has a mail host, even if the name is disposable.
    #[serde(default)]
    pub verified_mx_vote: Option<char>,
    /// Words that are rare in names of companies and common in names of mail services.
    pub mail_words: Vec<String>,
    /// How names look that abusers register in bulk.
    #[serde(default)]
    pub bulk: BulkNameSettings,
}

/// The rules for unlisted names.
pub(super) struct UnlistedRules {
    settings: UnlistedRuleSettings,
    /// The providers of the settings.
    similar_names: MistypedProviderFinder,
    /// Finds the words of the settings: `throwaway_words`, then `mail_words`.
    word_finder: Option<AhoCorasick>,
}

impl UnlistedRules {
    pub(super) fn new(settings: &UnlistedRuleSettings) -> UnlistedRules {
        let words = settings.throwaway_words.iter().chain(&settings.mail_words);
        // AhoCorasick refuses only words of gigabytes, which no manifest can contain.
        let word_finder = AhoCorasick::new(words).ok();
        let UnlistedRuleSettings { typos_of, suggest, sole_domains, .. } = settings;
        let similar_names = MistypedProviderFinder::new(typos_of, suggest, sole_domains);
        UnlistedRules { settings: settings.clone(), similar_names, word_finder }
    }

    /// Finds the answer of the first rule that applies to this unlisted name. Calls
    /// `split_typed_name` for few names only. `look_alike` is the name as a person reads it, if it
    /// has letters of other scripts. `registrable_start` is the byte offset of its registrable
    /// domain; a public suffix has none.
    pub(super) fn find_answer<'n>(
        &self,
        name: &str,
        split_typed_name: impl FnOnce() -> Option<TypedName<'n>>,
        look_alike: Option<&LookAlike>,
        registrable_start: Option<usize>,
    ) -> Option<FixedAnswer> {
        let is_deceptive =
            |it: &LookAlike| it.is_mixed || self.is_compared_provider(&it.apparent_name);
        if look_alike.is_some_and(is_deceptive) {
            return Some(FixedAnswer::LookAlike);
        }
        let label = name.split('.').next().unwrap_or_default();
        if self.similar_names.may_be_slip_of_largest(label)
            && split_typed_name().is_some_and(|it| self.similar_names.is_slip_of_largest(&it))
        {
            return Some(FixedAnswer::Typo);
        }
        let (labels_below, registrable_name) = name.split_at_checked(registrable_start?)?;
        let (label, suffix) = registrable_name.split_once('.')?;
        let found_words = self.word_finder.as_ref()?.find_overlapping_iter(label);
        // The throw-away words have the lowest numbers, and take precedence.
        let first_word = found_words.map(|found| found.pattern().as_usize()).min();
        let throwaway_word_count = self.settings.throwaway_words.len();
        if first_word.is_some_and(|word| word < throwaway_word_count) {
            return Some(FixedAnswer::ThrowawayName);
        }
        let has_mail_word = first_word.is_some();
        if self.settings.bulk.is_bulk_name(labels_below, label, suffix, has_mail_word) {
            return Some(FixedAnswer::BulkName);
        }
        has_mail_word.then_some(FixedAnswer::MailInName)
    }

    /// Whether these votes include the source that lists names whose MX host answered.
    pub(super) fn has_verified_mx(&self, votes: u32) -> bool {
        self.settings.verified_mx_vote.is_some_and(|letter| votes & vote_bit(letter) != 0)
    }

    /// Whether the name is one of the providers that names are compared with.
    pub(super) fn is_compared_provider(&self, name: &str) -> bool {
        self.find_provider(name).is_some()
    }

    /// Finds the provider that this name without dots means: the provider's whole name, its first
    /// label if that means nothing else, or one of both with a slip that means nothing else.
    pub(super) fn find_provider_without_dots(&self, name: &str) -> Option<&str> {
        let mut providers = self.similar_names.providers();
        let whole = providers.find(|provider| provider.replace('.', "") == name);
        let label = || self.similar_names.find_by_bare_label(name);
        whole.or_else(label).or_else(|| self.similar_names.find_by_mistyped_word(name))
    }

    /// The provider that the user probably meant by a name with slips of the finger.
    pub(super) fn suggest_provider(&self, typed: &TypedName<'_>) -> Option<&str> {
        self.similar_names.find_meant_provider(typed)
    }

    /// Finds the provider whose suffix, or a part of it, stands twice: `gmail.com.com`. The largest
    /// providers are found without the dot between as well: `gmailcom.com`.
    pub(super) fn find_provider_with_repeated_suffix(&self, name: &str) -> Option<&str> {
        let repeated = name.rmatch_indices('.').find_map(|(dot, _)| {
            let (before, end) = (&name[..dot], &name[dot + 1..]);
            let is_repeated = before.strip_suffix(end).is_some_and(|start| start.ends_with('.'));
            if is_repeated { self.find_provider(before) } else { None }
        });
        repeated.or_else(|| {
            let (label_and_end, end) = name.split_once('.')?;
            let label = label_and_end.strip_suffix(end)?;
            let is_meant = |provider: &&str| provider.split_once('.') == Some((label, end));
            self.settings.typos_of.iter().map(String::as_str).find(is_meant)
        })
    }

    /// Finds the provider with this name, among those that names are compared with. Returns the
    /// name as the table has it. An [`UNREADABLE`] character may stand for any letter.
    pub(super) fn find_provider(&self, name: &str) -> Option<&str> {
        let is_meant = |(typed, meant)| typed == meant || typed == UNREADABLE as u8;
        self.similar_names.providers().find(|provider| {
            provider.len() == name.len() && name.bytes().zip(provider.bytes()).all(is_meant)
        })
    }
}
