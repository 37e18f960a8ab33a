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
    for unleased in [0, 5, u64::from(u32::MAX), 1 << 32, (1 << 32) + 3, 9_999_999_999, 1 << 60] {
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
