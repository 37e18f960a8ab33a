//! Random numbers of tests, and the seeds that they start from.

use std::ops::Range;

/// Generates pseudo-random numbers (splitmix64).
pub struct RandomNumbers(pub u64);

impl RandomNumbers {
    pub fn number_below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below as u64) as usize
    }

    pub fn pick_one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.number_below(of.len())]
    }

    /// Returns true once in `of` calls on average.
    pub fn one_in(&mut self, of: usize) -> bool {
        self.number_below(of) == 0
    }
}

/// The first seed of random tests: `RISKGATE_TEST_SEED`, or 0. `scripts/test` derives it from the
/// commit.
pub fn first_seed() -> u64 {
    read_number("RISKGATE_TEST_SEED").unwrap_or(0)
}

/// The seeds of random tests: those in `RISKGATE_TEST_SEEDS`, such as `1000..2000`, or
/// `default_count` seeds from the first one.
pub fn seed_range(default_count: u64) -> Range<u64> {
    let Ok(told) = std::env::var("RISKGATE_TEST_SEEDS") else {
        return first_seed()..first_seed() + default_count;
    };
    let parse = |text: &str| {
        let fault = || panic!("RISKGATE_TEST_SEEDS: expected N or FIRST..END, but found {told:?}");
        text.parse::<u64>().unwrap_or_else(|_| fault())
    };
    match told.split_once("..") {
        Some((first, end)) => parse(first)..parse(end),
        None => parse(&told)..parse(&told) + 1,
    }
}

/// The number in an environment variable, if it is set.
pub fn read_number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}: expected a number, found {text:?}")))
}
