//! Entries in the ring's collections on a server that riskgate did not write. They are reported and
//! otherwise ignored.
//!
//! riskgate detects lost rows by counting entries: each row has a member in the sorted set of
//! changes, and each key has a digest. If the counts don't agree, riskgate looks for entries that
//! it never writes, and no longer counts them. An entry that riskgate may have written is never
//! treated as foreign, because it may be all that is left of a lost row.

use std::collections::BTreeSet;

use super::key_names::{ACCOUNTS, CHANGES, DIGESTS, IMPORTS, KEYS};

/// The most foreign entries that are listed; the rest are only counted.
const MAX_LISTED_ENTRIES: usize = 3;

/// The number of entries in each collection: keys, digests, accounts, changes.
pub(super) type EntryCounts = [u64; 4];

/// Foreign entries: the collection and the name of each.
#[derive(Default)]
pub(super) struct ForeignEntries {
    pub(super) entries: BTreeSet<(&'static str, Vec<u8>)>,
    /// Imports whose entries can't be read.
    damaged_imports: BTreeSet<Vec<u8>>,
    /// The entry counts of the last read in which rows were lost: they disagreed even without the
    /// foreign entries.
    pub(super) inconsistent_counts: Option<EntryCounts>,
}

impl ForeignEntries {
    /// Returns true if the entry counts show no loss.
    pub(super) fn is_consistent(&self, counts: &EntryCounts) -> bool {
        let count_in = |wanted| {
            self.entries.iter().filter(|(collection, _)| *collection == wanted).count() as u64
        };
        let foreign = [KEYS, DIGESTS, ACCOUNTS, CHANGES].map(count_in);
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

    /// Replaces the imports that [`ForeignEntries::describe`] also lists.
    pub(super) fn record_damaged_imports(&mut self, imports: BTreeSet<Vec<u8>>) {
        self.damaged_imports = imports;
    }

    pub(super) fn describe(&self) -> Vec<String> {
        let imports = self.damaged_imports.iter().map(|name| (IMPORTS, name));
        let entries =
            self.entries.iter().map(|(collection, name)| (*collection, name)).chain(imports);
        let describe_entry = |(collection, name): (&str, &Vec<u8>)| {
            let name = name.escape_ascii();
            format!("{collection}: expected only what riskgate wrote, but found {name}; delete it")
        };
        let mut lines: Vec<String> =
            entries.clone().take(MAX_LISTED_ENTRIES).map(describe_entry).collect();
        let more = entries.count().saturating_sub(MAX_LISTED_ENTRIES);
        lines.extend((more > 0).then(|| format!("and {more} more such entries")));
        lines
    }
}
