//! One JSON line for each request, written off the request's way.
//!
//! Owns the lines that wait, as bytes, and the thread that writes them. When there is no more room
//! for them, lines are dropped and counted; no request ever waits for the disk. Entries hold no key
//! and no local part of an address: whoever makes them has dropped both.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::model::month::format_rfc3339;
use crate::model::refusal::push_json_string;
use crate::support::regular_file::check_creatable;

/// Bytes of lines that may wait for the writer.
const MAX_QUEUED_BYTES: usize = 4 << 20;
/// From so many bytes on they are written at once; so many are kept while they can't be.
const BATCH_BYTES: usize = 64 << 10;
/// How long a line waits for others to be written with.
const BATCH_DELAY: Duration = Duration::from_millis(200);

/// Where the lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// A file, appended to, and opened anew after [`AccessLog::reopen`].
    File(PathBuf),
}

/// One request, as it is logged.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogEntry<'e> {
    /// Unix milliseconds.
    pub at_ms: i64,
    /// The request's id.
    pub request_id: &'e str,
    /// The peer's address, without its port.
    pub client: Option<IpAddr>,
    /// The method, as far as there was one.
    pub method: &'e str,
    /// The route's label.
    pub route: &'static str,
    /// The path in two parts, without query and without local parts.
    pub path: [&'e str; 2],
    /// The answer's status; 0 when none was sent.
    pub status: u16,
    /// `ok`, the refusal's code, or what became of the exchange.
    pub outcome: &'static str,
    /// The verdict's reason, where one was given.
    pub reason: Option<&'static str>,
    /// The key's id.
    pub key_id: Option<&'e str>,
    /// The account.
    pub account: Option<&'e str>,
    /// From header to end of the answer.
    pub duration_us: u64,
}

/// The log and what waits for it.
pub struct AccessLog {
    shared: Arc<Shared>,
    enabled: AtomicBool,
    writer: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    waiting: Mutex<Queue>,
    /// Enough waits, or all is over.
    batch_ready: Condvar,
    dropped: AtomicU64,
    reopen: AtomicBool,
}

/// Lines that wait.
#[derive(Default)]
struct Queue {
    lines: Vec<u8>,
    /// The second of the latest line, and how it is written.
    formatted_second: (i64, String),
    /// What was written last could not be written whole.
    is_blocked: bool,
    closed: bool,
}

impl AccessLog {
    /// Opens the target and starts its thread.
    pub fn start(target: LogTarget, enabled: bool) -> std::io::Result<AccessLog> {
        let shared = Arc::new(Shared {
            waiting: Mutex::new(Queue::default()),
            batch_ready: Condvar::new(),
            dropped: AtomicU64::new(0),
            reopen: AtomicBool::new(false),
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
        Ok(AccessLog { shared, enabled: AtomicBool::new(enabled), writer })
    }

    /// Whether a log could be started there; leaves nothing behind.
    pub fn check(target: &LogTarget) -> std::io::Result<()> {
        let LogTarget::File(path) = target else { return Ok(()) };
        match open_options(false).open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => check_creatable(path),
            outcome => outcome.map(drop),
        }
    }

    /// Whether lines are written at all: ask before making an entry.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Switches the log on or off.
    pub fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Adds a line; never waits for the disk.
    pub fn write_entry(&self, entry: &LogEntry<'_>) {
        let mut waiting = self.shared.lock_queue();
        let room = if waiting.is_blocked { BATCH_BYTES } else { MAX_QUEUED_BYTES };
        if waiting.closed || waiting.lines.len() >= room {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let before = waiting.lines.len();
        waiting.push_entry(entry);
        if before < BATCH_BYTES && waiting.lines.len() >= BATCH_BYTES {
            self.shared.batch_ready.notify_one();
        }
    }

    /// Opens the file anew with the next line: after a rotation.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Release);
    }

    /// Lines that were dropped.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Writes what waits and stops.
    pub fn close(&self) {
        self.shared.lock_queue().closed = true;
        self.shared.batch_ready.notify_one();
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = writer.join();
        }
    }
}

impl Shared {
    fn lock_queue(&self) -> MutexGuard<'_, Queue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn push_entry(&mut self, entry: &LogEntry<'_>) {
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
        for place in [100, 10, 1] {
            out.push(b'0' + (millis / place % 10) as u8);
        }
        out.extend_from_slice(b"Z\",\"request_id\":");
        push_json_string(out, &[entry.request_id]);
        out.extend_from_slice(b",\"client\":\"");
        if let Some(client) = entry.client {
            // Writing to memory does not fail.
            let _ = write!(out, "{client}");
        }
        out.extend_from_slice(b"\",\"method\":");
        push_json_string(out, &[entry.method]);
        out.extend_from_slice(b",\"route\":\"");
        out.extend_from_slice(entry.route.as_bytes());
        out.extend_from_slice(b"\",\"path\":");
        push_json_string(out, &entry.path);
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
            match value {
                Some(value) => push_json_string(out, &[value]),
                None => out.extend_from_slice(b"null"),
            }
        }
        out.extend_from_slice(b",\"duration_us\":");
        out.extend_from_slice(itoa::Buffer::new().format(entry.duration_us).as_bytes());
        out.extend_from_slice(b"}\n");
    }
}

fn open_target(target: &LogTarget) -> std::io::Result<Box<dyn Write + Send>> {
    match target {
        LogTarget::Stdout => Ok(Box::new(std::io::stdout())),
        LogTarget::File(path) => Ok(Box::new(open_options(true).open(path)?)),
    }
}

/// How the file is opened. Addresses of callers are in it: it is made for its owner, and for a
/// group that ships logs.
fn open_options(creates: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    // A pipe in its place that nobody reads is an error, and not a wait without an end.
    options.append(true).create(creates).mode(0o640).custom_flags(libc::O_NONBLOCK);
    options
}

struct Writer {
    out: Box<dyn Write + Send>,
    target: LogTarget,
    shared: Arc<Shared>,
    /// Whole lines that are being written; of the first perhaps only the rest.
    lines: Vec<u8>,
    /// Of the first line a part was written already.
    has_partial_line: bool,
}

impl Writer {
    fn run(&mut self) {
        loop {
            let has_leftover = !self.lines.is_empty();
            let closed = self.wait_for_lines();
            if !self.lines.is_empty() && self.shared.reopen.swap(false, Ordering::AcqRel) {
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
            if closed {
                return self.drop_lines();
            }
        }
    }

    /// Waits for lines, and takes all that wait, unless some are still to be written: then those
    /// who come wait, or are dropped. Whether there will be no more.
    fn wait_for_lines(&mut self) -> bool {
        let waiting = self.shared.lock_queue();
        let is_below_batch =
            |waiting: &mut Queue| !waiting.closed && waiting.lines.len() < BATCH_BYTES;
        let waited =
            self.shared.batch_ready.wait_timeout_while(waiting, BATCH_DELAY, is_below_batch);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if self.lines.is_empty() {
            std::mem::swap(&mut self.lines, &mut waiting.lines);
        } else if waiting.lines.len() >= BATCH_BYTES && !waiting.closed {
            // The disk is full: it is not asked over and over.
            drop(waiting);
            std::thread::sleep(BATCH_DELAY);
            return false;
        }
        waiting.closed
    }

    /// Writes what can be written; the rest waits for room, so that no line is ever torn.
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
        // Standard output keeps what lacks the end of its line.
        let _ = self.out.flush();
    }

    /// The rest of a line has no place in another file.
    fn drop_partial_line(&mut self) {
        let end = self.lines.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if self.has_partial_line && end > 0 {
            self.lines.drain(..end);
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            self.has_partial_line = false;
        }
    }

    /// Keeps no more than a batch of what could not be written, all lines but the first whole.
    fn drop_excess_lines(&mut self) {
        let kept = self.lines.len().min(BATCH_BYTES);
        let end = self.lines[..kept].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if end < self.lines.len() {
            let over = self.lines[end..].iter().filter(|byte| **byte == b'\n').count();
            self.shared.dropped.fetch_add(over as u64, Ordering::Relaxed);
            self.lines.truncate(end);
        }
        self.shared.lock_queue().is_blocked = !self.lines.is_empty();
    }

    /// Counts what there was no room for until the end.
    fn drop_lines(&self) {
        let waiting = self.shared.lock_queue();
        let lines = self.lines.iter().chain(&waiting.lines).filter(|byte| **byte == b'\n').count();
        self.shared.dropped.fetch_add(lines as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_json_whatever_the_request_held() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let log = AccessLog::start(LogTarget::File(path.clone()), true).unwrap();
        log.write_entry(&LogEntry {
            at_ms: 1_795_000_000_123,
            path: ["/v1/", "\"\n\u{1}"],
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
