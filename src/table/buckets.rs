//! The hashed lines of a table: names to numbers, one cache line a look-up.
//!
//! A line has 64 bytes and holds nine entries: `u32 low[9] | u16 value[9] (0 = empty) |
//! u8 high[9] | u8 overflow`. A 128-bit keyed hash of the name gives the line and a fingerprint
//! of 40 bits; a hit is confirmed against the stored name, so a look-up is exact whatever names
//! somebody chose. An entry whose line is full goes to one of the next sixteen; `overflow` tells
//! by three hash bits whether to go on.

use siphasher::sip128::SipHasher13;

/// Bytes of a line.
pub(super) const BUCKET_BYTES: usize = 64;
/// Entries of a line.
pub(super) const SLOTS_PER_BUCKET: usize = 9;
/// Lines behind the last one that a hash can name, so that nothing wraps around.
pub(super) const OVERFLOW_BUCKETS: usize = 16;

const VALUES_OFFSET: usize = 4 * SLOTS_PER_BUCKET;
const HIGH_BITS_OFFSET: usize = VALUES_OFFSET + 2 * SLOTS_PER_BUCKET;
const OVERFLOW_OFFSET: usize = HIGH_BITS_OFFSET + SLOTS_PER_BUCKET;

/// Where a name belongs, and how it is recognised there.
#[derive(Clone, Copy)]
pub(super) struct NameHash {
    home_bucket: u64,
    low: u32,
    high: u8,
    overflow: u8,
}

/// The place of a name among all lines of a table, its padding included.
pub(super) fn hash_name(key: &[u8; 16], name: &str, lines: usize) -> NameHash {
    let hash = SipHasher13::new_with_key(key).hash(name.as_bytes());
    let home_buckets = lines.saturating_sub(OVERFLOW_BUCKETS) as u128;
    NameHash {
        home_bucket: ((u128::from(hash.h1) * home_buckets) >> 64) as u64,
        low: hash.h2 as u32,
        high: (hash.h2 >> 32) as u8,
        overflow: 1 << ((hash.h2 >> 40) & 7),
    }
}

/// The value of a slot; 0 if it is empty.
pub(super) fn slot_value(bucket: &[u8; BUCKET_BYTES], slot: usize) -> u16 {
    u16::from_le_bytes([bucket[VALUES_OFFSET + 2 * slot], bucket[VALUES_OFFSET + 2 * slot + 1]])
}

/// Asks `confirm` for each entry that may be the name, with its line and slot, until it says so.
pub(super) fn probe(
    lines: &[u8],
    display_name: NameHash,
    mut confirm: impl FnMut(usize, usize) -> bool,
) -> Option<u16> {
    let first = display_name.home_bucket as usize;
    for number in first..=first + OVERFLOW_BUCKETS {
        let bucket: &[u8; BUCKET_BYTES] = lines.get(number * BUCKET_BYTES..)?.first_chunk()?;
        let mut found = 0_u16;
        for slot in 0..SLOTS_PER_BUCKET {
            let low = &bucket[4 * slot..4 * slot + 4];
            let same = u32::from_le_bytes([low[0], low[1], low[2], low[3]]) == display_name.low;
            found |=
                u16::from(same && bucket[HIGH_BITS_OFFSET + slot] == display_name.high) << slot;
        }
        while found != 0 {
            let slot = found.trailing_zeros() as usize;
            found &= found - 1;
            let value = slot_value(bucket, slot);
            if value != 0 && confirm(number, slot) {
                return Some(value);
            }
        }
        if bucket[OVERFLOW_OFFSET] & display_name.overflow == 0 {
            return None;
        }
    }
    None
}

/// How many lines, padding included, hold that many names at a load of three quarters.
pub(super) fn bucket_count(names: usize) -> usize {
    (names * 4).div_ceil(SLOTS_PER_BUCKET * 3).max(1) + OVERFLOW_BUCKETS
}

/// Lines that hold the names, and for each slot the number of its name and 1; `None` when the
/// key crowds too many of them together and another must be tried.
pub(super) fn fill_buckets<'n>(
    key: &[u8; 16],
    names: impl ExactSizeIterator<Item = (&'n str, u16)>,
) -> Option<(Vec<u8>, Vec<u32>)> {
    let count = bucket_count(names.len());
    let mut lines = vec![0; count * BUCKET_BYTES];
    let mut slots = vec![0; count * SLOTS_PER_BUCKET];
    let mut used = vec![0_u8; count];
    for (number, (name, value)) in (1..).zip(names) {
        let display_name = hash_name(key, name, count);
        let home = display_name.home_bucket as usize;
        let at = (home..=home + OVERFLOW_BUCKETS)
            .find(|bucket| usize::from(used[*bucket]) < SLOTS_PER_BUCKET)?;
        for full in home..at {
            lines[full * BUCKET_BYTES + OVERFLOW_OFFSET] |= display_name.overflow;
        }
        let slot = usize::from(used[at]);
        used[at] += 1;
        let bucket = &mut lines[at * BUCKET_BYTES..(at + 1) * BUCKET_BYTES];
        bucket[4 * slot..4 * slot + 4].copy_from_slice(&display_name.low.to_le_bytes());
        bucket[VALUES_OFFSET + 2 * slot..VALUES_OFFSET + 2 * slot + 2]
            .copy_from_slice(&value.to_le_bytes());
        bucket[HIGH_BITS_OFFSET + slot] = display_name.high;
        slots[at * SLOTS_PER_BUCKET + slot] = number;
    }
    Some((lines, slots))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_where_it_was_put() {
        let names: Vec<String> = (0..20_000).map(|n| format!("name-{n}.example")).collect();
        let key = [7; 16];
        let pairs = names.iter().map(|name| (name.as_str(), 1 + (name.len() % 5) as u16));
        let (lines, slots) = fill_buckets(&key, pairs).unwrap();
        let count = lines.len() / BUCKET_BYTES;
        let find = |name: &str| {
            probe(&lines, hash_name(&key, name, count), |bucket, slot| {
                let number = slots[bucket * SLOTS_PER_BUCKET + slot] as usize;
                names[number - 1] == name
            })
        };
        for name in &names {
            assert_eq!(find(name), Some(1 + (name.len() % 5) as u16), "{name}");
        }
        assert!((0..20_000).all(|n| find(&format!("other-{n}.example")).is_none()));
    }

    #[test]
    fn names_that_share_every_hash_bit_are_told_apart() {
        let key = [1; 16];
        let (mut lines, _) = fill_buckets(&key, [("a.com", 1), ("a.com", 2)].into_iter()).unwrap();
        let at = hash_name(&key, "a.com", lines.len() / BUCKET_BYTES);
        assert_eq!(probe(&lines, at, |_, slot| slot == 1), Some(2));
        assert_eq!(probe(&lines, at, |_, _| false), None);
        lines.truncate(BUCKET_BYTES / 2);
        assert_eq!(probe(&lines, at, |_, _| true), None);
    }
}
