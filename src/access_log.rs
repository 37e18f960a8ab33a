//! One JSON line for each request, written off the request's way.
//!
//! Owns a bounded queue and the thread that writes. When the queue is full or the disk is, lines
//! are dropped and counted; no request ever waits for its log line. Entries hold no key and no
//! local part of an address: whoever makes them has dropped both.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::month::rfc3339;
use crate::refusal::json_string;

const QUEUE: usize = 16_384;
/// Bytes of lines that are gathered for one write, or wait for room.
const BUFFER: usize = 64 * 1024;

/// Where the lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// A file, appended to, and opened anew after [`AccessLog::reopen`].
    File(PathBuf),
}

/// One request, as it is logged.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// Unix milliseconds.
    pub at_ms: i64,
    /// The request's id.
    pub request_id: String,
    /// The peer's address, without its port.
    pub client: String,
    /// The method, as far as there was one.
    pub method: String,
    /// The route's label.
    pub route: &'static str,
    /// The path, without query and without local parts.
    pub path: String,
    /// The answer's status; 0 when none was sent.
    pub status: u16,
    /// `ok`, the refusal's code, or what became of the exchange.
    pub outcome: &'static str,
    /// The verdict's reason, where one was given.
    pub reason: Option<&'static str>,
    /// The key's id.
    pub key_id: Option<String>,
    /// The account.
    pub account: Option<String>,
    /// From header to end of the answer.
    pub latency_us: u64,
}

/// The log and its queue.
pub struct AccessLog {
    sender: Mutex<Option<SyncSender<Entry>>>,
    enabled: AtomicBool,
    dropped: Arc<AtomicU64>,
    reopen: Arc<AtomicBool>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl AccessLog {
    /// Opens the target and starts its thread.
    pub fn start(target: LogTarget, enabled: bool) -> std::io::Result<AccessLog> {
        let (sender, receiver) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let reopen = Arc::new(AtomicBool::new(false));
        let mut writer = Writer {
            out: open(&target)?,
            target,
            lines: Vec::with_capacity(BUFFER),
            dropped: Arc::clone(&dropped),
            reopen: Arc::clone(&reopen),
        };
        let writer = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || writer.run(&receiver))?;
        Ok(AccessLog {
            sender: Mutex::new(Some(sender)),
            enabled: AtomicBool::new(enabled),
            dropped,
            reopen,
            writer: Mutex::new(Some(writer)),
        })
    }

    /// Whether lines are written at all: ask before making an entry.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Switches the log on or off.
    pub fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Queues an entry; never waits.
    pub fn write(&self, entry: Entry) {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = sender.as_ref().is_some_and(|sender| sender.try_send(entry).is_ok());
        if !sent {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Opens the file anew with the next line: after a rotation.
    pub fn reopen(&self) {
        self.reopen.store(true, Ordering::Release);
    }

    /// Lines that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Writes what is queued and stops.
    pub fn close(&self) {
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = writer.join();
        }
    }
}

fn open(target: &LogTarget) -> std::io::Result<Box<dyn Write + Send>> {
    match target {
        LogTarget::Stdout => Ok(Box::new(std::io::stdout())),
        LogTarget::File(path) => {
            // A pipe in its place that nobody reads is an error, and not a wait without an end.
            let mut options = OpenOptions::new();
            let file = options.append(true).create(true).custom_flags(libc::O_NONBLOCK);
            Ok(Box::new(file.open(path)?))
        }
    }
}

struct Writer {
    out: Box<dyn Write + Send>,
    target: LogTarget,
    /// Whole lines that are not written yet; of the first perhaps only the rest.
    lines: Vec<u8>,
    dropped: Arc<AtomicU64>,
    reopen: Arc<AtomicBool>,
}

impl Writer {
    fn run(&mut self, receiver: &Receiver<Entry>) {
        loop {
            match receiver.recv_timeout(Duration::from_millis(200)) {
                Ok(entry) => self.write(&entry),
                Err(RecvTimeoutError::Timeout) => self.flush(),
                Err(RecvTimeoutError::Disconnected) => {
                    self.flush();
                    return self.drop_lines();
                }
            }
            // What has gathered goes out in one write.
            while let Ok(entry) = receiver.try_recv() {
                self.write(&entry);
            }
            self.flush();
        }
    }

    fn write(&mut self, entry: &Entry) {
        if self.reopen.swap(false, Ordering::AcqRel)
            && let Ok(out) = open(&self.target)
        {
            self.flush();
            self.out = out;
        }
        let line = line(entry);
        if self.lines.len() + line.len() >= BUFFER {
            self.flush();
        }
        if self.lines.len() + line.len() >= BUFFER {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.lines.extend_from_slice(line.as_bytes());
        self.lines.push(b'\n');
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
        self.lines.drain(..written);
        // Standard output keeps what lacks the end of its line.
        let _ = self.out.flush();
    }

    /// Counts what there was no room for until the end.
    fn drop_lines(&self) {
        let lines = self.lines.iter().filter(|byte| **byte == b'\n').count();
        self.dropped.fetch_add(lines as u64, Ordering::Relaxed);
    }
}

fn line(entry: &Entry) -> String {
    let time = rfc3339(entry.at_ms.div_euclid(1000));
    let time = time.trim_end_matches('Z');
    let millis = entry.at_ms.rem_euclid(1000);
    let optional = |text: Option<&str>| text.map_or("null".to_owned(), json_string);
    format!(
        r#"{{"time":"{time}.{millis:03}Z","request_id":{},"client":{},"method":{},"route":"{}","path":{},"status":{},"outcome":"{}","reason":{},"key_id":{},"account":{},"latency_us":{}}}"#,
        json_string(&entry.request_id),
        json_string(&entry.client),
        json_string(&entry.method),
        entry.route,
        json_string(&entry.path),
        entry.status,
        entry.outcome,
        optional(entry.reason),
        optional(entry.key_id.as_deref()),
        optional(entry.account.as_deref()),
        entry.latency_us,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_json_whatever_the_request_held() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let log = AccessLog::start(LogTarget::File(path.clone()), true).unwrap();
        log.write(Entry {
            at_ms: 1_795_000_000_123,
            path: "/v1/\"\n\u{1}".to_owned(),
            status: 200,
            ..Entry::default()
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
