//! Operations on DNS facts.

use super::open::Store;
use crate::store::error::StoreError;
use crate::store::rows::DnsFactRow;

impl Store {
    /// Saves DNS facts, and replaces earlier facts of the same names. The store keeps the facts of
    /// the [`MAX_DNS_FACTS`](crate::store::MAX_DNS_FACTS) names that were written last.
    pub fn save_dns_facts(&mut self, facts: &[DnsFactRow]) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.save_dns_facts(facts),
            Store::Redis(store) => store.save_dns_facts(facts),
        }
    }

    /// Returns a page of the DNS facts that were written after version `after_version`, in the
    /// order of writing. The number is the version up to which the page reads. To read all facts,
    /// repeat the call with the returned version until the version stays the same. If
    /// `after_version` is higher than the store's version, the store was replaced or restored from
    /// a backup, and the pages start from the oldest fact.
    pub fn read_dns_facts_page(
        &mut self,
        after_version: u64,
    ) -> Result<(Vec<DnsFactRow>, u64), StoreError> {
        match self {
            Store::Sqlite(store) => store.read_dns_facts_page(after_version),
            Store::Redis(store) => store.read_dns_facts_page(after_version),
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
