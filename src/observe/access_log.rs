//! The access log: one JSON line per request, written by a thread of its own.
//!
//! Owns the queue of lines and the thread that writes them. If the queue is full, lines are dropped
//! and counted; no request ever waits for the disk. Entries contain no key and no local part of an
//! e-mail address, because the gate removes both before it creates an entry.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

use crate::model::month::format_rfc3339;
use crate::support::regular_file::check_creatable;

/// The most bytes of lines in the queue.
const MAX_QUEUED_BYTES: usize = 4 << 20;
/// The writer wakes as soon as this many bytes are queued. While the target takes no bytes, the
/// queue keeps about this many bytes and the writer as many again; further lines are dropped.
const BATCH_BYTES: usize = 64 << 10;
/// The longest time for which the writer waits until a batch is full.
const BATCH_DELAY: Duration = Duration::from_millis(200);

/// The target of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// riskgate appends to this file, and reopens it after [`AccessLog::request_reopen`].
    File(PathBuf),
}

/// The log entry of one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogEntry<'e> {
    /// When the request started, in Unix milliseconds.
    pub at_ms: i64,
    /// The request's id.
    pub request_id: &'e str,
    /// The peer's address, without its port.
    pub client: Option<IpAddr>,
    /// The method; empty if no request could be parsed.
    pub method: &'e str,
    /// The route's label.
    pub route: &'static str,
    /// The path in two parts, without the query and without the local part of an e-mail address.
    pub path_parts: [&'e str; 2],
    /// The response's status; 0 if none was sent.
    pub status: u16,
    /// `ok`, the refusal's code, or the outcome of the exchange.
    pub outcome: &'static str,
    /// The verdict's reason, if there is a verdict; or why a form was not screened.
    pub reason: Option<&'static str>,
    /// What screening did with a form; `None` if the request was not screened.
    pub screening: Option<ScreeningEntry<'e>>,
    /// The key's id.
    pub key_id: Option<&'e str>,
    /// The account.
    pub account: Option<&'e str>,
    /// The time from the request's header to the end of the response.
    pub duration_us: u64,
}

/// The part of a log entry about the screening of a form.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ScreeningEntry<'e> {
    /// What riskgate did with the form.
    pub action: &'static str,
    /// The worst score.
    pub score: Option<u8>,
    /// The domain of the address with the worst score.
    pub domain: Option<&'e str>,
}

/// The access log with its queue.
pub struct AccessLog {
    shared: Arc<Shared>,
    is_enabled: AtomicBool,
    writer_thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the [`AccessLog`] shares with its writer's thread.
struct Shared {
    queue: Mutex<Queue>,
    /// Notified when a batch is full, or when the log closes.
    batch_ready: Condvar,
    dropped_lines: AtomicU64,
    reopen_requested: AtomicBool,
}

/// The lines that wait for the writer.
#[derive(Default)]
struct Queue {
    lines: Vec<u8>,
    /// The time of the latest line in Unix seconds, and formatted, without fraction and zone.
    formatted_second: (i64, String),
    /// The writer still has lines that the target has not taken.
    has_writer_leftover: bool,
    is_closed: bool,
}

impl AccessLog {
    /// Opens the target and starts the thread that writes.
    pub fn start(target: LogTarget, enabled: bool) -> std::io::Result<AccessLog> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::default()),
            batch_ready: Condvar::new(),
            dropped_lines: AtomicU64::new(0),
            reopen_requested: AtomicBool::new(false),
        });
        let out = open_target(&target)?;
        let mut writer = Writer {
            out,
            target,
            shared: Arc::clone(&shared),
            lines: Vec::new(),
            has_partial_line: false,
        };
        let writer = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || writer.run())?;
        let writer = Mutex::new(Some(writer));
        Ok(AccessLog { shared, is_enabled: AtomicBool::new(enabled), writer_thread: writer })
    }

    /// Checks that a log could be started with this target, without creating the file.
    pub fn check_target_is_writable(target: &LogTarget) -> std::io::Result<()> {
        let LogTarget::File(path) = target else { return Ok(()) };
        match open_options(false).open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => check_creatable(path),
            outcome => outcome.map(drop),
        }
    }

    /// Returns true if the log is on. Check it before you create an entry.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Switches the log on or off.
    pub fn set_enabled(&self, enabled: bool) {
        self.is_enabled.store(enabled, Ordering::Relaxed);
    }

    /// Adds a line to the queue, or drops it if the queue is full. Never waits for the disk.
    pub fn queue_entry(&self, entry: &LogEntry<'_>) {
        let mut queue = self.shared.lock_queue();
        let max_bytes = if queue.has_writer_leftover { BATCH_BYTES } else { MAX_QUEUED_BYTES };
        if queue.is_closed || queue.lines.len() >= max_bytes {
            self.shared.dropped_lines.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let before = queue.lines.len();
        queue.append_json_line(entry);
        if before < BATCH_BYTES && queue.lines.len() >= BATCH_BYTES {
            self.shared.batch_ready.notify_one();
        }
    }

    /// Makes the writer reopen the file before the next line, after a log rotation.
    pub fn request_reopen(&self) {
        self.shared.reopen_requested.store(true, Ordering::Release);
    }

    /// Returns the number of dropped lines.
    pub fn dropped_lines(&self) -> u64 {
        self.shared.dropped_lines.load(Ordering::Relaxed)
    }

    /// Writes the queued lines and stops the writer.
    pub fn close(&self) {
        self.shared.lock_queue().is_closed = true;
        self.shared.batch_ready.notify_one();
        if let Some(writer) =
            self.writer_thread.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            let _ = writer.join();
        }
    }
}

impl Shared {
    fn lock_queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn append_json_line(&mut self, entry: &LogEntry<'_>) {
        let second = entry.at_ms.div_euclid(1000);
        if self.formatted_second.0 != second || self.formatted_second.1.is_empty() {
            self.formatted_second =
                (second, format_rfc3339(second).trim_end_matches('Z').to_owned());
        }
        let out = &mut self.lines;
        let millis = entry.at_ms.rem_euclid(1000);
        out.extend_from_slice(b"{\"time\":\"");
        out.extend_from_slice(self.formatted_second.1.as_bytes());
        out.push(b'.');
        for divisor in [100, 10, 1] {
            out.push(b'0' + (millis / divisor % 10) as u8);
        }
        out.extend_from_slice(b"Z\",\"request_id\":");
        push_json(out, entry.request_id);
        out.extend_from_slice(b",\"client\":\"");
        if let Some(client) = entry.client {
            // A write to a Vec can't fail.
            let _ = write!(out, "{client}");
        }
        out.extend_from_slice(b"\",\"method\":");
        push_json(out, entry.method);
        out.extend_from_slice(b",\"route\":\"");
        out.extend_from_slice(entry.route.as_bytes());
        out.extend_from_slice(b"\",\"path\":");
        push_json(out, format_args!("{}{}", entry.path_parts[0], entry.path_parts[1]));
        out.extend_from_slice(b",\"status\":");
        out.extend_from_slice(itoa::Buffer::new().format(entry.status).as_bytes());
        out.extend_from_slice(b",\"outcome\":\"");
        out.extend_from_slice(entry.outcome.as_bytes());
        out.extend_from_slice(b"\"");
        for (name, value) in [
            (",\"reason\":", entry.reason),
            (",\"key_id\":", entry.key_id),
            (",\"account\":", entry.account),
        ] {
            out.extend_from_slice(name.as_bytes());
            push_json(out, value);
        }
        if let Some(screening) = entry.screening {
            out.extend_from_slice(b",\"screening\":");
            push_json(out, screening);
        }
        out.extend_from_slice(b",\"duration_us\":");
        out.extend_from_slice(itoa::Buffer::new().format(entry.duration_us).as_bytes());
        out.extend_from_slice(b"}\n");
    }
}

/// Appends a value as JSON without an allocation.
fn push_json(out: &mut Vec<u8>, value: impl Serialize) {
    // A write to a Vec can't fail.
    let _ = serde_json::to_writer(out, &value);
}

fn open_target(target: &LogTarget) -> std::io::Result<Box<dyn Write + Send>> {
    match target {
        LogTarget::Stdout => Ok(Box::new(std::io::stdout())),
        LogTarget::File(path) => Ok(Box::new(open_options(true).open(path)?)),
    }
}

/// The options to open the log file. The file contains clients' addresses, so a new file has mode
/// 0640: its owner may write to it, and its group (for a log shipper) may read it.
fn open_options(creates: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    // If the path is a pipe that nobody reads, opening it fails instead of blocking forever.
    options.append(true).create(creates).mode(0o640).custom_flags(libc::O_NONBLOCK);
    options
}

struct Writer {
    out: Box<dyn Write + Send>,
    target: LogTarget,
    shared: Arc<Shared>,
    /// The lines that are being written.
    lines: Vec<u8>,
    /// A part of the first line is written already; `lines` starts with its rest.
    has_partial_line: bool,
}

impl Writer {
    fn run(&mut self) {
        loop {
            let has_leftover = !self.lines.is_empty();
            let is_closed = self.wait_for_lines();
            if !self.lines.is_empty() && self.shared.reopen_requested.swap(false, Ordering::AcqRel)
            {
                if has_leftover {
                    self.flush();
                    self.drop_partial_line();
                }
                match open_target(&self.target) {
                    Ok(out) => self.out = out,
                    Err(error) => {
                        log::error!("log.path: expected to reopen it, but found: {error}")
                    }
                }
            }
            self.flush();
            self.drop_excess_lines();
            if is_closed {
                return self.count_unwritten_as_dropped();
            }
        }
    }

    /// Waits for lines, then takes all lines from the queue. If the writer still has unwritten
    /// lines, the new lines stay in the queue. Returns true once the log is closed.
    fn wait_for_lines(&mut self) -> bool {
        let queue = self.shared.lock_queue();
        let is_below_batch =
            |queue: &mut Queue| !queue.is_closed && queue.lines.len() < BATCH_BYTES;
        let waited = self.shared.batch_ready.wait_timeout_while(queue, BATCH_DELAY, is_below_batch);
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if self.lines.is_empty() {
            std::mem::swap(&mut self.lines, &mut queue.lines);
        } else if queue.lines.len() >= BATCH_BYTES && !queue.is_closed {
            // The target takes no bytes, perhaps because the disk is full: retry after a pause.
            drop(queue);
            std::thread::sleep(BATCH_DELAY);
            return false;
        }
        queue.is_closed
    }

    /// Writes as many bytes as the target takes. The writer keeps the rest and writes it later, so
    /// that a partly written line is completed.
    fn flush(&mut self) {
        let mut written = 0;
        while written < self.lines.len() {
            match self.out.write(&self.lines[written..]) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        if written > 0 {
            self.has_partial_line = self.lines[written - 1] != b'\n';
        }
        self.lines.drain(..written);
        // Standard output buffers an incomplete line until it is flushed.
        let _ = self.out.flush();
    }

    /// Drops the rest of a partly written line, because it must not go into another file.
    fn drop_partial_line(&mut self) {
        let end = self.lines.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if self.has_partial_line && end > 0 {
            self.lines.drain(..end);
            self.shared.dropped_lines.fetch_add(1, Ordering::Relaxed);
            self.has_partial_line = false;
        }
    }

    /// Keeps at most [`BATCH_BYTES`] of unwritten lines, and drops all lines after them. As long as
    /// the writer has unwritten lines, the queue also accepts at most [`BATCH_BYTES`].
    fn drop_excess_lines(&mut self) {
        let kept = self.lines.len().min(BATCH_BYTES);
        let end = self.lines[..kept].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if end < self.lines.len() {
            let excess = self.lines[end..].iter().filter(|byte| **byte == b'\n').count();
            self.shared.dropped_lines.fetch_add(excess as u64, Ordering::Relaxed);
            self.lines.truncate(end);
        }
        self.shared.lock_queue().has_writer_leftover = !self.lines.is_empty();
    }

    /// Counts as dropped all lines that were still unwritten when the log closed.
    fn count_unwritten_as_dropped(&self) {
        let queue = self.shared.lock_queue();
        let lines = self.lines.iter().chain(&queue.lines).filter(|byte| **byte == b'\n').count();
        self.shared.dropped_lines.fetch_add(lines as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_is_valid_json_even_with_quotes_and_control_characters() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let log = AccessLog::start(LogTarget::File(path.clone()), true).unwrap();
        log.queue_entry(&LogEntry {
            at_ms: 1_795_000_000_123,
            path_parts: ["/v1/", "\"\n\u{1}"],
            status: 200,
            ..LogEntry::default()
        });
        log.close();
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text.lines().count(), 1);
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["time"], "2026-11-18T11:06:40.123Z");
        assert_eq!(line["path"], "/v1/\"\n\u{1}");
        assert_eq!(line["key_id"], serde_json::Value::Null);
    }
}
