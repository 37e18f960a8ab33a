//! How the ring stands on a server at one moment: its mark, the imports that were committed, and
//! whether all rows are there.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use redis::Value;

use super::connection::{BULK_TIMEOUT, Redis};
use super::foreign::EntryCounts;
use super::key_names::RING_META;
use super::key_names::{ACCOUNTS, CHANGES, DIGESTS, IMPORTS, KEYS};
use crate::store::error::StoreError;
use crate::store::rows::RingVersion;

/// The ring as it stands at one moment.
pub(super) struct RingState {
    pub(super) ring_version: RingVersion,
    /// The change that led to the version that was asked for, if it is known.
    pub(super) since_change: Option<String>,
    /// Imports that were committed: how each is numbered, and the version that it led to.
    pub(super) imports: HashMap<String, (u64, u64)>,
    /// Imports of which nobody knows whether they were.
    damaged_imports: BTreeSet<Vec<u8>>,
    counts: EntryCounts,
}

impl Redis {
    /// None without a mark. It is sure then that no row was lost beside it: rows are never deleted,
    /// so there are as many as ever changed.
    pub(super) fn ring_state(
        &mut self,
        since: u64,
        timeout: Duration,
    ) -> Result<Option<RingState>, StoreError> {
        let Some(standing) = self.read_ring_state(since, timeout)? else { return Ok(None) };
        let standing = match self.foreign.is_consistent(&standing.counts) {
            true => standing,
            false => self.ring_state_without_foreign(since, &standing.counts)?,
        };
        self.foreign.record_damaged_imports(standing.damaged_imports.clone());
        Ok(Some(standing))
    }

    fn ring_state_without_foreign(
        &mut self,
        since: u64,
        before: &EntryCounts,
    ) -> Result<RingState, StoreError> {
        let [keys, _, accounts, _] = before;
        let lost = self.lost_rows_error(&format!("{keys} keys and {accounts} accounts"));
        if !self.find_foreign_entries(before)? {
            return Err(lost);
        }
        let now = self
            .read_ring_state(since, BULK_TIMEOUT)?
            .ok_or_else(|| self.lost_rows_error("no mark"))?;
        match self.foreign.is_consistent(&now.counts) {
            true => Ok(now),
            false => {
                self.record_loss(before, &now.counts);
                Err(lost)
            }
        }
    }

    fn read_ring_state(
        &mut self,
        since: u64,
        timeout: Duration,
    ) -> Result<Option<RingState>, StoreError> {
        const DOING: &str = "reading the key version";
        type Text = Option<Vec<u8>>;
        type Mark = (Text, Option<u64>, Text, Text);
        type Reply = (Mark, u64, u64, u64, u64, HashMap<Vec<u8>, Vec<u8>>);
        let mut read = redis::pipe();
        // One moment for all: a write in between would look like a loss.
        read.cmd("MULTI");
        read.cmd("HMGET").arg(RING_META).arg("store_id").arg("version").arg("history");
        read.arg(format!("change:{since}"));
        read.cmd("HLEN").arg(KEYS).cmd("HLEN").arg(DIGESTS).cmd("HLEN").arg(ACCOUNTS);
        read.cmd("ZCARD").arg(CHANGES).cmd("HGETALL").arg(IMPORTS);
        read.cmd("EXEC");
        let reply = self.query_within(DOING, timeout, &read)?.pop().unwrap_or(Value::Nil);
        let (mark, keys, digests, accounts, changed, imports): Reply =
            self.parse_reply(DOING, reply)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (store_id, version, history, since) = match mark {
            (None, ..) => return Ok(None),
            (Some(store_id), Some(version), history, since) => (store_id, version, history, since),
            _ => return Err(self.lost_rows_error(&format!("{keys} keys and {accounts} accounts"))),
        };
        let history = change_id_of(history.map(text), version);
        let mut standing = RingState {
            ring_version: RingVersion { store_id: text(store_id), version, change_id: history },
            since_change: since.map(text),
            imports: HashMap::new(),
            damaged_imports: BTreeSet::new(),
            counts: [keys, digests, accounts, changed],
        };
        for (import, entry) in imports {
            match parse_import(&import, &entry) {
                Some((import, (number, version @ 1..))) => {
                    standing.imports.insert(import, (number, version));
                }
                Some(_) => {}
                None => drop(standing.damaged_imports.insert(import)),
            }
        }
        Ok(Some(standing))
    }
}

/// How a row stands.
pub(super) enum RowStatus<'t> {
    /// Without what says where it came from.
    Live(&'t str),
    /// Its import was not committed.
    Uncommitted,
    /// It is none of ours.
    Damaged,
}

impl RingState {
    pub(super) fn row_status<'t>(&self, text: &'t [u8]) -> RowStatus<'t> {
        let text = std::str::from_utf8(text).ok().and_then(|text| text.split_once(' '));
        match text {
            Some(("-", rest)) => RowStatus::Live(rest),
            Some((born, rest)) if self.imports.contains_key(born) => RowStatus::Live(rest),
            Some((born, _)) if self.damaged_imports.contains(born.as_bytes()) => RowStatus::Damaged,
            Some((born, _)) if is_id(born) => RowStatus::Uncommitted,
            _ => RowStatus::Damaged,
        }
    }
}

/// Whether a text is one that [`Redis::random_id`] draws.
fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The id of the change that led to a version; none where a riskgate that knows no ids wrote since.
fn change_id_of(history: Option<String>, version: u64) -> Option<String> {
    let history = history?;
    let (of, id) = history.split_once(' ')?;
    (of.parse() == Ok(version)).then(|| id.to_owned())
}

/// An import with its number, and the version that it led to, 0 before; none if it is none of ours.
fn parse_import(import: &[u8], entry: &[u8]) -> Option<(String, (u64, u64))> {
    let import = std::str::from_utf8(import).ok().filter(|import| is_id(import))?;
    let mut words = std::str::from_utf8(entry).ok()?.split(' ').map(str::parse::<u64>);
    let (number, _, version) = (words.next()?.ok()?, words.next()?.ok()?, words.next()?.ok()?);
    words.next().is_none().then(|| (import.to_owned(), (number, version)))
}

impl Redis {
    pub(super) fn lost_rows_error(&self, found: &str) -> StoreError {
        StoreError::Unusable {
            location: self.place.clone(),
            expected: "the keys and accounts that were written",
            found: found.to_owned(),
        }
    }
}
