//! What a row passes on to the names below it.
//!
//! Values only: which name inherits what is decided in `resolve`.

use std::collections::HashMap;

use super::manifest::{Kind, Manifest, Origin};
use super::rows::{Lists, Reach, Row};
use super::rules::{self, Facts};
use crate::model::verdict::Rule;

/// What a name passes on to names below it.
#[derive(Clone, Copy, Default)]
pub(super) struct Legacy {
    pub(super) special: Facts,
    pub(super) free_subdomain: Facts,
    pub(super) protection: Facts,
    pub(super) label: Facts,
    /// The override of the name itself and the one of all below it, each with 1 added.
    pub(super) exact: u32,
    pub(super) subtree: u32,
}

/// What each name passes on, for the few that pass on anything.
pub(super) fn legacies<'r>(lists: &'r Lists, manifest: &Manifest) -> HashMap<&'r str, Legacy> {
    let mut legacies: HashMap<&str, Legacy> = HashMap::new();
    for row in &lists.rows {
        let facts = facts(row, manifest);
        let has = |rule| row.bits & rules::bit(rule) != 0;
        if row.reach != Reach::Exact && has(Rule::SpecialUse) {
            legacies.entry(&row.name).or_default().special.add(facts);
        }
        if row.reach != Reach::Exact && has(Rule::FreeSubdomain) {
            legacies.entry(&row.name).or_default().free_subdomain.add(facts);
        }
        if row.reach == Reach::Beyond && has(Rule::Protected) {
            legacies.entry(&row.name).or_default().protection.add(facts);
        }
        if row.reach != Reach::Exact && facts.label != 0 {
            legacies.entry(&row.name).or_default().label.add(facts);
        }
    }
    for (number, word) in (1..).zip(&lists.overrides) {
        let legacy = legacies.entry(&word.name).or_default();
        *(if word.subtree { &mut legacy.subtree } else { &mut legacy.exact }) = number;
    }
    legacies
}

pub(super) fn facts(row: &Row, manifest: &Manifest) -> Facts {
    let (label, mx_label, lists) = match manifest.lists[usize::from(row.list)].kind {
        // An override is no fact; `decide` names its list where it applies.
        Kind::Override => (0, 0, 0),
        Kind::Mx => (0, row.label, 1 << row.list),
        _ => (row.label, 0, 1 << row.list),
    };
    let mut bits = row.bits;
    if manifest.lists[usize::from(row.list)].origin == Origin::Manifest {
        bits |= rules::IN_LISTS;
        if row.bits & rules::bit(Rule::Protected) != 0 {
            bits |= rules::PROTECTED_BY_NAME;
        }
    }
    Facts { bits, lists, votes: row.votes, label, mx_label }
}

/// What a name takes over from its parents.
#[derive(Default)]
pub(super) struct Inherited {
    pub(super) special: Facts,
    pub(super) free_subdomain: Facts,
    pub(super) protection: Facts,
    pub(super) label: Facts,
    /// The nearest override, and the nearest one of the operator's own.
    pub(super) subtree: u32,
    pub(super) operator_subtree: u32,
}
