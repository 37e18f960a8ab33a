//! Fills an empty server with the contents of another store.
//!
//! Totals, top counts and quota events are written first, under their final names. No gateway uses
//! them while the store has no keys. Keys and accounts are staged under temporary names, and one
//! short script at the end renames them. If a copy is interrupted, its staged rows expire, and the
//! next copy deletes its totals.

use redis::Pipeline;

use super::connection::{BULK_TIMEOUT, CHUNK_ROWS, Redis};
use super::key_names::TOP_ROWS_KEY;
use super::key_names::{ACCOUNTS, CHANGES, KEYS, RING_REDIS_KEYS};
use super::key_names::{LEDGER_PREFIX, LEDGER_TTL_SECONDS, ledger_key};
use super::rows::{format_account, format_key};
use super::scripts::Script;
use super::top::format_top_row;
use crate::store::audit::ChangeAuthor;
use crate::store::contents::{StoreContents, change_of_filled_store};
use crate::store::error;
use crate::store::error::StoreError;

/// The node id of copied totals; no running node has it.
pub(super) const COPY_NODE_ID: &str = "00000000000000000000000000000000";
/// Staged rows of an interrupted copy expire after this many seconds.
const STAGED_TTL_SECONDS: u64 = 600;
const OPERATION: &str = "filling the store";

impl Redis {
    pub(super) fn fill(
        &mut self,
        author: &ChangeAuthor,
        contents: &StoreContents,
    ) -> Result<(), StoreError> {
        let not_empty = error::store_not_empty_error(&self.location);
        let mut count = redis::pipe();
        count.cmd("EXISTS").arg(&[KEYS, ACCOUNTS, CHANGES]);
        let existing: u64 = self.query_last_reply(OPERATION, &count)?;
        let Some(leftovers) = self
            .find_leftover_ledger_keys()
            .map(|leftovers| leftovers.filter(|_| existing == 0))?
        else {
            return Err(not_empty);
        };
        for chunk in leftovers.chunks(CHUNK_ROWS) {
            let mut clear = redis::pipe();
            clear.cmd("UNLINK").arg(chunk);
            self.query_with_retry_within(OPERATION, BULK_TIMEOUT, &clear)?;
        }
        self.fill_ledger(contents)?;
        self.fill_top(contents)?;
        self.fill_daily_usage(contents)?;
        self.fill_audit(contents)?;
        self.fill_quota_events(OPERATION, &contents.quota_events)?;
        match self.fill_ring(author, contents)? {
            0 => Err(not_empty),
            _ => Ok(()),
        }
    }

    /// The Redis keys of the totals that an interrupted copy left behind. `None` if a node has
    /// written totals, so that the store is not empty.
    fn find_leftover_ledger_keys(&mut self) -> Result<Option<Vec<Vec<u8>>>, StoreError> {
        let mut leftovers = Vec::new();
        let mut cursor = 0u64;
        loop {
            let mut scan = redis::pipe();
            scan.cmd("SCAN").arg(cursor).arg("MATCH").arg(format!("{LEDGER_PREFIX}*"));
            scan.arg("COUNT").arg(CHUNK_ROWS);
            let (next, keys): (u64, Vec<Vec<u8>>) = self.query_last_reply(OPERATION, &scan)?;
            for key in keys {
                let mut read = redis::pipe();
                read.cmd("HKEYS").arg(&key);
                let fields: Vec<Vec<u8>> = self.query_last_reply(OPERATION, &read)?;
                let copy_id = COPY_NODE_ID.as_bytes();
                if fields.iter().any(|field| field.len() == copy_id.len() && field != copy_id) {
                    return Ok(None);
                }
                leftovers.push(key);
            }
            cursor = next;
            if cursor == 0 {
                return Ok(Some(leftovers));
            }
        }
    }

    fn fill_ledger(&mut self, contents: &StoreContents) -> Result<(), StoreError> {
        let month = contents.usage_month;
        for chunk in contents.usage.chunks(CHUNK_ROWS) {
            let mut write = redis::pipe();
            for row in chunk {
                let key = ledger_key(&row.account, month);
                write.cmd("HSET").arg(&key).arg(COPY_NODE_ID);
                write.arg(format!("1 {} {}", row.leased, row.spent));
                write.arg("leased").arg(row.leased).arg("spent").arg(row.spent);
                write.arg("revision").arg(1).arg("base").arg(0).arg("claim").arg("0 0");
                write.cmd("EXPIRE").arg(&key).arg(LEDGER_TTL_SECONDS);
            }
            self.query_with_retry_within(OPERATION, BULK_TIMEOUT, &write)?;
        }
        Ok(())
    }

    fn fill_top(&mut self, contents: &StoreContents) -> Result<(), StoreError> {
        for chunk in contents.top_rows.chunks(CHUNK_ROWS) {
            let mut write = redis::pipe();
            let rows = write.cmd("HSET").arg(TOP_ROWS_KEY);
            for row in chunk {
                rows.arg(&row.domain).arg(format_top_row(row));
            }
            self.query_with_retry_within(OPERATION, BULK_TIMEOUT, &write)?;
        }
        Ok(())
    }

    /// Stages the keys and accounts under temporary names, and then makes them the ring of the
    /// store in one step. Returns the new version, or 0 if the ring is no longer empty.
    fn fill_ring(
        &mut self,
        author: &ChangeAuthor,
        contents: &StoreContents,
    ) -> Result<u64, StoreError> {
        let id = self.random_id()?;
        let [rows, digests, accounts, changed] = ["keys", "digests", "accounts", "changed"]
            .map(|part| format!("riskgate:{{ring}}:staged:{id}:{part}"));
        let expire = |staging: &mut Pipeline| {
            for name in [&rows, &digests, &accounts, &changed] {
                staging.cmd("EXPIRE").arg(name).arg(STAGED_TTL_SECONDS);
            }
        };
        for chunk in contents.ring.keys.chunks(CHUNK_ROWS) {
            let mut staging = redis::pipe();
            for key in chunk {
                staging.cmd("HSET").arg(&rows).arg(&key.id).arg(format!("- {}", format_key(key)));
                staging.cmd("HSET").arg(&digests).arg(hex::encode(key.digest)).arg(&key.id);
                staging.cmd("ZADD").arg(&changed).arg(1).arg(format!("key:{}", key.id));
            }
            expire(&mut staging);
            self.query_with_retry_within(OPERATION, BULK_TIMEOUT, &staging)?;
        }
        for chunk in contents.ring.accounts.chunks(CHUNK_ROWS) {
            let mut staging = redis::pipe();
            for account in chunk {
                staging
                    .cmd("HSET")
                    .arg(&accounts)
                    .arg(&account.name)
                    .arg(format!("- {}", format_account(account)));
                staging.cmd("ZADD").arg(&changed).arg(1).arg(format!("account:{}", account.name));
            }
            expire(&mut staging);
            self.query_with_retry_within(OPERATION, BULK_TIMEOUT, &staging)?;
        }
        let names = [&RING_REDIS_KEYS[..], &[&rows, &digests, &accounts, &changed]].concat();
        let arguments = [
            self.random_id()?,
            author.to_json().to_string(),
            contents.usage_month.number().to_string(),
            contents.ring.keys.len().to_string(),
            contents.ring.accounts.len().to_string(),
            change_of_filled_store(contents).after.to_string(),
        ];
        let reply = self.run_write_script(OPERATION, Script::FillRing, &names, &arguments)?;
        self.parse_reply(OPERATION, reply)
    }
}
