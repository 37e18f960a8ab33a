//! Limits how many requests each client may send in a time, by a token bucket for each client.
//!
//! The memory is fixed: if more clients send requests than it has buckets for, riskgate forgets the
//! fullest buckets first. A client whose bucket is forgotten starts again with a full one, so no
//! number of other clients can make riskgate refuse a client.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::model::network::ClientPrefix;

/// The number of sets. A client's bucket is in the set that its hash selects.
const SETS: usize = 8_192;
/// The number of buckets in a set.
const BUCKETS_PER_SET: usize = 8;

/// A number of requests in a time, such as `20/h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    burst: u32,
    refill_time: Duration,
}

impl Rate {
    /// A full bucket holds `burst` requests. An empty one is full again after `refill_time`. `None` if
    /// a value is 0.
    pub fn new(burst: u32, refill_time: Duration) -> Option<Rate> {
        (burst > 0 && !refill_time.is_zero()).then_some(Rate { burst, refill_time })
    }
}

/// The buckets of all clients and scopes.
pub struct ClientRates {
    /// `None` until the first request with a rate.
    sets: OnceLock<Box<[Mutex<[Bucket; BUCKETS_PER_SET]>]>>,
    /// Has a random key, so that no client can choose the set of its bucket.
    hasher: RandomState,
    created_at: Instant,
}

/// The bucket of one client in one scope, as in the generic cell rate algorithm (ITU-T I.371).
#[derive(Clone, Copy, Default)]
struct Bucket {
    /// The hash of client and scope.
    owner: u64,
    /// When the bucket is full again, in nanoseconds since the creation of [`ClientRates`].
    full_at: u64,
}

impl ClientRates {
    /// Creates the buckets, all full.
    pub fn new() -> ClientRates {
        ClientRates {
            sets: OnceLock::new(),
            hasher: RandomState::new(),
            created_at: Instant::now(),
        }
    }

    /// Takes one request out of the client's bucket in this scope.
    ///
    /// # Errors
    /// Returns the time until the bucket holds a request again, if it is empty.
    pub fn take(
        &self,
        scope: impl Hash,
        client: ClientPrefix,
        rate: Rate,
        now: Instant,
    ) -> Result<(), Duration> {
        let owner = self.hasher.hash_one((scope, client));
        let sets = self.sets.get_or_init(|| {
            (0..SETS).map(|_| Mutex::new([Bucket::default(); BUCKETS_PER_SET])).collect()
        });
        let mut set = sets[owner as usize % SETS].lock().unwrap_or_else(PoisonError::into_inner);
        let own = set.iter().position(|bucket| bucket.owner == owner);
        let at = own.or_else(|| (0..BUCKETS_PER_SET).min_by_key(|at| set[*at].full_at));
        let bucket = &mut set[at.unwrap_or(0)];
        let full_at = if own.is_some() { bucket.full_at } else { 0 };
        let now = nanoseconds(now.saturating_duration_since(self.created_at));
        let refill_time = nanoseconds(rate.refill_time);
        // If the rate was lowered, a client waits no longer than the new rate says.
        let full_at = full_at.clamp(now, now.saturating_add(refill_time));
        let full_after = full_at.saturating_add(refill_time / u64::from(rate.burst));
        let left_until_full = full_after - now;
        if left_until_full > refill_time {
            *bucket = Bucket { owner, full_at };
            return Err(Duration::from_nanos(left_until_full - refill_time));
        }
        *bucket = Bucket { owner, full_at: full_after };
        Ok(())
    }
}

impl Default for ClientRates {
    fn default() -> ClientRates {
        ClientRates::new()
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};

    use super::*;

    fn client(text: &str) -> ClientPrefix {
        ClientPrefix::from(text.parse::<IpAddr>().unwrap())
    }

    fn rate(burst: u32, seconds: u64) -> Rate {
        Rate::new(burst, Duration::from_secs(seconds)).unwrap()
    }

    #[test]
    fn a_bucket_holds_its_burst_and_refills_evenly() {
        let (rates, rate, start) = (ClientRates::new(), rate(3, 60), Instant::now());
        let take = |text, seconds| {
            rates.take("a", client(text), rate, start + Duration::from_secs(seconds))
        };
        for _ in 0..3 {
            assert_eq!(take("192.0.2.1", 0), Ok(()));
        }
        assert_eq!(take("192.0.2.1", 0), Err(Duration::from_secs(20)));
        assert_eq!(take("192.0.2.1", 19), Err(Duration::from_secs(1)));
        assert_eq!(take("192.0.2.2", 19), Ok(()), "each client has its own bucket");
        assert_eq!(take("192.0.2.1", 20), Ok(()));
        assert_eq!(take("192.0.2.1", 20), Err(Duration::from_secs(20)));
        for _ in 0..3 {
            assert_eq!(take("192.0.2.1", 1_000), Ok(()));
        }
        assert!(take("192.0.2.1", 1_000).is_err(), "an idle bucket holds no more than its burst");
    }

    #[test]
    fn scopes_have_buckets_of_their_own_and_an_ipv6_network_has_one() {
        let (rates, rate, now) = (ClientRates::new(), rate(1, 60), Instant::now());
        assert!(rates.take("a", client("2001:db8::1"), rate, now).is_ok());
        assert!(rates.take("a", client("2001:db8::2"), rate, now).is_err());
        assert!(rates.take("b", client("2001:db8::2"), rate, now).is_ok());
        assert!(rates.take("a", client("2001:db8:0:1::1"), rate, now).is_ok());
    }

    #[test]
    fn a_lower_rate_applies_at_once_and_keeps_nobody_waiting_longer() {
        let (rates, now) = (ClientRates::new(), Instant::now());
        for _ in 0..10 {
            assert!(rates.take("a", client("192.0.2.1"), rate(10, 3_600), now).is_ok());
        }
        let wait = rates.take("a", client("192.0.2.1"), rate(1, 10), now).unwrap_err();
        assert_eq!(wait, Duration::from_secs(10));
        let later = now + Duration::from_secs(10);
        assert!(rates.take("a", client("192.0.2.1"), rate(1, 10), later).is_ok());
    }

    #[test]
    fn a_million_clients_never_block_another_one() {
        let (rates, rate, now) = (ClientRates::new(), rate(2, 60), Instant::now());
        let prefix = |n: u64| ClientPrefix::from(IpAddr::from(Ipv6Addr::from(u128::from(n) << 64)));
        for n in 0..1_000_000 {
            assert!(rates.take("a", prefix(n), rate, now).is_ok(), "{n}");
        }
        // A client that empties its bucket is remembered before those that have not.
        let busy = client("192.0.2.1");
        assert!(
            rates.take("a", busy, rate, now).is_ok() && rates.take("a", busy, rate, now).is_ok()
        );
        for n in 1_000_000..1_200_000 {
            assert!(rates.take("a", prefix(n), rate, now).is_ok(), "{n}");
        }
        assert!(rates.take("a", busy, rate, now).is_err());
    }
}
