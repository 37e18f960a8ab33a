//! Rotates a key in SQLite, and undoes a rotation: one transaction each.

use rusqlite::{OptionalExtension, params};
use serde_json::Value;

use super::audit::remember_request;
use super::connection::Sqlite;
use super::meta::increment_ring_version;
use super::rows::{
    find_conflicting_key_id, insert_key_and_upsert_account, read_key_for_audit, record_key_change,
};
use crate::store::audit::{AuditOperation, ChangeAuthor};
use crate::store::error::{self, StoreError};
use crate::store::operations::RotationBackend;
use crate::store::rows::{RepeatableRequestRow, Rotation};

impl RotationBackend for Sqlite {
    fn rotate_key(
        &mut self,
        author: &ChangeAuthor,
        rotation: &Rotation<'_>,
        request: Option<&RepeatableRequestRow>,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "rotating a key";
        let &Rotation { old_id, new_key, old_expires_at, unix_now } = rotation;
        let (failed, now) = (self.error_while(OPERATION), self.told_time.now());
        let transaction = self.begin_write_transaction(OPERATION)?;
        remember_request(&transaction, now, request).map_err(&failed)??;
        let version = increment_ring_version(&transaction).map_err(&failed)?;
        let before = read_key_for_audit(&transaction, old_id).map_err(&failed)?;
        let is_in_use = transaction
            .query_row(
                "SELECT revoked_at IS NULL AND coalesce(expires_at > ?2, 1) FROM api_key
                 WHERE id = ?1",
                params![old_id, unix_now],
                |row| row.get::<_, bool>(0),
            )
            .optional()
            .map_err(&failed)?;
        if !is_in_use.ok_or_else(|| error::unknown_key_error(old_id))? {
            return Err(error::key_ended_error());
        }
        if let Some(known) = find_conflicting_key_id(&transaction, new_key).map_err(&failed)? {
            return Err(error::key_exists_error(&new_key.id, &known));
        }
        insert_key_and_upsert_account(&transaction, new_key, None, version).map_err(&failed)?;
        transaction
            .execute(
                "UPDATE api_key SET expires_at = min(coalesce(expires_at, ?2), ?2), version = ?3
                 WHERE id = ?1",
                params![old_id, old_expires_at, version],
            )
            .map_err(&failed)?;
        let changes = [
            (AuditOperation::KeyRotate, old_id, before),
            (AuditOperation::KeyCreate, &new_key.id, Value::Null),
        ];
        for (operation, id, before) in changes {
            record_key_change(&transaction, now, author, operation, (id, before))
                .map_err(&failed)?;
        }
        transaction.commit().map_err(failed)
    }

    fn undo_rotation(
        &mut self,
        author: &ChangeAuthor,
        rotation: &Rotation<'_>,
        former_expires_at: Option<i64>,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "undoing a rotation";
        let &Rotation { old_id, new_key, old_expires_at, unix_now } = rotation;
        let new_id = new_key.id.as_str();
        let (failed, now) = (self.error_while(OPERATION), self.told_time.now());
        let transaction = self.begin_write_transaction(OPERATION)?;
        let version = increment_ring_version(&transaction).map_err(&failed)?;
        let changes =
            [(AuditOperation::KeyRotationUndo, old_id), (AuditOperation::KeyRevoke, new_id)];
        let before = |id| read_key_for_audit(&transaction, id).map(|before| (id, before));
        let changes = changes.map(|(operation, id)| (operation, before(id)));
        let revoked = transaction
            .execute(
                "UPDATE api_key SET revoked_at = coalesce(revoked_at, ?2), version = ?3
                 WHERE id = ?1",
                params![new_id, unix_now, version],
            )
            .map_err(&failed)?;
        // If another command has changed the expiry of the old key meanwhile, that expiry stays.
        let restored = transaction
            .execute(
                "UPDATE api_key SET version = ?4,
                 expires_at = CASE WHEN expires_at IS ?2 THEN ?3 ELSE expires_at END
                 WHERE id = ?1",
                params![old_id, old_expires_at, former_expires_at, version],
            )
            .map_err(&failed)?;
        if revoked == 0 || restored == 0 {
            return Err(error::unknown_key_error(old_id));
        }
        for (operation, id_and_before) in changes {
            let id_and_before = id_and_before.map_err(&failed)?;
            record_key_change(&transaction, now, author, operation, id_and_before)
                .map_err(&failed)?;
        }
        transaction.commit().map_err(failed)
    }
}
