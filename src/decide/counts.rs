//! Counts of sign-ups in memory: sets of pseudonyms, each with the time at which it was last seen.
//!
//! A *set* has an owner (an inbox, a domain or a network) and members (addresses or inboxes). A
//! count is the number of members of a set that were seen within a time. A count is exact up to
//! [`MAX_COUNT`], unless members were forgotten. A set keeps the members that were seen last, at
//! most one more than a count can reach, so that a busy domain leaves places to others. All sets of
//! one kind are in a fixed number of shards of a fixed size. A full shard forgets the member that
//! this node has added, or seen again, the longest ago. So a count may be too low, but never too
//! high.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard};

use hashbrown::HashTable;

use crate::model::believed_time::MAX_SKEW_OF_AGREEING_CLOCKS_SECONDS;
use crate::model::sign_up::{Pseudonym, SIGN_UP_LIFETIME_SECONDS, SignUp};
use crate::support::lock::lock;

use super::facts::{CountFacts, MAX_COUNT};

/// The most pairs of an inbox and an address in memory.
const MAX_INBOX_ADDRESS_PAIRS: usize = 1_000_000;
/// The most pairs of a domain and an inbox in memory, and the most pairs of a network and an inbox.
const MAX_OWNER_INBOX_PAIRS: usize = 200_000;
/// The number of shards for the sets of one kind. Each shard has a lock of its own. All members of
/// a set are in one shard.
const SHARD_COUNT: usize = 16;
/// The most members of one set. A count leaves out the sign-up that it is for.
const MAX_SET_MEMBERS: u32 = MAX_COUNT + 1;

/// A sign-up that is repeated within this number of seconds is not added again, so that a double
/// click costs no write. The first sign-up keeps its time.
const REPEAT_SECONDS: i64 = 60;

/// The most forms with several sign-ups that are remembered, to find repeated ones.
const MAX_REMEMBERED_FORMS: usize = 1_000;

const HOUR_SECONDS: i64 = 3_600;
const DAY_SECONDS: i64 = 24 * HOUR_SECONDS;

/// The latest sign-ups, as far as they fit.
pub struct SignUpCounts {
    addresses_by_inbox: Sets,
    inboxes_by_domain: Sets,
    inboxes_by_client: Sets,
    latest_forms: LatestForms,
}

impl SignUpCounts {
    /// Counts without sign-ups. Their memory grows as sign-ups arrive.
    pub fn new() -> SignUpCounts {
        SignUpCounts::with_capacities(MAX_INBOX_ADDRESS_PAIRS, MAX_OWNER_INBOX_PAIRS)
    }

    fn with_capacities(addresses: usize, inboxes: usize) -> SignUpCounts {
        SignUpCounts {
            addresses_by_inbox: Sets::new(addresses),
            inboxes_by_domain: Sets::new(inboxes),
            inboxes_by_client: Sets::new(inboxes),
            latest_forms: LatestForms::default(),
        }
    }

    /// Adds a sign-up to its sets. If a set has its member already, the member keeps the later of
    /// both times.
    pub fn add(&self, sign_up: &SignUp) {
        for (sets, owner, member) in self.list_pairs(sign_up) {
            sets.add(owner, member, sign_up.at);
        }
    }

    /// Adds the sign-ups of one form, and returns the added ones. Leaves out a form and a sign-up
    /// that are repeated within [`REPEAT_SECONDS`]. A form makes one account, whatever addresses
    /// are in it. So the form adds one member to each set at most, or renews one: the member that
    /// was not seen for longest, so that no decoy hides a new one. The other addresses of an inbox
    /// are left out, and an added sign-up may lack its domain or its client.
    pub fn add_form(&self, sign_ups: &[SignUp]) -> Vec<SignUp> {
        if sign_ups.len() > 1 && !self.latest_forms.add_if_new(sign_ups) {
            return Vec::new();
        }
        // All are chosen before the first is added.
        let mut added = match sign_ups {
            [_] => sign_ups.to_vec(),
            _ => self.choose_raising(sign_ups),
        };
        added.retain(|sign_up| {
            let is_new = !self.is_repeated(sign_up);
            if is_new {
                self.add(sign_up);
            }
            is_new
        });
        added
    }

    /// Of the sign-ups of a form, returns those that raise a count. Leaves out the owners of the
    /// sets that another sign-up of the form raises.
    fn choose_raising(&self, sign_ups: &[SignUp]) -> Vec<SignUp> {
        let is_of_set = |it: &SignUp| {
            let of_inbox = sign_ups.iter().filter(|other| other.inbox == it.inbox);
            let addresses = of_inbox.map(|other| other.address);
            self.addresses_by_inbox.longest_unseen(it.inbox, addresses) == Some(it.address)
        };
        let of_inboxes: Vec<SignUp> = sign_ups.iter().copied().filter(is_of_set).collect();
        let owner_to_raise =
            |sets: &Sets, it: &SignUp, owner_of: fn(&SignUp) -> Option<Pseudonym>| {
                let owner = owner_of(it)?;
                let of_owner = of_inboxes.iter().filter(|other| owner_of(other) == Some(owner));
                let inboxes = of_owner.map(|other| other.inbox);
                (sets.longest_unseen(owner, inboxes) == Some(it.inbox)).then_some(owner)
            };
        let raising = of_inboxes.iter().map(|it| SignUp {
            domain: owner_to_raise(&self.inboxes_by_domain, it, |it| it.domain),
            client: owner_to_raise(&self.inboxes_by_client, it, |it| it.client),
            ..*it
        });
        raising.collect()
    }

    /// Whether all sets of a sign-up have seen its member within [`REPEAT_SECONDS`].
    fn is_repeated(&self, sign_up: &SignUp) -> bool {
        self.list_pairs(sign_up).all(|(sets, owner, member)| {
            sets.seen_at(owner, member).is_some_and(|at| sign_up.at - at < REPEAT_SECONDS)
        })
    }

    /// Forgets the sign-ups of these inboxes. Looks at all pairs of a domain or a network with an
    /// inbox. Locks one shard after the other: some ten milliseconds in all.
    pub fn forget_inboxes(&self, inboxes: &HashSet<Pseudonym>) {
        self.latest_forms.clear();
        inboxes.iter().for_each(|inbox| self.addresses_by_inbox.remove_set(*inbox));
        let members: HashSet<u64> = inboxes.iter().copied().map(kept_bits_of).collect();
        self.inboxes_by_domain.remove_members(&members);
        self.inboxes_by_client.remove_members(&members);
    }

    /// The pairs of owner and member that a sign-up adds, each with the sets of its kind.
    fn list_pairs(&self, sign_up: &SignUp) -> impl Iterator<Item = (&Sets, Pseudonym, Pseudonym)> {
        let SignUp { inbox, address, domain, client, .. } = *sign_up;
        let of_domain = domain.map(|owner| (&self.inboxes_by_domain, owner, inbox));
        let of_client = client.map(|owner| (&self.inboxes_by_client, owner, inbox));
        let of_inbox = (&self.addresses_by_inbox, inbox, address);
        [Some(of_inbox), of_domain, of_client].into_iter().flatten()
    }

    /// The counts of sign-ups other than this one, at the time of this one.
    pub fn count_others(&self, sign_up: &SignUp) -> CountFacts {
        let SignUp { at, inbox, address, domain, client } = *sign_up;
        let lifetime = [SIGN_UP_LIFETIME_SECONDS];
        let [addresses] = self.addresses_by_inbox.count(inbox, address, at, lifetime);
        let of_domain = domain.map(|owner| {
            self.inboxes_by_domain.count(owner, inbox, at, [HOUR_SECONDS, DAY_SECONDS])
        });
        let of_client =
            client.map(|owner| self.inboxes_by_client.count(owner, inbox, at, [HOUR_SECONDS]));
        CountFacts {
            inbox_accounts_30d: Some(addresses),
            domain_accounts_1h: of_domain.map(|[hour, _]| hour),
            domain_accounts_1d: of_domain.map(|[_, day]| day),
            client_accounts_1h: of_client.map(|[hour]| hour),
        }
    }
}

/// The latest forms with several sign-ups: the hash of each, and its time. After a form, a set may
/// lack members of the form, so the sets do not tell whether the form is repeated.
#[derive(Default)]
struct LatestForms {
    hasher: RandomState,
    forms: Mutex<VecDeque<(u64, i64)>>,
}

impl LatestForms {
    /// Adds the form, unless the same form was added within [`REPEAT_SECONDS`]. Returns whether it
    /// added the form.
    fn add_if_new(&self, sign_ups: &[SignUp]) -> bool {
        let mut hasher = self.hasher.build_hasher();
        for SignUp { at: _, inbox, address, domain, client } in sign_ups {
            (inbox, address, domain, client).hash(&mut hasher);
        }
        let (form, now) = (hasher.finish(), sign_ups.first().map_or(0, |it| it.at));
        let mut forms = lock(&self.forms);
        forms.retain(|(_, at)| (0..REPEAT_SECONDS).contains(&(now - at)));
        let is_new = forms.iter().all(|(known, _)| *known != form);
        if is_new {
            if forms.len() == MAX_REMEMBERED_FORMS {
                forms.pop_front();
            }
            forms.push_back((form, now));
        }
        is_new
    }

    fn clear(&self) {
        lock(&self.forms).clear();
    }
}

/// Sets of one kind, in shards with a lock each.
struct Sets(Box<[Mutex<Shard>; SHARD_COUNT]>);

impl Sets {
    fn new(capacity: usize) -> Sets {
        let shard = |_| Mutex::new(Shard::new(capacity.div_ceil(SHARD_COUNT)));
        Sets(Box::new(std::array::from_fn(shard)))
    }

    fn lock_shard_of(&self, owner: Pseudonym) -> MutexGuard<'_, Shard> {
        lock(&self.0[usize::from(owner.0[15]) % SHARD_COUNT])
    }

    fn add(&self, owner: Pseudonym, member: Pseudonym, at: i64) {
        let Ok(at) = u32::try_from(at) else { return };
        self.lock_shard_of(owner).add(owner, kept_bits_of(member), at);
    }

    /// When the member was seen; `None` if the set does not have it.
    fn seen_at(&self, owner: Pseudonym, member: Pseudonym) -> Option<i64> {
        let shard = self.lock_shard_of(owner);
        let index = shard.find(owner, kept_bits_of(member))?;
        Some(shard.entries[index as usize].seen_at.into())
    }

    /// Of these members, returns the one that the set has not seen for longest. A member that the
    /// set does not have comes first.
    fn longest_unseen(
        &self,
        owner: Pseudonym,
        members: impl Iterator<Item = Pseudonym>,
    ) -> Option<Pseudonym> {
        members.min_by_key(|member| self.seen_at(owner, *member))
    }

    fn remove_set(&self, owner: Pseudonym) {
        self.lock_shard_of(owner).remove_set(owner);
    }

    fn remove_members(&self, members: &HashSet<u64>) {
        for shard in &*self.0 {
            lock(shard).remove_members(members);
        }
    }

    /// For each number of seconds, counts the members that were seen within this time up to `at`,
    /// other than `except`. A member may be ahead of `at` by
    /// [`MAX_SKEW_OF_AGREEING_CLOCKS_SECONDS`]. A member that is further ahead is of a wrong clock,
    /// and does not count.
    fn count<const N: usize>(
        &self,
        owner: Pseudonym,
        except: Pseudonym,
        at: i64,
        seconds: [i64; N],
    ) -> [u32; N] {
        let second = |at| u32::try_from(at).unwrap_or(0);
        let latest = second(at + MAX_SKEW_OF_AGREEING_CLOCKS_SECONDS);
        let shard = self.lock_shard_of(owner);
        let Some(set) = shard.set_of(owner) else { return [0; N] };
        let except = kept_bits_of(except);
        seconds.map(|seconds| shard.count(&set, except, &(second(at - seconds + 1)..=latest)))
    }
}

/// The bits of a member's pseudonym that the sets keep. Two members of one set with the same bits
/// count as one.
fn kept_bits_of(member: Pseudonym) -> u64 {
    first_bits(&member.0)
}

fn first_bits(bytes: &[u8; 16]) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(first)
}

/// Stands for no entry where an index is expected.
const NO_ENTRY: u32 = u32::MAX;

/// The sets of some owners, behind one lock. Each member of a set is an entry. An entry is in two
/// chains: the chain of its set, ordered by the time at which members were seen, and the chain of
/// the shard, ordered by when members were added or seen again.
struct Shard {
    entries: Vec<Entry>,
    /// The indexes of removed entries, which hold nothing.
    free: Vec<u32>,
    capacity: usize,
    /// The index of each entry, by owner and member.
    by_pair: HashTable<u32>,
    /// The index of the newest member of each set, by owner.
    newest: HashTable<u32>,
    /// The entry that is forgotten next, once the shard is full.
    first_to_forget: u32,
    last_to_forget: u32,
}

#[derive(Clone, Copy)]
struct Entry {
    owner: Pseudonym,
    member: u64,
    /// When the member was last seen, in seconds since 1970.
    seen_at: u32,
    /// The neighbours in the chain of the set. `newer` of the newest member is the oldest member.
    older: u32,
    newer: u32,
    /// In the newest member of a set, the number of the set's members; 0 or outdated in others.
    members: u32,
    /// The neighbours in the chain of the shard.
    forgotten_before: u32,
    forgotten_after: u32,
}

/// A set, as its newest member describes it.
#[derive(Clone, Copy)]
struct Set {
    owner: Pseudonym,
    newest: u32,
    oldest: u32,
    members: u32,
}

impl Entry {
    const UNLINKED: Entry = Entry {
        owner: Pseudonym([0; 16]),
        member: 0,
        seen_at: 0,
        older: NO_ENTRY,
        newer: NO_ENTRY,
        members: 0,
        forgotten_before: NO_ENTRY,
        forgotten_after: NO_ENTRY,
    };

    fn pair_hash(owner: Pseudonym, member: u64) -> u64 {
        // The owner and the member are pseudorandom already.
        first_bits(&owner.0) ^ member.rotate_left(32)
    }
}

impl Shard {
    fn new(capacity: usize) -> Shard {
        Shard {
            entries: Vec::new(),
            free: Vec::new(),
            capacity: capacity.max(1),
            by_pair: HashTable::new(),
            newest: HashTable::new(),
            first_to_forget: NO_ENTRY,
            last_to_forget: NO_ENTRY,
        }
    }

    fn count(&self, set: &Set, except: u64, times: &RangeInclusive<u32>) -> u32 {
        let seen_at = |index: u32| self.entries[index as usize].seen_at;
        if times.contains(&seen_at(set.oldest)) && times.contains(&seen_at(set.newest)) {
            let has_except = self.find(set.owner, except).is_some();
            return (set.members - u32::from(has_except)).min(MAX_COUNT);
        }
        let (mut count, mut index) = (0, set.newest);
        while let Some(entry) = self.entry(index)
            && entry.seen_at >= *times.start()
            && count < MAX_COUNT
        {
            count += u32::from(entry.member != except && times.contains(&entry.seen_at));
            index = entry.older;
        }
        count
    }

    fn add(&mut self, owner: Pseudonym, member: u64, seen_at: u32) {
        if let Some(index) = self.find(owner, member) {
            if self.entries[index as usize].seen_at < seen_at {
                self.unlink(index);
                self.entries[index as usize].seen_at = seen_at;
                self.link(index);
            }
            return;
        }
        let Some(index) = self.take_entry_index(owner, seen_at) else { return };
        self.entries[index as usize] = Entry { owner, member, seen_at, ..Entry::UNLINKED };
        let entries = &self.entries;
        self.by_pair.insert_unique(Entry::pair_hash(owner, member), index, |index| {
            let entry = &entries[*index as usize];
            Entry::pair_hash(entry.owner, entry.member)
        });
        self.link(index);
    }

    fn find(&self, owner: Pseudonym, member: u64) -> Option<u32> {
        let is_pair = |index: &u32| {
            let entry = &self.entries[*index as usize];
            entry.owner == owner && entry.member == member
        };
        self.by_pair.find(Entry::pair_hash(owner, member), is_pair).copied()
    }

    fn remove_set(&mut self, owner: Pseudonym) {
        while let Some(set) = self.set_of(owner) {
            self.remove(set.newest);
            self.free.push(set.newest);
        }
    }

    /// Removes these members from all sets.
    fn remove_members(&mut self, members: &HashSet<u64>) {
        for index in 0..self.entries.len() as u32 {
            let Entry { owner, member, .. } = self.entries[index as usize];
            if members.contains(&member) && self.find(owner, member) == Some(index) {
                self.remove(index);
                self.free.push(index);
            }
        }
    }

    /// Takes an entry out of the hash table and both chains, and empties the entry.
    fn remove(&mut self, index: u32) {
        let Entry { owner, member, .. } = self.entries[index as usize];
        let hash = Entry::pair_hash(owner, member);
        if let Ok(found) = self.by_pair.find_entry(hash, |other| *other == index) {
            found.remove();
        }
        self.unlink(index);
        self.entries[index as usize] = Entry::UNLINKED;
    }

    /// Returns the index for a new member of a set: of a free entry, of a further entry, or of a
    /// member that is forgotten. `None` if the set is full of members that were seen at `seen_at`
    /// or later.
    fn take_entry_index(&mut self, owner: Pseudonym, seen_at: u32) -> Option<u32> {
        let full_set = self.set_of(owner).filter(|set| set.members == MAX_SET_MEMBERS);
        let forgotten = match full_set {
            Some(set) if self.entries[set.oldest as usize].seen_at >= seen_at => return None,
            Some(set) => set.oldest,
            None if let Some(free) = self.free.pop() => return Some(free),
            None if self.entries.len() < self.capacity => {
                self.entries.push(Entry::UNLINKED);
                return Some(self.entries.len() as u32 - 1);
            }
            None => self.first_to_forget,
        };
        self.remove(forgotten);
        Some(forgotten)
    }

    fn entry(&self, index: u32) -> Option<&Entry> {
        self.entries.get(index as usize)
    }

    fn set_of(&self, owner: Pseudonym) -> Option<Set> {
        let is_owner = |index: &u32| self.entries[*index as usize].owner == owner;
        let newest = *self.newest.find(first_bits(&owner.0), is_owner)?;
        let Entry { newer: oldest, members, .. } = self.entries[newest as usize];
        Some(Set { owner, newest, oldest, members })
    }

    /// Links an entry into both chains: into the chain of its set by the time, and into the chain
    /// of the shard at the end.
    fn link(&mut self, index: u32) {
        let Entry { owner, seen_at, .. } = self.entries[index as usize];
        let empty = Set { owner, newest: NO_ENTRY, oldest: NO_ENTRY, members: 0 };
        let mut set = self.set_of(owner).unwrap_or(empty);
        let (mut newer, mut older) = (NO_ENTRY, set.newest);
        while let Some(entry) = self.entry(older)
            && entry.seen_at > seen_at
        {
            (newer, older) = (older, entry.older);
        }
        let entry = &mut self.entries[index as usize];
        (entry.older, entry.newer) = (older, newer);
        set.members += 1;
        *self.newer_link_of(older, &mut set.oldest) = index;
        *self.older_link_of(newer, &mut set.newest) = index;
        self.store_set(set);

        let last = std::mem::replace(&mut self.last_to_forget, index);
        match self.entries.get_mut(last as usize) {
            Some(entry) => entry.forgotten_after = index,
            None => self.first_to_forget = index,
        }
        let entry = &mut self.entries[index as usize];
        (entry.forgotten_before, entry.forgotten_after) = (last, NO_ENTRY);
    }

    /// Takes an entry out of both chains.
    fn unlink(&mut self, index: u32) {
        let Entry { owner, older, newer, forgotten_before, forgotten_after, .. } =
            self.entries[index as usize];
        if let Some(mut set) = self.set_of(owner) {
            let newer = if set.newest == index { NO_ENTRY } else { newer };
            set.members -= 1;
            *self.newer_link_of(older, &mut set.oldest) = newer;
            *self.older_link_of(newer, &mut set.newest) = older;
            self.store_set(set);
        }
        match self.entries.get_mut(forgotten_before as usize) {
            Some(entry) => entry.forgotten_after = forgotten_after,
            None => self.first_to_forget = forgotten_after,
        }
        match self.entries.get_mut(forgotten_after as usize) {
            Some(entry) => entry.forgotten_before = forgotten_before,
            None => self.last_to_forget = forgotten_before,
        }
    }

    /// The link from the entry at `index` to the newer member of its set. Without such an entry,
    /// `oldest`: the link from the set to its oldest member.
    fn newer_link_of<'l>(&'l mut self, index: u32, oldest: &'l mut u32) -> &'l mut u32 {
        self.entries.get_mut(index as usize).map_or(oldest, |entry| &mut entry.newer)
    }

    /// The link from the entry at `index` to the older member of its set. Without such an entry,
    /// `newest`: the link from the set to its newest member.
    fn older_link_of<'l>(&'l mut self, index: u32, newest: &'l mut u32) -> &'l mut u32 {
        self.entries.get_mut(index as usize).map_or(newest, |entry| &mut entry.older)
    }

    /// Stores the description of a set in its newest member; removes the set if it has no member.
    fn store_set(&mut self, set: Set) {
        let hash = first_bits(&set.owner.0);
        if let Some(newest) = self.entries.get_mut(set.newest as usize) {
            (newest.newer, newest.members) = (set.oldest, set.members);
        }
        let entries = &self.entries;
        let owner_of = |index: &u32| entries[*index as usize].owner;
        match self.newest.find_entry(hash, |index| owner_of(index) == set.owner) {
            Ok(found) if set.members == 0 => {
                found.remove();
            }
            Ok(mut found) => *found.get_mut() = set.newest,
            Err(_) => {
                let hash_of = |index: &u32| first_bits(&owner_of(index).0);
                self.newest.insert_unique(hash, set.newest, hash_of);
            }
        }
    }
}

#[cfg(test)]
mod tests;
