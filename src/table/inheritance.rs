//! The facts that a row passes on to the names below it.
//!
//! No I/O. `resolve` decides which name inherits which facts.

use std::collections::HashMap;

use super::manifest::{ListKind, ListOrigin, Manifest};
use super::rows::{Coverage, ParsedLists, Row};
use super::rules::{self, Facts};
use crate::model::verdict::Rule;

/// The facts that a name passes on to names below it.
#[derive(Clone, Copy, Default)]
pub(super) struct InheritableFacts {
    pub(super) special_use: Facts,
    pub(super) free_subdomain: Facts,
    pub(super) protection: Facts,
    pub(super) label: Facts,
    /// The numbers of the name's overrides, counted from 1; 0 for none. `exact_override_number` is
    /// of the override for the name alone, `subtree_override_number` of the one that also covers
    /// the names below it.
    pub(super) exact_override_number: u32,
    pub(super) subtree_override_number: u32,
}

/// The inheritable facts of each name that has any.
pub(super) fn collect_inheritable<'r>(
    lists: &'r ParsedLists,
    manifest: &Manifest,
) -> HashMap<&'r str, InheritableFacts> {
    let mut inheritable_by_name: HashMap<&str, InheritableFacts> = HashMap::new();
    for row in &lists.rows {
        let facts = facts_of_row(row, manifest);
        let has = |rule| row.fact_bits & rules::rule_bit(rule) != 0;
        if row.coverage != Coverage::NameOnly && has(Rule::SpecialUse) {
            inheritable_by_name.entry(&row.name).or_default().special_use.merge(facts);
        }
        if row.coverage != Coverage::NameOnly && has(Rule::FreeSubdomain) {
            inheritable_by_name.entry(&row.name).or_default().free_subdomain.merge(facts);
        }
        if row.coverage == Coverage::AcrossSuffixes && has(Rule::Protected) {
            inheritable_by_name.entry(&row.name).or_default().protection.merge(facts);
        }
        if row.coverage != Coverage::NameOnly && facts.label != 0 {
            inheritable_by_name.entry(&row.name).or_default().label.merge(facts);
        }
    }
    for (number, override_row) in (1..).zip(&lists.overrides) {
        let inheritable = inheritable_by_name.entry(&override_row.name).or_default();
        *(if override_row.covers_subtree {
            &mut inheritable.subtree_override_number
        } else {
            &mut inheritable.exact_override_number
        }) = number;
    }
    inheritable_by_name
}

pub(super) fn facts_of_row(row: &Row, manifest: &Manifest) -> Facts {
    let (label, mx_label, lists) = match manifest.lists[usize::from(row.list)].kind {
        // An override is not a fact; `decide_answer` adds its list if the override applies.
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

/// The facts that a name inherits from the names above it.
#[derive(Default)]
pub(super) struct InheritedFacts {
    pub(super) special_use: Facts,
    pub(super) free_subdomain: Facts,
    pub(super) protection: Facts,
    pub(super) label: Facts,
    /// The number of the nearest override above the name that covers the names below it, and the
    /// number of the nearest such override in the operator's own file. Counted from 1; 0 for none.
    pub(super) subtree_override_number: u32,
    pub(super) operator_override_number: u32,
}
