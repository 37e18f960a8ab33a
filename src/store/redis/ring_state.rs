//! Reads the state of the ring on a server at one moment: the version, the committed imports, and
//! how many rows there are. Detects that rows were lost, and finds entries that riskgate did not
//! write.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use super::connection::{BULK_TIMEOUT, Redis};
use super::foreign::EntryCounts;
use super::key_names::{
    ACCOUNTS, API_KEYS, CHANGES, DIGESTS, IMPORTS, READ_RING_OPERATION, RING_META_KEY,
};
use super::rows::{parse_account, parse_digest, parse_key};
use super::scripts::Script;
use crate::store::error::StoreError;
use crate::store::rows::RingVersion;

/// The state of the ring at one moment.
pub(super) struct RingState {
    pub(super) ring_version: RingVersion,
    /// The caller asks for the changes since a version. This is the id of the change that led to
    /// that version. `None` if the server does not know the id.
    pub(super) since_change_id: Option<String>,
    /// Committed imports by id: the number of each, and the version that its commit led to.
    pub(super) committed_imports: HashMap<String, (u64, u64)>,
    /// The ids of imports whose entries can't be read. It is unknown whether they were committed.
    unreadable_imports: BTreeSet<Vec<u8>>,
    entry_counts: EntryCounts,
}

impl Redis {
    /// Reads the state of the ring; `None` if the server is not initialized. Fails if rows were
    /// lost: riskgate deletes no committed row, so the entry counts disagree only after a loss or
    /// because of foreign entries.
    pub(super) fn read_checked_ring_state(
        &mut self,
        after_version: u64,
        timeout: Duration,
    ) -> Result<Option<RingState>, StoreError> {
        let Some(state) = self.read_ring_state(after_version, timeout)? else { return Ok(None) };
        let state = match self.foreign_entries.are_counts_consistent(&state.entry_counts) {
            true => state,
            false => self.rescan_and_read_ring_state(after_version, &state.entry_counts)?,
        };
        self.foreign_entries.unreadable_imports.clone_from(&state.unreadable_imports);
        Ok(Some(state))
    }

    /// Scans for foreign entries and reads the state again. Fails if the counts disagree even
    /// without these entries.
    fn rescan_and_read_ring_state(
        &mut self,
        after_version: u64,
        inconsistent_counts: &EntryCounts,
    ) -> Result<RingState, StoreError> {
        let [keys, _, accounts, _] = inconsistent_counts;
        let lost = self.lost_rows_error(&format!("{keys} keys and {accounts} accounts"));
        if !self.scan_foreign_entries(inconsistent_counts)? {
            return Err(lost);
        }
        let now = self
            .read_ring_state(after_version, BULK_TIMEOUT)?
            .ok_or_else(|| self.lost_rows_error("no store id"))?;
        match self.foreign_entries.are_counts_consistent(&now.entry_counts) {
            true => Ok(now),
            false => {
                // If the counts changed during the scan, the next read scans again.
                self.foreign_entries.inconsistent_counts =
                    (*inconsistent_counts == now.entry_counts).then_some(now.entry_counts);
                Err(lost)
            }
        }
    }

    /// Scans the collections for foreign entries, and records them. Returns false without a scan if
    /// the counts are those that the last scan could not explain.
    fn scan_foreign_entries(&mut self, counts: &EntryCounts) -> Result<bool, StoreError> {
        if self.foreign_entries.inconsistent_counts.as_ref() == Some(counts) {
            return Ok(false);
        }
        let mut rows = Vec::new();
        // Rows are read before changes, so that the change of every row that was read is read too.
        for hash in [API_KEYS, DIGESTS, ACCOUNTS] {
            self.scan_hash_fields(READ_RING_OPERATION, hash, |name, value| {
                rows.push((hash, name, value))
            })?;
        }
        let members: HashSet<Vec<u8>> =
            self.query(READ_RING_OPERATION, "ZRANGEBYSCORE", (CHANGES, "-inf", "+inf"))?;
        let others = members.iter().filter(|member| !is_change_member(member));
        let mut entries: BTreeSet<_> = others.map(|member| (CHANGES, member.clone())).collect();
        for (hash, name, value) in rows {
            // A row that can't be read but has a change may be a damaged row of riskgate.
            let has_change = |prefix: &str| members.contains(&[prefix.as_bytes(), &name].concat());
            let is_ours = match hash {
                API_KEYS => has_change("key:") || is_readable_row(&name, &value, parse_key),
                ACCOUNTS => has_change("account:") || is_readable_row(&name, &value, parse_account),
                _ => std::str::from_utf8(&name).is_ok_and(|hex| parse_digest(hex).is_some()),
            };
            if !is_ours {
                entries.insert((hash, name));
            }
        }
        self.foreign_entries.collections_and_names = entries;
        Ok(true)
    }

    fn read_ring_state(
        &mut self,
        after_version: u64,
        timeout: Duration,
    ) -> Result<Option<RingState>, StoreError> {
        const OPERATION: &str = "reading the key version";
        type OptionalBytes = Option<Vec<u8>>;
        type MetaFields = (OptionalBytes, Option<u64>, OptionalBytes, OptionalBytes);
        type RingStateReply = (MetaFields, u64, u64, u64, u64, HashMap<Vec<u8>, Vec<u8>>);
        // One script, because a write in between would look like a loss.
        let redis_keys = [RING_META_KEY, API_KEYS, DIGESTS, ACCOUNTS, CHANGES, IMPORTS];
        let script = (Script::ReadRingState, &redis_keys[..]);
        let (meta, keys, digests, accounts, changed, imports): RingStateReply =
            self.run_read_script(OPERATION, timeout, script, &[after_version])?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (store_id, version, history, since) = match meta {
            (None, ..) => return Ok(None),
            (Some(store_id), Some(version), history, since) => (store_id, version, history, since),
            _ => return Err(self.lost_rows_error(&format!("{keys} keys and {accounts} accounts"))),
        };
        let change_id = parse_history_field(history.map(text), version);
        let mut state = RingState {
            ring_version: RingVersion { store_id: text(store_id), version, change_id },
            since_change_id: since.map(text),
            committed_imports: HashMap::new(),
            unreadable_imports: BTreeSet::new(),
            entry_counts: [keys, digests, accounts, changed],
        };
        for (import, entry) in imports {
            match parse_import_entry(&import, &entry) {
                Some((import, (number, version @ 1..))) => {
                    state.committed_imports.insert(import, (number, version));
                }
                Some(_) => {}
                None => drop(state.unreadable_imports.insert(import)),
            }
        }
        Ok(Some(state))
    }

    pub(super) fn lost_rows_error(&self, found: &str) -> StoreError {
        self.unusable_error("the keys and accounts that were written", found)
    }
}

/// A row of a key or an account, classified by whether it is in effect.
pub(super) enum ClassifiedRow<'t> {
    /// The row is in effect: its text without the import id.
    Committed(&'t str),
    /// The row belongs to an import that is not committed.
    Uncommitted,
    /// The row, or the entry of its import, can't be read.
    Damaged,
}

impl RingState {
    pub(super) fn classify_row<'t>(&self, text: &'t [u8]) -> ClassifiedRow<'t> {
        let text = std::str::from_utf8(text).ok().and_then(|text| text.split_once(' '));
        match text {
            Some(("-", rest)) => ClassifiedRow::Committed(rest),
            Some((row_import, rest)) if self.committed_imports.contains_key(row_import) => {
                ClassifiedRow::Committed(rest)
            }
            Some((row_import, _)) if self.unreadable_imports.contains(row_import.as_bytes()) => {
                ClassifiedRow::Damaged
            }
            Some((row_import, _)) if is_random_id(row_import) => ClassifiedRow::Uncommitted,
            _ => ClassifiedRow::Damaged,
        }
    }
}

/// Returns true if a text has the form of [`Redis::random_id`].
fn is_random_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Parses the field `history`, and returns the id of the change that led to `version`. `None` if
/// the field is missing, can't be read or is about an earlier version. The field stays at an
/// earlier version if a riskgate version that writes no change ids made the latest change.
fn parse_history_field(history: Option<String>, version: u64) -> Option<String> {
    let history = history?;
    let (change_version, id) = history.split_once(' ')?;
    (change_version.parse() == Ok(version)).then(|| id.to_owned())
}

/// Parses the entry of an import. Returns the import's id and number, and the version that its
/// commit led to (0 before the commit). `None` if the entry can't be read.
fn parse_import_entry(import: &[u8], entry: &[u8]) -> Option<(String, (u64, u64))> {
    let import = std::str::from_utf8(import).ok().filter(|import| is_random_id(import))?;
    let mut fields = std::str::from_utf8(entry).ok()?.split(' ').map(str::parse::<u64>);
    let (number, _, version) = (fields.next()?.ok()?, fields.next()?.ok()?, fields.next()?.ok()?);
    fields.next().is_none().then(|| (import.to_owned(), (number, version)))
}

fn is_change_member(member: &[u8]) -> bool {
    let text = std::str::from_utf8(member).unwrap_or_default();
    text.starts_with("key:") || text.starts_with("account:")
}

fn is_readable_row<R>(
    name: &[u8],
    row: &[u8],
    parse_row: impl Fn(&str, &str) -> Option<R>,
) -> bool {
    let (Ok(name), Ok(row)) = (std::str::from_utf8(name), std::str::from_utf8(row)) else {
        return false;
    };
    row.split_once(' ').is_some_and(|(_, row)| parse_row(name, row).is_some())
}
