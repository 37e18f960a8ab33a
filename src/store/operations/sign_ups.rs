//! Sign-ups.

use crate::model::sign_up::SignUp;
use crate::store::error::StoreError;
use crate::store::sign_ups::SignUpCursor;

/// What both kinds of store do with sign-ups.
pub trait SignUpBackend {
    /// Appends sign-ups in pages. The store keeps the [`MAX_SIGN_UPS`](crate::store::MAX_SIGN_UPS)
    /// that were written last. If the time of this connection is settled, each call also deletes
    /// some of those older than 30 days. Without sign-ups, a call only deletes; it is cheap enough
    /// to be made each second. The sign-up that was written last stays.
    fn append_sign_ups(&mut self, sign_ups: &[SignUp]) -> Result<(), StoreError>;

    /// Returns a page of the sign-ups that were written after the cursor, in the order of writing,
    /// and the cursor after this page. To read all of them, begin with the default cursor, and
    /// repeat the call with the returned cursor until the cursor stays the same. If the sign-up of
    /// the cursor is not the one that the store has, the store was emptied, replaced or restored
    /// from a backup, and the pages start from the oldest sign-up. So a caller may get a sign-up
    /// twice.
    fn read_sign_ups_page(
        &mut self,
        after: SignUpCursor,
    ) -> Result<(Vec<SignUp>, SignUpCursor), StoreError>;
}
