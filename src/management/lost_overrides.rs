//! Overrides that a store had acknowledged and lost: in a failover, or because a backup was
//! restored.
//!
//! Compares the rows that this process knew with the rows that the store has after the loss, and
//! names what the store lost until an operator sets or clears it again. What the store has is in
//! force meanwhile.

use std::collections::{BTreeMap, HashSet};

use crate::store::{StoredOverride, keep_first_losses};
use crate::table::{OverrideAction, OverrideListRow, parse_override_rows, render_override_list};

/// The names whose overrides the store lost, or has again although they were cleared.
#[derive(Clone, Debug, Default)]
pub(super) struct LostOverrides {
    by_domain: BTreeMap<String, LostDomain>,
}

/// The overrides of a name that the store lost.
#[derive(Clone, Debug)]
struct LostDomain {
    /// The rows that the store lost. Empty if the store has only rows again that were cleared.
    lost: Vec<OverrideListRow>,
    /// All rows of the name that the store had when the loss was found.
    found: Vec<StoredOverride>,
}

/// When the rows of a process and of its store are compared, in Unix seconds.
#[derive(Clone, Copy, Debug)]
pub struct ComparisonTimes {
    /// When the store last had the version that this process knows.
    pub confirmed_at: i64,
    /// The present time.
    pub now: i64,
}

impl LostOverrides {
    /// Compares the rows that this process knew with those of a store that lost changes. `known` is
    /// the text of a file of overrides. Rows that have ended don't count. A name counts as set
    /// again if the store has a row of it that is newer than the last version that was confirmed.
    pub(super) fn add_differences(
        &mut self,
        known: Option<&str>,
        stored: &[StoredOverride],
        times: ComparisonTimes,
    ) {
        let known: HashSet<&str> = known.unwrap_or_default().lines().skip(1).collect();
        let found: HashSet<&str> = stored.iter().map(|row| row.text.as_str()).collect();
        let in_force = |rows: Vec<&str>| {
            let rows = parse_override_rows("overrides", &render_override_list(rows));
            let rows = rows.unwrap_or_default().into_iter();
            rows.filter(|row| !row.has_ended(times.now)).collect::<Vec<_>>()
        };
        let mut by_domain: BTreeMap<String, Vec<OverrideListRow>> = BTreeMap::new();
        for row in in_force(known.difference(&found).copied().collect()) {
            by_domain.entry(row.domain.clone()).or_default().push(row);
        }
        for row in in_force(found.difference(&known).copied().collect()) {
            by_domain.entry(row.domain).or_default();
        }
        let mut rows_now = rows_by_domain(stored, |domain| by_domain.contains_key(domain));
        for (domain, mut lost) in by_domain {
            let found = rows_now.remove(domain.as_str()).unwrap_or_default();
            if found.iter().all(|row| row.created_at <= times.confirmed_at) {
                // A later override of the names below would replace the exact one.
                lost.sort_by_key(|row| row.is_exact);
                self.by_domain.entry(domain).or_insert(LostDomain { lost, found });
            }
        }
    }

    /// Forgets the names whose rows have changed since the loss was found.
    pub(super) fn forget_names_set_again(&mut self, stored: &[StoredOverride]) {
        let mut rows_now = rows_by_domain(stored, |domain| self.by_domain.contains_key(domain));
        self.by_domain
            .retain(|domain, lost| lost.found == rows_now.remove(domain).unwrap_or_default());
    }

    /// One line for each loss that is not repaired yet, with the command that repairs it. Lists
    /// only the first losses.
    pub(super) fn describe_losses(&self) -> Vec<String> {
        let lines = self.by_domain.iter().map(|(domain, lost)| lost.describe_loss(domain));
        keep_first_losses(lines).collect()
    }
}

impl LostDomain {
    fn describe_loss(&self, domain: &str) -> String {
        if self.lost.is_empty() {
            return format!(
                "override of {domain}: the store lost that it was cleared or replaced, and it is \
                 in force again; run `riskgate table clear {domain}`, or set the right one"
            );
        }
        let commands: Vec<String> = self.lost.iter().map(format_repair).collect();
        let state = if self.found.is_empty() { "it is" } else { "the one before it is" };
        let force = if self.found.is_empty() { "no longer in force" } else { "in force again" };
        format!(
            "override of {domain}: the store lost it, and {state} {force}; {}, or set the right \
             one",
            commands.join(" and ")
        )
    }
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
