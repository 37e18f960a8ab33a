//! Limits how many requests each client may send in a time, by a token bucket for each client.
//!
//! The memory is fixed. A client's hash selects one of the sets of buckets. If that set has no
//! bucket left for a client, riskgate forgets the bucket in it that would be full again soonest. A
//! client whose bucket is forgotten starts again with a full one, so no number of other clients can
//! make riskgate refuse a client.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
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
    /// A full bucket holds `burst` requests. An empty one is full again after `refill_time`. `None`
    /// if a value is 0.
    pub fn new(burst: u32, refill_time: Duration) -> Option<Rate> {
        (burst > 0 && !refill_time.is_zero()).then_some(Rate { burst, refill_time })
    }

    fn nanoseconds_per_request(self) -> u64 {
        nanoseconds(self.refill_time) / u64::from(self.burst)
    }
}

/// As in the config: `20/1h`, `100/10m`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.refill_time.as_secs_f64();
        let units = [(86_400.0, "d"), (3_600.0, "h"), (60.0, "m")];
        let is_whole = |unit: &&(f64, &str)| seconds % unit.0 == 0.0;
        let (size, unit) = units.iter().find(is_whole).unwrap_or(&(1.0, "s"));
        write!(f, "{}/{}{unit}", self.burst, seconds / size)
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

    /// Takes one request out of the client's bucket in each of these scopes, or out of none.
    ///
    /// # Errors
    /// Returns the time until an empty bucket holds a request again.
    pub fn charge_request<S: Hash>(
        &self,
        limits: &[(S, Rate)],
        client: ClientPrefix,
        now: Instant,
    ) -> Result<(), Duration> {
        for (charged, (scope, rate)) in limits.iter().enumerate() {
            if let Err(wait) = self.take_one(self.owner(scope, client), *rate, now) {
                for (scope, rate) in &limits[..charged] {
                    self.put_back(self.owner(scope, client), *rate);
                }
                return Err(wait);
            }
        }
        Ok(())
    }

    fn owner(&self, scope: &impl Hash, client: ClientPrefix) -> u64 {
        self.hasher.hash_one((scope, client))
    }

    fn lock_set(&self, owner: u64) -> MutexGuard<'_, [Bucket; BUCKETS_PER_SET]> {
        let sets = self.sets.get_or_init(|| {
            (0..SETS).map(|_| Mutex::new([Bucket::default(); BUCKETS_PER_SET])).collect()
        });
        sets[owner as usize % SETS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_one(&self, owner: u64, rate: Rate, now: Instant) -> Result<(), Duration> {
        let mut set = self.lock_set(owner);
        let own = set.iter().position(|bucket| bucket.owner == owner);
        let at = own.or_else(|| (0..BUCKETS_PER_SET).min_by_key(|at| set[*at].full_at));
        let bucket = &mut set[at.unwrap_or(0)];
        let full_at = if own.is_some() { bucket.full_at } else { 0 };
        let now = nanoseconds(now.saturating_duration_since(self.created_at));
        let refill_time = nanoseconds(rate.refill_time);
        // If the rate was lowered, a client waits no longer than the new rate says.
        let full_at = full_at.clamp(now, now.saturating_add(refill_time));
        let full_after = full_at.saturating_add(rate.nanoseconds_per_request());
        let left_until_full = full_after - now;
        if left_until_full > refill_time {
            *bucket = Bucket { owner, full_at };
            return Err(Duration::from_nanos(left_until_full - refill_time));
        }
        *bucket = Bucket { owner, full_at: full_after };
        Ok(())
    }

    fn put_back(&self, owner: u64, rate: Rate) {
        if let Some(bucket) = self.lock_set(owner).iter_mut().find(|bucket| bucket.owner == owner) {
            bucket.full_at = bucket.full_at.saturating_sub(rate.nanoseconds_per_request());
        }
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

    fn take(
        rates: &ClientRates,
        scope: &str,
        client: ClientPrefix,
        rate: Rate,
        now: Instant,
    ) -> Result<(), Duration> {
        rates.charge_request(&[(scope, rate)], client, now)
    }

    #[test]
    fn a_request_that_one_rate_refuses_is_charged_to_no_rate() {
        let (rates, now, client) = (ClientRates::new(), Instant::now(), client("192.0.2.1"));
        let limits = [("a", rate(3, 60)), ("b", rate(1, 60))];
        assert_eq!(rates.charge_request(&limits, client, now), Ok(()));
        for _ in 0..5 {
            assert!(rates.charge_request(&limits, client, now).is_err());
        }
        for _ in 0..2 {
            assert_eq!(take(&rates, "a", client, rate(3, 60), now), Ok(()));
        }
        assert!(take(&rates, "a", client, rate(3, 60), now).is_err());
    }

    #[test]
    fn a_bucket_holds_its_burst_and_refills_evenly() {
        let (rates, rate, start) = (ClientRates::new(), rate(3, 60), Instant::now());
        let take_at = |text, seconds| {
            take(&rates, "a", client(text), rate, start + Duration::from_secs(seconds))
        };
        for _ in 0..3 {
            assert_eq!(take_at("192.0.2.1", 0), Ok(()));
        }
        assert_eq!(take_at("192.0.2.1", 0), Err(Duration::from_secs(20)));
        assert_eq!(take_at("192.0.2.1", 19), Err(Duration::from_secs(1)));
        assert_eq!(take_at("192.0.2.2", 19), Ok(()), "each client has its own bucket");
        assert_eq!(take_at("192.0.2.1", 20), Ok(()));
        assert_eq!(take_at("192.0.2.1", 20), Err(Duration::from_secs(20)));
        for _ in 0..3 {
            assert_eq!(take_at("192.0.2.1", 1_000), Ok(()));
        }
        assert!(
            take_at("192.0.2.1", 1_000).is_err(),
            "an idle bucket holds no more than its burst"
        );
    }

    #[test]
    fn scopes_have_buckets_of_their_own_and_an_ipv6_network_has_one() {
        let (rates, rate, now) = (ClientRates::new(), rate(1, 60), Instant::now());
        assert!(take(&rates, "a", client("2001:db8::1"), rate, now).is_ok());
        assert!(take(&rates, "a", client("2001:db8::2"), rate, now).is_err());
        assert!(take(&rates, "b", client("2001:db8::2"), rate, now).is_ok());
        assert!(take(&rates, "a", client("2001:db8:0:1::1"), rate, now).is_ok());
    }

    #[test]
    fn a_lower_rate_applies_at_once_and_keeps_nobody_waiting_longer() {
        let (rates, now) = (ClientRates::new(), Instant::now());
        for _ in 0..10 {
            assert!(take(&rates, "a", client("192.0.2.1"), rate(10, 3_600), now).is_ok());
        }
        let wait = take(&rates, "a", client("192.0.2.1"), rate(1, 10), now).unwrap_err();
        assert_eq!(wait, Duration::from_secs(10));
        let later = now + Duration::from_secs(10);
        assert!(take(&rates, "a", client("192.0.2.1"), rate(1, 10), later).is_ok());
    }

    #[test]
    fn a_million_clients_never_block_another_one() {
        let (rates, rate, now) = (ClientRates::new(), rate(2, 60), Instant::now());
        let prefix = |n: u64| ClientPrefix::from(IpAddr::from(Ipv6Addr::from(u128::from(n) << 64)));
        for n in 0..1_000_000 {
            assert!(take(&rates, "a", prefix(n), rate, now).is_ok(), "{n}");
        }
        // A client that empties its bucket is remembered before those that have not.
        let busy = client("192.0.2.1");
        assert!(
            take(&rates, "a", busy, rate, now).is_ok()
                && take(&rates, "a", busy, rate, now).is_ok()
        );
        for n in 1_000_000..1_200_000 {
            assert!(take(&rates, "a", prefix(n), rate, now).is_ok(), "{n}");
        }
        assert!(take(&rates, "a", busy, rate, now).is_err());
    }
}
