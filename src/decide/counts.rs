//! Counts of sign-ups in memory: sets of pseudonyms, each with the time at which it was last seen.
//!
//! A count is exact up to [`MAX_COUNT`], unless members were forgotten: each kind of set keeps a
//! fixed number of members, and forgets the oldest first. So a count may be too low, but never too
//! high.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;

use crate::model::sign_up::{Pseudonym, SignUp};

use super::facts::{CountFacts, MAX_COUNT};

/// The most pairs of an inbox and an address.
const MAX_ADDRESSES: usize = 1_000_000;
/// The most pairs of a domain and an inbox, and of a network and an inbox.
const MAX_INBOXES: usize = 200_000;
/// The number of parts that are locked apart from each other.
const SHARDS: usize = 16;

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// The longest time that a sign-up counts, in seconds.
pub const MAX_AGE_SECONDS: i64 = 30 * DAY;

/// The sign-ups of the last 30 days, as far as they fit.
pub struct SignUpCounts {
    addresses_by_inbox: Sets,
    inboxes_by_domain: Sets,
    inboxes_by_client: Sets,
}

impl SignUpCounts {
    /// Counts that are all 0. They take memory as sign-ups arrive.
    pub fn new() -> SignUpCounts {
        SignUpCounts::with_capacities(MAX_ADDRESSES, MAX_INBOXES)
    }

    fn with_capacities(addresses: usize, inboxes: usize) -> SignUpCounts {
        SignUpCounts {
            addresses_by_inbox: Sets::new(addresses),
            inboxes_by_domain: Sets::new(inboxes),
            inboxes_by_client: Sets::new(inboxes),
        }
    }

    /// Adds a sign-up. To add it again changes nothing.
    pub fn add(&self, sign_up: &SignUp) {
        self.addresses_by_inbox.add(sign_up.inbox, sign_up.address, sign_up.at);
        if let Some(domain) = sign_up.domain {
            self.inboxes_by_domain.add(domain, sign_up.inbox, sign_up.at);
        }
        if let Some(client) = sign_up.client {
            self.inboxes_by_client.add(client, sign_up.inbox, sign_up.at);
        }
    }

    /// The counts of sign-ups besides this one, at its time.
    pub fn count_others(&self, sign_up: &SignUp) -> CountFacts {
        let SignUp { at, inbox, address, domain, client } = *sign_up;
        let inboxes = |sets: &Sets, owner: Option<Pseudonym>, seconds| {
            owner.map(|owner| sets.count(owner, inbox, at - seconds))
        };
        CountFacts {
            inbox_accounts_30d: Some(self.addresses_by_inbox.count(
                inbox,
                address,
                at - MAX_AGE_SECONDS,
            )),
            domain_accounts_1h: inboxes(&self.inboxes_by_domain, domain, HOUR),
            domain_accounts_1d: inboxes(&self.inboxes_by_domain, domain, DAY),
            client_accounts_1h: inboxes(&self.inboxes_by_client, client, HOUR),
        }
    }
}

/// Sets of one kind, in parts with a lock each.
struct Sets(Box<[Mutex<Shard>; SHARDS]>);

impl Sets {
    fn new(capacity: usize) -> Sets {
        let shard = |_| Mutex::new(Shard::new(capacity.div_ceil(SHARDS)));
        Sets(Box::new(std::array::from_fn(shard)))
    }

    fn shard_of(&self, owner: Pseudonym) -> MutexGuard<'_, Shard> {
        let shard = &self.0[usize::from(owner.0[15]) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, owner: Pseudonym, member: Pseudonym, at: i64) {
        let Ok(at) = u32::try_from(at) else { return };
        self.shard_of(owner).add(owner, member_bits(member), at);
    }

    /// The members that were seen after `since`, besides `except`.
    fn count(&self, owner: Pseudonym, except: Pseudonym, since: i64) -> u32 {
        let since = u32::try_from(since).unwrap_or(0);
        self.shard_of(owner).count(owner, member_bits(except), since)
    }
}

/// The part of a member's pseudonym that is kept. Two members of one set with the same bits count
/// as one.
fn member_bits(member: Pseudonym) -> u64 {
    first_bits(&member.0)
}

fn first_bits(bytes: &[u8; 16]) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(first)
}

/// The index of no entry.
const NONE: u32 = u32::MAX;
/// How far an entry that arrives late moves towards the older ones.
const MAX_STEPS_BACK: usize = 1_000;

/// Some sets: their members are entries in a ring, linked from the newest to the oldest of a set.
struct Shard {
    entries: Vec<Entry>,
    capacity: usize,
    /// The entry that is forgotten next, once the ring is full.
    next_to_forget: usize,
    /// The index of each entry, by owner and member.
    by_pair: HashTable<u32>,
    /// The index of the newest entry of each set, by owner.
    newest: HashTable<u32>,
}

#[derive(Clone, Copy)]
struct Entry {
    owner: Pseudonym,
    member: u64,
    /// When it was last seen, in seconds since 1970.
    seen_at: u32,
    older: u32,
    newer: u32,
}

impl Entry {
    fn pair_hash(owner: Pseudonym, member: u64) -> u64 {
        // Both are pseudorandom already.
        first_bits(&owner.0) ^ member.rotate_left(32)
    }
}

impl Shard {
    fn new(capacity: usize) -> Shard {
        Shard {
            entries: Vec::new(),
            capacity: capacity.max(1),
            next_to_forget: 0,
            by_pair: HashTable::new(),
            newest: HashTable::new(),
        }
    }

    fn count(&self, owner: Pseudonym, except: u64, since: u32) -> u32 {
        let mut count = 0;
        let mut index = self.newest_of(owner);
        while let Some(entry) = self.entries.get(index as usize)
            && entry.seen_at > since
            && count < MAX_COUNT
        {
            count += u32::from(entry.member != except);
            index = entry.older;
        }
        count
    }

    fn add(&mut self, owner: Pseudonym, member: u64, seen_at: u32) {
        let hash = Entry::pair_hash(owner, member);
        let entries = &self.entries;
        let is_pair = |index: &u32| {
            let entry = &entries[*index as usize];
            entry.owner == owner && entry.member == member
        };
        if let Some(index) = self.by_pair.find(hash, is_pair).copied() {
            if self.entries[index as usize].seen_at < seen_at {
                self.unlink(index);
                self.entries[index as usize].seen_at = seen_at;
                self.link(index);
            }
            return;
        }
        let index = self.take_place();
        self.entries[index as usize] = Entry { owner, member, seen_at, older: NONE, newer: NONE };
        let entries = &self.entries;
        self.by_pair.insert_unique(hash, index, |index| {
            let entry = &entries[*index as usize];
            Entry::pair_hash(entry.owner, entry.member)
        });
        self.link(index);
    }

    /// Returns the place for a new entry: a further one, or that of the entry that is forgotten.
    fn take_place(&mut self) -> u32 {
        if self.entries.len() < self.capacity {
            let index = self.entries.len() as u32;
            let owner = Pseudonym([0; 16]);
            self.entries.push(Entry { owner, member: 0, seen_at: 0, older: NONE, newer: NONE });
            return index;
        }
        let index = self.next_to_forget as u32;
        self.next_to_forget = (self.next_to_forget + 1) % self.capacity;
        let entry = self.entries[index as usize];
        let hash = Entry::pair_hash(entry.owner, entry.member);
        if let Ok(found) = self.by_pair.find_entry(hash, |other| *other == index) {
            found.remove();
        }
        self.unlink(index);
        index
    }

    fn newest_of(&self, owner: Pseudonym) -> u32 {
        let is_owner = |index: &u32| self.entries[*index as usize].owner == owner;
        self.newest.find(first_bits(&owner.0), is_owner).copied().unwrap_or(NONE)
    }

    /// Links an entry into its set, before the entries that were seen earlier.
    fn link(&mut self, index: u32) {
        let Entry { owner, seen_at, .. } = self.entries[index as usize];
        let (mut newer, mut older) = (NONE, self.newest_of(owner));
        for _ in 0..MAX_STEPS_BACK {
            match self.entries.get(older as usize) {
                Some(entry) if entry.seen_at > seen_at => (newer, older) = (older, entry.older),
                _ => break,
            }
        }
        self.entries[index as usize].older = older;
        self.entries[index as usize].newer = newer;
        if let Some(entry) = self.entries.get_mut(older as usize) {
            entry.newer = index;
        }
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = index,
            None => self.set_newest(owner, index),
        }
    }

    fn unlink(&mut self, index: u32) {
        let Entry { owner, older, newer, .. } = self.entries[index as usize];
        if let Some(entry) = self.entries.get_mut(older as usize) {
            entry.newer = newer;
        }
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.set_newest(owner, older),
        }
    }

    /// Sets the newest entry of a set; `NONE` removes the set.
    fn set_newest(&mut self, owner: Pseudonym, index: u32) {
        let hash = first_bits(&owner.0);
        let entries = &self.entries;
        let is_owner = |other: &u32| entries[*other as usize].owner == owner;
        match self.newest.find_entry(hash, is_owner) {
            Ok(found) if index == NONE => {
                found.remove();
            }
            Ok(mut found) => *found.get_mut() = index,
            Err(_) if index == NONE => {}
            Err(_) => {
                let hash_of = |index: &u32| first_bits(&entries[*index as usize].owner.0);
                self.newest.insert_unique(hash, index, hash_of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};

    use super::*;

    fn pseudonym(kind: u8, number: u32) -> Pseudonym {
        // Spreads numbers as a hash does.
        let spread = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let mut bytes = spread.to_le_bytes();
        bytes[7] = kind;
        Pseudonym(bytes)
    }

    fn sign_up(at: i64, inbox: u32, address: u32, domain: u32, client: u32) -> SignUp {
        SignUp {
            at,
            inbox: pseudonym(1, inbox),
            address: pseudonym(2, address),
            domain: Some(pseudonym(3, domain)),
            client: Some(pseudonym(4, client)),
        }
    }

    #[test]
    fn the_same_address_never_counts_against_itself() {
        let counts = SignUpCounts::new();
        let first = sign_up(1_000, 1, 1, 1, 1);
        for at in [1_000, 1_010, 5_000] {
            counts.add(&SignUp { at, ..first });
        }
        let found = counts.count_others(&SignUp { at: 5_001, ..first });
        assert_eq!(found.inbox_accounts_30d, Some(0));
        assert_eq!(found.domain_accounts_1h, Some(0));
        let other = sign_up(5_002, 1, 2, 1, 1);
        assert_eq!(counts.count_others(&other).inbox_accounts_30d, Some(1));
        assert_eq!(counts.count_others(&sign_up(5_002, 2, 3, 1, 1)).domain_accounts_1h, Some(1));
    }

    #[test]
    fn counts_end_with_their_time() {
        let counts = SignUpCounts::new();
        counts.add(&sign_up(1_000, 1, 1, 1, 1));
        let at = |seconds| counts.count_others(&sign_up(1_000 + seconds, 2, 2, 1, 1));
        assert_eq!(at(HOUR - 1).domain_accounts_1h, Some(1));
        assert_eq!(at(HOUR).domain_accounts_1h, Some(0));
        assert_eq!(at(DAY - 1).domain_accounts_1d, Some(1));
        assert_eq!(at(DAY).domain_accounts_1d, Some(0));
        let at = |seconds| counts.count_others(&sign_up(1_000 + seconds, 1, 2, 1, 1));
        assert_eq!(at(MAX_AGE_SECONDS - 1).inbox_accounts_30d, Some(1));
        assert_eq!(at(MAX_AGE_SECONDS).inbox_accounts_30d, Some(0));
    }

    #[test]
    fn a_count_stops_at_its_maximum() {
        let counts = SignUpCounts::new();
        for inbox in 0..MAX_COUNT + 50 {
            counts.add(&sign_up(1_000, inbox, inbox, 1, inbox));
        }
        let found = counts.count_others(&sign_up(1_001, 9_999, 9_999, 1, 9_999));
        assert_eq!(found.domain_accounts_1h, Some(MAX_COUNT));
    }

    /// Draws sign-ups with a small generator, and compares the counts with those of a list.
    fn compare_with_list(capacity: usize, draws: u32, check: impl Fn(u32, u32)) {
        let counts = SignUpCounts::with_capacities(capacity, capacity);
        let mut list: VecDeque<SignUp> = VecDeque::new();
        let mut state: u64 = 42;
        let mut draw = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 33) % bound) as u32
        };
        let mut now = 10_000;
        for _ in 0..draws {
            now += i64::from(draw(400));
            let inbox = draw(40);
            let late = i64::from(draw(5));
            let drawn = sign_up(now - late, inbox, inbox * 100 + draw(4), inbox % 7, draw(9));
            let found = counts.count_others(&drawn);
            let distinct = |member: fn(&SignUp) -> Pseudonym,
                            owner: fn(&SignUp) -> Option<Pseudonym>,
                            seconds: i64| {
                let mut seen: HashMap<Pseudonym, i64> = HashMap::new();
                for other in list.iter().filter(|other| owner(other) == owner(&drawn)) {
                    let last = seen.entry(member(other)).or_insert(other.at);
                    *last = other.at.max(*last);
                }
                seen.remove(&member(&drawn));
                seen.values().filter(|at| **at > drawn.at - seconds).count() as u32
            };
            let pairs = [
                (
                    found.inbox_accounts_30d,
                    distinct(|it| it.address, |it| Some(it.inbox), MAX_AGE_SECONDS),
                ),
                (found.domain_accounts_1h, distinct(|it| it.inbox, |it| it.domain, HOUR)),
                (found.domain_accounts_1d, distinct(|it| it.inbox, |it| it.domain, DAY)),
                (found.client_accounts_1h, distinct(|it| it.inbox, |it| it.client, HOUR)),
            ];
            for (counted, expected) in pairs {
                check(counted.unwrap(), expected);
            }
            counts.add(&drawn);
            list.push_back(drawn);
        }
    }

    #[test]
    fn counts_agree_with_a_list_of_all_sign_ups() {
        compare_with_list(10_000, 3_000, |counted, expected| assert_eq!(counted, expected));
    }

    #[test]
    fn full_sets_count_too_few_and_never_too_many() {
        compare_with_list(64, 3_000, |counted, expected| assert!(counted <= expected));
    }
}
