//! Changes of several keys and accounts at once.

use crate::store::audit::{Change, ChangeAuthor};
use crate::store::contents::StoreContents;
use crate::store::error::StoreError;
use crate::store::new_key_plan::NewKeyPlan;
use crate::store::operations::changes::Rotation;
use crate::store::rows::{AccountRow, KeyRow, RequestRecord};

/// How both kinds of store change several keys and accounts at once.
pub trait RowsBackend {
    /// See [`StoreChanges::add_keys`](super::changes::StoreChanges::add_keys).
    /// `change` is what the audit records.
    fn add_keys(
        &mut self,
        author: &ChangeAuthor,
        keys_with_plans: &[(KeyRow, Option<NewKeyPlan>)],
        request: Option<&RequestRecord>,
        change: &Change,
    ) -> Result<(), StoreError>;

    /// See [`StoreChanges::rotate_key`](super::changes::StoreChanges::rotate_key).
    fn rotate_key(
        &mut self,
        author: &ChangeAuthor,
        rotation: &Rotation<'_>,
        request: Option<&RequestRecord>,
    ) -> Result<(), StoreError>;

    /// See [`StoreChanges::undo_rotation`](super::changes::StoreChanges::undo_rotation).
    fn undo_rotation(
        &mut self,
        author: &ChangeAuthor,
        rotation: &Rotation<'_>,
        former_expires_at: Option<i64>,
    ) -> Result<(), StoreError>;

    /// See [`StoreChanges::restore_rows`](super::changes::StoreChanges::restore_rows).
    fn restore_rows(
        &mut self,
        author: &ChangeAuthor,
        keys: &[KeyRow],
        accounts: &[AccountRow],
    ) -> Result<usize, StoreError>;

    /// See [`StoreChanges::fill_empty_store`](super::changes::StoreChanges::fill_empty_store).
    fn fill_empty_store(
        &mut self,
        author: &ChangeAuthor,
        contents: &StoreContents,
    ) -> Result<(), StoreError>;
}
