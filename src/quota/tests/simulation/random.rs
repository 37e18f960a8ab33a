//! Random choices; the same seed gives the same choices.

/// Splitmix64 (Steele, Lea, Flood 2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(super) fn random_below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.random_below(n) == 0
    }

    pub(super) fn pick<T: std::marker::Copy>(&mut self, from: &[T]) -> T {
        from[self.random_below(from.len() as u64) as usize]
    }
}
