//! Keys and accounts on a server.
//!
//! Rows are kept in hashes, by id and by name, and are never deleted. A sorted set holds the
//! version at which each row changed last, so the changes after any version can always be read. The
//! ids of the latest changes tell histories apart, because a server may have lost a change.
//!
//! Every write is one script, except that many keys at once take several: see `import`. A read
//! takes the version before the rows and again after them. A damaged row does not affect other
//! rows, nor do foreign entries: see `foreign`.

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

/// How often changes are read until none comes in between. Under a stream of changes, the last read
/// counts.
const MAX_READS: u32 = 8;

impl Redis {
    pub(in super::super) fn ring_version(&mut self) -> Result<Option<RingVersion>, StoreError> {
        Ok(self.ring_state(0, self.timeout)?.map(|state| state.ring_version))
    }

    pub(in super::super) fn ring_rows(&mut self) -> Result<Option<RingRows>, StoreError> {
        let Some(state) = self.ring_state(0, BULK_TIMEOUT)? else { return Ok(None) };
        // Keys first, so that every key that is read has its account.
        let keys = self.scan_rows(&state, KEYS, parse_key)?;
        let accounts = self.scan_rows(&state, ACCOUNTS, parse_account)?;
        let (accounts, keys, damaged) = self.split_damaged(accounts, keys)?;
        let is_unchanged = self.is_unchanged_since(&state.ring_version)?;
        let RingVersion { store_id, version, change_id } = state.ring_version;
        let mut rows = RingRows { store_id, version, change_id, accounts, keys, damaged };
        if !is_unchanged {
            rows.apply_changes(self.ring_changes(version)?);
        }
        Ok(Some(rows))
    }

    pub(in super::super) fn ring_changes(&mut self, since: u64) -> Result<RingChanges, StoreError> {
        let mut reads = 1;
        loop {
            let changes = self.read_changes(since)?;
            // If the version changed meanwhile, the rows may include a later change, and a loss of
            // that change would go unnoticed.
            if self.is_unchanged_since(&changes.mark)? || reads == MAX_READS {
                return Ok(changes);
            }
            reads += 1;
        }
    }

    fn read_changes(&mut self, since: u64) -> Result<RingChanges, StoreError> {
        let state = self.ring_state(since, BULK_TIMEOUT)?;
        let state = state.ok_or_else(|| self.lost_rows_error("no store id"))?;
        let mut members: HashSet<Vec<u8>> = HashSet::new();
        let later = state.imports.values().filter(|(_, version)| *version > since);
        let import_ranges = later.map(|(number, _)| (format!("-{number}"), format!("-{number}")));
        // Imports first: if one of their keys changes meanwhile, the second range includes it.
        for (from, to) in import_ranges.chain([(format!("({since}"), "+inf".to_owned())]) {
            let mut read = redis::pipe();
            read.cmd("ZRANGEBYSCORE").arg(CHANGES).arg(from).arg(to);
            members.extend(self.query_last::<Vec<Vec<u8>>>(READING_KEYS, &read)?);
        }
        let texts = members.iter().filter_map(|member| std::str::from_utf8(member).ok());
        let members_of = |prefix: &str| -> Vec<&str> {
            texts.clone().filter_map(|member| member.strip_prefix(prefix)).collect()
        };
        let keys = self.read_rows(&state, KEYS, &members_of("key:"), parse_key)?;
        let accounts = self.read_rows(&state, ACCOUNTS, &members_of("account:"), parse_account)?;
        let (accounts, keys, damaged) = self.split_damaged(accounts, keys)?;
        Ok(RingChanges {
            mark: state.ring_version,
            since: state.since_change,
            accounts,
            keys,
            damaged,
        })
    }

    /// Returns true if nothing changed since `before` was read. Fails if the server switched to
    /// another history, because the rows may be of both.
    fn is_unchanged_since(&mut self, before: &RingVersion) -> Result<bool, StoreError> {
        let now = self.ring_state(before.version, BULK_TIMEOUT)?;
        let following = now.filter(|now| {
            let is_same_history =
                now.since_change == before.change_id || now.since_change.is_none();
            now.ring_version.store_id == before.store_id
                && now.ring_version.version >= before.version
                && is_same_history
        });
        match following {
            Some(now) => Ok(now.ring_version == *before),
            None => Err(self.unavailable(READING_KEYS, "another history while they were read")),
        }
    }

    /// Splits rows from unreadable ones, and looks up the digests of unreadable keys.
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
        state: &RingState,
        hash: &'static str,
        parse_row: impl Fn(&str, &str) -> Option<R>,
    ) -> Result<ReadRows<R>, StoreError> {
        // A scan may return a row twice.
        let mut texts: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        self.scan_pairs(hash, |name, text| drop(texts.insert(name, text)))?;
        let own_rows = texts.into_iter().filter(|(name, _)| !self.foreign.contains(hash, name));
        let rows = own_rows.filter_map(|(name, text)| {
            let name = String::from_utf8_lossy(&name).into_owned();
            match state.row_status(&text) {
                RowStatus::Live(text) => Some((parse_row(&name, text), name)),
                RowStatus::Damaged => Some((None, name)),
                RowStatus::Uncommitted => None,
            }
        });
        let rows = rows.map(|(row, name)| (name, row));
        Ok(rows.collect())
    }

    /// Rows of a hash by name.
    fn read_rows<R>(
        &mut self,
        state: &RingState,
        hash: &str,
        names: &[&str],
        parse_row: impl Fn(&str, &str) -> Option<R>,
    ) -> Result<ReadRows<R>, StoreError> {
        let mut rows = HashMap::with_capacity(names.len());
        for chunk in names.chunks(CHUNK_ROWS) {
            let mut read = redis::pipe();
            read.cmd("HMGET").arg(hash).arg(chunk);
            let texts: Vec<Option<Vec<u8>>> = self.query_last(READING_KEYS, &read)?;
            for (name, text) in chunk.iter().zip(texts) {
                let text = text.ok_or_else(|| self.lost_rows_error(name))?;
                let row = match state.row_status(&text) {
                    RowStatus::Live(text) => parse_row(name, text),
                    RowStatus::Damaged => None,
                    RowStatus::Uncommitted => continue,
                };
                rows.insert((*name).to_owned(), row);
            }
        }
        Ok(rows.into_iter().collect())
    }

    pub(in super::super) fn mark_as_store(&mut self) -> Result<(), StoreError> {
        self.change_ring("initializing the store", ["mark_as_store", "", "", ""]).map(drop)
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

    /// Makes one small change. Returns the version that it leads to.
    fn change_ring(
        &mut self,
        operation: &'static str,
        arguments: [&str; 4],
    ) -> Result<u64, StoreError> {
        let id = self.random_id()?;
        let arguments: Vec<String> =
            [id.as_str()].iter().chain(&arguments).map(|argument| (*argument).to_owned()).collect();
        self.write_after_imports(operation, Script::ChangeRing, &RING_KEYS, &arguments)
    }
}

/// The rows read from a hash, and the names of those that can't be read.
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
