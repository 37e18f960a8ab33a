//! Decides the answer for a name from its facts. The first rule that applies decides. Then an
//! override replaces the fields that it sets.
//!
//! No I/O. `resolve` collects the facts of each name.

use std::borrow::Cow;

use super::manifest::Scores;
use crate::model::verdict::{Reason, Rule, Score, Verdict};

/// The bit of the fact that makes this rule apply. If a name has the bits of several rules, the
/// first of them in [`Rule::ALL`] decides.
pub(super) const fn rule_bit(rule: Rule) -> u32 {
    1 << rule as u32
}

/// The name is the mail domain of a company. A list sets it together with `Rule::Protected`.
pub(super) const CORPORATE_BIT: u32 = 1 << 31;
/// A list says that the name is real: its kind is `known` or `cleared`.
pub(super) const KNOWN_OR_CLEARED_BIT: u32 = 1 << 30;
/// Third-party lists flag the name by mistake. No feed may flag it.
pub(super) const CLEARED_BIT: u32 = 1 << 29;
/// A list of the manifest has a row for exactly this name.
pub(super) const IN_MANIFEST_LISTS_BIT: u32 = 1 << 28;
/// A list of the manifest protects exactly this name.
pub(super) const PROTECTED_IN_MANIFEST_BIT: u32 = 1 << 27;
/// The facts that a list of disposable domains or of roles gives to its names.
pub(super) const FLAGGING_LIST_BITS: u32 = rule_bit(Rule::DisposableA)
    | rule_bit(Rule::DisposableB)
    | rule_bit(Rule::DisposableC)
    | rule_bit(Rule::DisposableD)
    | rule_bit(Rule::Role);

/// The facts about a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub fact_bits: u32,
    /// The lists that contain the name, bit 0 for the first list of the manifest.
    pub list_bits: u64,
    /// The sources that vote for the name, bit 0 for `a`.
    pub vote_bits: u32,
    /// The number of the static label, counted from 1; 0 for none.
    pub label_number: u32,
    /// The number of the label by MX host, counted from 1; 0 for none.
    pub mx_label_number: u32,
}

impl Facts {
    /// Leaves out the facts that hold for exactly this name: names below inherit the rest. They
    /// inherit a label separately.
    pub(super) fn to_inheritable_facts(self) -> Facts {
        Facts {
            label_number: 0,
            fact_bits: self.fact_bits
                & !(IN_MANIFEST_LISTS_BIT | PROTECTED_IN_MANIFEST_BIT | KNOWN_OR_CLEARED_BIT),
            ..self
        }
    }

    /// Adds the facts of another row or of a parent. A label that is already set is kept.
    pub(super) fn merge(&mut self, other: Facts) {
        self.fact_bits |= other.fact_bits;
        self.list_bits |= other.list_bits;
        self.vote_bits |= other.vote_bits;
        self.label_number =
            if self.label_number == 0 { other.label_number } else { self.label_number };
        self.mx_label_number =
            if self.mx_label_number == 0 { other.mx_label_number } else { self.mx_label_number };
    }
}

/// An override of a name. The rules give each field that is `None`, and look at the fields that the
/// override sets.
pub(super) struct OverrideRow<'a> {
    pub name: Cow<'a, str>,
    pub covers_subtree: bool,
    pub reason: Option<Reason>,
    pub score: Option<Score>,
    pub is_free_provider: Option<bool>,
    pub is_corporate_email: Option<bool>,
    /// The number of the label, counted from 1; 0 removes the label.
    pub label_number: Option<u32>,
    pub list_number: u8,
    pub line_number: u32,
}

/// An answer as a table stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StoredAnswer {
    pub verdict: Verdict,
    /// The rule that would decide without an override.
    pub rule_of_lists: Rule,
    /// The number of the label, counted from 1; 0 for none.
    pub label_number: u32,
    /// The lists behind the answer, bit 0 for the first list of the manifest.
    pub list_bits: u64,
    /// The sources that vote for the name, bit 0 for `a`.
    pub vote_bits: u32,
    /// Whether a list of the manifest has a row for exactly this name.
    pub is_in_manifest_lists: bool,
    /// Whether a list of the manifest protects exactly this name, even if an override flags it.
    pub is_protected_in_manifest_lists: bool,
    /// Whether a list says that the name is real.
    pub is_known_or_cleared: bool,
    /// What is set by an override that leaves the verdict to rules for unlisted names and to DNS
    /// facts.
    pub set_by_override: FieldsSetByOverride,
}

/// Which fields an override sets beside reason and score. riskgate lays these fields over the
/// answer of a rule for unlisted names or of a DNS fact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct FieldsSetByOverride {
    pub sets_free_provider: bool,
    pub sets_corporate_email: bool,
    pub sets_label: bool,
}

impl FieldsSetByOverride {
    /// Whether the override sets one of these fields.
    pub(super) fn is_any(self) -> bool {
        self.sets_free_provider || self.sets_corporate_email || self.sets_label
    }
}

impl OverrideRow<'_> {
    /// Whether the override decides the verdict: it sets the reason or the score.
    fn decides_verdict(&self) -> bool {
        self.reason.is_some() || self.score.is_some()
    }

    fn fields_beside_verdict(&self) -> FieldsSetByOverride {
        FieldsSetByOverride {
            sets_free_provider: self.is_free_provider.is_some(),
            sets_corporate_email: self.is_corporate_email.is_some(),
            sets_label: self.label_number.is_some(),
        }
    }
}

/// Decides the answer. The first rule that applies gives reason and score. The override then
/// replaces the fields that it sets.
pub(super) fn decide_answer(
    facts: &Facts,
    override_row: Option<&OverrideRow>,
    scores: &Scores,
) -> StoredAnswer {
    let rule_of_lists = Rule::ALL
        .into_iter()
        .find(|rule| facts.fact_bits & rule_bit(*rule) != 0)
        .unwrap_or(Rule::Unknown);
    let mut rule = rule_of_lists;
    let mut reason = reason_of_rule(rule);
    let mut score = scores.score_of(rule);
    let mut label =
        if facts.label_number == 0 { facts.mx_label_number } else { facts.label_number };
    let mut lists = facts.list_bits;
    // If a list gives the name a label, the list says what the name is, and nothing else judges it.
    let laid_over = override_row.filter(|it| !it.decides_verdict() && label == 0);
    if let Some(override_row) = override_row {
        if override_row.decides_verdict() {
            rule = Rule::Override;
        }
        reason = override_row.reason.unwrap_or(reason);
        score = override_row.score.unwrap_or(score);
        label = override_row.label_number.unwrap_or(label);
        lists |= 1 << override_row.list_number;
    }
    let has = |bits: u32| facts.fact_bits & bits != 0;
    let is_alias = has(rule_bit(Rule::Alias));
    let is_free_provider = override_row
        .and_then(|override_row| override_row.is_free_provider)
        .unwrap_or(has(rule_bit(Rule::Free)) && !is_alias);
    let is_corporate_email =
        override_row.and_then(|override_row| override_row.is_corporate_email).unwrap_or(
            has(CORPORATE_BIT | rule_bit(Rule::Professional))
                && reason == Reason::Safe
                && !is_free_provider
                && !is_alias,
        );
    let verdict = Verdict { reason, score, is_free_provider, is_corporate_email, rule };
    StoredAnswer {
        verdict,
        rule_of_lists,
        label_number: label,
        list_bits: lists,
        vote_bits: facts.vote_bits,
        is_in_manifest_lists: has(IN_MANIFEST_LISTS_BIT),
        is_protected_in_manifest_lists: has(PROTECTED_IN_MANIFEST_BIT),
        is_known_or_cleared: has(KNOWN_OR_CLEARED_BIT),
        set_by_override: laid_over.map(OverrideRow::fields_beside_verdict).unwrap_or_default(),
    }
}

/// The reason that a rule gives. No caller uses the value for [`Rule::Override`]: an override sets
/// a reason, or keeps the reason of the rule that would apply without it.
pub(super) fn reason_of_rule(rule: Rule) -> Reason {
    match rule {
        Rule::SpecialUse
        | Rule::UnknownTld
        | Rule::NoMail
        | Rule::Parked
        | Rule::LookAlike
        | Rule::Typo => Reason::Undeliverable,
        Rule::DisposableA
        | Rule::DisposableB
        | Rule::DisposableC
        | Rule::DisposableD
        | Rule::DisposableMx
        | Rule::DisposableMxAddress
        | Rule::FreeSubdomain
        | Rule::ThrowawayName => Reason::Disposable,
        Rule::Role => Reason::RoleAccount,
        Rule::Override
        | Rule::Protected
        | Rule::Alias
        | Rule::AgentInbox
        | Rule::Free
        | Rule::Professional
        | Rule::BulkName
        | Rule::MailInName
        | Rule::Unknown => Reason::Safe,
    }
}
