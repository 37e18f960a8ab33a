//! Changes of several keys and accounts at once.

use crate::store::audit::{Change, ChangeAuthor};
use crate::store::contents::StoreContents;
use crate::store::error::StoreError;
use crate::store::new_key_plan::NewKeyPlan;
use crate::store::rows::{AccountRow, KeyRow, RepeatableRequestRow, Rotation};

/// How both kinds of store change several keys and accounts at once.
pub trait BulkChangeBackend {
    /// As in [`StoreEditor`](super::changes::StoreEditor).
    /// `change` is what the audit records.
    fn add_keys(
        &mut self,
        author: &ChangeAuthor,
        keys_with_plans: &[(KeyRow, Option<NewKeyPlan>)],
        request: Option<&RepeatableRequestRow>,
        change: &Change,
    ) -> Result<(), StoreError>;

    /// As in [`StoreEditor`](super::changes::StoreEditor).
    fn rotate_key(
        &mut self,
        author: &ChangeAuthor,
        rotation: &Rotation<'_>,
        request: Option<&RepeatableRequestRow>,
    ) -> Result<(), StoreError>;

    /// As in [`StoreEditor`](super::changes::StoreEditor).
    fn undo_rotation(
        &mut self,
        author: &ChangeAuthor,
        rotation: &Rotation<'_>,
        former_expires_at: Option<i64>,
    ) -> Result<(), StoreError>;

    /// As in [`StoreEditor`](super::changes::StoreEditor).
    fn restore_rows(
        &mut self,
        author: &ChangeAuthor,
        keys: &[KeyRow],
        accounts: &[AccountRow],
    ) -> Result<usize, StoreError>;

    /// As in [`StoreEditor`](super::changes::StoreEditor).
    fn fill_empty_store(
        &mut self,
        author: &ChangeAuthor,
        contents: &StoreContents,
    ) -> Result<(), StoreError>;
}
