//! Parents of disposable names: if a feed has several names below one registrable name, somebody
//! makes such names, and the next name will be new. So the registrable name gets a row of its own.
//! `scripts/data-tools/refresh-data` has the same rule for the shipped lists, and says why three
//! names are enough.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::added_lists::GUARDING_BITS;
use super::manifest::{ListOrigin, Manifest};
use super::rows::{Coverage, NO_REGISTRABLE_DOMAIN, ParsedLists, Row};
use super::rules::{self, rule_bit};
use super::seen_days::SeenDays;
use crate::model::domain::self_and_parent_offsets;
use crate::model::verdict::Rule;

/// A registrable name becomes a row if a feed has this many names below it.
const MIN_DISPOSABLE_SUBDOMAINS: usize = 3;

/// The facts of a name whose registrable name must not become disposable because of other names.
const GOOD_BITS: u32 = GUARDING_BITS | rules::KNOWN_OR_CLEARED_BIT;

/// Makes the rows for the registrable names below which one feed of disposable names has at least
/// [`MIN_DISPOSABLE_SUBDOMAINS`] names. Leaves out a registrable name in three cases:
///
/// - The registrable name is at or below a suffix with free names, or such a suffix is below it:
///   other people own the names below it.
/// - It is below a public suffix that is protected or for special use.
/// - A list that is no feed calls it, or a name below it, good: see [`GOOD_BITS`].
pub(super) fn find_promoted_parents<'t>(
    lists: &ParsedLists<'t>,
    manifest: &Manifest,
) -> Vec<Row<'t>> {
    let is_feed_list =
        |list: u8| manifest.list_specs[usize::from(list)].list_origin == ListOrigin::Feed;
    let mut siblings: HashMap<(u8, &str), Siblings<'_, '_>> = HashMap::new();
    for row in lists.rows.iter().filter(|row| is_feed_list(row.list_number)) {
        if row.fact_bits & rules::FLAGGING_LIST_BITS != 0
            && let Some(parent) = registrable_parent(row)
        {
            let found = siblings.entry((row.list_number, parent));
            let found = found.or_insert(Siblings {
                first_row: row,
                names: HashSet::new(),
                seen_days: row.seen_days,
            });
            found.names.insert(&row.name);
            found.seen_days.merge(row.seen_days);
        }
    }
    siblings.retain(|_, found| found.names.len() >= MIN_DISPOSABLE_SUBDOMAINS);
    if siblings.is_empty() {
        return Vec::new();
    }
    let parents: HashSet<&str> = siblings.keys().map(|(_, parent)| *parent).collect();
    let excluded = find_excluded_parents(lists, &parents, is_feed_list);
    let mut promoted: Vec<Row<'t>> = siblings
        .values()
        .filter_map(|found| Some((found, registrable_parent(found.first_row)?)))
        .filter(|(_, parent)| !excluded.contains(parent))
        .map(|(found, _)| make_promoted_row(found.first_row, found.seen_days))
        .collect();
    // The map has no order, but equal inputs must give equal tables.
    promoted.sort_by(|a, b| (a.list_number, &a.name).cmp(&(b.list_number, &b.name)));
    promoted
}

/// The names of one feed below one registrable name.
struct Siblings<'r, 't> {
    first_row: &'r Row<'t>,
    names: HashSet<&'r str>,
    /// When the feed had one of the names.
    seen_days: SeenDays,
}

/// The registrable name above the row's name; `None` if there is none.
fn registrable_parent<'r>(row: &'r Row<'_>) -> Option<&'r str> {
    match row.registrable_start {
        0 | NO_REGISTRABLE_DOMAIN => None,
        start => Some(&row.name[usize::from(start)..]),
    }
}

/// Finds the names of `parents` that must not become rows.
fn find_excluded_parents<'p>(
    lists: &ParsedLists<'_>,
    parents: &HashSet<&'p str>,
    is_feed_list: impl Fn(u8) -> bool,
) -> HashSet<&'p str> {
    let mut excluded = HashSet::new();
    let mut excluding_suffixes: HashSet<&str> = HashSet::new();
    for row in lists.rows.iter().filter(|row| !is_feed_list(row.list_number)) {
        let covers_names_below = row.coverage != Coverage::NameOnly
            && row.fact_bits & rule_bit(Rule::FreeSubdomain) != 0
            || row.coverage == Coverage::AcrossSuffixes && row.fact_bits & GOOD_BITS != 0;
        if covers_names_below {
            excluding_suffixes.insert(&row.name);
        }
        let registrable = registrable_parent(row).unwrap_or(&row.name);
        if row.fact_bits & (GOOD_BITS | rule_bit(Rule::FreeSubdomain)) != 0
            && let Some(parent) = parents.get(registrable)
        {
            excluded.insert(*parent);
        }
    }
    excluded.extend(parents.iter().filter(|parent| {
        self_and_parent_offsets(parent).any(|start| excluding_suffixes.contains(&parent[start..]))
    }));
    excluded
}

/// Makes the row of the registrable name above this row's name. Other people may have names below
/// the registrable name, so the row has the lowest tier: it flags names, but refuses none by
/// default.
fn make_promoted_row<'t>(row: &Row<'t>, seen_days: SeenDays) -> Row<'t> {
    let start = usize::from(row.registrable_start);
    let name = match &row.name {
        Cow::Borrowed(name) => Cow::Borrowed(&name[start..]),
        Cow::Owned(name) => Cow::Owned(name[start..].to_owned()),
    };
    let fact_bits = row.fact_bits & !rules::FLAGGING_LIST_BITS | rule_bit(Rule::DisposableD);
    Row { name, registrable_start: 0, coverage: Coverage::Subdomains, fact_bits, seen_days, ..*row }
}
