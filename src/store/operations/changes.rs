//! Changes of keys, accounts and overrides, deletions of sign-ups, and their records in the audit.
//!
//! Each change and its record are one atomic step, so there is no change without its record. A
//! server has two exceptions, for which it writes the record first: a deletion of sign-ups, and the
//! deletion of totals when the month is repaired.

use super::open::Store;
use crate::model::month::Month;
use crate::model::monthly_limit::MonthlyLimit;
use crate::store::audit::{
    AuditOperation, ChangeAuthor, SourceState, change_of_added_keys, change_of_revoked_declared_key,
};
use crate::store::contents::StoreContents;
use crate::store::error::StoreError;
use crate::store::new_key_plan::NewKeyPlan;
use crate::store::overrides::{OverrideTakeOver, OverrideUpdate};
use crate::store::rows::{AccountRow, KeyRow, MonthRepair, RepeatableRequestRow, Rotation};
use crate::store::sign_ups::SignUpDeletion;

/// Changes a store in the name of an author. See [`Store::edit_as`].
pub struct StoreEditor<'s> {
    store: &'s mut Store,
    author: &'s ChangeAuthor,
}

impl Store {
    /// Returns the operations that the audit records. Their records name this author.
    pub fn edit_as<'s>(&'s mut self, author: &'s ChangeAuthor) -> StoreEditor<'s> {
        StoreEditor { store: self, author }
    }
}

impl StoreEditor<'_> {
    /// Makes an empty server a store without keys: gives the server a store id and a version. Does
    /// nothing if the server is a store already, and with SQLite. A change of keys, accounts or
    /// overrides makes an empty server a store as well.
    pub fn mark_as_store(&mut self) -> Result<(), StoreError> {
        self.store.mark_as_store(self.author)
    }

    /// Adds all keys or none; without any key, as [`StoreEditor::mark_as_store`]. Creates the
    /// accounts that don't exist yet. A plan that is given with a key becomes the plan of a new
    /// account that the key file does not name. If the keys are added for a `request` that can be
    /// repeated, the store remembers the request.
    ///
    /// # Errors
    /// If the store fails, or
    /// - has the id or the digest of a key already;
    /// - has an account whose present plan is not the plan that is given with its key;
    /// - knows the request already: see [`Store::find_repeatable_request`].
    pub fn add_keys(
        &mut self,
        keys_with_plans: &[(KeyRow, Option<NewKeyPlan>)],
        request: Option<&RepeatableRequestRow>,
    ) -> Result<(), StoreError> {
        let Some(change) = change_of_added_keys(keys_with_plans) else {
            return self.mark_as_store();
        };
        self.store.add_keys(self.author, keys_with_plans, request, &change)
    }

    /// Revokes a key that only the key file has, by adding a revoked row of the key to the store: a
    /// key that is revoked in file or store counts as revoked. `declared` is the key as the file
    /// has it.
    pub fn revoke_declared_key(
        &mut self,
        declared: &KeyRow,
        revoked_at: i64,
    ) -> Result<(), StoreError> {
        let revoked = KeyRow { revoked_at: Some(revoked_at), ..declared.clone() };
        let change = change_of_revoked_declared_key(declared, &revoked);
        let keys = [(revoked, None)];
        self.store.add_keys(self.author, &keys, None, &change)
    }

    /// Lowers the expiry of a key to `expires_at`, unless the key expires earlier. Sets its
    /// revocation time to `revoked_at`, unless the key is revoked already. `None` leaves the expiry
    /// or the revocation as it is. Both are Unix seconds. Fails if the store has no key with this
    /// id.
    pub fn expire_or_revoke_key(
        &mut self,
        id: &str,
        expires_at: Option<i64>,
        revoked_at: Option<i64>,
    ) -> Result<(), StoreError> {
        self.store.expire_or_revoke_key(self.author, id, expires_at, revoked_at)
    }

    /// In one step, adds the new key and gives the old key the expiry `rotation.old_expires_at`,
    /// unless the old key expires earlier. The caller gives both keys the same account. Remembers
    /// the `request` as [`StoreEditor::add_keys`] does.
    ///
    /// # Errors
    /// If the store fails, or
    /// - has no old key with this id;
    /// - has the new key or the request already;
    /// - has an old key that is revoked or has expired.
    pub fn rotate_key(
        &mut self,
        rotation: &Rotation<'_>,
        request: Option<&RepeatableRequestRow>,
    ) -> Result<(), StoreError> {
        self.store.rotate_key(self.author, rotation, request)
    }

    /// Undoes a rotation in one step: revokes the new key at `rotation.unix_now`, and sets the
    /// expiry of the old key back to `former_expires_at`. If the old key's expiry is no longer
    /// `rotation.old_expires_at`, another command has changed it, and the present expiry stays.
    /// Fails if the store lacks one of the keys.
    pub fn undo_rotation(
        &mut self,
        rotation: &Rotation<'_>,
        former_expires_at: Option<i64>,
    ) -> Result<(), StoreError> {
        self.store.undo_rotation(self.author, rotation, former_expires_at)
    }

    /// Creates an account, or changes its settings. A `new_plan` or `new_limit` of `None` keeps the
    /// present one. A `new_limit` of `Some(None)` removes the account's own limit, so that the
    /// limit of its plan applies.
    pub fn set_account(
        &mut self,
        name: &str,
        new_plan: Option<&str>,
        new_limit: Option<Option<MonthlyLimit>>,
    ) -> Result<(), StoreError> {
        self.store.set_account(self.author, name, new_plan, new_limit)
    }

    /// Writes back rows that the store had acknowledged and lost. Adds missing keys and accounts,
    /// but no key whose id another key has. If the store ends a key later than `keys` does, gives
    /// the key the earlier end. All other rows stay as they are. If there is nothing to write, the
    /// version stays the same.
    ///
    /// Returns how many of the `store.wait_replicas` replicas lack the rows; a repeated call counts
    /// them again.
    pub fn restore_rows(
        &mut self,
        keys: &[KeyRow],
        accounts: &[AccountRow],
    ) -> Result<usize, StoreError> {
        self.store.restore_rows(self.author, keys, accounts)
    }

    /// Fills an empty store with the contents of another store. Fails if the store to fill holds
    /// keys, accounts, overrides, totals or sign-ups. Gateways see its keys and accounts only once
    /// all contents are written.
    pub fn fill_empty_store(&mut self, contents: &StoreContents) -> Result<(), StoreError> {
        self.store.fill_empty_store(self.author, contents)
    }

    /// Lowers the store's latest month to `month`, unless it is `month` or an earlier one. Deletes
    /// the totals, the usage by day and the quota events of later months, and forgets the believed
    /// time. Call it only while no node runs.
    pub fn repair_month(&mut self, month: Month) -> Result<MonthRepair, StoreError> {
        self.store.repair_month(self.author, month)
    }

    /// Changes the overrides of a domain. Returns false and changes nothing if the store's
    /// overrides of the domain are not `update.before`. Fails if the store would then have more
    /// than [`MAX_STORED_OVERRIDES`](crate::store::MAX_STORED_OVERRIDES).
    pub fn update_overrides(&mut self, update: &OverrideUpdate<'_>) -> Result<bool, StoreError> {
        self.store.update_overrides(self.author, update)
    }

    /// Adds the rows of a file in one step, and remembers the file. If the store has an override of
    /// the same name and scope, that override stays. Returns how many rows were added; `None` if
    /// the store remembers the file already. Fails if the store would then have more than
    /// [`MAX_STORED_OVERRIDES`](crate::store::MAX_STORED_OVERRIDES).
    pub fn take_over_overrides(
        &mut self,
        take_over: &OverrideTakeOver<'_>,
    ) -> Result<Option<usize>, StoreError> {
        self.store.take_over_overrides(self.author, take_over)
    }

    /// Appends a deletion for each of some inboxes, and deletes their sign-ups. Once a node has
    /// read the deletions, it counts no earlier sign-up of these inboxes. The step that appends the
    /// deletions also deletes some of the sign-ups; later steps delete the others. Returns how many
    /// sign-ups were deleted.
    ///
    /// On a server, the record of the audit is written first, because it is in another hash slot.
    /// If the server fails after that, there is a record without a deletion, and the caller can
    /// repeat the deletion.
    pub fn delete_sign_ups(&mut self, deletion: &SignUpDeletion<'_>) -> Result<usize, StoreError> {
        self.store.delete_sign_ups(self.author, deletion)
    }

    /// Remembers the state of a source, and appends a record of what differs from the state before.
    /// Returns true if a record was appended. If the store has no state of the source on this
    /// machine, the state before is the latest one on any machine. The first state of a source gets
    /// no record.
    pub fn record_source_state(
        &mut self,
        operation: AuditOperation,
        state: &SourceState,
    ) -> Result<bool, StoreError> {
        self.store.record_source_state(self.author, operation, state)
    }
}
