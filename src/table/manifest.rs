//! What people write beside the lists: `manifest.toml`.
//!
//! Turns it into what the build needs: which file means what, the score of every rule, the
//! limits of a build. Knows nothing of names, and reads no file itself.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::{Spanned, Value};

use super::fault::{Fault, TableError, line_of, quoted, toml_fault};
use super::infer::InferenceSettings;
use super::packages::SourceInfo;
use crate::model::domain::Domain;
use crate::model::verdict::{Rule, Score};

/// How long a list of TLDs is believed, in days.
pub(super) const TLDS_DAYS: i64 = 90;
/// The share of rows that may come or go, unless the manifest says otherwise.
const MAX_CHANGED_SHARE: f64 = 0.3;
/// Each row knows its lists by a bit of 64.
pub(super) const MAX_LISTS: usize = 64;

/// What the rows of a list are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    MxLabel,
    Override,
    SpecialUse,
    Tlds,
    Protected,
    Corporate,
    Alias,
    /// One of the four disposable rules.
    Disposable(Rule),
    Role,
    Free,
    /// Suffixes below which everybody gets names for nothing.
    FreeSubdomain,
    /// Real names that no rule for unlisted names may judge.
    Known,
    /// Real names that other people's lists flag by mistake; no feed may flag them either.
    Cleared,
    Label,
    Mx,
    Seed,
}

const KINDS: [(&str, Kind); 16] = [
    ("override", Kind::Override),
    ("special_use", Kind::SpecialUse),
    ("tlds", Kind::Tlds),
    ("protected", Kind::Protected),
    ("corporate", Kind::Corporate),
    ("alias", Kind::Alias),
    ("disposable", Kind::Disposable(Rule::DisposableA)),
    ("mx", Kind::Mx),
    ("mx_label", Kind::MxLabel),
    ("role", Kind::Role),
    ("free", Kind::Free),
    ("free_subdomain", Kind::FreeSubdomain),
    ("known", Kind::Known),
    ("cleared", Kind::Cleared),
    ("label", Kind::Label),
    ("seed", Kind::Seed),
];

const TIERS: [(&str, Rule); 4] = [
    ("a", Rule::DisposableA),
    ("b", Rule::DisposableB),
    ("c", Rule::DisposableC),
    ("d", Rule::DisposableD),
];
const TIER_NAMES: &str = "a, b, c or d";

impl Kind {
    /// The word in the manifest; a disposable list says its tier too.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Disposable(rule) => rule.as_str(),
            _ => KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(word, _)| word),
        }
    }
}

/// The rules that have a score, and the score that they have unless the manifest says otherwise.
const SCORES: [(Rule, u8); 19] = [
    (Rule::SpecialUse, 100),
    (Rule::UnknownTld, 100),
    (Rule::Protected, 0),
    (Rule::Alias, 35),
    (Rule::DisposableA, 100),
    (Rule::DisposableB, 90),
    (Rule::DisposableC, 80),
    (Rule::DisposableD, 60),
    (Rule::NoMail, 95),
    (Rule::Parked, 85),
    (Rule::DisposableMx, 85),
    (Rule::Role, 70),
    (Rule::Free, 0),
    (Rule::Typo, 60),
    (Rule::FreeSubdomain, 70),
    (Rule::ThrowawayName, 70),
    (Rule::Professional, 0),
    (Rule::MailInName, 30),
    (Rule::Unknown, 10),
];

/// One list of the manifest.
#[derive(Clone, Debug)]
pub(super) struct List {
    pub file: String,
    pub kind: Kind,
    /// The entry of `sources.toml` that it was made from.
    pub source: Option<String>,
    /// The line of the manifest.
    pub line: u32,
    /// Who put it there.
    pub origin: Origin,
}

/// Who put a list into a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The manifest names it.
    Manifest,
    /// The operator, beside the lists.
    Operator,
    /// A feed.
    Feed,
}

/// The manifest, checked.
pub(super) struct Manifest {
    pub lists: Vec<List>,
    pub scores: Scores,
    pub max_changed_share: f64,
    /// Protected names that may be flagged, with their line.
    pub flag_protected: Vec<(String, u32)>,
    /// What the rules for names in no list go by.
    pub inferred: InferenceSettings,
}

/// The score of each rule.
#[derive(Clone, Copy)]
pub(super) struct Scores([Score; Rule::ALL.len() + 1]);

impl Scores {
    pub(super) fn of(&self, rule: Rule) -> Score {
        self.0[rule as usize]
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawManifest {
    #[serde(default)]
    list: Vec<Spanned<RawList>>,
    #[serde(default)]
    scores: BTreeMap<String, Spanned<Value>>,
    #[serde(default)]
    guard: RawGuard,
    #[serde(default)]
    rules: RawRules,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRules {
    #[serde(default)]
    typos_of: Vec<Spanned<String>>,
    #[serde(default)]
    suggest: Vec<Spanned<String>>,
    #[serde(default)]
    throwaway_words: Vec<Spanned<String>>,
    #[serde(default)]
    mail_words: Vec<Spanned<String>>,
    works_vote: Option<char>,
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
#[serde(deny_unknown_fields)]
struct RawGuard {
    max_changed_share: Option<Spanned<f64>>,
    #[serde(default)]
    flag_protected: Vec<Spanned<String>>,
}

impl Manifest {
    /// Reads `manifest.toml`; `sources` are those that its lists may name.
    pub(super) fn read(
        text: &str,
        place: &str,
        sources: &[SourceInfo],
    ) -> Result<Manifest, TableError> {
        let raw: RawManifest = toml::from_str(text).map_err(|e| toml_fault(&e, text, place))?;
        let mut faults = TableError::default();
        let at = |span: Range<usize>, key: &str| format!("{place}:{}: {key}", line_of(text, &span));

        let mut lists: Vec<List> = Vec::with_capacity(raw.list.len());
        for spanned in raw.list {
            let line = line_of(text, &spanned.span());
            match read_list(spanned.into_inner(), line, &at, sources) {
                Ok(list) => match lists.iter().find(|other| other.file == list.file) {
                    Some(other) => faults.push(Fault::Twice {
                        at: format!("{place}:{line}: file"),
                        what: quoted(&list.file),
                        first: other.line,
                    }),
                    None => lists.push(list),
                },
                Err(fault) => faults.push(fault),
            }
        }
        if lists.len() > MAX_LISTS {
            let found = lists.len().to_string();
            faults.push(Fault::expected(place, format!("at most {MAX_LISTS} lists"), found));
        }
        let scores = read_scores(raw.scores, &at, &mut faults);
        let max_changed_share = match raw.guard.max_changed_share {
            None => MAX_CHANGED_SHARE,
            Some(share) => {
                let value = *share.get_ref();
                if !(0.0..=1.0).contains(&value) {
                    let at = at(share.span(), "guard.max_changed_share");
                    faults.push(Fault::expected(at, "a number from 0 to 1", value.to_string()));
                }
                value
            }
        };
        let flag_protected = raw
            .guard
            .flag_protected
            .into_iter()
            .map(|name| (line_of(text, &name.span()), name.into_inner()))
            .map(|(line, name)| (name, line))
            .collect();
        let inferred = read_rules(raw.rules, &at, &mut faults);
        faults.into_result()?;
        Ok(Manifest { lists, scores, max_changed_share, flag_protected, inferred })
    }
}

fn read_list(
    raw: RawList,
    line: u32,
    at: &impl Fn(Range<usize>, &str) -> String,
    sources: &[SourceInfo],
) -> Result<List, Fault> {
    let word = raw.kind.get_ref();
    let Some((_, kind)) = KINDS.iter().find(|(name, _)| name == word) else {
        let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
        let expected = format!("one of {}", names.join(", "));
        return Err(Fault::expected(at(raw.kind.span(), "kind"), expected, quoted(word)));
    };
    let kind = match (kind, raw.tier) {
        (Kind::Disposable(_), Some(tier)) => {
            match TIERS.iter().find(|(name, _)| name == tier.get_ref()) {
                Some((_, rule)) => Kind::Disposable(*rule),
                None => {
                    let at = at(tier.span(), "tier");
                    return Err(Fault::expected(at, TIER_NAMES, quoted(tier.get_ref())));
                }
            }
        }
        (Kind::Disposable(_), None) => {
            return Err(Fault::expected(at(raw.kind.span(), "tier"), TIER_NAMES, "no tier"));
        }
        (_, Some(tier)) => {
            let expected = "no tier, since only disposable lists have one";
            return Err(Fault::expected(at(tier.span(), "tier"), expected, quoted(tier.get_ref())));
        }
        (kind, None) => *kind,
    };
    if let Some(source) = &raw.source
        && !sources.iter().any(|known| known.name == *source.get_ref())
    {
        let expected = "the name of an entry of sources.toml";
        let found = quoted(source.get_ref());
        return Err(Fault::expected(at(source.span(), "source"), expected, found));
    }
    let source = raw.source.map(Spanned::into_inner);
    if kind == Kind::Tlds && source.is_none() {
        let expected = "the entry of sources.toml whose date says how old the list is";
        return Err(Fault::expected(at(raw.kind.span(), "source"), expected, "none"));
    }
    Ok(List { file: raw.file, kind, source, line, origin: Origin::Manifest })
}

fn read_rules(
    raw: RawRules,
    at: &impl Fn(Range<usize>, &str) -> String,
    faults: &mut TableError,
) -> InferenceSettings {
    let mut read =
        |key: &str, texts: Vec<Spanned<String>>, expected: &str, is_good: fn(&str) -> bool| {
            let mut good = Vec::with_capacity(texts.len());
            for text in texts {
                if is_good(text.get_ref()) {
                    good.push(text.into_inner());
                } else {
                    let at = at(text.span(), &format!("rules.{key}"));
                    faults.push(Fault::expected(at, expected, quoted(text.get_ref())));
                }
            }
            good
        };
    let is_domain = |text: &str| Domain::parse(text).is_ok_and(|domain| domain.as_str() == text);
    let is_word = |text: &str| {
        let is_good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        text.len() >= 3 && text.bytes().all(is_good)
    };
    let word = "three or more of a-z, 0-9 and -";
    let domain = "a domain in its canonical form";
    InferenceSettings {
        typos_of: read("typos_of", raw.typos_of, domain, is_domain),
        suggest: read("suggest", raw.suggest, domain, is_domain),
        throwaway_words: read("throwaway_words", raw.throwaway_words, word, is_word),
        mail_words: read("mail_words", raw.mail_words, word, is_word),
        works_vote: raw.works_vote,
    }
}

fn read_scores(
    raw: BTreeMap<String, Spanned<Value>>,
    at: &impl Fn(Range<usize>, &str) -> String,
    faults: &mut TableError,
) -> Scores {
    let mut scores = [Score::ZERO; Rule::ALL.len() + 1];
    for (rule, value) in SCORES {
        scores[rule as usize] = Score::new(value).unwrap_or(Score::ZERO);
    }
    for (key, value) in raw {
        let at = at(value.span(), &format!("scores.{key}"));
        let Some((rule, _)) = SCORES.iter().find(|(rule, _)| rule.as_str() == key) else {
            let names: Vec<&str> = SCORES.iter().map(|(rule, _)| rule.as_str()).collect();
            let expected = format!("a rule, one of {}", names.join(", "));
            faults.push(Fault::expected(at, expected, quoted(&key)));
            continue;
        };
        let score = value.get_ref().as_integer().and_then(|n| u8::try_from(n).ok());
        match score.and_then(Score::new) {
            Some(score) => scores[*rule as usize] = score,
            None => {
                let found = value.get_ref().to_string();
                faults.push(Fault::expected(at, "an integer from 0 to 100", found));
            }
        }
    }
    Scores(scores)
}
