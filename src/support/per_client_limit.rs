//! Limits how many of something each client may hold at the same time, such as connections.
//!
//! Owns each client's count of units in use, and forgets a client whose count is 0. The caller
//! decides what a unit is, and what happens to a client at its limit.

use std::net::IpAddr;
use std::sync::Arc;

use dashmap::DashMap;

use crate::model::network::{ClientPrefix, Networks};

/// Counts the units in use by each client (an IPv4 address or an IPv6 /64). Every client has the
/// same maximum.
pub struct PerClientLimit {
    max_per_client: usize,
    exempt_networks: Networks,
    units_by_client: DashMap<ClientPrefix, usize>,
}

/// One unit that a client holds until the guard is dropped. `None` inside for an exempt client.
pub struct PerClientGuard(Option<(Arc<PerClientLimit>, ClientPrefix)>);

impl PerClientLimit {
    /// Allows each client `max` units at a time. Clients in `exempt` are not counted.
    pub fn new(max_per_client: usize, exempt_networks: Networks) -> PerClientLimit {
        PerClientLimit { max_per_client, exempt_networks, units_by_client: DashMap::new() }
    }

    /// Counts one unit for the client at this address until the guard is dropped; `None` if the
    /// client is at its limit.
    pub fn acquire(self: &Arc<Self>, address: IpAddr) -> Option<PerClientGuard> {
        if self.exempt_networks.contains(address) {
            return Some(PerClientGuard(None));
        }
        let client = ClientPrefix::from(address);
        let mut count = self.units_by_client.entry(client).or_insert(0);
        if *count >= self.max_per_client {
            return None;
        }
        *count += 1;
        drop(count);
        Some(PerClientGuard(Some((Arc::clone(self), client))))
    }
}

impl Drop for PerClientGuard {
    fn drop(&mut self) {
        let Some((limit, client)) = &self.0 else { return };
        limit.units_by_client.remove_if_mut(client, |_, count| {
            *count -= 1;
            *count == 0
        });
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
}
