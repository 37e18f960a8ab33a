//! Refuses a link to another store than that of the keys.

use std::time::Duration;

use redis::Value;

use super::connection::Redis;
use super::key_names::RING_META_KEY;
use super::reply::reply_text_or_empty;
use crate::store::error::StoreError;

impl Redis {
    /// Fails, and drops the new link, if it leads to another store than that of the keys. An empty
    /// server is no other store. If the server does not tell its store, the next operation shows
    /// what is wrong with it.
    pub(super) fn check_store_of_new_link(&mut self, timeout: Duration) -> Result<(), StoreError> {
        self.probes_of_other_stores = self.ring_store.probes_of_other_stores();
        if self.reads_keys {
            // The reader of the keys compares the stores itself.
            return Ok(());
        }
        let Some(expected) = self.ring_store.id() else { return Ok(()) };
        let mut read = redis::pipe();
        read.cmd("HGET").arg(RING_META_KEY).arg("store_id");
        let mut replies = self.send_once_and_read_replies("connecting", &read, timeout)?;
        let found = match replies.pop() {
            Some(reply @ (Value::BulkString(_) | Value::SimpleString(_))) => {
                reply_text_or_empty(reply)
            }
            _ => return Ok(()),
        };
        match found == expected || found.is_empty() {
            true => Ok(()),
            false => Err(self.other_store_error("connecting", &expected, &found)),
        }
    }

    pub(super) fn other_store_error(
        &mut self,
        operation: &'static str,
        expected: &str,
        found: &str,
    ) -> StoreError {
        self.link = None;
        let found = format!(
            "expected {expected}, the store of the keys in use, but found another store, {found}; \
             nothing is written to it. If it is the right one, restart riskgate"
        );
        self.unavailable_error(operation, found)
    }
}
