//! Limits how many requests each client may send in a time, by a token bucket for each client.
//!
//! The memory is fixed. A client's hash selects one of the sets of buckets. If this set has no
//! bucket left, riskgate forgets the bucket in the set that would be full again soonest. A client
//! whose bucket is forgotten starts again with a full one. So no number of other clients can make
//! riskgate refuse a client.
//!
//! Nodes may share the buckets. Each node then admits by what it knows, and remembers what it took
//! out of which bucket. The caller tells the other nodes, and learns from them how long a bucket
//! needs until it is full again. Until nodes know of each other, they may overdraw a shared bucket.
//! Then the bucket has to refill the excess first.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use crate::model::network::ClientPrefix;

use super::exchange_thread::StoreExchangeThread;
use super::lock::lock;

/// The number of sets. A client's bucket is in the set that its hash selects.
const NODE_BUCKET_SETS: usize = 8_192;
/// The number of buckets in a set.
const BUCKETS_PER_SET: usize = 8;
/// The longest time until a shared bucket is full, in times of a whole refill. Each node can take
/// one whole burst out of a full bucket before it knows of the others, so this is enough for as
/// many nodes.
const MAX_REFILL_TIMES_UNTIL_FULL: u64 = 32;
/// The most buckets whose requests wait to be told to other nodes. Requests in further buckets are
/// not told, see [`ClientRates::untold_requests`].
const MAX_UNSHARED_BUCKETS: usize = 10_000;

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

/// A form that the config accepts: `20/1h`, `100/10m`.
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
    /// `None` if this node shares no rates.
    sharing: Option<RateSharing>,
}

/// What other nodes have to know.
#[derive(Default)]
struct RateSharing {
    /// What this node took out of each bucket since the last exchange, by the owner of the bucket.
    unshared: Mutex<HashMap<u64, UnsharedRequests>>,
    /// The requests of which other nodes were not told, or may not have been told.
    untold_requests: AtomicU64,
    thread: StoreExchangeThread,
}

/// The requests that this node took out of one bucket, and that other nodes do not know.
struct UnsharedRequests {
    bucket_name: String,
    rate: Rate,
    requests: u32,
    /// When the first of these requests was, in nanoseconds since the creation of [`ClientRates`].
    first_at: u64,
    /// A time since which the bucket has not been full, as far as this node knows, in nanoseconds
    /// since the creation of [`ClientRates`].
    not_full_since: u64,
}

/// Requests that this node took out of one bucket, to be told to other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketCharge {
    owner: u64,
    rate: Rate,
    /// Names scope, rate and client of the bucket: the same on all nodes.
    pub bucket_name: String,
    /// The number of requests.
    pub requests: u32,
    /// How long the bucket needs to refill the requests, in nanoseconds.
    pub refill_ns: u64,
    /// How long ago the first of the requests was, in nanoseconds.
    pub first_request_age_ns: u64,
    /// The time until the bucket is full, in nanoseconds, as far as this node knows. Includes
    /// requests of which other nodes were not told before.
    pub until_full_ns: u64,
    /// For how long the bucket has not been full at any moment, in nanoseconds; 0 if it is full.
    pub not_full_for_ns: u64,
    /// The longest time until a bucket of this rate is full, in nanoseconds.
    pub max_until_full_ns: u64,
}

/// The bucket of one client in one scope, as in the generic cell rate algorithm (ITU-T I.371).
#[derive(Clone, Copy, Default)]
struct Bucket {
    /// See [`ClientRates::hash_owner`].
    owner: u64,
    /// When the bucket is full again, in nanoseconds since the creation of [`ClientRates`].
    full_at: u64,
}

impl ClientRates {
    /// Creates the buckets, all full. `are_shared` says that other nodes share them.
    pub fn new(are_shared: bool) -> ClientRates {
        ClientRates {
            sets: OnceLock::new(),
            hasher: RandomState::new(),
            created_at: Instant::now(),
            sharing: are_shared.then(RateSharing::default),
        }
    }

    /// Takes one request out of the client's bucket in each of these scopes, or out of none.
    ///
    /// # Errors
    /// Returns the time until the first empty bucket holds a request again.
    pub fn charge_request<S: Hash + fmt::Display>(
        &self,
        limits: &[(S, Rate)],
        client: ClientPrefix,
        now: Instant,
    ) -> Result<(), Duration> {
        let now = self.nanoseconds_since_creation(now);
        // For each bucket, or empty if other nodes share none.
        let mut were_full = Vec::new();
        for (charged, (scope, rate)) in limits.iter().enumerate() {
            match self.take_request(self.hash_owner(scope, *rate, client), *rate, now) {
                Ok(was_full) => were_full.extend(self.sharing.as_ref().map(|_| was_full)),
                Err(wait) => {
                    for (scope, rate) in &limits[..charged] {
                        self.put_back_request(self.hash_owner(scope, *rate, client), *rate);
                    }
                    return Err(wait);
                }
            }
        }
        if let Some(sharing) = &self.sharing {
            for ((scope, rate), was_full) in limits.iter().zip(were_full) {
                let owner = self.hash_owner(scope, *rate, client);
                let bucket_name = || format!("{scope} {rate} {client}");
                sharing.add_request((owner, *rate), bucket_name, was_full, now);
            }
        }
        Ok(())
    }

    /// Hashes what identifies a bucket: scope and client. If buckets are shared, the rate
    /// identifies a bucket as well, because nodes that have another rate must not overdraw the
    /// bucket.
    fn hash_owner(&self, scope: &impl Hash, rate: Rate, client: ClientPrefix) -> u64 {
        let shared_rate = self.sharing.as_ref().map(|_| (rate.burst, rate.refill_time));
        self.hasher.hash_one((scope, client, shared_rate))
    }

    fn nanoseconds_since_creation(&self, now: Instant) -> u64 {
        nanoseconds(now.saturating_duration_since(self.created_at))
    }

    fn max_until_full(&self, rate: Rate) -> u64 {
        let bursts = if self.sharing.is_some() { MAX_REFILL_TIMES_UNTIL_FULL } else { 1 };
        nanoseconds(rate.refill_time).saturating_mul(bursts)
    }

    fn lock_set(&self, owner: u64) -> MutexGuard<'_, [Bucket; BUCKETS_PER_SET]> {
        let sets = self.sets.get_or_init(|| {
            (0..NODE_BUCKET_SETS)
                .map(|_| Mutex::new([Bucket::default(); BUCKETS_PER_SET]))
                .collect()
        });
        lock(&sets[owner as usize % NODE_BUCKET_SETS])
    }

    /// Takes one request out of the bucket. Returns whether the bucket was full.
    ///
    /// # Errors
    /// Returns the time until the empty bucket holds a request again.
    fn take_request(&self, owner: u64, rate: Rate, now: u64) -> Result<bool, Duration> {
        let mut set = self.lock_set(owner);
        let bucket = find_own_or_soonest_full(&mut set, owner);
        let full_at = if bucket.owner == owner { bucket.full_at } else { 0 };
        let refill_time = nanoseconds(rate.refill_time);
        // If the operator has shortened the refill time, the new one bounds how long a client
        // waits.
        let full_at = full_at.clamp(now, now.saturating_add(self.max_until_full(rate)));
        let full_after = full_at.saturating_add(rate.nanoseconds_per_request());
        let left_until_full = full_after - now;
        if left_until_full > refill_time {
            *bucket = Bucket { owner, full_at };
            return Err(Duration::from_nanos(left_until_full - refill_time));
        }
        *bucket = Bucket { owner, full_at: full_after };
        Ok(full_at == now)
    }

    fn put_back_request(&self, owner: u64, rate: Rate) {
        if let Some(bucket) = self.lock_set(owner).iter_mut().find(|bucket| bucket.owner == owner) {
            bucket.full_at = bucket.full_at.saturating_sub(rate.nanoseconds_per_request());
        }
    }
}

/// Sharing with other nodes.
impl ClientRates {
    /// The thread that exchanges the rates with other nodes; `None` if they are not shared.
    pub fn exchange_thread(&self) -> Option<&StoreExchangeThread> {
        Some(&self.sharing.as_ref()?.thread)
    }

    /// The number of requests of which other nodes were not told, or may not have been told: more
    /// buckets were in use than can be exchanged, or an exchange failed.
    pub fn untold_requests(&self) -> u64 {
        self.sharing.as_ref().map_or(0, |it| it.untold_requests.load(Ordering::Relaxed))
    }

    /// Takes the charges of which other nodes were not told. If there are more buckets than
    /// `max_buckets`, returns those that are the emptiest. A later request of the same client tells
    /// of the others, see [`BucketCharge::until_full_ns`]. The caller must tell other nodes of each
    /// charge, or give it to [`ClientRates::count_lost_charges`].
    pub fn take_charges(&self, max_buckets: usize, now: Instant) -> Vec<BucketCharge> {
        let Some(sharing) = &self.sharing else { return Vec::new() };
        let taken = mem::take(&mut *lock(&sharing.unshared));
        let charge = |(owner, taken)| self.make_charge(owner, taken, now);
        let mut charges: Vec<BucketCharge> = taken.into_iter().map(charge).collect();
        if charges.len() > max_buckets {
            charges.sort_by(|a, b| b.used_share().total_cmp(&a.used_share()));
            self.count_lost_charges(&charges.split_off(max_buckets));
        }
        charges
    }

    fn make_charge(&self, owner: u64, taken: UnsharedRequests, now: Instant) -> BucketCharge {
        let UnsharedRequests { bucket_name, rate, requests, first_at, not_full_since } = taken;
        let now = self.nanoseconds_since_creation(now);
        let known = self.lock_set(owner).iter().find(|it| it.owner == owner).map(|it| it.full_at);
        let until_full_ns = known.unwrap_or(0).saturating_sub(now);
        BucketCharge {
            owner,
            rate,
            bucket_name,
            requests,
            refill_ns: rate.nanoseconds_per_request().saturating_mul(requests.into()),
            first_request_age_ns: now.saturating_sub(first_at),
            until_full_ns,
            not_full_for_ns: if until_full_ns > 0 { now.saturating_sub(not_full_since) } else { 0 },
            max_until_full_ns: self.max_until_full(rate),
        }
    }

    /// Learns from the other nodes that the bucket of a charge will be full this long after `at`.
    /// This time includes the requests of the charge, but none that this node admitted after it
    /// took the charge. Never makes the client's bucket fuller.
    pub fn learn_time_until_full(&self, charge: &BucketCharge, until_full_ns: u64, at: Instant) {
        let Some(sharing) = &self.sharing else { return };
        let later = sharing.count_requests(charge.owner);
        let later_ns = charge.rate.nanoseconds_per_request().saturating_mul(later.into());
        let until_full = until_full_ns.min(charge.max_until_full_ns).saturating_add(later_ns);
        let full_at = self.nanoseconds_since_creation(at).saturating_add(until_full);
        let mut set = self.lock_set(charge.owner);
        let bucket = find_own_or_soonest_full(&mut set, charge.owner);
        if bucket.full_at < full_at {
            *bucket = Bucket { owner: charge.owner, full_at };
        }
    }

    /// Counts the requests of charges that other nodes may not have got. The charges must not be
    /// sent again, because a client must not be charged twice.
    pub fn count_lost_charges(&self, charges: &[BucketCharge]) {
        if let Some(sharing) = &self.sharing {
            let requests = charges.iter().map(|charge| u64::from(charge.requests)).sum();
            sharing.untold_requests.fetch_add(requests, Ordering::Relaxed);
        }
    }
}

impl BucketCharge {
    /// How much of its burst the client has used.
    fn used_share(&self) -> f64 {
        self.until_full_ns as f64 / nanoseconds(self.rate.refill_time) as f64
    }
}

impl RateSharing {
    /// `now` is in nanoseconds since the creation of [`ClientRates`].
    fn add_request(
        &self,
        (owner, rate): (u64, Rate),
        bucket_name: impl FnOnce() -> String,
        was_full: bool,
        now: u64,
    ) {
        let mut unshared = lock(&self.unshared);
        if let Some(known) = unshared.get_mut(&owner) {
            known.requests = known.requests.saturating_add(1);
            known.first_at = known.first_at.min(now);
            if was_full {
                known.not_full_since = known.not_full_since.max(now);
            }
        } else if unshared.len() < MAX_UNSHARED_BUCKETS {
            let (bucket_name, requests) = (bucket_name(), 1);
            let (first_at, not_full_since) = (now, now);
            let new = UnsharedRequests { bucket_name, rate, requests, first_at, not_full_since };
            unshared.insert(owner, new);
        } else {
            self.untold_requests.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn count_requests(&self, owner: u64) -> u32 {
        lock(&self.unshared).get(&owner).map_or(0, |it| it.requests)
    }
}

/// Returns the owner's bucket, or else the bucket that would be full soonest. The caller may
/// replace the latter.
fn find_own_or_soonest_full(set: &mut [Bucket; BUCKETS_PER_SET], owner: u64) -> &mut Bucket {
    let own = set.iter().position(|bucket| bucket.owner == owner);
    let at = own.or_else(|| (0..BUCKETS_PER_SET).min_by_key(|at| set[*at].full_at));
    &mut set[at.unwrap_or(0)]
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
