//! Reads that take several pages: everything that a backup or a copy has, and the sign-ups.

use std::collections::HashSet;

use super::open::Store;
use crate::model::month::Month;
use crate::model::sign_up::{Pseudonym, SignUp, SignUpEntry, apply_deletions};
use crate::store::audit::AuditRecord;
use crate::store::contents::{SnapshotToCopy, StoreContents};
use crate::store::error::{StoreError, unreadable_row_error};
use crate::store::rows::{KEPT_PAST_MONTHS, KeyRow};
use crate::store::sign_ups::{
    NumberedEntry, SIGN_UPS_PER_PAGE, SignUpCursor, SignUpsOfInboxes, read_sign_ups_after,
};

impl Store {
    /// Reads what [`fill_empty_store`](super::FillBackend::fill_empty_store) writes, while others
    /// may change the store. Keys, accounts, overrides and the audit are of one moment: no record
    /// of the audit is of a later change than the rows show. The other contents are of the same
    /// moment with SQLite; on a server, they may be newer. Of damaged keys, accounts, totals and
    /// overrides, only the names are read. `None` if the store is not initialized, and has neither
    /// an inbox secret nor sign-ups.
    ///
    /// # Errors
    /// If the store fails, or if it can't read a row of usage by day or of the top list, a quota
    /// event, a sign-up, the inbox secret, or, on a server, the state of a source.
    pub fn read_contents(&mut self) -> Result<Option<StoreContents>, StoreError> {
        self.begin_snapshot()?;
        let contents = self.read_contents_of_snapshot();
        self.end_snapshot();
        contents
    }

    fn read_contents_of_snapshot(&mut self) -> Result<Option<StoreContents>, StoreError> {
        let Some(snapshot) = self.read_snapshot_to_copy()? else { return Ok(None) };
        let SnapshotToCopy { mut ring, last_audit_record_id, overrides, source_states } = snapshot;
        ring.keys.sort_unstable_by(KeyRow::compare_age);
        let last_audit_record_id = last_audit_record_id.as_deref().and_then(AuditRecord::parse_id);
        let audit = last_audit_record_id.map(|id| self.read_audit_up_to(id)).transpose()?;
        // The month is read from the store, because a wrong clock of this machine would move the
        // other store to a wrong month.
        let mut usage_month = self.latest_month()?.unwrap_or(Month::FIRST);
        if usage_month == Month::FIRST {
            // No node has accepted the server's clock yet. Such nodes count in the month that the
            // clocks of their machines show, and don't tell the store that month.
            usage_month = self.latest_month_with_totals()?.unwrap_or(usage_month);
        }
        let usage = self.read_usage(usage_month, None)?;
        let mut daily_usage = Vec::new();
        for age in (0..=KEPT_PAST_MONTHS).rev() {
            let number = usage_month.number().checked_sub(age);
            let Some(month) = number.and_then(Month::from_number) else { continue };
            let rows = self.daily_usage_to_copy(month)?;
            daily_usage.extend((!rows.is_empty()).then_some((month, rows)));
        }
        let top_rows = self.top_rows_to_copy()?;
        let quota_events = self.quota_events_to_copy(usage_month)?;
        Ok(Some(StoreContents {
            ring,
            usage_month,
            usage,
            top_rows,
            quota_events,
            overrides: overrides.rows,
            damaged_overrides: overrides.damaged,
            audit: audit.unwrap_or_default(),
            source_states,
            daily_usage,
            inbox_secret: self.read_inbox_secret()?,
            sign_ups: self.read_all_sign_ups()?,
        }))
    }

    /// Reads the sign-ups that no deletion covers. The deletions stay behind: they are for running
    /// nodes, and no node runs on the store that is filled.
    fn read_all_sign_ups(&mut self) -> Result<Vec<SignUp>, StoreError> {
        let (mut sign_ups, mut next_number) = (Vec::<SignUp>::new(), 0);
        loop {
            let page = self.read_sign_up_entries(next_number, SIGN_UPS_PER_PAGE)?;
            let Some(last) = page.last() else { return Ok(sign_ups) };
            next_number = last.number.saturating_add(1);
            let read = |it: &NumberedEntry| {
                it.entry.ok_or_else(|| unreadable_row_error(&format!("sign-up {}", it.number)))
            };
            let entries = page.iter().map(read).collect::<Result<Vec<_>, _>>()?;
            let (later, deletions) = apply_deletions(&entries);
            if !deletions.is_empty() {
                let deleted: HashSet<_> = deletions.iter().map(|it| it.inbox).collect();
                sign_ups.retain(|it| !deleted.contains(&it.inbox));
            }
            sign_ups.extend(later);
        }
    }

    /// Returns a page of the entries that were written after the cursor, in the order of writing,
    /// and the cursor after this page. To read all entries, begin with the default cursor, and
    /// repeat the call with the returned cursor until the cursor stays the same. If the store has
    /// another entry than the cursor at the cursor's number, or no entry so late, the store was
    /// emptied, replaced or restored from a backup. Then the pages start from the oldest entry, and
    /// the caller may get an entry twice.
    pub fn read_sign_ups_page(
        &mut self,
        after: SignUpCursor,
    ) -> Result<(Vec<SignUpEntry>, SignUpCursor), StoreError> {
        read_sign_ups_after(after, |from, count| self.read_sign_up_entries(from, count))
    }

    /// Looks for the sign-ups of some inboxes, in all that the store has.
    pub fn find_sign_ups(
        &mut self,
        inboxes: &HashSet<Pseudonym>,
    ) -> Result<SignUpsOfInboxes, StoreError> {
        let mut found = SignUpsOfInboxes::default();
        loop {
            let page = self.read_sign_up_entries(found.read_up_to + 1, SIGN_UPS_PER_PAGE)?;
            if page.is_empty() {
                return Ok(found);
            }
            found.add_page(&page, inboxes);
        }
    }
}
