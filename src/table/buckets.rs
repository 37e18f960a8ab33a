//! The hash table from names to entry numbers. A look-up usually reads one cache line of it.
//!
//! A bucket has 64 bytes and nine slots: `u32 low[9] | u16 value[9] (0 = empty) | u8 high[9] |
//! u8 overflow`. A 128-bit keyed hash of a name gives its bucket and a fingerprint of 40 bits. The
//! fields `low` and `high` store the fingerprint. If it matches, a look-up compares the stored name
//! as well. So a look-up is exact even if somebody chooses colliding names.
//!
//! If a name's bucket is full, the name goes to one of the next sixteen buckets. Three further bits
//! of the hash select one bit of `overflow`, and the build sets this bit in each full bucket on the
//! way. A look-up continues with the next bucket only if this bit is set.

use siphasher::sip128::SipHasher13;

/// The bytes of a bucket: one cache line.
pub(super) const BUCKET_BYTES: usize = 64;
/// The slots of a bucket.
pub(super) const SLOTS_PER_BUCKET: usize = 9;
/// The number of buckets behind the last bucket that a hash can select. Because of these buckets,
/// probing never wraps around.
pub(super) const OVERFLOW_BUCKET_COUNT: usize = 16;

const SLOT_VALUES_OFFSET: usize = 4 * SLOTS_PER_BUCKET;
const FINGERPRINT_HIGH_OFFSET: usize = SLOT_VALUES_OFFSET + 2 * SLOTS_PER_BUCKET;
const OVERFLOW_BITS_OFFSET: usize = FINGERPRINT_HIGH_OFFSET + SLOTS_PER_BUCKET;

/// A name's home bucket and fingerprint.
#[derive(Clone, Copy)]
pub(super) struct NameHash {
    home_bucket: u64,
    fingerprint_low: u32,
    fingerprint_high: u8,
    overflow_bit: u8,
}

/// Hashes a name for a table with this many buckets, overflow buckets included.
pub(super) fn hash_name(hash_key: &[u8; 16], name: &str, bucket_count: usize) -> NameHash {
    let hash = SipHasher13::new_with_key(hash_key).hash(name.as_bytes());
    let home_buckets = bucket_count.saturating_sub(OVERFLOW_BUCKET_COUNT) as u128;
    NameHash {
        home_bucket: ((u128::from(hash.h1) * home_buckets) >> 64) as u64,
        fingerprint_low: hash.h2 as u32,
        fingerprint_high: (hash.h2 >> 32) as u8,
        overflow_bit: 1 << ((hash.h2 >> 40) & 7),
    }
}

/// The entry number in a slot; 0 if the slot is empty.
pub(super) fn entry_number_in_slot(bucket: &[u8; BUCKET_BYTES], slot: usize) -> u16 {
    u16::from_le_bytes([
        bucket[SLOT_VALUES_OFFSET + 2 * slot],
        bucket[SLOT_VALUES_OFFSET + 2 * slot + 1],
    ])
}

/// Finds the entry number of a name. For a slot with a matching fingerprint, calls `has_same_name`
/// with the numbers of the bucket and the slot. If `has_same_name` returns true, the name is found.
pub(super) fn find_entry_number(
    all_buckets: &[u8],
    name_hash: NameHash,
    mut has_same_name: impl FnMut(usize, usize) -> bool,
) -> Option<u16> {
    let first = name_hash.home_bucket as usize;
    for number in first..=first + OVERFLOW_BUCKET_COUNT {
        let bucket: &[u8; BUCKET_BYTES] =
            all_buckets.get(number * BUCKET_BYTES..)?.first_chunk()?;
        let mut matching_slots = 0_u16;
        for slot in 0..SLOTS_PER_BUCKET {
            let low = &bucket[4 * slot..4 * slot + 4];
            let same =
                u32::from_le_bytes([low[0], low[1], low[2], low[3]]) == name_hash.fingerprint_low;
            matching_slots |= u16::from(
                same && bucket[FINGERPRINT_HIGH_OFFSET + slot] == name_hash.fingerprint_high,
            ) << slot;
        }
        while matching_slots != 0 {
            let slot = matching_slots.trailing_zeros() as usize;
            matching_slots &= matching_slots - 1;
            let value = entry_number_in_slot(bucket, slot);
            if value != 0 && has_same_name(number, slot) {
                return Some(value);
            }
        }
        if bucket[OVERFLOW_BITS_OFFSET] & name_hash.overflow_bit == 0 {
            return None;
        }
    }
    None
}

/// The number of buckets, overflow buckets included, for this many names at a load of three
/// quarters.
pub(super) fn bucket_count(name_count: usize) -> usize {
    (name_count * 4).div_ceil(SLOTS_PER_BUCKET * 3).max(1) + OVERFLOW_BUCKET_COUNT
}

/// Fills buckets with the names and their entry numbers. Returns the buckets, and for each slot the
/// position of its name in `names`, counted from 1; 0 for an empty slot. Returns `None` if a name
/// finds no free slot; the caller then tries another hash key.
pub(super) fn fill_buckets<'n>(
    hash_key: &[u8; 16],
    names: impl ExactSizeIterator<Item = (&'n str, u16)>,
) -> Option<(Vec<u8>, Vec<u32>)> {
    let count = bucket_count(names.len());
    let mut all_buckets = vec![0; count * BUCKET_BYTES];
    let mut slots = vec![0; count * SLOTS_PER_BUCKET];
    let mut used = vec![0_u8; count];
    for (number, (name, value)) in (1..).zip(names) {
        let name_hash = hash_name(hash_key, name, count);
        let home = name_hash.home_bucket as usize;
        let at = (home..=home + OVERFLOW_BUCKET_COUNT)
            .find(|bucket| usize::from(used[*bucket]) < SLOTS_PER_BUCKET)?;
        for full in home..at {
            all_buckets[full * BUCKET_BYTES + OVERFLOW_BITS_OFFSET] |= name_hash.overflow_bit;
        }
        let slot = usize::from(used[at]);
        used[at] += 1;
        let bucket = &mut all_buckets[at * BUCKET_BYTES..(at + 1) * BUCKET_BYTES];
        bucket[4 * slot..4 * slot + 4].copy_from_slice(&name_hash.fingerprint_low.to_le_bytes());
        bucket[SLOT_VALUES_OFFSET + 2 * slot..SLOT_VALUES_OFFSET + 2 * slot + 2]
            .copy_from_slice(&value.to_le_bytes());
        bucket[FINGERPRINT_HIGH_OFFSET + slot] = name_hash.fingerprint_high;
        slots[at * SLOTS_PER_BUCKET + slot] = number;
    }
    Some((all_buckets, slots))
}

#[cfg(test)]
mod tests;
