//! Addresses of MX hosts that the table lists, but that real names use too. Such an address raises
//! the score of no name: a hosting company shares one address among its customers.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{PoisonError, RwLock};

use super::fact::{is_before_stale_limit, stale_limit};
use crate::store::{DnsFactRow, Store, StoreError};
use crate::table::Table;

/// The addresses in the table's list of MX addresses that real names use too, as far as the learned
/// facts tell. The length of the list bounds their number.
#[derive(Default)]
pub(super) struct SharedAddresses(RwLock<SharedAddressesOfTable>);

#[derive(Default)]
struct SharedAddressesOfTable {
    /// The version of the table whose lists say which addresses are listed, and which names are
    /// real.
    table_version: String,
    /// For each shared address, until when it counts as shared, in seconds since 1970.
    until_by_address: HashMap<IpAddr, i64>,
}

impl SharedAddresses {
    /// Whether a real name uses this address, or may use it: for another version of the table than
    /// the known one, riskgate does not know yet, so the answer is true for every address.
    pub(super) fn may_be_used_by_real_names(
        &self,
        address: IpAddr,
        table_version: &str,
        now: i64,
    ) -> bool {
        let shared = self.0.read().unwrap_or_else(PoisonError::into_inner);
        shared.table_version != table_version
            || shared.until_by_address.get(&address).is_some_and(|until| now < *until)
    }

    /// Whether the addresses are those for this version of the table.
    pub(super) fn is_of_table(&self, table_version: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).table_version == table_version
    }

    /// Records which addresses a fact shows to be shared. Does nothing if the addresses are those
    /// for another version of the table.
    pub(super) fn record_fact(&self, fact: &DnsFactRow, table: &Table, now: i64) {
        for address in find_shared_addresses(fact, table, now) {
            let mut shared = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if shared.table_version == table.version() {
                let until = shared.until_by_address.entry(address).or_default();
                *until = (*until).max(stale_limit(fact.expires_at));
            }
        }
    }

    /// Finds out again which addresses are shared, from these facts and this table, and replaces
    /// the known ones. Until this function returns, every address counts as shared with this
    /// table, so none raises a score.
    pub(super) fn adopt_table(
        &self,
        table: &Table,
        facts: impl Iterator<Item = DnsFactRow>,
        now: i64,
    ) {
        let mut until_by_address: HashMap<IpAddr, i64> = HashMap::new();
        for fact in facts {
            for address in find_shared_addresses(&fact, table, now) {
                let until = until_by_address.entry(address).or_default();
                *until = (*until).max(stale_limit(fact.expires_at));
            }
        }
        let mut shared = self.0.write().unwrap_or_else(PoisonError::into_inner);
        shared.until_by_address = until_by_address;
        table.version().clone_into(&mut shared.table_version);
    }
}

/// The addresses in the table's list of MX addresses that real names use too, as far as the facts
/// in a store tell. Reads all facts. `now` is in seconds since 1970.
///
/// # Errors
/// If the store fails.
pub fn find_shared_addresses_in_store(
    store: &mut Store,
    table: &Table,
    now: i64,
) -> Result<HashSet<IpAddr>, StoreError> {
    let mut shared = HashSet::new();
    let mut version = 0;
    loop {
        let (facts, next) = store.read_dns_facts_page(version)?;
        let facts = facts.iter().filter(|fact| is_before_stale_limit(fact.expires_at, now));
        shared.extend(facts.flat_map(|fact| find_shared_addresses(fact, table, now)));
        if std::mem::replace(&mut version, next) == next {
            return Ok(shared);
        }
    }
}

/// The addresses of a fact that are in the table's list of MX addresses; none unless the table
/// knows the fact's name or MX host as real.
fn find_shared_addresses<'f>(
    fact: &'f DnsFactRow,
    table: &'f Table,
    now: i64,
) -> impl Iterator<Item = IpAddr> + 'f {
    let is_listed = |address: &IpAddr| table.is_listed_mx_address(*address);
    let is_real = fact.addresses.iter().any(is_listed)
        && [&fact.mx, &fact.name].into_iter().any(|name| table.is_known_as_real(name, now));
    fact.addresses.iter().copied().filter(move |address| is_real && is_listed(address))
}
