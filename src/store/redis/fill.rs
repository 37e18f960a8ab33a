//! Filling an empty server with what another store held: the verb `fill`.
//!
//! Numbers and top counts go first, under their own names; no gateway asks for them as long as
//! there are no keys. Keys and accounts are staged, and made the ring in one short step at the
//! end. What is left of a copy that was interrupted is taken over by the next one.

use redis::Pipeline;

use super::connection::{BULK, CHUNK, Redis};
use super::key_names::TOP;
use super::key_names::{ACCOUNTS, CHANGED, RING, ROWS};
use super::key_names::{KEPT_FOR, LEDGER, numbers_key};
use super::reply::hex;
use super::rows::{account_text, key_text};
use super::scripts::Script;
use super::top::top_text;
use crate::store::error;
use crate::store::error::StoreError;
use crate::store::rows::Contents;

/// Copied numbers stand as those of a node that is no more.
const NOBODY: &str = "00000000000000000000000000000000";
/// What is staged and never taken goes away by itself: seconds.
const STAGED_FOR: u64 = 600;
const DOING: &str = "filling the store";

impl Redis {
    pub(in super::super) fn fill(&mut self, contents: &Contents) -> Result<(), StoreError> {
        let not_empty = error::not_empty(&self.place);
        let mut look = redis::pipe();
        look.cmd("EXISTS").arg(&[ROWS, ACCOUNTS, CHANGED]);
        let held: u64 = self.read(DOING, &look)?;
        let Some(left) = self.numbers_left().map(|left| left.filter(|_| held == 0))? else {
            return Err(not_empty);
        };
        for some in left.chunks(CHUNK) {
            let mut clear = redis::pipe();
            clear.cmd("UNLINK").arg(some);
            self.ask_within(DOING, BULK, &clear)?;
        }
        self.fill_numbers(contents)?;
        self.fill_top(contents)?;
        match self.fill_ring(contents)? {
            0 => Err(not_empty),
            _ => Ok(()),
        }
    }

    /// The numbers that a copy left when it was interrupted; none if there are others too.
    fn numbers_left(&mut self) -> Result<Option<Vec<Vec<u8>>>, StoreError> {
        let mut left = Vec::new();
        let mut cursor = 0u64;
        loop {
            let mut scan = redis::pipe();
            scan.cmd("SCAN").arg(cursor).arg("MATCH").arg(format!("{LEDGER}*"));
            scan.arg("COUNT").arg(CHUNK);
            let (next, keys): (u64, Vec<Vec<u8>>) = self.read(DOING, &scan)?;
            for key in keys {
                let mut read = redis::pipe();
                read.cmd("HKEYS").arg(&key);
                let fields: Vec<Vec<u8>> = self.read(DOING, &read)?;
                let nobody = NOBODY.as_bytes();
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

    fn fill_numbers(&mut self, contents: &Contents) -> Result<(), StoreError> {
        let month = contents.month;
        for some in contents.usage.chunks(CHUNK) {
            let mut write = redis::pipe();
            for row in some {
                let key = numbers_key(&row.account, month);
                write.cmd("HSET").arg(&key).arg(NOBODY);
                write.arg(format!("1 {} {}", row.leased, row.spent));
                write.arg("leased").arg(row.leased).arg("spent").arg(row.spent);
                write.arg("revision").arg(1).arg("base").arg(0).arg("claim").arg("0 0");
                write.cmd("EXPIRE").arg(&key).arg(KEPT_FOR);
            }
            self.ask_within(DOING, BULK, &write)?;
        }
        Ok(())
    }

    fn fill_top(&mut self, contents: &Contents) -> Result<(), StoreError> {
        for some in contents.top.chunks(CHUNK) {
            let mut write = redis::pipe();
            let rows = write.cmd("HSET").arg(TOP);
            for row in some {
                rows.arg(&row.domain).arg(top_text(row));
            }
            self.ask_within(DOING, BULK, &write)?;
        }
        Ok(())
    }

    /// Answers the version, or 0 if the ring is not empty any more.
    fn fill_ring(&mut self, contents: &Contents) -> Result<u64, StoreError> {
        let id = self.draw_id()?;
        let [rows, digests, accounts, changed] = ["keys", "digests", "accounts", "changed"]
            .map(|what| format!("riskgate:{{ring}}:staged:{id}:{what}"));
        let expire = |stage: &mut Pipeline| {
            for name in [&rows, &digests, &accounts, &changed] {
                stage.cmd("EXPIRE").arg(name).arg(STAGED_FOR);
            }
        };
        for some in contents.ring.keys.chunks(CHUNK) {
            let mut stage = redis::pipe();
            for key in some {
                stage.cmd("HSET").arg(&rows).arg(&key.id).arg(format!("- {}", key_text(key)));
                stage.cmd("HSET").arg(&digests).arg(hex(&key.digest)).arg(&key.id);
                stage.cmd("ZADD").arg(&changed).arg(1).arg(format!("key:{}", key.id));
            }
            expire(&mut stage);
            self.ask_within(DOING, BULK, &stage)?;
        }
        for some in contents.ring.accounts.chunks(CHUNK) {
            let mut stage = redis::pipe();
            for account in some {
                stage
                    .cmd("HSET")
                    .arg(&accounts)
                    .arg(&account.name)
                    .arg(format!("- {}", account_text(account)));
                stage.cmd("ZADD").arg(&changed).arg(1).arg(format!("account:{}", account.name));
            }
            expire(&mut stage);
            self.ask_within(DOING, BULK, &stage)?;
        }
        let names = [&RING[..], &[&rows, &digests, &accounts, &changed]].concat();
        let arguments = [
            self.draw_id()?,
            contents.month.number().to_string(),
            contents.ring.keys.len().to_string(),
            contents.ring.accounts.len().to_string(),
        ];
        let reply = self.write_by(DOING, Script::Fill, &names, &arguments)?;
        self.understand(DOING, reply)
    }
}
