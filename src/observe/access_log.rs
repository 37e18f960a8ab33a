//! The access log: one line per request, written by a thread of its own.
//!
//! This module owns the queue of lines, and the thread that writes them. If the queue is full,
//! lines are dropped and counted. No request ever waits for the disk. Entries contain no key and no
//! local part of an e-mail address, because the gate removes both before it creates an entry.

mod entry;
mod line;
mod queue;
mod writer;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

pub use entry::{LogEntry, ScreeningEntry};
pub use line::{LineForm, LogField, LogFormat};
pub use writer::{LogRotation, LogTarget};

use line::LineTemplate;
use queue::{Queue, SharedQueue};
use writer::Writer;

use crate::support::lock::lock;

/// The options that a reload may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessLogOptions {
    /// Whether requests are logged.
    pub is_enabled: bool,
    /// The form of the lines.
    pub form: LineForm,
}

/// The access log with its queue.
pub struct AccessLog {
    shared: Arc<SharedQueue>,
    is_enabled: AtomicBool,
    has_user_agent: AtomicBool,
    target_text: String,
}

impl AccessLog {
    /// Opens the target, and starts the thread that writes lines to it.
    pub fn start(target: LogTarget, options: AccessLogOptions) -> std::io::Result<AccessLog> {
        let shared = Arc::new(SharedQueue::default());
        let target_text = match &target.path {
            Some(path) => path.display().to_string(),
            None => "standard output".to_owned(),
        };
        let mut writer = Writer::open(target, Arc::clone(&shared))?;
        let shared_by_writer = Arc::clone(&shared);
        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || {
            writer.run();
            shared_by_writer.report_writer_ended();
        })?;
        let log = AccessLog {
            shared,
            is_enabled: AtomicBool::new(false),
            has_user_agent: AtomicBool::new(false),
            target_text,
        };
        log.set_options(options);
        Ok(log)
    }

    /// Returns true if the log is on. Call this before you create an entry.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Returns true if lines contain `User-Agent`. Otherwise, entries need no such value.
    pub fn has_user_agent(&self) -> bool {
        self.has_user_agent.load(Ordering::Relaxed)
    }

    /// Changes the options for the lines from now on.
    pub fn set_options(&self, options: AccessLogOptions) {
        let has_user_agent = options.form.fields.contains(&LogField::UserAgent);
        lock(&self.shared.queue).template = LineTemplate::new(&options.form);
        self.has_user_agent.store(has_user_agent, Ordering::Relaxed);
        self.is_enabled.store(options.is_enabled, Ordering::Relaxed);
    }

    /// Adds a line to the queue, or drops it if the queue is full. Never waits for the disk.
    pub fn queue_entry(&self, entry: &LogEntry<'_>) {
        self.shared.add_entry(entry);
    }

    /// Makes the writer reopen the file within a moment. If that fails, the writer goes on with the
    /// old file. Call this after another program has renamed the file.
    pub fn request_reopen(&self) {
        self.shared.reopen_requested.store(true, Ordering::Release);
    }

    /// Returns the number of dropped lines.
    pub fn dropped_lines(&self) -> u64 {
        self.shared.dropped_lines.load(Ordering::Relaxed)
    }

    /// Lets the writer write once more and end. Lines that are left then are dropped. Waits for the
    /// writer, at most for `max_wait`. Returns false if the writer still waits for the target.
    pub fn close(&self, max_wait: Duration) -> bool {
        let mut queue = lock(&self.shared.queue);
        queue.is_closed = true;
        self.shared.batch_ready.notify_one();
        let is_writing = |queue: &mut Queue| !queue.has_writer_ended;
        let waited = self.shared.writer_ended.wait_timeout_while(queue, max_wait, is_writing);
        waited.unwrap_or_else(PoisonError::into_inner).0.has_writer_ended
    }

    /// The target as messages name it: the file, or standard output.
    pub fn target_text(&self) -> &str {
        &self.target_text
    }
}

#[cfg(test)]
mod tests;
