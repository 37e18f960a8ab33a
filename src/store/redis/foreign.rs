//! What lies among the ring's entries on a server and is none of ours: told, and else ignored.
//!
//! Rows that were lost show by the numbers of entries: each row has a member in the sorted set of
//! changes, and each key a digest. Where the numbers do not agree, entries that riskgate never
//! writes are looked for, and left out of them from then on. One that it may have written is never
//! such an entry: nobody knows what was lost beside it.

use std::collections::{BTreeSet, HashSet};

use super::super::StoreError;
use super::Redis;
use super::ring::{ACCOUNTS, CHANGED, DIGESTS, IMPORTS, READING, ROWS};
use super::rows::{account_row, digest, key_row};

/// So many entries are told by name.
const NAMED: usize = 3;

/// How many entries each collection has: keys, digests, accounts, and when they changed.
pub(super) type Counts = [u64; 4];

/// Entries that are none of ours: in which collection, and their names.
#[derive(Default)]
pub(super) struct Foreign {
    entries: BTreeSet<(&'static str, Vec<u8>)>,
    /// Imports whose entries can't be read.
    imports: BTreeSet<Vec<u8>>,
    /// The numbers that were found not to agree even without them: rows were lost.
    lost_at: Option<Counts>,
}

impl Foreign {
    /// Whether nothing was lost, as far as numbers tell.
    pub(super) fn agree(&self, counts: &Counts) -> bool {
        let of = |collection| self.entries.iter().filter(|(of, _)| *of == collection).count();
        let foreign = [ROWS, DIGESTS, ACCOUNTS, CHANGED].map(|collection| of(collection) as u64);
        let [keys, digests, accounts, changed] =
            [0, 1, 2, 3].map(|at| counts[at].checked_sub(foreign[at]));
        keys.is_some()
            && keys == digests
            && changed.is_some()
            && changed == keys.zip(accounts).map(|(keys, accounts)| keys + accounts)
    }

    pub(super) fn holds(&self, collection: &'static str, name: &[u8]) -> bool {
        !self.entries.is_empty() && self.entries.contains(&(collection, name.to_owned()))
    }

    pub(super) fn note_imports(&mut self, imports: BTreeSet<Vec<u8>>) {
        self.imports = imports;
    }

    fn lines(&self) -> Vec<String> {
        let imports = self.imports.iter().map(|name| (IMPORTS, name));
        let all = self.entries.iter().map(|(of, name)| (*of, name)).chain(imports);
        let line = |(of, name): (&str, &Vec<u8>)| {
            let name = name.escape_ascii();
            format!("{of}: expected only what riskgate wrote, but found {name}; delete it")
        };
        let mut lines: Vec<String> = all.clone().take(NAMED).map(line).collect();
        let more = all.count().saturating_sub(NAMED);
        lines.extend((more > 0).then(|| format!("and {more} more such entries")));
        lines
    }
}

impl Redis {
    /// What lies beside what riskgate wrote, in words.
    pub(in super::super) fn foreign_entries(&self) -> Vec<String> {
        self.foreign.lines()
    }

    /// Looks for what is foreign where numbers do not agree; true if they may do so by now.
    pub(super) fn look_for_foreign(&mut self, counts: &Counts) -> Result<bool, StoreError> {
        if self.foreign.lost_at.as_ref() == Some(counts) {
            return Ok(false);
        }
        let mut rows = Vec::new();
        // Before the changes: what is added meanwhile is in both.
        for hash in [ROWS, DIGESTS, ACCOUNTS] {
            self.scan_pairs(hash, |name, value| rows.push((hash, name, value)))?;
        }
        let mut read = redis::pipe();
        read.cmd("ZRANGEBYSCORE").arg(CHANGED).arg("-inf").arg("+inf");
        let members: HashSet<Vec<u8>> = self.read(READING, &read)?;
        let others = members.iter().filter(|member| !is_member(member));
        let mut entries: BTreeSet<_> = others.map(|member| (CHANGED, member.clone())).collect();
        for (hash, name, value) in rows {
            let is_ours = match hash {
                // A row that can't be read may have been harmed.
                ROWS => is_row(&name, &value, key_row) || members.contains(&joined("key:", &name)),
                ACCOUNTS => {
                    is_row(&name, &value, account_row)
                        || members.contains(&joined("account:", &name))
                }
                _ => std::str::from_utf8(&name).is_ok_and(|hex| digest(hex).is_some()),
            };
            if !is_ours {
                entries.insert((hash, name));
            }
        }
        self.foreign.entries = entries;
        Ok(true)
    }

    /// Takes note of numbers that do not agree: as long as they stay so, nobody looks again.
    pub(super) fn note_loss(&mut self, before: &Counts, now: &Counts) {
        self.foreign.lost_at = (before == now).then_some(*now);
    }
}

fn is_member(member: &[u8]) -> bool {
    let text = std::str::from_utf8(member).unwrap_or_default();
    text.starts_with("key:") || text.starts_with("account:")
}

fn joined(head: &str, name: &[u8]) -> Vec<u8> {
    [head.as_bytes(), name].concat()
}

fn is_row<R>(name: &[u8], row: &[u8], read: impl Fn(&str, &str) -> Option<R>) -> bool {
    let (Ok(name), Ok(row)) = (std::str::from_utf8(name), std::str::from_utf8(row)) else {
        return false;
    };
    row.split_once(' ').is_some_and(|(_, row)| read(name, row).is_some())
}
