//! Limits the rate of DNS queries of all clients together.
//!
//! A pacer outlives its clients. If the settings change, riskgate makes a new client with the same
//! pacer. So the old and the new client share the rate.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::support::lock::lock;

/// If a timer fires late, the pacer makes up for a delay of up to this length.
const TIMER_SLACK: Duration = Duration::from_millis(10);

/// Limits the rate of queries: each query waits until the pacer grants it a slot.
pub struct Pacer {
    schedule: Mutex<SlotSchedule>,
    /// The holder of this lock waits for the next slot; the others wait for the lock in FIFO order.
    queue_lock: tokio::sync::Mutex<()>,
}

struct SlotSchedule {
    slot_interval: Duration,
    next_slot_at: Instant,
}

impl Pacer {
    /// A pacer that grants this many slots per second.
    pub fn new(slots_per_second: u32) -> Pacer {
        let schedule = SlotSchedule {
            slot_interval: slot_interval_at(slots_per_second),
            next_slot_at: Instant::now(),
        };
        Pacer { schedule: Mutex::new(schedule), queue_lock: tokio::sync::Mutex::new(()) }
    }

    /// From now on grants this many slots per second.
    pub fn set_rate(&self, slots_per_second: u32) {
        lock(&self.schedule).slot_interval = slot_interval_at(slots_per_second);
    }

    /// Waits for a slot, behind all queries that already wait. A cancelled wait uses no slot.
    pub(super) async fn wait_for_slot(&self) {
        let _turn = self.queue_lock.lock().await;
        while let Err(at) = self.try_take_slot() {
            sleep_until(at).await;
        }
    }

    /// Waits for the next slot, ahead of the queries that already wait.
    pub(super) async fn wait_for_priority_slot(&self) {
        let at = {
            let mut schedule = lock(&self.schedule);
            let at = schedule.next_slot_at.max(Instant::now());
            schedule.next_slot_at = at + schedule.slot_interval;
            at
        };
        sleep_until(at).await;
    }

    /// Takes a slot, if one is due. Otherwise the error is the time at which the next one is due.
    fn try_take_slot(&self) -> Result<(), Instant> {
        let (mut schedule, now) = (lock(&self.schedule), Instant::now());
        if now < schedule.next_slot_at {
            return Err(schedule.next_slot_at);
        }
        schedule.next_slot_at =
            schedule.next_slot_at.max(now - TIMER_SLACK) + schedule.slot_interval;
        Ok(())
    }
}

fn slot_interval_at(slots_per_second: u32) -> Duration {
    Duration::from_secs(1) / slots_per_second.max(1)
}

#[cfg(test)]
mod tests;
