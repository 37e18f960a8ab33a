//! Whether a table may take the place of the one that serves.
//!
//! Overrides and feeds that are added to the lists have guards of their own and count for none here.

use super::answer::{Found, Row};
use super::entry::NONE;
use super::fault::{Fault, TableError};
use super::layout::parts::ListInfo;
use super::table_data::Table;
use crate::model::domain::Domain;

/// A list of this many rows or more is watched for shrinking: shorter ones are edited by hand.
pub const LONG_LIST: u32 = 20;

impl Table {
    /// Whether this table may take the place of the one that serves. It may not flag a name that
    /// the other protects, and not differ from it in more rows than the manifest allows.
    pub fn accept(&self, previous: &Table) -> Result<(), TableError> {
        let mut faults = TableError::default();
        let at = || format!("table {}", self.version);
        if self.rows() == 0 {
            faults.push(Fault::expected(at(), "rows", "an empty table"));
        }
        let mut went = 0;
        for row in previous.names() {
            let now = self.row_of(row.name);
            let is_in_lists = now.is_some_and(|now| now.own.is_in_lists());
            went += usize::from(row.own.is_in_lists() && !is_in_lists);
            let was_protected = row.own.is_protected_by_name();
            let is_flagged = |row: &Row| row.own.verdict.reason.is_flagged();
            if was_protected
                && self
                    .answer_to(row.name)
                    .is_some_and(|found| found.is_flagged_without_added_override())
                && !now.is_some_and(|now| is_flagged(&now) && self.may_flag(row.name))
            {
                faults.push(Fault::FlagsProtected { at: at(), name: row.name.to_owned() });
            }
        }
        for (before, now) in self.shrunken_lists(previous) {
            let went = before.rows.saturating_sub(now) as usize;
            let at = format!("{}: {}", at(), before.file);
            let (most, before) = (self.may_go(before.rows as usize), before.rows as usize);
            faults.push(Fault::Changed { at, most, before, came: 0, went });
        }
        let before = previous.rows_in_lists();
        let came = (self.rows_in_lists() + went).saturating_sub(before);
        let most = self.may_go(before);
        if came + went > most {
            faults.push(Fault::Changed { at: at(), most, before, came, went });
        }
        faults.into_result()
    }

    fn may_go(&self, before: usize) -> usize {
        (before as f64 * self.parts.meta.max_changed_share) as usize
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
            .filter(|before| before.rows >= LONG_LIST && !before.is_added)
            .map(|before| (before, left(before)))
            .filter(|(before, now)| {
                before.rows.saturating_sub(*now) as usize > self.may_go(before.rows as usize)
            })
            .collect()
    }

    /// What a name gets, which may be a public suffix of one label.
    fn answer_to(&self, name: &str) -> Option<Found<'_>> {
        match Domain::parse(name) {
            // A name in no list is not flagged by one, so the moment does not matter.
            Ok(domain) => Some(self.lookup(&domain, i64::MAX)),
            Err(_) => {
                self.probe(name).filter(|e| e.own != NONE).map(|e| self.found(e.own, Some(0)))
            }
        }
    }

    fn may_flag(&self, name: &str) -> bool {
        self.parts.meta.flag_protected.iter().any(|allowed| allowed == name)
    }

    /// How many names have a row in the lists of the manifest: overrides and feeds that are added
    /// to them have guards of their own.
    fn rows_in_lists(&self) -> usize {
        let rows = self.parts.entries.iter().zip(&self.uses);
        let rows = rows.filter(|(entry, _)| entry.own != NONE);
        rows.filter(|(entry, _)| self.found(entry.own, None).is_in_lists())
            .map(|(_, uses)| *uses as usize)
            .sum()
    }
}
