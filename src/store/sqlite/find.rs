//! Finds single keys and accounts in SQLite.

use super::connection::Sqlite;
use super::rows::{find_account, find_key};
use crate::store::error::StoreError;
use crate::store::rows::{AccountRow, KeyRow};

impl Sqlite {
    pub(in crate::store) fn find_key(&mut self, id: &str) -> Result<Option<KeyRow>, StoreError> {
        find_key(&self.connection, "id", &id).map_err(self.error_while("looking for a key"))
    }

    pub(in crate::store) fn find_key_by_digest(
        &mut self,
        digest: &[u8; 32],
    ) -> Result<Option<KeyRow>, StoreError> {
        find_key(&self.connection, "digest", &digest.as_slice())
            .map_err(self.error_while("looking for a key"))
    }

    pub(in crate::store) fn find_account(
        &mut self,
        name: &str,
    ) -> Result<Option<AccountRow>, StoreError> {
        find_account(&self.connection, name).map_err(self.error_while("looking for an account"))
    }
}
