//! Rotates a key in SQLite, and undoes a rotation: one transaction each.

use rusqlite::{OptionalExtension, params};
use serde_json::Value;

use super::audit::remember_request;
use super::connection::Sqlite;
use super::meta::increment_ring_version;
use super::rows::{insert_new_key, read_key_for_audit, record_key_change};
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
        let &Rotation { old_id, new_key, old_expires_at, unix_now } = rotation;
        let now = self.told_time.now();
        self.write("rotating a key", |transaction| {
            remember_request(transaction, now, request)?;
            let version = increment_ring_version(transaction)?;
            let before = read_key_for_audit(transaction, old_id)?;
            let select = "SELECT revoked_at IS NULL AND coalesce(expires_at > ?2, 1) FROM api_key
                          WHERE id = ?1";
            let is_in_use: Option<bool> = transaction
                .query_row(select, params![old_id, unix_now], |row| row.get(0))
                .optional()?;
            if !is_in_use.ok_or_else(|| error::unknown_key_error(old_id))? {
                return Err(error::key_ended_error().into());
            }
            insert_new_key(transaction, new_key, None, version)?;
            transaction.execute(
                "UPDATE api_key SET expires_at = min(coalesce(expires_at, ?2), ?2), version = ?3
                 WHERE id = ?1",
                params![old_id, old_expires_at, version],
            )?;
            let changes = [
                (AuditOperation::KeyRotate, old_id, before),
                (AuditOperation::KeyCreate, &new_key.id, Value::Null),
            ];
            for (operation, id, before) in changes {
                record_key_change(transaction, now, author, operation, (id, before))?;
            }
            Ok(())
        })
    }

    fn undo_rotation(
        &mut self,
        author: &ChangeAuthor,
        rotation: &Rotation<'_>,
        former_expires_at: Option<i64>,
    ) -> Result<(), StoreError> {
        let &Rotation { old_id, new_key, old_expires_at, unix_now } = rotation;
        let (new_id, now) = (new_key.id.as_str(), self.told_time.now());
        self.write("undoing a rotation", |transaction| {
            let version = increment_ring_version(transaction)?;
            let old_before = read_key_for_audit(transaction, old_id)?;
            let new_before = read_key_for_audit(transaction, new_id)?;
            let revoked = transaction.execute(
                "UPDATE api_key SET revoked_at = coalesce(revoked_at, ?2), version = ?3
                 WHERE id = ?1",
                params![new_id, unix_now, version],
            )?;
            // If another command has changed the expiry of the old key meanwhile, that expiry
            // stays.
            let restored = transaction.execute(
                "UPDATE api_key SET version = ?4,
                 expires_at = CASE WHEN expires_at IS ?2 THEN ?3 ELSE expires_at END
                 WHERE id = ?1",
                params![old_id, old_expires_at, former_expires_at, version],
            )?;
            if revoked == 0 || restored == 0 {
                return Err(error::unknown_key_error(old_id).into());
            }
            let changes = [
                (AuditOperation::KeyRotationUndo, old_id, old_before),
                (AuditOperation::KeyRevoke, new_id, new_before),
            ];
            for (operation, id, before) in changes {
                record_key_change(transaction, now, author, operation, (id, before))?;
            }
            Ok(())
        })
    }
}
