//! The layout of the 64-bit lease word, and the bound on the calls that a node may hold.
//!
//! Bits and arithmetic only; `atomic_lease.rs` changes the word.

/// The most unspent calls of an account with a limit that one process holds, unless a batch needs
/// more.
const MAX_HELD_CALLS: u64 = 4_096;
/// A limit of at least a hundred times this number lets a process hold at least this many calls,
/// until few calls are unleased.
const MIN_HELD_OF_LARGE_LIMITS: u64 = 64;
/// The most unspent calls of an account without a limit: half of what the word can hold.
const MAX_HELD_UNLIMITED: u64 = 1 << 15;

/// Bit layout, from the highest: month 12 bits, epoch 8, held 16, unleased 28.
///
/// `held` calls can be spent without asking the store. `unleased` is the lower 28 bits of the
/// number of calls that no node has leased. Because both are in one word, each spend tells as well
/// how many calls remain, as far as this node knows.
#[derive(Clone, Copy)]
pub(super) struct PackedLease(pub(super) u64);

const UNLEASED_BITS: u32 = 28;
const UNLEASED_MASK: u64 = (1 << UNLEASED_BITS) - 1;
const EPOCH_MASK: u64 = 0xff;

impl PackedLease {
    /// One call in the `held` field.
    pub(super) const ONE_HELD_CALL: u64 = 1 << UNLEASED_BITS;
    /// The largest value of the `held` field.
    pub(super) const HELD_MASK: u64 = 0xffff;

    pub(super) fn new(month: u64, epoch: u64, held: u64, unleased: u64) -> PackedLease {
        let held = held.min(PackedLease::HELD_MASK);
        let unleased = unleased & UNLEASED_MASK;
        PackedLease(month << 52 | (epoch & EPOCH_MASK) << 44 | held << UNLEASED_BITS | unleased)
    }
    pub(super) fn month(self) -> u64 {
        self.0 >> 52
    }
    pub(super) fn epoch(self) -> u64 {
        self.0 >> 44 & EPOCH_MASK
    }
    pub(super) fn held(self) -> u64 {
        self.0 >> UNLEASED_BITS & PackedLease::HELD_MASK
    }
    pub(super) fn unleased_low_bits(self) -> u64 {
        self.0 & UNLEASED_MASK
    }
    /// Restores all 64 bits of `unleased`. `nearby_value` must be less than 2^27 away from it.
    pub(super) fn restore_unleased(self, nearby_value: u64) -> u64 {
        const UNUSED_BITS: u32 = u64::BITS - UNLEASED_BITS;
        let difference = self.0.wrapping_sub(nearby_value) << UNUSED_BITS;
        nearby_value.wrapping_add_signed(difference.cast_signed() >> UNUSED_BITS)
    }
}

/// The most unspent calls of one account that one process may hold or have requested, unless a
/// batch needs more:
/// - without a limit: [`MAX_HELD_UNLIMITED`];
/// - if at most a hundredth of the limit is unleased: 1;
/// - else at least 1, and at most each of these:
///   - a hundredth of the limit;
///   - a ten-thousandth of the limit, or 64 if that is more;
///   - [`MAX_HELD_CALLS`];
///   - the unleased calls beyond the last hundredth of the limit.
pub(super) fn max_held_calls(limit: Option<u64>, leased_by_all: u64) -> u64 {
    let Some(limit) = limit else { return MAX_HELD_UNLIMITED };
    let hundredth = limit / 100;
    if limit.saturating_sub(leased_by_all) <= hundredth {
        return 1;
    }
    let most = hundredth.min((limit / 10_000).clamp(MIN_HELD_OF_LARGE_LIMITS, MAX_HELD_CALLS));
    // A grant of this size must leave the last hundredth unleased.
    most.min((limit - leased_by_all - hundredth).max(1)).max(1)
}

#[cfg(test)]
mod tests;
