//! Limits how many of something each client may hold at the same time, such as connections.
//!
//! Owns each client's count of units in use, and forgets a client whose count is 0. The caller
//! decides what a unit is, and what happens to a client at its limit.

use std::net::IpAddr;
use std::sync::Arc;

use dashmap::DashMap;

use crate::model::network::{ClientPrefix, Networks};

/// Counts the units in use by each client (an IPv4 address or an IPv6 /64). A client in one of the
/// exempt networks is not counted. All others have the same maximum.
pub struct PerClientLimit {
    max_per_client: usize,
    exempt_networks: Networks,
    units_by_client: DashMap<ClientPrefix, usize>,
}

/// The units that a client holds until the guard is dropped.
pub struct PerClientGuard {
    /// `None` for an exempt client.
    counted: Option<(Arc<PerClientLimit>, ClientPrefix)>,
    units: usize,
}

impl PerClientLimit {
    /// Allows each client `max_per_client` units at a time. Clients in `exempt_networks` are not
    /// counted.
    pub fn new(max_per_client: usize, exempt_networks: Networks) -> PerClientLimit {
        PerClientLimit { max_per_client, exempt_networks, units_by_client: DashMap::new() }
    }

    /// Counts one unit for the client at this address until the guard is dropped; `None` if the
    /// client is at its limit.
    pub fn acquire(self: &Arc<Self>, address: IpAddr) -> Option<PerClientGuard> {
        let mut guard = self.guard_without_units(address);
        guard.try_add(1).then_some(guard)
    }

    /// Returns a guard without a unit for the client at this address.
    pub fn guard_without_units(self: &Arc<Self>, address: IpAddr) -> PerClientGuard {
        let is_exempt = self.exempt_networks.contains(address);
        let counted = (!is_exempt).then(|| (Arc::clone(self), ClientPrefix::from(address)));
        PerClientGuard { counted, units: 0 }
    }
}

impl PerClientGuard {
    /// Counts more units until the guard is dropped. Returns false, and counts none of them, if the
    /// client would exceed its limit.
    pub fn try_add(&mut self, units: usize) -> bool {
        let Some((limit, client)) = &self.counted else { return true };
        let mut count = limit.units_by_client.entry(*client).or_insert(0);
        let is_allowed = *count + units <= limit.max_per_client;
        if is_allowed {
            *count += units;
            self.units += units;
        }
        drop(count);
        if !is_allowed {
            limit.forget_if_unused(client);
        }
        is_allowed
    }

    /// Releases so many of the units that the guard counts.
    pub fn release(&mut self, units: usize) {
        let units = units.min(self.units);
        self.units -= units;
        if let Some((limit, client)) = self.counted.as_ref().filter(|_| units > 0) {
            limit.units_by_client.remove_if_mut(client, |_, count| {
                *count -= units;
                *count == 0
            });
        }
    }
}

impl PerClientLimit {
    fn forget_if_unused(&self, client: &ClientPrefix) {
        self.units_by_client.remove_if(client, |_, count| *count == 0);
    }
}

impl Drop for PerClientGuard {
    fn drop(&mut self) {
        self.release(self.units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_gets_its_limit_and_no_more() {
        let exempt = Networks::parse(&["10.0.0.0/8".to_owned()]).unwrap();
        let limit = Arc::new(PerClientLimit::new(2, exempt));
        let acquire = |text: &str| limit.acquire(text.parse().unwrap());
        let (first, second) = (acquire("192.0.2.1").unwrap(), acquire("192.0.2.1").unwrap());
        assert!(acquire("192.0.2.1").is_none());
        assert!(acquire("192.0.2.2").is_some());
        drop(first);
        assert!(acquire("192.0.2.1").is_some());
        drop(second);
        assert!(limit.units_by_client.is_empty(), "a client that holds nothing is forgotten");
        let exempt: Vec<PerClientGuard> = (0..9).map(|_| acquire("10.1.1.1").unwrap()).collect();
        assert_eq!(exempt.len(), 9);
    }

    #[test]
    fn units_that_would_exceed_the_limit_are_not_counted() {
        let limit = Arc::new(PerClientLimit::new(10, Networks::default()));
        let begin = || limit.guard_without_units("192.0.2.1".parse().unwrap());
        let (mut first, mut second) = (begin(), begin());
        assert!(!first.try_add(11) && limit.units_by_client.is_empty());
        assert!(first.try_add(6) && !second.try_add(5) && second.try_add(4) && !first.try_add(1));
        drop(first);
        assert!(second.try_add(6) && !second.try_add(1));
        drop(second);
        assert!(limit.units_by_client.is_empty());
    }
}
