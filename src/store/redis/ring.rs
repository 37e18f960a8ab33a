//! Keys and accounts on a server.
//!
//! Rows lie in hashes, by id and by name, and are never deleted; a sorted set says at which
//! version each of them changed last, so that what changed after any version can be told for
//! ever. The ids of the latest changes tell histories apart: a server may have lost a change. Every
//! write is one script, only that many keys at once take several: see `import`. The version is read
//! before the rows and again behind them. A row that can't be read costs no other, and whatever
//! lies beside them neither: see `foreign`.

use std::collections::{HashMap, HashSet};

use super::connection::{BULK_TIMEOUT, CHUNK_ROWS, Redis};
use super::key_names::{ACCOUNTS, CHANGES, DIGESTS, KEYS, READING_KEYS, RING_KEYS};
use super::ring_state::{RingState, RowStatus};
use super::rows::{format_limit, format_plan, parse_account, parse_digest, parse_key};
use super::scripts::Script;
use crate::model::monthly_limit::MonthlyLimit;
use crate::store::error;
use crate::store::error::StoreError;
use crate::store::rows::{AccountRow, DamagedRows, KeyRow, RingChanges, RingRows, RingVersion};

/// Changes are read so often until none comes in between; under a stream of them the last counts.
const MAX_READS: u32 = 8;

impl Redis {
    pub(in super::super) fn ring_mark(&mut self) -> Result<Option<RingVersion>, StoreError> {
        Ok(self.ring_state(0, self.patience)?.map(|standing| standing.ring_version))
    }

    pub(in super::super) fn ring_rows(&mut self) -> Result<Option<RingRows>, StoreError> {
        let Some(standing) = self.ring_state(0, BULK_TIMEOUT)? else { return Ok(None) };
        // Keys first: whoever sees a key sees its account too.
        let keys = self.scan_rows(&standing, KEYS, parse_key)?;
        let accounts = self.scan_rows(&standing, ACCOUNTS, parse_account)?;
        let (accounts, keys, damaged) = self.split_damaged(accounts, keys)?;
        let stands = self.is_unchanged_since(&standing.ring_version)?;
        let RingVersion { store_id, version, change_id: history } = standing.ring_version;
        let mut rows = RingRows { store_id, version, change_id: history, accounts, keys, damaged };
        if !stands {
            rows.apply_changes(self.ring_changes(version)?);
        }
        Ok(Some(rows))
    }

    pub(in super::super) fn ring_changes(&mut self, since: u64) -> Result<RingChanges, StoreError> {
        let mut reads = 1;
        loop {
            let changes = self.read_changes(since)?;
            // Else they may hold a later change than their version says, and nobody would notice
            // if the server lost that one.
            if self.is_unchanged_since(&changes.mark)? || reads == MAX_READS {
                return Ok(changes);
            }
            reads += 1;
        }
    }

    fn read_changes(&mut self, since: u64) -> Result<RingChanges, StoreError> {
        let standing = self.ring_state(since, BULK_TIMEOUT)?;
        let standing = standing.ok_or_else(|| self.lost_rows_error("no mark"))?;
        let mut members: HashSet<Vec<u8>> = HashSet::new();
        let later = standing.imports.values().filter(|(_, version)| *version > since);
        let of_imports = later.map(|(number, _)| (format!("-{number}"), format!("-{number}")));
        // Imports first: one of their keys that changes meanwhile is found among what changed since.
        for (from, to) in of_imports.chain([(format!("({since}"), "+inf".to_owned())]) {
            let mut read = redis::pipe();
            read.cmd("ZRANGEBYSCORE").arg(CHANGES).arg(from).arg(to);
            members.extend(self.query_last::<Vec<Vec<u8>>>(READING_KEYS, &read)?);
        }
        let texts = members.iter().filter_map(|member| std::str::from_utf8(member).ok());
        let members_of = |head: &str| -> Vec<&str> {
            texts.clone().filter_map(|member| member.strip_prefix(head)).collect()
        };
        let keys = self.read_rows(&standing, KEYS, &members_of("key:"), parse_key)?;
        let accounts =
            self.read_rows(&standing, ACCOUNTS, &members_of("account:"), parse_account)?;
        let (accounts, keys, damaged) = self.split_damaged(accounts, keys)?;
        Ok(RingChanges {
            mark: standing.ring_version,
            since: standing.since_change,
            accounts,
            keys,
            damaged,
        })
    }

    /// Whether nothing changed since rows were begun to be read. Fails if the server took over
    /// another history meanwhile: they may be of both.
    fn is_unchanged_since(&mut self, begun: &RingVersion) -> Result<bool, StoreError> {
        let now = self.ring_state(begun.version, BULK_TIMEOUT)?;
        let goes_on = now.filter(|now| {
            let same = now.since_change == begun.change_id || now.since_change.is_none();
            now.ring_version.store_id == begun.store_id
                && now.ring_version.version >= begun.version
                && same
        });
        match goes_on {
            Some(now) => Ok(now.ring_version == *begun),
            None => Err(self.unavailable(READING_KEYS, "another history while they were read")),
        }
    }

    /// Splits what was read into rows and what can't be read, of which the digests are looked up.
    fn split_damaged(
        &mut self,
        accounts: ReadRows<AccountRow>,
        keys: ReadRows<KeyRow>,
    ) -> Result<(Vec<AccountRow>, Vec<KeyRow>, DamagedRows), StoreError> {
        let mut damaged = DamagedRows::default();
        damaged.accounts.extend(accounts.damaged);
        damaged.keys.extend(keys.damaged.into_iter().map(|id| (id, None)));
        if !damaged.keys.is_empty() {
            self.scan_pairs(DIGESTS, |hex, id| {
                if let (Ok(hex), Ok(id)) = (String::from_utf8(hex), String::from_utf8(id))
                    && let Some(found) = damaged.keys.get_mut(&id)
                {
                    *found = parse_digest(&hex);
                }
            })?;
        }
        Ok((accounts.rows, keys.rows, damaged))
    }

    /// All rows of a hash, a chunk at a time.
    fn scan_rows<R>(
        &mut self,
        standing: &RingState,
        hash: &'static str,
        row: impl Fn(&str, &str) -> Option<R>,
    ) -> Result<ReadRows<R>, StoreError> {
        // A scan may tell a row twice.
        let mut texts: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        self.scan_pairs(hash, |name, text| drop(texts.insert(name, text)))?;
        let ours = texts.into_iter().filter(|(name, _)| !self.foreign.contains(hash, name));
        let rows = ours.filter_map(|(name, text)| {
            let name = String::from_utf8_lossy(&name).into_owned();
            match standing.row_status(&text) {
                RowStatus::Live(text) => Some((row(&name, text), name)),
                RowStatus::Damaged => Some((None, name)),
                RowStatus::Uncommitted => None,
            }
        });
        let rows = rows.map(|(row, name)| (name, row));
        Ok(rows.collect())
    }

    /// Some rows of a hash, by name.
    fn read_rows<R>(
        &mut self,
        standing: &RingState,
        hash: &str,
        names: &[&str],
        row: impl Fn(&str, &str) -> Option<R>,
    ) -> Result<ReadRows<R>, StoreError> {
        let mut rows = HashMap::with_capacity(names.len());
        for some in names.chunks(CHUNK_ROWS) {
            let mut read = redis::pipe();
            read.cmd("HMGET").arg(hash).arg(some);
            let texts: Vec<Option<Vec<u8>>> = self.query_last(READING_KEYS, &read)?;
            for (name, text) in some.iter().zip(texts) {
                let text = text.ok_or_else(|| self.lost_rows_error(name))?;
                let row = match standing.row_status(&text) {
                    RowStatus::Live(text) => row(name, text),
                    RowStatus::Damaged => None,
                    RowStatus::Uncommitted => continue,
                };
                rows.insert((*name).to_owned(), row);
            }
        }
        Ok(rows.into_iter().collect())
    }

    pub(in super::super) fn init(&mut self) -> Result<(), StoreError> {
        self.change_ring("initializing the store", ["init", "", "", ""]).map(drop)
    }

    pub(in super::super) fn set_key_end(
        &mut self,
        id: &str,
        expires_at: Option<i64>,
        revoked_at: Option<i64>,
    ) -> Result<(), StoreError> {
        let time = |time: Option<i64>| time.map_or(String::new(), |time| time.to_string());
        let (expires, revoked) = (time(expires_at), time(revoked_at));
        match self
            .change_ring("setting the end of a key", ["set_key_end", id, &expires, &revoked])?
        {
            0 => Err(error::unknown_key_error(id)),
            _ => Ok(()),
        }
    }

    pub(in super::super) fn set_account(
        &mut self,
        name: &str,
        plan: Option<&str>,
        limit: Option<Option<MonthlyLimit>>,
    ) -> Result<(), StoreError> {
        let limit = limit.map_or(String::new(), format_limit);
        self.change_ring("setting an account", ["set_account", name, &format_plan(plan), &limit])
            .map(drop)
    }

    /// One small change; answers the version that it leads to.
    fn change_ring(&mut self, doing: &'static str, words: [&str; 4]) -> Result<u64, StoreError> {
        let id = self.random_id()?;
        let arguments: Vec<String> =
            [id.as_str()].iter().chain(&words).map(|word| (*word).to_owned()).collect();
        self.write_after_imports(doing, Script::ChangeRing, &RING_KEYS, &arguments)
    }
}

/// What was read of a hash: its rows, and the names of those that are none of ours.
struct ReadRows<R> {
    rows: Vec<R>,
    damaged: Vec<String>,
}

impl<R> FromIterator<(String, Option<R>)> for ReadRows<R> {
    fn from_iter<I: IntoIterator<Item = (String, Option<R>)>>(rows: I) -> ReadRows<R> {
        let mut read = ReadRows { rows: Vec::new(), damaged: Vec::new() };
        for (name, row) in rows {
            match row {
                Some(row) => read.rows.push(row),
                None => read.damaged.push(name),
            }
        }
        read
    }
}
