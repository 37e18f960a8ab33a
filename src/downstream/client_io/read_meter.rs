//! A meter of the bytes that a client sends.

use std::sync::atomic::{AtomicI64, Ordering};

use tokio::sync::Notify;

/// The most ended HTTP/2 streams whose late bytes are exempt from the count.
const MAX_EXEMPT_STREAMS: i64 = 64;
/// The most bytes that may still arrive on a stream after its end: the initial flow-control window
/// (RFC 9113 section 6.9.2), doubled for the overhead of small frames.
const EXEMPT_BYTES_PER_STREAM: i64 = 2 * 65_535;

/// Counts the bytes that a client sends on one connection, and reports when they exceed a limit.
#[derive(Debug)]
pub struct ReadMeter {
    limit_bytes: i64,
    /// The bytes counted; below zero while exempt bytes may still arrive.
    counted_bytes: AtomicI64,
    limit_exceeded: Notify,
}

impl ReadMeter {
    /// Creates a meter that reports when more than `limit_bytes` were counted.
    pub fn new(limit_bytes: i64) -> ReadMeter {
        ReadMeter { limit_bytes, counted_bytes: AtomicI64::new(0), limit_exceeded: Notify::new() }
    }

    pub fn count_bytes(&self, bytes: usize) {
        let bytes = bytes.cast_signed() as i64;
        if self.counted_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.limit_bytes {
            self.limit_exceeded.notify_one();
        }
    }

    /// Sets the count to zero; the exemption for late bytes remains.
    pub fn reset_count(&self) {
        self.counted_bytes.fetch_min(0, Ordering::Relaxed);
    }

    /// Exempts the bytes of one body that may still arrive after its request was answered.
    pub fn exempt_late_body_bytes(&self) {
        let min = -MAX_EXEMPT_STREAMS * EXEMPT_BYTES_PER_STREAM;
        let forgiven = |read: i64| Some((read.min(0) - EXEMPT_BYTES_PER_STREAM).max(min));
        // The closure always returns a value, so the update can't fail.
        let _ = self.counted_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, forgiven);
    }

    /// Resolves once more bytes than the limit were counted.
    pub async fn wait_until_exceeded(&self) {
        while self.counted_bytes.load(Ordering::Relaxed) <= self.limit_bytes {
            self.limit_exceeded.notified().await;
        }
    }
}
