//! What lies among the ring's entries on a server and is none of ours: told, and else ignored.
//!
//! Rows that were lost show by the numbers of entries: each row has a member in the sorted set of
//! changes, and each key a digest. Where the numbers do not agree, entries that riskgate never
//! writes are looked for, and left out of them from then on. One that it may have written is never
//! such an entry: nobody knows what was lost beside it.

use std::collections::BTreeSet;

use super::key_names::{ACCOUNTS, CHANGES, DIGESTS, IMPORTS, KEYS};

/// So many entries are told by name.
const NAMED: usize = 3;

/// How many entries each collection has: keys, digests, accounts, and when they changed.
pub(super) type EntryCounts = [u64; 4];

/// Entries that are none of ours: in which collection, and their names.
#[derive(Default)]
pub(super) struct ForeignEntries {
    pub(super) entries: BTreeSet<(&'static str, Vec<u8>)>,
    /// Imports whose entries can't be read.
    imports: BTreeSet<Vec<u8>>,
    /// The numbers that were found not to agree even without them: rows were lost.
    pub(super) inconsistent_counts: Option<EntryCounts>,
}

impl ForeignEntries {
    /// Whether nothing was lost, as far as numbers tell.
    pub(super) fn is_consistent(&self, counts: &EntryCounts) -> bool {
        let of = |collection| self.entries.iter().filter(|(of, _)| *of == collection).count();
        let foreign = [KEYS, DIGESTS, ACCOUNTS, CHANGES].map(|collection| of(collection) as u64);
        let [keys, digests, accounts, changed] =
            [0, 1, 2, 3].map(|at| counts[at].checked_sub(foreign[at]));
        keys.is_some()
            && keys == digests
            && changed.is_some()
            && changed == keys.zip(accounts).map(|(keys, accounts)| keys + accounts)
    }

    pub(super) fn contains(&self, collection: &'static str, name: &[u8]) -> bool {
        !self.entries.is_empty() && self.entries.contains(&(collection, name.to_owned()))
    }

    pub(super) fn record_damaged_imports(&mut self, imports: BTreeSet<Vec<u8>>) {
        self.imports = imports;
    }

    pub(super) fn lines(&self) -> Vec<String> {
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
