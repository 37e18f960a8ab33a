//! Keys and accounts on a server.
//!
//! Two hashes hold the rows: keys by id, accounts by name. Committed rows are never deleted. A
//! sorted set holds the version at which each row last changed, so riskgate can always read the
//! changes after any version. A server may lose a change and then reach the same version by another
//! change. The ids of the latest thousand changes show such a loss.
//!
//! A write is one script, except that riskgate adds or restores many rows with several scripts: see
//! `import` and `write_back`. A read of all rows, or of changes, reads the version before and after
//! the rows, and so notices a change in between. A damaged row or a foreign entry does not affect
//! other rows: see `foreign`.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::connection::{BULK_TIMEOUT, CHUNK_ROWS, Redis};
use super::key_names::{
    ACCOUNTS, API_KEYS, CHANGES, DIGESTS, READ_RING_OPERATION, RING_REDIS_KEYS,
};
use super::ring_state::{ClassifiedRow, RingState};
use super::rows::{format_own_limit, format_plan_or_empty, parse_account, parse_digest, parse_key};
use super::scripts::Script;
use crate::model::monthly_limit::LimitChange;
use crate::store::audit::ChangeAuthor;
use crate::store::contents::SnapshotToCopy;
use crate::store::error::{self, StoreError};
use crate::store::operations::{InboxSecretBackend, OverrideBackend, RingBackend};
use crate::store::overrides::StoredOverrides;
use crate::store::rows::{AccountRow, DamagedRows, KeyRow, RingChanges, RingRows, RingVersion};

/// How often one call of `ring_changes` reads the changes at most. If the version changes during a
/// read, the call reads again. The last read counts, even if the version changed during it.
const MAX_TRIES_OF_RING_CHANGES: u32 = 8;

/// A copy needs a moment in which no key, account or record changes while it reads a few rows. The
/// copy waits this long for such a moment.
const QUIET_MOMENT_TIMEOUT: Duration = Duration::from_secs(60);

impl RingBackend for Redis {
    fn ring_version(&mut self) -> Result<Option<RingVersion>, StoreError> {
        Ok(self.read_checked_ring_state(0, self.timeout)?.map(|state| state.ring_version))
    }

    fn count_keys(&mut self) -> Result<u64, StoreError> {
        self.query("counting the keys", "HLEN", API_KEYS)
    }

    fn ring_rows(&mut self) -> Result<Option<RingRows>, StoreError> {
        let Some(state) = self.read_checked_ring_state(0, BULK_TIMEOUT)? else { return Ok(None) };
        // Keys first, so that every key that is read has its account.
        let keys = self.scan_rows(&state, API_KEYS, parse_key)?;
        let accounts = self.scan_rows(&state, ACCOUNTS, parse_account)?;
        let (accounts, keys, damaged) = self.separate_damaged_rows(accounts, keys)?;
        let is_unchanged = self.is_unchanged_since(&state.ring_version)?;
        let mut rows = RingRows { ring_version: state.ring_version, accounts, keys, damaged };
        if !is_unchanged {
            rows.apply_changes(self.ring_changes(rows.ring_version.version)?);
        }
        Ok(Some(rows))
    }

    /// Reads keys, accounts, overrides, states of sources, and the id of the audit's last record.
    /// Repeats the read until neither the ring nor the audit has changed during it, for at most
    /// [`QUIET_MOMENT_TIMEOUT`].
    fn read_snapshot_to_copy(&mut self) -> Result<Option<SnapshotToCopy>, StoreError> {
        let Some(mut rows) = self.ring_rows()? else { return self.snapshot_of_store_without_id() };
        let deadline = Instant::now() + QUIET_MOMENT_TIMEOUT;
        while Instant::now() < deadline {
            let changes = self.read_changes(rows.ring_version.version)?;
            let version = changes.ring_version.clone();
            rows.apply_changes(changes);
            let last_audit_record_id = self.last_audit_record_id()?;
            let source_states = self.read_source_states()?;
            // A change of an override adds a record too.
            let overrides = self.stored_overrides()?.unwrap_or_default();
            if self.is_unchanged_since(&version)?
                && self.last_audit_record_id()? == last_audit_record_id
            {
                let ring = rows;
                return Ok(Some(SnapshotToCopy {
                    ring,
                    last_audit_record_id,
                    overrides,
                    source_states,
                }));
            }
        }
        let found = "a store whose keys, accounts or audit changed during each read";
        Err(self.unavailable_error(READ_RING_OPERATION, found))
    }

    fn ring_changes(&mut self, after_version: u64) -> Result<RingChanges, StoreError> {
        let mut reads = 1;
        loop {
            let changes = self.read_changes(after_version)?;
            // If the version changed during the read, the rows may have a later change than the
            // version. If the server then lost that change, no node would notice.
            if self.is_unchanged_since(&changes.ring_version)? || reads == MAX_TRIES_OF_RING_CHANGES
            {
                return Ok(changes);
            }
            reads += 1;
        }
    }

    fn mark_as_store(&mut self, author: &ChangeAuthor) -> Result<(), StoreError> {
        let arguments = ["mark_as_store", "", "", ""];
        self.run_change_ring_script("initializing the store", author, arguments).map(drop)
    }

    fn expire_or_revoke_key(
        &mut self,
        author: &ChangeAuthor,
        id: &str,
        expires_at: Option<i64>,
        revoked_at: Option<i64>,
    ) -> Result<(), StoreError> {
        let format_time_or_empty =
            |time: Option<i64>| time.map_or(String::new(), |time| time.to_string());
        let (expires, revoked) =
            (format_time_or_empty(expires_at), format_time_or_empty(revoked_at));
        match self.run_change_ring_script(
            "setting the end of a key",
            author,
            ["set_key_end", id, &expires, &revoked],
        )? {
            0 => Err(error::unknown_key_error(id)),
            _ => Ok(()),
        }
    }

    fn set_account(
        &mut self,
        author: &ChangeAuthor,
        name: &str,
        new_plan: Option<&str>,
        new_limit: Option<LimitChange>,
    ) -> Result<(), StoreError> {
        let limit = new_limit.map_or(String::new(), |change| format_own_limit(change.own_limit()));
        self.run_change_ring_script(
            "setting an account",
            author,
            ["set_account", name, &format_plan_or_empty(new_plan), &limit],
        )
        .map(drop)
    }

    fn find_key(&mut self, id: &str) -> Result<Option<KeyRow>, StoreError> {
        self.find_row(API_KEYS, id, parse_key)
    }

    fn find_key_by_digest(&mut self, digest: &[u8; 32]) -> Result<Option<KeyRow>, StoreError> {
        match self.query::<Option<String>>(
            READ_RING_OPERATION,
            "HGET",
            (DIGESTS, hex::encode(digest)),
        )? {
            Some(id) => self.find_key(&id),
            None => Ok(None),
        }
    }

    fn find_account(&mut self, name: &str) -> Result<Option<AccountRow>, StoreError> {
        self.find_row(ACCOUNTS, name, parse_account)
    }

    /// Lines about the foreign entries, for the log and for commands.
    fn describe_foreign_entries(&self) -> Vec<String> {
        self.foreign_entries.describe_entries()
    }
}

impl Redis {
    /// Reads what a copy needs of a server without a store id. A gateway without keys and accounts
    /// writes no store id, but may have written the inbox secret and sign-ups.
    fn snapshot_of_store_without_id(&mut self) -> Result<Option<SnapshotToCopy>, StoreError> {
        if self.read_inbox_secret()?.is_none() && !self.has_sign_ups(READ_RING_OPERATION)? {
            return Ok(None);
        }
        let (last_audit_record_id, source_states) =
            (self.last_audit_record_id()?, self.read_source_states()?);
        let (ring, overrides) = (RingRows::default(), StoredOverrides::default());
        Ok(Some(SnapshotToCopy { ring, last_audit_record_id, overrides, source_states }))
    }

    fn read_changes(&mut self, after_version: u64) -> Result<RingChanges, StoreError> {
        let state = self.read_checked_ring_state(after_version, BULK_TIMEOUT)?;
        let state = state.ok_or_else(|| self.lost_rows_error("no store id"))?;
        let mut members: HashSet<Vec<u8>> = HashSet::new();
        let later =
            state.committed_imports.values().filter(|(_, version)| *version > after_version);
        let import_ranges = later.map(|(number, _)| (format!("-{number}"), format!("-{number}")));
        // Imports are read first. If a key of an import changes in between, the key moves to the
        // range of versions, and that range is read last.
        for (from, to) in import_ranges.chain([(format!("({after_version}"), "+inf".to_owned())]) {
            members.extend(self.query::<Vec<Vec<u8>>>(
                READ_RING_OPERATION,
                "ZRANGEBYSCORE",
                (CHANGES, from, to),
            )?);
        }
        let texts = members.iter().filter_map(|member| std::str::from_utf8(member).ok());
        let members_of = |prefix: &str| -> Vec<&str> {
            texts.clone().filter_map(|member| member.strip_prefix(prefix)).collect()
        };
        let keys = self.read_rows_by_name(&state, API_KEYS, &members_of("key:"), parse_key)?;
        let accounts =
            self.read_rows_by_name(&state, ACCOUNTS, &members_of("account:"), parse_account)?;
        let (accounts, keys, damaged) = self.separate_damaged_rows(accounts, keys)?;
        Ok(RingChanges {
            ring_version: state.ring_version,
            since_change_id: state.since_change_id,
            accounts,
            keys,
            damaged,
        })
    }

    /// Returns true if nothing has changed since the version `before` was read. Fails if the server
    /// has switched to another history in between, because the rows may be a mixture of both.
    fn is_unchanged_since(&mut self, before: &RingVersion) -> Result<bool, StoreError> {
        let now = self.read_checked_ring_state(before.version, BULK_TIMEOUT)?;
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
    fn separate_damaged_rows(
        &mut self,
        accounts: ParsedRows<AccountRow>,
        keys: ParsedRows<KeyRow>,
    ) -> Result<(Vec<AccountRow>, Vec<KeyRow>, DamagedRows), StoreError> {
        let mut damaged = DamagedRows::default();
        damaged.account_names.extend(accounts.damaged_names);
        damaged.key_digests_by_id.extend(keys.damaged_names.into_iter().map(|id| (id, None)));
        if !damaged.key_digests_by_id.is_empty() {
            self.scan_hash_fields(READ_RING_OPERATION, DIGESTS, |hex, id| {
                if let (Ok(hex), Ok(id)) = (String::from_utf8(hex), String::from_utf8(id))
                    && let Some(found) = damaged.key_digests_by_id.get_mut(&id)
                {
                    *found = parse_digest(&hex);
                }
            })?;
        }
        Ok((accounts.rows, keys.rows, damaged))
    }

    /// Reads all rows of a Redis hash in chunks. Leaves out foreign entries and uncommitted rows.
    fn scan_rows<R>(
        &mut self,
        state: &RingState,
        hash_key: &'static str,
        parse_row: impl Fn(&str, &str) -> Option<R>,
    ) -> Result<ParsedRows<R>, StoreError> {
        // A scan may return a row twice.
        let mut texts: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        let insert = |name, text| drop(texts.insert(name, text));
        self.scan_hash_fields(READ_RING_OPERATION, hash_key, insert)?;
        let mut read = ParsedRows::with_capacity(texts.len());
        let own_rows =
            texts.into_iter().filter(|(name, _)| !self.foreign_entries.contains(hash_key, name));
        for (name, text) in own_rows {
            let name = String::from_utf8_lossy(&name).into_owned();
            read.add(state, name, &text, &parse_row);
        }
        Ok(read)
    }

    /// Reads the rows with these names, each given once, from a Redis hash. Leaves out uncommitted
    /// rows. Fails if there is no row of a name, because that row was lost.
    fn read_rows_by_name<R>(
        &mut self,
        state: &RingState,
        hash_key: &str,
        row_names: &[&str],
        parse_row: impl Fn(&str, &str) -> Option<R>,
    ) -> Result<ParsedRows<R>, StoreError> {
        let mut read = ParsedRows::with_capacity(row_names.len());
        for chunk in row_names.chunks(CHUNK_ROWS) {
            let texts: Vec<Option<Vec<u8>>> =
                self.query(READ_RING_OPERATION, "HMGET", (hash_key, chunk))?;
            for (name, text) in chunk.iter().zip(texts) {
                let text = text.ok_or_else(|| self.lost_rows_error(name))?;
                read.add(state, (*name).to_owned(), &text, &parse_row);
            }
        }
        Ok(read)
    }

    /// Runs `change_ring.lua`, which changes one key or account, or marks a new store. `arguments`
    /// are the script's arguments after the change id and the author. Returns the version of the
    /// ring afterwards, or 0 if there is no such key.
    fn run_change_ring_script(
        &mut self,
        operation: &'static str,
        author: &ChangeAuthor,
        arguments: [&str; 4],
    ) -> Result<u64, StoreError> {
        let mut all = vec![self.random_id()?, author.to_json().to_string()];
        all.extend(arguments.map(str::to_owned));
        self.run_write_script_after_imports(operation, Script::ChangeRing, &RING_REDIS_KEYS, &all)
    }

    fn find_row<R>(
        &mut self,
        hash_key: &str,
        name: &str,
        parse_row: impl Fn(&str, &str) -> Option<R>,
    ) -> Result<Option<R>, StoreError> {
        let Some(text) =
            self.query::<Option<Vec<u8>>>(READ_RING_OPERATION, "HGET", (hash_key, name))?
        else {
            return Ok(None);
        };
        // The state is read after the row: then it has the row's import if that was committed.
        let state = self.read_checked_ring_state(0, BULK_TIMEOUT)?;
        Ok(match state.as_ref().map(|state| state.classify_row(&text)) {
            Some(ClassifiedRow::Committed(text)) => parse_row(name, text),
            _ => None,
        })
    }
}

/// The rows that were read from a Redis hash, and the names of the rows that can't be read.
struct ParsedRows<R> {
    rows: Vec<R>,
    damaged_names: Vec<String>,
}

impl<R> ParsedRows<R> {
    fn with_capacity(rows: usize) -> ParsedRows<R> {
        ParsedRows { rows: Vec::with_capacity(rows), damaged_names: Vec::new() }
    }

    /// Adds a row, or the name of a row that can't be read. Leaves out an uncommitted row.
    fn add(
        &mut self,
        state: &RingState,
        name: String,
        text: &[u8],
        parse_row: impl Fn(&str, &str) -> Option<R>,
    ) {
        let row = match state.classify_row(text) {
            ClassifiedRow::Committed(text) => parse_row(&name, text),
            ClassifiedRow::Damaged => None,
            ClassifiedRow::Uncommitted => return,
        };
        match row {
            Some(row) => self.rows.push(row),
            None => self.damaged_names.push(name),
        }
    }
}
