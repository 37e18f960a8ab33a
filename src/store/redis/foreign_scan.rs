//! Looks for entries on a server that riskgate did not write.

use std::collections::{BTreeSet, HashSet};

use super::connection::Redis;
use super::foreign::EntryCounts;
use super::key_names::{ACCOUNTS, API_KEYS, CHANGES, DIGESTS, READ_RING_OPERATION};
use super::rows::{parse_account, parse_digest, parse_key};
use crate::store::error::StoreError;

impl Redis {
    /// Scans the collections for foreign entries, and records them. Called if the entry counts
    /// disagree. Returns false without a scan if the counts are those that the last scan could not
    /// explain.
    pub(super) fn scan_foreign_entries(
        &mut self,
        counts: &EntryCounts,
    ) -> Result<bool, StoreError> {
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
            let is_ours = match hash {
                // A row that can't be read but has a change may be a damaged row of riskgate.
                API_KEYS => {
                    is_readable_row(&name, &value, parse_key)
                        || members.contains(&with_prefix("key:", &name))
                }
                ACCOUNTS => {
                    is_readable_row(&name, &value, parse_account)
                        || members.contains(&with_prefix("account:", &name))
                }
                _ => std::str::from_utf8(&name).is_ok_and(|hex| parse_digest(hex).is_some()),
            };
            if !is_ours {
                entries.insert((hash, name));
            }
        }
        self.foreign_entries.collections_and_names = entries;
        Ok(true)
    }

    /// Records entry counts that disagree even without foreign entries, so that later reads don't
    /// scan again while the counts stay the same. If the counts changed during the scan, records
    /// nothing, and the next read scans again.
    pub(super) fn record_inconsistent_counts(&mut self, before: &EntryCounts, now: &EntryCounts) {
        self.foreign_entries.inconsistent_counts = (before == now).then_some(*now);
    }
}

fn is_change_member(member: &[u8]) -> bool {
    let text = std::str::from_utf8(member).unwrap_or_default();
    text.starts_with("key:") || text.starts_with("account:")
}

fn with_prefix(prefix: &str, name: &[u8]) -> Vec<u8> {
    [prefix.as_bytes(), name].concat()
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
