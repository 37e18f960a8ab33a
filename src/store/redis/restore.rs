//! Writing back to a server what it had acknowledged and lost: the verb `restore`, in pages.

use redis::Pipeline;

use super::connection::Redis;
use super::key_names::RING;
use super::reply::{error_of, hex, number};
use super::rows::{account_text, key_text};
use super::scripts::Script;
use crate::store::error::StoreError;
use crate::store::rows::{AccountRow, KeyRow};

/// Rows in one script that writes them back: as many as Lua takes for one command, twice.
const PAGE: usize = 1_000;
const DOING: &str = "writing back what it lost";

impl Redis {
    pub(in super::super) fn restore(
        &mut self,
        keys: &[KeyRow],
        accounts: &[AccountRow],
    ) -> Result<usize, StoreError> {
        // Accounts first: no node shall see a key without its account.
        let accounts = accounts.chunks(PAGE).map(|some| (&[][..], some));
        let keys = keys.chunks(PAGE).map(|some| (some, &[][..]));
        accounts.chain(keys).try_for_each(|(keys, accounts)| self.restore_page(keys, accounts))?;
        self.lacking_replicas()
    }

    fn restore_page(&mut self, keys: &[KeyRow], accounts: &[AccountRow]) -> Result<(), StoreError> {
        let mut arguments = vec![self.draw_id()?, keys.len().to_string()];
        for key in keys {
            arguments.extend([key.id.clone(), hex(&key.digest), key_text(key)]);
        }
        for account in accounts {
            arguments.extend([account.name.clone(), account_text(account)]);
        }
        let replies = self.run(DOING, |scripts| {
            let mut pipeline = Pipeline::new();
            pipeline.cmd("EVALSHA").arg(&scripts[Script::Restore as usize]).arg(RING.len());
            pipeline.arg(&RING).arg(&arguments);
            pipeline
        })?;
        match replies.iter().find_map(error_of) {
            Some(found) => Err(self.unanswered(DOING, found)),
            None => Ok(()),
        }
    }

    /// Waits until the replicas have what this connection wrote last. Changes of keys are not
    /// followed meanwhile: no longer than the ledger would wait.
    fn lacking_replicas(&mut self) -> Result<usize, StoreError> {
        if self.wait_replicas == 0 {
            return Ok(0);
        }
        let mut wait = redis::pipe();
        wait.cmd("WAIT").arg(self.wait_replicas).arg(self.wait_for());
        let reached = self.ask(DOING, &wait)?.pop().map_or(0, number);
        Ok(self.wait_replicas.saturating_sub(usize::try_from(reached).unwrap_or(usize::MAX)))
    }
}
