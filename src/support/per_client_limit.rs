//! How much of something each address has at the same time.
//!
//! Owns the counts, for as long as somebody has something, and keeps nothing of who left. What is
//! counted, and what happens to whoever wants too much, is for those who ask.

use std::net::IpAddr;
use std::sync::Arc;

use dashmap::DashMap;

use crate::model::network::{ClientPrefix, Networks};

/// What each address has (each /64 of IPv6), up to the same number for all.
pub struct PerClientLimit {
    max: usize,
    exempt: Networks,
    in_use: DashMap<ClientPrefix, usize>,
}

/// One of an address's share, until it is dropped.
pub struct PerClientGuard(Option<(Arc<PerClientLimit>, ClientPrefix)>);

impl PerClientLimit {
    /// Nobody has anything yet, and may have `most`; of those who are exempt nothing is counted.
    pub fn new(max: usize, exempt: Networks) -> PerClientLimit {
        PerClientLimit { max, exempt, in_use: DashMap::new() }
    }

    /// One more for this address; `None` if it has its share.
    pub fn acquire(self: &Arc<Self>, address: IpAddr) -> Option<PerClientGuard> {
        if self.exempt.contains(address) {
            return Some(PerClientGuard(None));
        }
        let site = ClientPrefix::from(address);
        let mut taken = self.in_use.entry(site).or_insert(0);
        if *taken >= self.max {
            return None;
        }
        *taken += 1;
        drop(taken);
        Some(PerClientGuard(Some((Arc::clone(self), site))))
    }
}

impl Drop for PerClientGuard {
    fn drop(&mut self) {
        let Some((shares, site)) = &self.0 else { return };
        shares.in_use.remove_if_mut(site, |_, taken| {
            *taken -= 1;
            *taken == 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_gets_its_limit_and_no_more() {
        let exempt = Networks::parse(&["10.0.0.0/8".to_owned()]).unwrap();
        let shares = Arc::new(PerClientLimit::new(2, exempt));
        let take = |text: &str| shares.acquire(text.parse().unwrap());
        let (first, second) = (take("192.0.2.1").unwrap(), take("192.0.2.1").unwrap());
        assert!(take("192.0.2.1").is_none());
        assert!(take("192.0.2.2").is_some());
        drop(first);
        assert!(take("192.0.2.1").is_some());
        drop(second);
        assert!(shares.in_use.is_empty(), "nothing is kept of who left");
        let exempt: Vec<PerClientGuard> = (0..9).map(|_| take("10.1.1.1").unwrap()).collect();
        assert_eq!(exempt.len(), 9);
    }
}
