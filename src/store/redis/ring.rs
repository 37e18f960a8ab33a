//! Keys and accounts on a server.
//!
//! Two hashes hold the rows: keys by id, accounts by name. Rows are never deleted. A sorted set
//! holds the version at which each row last changed, so the changes after any version can always be
//! read. A server may lose a change and then reach the same version by another; the ids of the
//! latest changes tell such histories apart.
//!
//! Every write is one script, except that many keys are added with several scripts: see `import`. A
//! read gets the version before it reads the rows, and again after that. Neither a damaged row nor
//! a foreign entry affects other rows: see `foreign`.

use std::collections::{HashMap, HashSet};

use super::connection::{BULK_TIMEOUT, CHUNK_ROWS, Redis};
use super::key_names::{ACCOUNTS, CHANGES, DIGESTS, KEYS, READ_RING_OPERATION, RING_KEYS};
use super::ring_state::{RingState, RowStatus};
use super::rows::{format_limit, format_plan, parse_account, parse_digest, parse_key};
use super::scripts::Script;
use crate::model::monthly_limit::MonthlyLimit;
use crate::store::error;
use crate::store::error::StoreError;
use crate::store::rows::{AccountRow, DamagedRows, KeyRow, RingChanges, RingRows, RingVersion};

/// How often the changes are read at most: again after each read during which the version changed.
/// If it changed during the last read too, that read is used.
const MAX_CHANGE_READS: u32 = 8;

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
            if self.is_unchanged_since(&changes.ring_version)? || reads == MAX_CHANGE_READS {
                return Ok(changes);
            }
            reads += 1;
        }
    }

    fn read_changes(&mut self, since: u64) -> Result<RingChanges, StoreError> {
        let state = self.ring_state(since, BULK_TIMEOUT)?;
        let state = state.ok_or_else(|| self.lost_rows_error("no store id"))?;
        let mut members: HashSet<Vec<u8>> = HashSet::new();
        let later = state.committed_imports.values().filter(|(_, version)| *version > since);
        let import_ranges = later.map(|(number, _)| (format!("-{number}"), format!("-{number}")));
        // Imports are read first: if a key of an import changes meanwhile, the range of versions
        // includes the key.
        for (from, to) in import_ranges.chain([(format!("({since}"), "+inf".to_owned())]) {
            let mut read = redis::pipe();
            read.cmd("ZRANGEBYSCORE").arg(CHANGES).arg(from).arg(to);
            members.extend(self.query_last::<Vec<Vec<u8>>>(READ_RING_OPERATION, &read)?);
        }
        let texts = members.iter().filter_map(|member| std::str::from_utf8(member).ok());
        let members_of = |prefix: &str| -> Vec<&str> {
            texts.clone().filter_map(|member| member.strip_prefix(prefix)).collect()
        };
        let keys = self.read_rows(&state, KEYS, &members_of("key:"), parse_key)?;
        let accounts = self.read_rows(&state, ACCOUNTS, &members_of("account:"), parse_account)?;
        let (accounts, keys, damaged) = self.split_damaged(accounts, keys)?;
        Ok(RingChanges {
            ring_version: state.ring_version,
            since_change_id: state.since_change_id,
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
                now.since_change_id == before.change_id || now.since_change_id.is_none();
            now.ring_version.store_id == before.store_id
                && now.ring_version.version >= before.version
                && is_same_history
        });
        match following {
            Some(now) => Ok(now.ring_version == *before),
            None => {
                Err(self
                    .unavailable_error(READ_RING_OPERATION, "another history while they were read"))
            }
        }
    }

    /// Separates the readable rows from the damaged rows, and looks up the digests of damaged keys.
    fn split_damaged(
        &mut self,
        accounts: ParsedRows<AccountRow>,
        keys: ParsedRows<KeyRow>,
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

    /// Reads all rows of a hash in chunks, without foreign entries and uncommitted rows.
    fn scan_rows<R>(
        &mut self,
        state: &RingState,
        hash: &'static str,
        parse_row: impl Fn(&str, &str) -> Option<R>,
    ) -> Result<ParsedRows<R>, StoreError> {
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

    /// Reads the rows with these names from a hash, without uncommitted rows. Fails if a name has
    /// no row, because that row was lost.
    fn read_rows<R>(
        &mut self,
        state: &RingState,
        hash: &str,
        names: &[&str],
        parse_row: impl Fn(&str, &str) -> Option<R>,
    ) -> Result<ParsedRows<R>, StoreError> {
        let mut rows = HashMap::with_capacity(names.len());
        for chunk in names.chunks(CHUNK_ROWS) {
            let mut read = redis::pipe();
            read.cmd("HMGET").arg(hash).arg(chunk);
            let texts: Vec<Option<Vec<u8>>> = self.query_last(READ_RING_OPERATION, &read)?;
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

    pub(in super::super) fn expire_or_revoke_key(
        &mut self,
        id: &str,
        expires_at: Option<i64>,
        revoked_at: Option<i64>,
    ) -> Result<(), StoreError> {
        let format_time = |time: Option<i64>| time.map_or(String::new(), |time| time.to_string());
        let (expires, revoked) = (format_time(expires_at), format_time(revoked_at));
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
        new_plan: Option<&str>,
        new_limit: Option<Option<MonthlyLimit>>,
    ) -> Result<(), StoreError> {
        let limit = new_limit.map_or(String::new(), format_limit);
        self.change_ring(
            "setting an account",
            ["set_account", name, &format_plan(new_plan), &limit],
        )
        .map(drop)
    }

    /// Changes one key or account. Returns the new version, or 0 if there is no such key. The
    /// arguments are those of `change_ring.lua` after the change id.
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
struct ParsedRows<R> {
    rows: Vec<R>,
    damaged: Vec<String>,
}

impl<R> FromIterator<(String, Option<R>)> for ParsedRows<R> {
    fn from_iter<I: IntoIterator<Item = (String, Option<R>)>>(rows: I) -> ParsedRows<R> {
        let mut read = ParsedRows { rows: Vec::new(), damaged: Vec::new() };
        for (name, row) in rows {
            match row {
                Some(row) => read.rows.push(row),
                None => read.damaged.push(name),
            }
        }
        read
    }
}
