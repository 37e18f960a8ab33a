//! Limits how many batches are in memory at the same time.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::model::network::Networks;
use crate::model::refusal::Refusal;
use crate::support::per_client_limit::{PerClientGuard, PerClientLimit};

/// The most batches at the same time. It bounds their bodies to 64 MiB.
const MAX_BATCHES: usize = 256;
/// The most batches of one client (an IPv4 address or an IPv6 /64) at the same time.
const MAX_BATCHES_PER_CLIENT: usize = 16;

/// The permits for batches.
pub struct BatchPermits {
    permits: Semaphore,
    per_client: Arc<PerClientLimit>,
}

/// The permit for one batch, from the wait for its body to its answer.
pub struct BatchPermit<'a> {
    _permit: SemaphorePermit<'a>,
    _client_guard: Option<PerClientGuard>,
}

impl BatchPermits {
    /// Creates the permits. Clients in `exempt_networks` have no limit of their own.
    pub fn new(exempt_networks: Networks) -> BatchPermits {
        BatchPermits {
            permits: Semaphore::new(MAX_BATCHES),
            per_client: Arc::new(PerClientLimit::new(MAX_BATCHES_PER_CLIENT, exempt_networks)),
        }
    }

    /// Returns a permit for one more batch of this client.
    ///
    /// # Errors
    /// Refuses a client that has too many. If all clients together have too many, riskgate fails.
    pub fn acquire(&self, client: Option<IpAddr>) -> Result<BatchPermit<'_>, Refusal> {
        let too_many = Refusal::TooManyRequests { retry_after_seconds: 1 };
        let client_guard = match client {
            Some(address) => Some(self.per_client.acquire(address).ok_or(too_many)?),
            None => None,
        };
        let permit = self.permits.try_acquire().map_err(|_| Refusal::Internal)?;
        Ok(BatchPermit { _permit: permit, _client_guard: client_guard })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_leaves_places_for_others_and_a_trusted_proxy_is_no_client() {
        let proxy: IpAddr = [10, 0, 0, 1].into();
        let permits = BatchPermits::new(Networks::parse(&[proxy.to_string()]).unwrap());
        let client = |number: u8| Some(IpAddr::from([192, 0, 2, number]));
        let mut held: Vec<BatchPermit<'_>> =
            (0..MAX_BATCHES_PER_CLIENT).map(|_| permits.acquire(client(1)).ok().unwrap()).collect();
        let refused = permits.acquire(client(1)).err();
        assert_eq!(refused, Some(Refusal::TooManyRequests { retry_after_seconds: 1 }));
        held.push(permits.acquire(client(2)).ok().unwrap());
        while held.len() < MAX_BATCHES {
            held.push(permits.acquire(Some(proxy)).ok().unwrap());
        }
        // Nobody is to blame for that.
        assert_eq!(permits.acquire(client(3)).err(), Some(Refusal::Internal));
        held.pop();
        assert!(permits.acquire(client(3)).is_ok());
    }
}
