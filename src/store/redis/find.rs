//! Finds single keys and accounts on a server.

use super::connection::{BULK_TIMEOUT, Redis};
use super::key_names::{ACCOUNTS, DIGESTS, KEYS, READ_RING_OPERATION};
use super::ring_state::ImportedRow;
use super::rows::{parse_account, parse_key};
use crate::store::error::StoreError;
use crate::store::rows::{AccountRow, KeyRow};

impl Redis {
    pub(in crate::store) fn find_key(&mut self, id: &str) -> Result<Option<KeyRow>, StoreError> {
        self.find_row(KEYS, id, parse_key)
    }

    pub(in crate::store) fn find_key_by_digest(
        &mut self,
        digest: &[u8; 32],
    ) -> Result<Option<KeyRow>, StoreError> {
        let mut read = redis::pipe();
        read.cmd("HGET").arg(DIGESTS).arg(hex::encode(digest));
        match self.query_last_reply::<Option<String>>(READ_RING_OPERATION, &read)? {
            Some(id) => self.find_key(&id),
            None => Ok(None),
        }
    }

    pub(in crate::store) fn find_account(
        &mut self,
        name: &str,
    ) -> Result<Option<AccountRow>, StoreError> {
        self.find_row(ACCOUNTS, name, parse_account)
    }

    fn find_row<R>(
        &mut self,
        hash_key: &str,
        name: &str,
        parse_row: impl Fn(&str, &str) -> Option<R>,
    ) -> Result<Option<R>, StoreError> {
        let mut read = redis::pipe();
        read.cmd("HGET").arg(hash_key).arg(name);
        let Some(text) = self.query_last_reply::<Option<Vec<u8>>>(READ_RING_OPERATION, &read)?
        else {
            return Ok(None);
        };
        // Read after the row, so that the import of the row is known if it was committed.
        let state = self.read_checked_ring_state(0, BULK_TIMEOUT)?;
        Ok(match state.as_ref().map(|state| state.imported_row(&text)) {
            Some(ImportedRow::Committed(text)) => parse_row(name, text),
            _ => None,
        })
    }
}
