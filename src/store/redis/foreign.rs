//! Foreign entries: entries that riskgate did not write, in the Redis collections that hold keys
//! and accounts. riskgate reports foreign entries, and otherwise ignores them.
//!
//! riskgate detects lost rows by counting entries: each row has a member in the sorted set of
//! changes, and each key has a digest. If the counts disagree, riskgate looks for entries of a form
//! that it never writes, and leaves these out of the counts. An entry that riskgate may have
//! written is never treated as foreign, because it may be all that is left of a lost row.

use std::collections::BTreeSet;

use super::key_names::{ACCOUNTS, API_KEYS, CHANGES, DIGESTS, IMPORTS};

/// The most foreign entries that are listed; the rest are only counted.
const MAX_LISTED_FOREIGN_ENTRIES: usize = 3;

/// The number of entries in each collection: keys, digests, accounts, changes.
pub(super) type EntryCounts = [u64; 4];

/// The foreign entries that the latest scan found.
#[derive(Default)]
pub(super) struct ForeignEntries {
    pub(super) collections_and_names: BTreeSet<(&'static str, Vec<u8>)>,
    /// Imports whose entries can't be read, as the latest read found them.
    pub(super) unreadable_imports: BTreeSet<Vec<u8>>,
    /// The counts of keys, digests, accounts and changes, if they disagree with each other even
    /// without the foreign entries: rows were then lost. While the counts stay the same, there is
    /// no further scan.
    pub(super) inconsistent_counts: Option<EntryCounts>,
}

impl ForeignEntries {
    /// Returns true if the counts, without the foreign entries, show that no row was lost.
    pub(super) fn are_counts_consistent(&self, counts: &EntryCounts) -> bool {
        let count_in = |wanted| {
            self.collections_and_names
                .iter()
                .filter(|(collection, _)| *collection == wanted)
                .count() as u64
        };
        let foreign = [API_KEYS, DIGESTS, ACCOUNTS, CHANGES].map(count_in);
        let [keys, digests, accounts, changed] =
            [0, 1, 2, 3].map(|at| counts[at].checked_sub(foreign[at]));
        keys.is_some()
            && keys == digests
            && changed.is_some()
            && changed == keys.zip(accounts).map(|(keys, accounts)| keys + accounts)
    }

    pub(super) fn contains(&self, collection: &'static str, name: &[u8]) -> bool {
        !self.collections_and_names.is_empty()
            && self.collections_and_names.contains(&(collection, name.to_owned()))
    }

    pub(super) fn describe_entries(&self) -> Vec<String> {
        // Without the entry of their import, keys count as never imported.
        let of_imports = "restore its value, or delete it if it is no id of an import of keys";
        let imports = self.unreadable_imports.iter().map(|name| (IMPORTS, name, of_imports));
        let entries = self
            .collections_and_names
            .iter()
            .map(|(collection, name)| (*collection, name, "delete it"))
            .chain(imports);
        let describe_entry = |(collection, name, advice): (&str, &Vec<u8>, &str)| {
            let name = name.escape_ascii();
            format!("{collection}: expected only what riskgate wrote, but found {name}; {advice}")
        };
        let mut lines: Vec<String> =
            entries.clone().take(MAX_LISTED_FOREIGN_ENTRIES).map(describe_entry).collect();
        let more = entries.count().saturating_sub(MAX_LISTED_FOREIGN_ENTRIES);
        lines.extend((more > 0).then(|| format!("and {more} more such entries")));
        lines
    }
}
