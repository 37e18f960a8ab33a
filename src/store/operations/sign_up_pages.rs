//! Reads the sign-ups of a store, page by page.

use std::collections::HashSet;

use super::open::Store;
use crate::model::sign_up::{Pseudonym, SignUpEntry};
use crate::store::error::StoreError;
use crate::store::sign_ups::{
    SIGN_UPS_PER_PAGE, SignUpCursor, SignUpsOfInboxes, read_sign_ups_after,
};

impl Store {
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
