//! Writes rows back to a server that had acknowledged and lost them, in pages.

use super::connection::Redis;
use super::key_names::{REPLICATED_KEY, RING_REDIS_KEYS};
use super::reply::reply_number_or_zero;
use super::rows::{format_account, format_key};
use super::scripts::Script;
use crate::store::audit::ChangeAuthor;
use crate::store::error::StoreError;
use crate::store::operations::WriteBackBackend;
use crate::store::rows::{AccountRow, KeyRow};

/// The most rows in one script. The script passes two arguments for each row to one Redis command,
/// and Lua limits the arguments of a call.
const MAX_ROWS_PER_SCRIPT: usize = 1_000;
const OPERATION: &str = "restoring lost rows";
/// How long [`REPLICATED_KEY`] is kept, in seconds.
const REPLICATED_SECONDS: u64 = 10;

impl WriteBackBackend for Redis {
    fn write_back_lost_rows(
        &mut self,
        author: &ChangeAuthor,
        keys: &[KeyRow],
        accounts: &[AccountRow],
    ) -> Result<usize, StoreError> {
        let author = author.to_json().to_string();
        // Accounts first, so that no node sees a key without its account.
        let accounts = accounts.chunks(MAX_ROWS_PER_SCRIPT).map(|chunk| (&[][..], chunk));
        let keys = keys.chunks(MAX_ROWS_PER_SCRIPT).map(|chunk| (chunk, &[][..]));
        let mut pages = accounts.chain(keys);
        pages.try_for_each(|(keys, accounts)| self.restore_page(&author, keys, accounts))?;
        self.wait_counting_missing_replicas()
    }
}

impl Redis {
    fn restore_page(
        &mut self,
        author: &str,
        keys: &[KeyRow],
        accounts: &[AccountRow],
    ) -> Result<(), StoreError> {
        let mut arguments = vec![self.random_id()?, author.to_owned(), keys.len().to_string()];
        for key in keys {
            arguments.extend([key.id.clone(), hex::encode(key.digest), format_key(key)]);
        }
        for account in accounts {
            arguments.extend([account.name.clone(), format_account(account)]);
        }
        arguments.extend(self.time_arguments());
        let script = (Script::WriteBackLostRows, &RING_REDIS_KEYS[..]);
        self.run_script(OPERATION, self.timeout, script, |pipeline| {
            pipeline.arg(&arguments);
        })
    }

    /// Waits until `wait_replicas` replicas have the latest write of this connection, and returns
    /// how many lack it. Waits no longer than for a report of the ledger, because the caller can't
    /// read changes of keys while it waits.
    fn wait_counting_missing_replicas(&mut self) -> Result<usize, StoreError> {
        if self.wait_replicas == 0 {
            return Ok(0);
        }
        let mut wait = redis::pipe();
        // If nothing was written since a replica connected, Valkey counts the replica even before
        // it has its first copy. The scripts write nothing if the store has all rows.
        wait.cmd("SET").arg(REPLICATED_KEY).arg(1).arg("EX").arg(REPLICATED_SECONDS);
        wait.cmd("WAIT").arg(self.wait_replicas).arg(self.replica_wait_ms());
        let reached = self
            .query_with_retry(OPERATION, self.timeout, &wait)?
            .pop()
            .map_or(0, reply_number_or_zero);
        Ok(self.wait_replicas.saturating_sub(usize::try_from(reached).unwrap_or(usize::MAX)))
    }
}
