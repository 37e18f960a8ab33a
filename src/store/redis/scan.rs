//! Reads whole hashes, a chunk at a time.

use super::connection::{CHUNK_ROWS, Redis};
use super::key_names::READ_RING_OPERATION;
use crate::store::error::StoreError;

/// Fields of a hash with their values, as bytes.
type FieldValuePairs = Vec<(Vec<u8>, Vec<u8>)>;

impl Redis {
    /// Passes each field of a hash and its value to `visit_pair`. HSCAN may return a field twice.
    pub(super) fn scan_hash_fields(
        &mut self,
        hash_key: &str,
        mut visit_pair: impl FnMut(Vec<u8>, Vec<u8>),
    ) -> Result<(), StoreError> {
        let mut cursor = 0u64;
        loop {
            let mut scan = redis::pipe();
            scan.cmd("HSCAN").arg(hash_key).arg(cursor).arg("COUNT").arg(CHUNK_ROWS);
            let (next, pairs): (u64, FieldValuePairs) =
                self.query_last_reply(READ_RING_OPERATION, &scan)?;
            for (name, text) in pairs {
                visit_pair(name, text);
            }
            cursor = next;
            if cursor == 0 {
                return Ok(());
            }
        }
    }
}
