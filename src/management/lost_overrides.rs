//! Overrides that a store had acknowledged and lost: in a failover, or because a backup was
//! restored.
//!
//! Compares the rows that this process knew with the rows that the store has after the loss, and
//! names what the store lost until an operator sets or clears it again, or the process ends. What
//! the store has is in force meanwhile.

use std::collections::{BTreeMap, HashSet};

use super::override_file::OverrideFile;
use crate::store::{StoredOverride, keep_first_losses};
use crate::table::{OverrideAction, OverrideListRow, TableInputs};

/// An override that was set up to this many seconds before the last confirmation may have been set
/// after the loss: the clocks of two machines differ.
const CLOCK_TOLERANCE_SECONDS: i64 = 5;

/// The names whose overrides the store lost, or has again although they were cleared.
#[derive(Clone, Debug, Default)]
pub(super) struct LostOverrides {
    by_domain: BTreeMap<String, LostDomain>,
}

/// The overrides of a name of which the store lost changes.
#[derive(Clone, Debug, Default)]
struct LostDomain {
    /// The rows that this process knew, and that the store lost.
    lost: Vec<OverrideListRow>,
    /// The rows that the store had, and that this process did not know: they were cleared or
    /// replaced, or set after the loss.
    regained: Vec<OverrideListRow>,
    /// Whether one of the regained rows may have been set after the loss.
    may_be_set_again: bool,
    /// The rows that this process knew, and that the store still had.
    kept: Vec<OverrideListRow>,
    /// All rows of the name that the store had when the loss was found.
    found: Vec<StoredOverride>,
    /// The rows of the file of `table.overrides` that decide the name. Some may have ended.
    rows_of_file: Vec<OverrideListRow>,
}

/// When the rows of a process and of its store are compared, in Unix seconds.
#[derive(Clone, Copy, Debug)]
pub struct ComparisonTimes {
    /// When the store last had the version that this process knows.
    pub confirmed_at: i64,
    /// The present time.
    pub now: i64,
}

/// How each line of [`LostOverrides::describe_losses`] that names an override begins.
const LOSS_BEGINNING: &str = "override of ";

/// Returns true if a problem of the overrides begins with one that the store lost.
pub fn tells_lost_override(problem: &str) -> bool {
    problem.starts_with(LOSS_BEGINNING)
}

impl LostOverrides {
    /// Compares the rows that this process knew with those of a store that lost changes. `known` is
    /// the text of a file of overrides. Rows that have ended, or that no table can read, don't
    /// count. A name counts as set again if the store has a row of it that is newer than the last
    /// version that was confirmed.
    pub(super) fn add_differences(
        &mut self,
        known: Option<&str>,
        stored: &[StoredOverride],
        times: ComparisonTimes,
    ) {
        let known: HashSet<&str> = known.unwrap_or_default().lines().skip(1).collect();
        let found: HashSet<&str> = stored.iter().map(|row| row.text.as_str()).collect();
        let is_in_force = |row: &OverrideListRow| !row.has_ended(times.now);
        let mut by_domain: BTreeMap<String, LostDomain> = BTreeMap::new();
        let lost_texts = known.difference(&found);
        let lost_rows = lost_texts.filter_map(|text| OverrideListRow::parse(text).ok());
        for row in lost_rows.filter(is_in_force) {
            by_domain.entry(row.domain.clone()).or_default().lost.push(row);
        }
        let new_rows = stored.iter().filter(|row| !known.contains(row.text.as_str()));
        let may_be_new_at = times.confirmed_at.saturating_sub(CLOCK_TOLERANCE_SECONDS);
        for stored_row in new_rows {
            if let Some(row) = parse_stored_row(stored_row).filter(is_in_force) {
                let lost = by_domain.entry(row.domain.clone()).or_default();
                lost.may_be_set_again |= stored_row.created_at >= may_be_new_at;
                lost.regained.push(row);
            }
        }
        let mut rows_now = rows_by_domain(stored, |domain| by_domain.contains_key(domain));
        for (domain, mut lost) in by_domain {
            lost.found = rows_now.remove(domain.as_str()).unwrap_or_default();
            let kept = lost.found.iter().filter(|row| known.contains(row.text.as_str()));
            lost.kept = kept.filter_map(parse_stored_row).collect();
            if lost.found.iter().all(|row| row.created_at <= times.confirmed_at) {
                self.by_domain.entry(domain).or_insert(lost);
            }
        }
    }

    /// Forgets the names whose rows have changed since the loss was found.
    pub(super) fn forget_names_set_again(&mut self, stored: &[StoredOverride]) {
        let mut rows_now = rows_by_domain(stored, |domain| self.by_domain.contains_key(domain));
        self.by_domain
            .retain(|domain, lost| lost.found == rows_now.remove(domain).unwrap_or_default());
    }

    /// Finds out which of the names the file of `table.overrides` decides. The file wins over the
    /// store, so nothing is to be done about these names. While the file is faulty, the rows that
    /// were read before apply, as in the table.
    pub(super) fn read_override_file(&mut self, inputs: &TableInputs) {
        if self.by_domain.is_empty() {
            return;
        }
        let file = OverrideFile::read(inputs);
        if file.is_faulty() {
            return;
        }
        let mut rows = file.find_deciding_rows(self.by_domain.keys());
        for (domain, lost) in &mut self.by_domain {
            lost.rows_of_file = rows.remove(domain).unwrap_or_default();
        }
    }

    /// One line for each loss that is not repaired at `now`, in Unix seconds, with the commands
    /// that repair it. Lists only the first losses.
    pub(super) fn describe_losses(&self, now: i64) -> Vec<String> {
        let lines = self.by_domain.iter();
        keep_first_losses(lines.filter_map(|(domain, lost)| lost.describe_loss(domain, now)))
            .collect()
    }
}

impl LostDomain {
    /// `None` if no row that differs is in force at `now`, or if a row of the file of
    /// `table.overrides` decides the name.
    fn describe_loss(&self, domain: &str, now: i64) -> Option<String> {
        let [lost, regained, kept, of_file] =
            [&self.lost, &self.regained, &self.kept, &self.rows_of_file]
                .map(|rows| rows.iter().filter(|row| !row.has_ended(now)).collect::<Vec<_>>());
        if !of_file.is_empty() || lost.is_empty() && regained.is_empty() {
            return None;
        }
        let repairs = list_repairs(domain, &lost, &regained, kept).join(" and ");
        let state = match (lost.is_empty(), regained.is_empty()) {
            (_, false) if self.may_be_set_again => {
                return Some(format!(
                    "{LOSS_BEGINNING}{domain}: the store lost changes, and one that was set at about \
                     that time is in force; if it is right, set it again, else {repairs}"
                ));
            }
            (true, _) => "that it was cleared or replaced, and it is in force again",
            (false, true) => "it, and it is no longer in force",
            (false, false) => "it, and the one before it is in force again",
        };
        // Nodes see that somebody accepts a loss only by rows that differ from those they found.
        let acceptance = match self.found.is_empty() {
            true => format!(
                "; to accept the loss, set it, and run `riskgate table clear {domain}` once \
                 /readyz no longer names it"
            ),
            false => String::new(),
        };
        Some(format!(
            "{LOSS_BEGINNING}{domain}: the store lost {state}; {repairs}, or set the right \
             one{acceptance}"
        ))
    }
}

/// Says step by step what leads from the rows of the store to those that this process knew.
fn list_repairs<'r>(
    domain: &str,
    lost: &[&'r OverrideListRow],
    regained: &[&OverrideListRow],
    kept: Vec<&'r OverrideListRow>,
) -> Vec<String> {
    // An override of the names below replaces all others of the name.
    let replaces = |new: &OverrideListRow, row: &OverrideListRow| {
        new.action().is_some() && (!new.is_exact || row.is_exact)
    };
    let is_replaced = |row: &OverrideListRow| lost.iter().any(|new| replaces(new, row));
    let is_clear_needed = !regained.iter().all(|row| is_replaced(row));
    let removed = kept.into_iter().filter(|row| is_clear_needed || is_replaced(row));
    let mut rows: Vec<&OverrideListRow> = lost.iter().copied().chain(removed).collect();
    // Commands refuse a name of which the file has a row, so that row is the last.
    rows.sort_by_key(|row| (row.action().is_none(), row.is_exact));
    let clear = is_clear_needed.then(|| format!("run `riskgate table clear {domain}`"));
    clear.into_iter().chain(rows.into_iter().map(format_repair)).collect()
}

/// Says what sets a row again, apart from its note.
fn format_repair(row: &OverrideListRow) -> String {
    match row.action() {
        Some(action) => {
            let action = match action {
                OverrideAction::Allow => "allow",
                OverrideAction::Deny => "deny",
            };
            let exact = if row.is_exact { " --exact" } else { "" };
            let until = Some(&row.until).filter(|until| !until.is_empty());
            let until = until.map(|until| format!(" --until {until}")).unwrap_or_default();
            format!("run `riskgate table {action} {}{exact}{until}`", row.domain)
        }
        None => "write its row into the file of table.overrides".to_owned(),
    }
}

/// Parses a row of a store. `None` if no table can read it, or if the store has it under another
/// name or scope.
pub(super) fn parse_stored_row(row: &StoredOverride) -> Option<OverrideListRow> {
    let read = OverrideListRow::parse(&row.text).ok()?;
    (read.domain == row.domain && read.is_exact == row.is_exact).then_some(read)
}

/// The rows of the names that `is_meant` chooses.
fn rows_by_domain(
    rows: &[StoredOverride],
    is_meant: impl Fn(&str) -> bool,
) -> BTreeMap<String, Vec<StoredOverride>> {
    let mut by_domain: BTreeMap<String, Vec<StoredOverride>> = BTreeMap::new();
    for row in rows.iter().filter(|row| is_meant(&row.domain)) {
        by_domain.entry(row.domain.clone()).or_default().push(row.clone());
    }
    by_domain
}

#[cfg(test)]
mod tests;
