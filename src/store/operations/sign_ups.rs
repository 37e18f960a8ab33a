//! Sign-ups.

use crate::model::sign_up::SignUp;
use crate::store::audit::ChangeAuthor;
use crate::store::error::StoreError;
use crate::store::sign_ups::{NumberedEntry, SignUpCursor, SignUpDeletion};

/// What both kinds of store do with sign-ups.
pub trait SignUpBackend {
    /// Appends sign-ups in pages. The store keeps the [`MAX_SIGN_UPS`](crate::store::MAX_SIGN_UPS)
    /// entries that were written last. If the time that this store was told is settled, each call
    /// deletes some entries as well: those older than 30 days, and those that were written while a
    /// clock was ahead. A call without sign-ups only deletes, and is cheap enough to be made each
    /// second. The entry that was written last always stays.
    ///
    /// The caller has read the entries up to the cursor `read_up_to`, and leaves out what they
    /// delete. The store leaves out what later deletions cover, see
    /// `InboxDeletion::covers_unwritten`. So a write that arrives late brings no deleted sign-up
    /// back.
    fn append_sign_ups(
        &mut self,
        sign_ups: &[SignUp],
        read_up_to: SignUpCursor,
    ) -> Result<(), StoreError>;

    /// Returns up to `count` entries from the number `from` on, in the order of their numbers.
    fn read_sign_up_entries(
        &mut self,
        from: u64,
        count: usize,
    ) -> Result<Vec<NumberedEntry>, StoreError>;

    /// See [`StoreEditor::delete_sign_ups`](super::changes::StoreEditor::delete_sign_ups).
    fn delete_sign_ups(
        &mut self,
        author: &ChangeAuthor,
        deletion: &SignUpDeletion<'_>,
    ) -> Result<usize, StoreError>;
}
