//! Operations on DNS facts.

use super::open::Store;
use crate::store::error::StoreError;
use crate::store::rows::DnsFactRow;

impl Store {
    /// Saves DNS facts and replaces earlier facts of the same names. The store keeps the
    /// [`MAX_LEARNED`](crate::store::MAX_LEARNED) names written last.
    pub fn save_dns_facts(&mut self, rows: &[DnsFactRow]) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.save_dns_facts(rows),
            Store::Redis(store) => store.save_dns_facts(rows),
        }
    }

    /// Returns a page of the facts that were written after version `since`, in the order of
    /// writing, and the version that the page leads to. Call it again with that version until the
    /// version no longer changes. If `since` is newer than the store, the store was replaced or set
    /// back, and the pages start from the oldest fact.
    pub fn dns_facts_since(&mut self, since: u64) -> Result<(Vec<DnsFactRow>, u64), StoreError> {
        match self {
            Store::Sqlite(store) => store.dns_facts_since(since),
            Store::Redis(store) => store.dns_facts_since(since),
        }
    }

    /// The DNS fact of a name, if the store keeps one.
    pub fn find_dns_fact(&mut self, name: &str) -> Result<Option<DnsFactRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.find_dns_fact(name),
            Store::Redis(store) => store.find_dns_fact(name),
        }
    }
}
