//! Parses `manifest.toml`: the kind of each list, the score of each rule, and the build's limits.
//!
//! This module reads no files: the caller passes the text of the manifest.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::{Spanned, Value};

use super::bulk_names::BulkNameSettings;
use super::fault::{TableFault, TableFaults, fault_from_toml_error, line_number, quote_excerpt};
use super::source_packages::SourcePackage;
use super::unlisted_rules::UnlistedRuleSettings;
use crate::model::domain::Domain;
use crate::model::verdict::{Rule, Score};

/// A list of TLDs of this age, in days, can no longer prove that a TLD does not exist.
pub(super) const MAX_TLD_LIST_AGE_DAYS: i64 = 90;
/// The default of `guard.max_changed_share`: the largest share of rows that a table may add and
/// remove together when it replaces another table.
const DEFAULT_MAX_CHANGED_SHARE: f64 = 0.3;
/// The most lists of a table: an answer stores its lists as a 64-bit set.
pub(super) const MAX_LISTS: usize = 64;

/// The kind of a list's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ListKind {
    MxLabel,
    Override,
    SpecialUse,
    Tlds,
    Protected,
    Corporate,
    Alias,
    /// Services that give inboxes to programs.
    AgentInbox,
    /// One of the four disposable rules.
    Disposable(Rule),
    Role,
    Free,
    /// Suffixes that give out names for free.
    FreeSubdomain,
    /// Real names. The rules for unlisted names do not apply to them.
    Known,
    /// Real names that third-party lists flag by mistake. Feeds can't flag them.
    Cleared,
    Label,
    Mx,
    /// Addresses of MX hosts of disposable operators.
    MxAddress,
    Seed,
    /// The days on which a source first and last had a name. Such a list says nothing about the
    /// verdict on the name.
    Seen,
}

const LIST_KINDS: [(&str, ListKind); 19] = [
    ("override", ListKind::Override),
    ("special_use", ListKind::SpecialUse),
    ("tlds", ListKind::Tlds),
    ("protected", ListKind::Protected),
    ("corporate", ListKind::Corporate),
    ("alias", ListKind::Alias),
    ("agent_inbox", ListKind::AgentInbox),
    ("disposable", ListKind::Disposable(Rule::DisposableA)),
    ("mx", ListKind::Mx),
    ("mx_label", ListKind::MxLabel),
    ("mx_address", ListKind::MxAddress),
    ("role", ListKind::Role),
    ("free", ListKind::Free),
    ("free_subdomain", ListKind::FreeSubdomain),
    ("known", ListKind::Known),
    ("cleared", ListKind::Cleared),
    ("label", ListKind::Label),
    ("seed", ListKind::Seed),
    ("seen", ListKind::Seen),
];

const DISPOSABLE_RULE_BY_TIER: [(&str, Rule); 4] = [
    ("a", Rule::DisposableA),
    ("b", Rule::DisposableB),
    ("c", Rule::DisposableC),
    ("d", Rule::DisposableD),
];
const EXPECTED_TIERS_TEXT: &str = "a, b, c or d";

impl ListKind {
    /// The name of the kind in a compiled table: the manifest's name, and for disposable lists the
    /// name of the tier's rule.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            ListKind::Disposable(rule) => rule.as_str(),
            _ => LIST_KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name),
        }
    }
}

/// The highest score that a manifest may give to a rule.
const MAX_SCORE: u8 = 100;
/// The highest score for the address of an MX host. Names of other owners may share the address, so
/// the score must not reach the default of `block_score`.
const MAX_MX_ADDRESS_SCORE: u8 = Score::DEFAULT_BLOCK_SCORE.value() - 1;

/// The rules that have a score, with their default scores.
pub(super) const DEFAULT_SCORES: [(Rule, u8); 23] = [
    (Rule::SpecialUse, 100),
    (Rule::UnknownTld, 100),
    (Rule::Protected, 0),
    (Rule::Alias, 35),
    (Rule::AgentInbox, 50),
    (Rule::DisposableA, 100),
    (Rule::DisposableB, 90),
    (Rule::DisposableC, 80),
    (Rule::DisposableD, 60),
    (Rule::NoMail, 95),
    (Rule::Parked, 85),
    (Rule::DisposableMx, 85),
    (Rule::DisposableMxAddress, 70),
    (Rule::Role, 70),
    (Rule::Free, 0),
    (Rule::LookAlike, 75),
    (Rule::Typo, 60),
    (Rule::FreeSubdomain, 70),
    (Rule::ThrowawayName, 70),
    (Rule::Professional, 0),
    (Rule::BulkName, 60),
    (Rule::MailInName, 30),
    (Rule::Unknown, 10),
];

/// One list of the manifest.
#[derive(Clone, Debug)]
pub(super) struct ListSpec {
    pub file: String,
    pub kind: ListKind,
    /// The entry of `sources.toml` that the list was made from.
    pub source_name: Option<String>,
    /// The line in the manifest where the list begins, or 0 for an added list.
    pub manifest_line: u32,
    /// Who added the list to the table.
    pub list_origin: ListOrigin,
}

/// Who added a list to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListOrigin {
    /// The manifest names the list.
    Manifest,
    /// The list is the operator's own file of overrides.
    Operator,
    /// The list has the operator's overrides of the store.
    Store,
    /// A feed fetched the list.
    Feed,
}

impl ListSpec {
    /// A list that the manifest does not name.
    pub(super) fn added(file: String, kind: ListKind, list_origin: ListOrigin) -> ListSpec {
        ListSpec { file, kind, source_name: None, manifest_line: 0, list_origin }
    }
}

/// The parsed manifest.
pub(super) struct Manifest {
    pub list_specs: Vec<ListSpec>,
    pub scores: Scores,
    pub max_changed_share: f64,
    /// Protected names that lists may flag, each with its line in the manifest.
    pub allow_flagging: Vec<(String, u32)>,
    /// The settings of the rules for unlisted names.
    pub unlisted_rules: UnlistedRuleSettings,
    /// The providers of these rules, each with its place in the manifest.
    pub provider_places: Vec<(String, String)>,
}

/// The score of each rule.
#[derive(Clone, Copy)]
pub(super) struct Scores([Score; Rule::ALL.len() + 1]);

impl Scores {
    pub(super) fn score_of(&self, rule: Rule) -> Score {
        self.0[rule as usize]
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawManifest {
    list: Vec<Spanned<RawList>>,
    scores: BTreeMap<String, Spanned<Value>>,
    guard: RawGuard,
    rules: RawRules,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawRules {
    typos_of: Vec<Spanned<String>>,
    suggest: Vec<Spanned<String>>,
    sole_domains: Vec<Spanned<String>>,
    throwaway_words: Vec<Spanned<String>>,
    bulk: RawBulkRegistrationRules,
    mail_words: Vec<Spanned<String>>,
    verified_mx_vote: Option<char>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawBulkRegistrationRules {
    suffixes: Vec<Spanned<String>>,
    subdomain_suffixes: Vec<Spanned<String>>,
    short_name_suffixes: Vec<Spanned<String>>,
    short_label_suffixes: Vec<Spanned<String>>,
    label_words: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawList {
    file: String,
    kind: Spanned<String>,
    tier: Option<Spanned<String>>,
    source: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawGuard {
    max_changed_share: Option<Spanned<f64>>,
    allow_flagging: Vec<Spanned<String>>,
}

/// The text of a manifest, for the places of faults.
struct ManifestText<'t> {
    text: &'t str,
    name_in_faults: &'t str,
}

impl ManifestText<'_> {
    fn place(&self, span: Range<usize>, key: &str) -> String {
        format!("{}:{}: {key}", self.name_in_faults, line_number(self.text, &span))
    }

    /// The fault of the text of a key.
    fn fault(&self, found: &Spanned<String>, key: &str, expected: &str) -> TableFault {
        let at = self.place(found.span(), key);
        TableFault::expected(at, expected, quote_excerpt(found.get_ref()))
    }
}

impl Manifest {
    /// Parses the text of `manifest.toml`. Its lists may refer only to these sources.
    pub(super) fn parse(
        text: &str,
        name_in_faults: &str,
        sources: &[SourcePackage],
    ) -> Result<Manifest, TableFaults> {
        let raw: RawManifest =
            toml::from_str(text).map_err(|e| fault_from_toml_error(&e, text, name_in_faults))?;
        let mut faults = TableFaults::default();
        let places = ManifestText { text, name_in_faults };
        let mut lists: Vec<ListSpec> = Vec::with_capacity(raw.list.len());
        for spanned in raw.list {
            let line = line_number(text, &spanned.span());
            match parse_list_spec(spanned.into_inner(), line, &places, sources) {
                Ok(list) => match lists.iter().find(|other| other.file == list.file) {
                    Some(other) => faults.push(TableFault::Duplicate {
                        at: format!("{name_in_faults}:{line}: file"),
                        what: quote_excerpt(&list.file),
                        first: other.manifest_line,
                    }),
                    None => lists.push(list),
                },
                Err(fault) => faults.push(fault),
            }
        }
        if lists.len() > MAX_LISTS {
            let expected = format!("at most {MAX_LISTS} lists");
            faults.push(TableFault::expected(name_in_faults, expected, lists.len().to_string()));
        }
        let scores = parse_scores(raw.scores, &places, &mut faults);
        let max_changed_share = match raw.guard.max_changed_share {
            None => DEFAULT_MAX_CHANGED_SHARE,
            Some(share) => {
                let value = *share.get_ref();
                if !(0.0..=1.0).contains(&value) {
                    let at = places.place(share.span(), "guard.max_changed_share");
                    let expected = "a number from 0 to 1";
                    faults.push(TableFault::expected(at, expected, value.to_string()));
                }
                value
            }
        };
        let allow_flagging = raw
            .guard
            .allow_flagging
            .into_iter()
            .map(|name| (name.get_ref().clone(), line_number(text, &name.span())))
            .collect();
        let provider_places = list_provider_places(&raw.rules, &places);
        let unlisted_rules = parse_unlisted_rules(raw.rules, &places, &mut faults);
        faults.into_result()?;
        Ok(Manifest {
            list_specs: lists,
            scores,
            max_changed_share,
            allow_flagging,
            unlisted_rules,
            provider_places,
        })
    }
}

/// Fails if a list of this kind needs a source, or a source with a vote letter, and has none.
fn check_source_of_kind(
    kind: ListKind,
    source_name: Option<&str>,
    at: &str,
    sources: &[SourcePackage],
) -> Result<(), TableFault> {
    let has_vote = |name: &str| sources.iter().any(|it| it.name == name && it.vote.is_some());
    let expected = match kind {
        ListKind::Tlds if source_name.is_none() => {
            "the entry of sources.toml whose date says how old the list is"
        }
        ListKind::Seen if !source_name.is_some_and(has_vote) => {
            "the entry of sources.toml, with a vote letter, whose days these are"
        }
        _ => return Ok(()),
    };
    let found = source_name.map_or("none".to_owned(), quote_excerpt);
    Err(TableFault::expected(at, expected, found))
}

fn parse_list_spec(
    raw: RawList,
    line: u32,
    places: &ManifestText<'_>,
    sources: &[SourcePackage],
) -> Result<ListSpec, TableFault> {
    let kind_name = raw.kind.get_ref();
    let Some((_, kind)) = LIST_KINDS.iter().find(|(name, _)| name == kind_name) else {
        let names: Vec<&str> = LIST_KINDS.iter().map(|(name, _)| *name).collect();
        let expected = format!("one of {}", names.join(", "));
        return Err(places.fault(&raw.kind, "kind", &expected));
    };
    let kind = match (kind, raw.tier) {
        (ListKind::Disposable(_), Some(tier)) => {
            let rule = DISPOSABLE_RULE_BY_TIER.iter().find(|(name, _)| name == tier.get_ref());
            let fault = || places.fault(&tier, "tier", EXPECTED_TIERS_TEXT);
            ListKind::Disposable(rule.ok_or_else(fault)?.1)
        }
        (ListKind::Disposable(_), None) => {
            let at = places.place(raw.kind.span(), "tier");
            return Err(TableFault::expected(at, EXPECTED_TIERS_TEXT, "no tier"));
        }
        (_, Some(tier)) => {
            let expected = "no tier, since only disposable lists have one";
            return Err(places.fault(&tier, "tier", expected));
        }
        (kind, None) => *kind,
    };
    if let Some(source) = &raw.source
        && !sources.iter().any(|known| known.name == *source.get_ref())
    {
        let expected = "the name of an entry of sources.toml";
        return Err(places.fault(source, "source", expected));
    }
    let source = raw.source.map(Spanned::into_inner);
    check_source_of_kind(
        kind,
        source.as_deref(),
        &places.place(raw.kind.span(), "source"),
        sources,
    )?;
    Ok(ListSpec {
        file: raw.file,
        kind,
        source_name: source,
        manifest_line: line,
        list_origin: ListOrigin::Manifest,
    })
}

/// Lists the providers of the rules for unlisted names, each with its place in the manifest.
fn list_provider_places(rules: &RawRules, places: &ManifestText<'_>) -> Vec<(String, String)> {
    [("rules.typos_of", &rules.typos_of), ("rules.suggest", &rules.suggest)]
        .into_iter()
        .flat_map(|(key, names)| names.iter().map(move |name| (key, name)))
        .map(|(key, name)| (name.get_ref().clone(), places.place(name.span(), key)))
        .collect()
}

/// The format of the texts of a key.
#[derive(Clone, Copy)]
struct TextFormat {
    expected: &'static str,
    is_valid: fn(&str) -> bool,
}

fn parse_unlisted_rules(
    raw: RawRules,
    places: &ManifestText<'_>,
    faults: &mut TableFaults,
) -> UnlistedRuleSettings {
    let mut parse_texts = |key: &str, texts: Vec<Spanned<String>>, format: TextFormat| {
        let mut accepted = Vec::with_capacity(texts.len());
        for text in texts {
            match (format.is_valid)(text.get_ref()) {
                true => accepted.push(text.into_inner()),
                false => faults.push(places.fault(&text, &format!("rules.{key}"), format.expected)),
            }
        }
        accepted
    };
    let is_domain = |text: &str| Domain::parse(text).is_ok_and(|domain| domain.as_str() == text);
    let is_word = |text: &str| {
        let is_valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        text.len() >= 3 && text.bytes().all(is_valid)
    };
    let is_suffix = |text: &str| {
        let is_valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
        text.len() >= 2 && text.bytes().all(is_valid)
    };
    let suffix = TextFormat {
        expected: "a public suffix in its canonical form, such as \"xyz\" or \"my.id\"",
        is_valid: is_suffix,
    };
    let word = TextFormat { expected: "three or more of a-z, 0-9 and -", is_valid: is_word };
    let domain = TextFormat { expected: "a domain in its canonical form", is_valid: is_domain };
    UnlistedRuleSettings {
        typos_of: parse_texts("typos_of", raw.typos_of, domain),
        suggest: parse_texts("suggest", raw.suggest, domain),
        sole_domains: parse_texts("sole_domains", raw.sole_domains, domain),
        throwaway_words: parse_texts("throwaway_words", raw.throwaway_words, word),
        mail_words: parse_texts("mail_words", raw.mail_words, word),
        bulk: {
            let mut parse =
                |key: &str, texts, format| parse_texts(&format!("bulk.{key}"), texts, format);
            BulkNameSettings {
                suffixes: parse("suffixes", raw.bulk.suffixes, suffix),
                subdomain_suffixes: parse(
                    "subdomain_suffixes",
                    raw.bulk.subdomain_suffixes,
                    suffix,
                ),
                short_name_suffixes: parse(
                    "short_name_suffixes",
                    raw.bulk.short_name_suffixes,
                    suffix,
                ),
                short_label_suffixes: parse(
                    "short_label_suffixes",
                    raw.bulk.short_label_suffixes,
                    suffix,
                ),
                label_words: parse("label_words", raw.bulk.label_words, word),
            }
        },
        verified_mx_vote: raw.verified_mx_vote,
    }
}

fn parse_scores(
    raw: BTreeMap<String, Spanned<Value>>,
    places: &ManifestText<'_>,
    faults: &mut TableFaults,
) -> Scores {
    let mut scores = [Score::ZERO; Rule::ALL.len() + 1];
    for (rule, value) in DEFAULT_SCORES {
        scores[rule as usize] = Score::new(value).unwrap_or(Score::ZERO);
    }
    for (key, value) in raw {
        let at = places.place(value.span(), &format!("scores.{key}"));
        let Some((rule, _)) = DEFAULT_SCORES.iter().find(|(rule, _)| rule.as_str() == key) else {
            let names: Vec<&str> = DEFAULT_SCORES.iter().map(|(rule, _)| rule.as_str()).collect();
            let expected = format!("a rule, one of {}", names.join(", "));
            faults.push(TableFault::expected(at, expected, quote_excerpt(&key)));
            continue;
        };
        let max_score = match rule {
            Rule::DisposableMxAddress => MAX_MX_ADDRESS_SCORE,
            _ => MAX_SCORE,
        };
        let score = value.get_ref().as_integer().and_then(|n| u8::try_from(n).ok());
        match score.filter(|score| *score <= max_score).and_then(Score::new) {
            Some(score) => scores[*rule as usize] = score,
            None => {
                let expected = format!("an integer from 0 to {max_score}");
                faults.push(TableFault::expected(at, expected, value.get_ref().to_string()));
            }
        }
    }
    Scores(scores)
}
