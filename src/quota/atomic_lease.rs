//! The one word that calls of an account are spent from.
//!
//! Every change is one atomic operation on it. It knows nothing of stores and numbers; whoever
//! takes out or puts in holds the books (`numbers.rs`) and says how much.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

use super::packed_lease::Word;

/// What is held of an account's calls, for one month and one epoch.
#[derive(Debug)]
pub(super) struct Purse(AtomicU64);

impl Purse {
    pub(super) fn new() -> Purse {
        Purse(AtomicU64::new(0))
    }

    /// What is in it at this moment.
    pub(super) fn look(&self) -> Word {
        Word(self.0.load(Ordering::Acquire))
    }

    /// Spends one call of `month`, or of a later one if that has begun; the word after it.
    pub(super) fn take(&self, month: u64) -> Option<Word> {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            let word = Word(seen);
            if word.held() == 0 || word.month() < month {
                return None;
            }
            let next = seen - Word::HELD_ONE;
            match self.0.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Word(next)),
                Err(now) => seen = now,
            }
        }
    }

    /// Takes all but `keep` out, and says how much that was. With `void`, a call that was spent
    /// before can no longer be put back.
    pub(super) fn take_out(&self, keep: u64, void: bool) -> u64 {
        let mut taken = 0;
        self.change(|word| {
            taken = word.held().saturating_sub(keep);
            let epoch = word.epoch() + u64::from(void);
            Word::new(word.month(), epoch, word.held() - taken, word.beyond() + taken)
        });
        taken
    }

    /// Adds what the store has granted, and says how much is held then.
    pub(super) fn put(&self, grown: u64, beyond: u64) -> u64 {
        let mut held = 0;
        self.change(|word| {
            held = word.held() + grown;
            Word::new(word.month(), word.epoch(), held, beyond)
        });
        held
    }

    /// Puts one spent call back.
    pub(super) fn put_back(&self) {
        self.0.fetch_add(Word::HELD_ONE, Ordering::AcqRel);
    }

    /// Begins a month with nothing held, and says how much was held of the last one.
    pub(super) fn enter(&self, month: u64, beyond: u64) -> u64 {
        let mut taken = 0;
        self.change(|word| {
            taken = word.held();
            Word::new(month, word.epoch() + 1, 0, beyond)
        });
        taken
    }

    fn change(&self, mut change: impl FnMut(Word) -> Word) {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            let next = change(Word(seen)).0;
            match self.0.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}
