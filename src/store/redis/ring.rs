//! Keys and accounts on a server.
//!
//! Rows lie in hashes, by id and by name, and are never deleted; a sorted set says at which
//! version each of them changed last, so that what changed after any version can be told for
//! ever. The ids of the latest changes tell histories apart: a server may have lost a change. Every
//! write is one script, only that many keys at once take several: see `import`. The version is read
//! before the rows and again behind them. A row that can't be read costs no other, and whatever
//! lies beside them neither: see `foreign`.

use std::collections::{HashMap, HashSet};

use super::connection::{BULK, CHUNK, Redis};
use super::key_names::{ACCOUNTS, CHANGED, DIGESTS, READING, RING, ROWS};
use super::rows::{account_row, digest, key_row, limit_text, plan_text};
use super::scripts::Script;
use super::standing::{Standing, There};
use crate::model::monthly_limit::LimitRow;
use crate::store::error;
use crate::store::error::StoreError;
use crate::store::rows::{AccountRow, Damaged, KeyRow, RingChanges, RingMark, RingRows};

/// Changes are read so often until none comes in between; under a stream of them the last counts.
const READS: u32 = 8;

impl Redis {
    pub(in super::super) fn ring_mark(&mut self) -> Result<Option<RingMark>, StoreError> {
        Ok(self.ring_standing(0, self.patience)?.map(|standing| standing.mark))
    }

    pub(in super::super) fn ring_rows(&mut self) -> Result<Option<RingRows>, StoreError> {
        let Some(standing) = self.ring_standing(0, BULK)? else { return Ok(None) };
        // Keys first: whoever sees a key sees its account too.
        let keys = self.scan(&standing, ROWS, key_row)?;
        let accounts = self.scan(&standing, ACCOUNTS, account_row)?;
        let (accounts, keys, damaged) = self.rows_of(accounts, keys)?;
        let stands = self.stands_at(&standing.mark)?;
        let RingMark { store_id, version, history } = standing.mark;
        let mut rows = RingRows { store_id, version, history, accounts, keys, damaged };
        if !stands {
            rows.apply(self.ring_changes(version)?);
        }
        Ok(Some(rows))
    }

    pub(in super::super) fn ring_changes(&mut self, since: u64) -> Result<RingChanges, StoreError> {
        let mut reads = 1;
        loop {
            let changes = self.read_changes(since)?;
            // Else they may hold a later change than their version says, and nobody would notice
            // if the server lost that one.
            if self.stands_at(&changes.mark)? || reads == READS {
                return Ok(changes);
            }
            reads += 1;
        }
    }

    fn read_changes(&mut self, since: u64) -> Result<RingChanges, StoreError> {
        let standing = self.ring_standing(since, BULK)?;
        let standing = standing.ok_or_else(|| self.lost_rows("no mark"))?;
        let mut members: HashSet<Vec<u8>> = HashSet::new();
        let later = standing.imports.values().filter(|(_, version)| *version > since);
        let of_imports = later.map(|(number, _)| (format!("-{number}"), format!("-{number}")));
        // Imports first: one of their keys that changes meanwhile is found among what changed since.
        for (from, to) in of_imports.chain([(format!("({since}"), "+inf".to_owned())]) {
            let mut read = redis::pipe();
            read.cmd("ZRANGEBYSCORE").arg(CHANGED).arg(from).arg(to);
            members.extend(self.read::<Vec<Vec<u8>>>(READING, &read)?);
        }
        let texts = members.iter().filter_map(|member| std::str::from_utf8(member).ok());
        let of = |head: &str| -> Vec<&str> {
            texts.clone().filter_map(|member| member.strip_prefix(head)).collect()
        };
        let keys = self.pick(&standing, ROWS, &of("key:"), key_row)?;
        let accounts = self.pick(&standing, ACCOUNTS, &of("account:"), account_row)?;
        let (accounts, keys, damaged) = self.rows_of(accounts, keys)?;
        Ok(RingChanges { mark: standing.mark, since: standing.since, accounts, keys, damaged })
    }

    /// Whether nothing changed since rows were begun to be read. Fails if the server took over
    /// another history meanwhile: they may be of both.
    fn stands_at(&mut self, begun: &RingMark) -> Result<bool, StoreError> {
        let now = self.ring_standing(begun.version, BULK)?;
        let goes_on = now.filter(|now| {
            let same = now.since == begun.history || now.since.is_none();
            now.mark.store_id == begun.store_id && now.mark.version >= begun.version && same
        });
        match goes_on {
            Some(now) => Ok(now.mark == *begun),
            None => Err(self.unanswered(READING, "another history while they were read")),
        }
    }

    /// Splits what was read into rows and what can't be read, of which the digests are looked up.
    fn rows_of(
        &mut self,
        accounts: Read<AccountRow>,
        keys: Read<KeyRow>,
    ) -> Result<(Vec<AccountRow>, Vec<KeyRow>, Damaged), StoreError> {
        let mut damaged = Damaged::default();
        damaged.accounts.extend(accounts.damaged);
        damaged.keys.extend(keys.damaged.into_iter().map(|id| (id, None)));
        if !damaged.keys.is_empty() {
            self.scan_pairs(DIGESTS, |hex, id| {
                if let (Ok(hex), Ok(id)) = (String::from_utf8(hex), String::from_utf8(id))
                    && let Some(found) = damaged.keys.get_mut(&id)
                {
                    *found = digest(&hex);
                }
            })?;
        }
        Ok((accounts.rows, keys.rows, damaged))
    }

    /// All rows of a hash, a chunk at a time.
    fn scan<R>(
        &mut self,
        standing: &Standing,
        hash: &'static str,
        row: impl Fn(&str, &str) -> Option<R>,
    ) -> Result<Read<R>, StoreError> {
        // A scan may tell a row twice.
        let mut texts: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        self.scan_pairs(hash, |name, text| drop(texts.insert(name, text)))?;
        let ours = texts.into_iter().filter(|(name, _)| !self.foreign.holds(hash, name));
        let rows = ours.filter_map(|(name, text)| {
            let name = String::from_utf8_lossy(&name).into_owned();
            match standing.there(&text) {
                There::Row(text) => Some((row(&name, text), name)),
                There::Damaged => Some((None, name)),
                There::NotYet => None,
            }
        });
        let rows = rows.map(|(row, name)| (name, row));
        Ok(rows.collect())
    }

    /// Some rows of a hash, by name.
    fn pick<R>(
        &mut self,
        standing: &Standing,
        hash: &str,
        names: &[&str],
        row: impl Fn(&str, &str) -> Option<R>,
    ) -> Result<Read<R>, StoreError> {
        let mut rows = HashMap::with_capacity(names.len());
        for some in names.chunks(CHUNK) {
            let mut read = redis::pipe();
            read.cmd("HMGET").arg(hash).arg(some);
            let texts: Vec<Option<Vec<u8>>> = self.read(READING, &read)?;
            for (name, text) in some.iter().zip(texts) {
                let text = text.ok_or_else(|| self.lost_rows(name))?;
                let row = match standing.there(&text) {
                    There::Row(text) => row(name, text),
                    There::Damaged => None,
                    There::NotYet => continue,
                };
                rows.insert((*name).to_owned(), row);
            }
        }
        Ok(rows.into_iter().collect())
    }

    pub(in super::super) fn init(&mut self) -> Result<(), StoreError> {
        self.write("marking the store", ["init", "", "", ""]).map(drop)
    }

    pub(in super::super) fn end_key(
        &mut self,
        id: &str,
        expires_at: Option<i64>,
        revoked_at: Option<i64>,
    ) -> Result<(), StoreError> {
        let time = |time: Option<i64>| time.map_or(String::new(), |time| time.to_string());
        let (expires, revoked) = (time(expires_at), time(revoked_at));
        match self.write("ending a key", ["end_key", id, &expires, &revoked])? {
            0 => Err(error::unknown_key(id)),
            _ => Ok(()),
        }
    }

    pub(in super::super) fn set_account(
        &mut self,
        name: &str,
        plan: Option<&str>,
        limit: Option<Option<LimitRow>>,
    ) -> Result<(), StoreError> {
        let limit = limit.map_or(String::new(), limit_text);
        self.write("setting an account", ["set_account", name, &plan_text(plan), &limit]).map(drop)
    }

    /// One small change; answers the version that it leads to.
    fn write(&mut self, doing: &'static str, words: [&str; 4]) -> Result<u64, StoreError> {
        let id = self.draw_id()?;
        let arguments: Vec<String> =
            [id.as_str()].iter().chain(&words).map(|word| (*word).to_owned()).collect();
        self.write_beside_imports(doing, Script::Write, &RING, &arguments)
    }
}

/// What was read of a hash: its rows, and the names of those that are none of ours.
struct Read<R> {
    rows: Vec<R>,
    damaged: Vec<String>,
}

impl<R> FromIterator<(String, Option<R>)> for Read<R> {
    fn from_iter<I: IntoIterator<Item = (String, Option<R>)>>(rows: I) -> Read<R> {
        let mut read = Read { rows: Vec::new(), damaged: Vec::new() };
        for (name, row) in rows {
            match row {
                Some(row) => read.rows.push(row),
                None => read.damaged.push(name),
            }
        }
        read
    }
}
