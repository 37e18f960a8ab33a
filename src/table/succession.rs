//! Whether a table may take the place of the one that serves.
//!
//! Overrides and feeds that are added to the lists have guards of their own and count for none here.

use super::answer::{ListRow, Lookup};
use super::entry::NO_ANSWER;
use super::fault::{TableError, TableFault};
use super::layout::parts::ListInfo;
use super::table_data::Table;
use crate::model::domain::Domain;

/// A list of this many rows or more is watched for shrinking: shorter ones are edited by hand.
pub const MIN_ROWS_TO_GUARD: u32 = 20;

impl Table {
    /// Whether this table may take the place of the one that serves. It may not flag a name that
    /// the other protects, and not differ from it in more rows than the manifest allows.
    pub fn check_succession(&self, previous: &Table) -> Result<(), TableError> {
        let mut faults = TableError::default();
        let at = || format!("table {}", self.version);
        if self.row_count() == 0 {
            faults.push(TableFault::expected(at(), "rows", "an empty table"));
        }
        let mut went = 0;
        for row in previous.rows() {
            let now = self.find_row(row.name);
            let is_in_manifest_lists = now.is_some_and(|now| now.own.is_in_manifest_lists());
            went += usize::from(row.own.is_in_manifest_lists() && !is_in_manifest_lists);
            let was_protected = row.own.is_protected_by_name();
            let is_flagged = |row: &ListRow| row.own.verdict.reason.is_flagged();
            if was_protected
                && self
                    .lookup_any_name(row.name)
                    .is_some_and(|found| found.is_flagged_without_added_override())
                && !now.is_some_and(|now| is_flagged(&now) && self.is_flagging_allowed(row.name))
            {
                faults.push(TableFault::FlagsProtected { at: at(), name: row.name.to_owned() });
            }
        }
        for (before, now) in self.shrunken_lists(previous) {
            let went = before.rows.saturating_sub(now) as usize;
            let at = format!("{}: {}", at(), before.file);
            let (most, before) =
                (self.max_changed_rows(before.rows as usize), before.rows as usize);
            faults.push(TableFault::TooManyChanges {
                at,
                max: most,
                before,
                added: 0,
                removed: went,
            });
        }
        let before = previous.manifest_row_count();
        let came = (self.manifest_row_count() + went).saturating_sub(before);
        let most = self.max_changed_rows(before);
        if came + went > most {
            faults.push(TableFault::TooManyChanges {
                at: at(),
                max: most,
                before,
                added: came,
                removed: went,
            });
        }
        faults.into_result()
    }

    fn max_changed_rows(&self, before: usize) -> usize {
        (before as f64 * self.decoded.meta.max_changed_share) as usize
    }

    /// Lists that lost more of their rows than the manifest allows, with what is left: emptied or
    /// cut by a full disk or half a copy.
    fn shrunken_lists<'l>(&'l self, previous: &'l Table) -> Vec<(&'l ListInfo, u32)> {
        // One that is not named any more has nothing left: half a manifest names fewer.
        let left = |before: &ListInfo| {
            let now = self.lists().iter().find(|now| now.file == before.file);
            now.map_or(0, |now| now.rows)
        };
        previous
            .lists()
            .iter()
            .filter(|before| before.rows >= MIN_ROWS_TO_GUARD && !before.is_added)
            .map(|before| (before, left(before)))
            .filter(|(before, now)| {
                before.rows.saturating_sub(*now) as usize
                    > self.max_changed_rows(before.rows as usize)
            })
            .collect()
    }

    /// What a name gets, which may be a public suffix of one label.
    fn lookup_any_name(&self, name: &str) -> Option<Lookup<'_>> {
        match Domain::parse(name) {
            // A name in no list is not flagged by one, so the moment does not matter.
            Ok(domain) => Some(self.lookup(&domain, i64::MAX)),
            Err(_) => self
                .probe(name)
                .filter(|e| e.own != NO_ANSWER)
                .map(|e| self.make_lookup(e.own, Some(0))),
        }
    }

    fn is_flagging_allowed(&self, name: &str) -> bool {
        self.decoded.meta.allow_flagging.iter().any(|allowed| allowed == name)
    }

    /// How many names have a row in the lists of the manifest: overrides and feeds that are added
    /// to them have guards of their own.
    fn manifest_row_count(&self) -> usize {
        let rows = self.decoded.entries.iter().zip(&self.row_counts);
        let rows = rows.filter(|(entry, _)| entry.own != NO_ANSWER);
        rows.filter(|(entry, _)| self.make_lookup(entry.own, None).is_in_manifest_lists())
            .map(|(_, uses)| *uses as usize)
            .sum()
    }
}
