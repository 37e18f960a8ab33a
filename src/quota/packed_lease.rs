//! The layout of the 64-bit lease word, and the bound on the calls that a node may hold.
//!
//! Bits and arithmetic only; `atomic_lease.rs` changes the word.

/// The most unspent calls of one account that one process holds.
pub const MAX_HELD_CALLS: u64 = 64;

/// Bit layout, from the highest: month 12 bits, epoch 10, held 10, unleased 32.
///
/// `held` calls can be spent without asking the store. `unleased` is the lower 32 bits of the
/// number of calls that no node has leased. Because both are in one word, the count of remaining
/// calls is exact for every call.
#[derive(Clone, Copy)]
pub(super) struct PackedLease(pub(super) u64);

impl PackedLease {
    /// One call in the `held` field.
    pub(super) const ONE_HELD_CALL: u64 = 1 << 32;
    /// The largest value of the `held` field.
    pub(super) const HELD_MASK: u64 = 0x3ff;

    pub(super) fn new(month: u64, epoch: u64, held: u64, unleased: u64) -> PackedLease {
        let unleased = unleased & u64::from(u32::MAX);
        PackedLease(
            month << 52 | (epoch & 0x3ff) << 42 | held.min(PackedLease::HELD_MASK) << 32 | unleased,
        )
    }
    pub(super) fn month(self) -> u64 {
        self.0 >> 52
    }
    pub(super) fn epoch(self) -> u64 {
        self.0 >> 42 & 0x3ff
    }
    pub(super) fn held(self) -> u64 {
        self.0 >> 32 & PackedLease::HELD_MASK
    }
    pub(super) fn unleased_low_32_bits(self) -> u64 {
        self.0 & u64::from(u32::MAX)
    }
    /// Restores all 64 bits of `unleased`. `nearby_value` must be less than 2^31 away from it.
    pub(super) fn restore_unleased(self, nearby_value: u64) -> u64 {
        let difference =
            (self.unleased_low_32_bits() as u32).wrapping_sub(nearby_value as u32).cast_signed();
        nearby_value.wrapping_add_signed(i64::from(difference))
    }
}

/// The most unspent calls of one account that one process may hold or have requested: a hundredth
/// of the monthly limit, at least 1 and at most 64. If no more than a hundredth of the limit is
/// unleased, the maximum is 1.
pub(super) fn max_held_calls(limit: Option<u64>, leased_by_all: u64) -> u64 {
    let Some(limit) = limit else { return MAX_HELD_CALLS };
    let hundredth = limit / 100;
    if limit.saturating_sub(leased_by_all) <= hundredth {
        return 1;
    }
    // A grant of this size must leave the last hundredth unleased.
    hundredth.min(MAX_HELD_CALLS).min((limit - leased_by_all - hundredth).max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_fields_wrap_or_saturate() {
        let packed = PackedLease::new(323, 1025, 64, u64::MAX);
        assert_eq!(packed.restore_unleased(u64::MAX - 70), u64::MAX);
        assert_eq!((packed.month(), packed.epoch(), packed.held()), (323, 1, 64));
        assert_eq!(packed.unleased_low_32_bits(), u64::from(u32::MAX));
        assert_eq!(PackedLease(packed.0 - PackedLease::ONE_HELD_CALL).held(), 63);
        assert_eq!(PackedLease::new(0, 0, 5_000, 0).held(), PackedLease::HELD_MASK);
    }

    #[test]
    fn unleased_calls_are_restored_from_a_value_near_them() {
        for unleased in [0, 5, u64::from(u32::MAX), 1 << 32, (1 << 32) + 3, 9_999_999_999, 1 << 60]
        {
            for near in [-(1 << 31) + 1, -3, 0, 64, (1 << 31) - 1] {
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
            (None, u64::MAX, 64),
        ] {
            assert_eq!(max_held_calls(limit, leased), held, "{limit:?} {leased}");
        }
    }
}
