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

    /// Releases `units` of the units that the guard counts, or all if it counts fewer.
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
mod tests;
