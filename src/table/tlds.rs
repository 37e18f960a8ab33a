//! The top-level domains of a table: which exist, and which have rows that cover suffixes.
//!
//! Every look-up that matches no row up to the registrable domain reads the flags of a TLD. All
//! flags are in a hash table that is small enough for the CPU cache.

use xxhash_rust::xxh3::xxh3_64;

const TLD_BUCKET_COUNT: usize = 2048;

/// A hash table from top-level domains to their flags. An unknown top-level domain has the flags 0.
pub(super) struct TldFlags {
    /// For each bucket, the offset in `flags_and_names` at which it begins. The last element is the
    /// length of `flags_and_names`.
    bucket_starts: Vec<u32>,
    /// Flags, length and name of each top-level domain, in the order of the buckets.
    flags_and_names: Vec<u8>,
}

impl TldFlags {
    pub(super) fn new(tlds: &[(String, u8)]) -> TldFlags {
        let mut sorted: Vec<(usize, &str, u8)> =
            tlds.iter().map(|(name, flags)| (bucket_of(name), name.as_str(), *flags)).collect();
        sorted.sort_unstable();
        let mut bucket_starts = Vec::with_capacity(TLD_BUCKET_COUNT + 1);
        let mut flags_and_names = Vec::with_capacity(tlds.len() * 8);
        for (bucket, name, flags) in sorted {
            bucket_starts.resize(bucket + 1, flags_and_names.len() as u32);
            flags_and_names.extend_from_slice(&[flags, name.len() as u8]);
            flags_and_names.extend_from_slice(name.as_bytes());
        }
        bucket_starts.resize(TLD_BUCKET_COUNT + 1, flags_and_names.len() as u32);
        TldFlags { bucket_starts, flags_and_names }
    }

    pub(super) fn flags_of(&self, name: &str) -> u8 {
        let bucket = bucket_of(name);
        let range = self.bucket_starts[bucket] as usize..self.bucket_starts[bucket + 1] as usize;
        let mut rest = self.flags_and_names.get(range).unwrap_or_default();
        while let Some(([flags, length], after)) = rest.split_first_chunk() {
            let Some((text, after)) = after.split_at_checked(usize::from(*length)) else { break };
            if text == name.as_bytes() {
                return *flags;
            }
            rest = after;
        }
        0
    }
}

fn bucket_of(name: &str) -> usize {
    xxh3_64(name.as_bytes()) as usize % TLD_BUCKET_COUNT
}

#[cfg(test)]
mod tests;
