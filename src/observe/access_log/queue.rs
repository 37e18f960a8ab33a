//! The lines of the access log that wait for the writer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};

use super::entry::LogEntry;
use super::line::LineTemplate;
use crate::support::lock::lock;

/// Once the queue has this many bytes, further lines are dropped.
const MAX_QUEUED_LINE_BYTES: usize = 4 << 20;
/// The writer wakes as soon as this many bytes are queued. While each write fails, the queue keeps
/// about this many bytes, the writer keeps as many again, and further lines are dropped.
pub const BATCH_BYTES: usize = 64 << 10;

/// What the access log shares with the thread that writes.
#[derive(Default)]
pub struct SharedQueue {
    pub queue: Mutex<Queue>,
    /// Notified when a batch is full, or when the log closes.
    pub batch_ready: Condvar,
    /// Notified when the writer has ended.
    pub writer_ended: Condvar,
    pub dropped_lines: AtomicU64,
    pub reopen_requested: AtomicBool,
}

/// The lines that wait for the writer.
#[derive(Default)]
pub struct Queue {
    pub lines: Vec<u8>,
    pub template: LineTemplate,
    /// Whether the writer has lines that the target has not taken.
    pub has_writer_leftover: bool,
    pub is_closed: bool,
    /// Whether the writer has ended: it writes nothing more.
    pub has_writer_ended: bool,
}

impl SharedQueue {
    /// Notes that the writer has ended.
    pub fn report_writer_ended(&self) {
        lock(&self.queue).has_writer_ended = true;
        self.writer_ended.notify_all();
    }

    /// Adds a line, or drops it if the queue is full.
    pub fn add_entry(&self, entry: &LogEntry<'_>) {
        let mut queue = lock(&self.queue);
        let max_bytes = if queue.has_writer_leftover { BATCH_BYTES } else { MAX_QUEUED_LINE_BYTES };
        if queue.is_closed || queue.lines.len() >= max_bytes {
            self.dropped_lines.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let before = queue.lines.len();
        let Queue { lines, template, .. } = &mut *queue;
        template.append_line(lines, entry);
        if before < BATCH_BYTES && queue.lines.len() >= BATCH_BYTES {
            self.batch_ready.notify_one();
        }
    }
}
