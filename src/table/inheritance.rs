//! The facts that a row passes on to the names below it.
//!
//! No I/O. `resolve` decides which name inherits which facts.

use std::collections::HashMap;

use super::manifest::{ListKind, ListOrigin, Manifest};
use super::rows::{Coverage, ParsedLists, Row};
use super::rules::{self, Facts};
use crate::model::verdict::Rule;

/// What the rows of a name say about the names below it. Each field merges the facts of the rows
/// that have its property, such as special use.
#[derive(Clone, Copy, Default)]
pub(super) struct InheritableFacts {
    pub(super) special_use_facts: Facts,
    pub(super) free_subdomain_facts: Facts,
    pub(super) protection_facts: Facts,
    pub(super) label_facts: Facts,
    /// The number of the override that also covers the names below, counted from 1; 0 for none.
    pub(super) subtree_override_number: u32,
}

/// The inheritable facts of each name that has any.
pub(super) fn collect_inheritable_facts<'r>(
    lists: &'r ParsedLists,
    manifest: &Manifest,
) -> HashMap<&'r str, InheritableFacts> {
    let mut inheritable_by_name: HashMap<&str, InheritableFacts> = HashMap::new();
    for row in lists.rows.iter().filter(|row| row.coverage != Coverage::NameOnly) {
        let facts = facts_of_row(row, manifest);
        let has = |rule| row.fact_bits & rules::rule_bit(rule) != 0;
        if has(Rule::SpecialUse) {
            inheritable_by_name.entry(&row.name).or_default().special_use_facts.merge(facts);
        }
        if has(Rule::FreeSubdomain) {
            inheritable_by_name.entry(&row.name).or_default().free_subdomain_facts.merge(facts);
        }
        if row.coverage == Coverage::AcrossSuffixes && has(Rule::Protected) {
            inheritable_by_name.entry(&row.name).or_default().protection_facts.merge(facts);
        }
        if facts.label_number != 0 {
            inheritable_by_name.entry(&row.name).or_default().label_facts.merge(facts);
        }
    }
    for (number, override_row) in (1..).zip(&lists.overrides) {
        if override_row.covers_subtree {
            let inheritable = inheritable_by_name.entry(&override_row.name).or_default();
            inheritable.subtree_override_number = number;
        }
    }
    inheritable_by_name
}

pub(super) fn facts_of_row(row: &Row, manifest: &Manifest) -> Facts {
    let (label, mx_label, lists) = match manifest.list_specs[usize::from(row.list_number)].kind {
        // An override is not a fact. If it applies, `decide_answer` adds its list to the answer.
        ListKind::Override => (0, 0, 0),
        ListKind::Mx => (0, row.label_number, 1 << row.list_number),
        _ => (row.label_number, 0, 1 << row.list_number),
    };
    let mut bits = row.fact_bits;
    if manifest.list_specs[usize::from(row.list_number)].list_origin == ListOrigin::Manifest {
        bits |= rules::IN_MANIFEST_LISTS_BIT;
        if row.fact_bits & rules::rule_bit(Rule::Protected) != 0 {
            bits |= rules::PROTECTED_IN_MANIFEST_BIT;
        }
    }
    Facts {
        fact_bits: bits,
        list_bits: lists,
        vote_bits: row.vote_bits,
        label_number: label,
        mx_label_number: mx_label,
    }
}

/// The facts that a name inherits from the names above it.
#[derive(Default)]
pub(super) struct InheritedFacts {
    /// The merged facts of all these names, the label of the nearest, and the number of the nearest
    /// override.
    pub(super) of_parents: InheritableFacts,
    /// The number of the nearest such override in the operator's own file; 0 for none.
    pub(super) file_override_number: u32,
    /// The number of the nearest such override of the store; 0 for none.
    pub(super) stored_override_number: u32,
}
