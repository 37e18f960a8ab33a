//! What a row passes on to the names below it.
//!
//! Values only: which name inherits what is decided in `resolve`.

use std::collections::HashMap;

use super::manifest::{ListKind, ListOrigin, Manifest};
use super::rows::{Coverage, ParsedLists, Row};
use super::rules::{self, Facts};
use crate::model::verdict::Rule;

/// What a name passes on to names below it.
#[derive(Clone, Copy, Default)]
pub(super) struct Inheritable {
    pub(super) special_use: Facts,
    pub(super) free_subdomain: Facts,
    pub(super) protection: Facts,
    pub(super) label: Facts,
    /// The override of the name itself and the one of all below it, each with 1 added.
    pub(super) exact_override: u32,
    pub(super) subtree_override: u32,
}

/// What each name passes on, for the few that pass on anything.
pub(super) fn collect_inheritable<'r>(
    lists: &'r ParsedLists,
    manifest: &Manifest,
) -> HashMap<&'r str, Inheritable> {
    let mut legacies: HashMap<&str, Inheritable> = HashMap::new();
    for row in &lists.rows {
        let facts = facts_of_row(row, manifest);
        let has = |rule| row.fact_bits & rules::rule_bit(rule) != 0;
        if row.coverage != Coverage::NameOnly && has(Rule::SpecialUse) {
            legacies.entry(&row.name).or_default().special_use.merge(facts);
        }
        if row.coverage != Coverage::NameOnly && has(Rule::FreeSubdomain) {
            legacies.entry(&row.name).or_default().free_subdomain.merge(facts);
        }
        if row.coverage == Coverage::AcrossSuffixes && has(Rule::Protected) {
            legacies.entry(&row.name).or_default().protection.merge(facts);
        }
        if row.coverage != Coverage::NameOnly && facts.label != 0 {
            legacies.entry(&row.name).or_default().label.merge(facts);
        }
    }
    for (number, word) in (1..).zip(&lists.overrides) {
        let inheritable = legacies.entry(&word.name).or_default();
        *(if word.covers_subtree {
            &mut inheritable.subtree_override
        } else {
            &mut inheritable.exact_override
        }) = number;
    }
    legacies
}

pub(super) fn facts_of_row(row: &Row, manifest: &Manifest) -> Facts {
    let (label, mx_label, lists) = match manifest.lists[usize::from(row.list)].kind {
        // An override is no fact; `decide` names its list where it applies.
        ListKind::Override => (0, 0, 0),
        ListKind::Mx => (0, row.label, 1 << row.list),
        _ => (row.label, 0, 1 << row.list),
    };
    let mut bits = row.fact_bits;
    if manifest.lists[usize::from(row.list)].list_origin == ListOrigin::Manifest {
        bits |= rules::IN_MANIFEST_LISTS_BIT;
        if row.fact_bits & rules::rule_bit(Rule::Protected) != 0 {
            bits |= rules::PROTECTED_BY_NAME_BIT;
        }
    }
    Facts { bits, lists, votes: row.votes, label, mx_label }
}

/// What a name takes over from its parents.
#[derive(Default)]
pub(super) struct Inherited {
    pub(super) special_use: Facts,
    pub(super) free_subdomain: Facts,
    pub(super) protection: Facts,
    pub(super) label: Facts,
    /// The nearest override, and the nearest one of the operator's own.
    pub(super) subtree_override: u32,
    pub(super) operator_subtree_override: u32,
}
