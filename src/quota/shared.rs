//! What the ledger and its thread share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::clock::BootClock;
use super::node::Node;
use crate::store::Store;

pub(super) struct Shared {
    pub(super) node: Node,
    pub(super) boot_clock: BootClock,
    pub(super) started: Instant,
    pub(super) deadline: Duration,
    pub(super) reader: Mutex<Store>,
    /// Reads of usage that wait or are under way.
    pub(super) reads_in_flight: AtomicU64,
}

impl Shared {
    /// Milliseconds since the start, never 0.
    pub(super) fn clock_fn(&self) -> u64 {
        self.started.elapsed().as_millis() as u64 + 1
    }

    /// An operation that runs for twice a call's deadline hangs, and hanging is an outage; a
    /// queue that is merely long is not.
    pub(super) fn is_store_hung(&self) -> bool {
        let since = self.node.health.operation_began_at.load(Ordering::Relaxed);
        let limit = 2 * self.deadline.as_millis() as u64;
        since != 0 && self.clock_fn().saturating_sub(since) > limit
    }
}
