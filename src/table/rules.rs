//! What the facts about a name add up to: the rules in their order, then the operator's word.
//!
//! Values only. Which facts a name has is found out in `build`.

use std::borrow::Cow;

use super::manifest::Scores;
use crate::model::verdict::{Reason, Rule, Score, Verdict};

/// The fact that lets a rule apply. The lowest bit of a set belongs to the rule that decides.
pub(super) const fn rule_bit(rule: Rule) -> u32 {
    1 << rule as u32
}

/// The mail domain of a company; always together with `Rule::Protected`.
pub(super) const CORPORATE_BIT: u32 = 1 << 31;
/// Somebody says that the name is real; no rule judges it.
pub(super) const REAL_NAME_BIT: u32 = 1 << 30;
/// Other people's lists flag the name by mistake; no feed may flag it.
pub(super) const CLEARED_BIT: u32 = 1 << 29;
/// A list of the manifest has a row for exactly this name.
pub(super) const IN_MANIFEST_LISTS_BIT: u32 = 1 << 28;
/// A list of the manifest protects exactly this name.
pub(super) const PROTECTED_BY_NAME_BIT: u32 = 1 << 27;
/// Facts that flag a name by a list of names, not by what the DNS says.
pub(super) const FLAGGING_LIST_BITS: u32 = rule_bit(Rule::DisposableA)
    | rule_bit(Rule::DisposableB)
    | rule_bit(Rule::DisposableC)
    | rule_bit(Rule::DisposableD)
    | rule_bit(Rule::Role);

/// What is said of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub bits: u32,
    /// Lists that say so, bit 0 for the first of the manifest.
    pub lists: u64,
    /// Sources that list the name, bit 0 for `a`.
    pub votes: u32,
    /// The static label and 1, or 0.
    pub label: u32,
    /// The label by MX and 1, or 0.
    pub mx_label: u32,
}

impl Facts {
    /// What names below take over from a row, but for its label.
    pub(super) fn inheritable(self) -> Facts {
        Facts {
            label: 0,
            bits: self.bits & !(IN_MANIFEST_LISTS_BIT | PROTECTED_BY_NAME_BIT | REAL_NAME_BIT),
            ..self
        }
    }

    /// Adds what another row or a parent says; the first label stays.
    pub(super) fn merge(&mut self, other: Facts) {
        self.bits |= other.bits;
        self.lists |= other.lists;
        self.votes |= other.votes;
        self.label = if self.label == 0 { other.label } else { self.label };
        self.mx_label = if self.mx_label == 0 { other.mx_label } else { self.mx_label };
    }
}

/// The operator's word on a name: what is `None` stays as the rules have it.
pub(super) struct OverrideRow<'a> {
    pub name: Cow<'a, str>,
    pub covers_subtree: bool,
    pub reason: Option<Reason>,
    pub score: Option<Score>,
    pub is_free: Option<bool>,
    pub is_corporate: Option<bool>,
    /// A label and 1; 0 for none.
    pub label: Option<u32>,
    pub list: u8,
    pub line: u32,
}

/// What a table says of a name, as it stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StoredAnswer {
    pub verdict: Verdict,
    /// A label and 1, or 0.
    pub label: u32,
    pub lists: u64,
    pub votes: u32,
    /// A list of the manifest has a row for exactly this name.
    pub is_in_manifest_lists: bool,
    /// A list of the manifest protects exactly this name, whatever an override says.
    pub is_protected_by_name: bool,
    /// A list says that the name is real.
    pub is_real: bool,
}

/// The first rule that applies, and the facts that stand beside it.
pub(super) fn decide_answer(
    facts: &Facts,
    override_row: Option<&OverrideRow>,
    scores: &Scores,
) -> StoredAnswer {
    let mut rule = Rule::ALL
        .into_iter()
        .find(|rule| facts.bits & rule_bit(*rule) != 0)
        .unwrap_or(Rule::Unknown);
    let mut reason = reason_of_rule(rule);
    let mut score = scores.score_of(rule);
    let mut label = if facts.label == 0 { facts.mx_label } else { facts.label };
    let mut lists = facts.lists;
    if let Some(override_row) = override_row {
        if override_row.reason.is_some() || override_row.score.is_some() {
            rule = Rule::Override;
        }
        reason = override_row.reason.unwrap_or(reason);
        score = override_row.score.unwrap_or(score);
        label = override_row.label.unwrap_or(label);
        lists |= 1 << override_row.list;
    }
    let has = |bits: u32| facts.bits & bits != 0;
    let is_alias = has(rule_bit(Rule::Alias));
    let is_free_provider = override_row
        .and_then(|override_row| override_row.is_free)
        .unwrap_or(has(rule_bit(Rule::Free)) && !is_alias);
    let is_corporate_email =
        override_row.and_then(|override_row| override_row.is_corporate).unwrap_or(
            has(CORPORATE_BIT | rule_bit(Rule::Professional))
                && reason == Reason::Safe
                && !is_free_provider
                && !is_alias,
        );
    let verdict = Verdict { reason, score, is_free_provider, is_corporate_email, rule };
    StoredAnswer {
        verdict,
        label,
        lists,
        votes: facts.votes,
        is_in_manifest_lists: has(IN_MANIFEST_LISTS_BIT),
        is_protected_by_name: has(PROTECTED_BY_NAME_BIT),
        is_real: has(REAL_NAME_BIT),
    }
}

/// What a rule says; for an override, what it says unless it names a reason.
pub(super) fn reason_of_rule(rule: Rule) -> Reason {
    match rule {
        Rule::SpecialUse | Rule::UnknownTld | Rule::NoMail | Rule::Parked | Rule::Typo => {
            Reason::Undeliverable
        }
        Rule::DisposableA
        | Rule::DisposableB
        | Rule::DisposableC
        | Rule::DisposableD
        | Rule::DisposableMx
        | Rule::FreeSubdomain
        | Rule::ThrowawayName => Reason::Disposable,
        Rule::Role => Reason::RoleAccount,
        Rule::Override
        | Rule::Protected
        | Rule::Alias
        | Rule::Free
        | Rule::Professional
        | Rule::MailInName
        | Rule::Unknown => Reason::Safe,
    }
}
