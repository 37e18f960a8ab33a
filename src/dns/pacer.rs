//! Limits the rate of DNS queries of all clients together.
//!
//! A pacer outlives its clients: if a change of the settings makes a new client, the new client
//! uses the same pacer. Therefore it can't exceed the rate.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// A timer may fire this late without lowering the rate.
const TIMER_SLACK: Duration = Duration::from_millis(10);

/// Grants one slot for each query.
pub struct Pacer {
    schedule: Mutex<Schedule>,
    /// The holder of this lock waits for the next slot; the others wait for the lock in FIFO order.
    queue: tokio::sync::Mutex<()>,
}

struct Schedule {
    interval: Duration,
    next_slot: Instant,
}

impl Pacer {
    /// Grants `rate` slots per second.
    pub fn new(rate: u32) -> Pacer {
        let schedule = Schedule { interval: interval_of(rate), next_slot: Instant::now() };
        Pacer { schedule: Mutex::new(schedule), queue: tokio::sync::Mutex::new(()) }
    }

    /// Grants `rate` slots per second from now on.
    pub fn set_rate(&self, rate: u32) {
        self.lock_schedule().interval = interval_of(rate);
    }

    /// Waits for a slot, behind all queries that already wait. A cancelled wait uses no slot.
    pub(super) async fn wait_for_slot(&self) {
        let _turn = self.queue.lock().await;
        while let Err(at) = self.try_take_slot() {
            sleep_until(at).await;
        }
    }

    /// Waits for the next slot, ahead of the queries that already wait.
    pub(super) async fn wait_for_priority_slot(&self) {
        let at = {
            let mut schedule = self.lock_schedule();
            let at = schedule.next_slot.max(Instant::now());
            schedule.next_slot = at + schedule.interval;
            at
        };
        sleep_until(at).await;
    }

    /// Takes a slot, if one is due. Otherwise the error is the time at which the next one is due.
    fn try_take_slot(&self) -> Result<(), Instant> {
        let (mut schedule, now) = (self.lock_schedule(), Instant::now());
        if now < schedule.next_slot {
            return Err(schedule.next_slot);
        }
        schedule.next_slot = schedule.next_slot.max(now - TIMER_SLACK) + schedule.interval;
        Ok(())
    }

    fn lock_schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn interval_of(rate: u32) -> Duration {
    Duration::from_secs(1) / rate.max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_cancelled_wait_spends_no_slot() {
        let pacer = Pacer::new(10);
        pacer.wait_for_slot().await;
        for _ in 0..20 {
            let wait = timeout(Duration::from_millis(1), pacer.wait_for_slot());
            assert!(wait.await.is_err());
        }
        let started = Instant::now();
        pacer.wait_for_slot().await;
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }

    #[tokio::test]
    async fn a_priority_slot_is_granted_ahead_of_the_queue() {
        let pacer = Arc::new(Pacer::new(4));
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..40 {
            let pacer = Arc::clone(&pacer);
            waiting.spawn(async move { pacer.wait_for_slot().await });
        }
        waiting.join_next().await;
        let started = Instant::now();
        pacer.wait_for_priority_slot().await;
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    }

    #[tokio::test]
    async fn both_kinds_of_wait_share_one_rate() {
        let pacer = Pacer::new(100);
        let started = Instant::now();
        for _ in 0..20 {
            tokio::join!(pacer.wait_for_slot(), pacer.wait_for_priority_slot());
        }
        assert!(started.elapsed() > Duration::from_millis(350), "{:?}", started.elapsed());
        pacer.set_rate(10_000);
        let started = Instant::now();
        for _ in 0..20 {
            pacer.wait_for_slot().await;
        }
        assert!(started.elapsed() < Duration::from_millis(350), "{:?}", started.elapsed());
    }
}
