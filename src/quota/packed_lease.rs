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
/// number of calls that no node has leased. Because both are in one word, each spend tells the
/// remaining calls too, as far as this node knows.
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
mod tests {
    use super::*;

    #[test]
    fn packed_fields_wrap_or_saturate() {
        let packed = PackedLease::new(323, 257, 64, u64::MAX);
        assert_eq!(packed.restore_unleased(u64::MAX - 70), u64::MAX);
        assert_eq!((packed.month(), packed.epoch(), packed.held()), (323, 1, 64));
        assert_eq!(packed.unleased_low_bits(), (1 << 28) - 1);
        assert_eq!(PackedLease(packed.0 - PackedLease::ONE_HELD_CALL).held(), 63);
        assert_eq!(PackedLease::new(0, 0, 70_000, 0).held(), PackedLease::HELD_MASK);
    }

    #[test]
    fn unleased_calls_are_restored_from_a_value_near_them() {
        for unleased in [0, 5, u64::from(u32::MAX), 1 << 32, (1 << 32) + 3, 9_999_999_999, 1 << 60]
        {
            for near in [-(1 << 27) + 1, -3, 0, 64, (1 << 27) - 1] {
                let Some(near) = unleased.checked_add_signed(near) else { continue };
                assert_eq!(
                    PackedLease::new(323, 0, 64, unleased).restore_unleased(near),
                    unleased,
                    "{near}"
                );
            }
        }
    }

    #[test]
    fn max_held_calls_drops_to_one_near_the_limit() {
        for (limit, leased, held) in [
            (Some(10_000), 0, 64),
            (Some(10_000), 9_899, 1),
            (Some(10_000), 9_880, 20),
            (Some(10_000), 9_900, 1),
            (Some(10_000), 20_000, 1),
            (Some(1_000), 0, 10),
            (Some(100), 0, 1),
            (Some(0), 0, 1),
            (Some(640_000), 0, 64),
            (Some(1_000_000), 0, 100),
            (Some(1_000_000), 989_950, 50),
            (Some(1_000_000), 990_000, 1),
            (Some(40_960_000), 0, 4_096),
            (Some(u64::MAX), 0, 4_096),
            (None, u64::MAX, 32_768),
        ] {
            assert_eq!(max_held_calls(limit, leased), held, "{limit:?} {leased}");
        }
    }
}
