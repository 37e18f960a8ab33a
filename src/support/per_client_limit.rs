//! How much of something each address has at the same time.
//!
//! Owns the counts, for as long as somebody has something, and keeps nothing of who left. What is
//! counted, and what happens to whoever wants too much, is for those who ask.

use std::net::IpAddr;
use std::sync::Arc;

use dashmap::DashMap;

use crate::model::network::{Networks, Site};

/// What each address has (each /64 of IPv6), up to the same number for all.
pub struct Shares {
    most: usize,
    exempt: Networks,
    taken: DashMap<Site, usize>,
}

/// One of an address's share, until it is dropped.
pub struct Share(Option<(Arc<Shares>, Site)>);

impl Shares {
    /// Nobody has anything yet, and may have `most`; of those who are exempt nothing is counted.
    pub fn new(most: usize, exempt: Networks) -> Shares {
        Shares { most, exempt, taken: DashMap::new() }
    }

    /// One more for this address; `None` if it has its share.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Option<Share> {
        if self.exempt.contains(address) {
            return Some(Share(None));
        }
        let site = Site::from(address);
        let mut taken = self.taken.entry(site).or_insert(0);
        if *taken >= self.most {
            return None;
        }
        *taken += 1;
        drop(taken);
        Some(Share(Some((Arc::clone(self), site))))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Some((shares, site)) = &self.0 else { return };
        shares.taken.remove_if_mut(site, |_, taken| {
            *taken -= 1;
            *taken == 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_share_and_no_more() {
        let exempt = Networks::parse(&["10.0.0.0/8".to_owned()]).unwrap();
        let shares = Arc::new(Shares::new(2, exempt));
        let take = |text: &str| shares.take(text.parse().unwrap());
        let (first, second) = (take("192.0.2.1").unwrap(), take("192.0.2.1").unwrap());
        assert!(take("192.0.2.1").is_none());
        assert!(take("192.0.2.2").is_some());
        drop(first);
        assert!(take("192.0.2.1").is_some());
        drop(second);
        assert!(shares.taken.is_empty(), "nothing is kept of who left");
        let exempt: Vec<Share> = (0..9).map(|_| take("10.1.1.1").unwrap()).collect();
        assert_eq!(exempt.len(), 9);
    }
}
