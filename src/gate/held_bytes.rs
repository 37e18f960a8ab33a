//! The limits of request bodies, and the memory for those that are arriving: bounded for all
//! clients together, and for each.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::model::network::Networks;
use crate::support::per_client_limit::{PerClientGuard, PerClientLimit};

/// The limits of request bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyOptions {
    /// The most bytes of a body.
    pub max_bytes: usize,
    /// The time for a body that is held to arrive, and for each part of a longer one.
    pub timeout: Duration,
    /// The most bytes of all bodies that are arriving and held meanwhile.
    pub max_held_bytes: usize,
}

/// One client may use this part of the memory.
const CLIENT_SHARE: usize = 16;

/// The memory for bodies that wait for a client, to arrive or to be taken: `listen.max_held_bytes`.
pub struct HeldBytes {
    max_bytes: usize,
    used_bytes: AtomicUsize,
    per_client: Arc<PerClientLimit>,
}

/// The memory for one body, until the guard is dropped.
pub struct HeldBytesGuard {
    held_bytes: Arc<HeldBytes>,
    /// `None` for a client without an address, which has no limit of its own.
    of_client: Option<PerClientGuard>,
    bytes: usize,
}

impl HeldBytes {
    /// Allows `max_bytes` for all clients, and a sixteenth of them for each. Clients in `exempt`
    /// have no limit of their own.
    pub fn new(max_bytes: usize, exempt: Networks) -> HeldBytes {
        let per_client = Arc::new(PerClientLimit::new(max_bytes.div_ceil(CLIENT_SHARE), exempt));
        HeldBytes { max_bytes, used_bytes: AtomicUsize::new(0), per_client }
    }

    /// Returns the bytes that all bodies hold.
    pub fn used(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Returns the guard of a body that needs no memory yet.
    pub fn begin(self: &Arc<Self>, client_address: Option<IpAddr>) -> HeldBytesGuard {
        let of_client = client_address.map(|address| self.per_client.guard_without_units(address));
        HeldBytesGuard { held_bytes: Arc::clone(self), of_client, bytes: 0 }
    }
}

impl HeldBytesGuard {
    /// Takes as many bytes as the guard lacks to hold `bytes`. Returns false if they would exceed a
    /// limit.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else {
            return true;
        };
        let (used, max) = (&self.held_bytes.used_bytes, self.held_bytes.max_bytes);
        let add = |used: usize| used.checked_add(more).filter(|sum| *sum <= max);
        if used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return false;
        }
        self.bytes += more;
        self.of_client.as_mut().is_none_or(|client| client.try_add(more))
    }
}

impl Drop for HeldBytesGuard {
    fn drop(&mut self) {
        self.held_bytes.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_gets_a_sixteenth_and_all_get_the_whole() {
        let exempt = Networks::parse(&["10.0.0.0/8".to_owned()]).unwrap();
        let held = Arc::new(HeldBytes::new(160, exempt));
        let begin = |address: &str| held.begin(Some(address.parse().unwrap()));
        let (mut first, mut second) = (begin("192.0.2.1"), begin("192.0.2.1"));
        assert!(first.grow_to(4) && first.grow_to(4) && first.grow_to(7));
        assert!(!second.grow_to(4), "the client has 7 of 10");
        drop(second);
        let mut other = begin("192.0.2.2");
        assert!(other.grow_to(10));
        let mut exempt = begin("10.0.0.1");
        assert!(exempt.grow_to(160 - 17) && !exempt.grow_to(160 - 16));
        assert!(!begin("192.0.2.3").grow_to(1), "the whole is used");
        drop((first, other, exempt));
        assert_eq!(held.used(), 0);
    }
}
