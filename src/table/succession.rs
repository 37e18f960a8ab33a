//! Checks whether a table may replace the serving table.
//!
//! Rows of the operator's overrides do not count as changed rows, because the operator wrote them
//! on purpose. Rows of feeds do not count either, because `feed` checks how much a feed changes.
//! But if a row of a feed would flag a protected name, this module reports a fault.

use super::answer::{TableAnswer, TableRow};
use super::entry::NO_ANSWER;
use super::fault::{TableFault, TableFaults};
use super::layout::parts::ListInfo;
use super::table_data::Table;
use crate::model::domain::Domain;

/// A list with at least this many rows is checked for too many changes. People edit shorter lists
/// by hand.
pub const MIN_ROWS_FOR_CHANGE_CHECK: u32 = 20;

impl Table {
    /// Checks whether this table may replace `previous`:
    ///
    /// - This table must have rows.
    /// - It must not flag a name that a list of the manifest of `previous` protects. There are two
    ///   exceptions: an override of the operator decides about the name, or a row flags exactly
    ///   this name and `guard.allow_flagging` allows that.
    /// - `guard.max_changed_share` limits two numbers: how many rows the table gains and loses
    ///   together, and how many rows each list with [`MIN_ROWS_FOR_CHANGE_CHECK`] rows loses.
    pub fn check_succession(&self, previous: &Table) -> Result<(), TableFaults> {
        let mut faults = TableFaults::default();
        let at = || format!("table {}", self.version);
        if self.row_count() == 0 {
            faults.push(TableFault::expected(at(), "rows", "an empty table"));
        }
        let mut removed = 0;
        for row in previous.iter_rows() {
            let new_row = self.find_row(row.name);
            let is_in_manifest_lists =
                new_row.is_some_and(|now| now.own_answer.is_in_manifest_lists());
            removed += usize::from(row.own_answer.is_in_manifest_lists() && !is_in_manifest_lists);
            let was_protected = row.own_answer.is_protected_in_manifest_lists();
            let is_unsafe = |row: &TableRow| !row.own_answer.verdict.reason.is_safe();
            if was_protected
                && self
                    .lookup_name_or_single_label(row.name)
                    .is_some_and(|found| found.is_unsafe_but_not_by_operator())
                && !new_row.is_some_and(|now| is_unsafe(&now) && self.is_flagging_allowed(row.name))
            {
                faults.push(TableFault::FlagsProtected { at: at(), name: row.name.to_owned() });
            }
        }
        for (before, rows_left) in self.find_shrunken_lists(previous) {
            let removed = before.rows.saturating_sub(rows_left) as usize;
            let at = format!("{}: {}", at(), before.file);
            let (max, before) = (self.max_changed_rows(before.rows as usize), before.rows as usize);
            faults.push(TableFault::TooManyChanges { at, max, before, added: 0, removed });
        }
        let before = previous.manifest_row_count();
        let added = (self.manifest_row_count() + removed).saturating_sub(before);
        let max = self.max_changed_rows(before);
        if added + removed > max {
            faults.push(TableFault::TooManyChanges { at: at(), max, before, added, removed });
        }
        faults.into_result()
    }

    fn max_changed_rows(&self, row_count: usize) -> usize {
        (row_count as f64 * self.decoded_table.meta.max_changed_share) as usize
    }

    /// Finds the lists that lost more rows than the manifest allows, each with the number of rows
    /// left. A full disk or an incomplete copy can empty or truncate a list.
    fn find_shrunken_lists<'l>(&'l self, previous: &'l Table) -> Vec<(&'l ListInfo, u32)> {
        // A list that the manifest does not name any more counts as empty, because a truncated
        // manifest names fewer lists.
        let rows_left = |before: &ListInfo| {
            let now = self.lists().iter().find(|now| now.file == before.file);
            now.map_or(0, |now| now.rows)
        };
        previous
            .lists()
            .iter()
            .filter(|before| before.rows >= MIN_ROWS_FOR_CHANGE_CHECK && !before.is_added)
            .map(|before| (before, rows_left(before)))
            .filter(|(before, now)| {
                before.rows.saturating_sub(*now) as usize
                    > self.max_changed_rows(before.rows as usize)
            })
            .collect()
    }

    /// The answer for a name, which may have a single label.
    fn lookup_name_or_single_label(&self, name: &str) -> Option<TableAnswer<'_>> {
        match Domain::parse(name) {
            // At the time `i64::MAX`, the list of TLDs is too old to flag a name. Lists ignore the
            // time.
            Ok(domain) => Some(self.lookup(&domain, i64::MAX)),
            Err(_) => self
                .find_entry(name)
                .filter(|e| e.own_answer != NO_ANSWER)
                .map(|e| self.make_answer(e.own_answer, Some(0))),
        }
    }

    fn is_flagging_allowed(&self, name: &str) -> bool {
        self.decoded_table.meta.allow_flagging.iter().any(|allowed| allowed == name)
    }

    /// The number of names with a row in a list of the manifest.
    fn manifest_row_count(&self) -> usize {
        let rows = self.decoded_table.entries.iter().zip(&self.name_count_by_entry);
        let rows = rows.filter(|(entry, _)| entry.own_answer != NO_ANSWER);
        rows.filter(|(entry, _)| self.make_answer(entry.own_answer, None).is_in_manifest_lists())
            .map(|(_, row_count)| *row_count as usize)
            .sum()
    }
}
