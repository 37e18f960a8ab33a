//! DNS facts.

use crate::store::error::StoreError;
use crate::store::rows::DnsFactRow;

/// What both kinds of store do with DNS facts.
pub trait DnsFactBackend {
    /// Saves DNS facts, and replaces earlier facts of the same names. The store keeps the facts of
    /// the [`MAX_DNS_FACTS`](crate::store::MAX_DNS_FACTS) names that were written last.
    fn save_dns_facts(&mut self, facts: &[DnsFactRow]) -> Result<(), StoreError>;

    /// Returns a page of the DNS facts that were written after version `after_version`, in the
    /// order of writing, and the version of the page's last fact. To read all facts, repeat the
    /// call with the returned version until the version stays the same. If `after_version` is
    /// higher than the store's version, the store was replaced or restored from a backup, and the
    /// pages start from the oldest fact.
    fn read_dns_facts_page(
        &mut self,
        after_version: u64,
    ) -> Result<(Vec<DnsFactRow>, u64), StoreError>;

    /// The DNS fact of a name, if the store keeps one.
    fn find_dns_fact(&mut self, name: &str) -> Result<Option<DnsFactRow>, StoreError>;
}
