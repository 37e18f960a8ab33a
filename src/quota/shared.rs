//! State that the ledger shares with its worker thread.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::clock::BootClock;
use super::key_usage::DayCache;
use super::node::Node;
use crate::store::Store;
use crate::support::serving_flag::ServingFlag;

pub(super) struct SharedWithWorker {
    pub(super) node: Node,
    pub(super) boot_clock: BootClock,
    /// Which day it is, for the usage by day.
    pub(super) days: DayCache,
    pub(super) started_at: Instant,
    /// The longest time that a single call waits for the store. A batch may wait longer.
    pub(super) store_deadline: Duration,
    pub(super) serving: ServingFlag,
    /// A second connection to the store, for reads of usage.
    pub(super) usage_reader: Mutex<Store>,
    /// Reads of usage that are queued or running.
    pub(super) usage_reads_in_flight: AtomicU64,
}

impl SharedWithWorker {
    /// Milliseconds since the ledger started, plus 1, because fields such as `operation_began_ms`
    /// use 0 for "none".
    pub(super) fn uptime_ms(&self) -> u64 {
        self.started_at.elapsed().as_millis() as u64 + 1
    }

    /// Returns true if a store operation has been running for more than twice the deadline of a
    /// call. Such an operation counts as an outage; a long queue of reports does not.
    pub(super) fn is_store_hung(&self) -> bool {
        let since = self.node.health.operation_began_ms.load(Ordering::Relaxed);
        let limit = 2 * self.store_deadline.as_millis() as u64;
        since != 0 && self.uptime_ms().saturating_sub(since) > limit
    }
}
