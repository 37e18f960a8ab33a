//! Sign-ups.

use std::collections::HashSet;

use super::open::Store;
use crate::model::sign_up::{Pseudonym, SignUp, SignUpEntry};
use crate::store::audit::ChangeAuthor;
use crate::store::error::StoreError;
use crate::store::sign_ups::{
    FoundSignUps, NumberedEntry, SIGN_UPS_PER_PAGE, SignUpCursor, SignUpDeletion,
    read_sign_ups_after,
};

/// What both kinds of store do with sign-ups.
pub trait SignUpBackend {
    /// Appends sign-ups in pages. The store keeps the [`MAX_SIGN_UPS`](crate::store::MAX_SIGN_UPS)
    /// entries that were written last. If the time of this connection is settled, each call also
    /// deletes some of those older than 30 days. Without sign-ups, a call only deletes; it is cheap
    /// enough to be made each second. The entry that was written last stays.
    fn append_sign_ups(&mut self, sign_ups: &[SignUp]) -> Result<(), StoreError>;

    /// Returns the entries from a number on, in the order of their numbers: at most so many.
    fn read_sign_up_entries(
        &mut self,
        from: u64,
        count: usize,
    ) -> Result<Vec<NumberedEntry>, StoreError>;

    /// See [`StoreChanges::delete_sign_ups`](super::changes::StoreChanges::delete_sign_ups).
    fn delete_sign_ups(
        &mut self,
        author: &ChangeAuthor,
        deletion: &SignUpDeletion<'_>,
    ) -> Result<usize, StoreError>;
}

impl Store {
    /// Returns a page of the entries that were written after the cursor, in the order of writing,
    /// and the cursor after this page. To read all of them, begin with the default cursor, and
    /// repeat the call with the returned cursor until the cursor stays the same. If the entry of
    /// the cursor is not the one that the store has, the store was emptied, replaced or restored
    /// from a backup, and the pages start from the oldest entry. So a caller may get an entry
    /// twice.
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
    ) -> Result<FoundSignUps, StoreError> {
        let mut found = FoundSignUps::default();
        loop {
            let page = self.read_sign_up_entries(found.read_up_to + 1, SIGN_UPS_PER_PAGE)?;
            if page.is_empty() {
                return Ok(found);
            }
            found.add_page(&page, inboxes);
        }
    }
}
