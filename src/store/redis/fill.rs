//! Filling an empty server with what another store held: the verb `fill`.
//!
//! Numbers and top counts go first, under their own names; no gateway asks for them as long as
//! there are no keys. Keys and accounts are staged, and made the ring in one short step at the
//! end. What is left of a copy that was interrupted is taken over by the next one.

use redis::Pipeline;

use super::connection::{BULK_TIMEOUT, CHUNK_ROWS, Redis};
use super::key_names::TOP_KEY;
use super::key_names::{ACCOUNTS, CHANGES, KEYS, RING_KEYS};
use super::key_names::{LEDGER_PREFIX, LEDGER_TTL, ledger_key};
use super::reply::to_hex;
use super::rows::{format_account, format_key};
use super::scripts::Script;
use super::top::format_top_row;
use crate::store::error;
use crate::store::error::StoreError;
use crate::store::rows::StoreContents;

/// Copied numbers stand as those of a node that is no more.
const COPY_NODE_ID: &str = "00000000000000000000000000000000";
/// What is staged and never taken goes away by itself: seconds.
const STAGED_TTL: u64 = 600;
const DOING: &str = "filling the store";

impl Redis {
    pub(in super::super) fn fill(&mut self, contents: &StoreContents) -> Result<(), StoreError> {
        let not_empty = error::store_not_empty_error(&self.place);
        let mut look = redis::pipe();
        look.cmd("EXISTS").arg(&[KEYS, ACCOUNTS, CHANGES]);
        let held: u64 = self.query_last(DOING, &look)?;
        let Some(left) = self.find_leftover_ledger().map(|left| left.filter(|_| held == 0))? else {
            return Err(not_empty);
        };
        for some in left.chunks(CHUNK_ROWS) {
            let mut clear = redis::pipe();
            clear.cmd("UNLINK").arg(some);
            self.query_within(DOING, BULK_TIMEOUT, &clear)?;
        }
        self.fill_ledger(contents)?;
        self.fill_top(contents)?;
        match self.fill_ring(contents)? {
            0 => Err(not_empty),
            _ => Ok(()),
        }
    }

    /// The numbers that a copy left when it was interrupted; none if there are others too.
    fn find_leftover_ledger(&mut self) -> Result<Option<Vec<Vec<u8>>>, StoreError> {
        let mut left = Vec::new();
        let mut cursor = 0u64;
        loop {
            let mut scan = redis::pipe();
            scan.cmd("SCAN").arg(cursor).arg("MATCH").arg(format!("{LEDGER_PREFIX}*"));
            scan.arg("COUNT").arg(CHUNK_ROWS);
            let (next, keys): (u64, Vec<Vec<u8>>) = self.query_last(DOING, &scan)?;
            for key in keys {
                let mut read = redis::pipe();
                read.cmd("HKEYS").arg(&key);
                let fields: Vec<Vec<u8>> = self.query_last(DOING, &read)?;
                let nobody = COPY_NODE_ID.as_bytes();
                if fields.iter().any(|field| field.len() == nobody.len() && field != nobody) {
                    return Ok(None);
                }
                left.push(key);
            }
            cursor = next;
            if cursor == 0 {
                return Ok(Some(left));
            }
        }
    }

    fn fill_ledger(&mut self, contents: &StoreContents) -> Result<(), StoreError> {
        let month = contents.month;
        for some in contents.usage.chunks(CHUNK_ROWS) {
            let mut write = redis::pipe();
            for row in some {
                let key = ledger_key(&row.account, month);
                write.cmd("HSET").arg(&key).arg(COPY_NODE_ID);
                write.arg(format!("1 {} {}", row.leased, row.spent));
                write.arg("leased").arg(row.leased).arg("spent").arg(row.spent);
                write.arg("revision").arg(1).arg("base").arg(0).arg("claim").arg("0 0");
                write.cmd("EXPIRE").arg(&key).arg(LEDGER_TTL);
            }
            self.query_within(DOING, BULK_TIMEOUT, &write)?;
        }
        Ok(())
    }

    fn fill_top(&mut self, contents: &StoreContents) -> Result<(), StoreError> {
        for some in contents.top.chunks(CHUNK_ROWS) {
            let mut write = redis::pipe();
            let rows = write.cmd("HSET").arg(TOP_KEY);
            for row in some {
                rows.arg(&row.domain).arg(format_top_row(row));
            }
            self.query_within(DOING, BULK_TIMEOUT, &write)?;
        }
        Ok(())
    }

    /// Answers the version, or 0 if the ring is not empty any more.
    fn fill_ring(&mut self, contents: &StoreContents) -> Result<u64, StoreError> {
        let id = self.random_id()?;
        let [rows, digests, accounts, changed] = ["keys", "digests", "accounts", "changed"]
            .map(|what| format!("riskgate:{{ring}}:staged:{id}:{what}"));
        let expire = |stage: &mut Pipeline| {
            for name in [&rows, &digests, &accounts, &changed] {
                stage.cmd("EXPIRE").arg(name).arg(STAGED_TTL);
            }
        };
        for some in contents.ring.keys.chunks(CHUNK_ROWS) {
            let mut stage = redis::pipe();
            for key in some {
                stage.cmd("HSET").arg(&rows).arg(&key.id).arg(format!("- {}", format_key(key)));
                stage.cmd("HSET").arg(&digests).arg(to_hex(&key.digest)).arg(&key.id);
                stage.cmd("ZADD").arg(&changed).arg(1).arg(format!("key:{}", key.id));
            }
            expire(&mut stage);
            self.query_within(DOING, BULK_TIMEOUT, &stage)?;
        }
        for some in contents.ring.accounts.chunks(CHUNK_ROWS) {
            let mut stage = redis::pipe();
            for account in some {
                stage
                    .cmd("HSET")
                    .arg(&accounts)
                    .arg(&account.name)
                    .arg(format!("- {}", format_account(account)));
                stage.cmd("ZADD").arg(&changed).arg(1).arg(format!("account:{}", account.name));
            }
            expire(&mut stage);
            self.query_within(DOING, BULK_TIMEOUT, &stage)?;
        }
        let names = [&RING_KEYS[..], &[&rows, &digests, &accounts, &changed]].concat();
        let arguments = [
            self.random_id()?,
            contents.month.number().to_string(),
            contents.ring.keys.len().to_string(),
            contents.ring.accounts.len().to_string(),
        ];
        let reply = self.run_write_script(DOING, Script::FillRing, &names, &arguments)?;
        self.parse_reply(DOING, reply)
    }
}
