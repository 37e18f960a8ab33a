//! Sign-ups.

use crate::model::sign_up::SignUp;
use crate::store::audit::ChangeAuthor;
use crate::store::error::StoreError;
use crate::store::sign_ups::{NumberedEntry, SignUpDeletion};

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
