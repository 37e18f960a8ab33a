//! How far riskgate has sent what the h2 crate wrote to a connection.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The progress on one connection. Only the task of the connection changes the progress.
#[derive(Debug, Default)]
pub struct SendProgress {
    written_bytes: AtomicU64,
    is_unflushed: AtomicBool,
}

impl SendProgress {
    /// Notes bytes that wait to be flushed. `length` is 0 before each write, because the connection
    /// may take no bytes now.
    pub fn record_write(&self, length: usize) {
        self.written_bytes.fetch_add(length as u64, Ordering::Relaxed);
        self.is_unflushed.store(true, Ordering::Relaxed);
    }

    /// Notes that the kernel has all written bytes.
    pub fn record_flush(&self) {
        self.is_unflushed.store(false, Ordering::Relaxed);
    }

    /// Returns the number of bytes that were written so far.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Returns true if bytes wait because the client takes none. Each poll of the h2 crate's
    /// connection writes and flushes what it can, so the answer is right after such a poll.
    pub fn is_unflushed(&self) -> bool {
        self.is_unflushed.load(Ordering::Relaxed)
    }
}
