//! The turns of a thread that exchanges something with the store.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::lock::lock;

/// How long such a thread waits between two turns at most.
pub const STORE_EXCHANGE_INTERVAL: Duration = Duration::from_millis(500);

/// The state of a thread that exchanges something with the store: tells the thread when to
/// exchange, and when to end.
#[derive(Default)]
pub struct StoreExchangeThread {
    turns: Mutex<Turns>,
    turns_changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct Turns {
    state: ThreadState,
    /// How many turns have ended.
    ended: u64,
    /// Until this many turns have ended, the thread makes turns without a pause.
    wanted: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ThreadState {
    /// The thread was not started, or has ended.
    #[default]
    Absent,
    Running,
    /// The thread exchanges once more, and ends.
    Closing,
}

impl StoreExchangeThread {
    /// Runs `exchange` at once, then after each [`STORE_EXCHANGE_INTERVAL`], or earlier if somebody
    /// requests a turn. Runs it a last time when [`StoreExchangeThread::close`] is called, and
    /// returns.
    pub fn run(&self, mut exchange: impl FnMut()) {
        exchange();
        while !self.wait_for_next_turn() {
            exchange();
        }
        exchange();
        self.set_state(ThreadState::Absent);
    }

    /// Says that a thread will call [`StoreExchangeThread::run`], which waits only after this call.
    pub fn set_running(&self) {
        self.set_state(ThreadState::Running);
    }

    /// Lets the thread exchange a last time, and waits at most for `timeout` until it has. If the
    /// thread ends in time, nothing is exchanged afterwards.
    pub fn close(&self, timeout: Duration) {
        let mut turns = lock(&self.turns);
        if turns.state == ThreadState::Running {
            turns.state = ThreadState::Closing;
            self.turns_changed.notify_all();
            let is_closing = |turns: &mut Turns| turns.state == ThreadState::Closing;
            let _ = self.turns_changed.wait_timeout_while(turns, timeout, is_closing);
        }
    }

    /// Requests a turn, and waits until the thread has exchanged what the store has now, at most
    /// for `timeout`. Returns at once if no thread runs, or if the thread is about to end.
    pub fn request_turn_and_wait(&self, timeout: Duration) {
        let mut turns = lock(&self.turns);
        let wanted = self.request_turn_of(&mut turns);
        let is_awaited =
            |turns: &mut Turns| turns.state == ThreadState::Running && turns.ended < wanted;
        let _ = self.turns_changed.wait_timeout_while(turns, timeout, is_awaited);
    }

    /// Lets the thread make turns without a pause until two more have ended, the present one
    /// included. Does not wait for them.
    pub fn request_turn(&self) {
        self.request_turn_of(&mut lock(&self.turns));
    }

    /// Does what [`StoreExchangeThread::request_turn`] does. Returns how many turns have ended once
    /// the last requested turn has ended.
    fn request_turn_of(&self, turns: &mut Turns) -> u64 {
        // A turn that has begun may have read the store before now. The turn after that has not.
        turns.wanted = turns.ended + 2;
        self.turns_changed.notify_all();
        turns.wanted
    }

    /// Says that a turn has ended, and waits until it is time for the next one. Returns true if the
    /// next turn is the last one.
    fn wait_for_next_turn(&self) -> bool {
        let mut turns = lock(&self.turns);
        turns.ended += 1;
        self.turns_changed.notify_all();
        let may_wait =
            |turns: &mut Turns| turns.state == ThreadState::Running && turns.ended >= turns.wanted;
        let waited =
            self.turns_changed.wait_timeout_while(turns, STORE_EXCHANGE_INTERVAL, may_wait);
        waited.unwrap_or_else(PoisonError::into_inner).0.state == ThreadState::Closing
    }

    fn set_state(&self, state: ThreadState) {
        lock(&self.turns).state = state;
        self.turns_changed.notify_all();
    }
}
