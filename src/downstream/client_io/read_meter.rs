//! How much a client sends.

use std::sync::atomic::{AtomicI64, Ordering};

use tokio::sync::Notify;

/// For how many streams of HTTP/2 bytes are forgiven that come behind their end.
const MAX_FORGIVEN_STREAMS: i64 = 64;
/// What may come on a stream behind its end: its window (RFC 9113 section 6.9.2) in small frames.
const FORGIVEN_BYTES_PER_STREAM: i64 = 2 * 65_535;

/// Counts bytes that are read.
#[derive(Debug)]
pub struct ReadMeter {
    limit: i64,
    /// Below zero while there are bytes that were forgiven and have not come.
    read: AtomicI64,
    exceeded: Notify,
}

impl ReadMeter {
    /// A meter that tells when more than this was read.
    pub fn new(limit: i64) -> ReadMeter {
        ReadMeter { limit, read: AtomicI64::new(0), exceeded: Notify::new() }
    }

    pub fn add_bytes(&self, bytes: usize) {
        let bytes = bytes.cast_signed() as i64;
        if self.read.fetch_add(bytes, Ordering::Relaxed) + bytes > self.limit {
            self.exceeded.notify_one();
        }
    }

    /// Begins anew.
    pub fn reset(&self) {
        self.read.fetch_min(0, Ordering::Relaxed);
    }

    /// Does not count what may be under way on a stream that has ended before its body has.
    pub fn forgive_window(&self) {
        let least = -MAX_FORGIVEN_STREAMS * FORGIVEN_BYTES_PER_STREAM;
        let forgiven = |read: i64| Some((read.min(0) - FORGIVEN_BYTES_PER_STREAM).max(least));
        // The closure always gives a value.
        let _ = self.read.fetch_update(Ordering::Relaxed, Ordering::Relaxed, forgiven);
    }

    /// Resolves once there was more than there may be.
    pub async fn wait_until_exceeded(&self) {
        while self.read.load(Ordering::Relaxed) <= self.limit {
            self.exceeded.notified().await;
        }
    }
}
