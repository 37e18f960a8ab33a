//! Looks for entries on a server that are none of ours.

use std::collections::{BTreeSet, HashSet};

use super::connection::Redis;
use super::foreign::Counts;
use super::key_names::{ACCOUNTS, CHANGED, DIGESTS, READING, ROWS};
use super::rows::{account_row, digest, key_row};
use crate::store::error::StoreError;

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
