//! Keys and accounts in SQLite.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;

use super::audit::{self, append_record, remember_request};
use super::columns::to_u64_or_zero;
use super::connection::Sqlite;
use super::daily_usage;
use super::files::unusable;
use super::inbox_secret;
use super::ledger;
use super::meta::{increment_ring_version, read_change_id, read_ring_version};
use super::overrides;
use super::quota_events;
use super::rows::{
    self, find_account, find_key, insert_new_key, read_account_for_audit, read_changed_accounts,
    read_changed_keys, read_key_for_audit, read_plan_of_account, record_key_change, upsert_account,
};
use super::sign_ups;
use super::top;
use crate::model::monthly_limit::LimitChange;
use crate::store::audit::{AuditOperation, Change, ChangeAuthor, change_of_restored_rows};
use crate::store::contents::{SnapshotToCopy, StoreContents, change_of_filled_store};
use crate::store::error::{self, FoundContents, StoreError};
use crate::store::new_key_plan::NewKeyPlan;
use crate::store::operations::{
    AuditBackend, FillBackend, KeyAdditionBackend, OverrideBackend, RingBackend, RotationBackend,
    WriteBackBackend,
};
use crate::store::rows::{
    AccountRow, DamagedRows, KeyRow, RepeatableRequestRow, RingChanges, RingRows, RingVersion,
    Rotation,
};

impl RingBackend for Sqlite {
    fn mark_as_store(&mut self, _: &ChangeAuthor) -> Result<(), StoreError> {
        Ok(())
    }

    fn ring_version(&mut self) -> Result<Option<RingVersion>, StoreError> {
        // Otherwise this process could read the log of another file.
        self.check_not_mixed()?;
        self.read("reading the key version", read_ring_version)
    }

    fn count_keys(&mut self) -> Result<u64, StoreError> {
        let count = self.read("counting the keys", |connection| {
            connection.query_row("SELECT count(*) FROM api_key", [], |row| row.get(0))
        });
        count.map(to_u64_or_zero)
    }

    fn ring_rows(&mut self) -> Result<Option<RingRows>, StoreError> {
        Ok(self.read_changes_if_initialized(0)?.map(|changes| {
            let RingChanges { ring_version, accounts, keys, damaged, .. } = changes;
            RingRows { ring_version, accounts, keys, damaged }
        }))
    }

    fn ring_changes(&mut self, after_version: u64) -> Result<RingChanges, StoreError> {
        self.read_changes_if_initialized(after_version)?.ok_or_else(|| {
            unusable(&self.path, "the keys and accounts that were written", "no store id")
        })
    }

    fn expire_or_revoke_key(
        &mut self,
        author: &ChangeAuthor,
        id: &str,
        expires_at: Option<i64>,
        revoked_at: Option<i64>,
    ) -> Result<(), StoreError> {
        let now = self.told_time.now();
        self.write("ending a key", |transaction| {
            let version = increment_ring_version(transaction)?;
            let before = read_key_for_audit(transaction, id)?;
            let changed = transaction.execute(
                "UPDATE api_key SET revoked_at = coalesce(revoked_at, ?3),
                 expires_at = CASE WHEN ?2 IS NULL THEN expires_at
                              ELSE min(coalesce(expires_at, ?2), ?2) END,
                 version = ?4 WHERE id = ?1",
                params![id, expires_at, revoked_at, version],
            )?;
            if changed == 0 {
                return Err(error::unknown_key_error(id).into());
            }
            let operation = AuditOperation::KeyRevoke;
            Ok(record_key_change(transaction, now, author, operation, (id, before))?)
        })
    }

    fn set_account(
        &mut self,
        author: &ChangeAuthor,
        name: &str,
        new_plan: Option<&str>,
        new_limit: Option<LimitChange>,
    ) -> Result<(), StoreError> {
        let now = self.told_time.now();
        self.write("setting an account", |transaction| {
            let version = increment_ring_version(transaction)?;
            let before = read_account_for_audit(transaction, name)?;
            upsert_account(transaction, name, new_plan, version)?;
            if let Some(change) = new_limit {
                let (calls, unlimited) = rows::limit_to_columns(change.own_limit());
                transaction.execute(
                    "UPDATE account SET calls = ?2, unlimited = ?3 WHERE name = ?1",
                    params![name, calls, unlimited],
                )?;
            }
            let after = read_account_for_audit(transaction, name)?;
            let (operation, target) = (AuditOperation::AccountSet, name.to_owned());
            let change = Change { operation, target, before, after };
            Ok(append_record(transaction, now, author, &change)?)
        })
    }

    fn find_key(&mut self, id: &str) -> Result<Option<KeyRow>, StoreError> {
        self.read("looking for a key", |connection| find_key(connection, "id", &id))
    }

    fn find_key_by_digest(&mut self, digest: &[u8; 32]) -> Result<Option<KeyRow>, StoreError> {
        self.read("looking for a key", |connection| find_key(connection, "digest", digest))
    }

    fn find_account(&mut self, name: &str) -> Result<Option<AccountRow>, StoreError> {
        self.read("looking for an account", |connection| find_account(connection, name))
    }

    fn read_snapshot_to_copy(&mut self) -> Result<Option<SnapshotToCopy>, StoreError> {
        let Some(ring) = self.ring_rows()? else { return Ok(None) };
        let last_audit_record_id = self.read_audit_before(None, 1)?.pop().map(|record| record.id);
        let source_states = self.read_source_states()?;
        let overrides = self.remaining_overrides()?.unwrap_or_default();
        Ok(Some(SnapshotToCopy { ring, last_audit_record_id, overrides, source_states }))
    }
}

impl KeyAdditionBackend for Sqlite {
    fn add_keys(
        &mut self,
        author: &ChangeAuthor,
        keys_with_plans: &[(KeyRow, Option<NewKeyPlan>)],
        request: Option<&RepeatableRequestRow>,
        change: &Change,
    ) -> Result<(), StoreError> {
        let now = self.told_time.now();
        self.write("adding keys", |transaction| {
            remember_request(transaction, now, request)?;
            let version = increment_ring_version(transaction)?;
            // A new account gets the plan that one of its keys names.
            let mut new_accounts = HashSet::new();
            for (key, plan) in keys_with_plans {
                let stored = read_plan_of_account(transaction, &key.account)?;
                if stored.is_none() {
                    new_accounts.insert(key.account.as_str());
                }
                let has_row = !new_accounts.contains(key.account.as_str());
                if let Some(plan) = plan {
                    plan.check_plan_of_account(&key.account, stored.flatten().as_deref(), has_row)?;
                }
                // An account without a plan in its row keeps none, because the key file may name a
                // plan for the account later.
                let plan = plan.as_ref().filter(|_| !has_row).and_then(NewKeyPlan::plan_to_store);
                insert_new_key(transaction, key, plan, version)?;
            }
            Ok(append_record(transaction, now, author, change)?)
        })
    }
}

impl RotationBackend for Sqlite {
    fn rotate_key(
        &mut self,
        author: &ChangeAuthor,
        rotation: &Rotation,
        request: Option<&RepeatableRequestRow>,
    ) -> Result<(), StoreError> {
        let Rotation { old_id, new_key, old_expires_at, unix_now } = rotation;
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
                (AuditOperation::KeyRotate, old_id.as_str(), before),
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
        rotation: &Rotation,
        former_expires_at: Option<i64>,
    ) -> Result<(), StoreError> {
        let Rotation { old_id, new_key, old_expires_at, unix_now } = rotation;
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
                (AuditOperation::KeyRotationUndo, old_id.as_str(), old_before),
                (AuditOperation::KeyRevoke, new_id, new_before),
            ];
            for (operation, id, before) in changes {
                record_key_change(transaction, now, author, operation, (id, before))?;
            }
            Ok(())
        })
    }
}

impl WriteBackBackend for Sqlite {
    fn write_back_lost_rows(
        &mut self,
        author: &ChangeAuthor,
        keys: &[KeyRow],
        accounts: &[AccountRow],
    ) -> Result<usize, StoreError> {
        let now = self.told_time.now();
        self.write("restoring lost rows", |transaction| {
            let next_version = "SELECT value + 1 FROM meta WHERE key = 'ring_version'";
            let next_version = transaction.query_row(next_version, [], |row| row.get(0))?;
            let restored = rows::write_back_lost_rows(transaction, keys, accounts, next_version)?;
            if restored > 0 {
                increment_ring_version(transaction)?;
                append_record(transaction, now, author, &change_of_restored_rows(restored))?;
            }
            Ok(0)
        })
    }
}

impl FillBackend for Sqlite {
    fn fill_empty_store(
        &mut self,
        author: &ChangeAuthor,
        contents: &StoreContents,
    ) -> Result<(), StoreError> {
        let now = self.told_time.now();
        let location = self.path.display().to_string();
        self.write("filling the store", |transaction| {
            let (has_keys_or_accounts, has_numbers) = rows::has_rows_and_totals(transaction)?;
            let found = FoundContents {
                has_keys_or_accounts,
                has_numbers,
                has_overrides: !overrides::has_no_override(transaction)?,
                has_sign_ups: sign_ups::has_sign_ups(transaction)?,
                is_server: false,
            };
            if !found.is_empty() {
                return Err(error::store_not_empty_error(&location, found).into());
            }
            ledger::raise_latest_month(transaction, contents.usage_month)?;
            // A gateway that serves the empty ring sees the full one as its next version.
            let version = increment_ring_version(transaction)?;
            rows::fill_ring_and_totals(transaction, contents, version)?;
            top::fill_top_rows(transaction, &contents.top_rows)?;
            quota_events::write_quota_events(transaction, &contents.quota_events)?;
            daily_usage::fill_daily_usage(transaction, &contents.daily_usage)?;
            if let Some(secret) = &contents.inbox_secret {
                inbox_secret::write_inbox_secret(transaction, secret)?;
            }
            sign_ups::write_sign_ups(transaction, &contents.sign_ups)?;
            overrides::fill_overrides(transaction, &contents.overrides)?;
            audit::fill_audit(transaction, contents)?;
            Ok(append_record(transaction, now, author, &change_of_filled_store(contents))?)
        })
    }
}

impl Sqlite {
    fn read_changes_if_initialized(
        &mut self,
        after_version: u64,
    ) -> Result<Option<RingChanges>, StoreError> {
        let failed = self.error_while("reading the keys");
        let read = |connection: &mut Connection| -> rusqlite::Result<Option<RingChanges>> {
            // Unlike a transaction, a savepoint can be inside a snapshot.
            let transaction = connection.savepoint()?;
            let Some(latest_version) = read_ring_version(&transaction)? else { return Ok(None) };
            let mut damaged = DamagedRows::default();
            Ok(Some(RingChanges {
                ring_version: latest_version,
                since_change_id: read_change_id(&transaction, after_version)?,
                accounts: read_changed_accounts(&transaction, after_version, &mut damaged)?,
                keys: read_changed_keys(&transaction, after_version, &mut damaged)?,
                damaged,
            }))
        };
        read(&mut self.connection).map_err(failed)
    }
}
