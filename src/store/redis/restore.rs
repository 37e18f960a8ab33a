//! Writing back to a server what it had acknowledged and lost: the verb `restore`, in pages.

use redis::Pipeline;

use super::connection::Redis;
use super::key_names::RING_KEYS;
use super::reply::{reply_number, server_error, to_hex};
use super::rows::{format_account, format_key};
use super::scripts::Script;
use crate::store::error::StoreError;
use crate::store::rows::{AccountRow, KeyRow};

/// Rows in one script that writes them back: as many as Lua takes for one command, twice.
const PAGE_ROWS: usize = 1_000;
const DOING: &str = "restoring lost rows";

impl Redis {
    pub(in super::super) fn restore(
        &mut self,
        keys: &[KeyRow],
        accounts: &[AccountRow],
    ) -> Result<usize, StoreError> {
        // Accounts first: no node shall see a key without its account.
        let accounts = accounts.chunks(PAGE_ROWS).map(|some| (&[][..], some));
        let keys = keys.chunks(PAGE_ROWS).map(|some| (some, &[][..]));
        accounts.chain(keys).try_for_each(|(keys, accounts)| self.restore_page(keys, accounts))?;
        self.count_missing_replicas()
    }

    fn restore_page(&mut self, keys: &[KeyRow], accounts: &[AccountRow]) -> Result<(), StoreError> {
        let mut arguments = vec![self.random_id()?, keys.len().to_string()];
        for key in keys {
            arguments.extend([key.id.clone(), to_hex(&key.digest), format_key(key)]);
        }
        for account in accounts {
            arguments.extend([account.name.clone(), format_account(account)]);
        }
        let replies = self.run_scripts(DOING, |scripts| {
            let mut pipeline = Pipeline::new();
            pipeline
                .cmd("EVALSHA")
                .arg(&scripts[Script::RestoreRows as usize])
                .arg(RING_KEYS.len());
            pipeline.arg(&RING_KEYS).arg(&arguments);
            pipeline
        })?;
        match replies.iter().find_map(server_error) {
            Some(found) => Err(self.unavailable(DOING, found)),
            None => Ok(()),
        }
    }

    /// Waits until the replicas have what this connection wrote last. Changes of keys are not
    /// followed meanwhile: no longer than the ledger would wait.
    fn count_missing_replicas(&mut self) -> Result<usize, StoreError> {
        if self.wait_replicas == 0 {
            return Ok(0);
        }
        let mut wait = redis::pipe();
        wait.cmd("WAIT").arg(self.wait_replicas).arg(self.replica_wait_ms());
        let reached = self.query(DOING, &wait)?.pop().map_or(0, reply_number);
        Ok(self.wait_replicas.saturating_sub(usize::try_from(reached).unwrap_or(usize::MAX)))
    }
}
