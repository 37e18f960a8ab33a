//! Writes rows back to a server that had acknowledged and lost them, in pages.

use redis::Pipeline;

use super::connection::Redis;
use super::key_names::RING_KEYS;
use super::reply::{reply_number, server_error};
use super::rows::{format_account, format_key};
use super::scripts::Script;
use crate::store::error::StoreError;
use crate::store::rows::{AccountRow, KeyRow};

/// The most rows in one script. The script passes two arguments for each row to one command, and
/// Lua can pass that many.
const PAGE_ROWS: usize = 1_000;
const OPERATION: &str = "restoring lost rows";

impl Redis {
    pub(in super::super) fn restore_rows(
        &mut self,
        keys: &[KeyRow],
        accounts: &[AccountRow],
    ) -> Result<usize, StoreError> {
        // Accounts first, so that no node sees a key without its account.
        let accounts = accounts.chunks(PAGE_ROWS).map(|chunk| (&[][..], chunk));
        let keys = keys.chunks(PAGE_ROWS).map(|chunk| (chunk, &[][..]));
        accounts.chain(keys).try_for_each(|(keys, accounts)| self.restore_page(keys, accounts))?;
        self.count_missing_replicas()
    }

    fn restore_page(&mut self, keys: &[KeyRow], accounts: &[AccountRow]) -> Result<(), StoreError> {
        let mut arguments = vec![self.random_id()?, keys.len().to_string()];
        for key in keys {
            arguments.extend([key.id.clone(), hex::encode(key.digest), format_key(key)]);
        }
        for account in accounts {
            arguments.extend([account.name.clone(), format_account(account)]);
        }
        let replies = self.run_scripts(OPERATION, |scripts| {
            let mut pipeline = Pipeline::new();
            pipeline
                .cmd("EVALSHA")
                .arg(&scripts[Script::RestoreRows as usize])
                .arg(RING_KEYS.len());
            pipeline.arg(&RING_KEYS).arg(&arguments);
            pipeline
        })?;
        match replies.iter().find_map(server_error) {
            Some(found) => Err(self.unavailable_error(OPERATION, found)),
            None => Ok(()),
        }
    }

    /// Waits for `wait_replicas` replicas to get the latest write of this connection, and returns
    /// how many lack it. Waits no longer than a report of the ledger does, because this node reads
    /// no changes of keys meanwhile.
    fn count_missing_replicas(&mut self) -> Result<usize, StoreError> {
        if self.wait_replicas == 0 {
            return Ok(0);
        }
        let mut wait = redis::pipe();
        wait.cmd("WAIT").arg(self.wait_replicas).arg(self.replica_wait_ms());
        let reached = self.query(OPERATION, &wait)?.pop().map_or(0, reply_number);
        Ok(self.wait_replicas.saturating_sub(usize::try_from(reached).unwrap_or(usize::MAX)))
    }
}
