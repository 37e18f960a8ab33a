//! Keys and accounts: reads, and changes of one row.

use crate::model::monthly_limit::MonthlyLimit;
use crate::store::audit::ChangeAuthor;
use crate::store::contents::RingSnapshot;
use crate::store::error::StoreError;
use crate::store::rows::{AccountRow, KeyRow, RingChanges, RingRows, RingVersion};

/// What both kinds of store do with keys and accounts.
pub trait RingBackend {
    /// The id of the store, and the version of its keys and accounts. This read is cheap enough to
    /// be made several times a second. `None` if the store is not initialized, or has lost its id.
    /// On a server, fails if rows were lost.
    fn ring_version(&mut self) -> Result<Option<RingVersion>, StoreError>;

    /// How many keys the store has. A server counts also the keys of an import that has not ended.
    fn count_keys(&mut self) -> Result<u64, StoreError>;

    /// Reads all keys, all accounts, and the version of the ring. A row may already be newer than
    /// this version, but never older. `None` if the store is not initialized.
    fn ring_rows(&mut self) -> Result<Option<RingRows>, StoreError>;

    /// Reads the keys and accounts that changed after version `after_version`, and the version
    /// after these changes. A row may already be newer than this version, but never older. If the
    /// store has lost changes, `after_version` may be of the lost history: see
    /// [`RingChanges::follows`].
    fn ring_changes(&mut self, after_version: u64) -> Result<RingChanges, StoreError>;

    /// Reads keys, accounts and overrides, and the states of sources and the audit's last record at
    /// that moment. `None` as for [`Store::read_contents`](crate::store::Store::read_contents).
    fn ring_snapshot(&mut self) -> Result<Option<RingSnapshot>, StoreError>;

    /// Finds a key by its id. `None` if there is none, or if its row is not in effect yet or can't
    /// be read.
    fn find_key(&mut self, id: &str) -> Result<Option<KeyRow>, StoreError>;

    /// Finds a key by its digest. `None` as for [`RingBackend::find_key`].
    fn find_key_by_digest(&mut self, digest: &[u8; 32]) -> Result<Option<KeyRow>, StoreError>;

    /// Finds an account by its name. `None` as for [`RingBackend::find_key`].
    fn find_account(&mut self, name: &str) -> Result<Option<AccountRow>, StoreError>;

    /// Describes the entries among the keys and accounts on a server that riskgate did not write,
    /// as the latest read found them: one line each. riskgate ignores such entries. Always empty
    /// with SQLite.
    fn describe_foreign_entries(&self) -> Vec<String> {
        Vec::new()
    }

    /// As in [`StoreEditor`](super::changes::StoreEditor).
    fn mark_as_store(&mut self, author: &ChangeAuthor) -> Result<(), StoreError>;

    /// As in [`StoreEditor`](super::changes::StoreEditor).
    fn expire_or_revoke_key(
        &mut self,
        author: &ChangeAuthor,
        id: &str,
        expires_at: Option<i64>,
        revoked_at: Option<i64>,
    ) -> Result<(), StoreError>;

    /// As in [`StoreEditor`](super::changes::StoreEditor).
    fn set_account(
        &mut self,
        author: &ChangeAuthor,
        name: &str,
        new_plan: Option<&str>,
        new_limit: Option<Option<MonthlyLimit>>,
    ) -> Result<(), StoreError>;
}
