//! The process log on standard error: riskgate's own messages, and those of other crates.
//!
//! This module owns the queue of lines, and the thread that writes them. A message only adds a line
//! to the queue in memory. So if nobody reads the pipe, or the terminal is stopped, only the
//! writing thread blocks. If the queue is full, lines are dropped and counted.

mod levels;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde_json::json;

use super::redaction::redact_secrets;
use crate::model::month::format_rfc3339_millis;
use crate::support::lock::lock;
use crate::support::machine_clock::machine_time_since_epoch;

pub use levels::LogLevels;
use levels::is_own_module;

/// The most bytes of lines in the queue, apart from final lines.
const MAX_QUEUED_LOG_BYTES: usize = 256 << 10;
/// The most bytes of one write, but for a longer line. During an upgrade, two processes may write
/// to the same pipe. A pipe takes up to PIPE_BUF bytes (4096) atomically, so the lines of both
/// processes are not mixed.
const MAX_ATOMIC_WRITE_BYTES: usize = 4_096;
/// How long the process waits at its end until the last lines are written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// If standard error takes no bytes for this long, a process that failed to start gives up writing
/// its faults.
const FINAL_LINES_STALL_TIMEOUT: Duration = Duration::from_secs(2);
/// The most lines of other crates in a second. Some crates log a line for each faulty connection.
const MAX_OTHER_LINES_PER_SECOND: u32 = 20;

/// The most characters of a message of another crate. Pingora logs all options of a connection.
const MAX_OTHER_MESSAGE_CHARS: usize = 300;

/// The options that a reload may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessLogOptions {
    /// Which messages are logged.
    pub levels: LogLevels,
    /// Whether lines are JSON objects instead of text.
    pub is_json: bool,
}

/// The process log. When it is dropped, it waits as [`ProcessLog::flush`] does.
pub struct ProcessLog(Arc<SharedState>);

/// The implementation of the `log` facade.
struct Logger(Arc<SharedState>);

/// What the [`ProcessLog`] and the [`Logger`] share with the writer's thread.
#[derive(Default)]
struct SharedState {
    options: RwLock<ProcessLogOptions>,
    queue: Mutex<Queue>,
    /// Notified whenever lines are queued or written.
    queue_changed: Condvar,
}

#[derive(Default)]
struct Queue {
    lines: Vec<u8>,
    /// Bytes that the writer has taken from the queue and not written yet.
    bytes_in_write: usize,
    dropped_lines: u64,
    /// The second in which another crate last logged a line, and the lines of other crates in that
    /// second.
    other_lines: (u64, u32),
    /// How many lines of other crates were dropped and are not reported yet.
    dropped_other_lines: u64,
}

impl ProcessLog {
    /// Installs the log: from now on a thread writes the messages to standard error.
    pub fn install() -> io::Result<ProcessLog> {
        let out = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let log = ProcessLog::start_writer_thread(out)?;
        // If the program has installed another logger already, that logger stays, and this log gets
        // no messages.
        if log::set_boxed_logger(Box::new(Logger(Arc::clone(&log.0)))).is_ok() {
            log.set_options(ProcessLogOptions::default());
        }
        Ok(log)
    }

    /// Changes the options for the messages from now on.
    pub fn set_options(&self, options: ProcessLogOptions) {
        log::set_max_level(options.levels.most_detailed());
        *self.0.options.write().unwrap_or_else(PoisonError::into_inner) = options;
    }

    fn start_writer_thread(out: impl Write + Send + 'static) -> io::Result<ProcessLog> {
        let shared = Arc::new(SharedState::default());
        let writer = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("error-log".to_owned())
            .spawn(move || writer.write_lines(out))?;
        Ok(ProcessLog(shared))
    }

    /// Returns how many lines were dropped, because the queue was full, or because standard error
    /// did not take the lines.
    pub fn dropped_lines(&self) -> u64 {
        lock(&self.0.queue).dropped_lines
    }

    /// Waits until all lines are written, at most for [`FLUSH_TIMEOUT`].
    pub fn flush(&self) {
        self.0.wait_until_written(FLUSH_TIMEOUT, Some(FLUSH_TIMEOUT));
    }

    /// Writes these lines unchanged, however many they are. Waits until they are written, or until
    /// standard error has taken no bytes for [`FINAL_LINES_STALL_TIMEOUT`].
    pub fn write_final_lines(&self, lines: &[String]) {
        for line in lines {
            let mut queue = lock(&self.0.queue);
            queue.lines.extend_from_slice(line.as_bytes());
            queue.lines.push(b'\n');
        }
        self.0.queue_changed.notify_all();
        self.0.wait_until_written(FINAL_LINES_STALL_TIMEOUT, None);
    }
}

impl Drop for ProcessLog {
    fn drop(&mut self) {
        self.flush();
    }
}

impl log::Log for Logger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        let options = self.0.options.read().unwrap_or_else(PoisonError::into_inner);
        metadata.level() <= options.levels.level_of(metadata.target())
    }

    fn log(&self, record: &log::Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let (module, message) = (record.target(), record.args().to_string());
        let now = machine_time_since_epoch();
        if is_own_module(module) {
            self.0.queue_message(now, record.level(), module, &message);
        } else if self.0.count_and_admit_line_of_other_crate(now.as_secs()) {
            // Pingora quotes a header that it can't parse, and the header may contain a key.
            let message = message.split("buf: ").next().unwrap_or_default().trim_end();
            let shown: String =
                redact_secrets(message).chars().take(MAX_OTHER_MESSAGE_CHARS).collect();
            self.0.queue_message(now, record.level(), module, &shown);
        }
    }

    fn flush(&self) {
        self.0.wait_until_written(FLUSH_TIMEOUT, Some(FLUSH_TIMEOUT));
    }
}

impl SharedState {
    /// Counts a line of another crate. Returns false if the line must be dropped, because other
    /// crates have logged [`MAX_OTHER_LINES_PER_SECOND`] in this second already.
    fn count_and_admit_line_of_other_crate(&self, second: u64) -> bool {
        let mut queue = lock(&self.queue);
        if queue.other_lines.0 != second {
            let dropped = std::mem::take(&mut queue.dropped_other_lines);
            queue.other_lines = (second, 0);
            if dropped > 0 {
                drop(queue);
                log::warn!(
                    "{dropped} lines of other crates were dropped, because there were more than \
                     {MAX_OTHER_LINES_PER_SECOND} in a second"
                );
                queue = lock(&self.queue);
            }
        }
        let is_within_limit = queue.other_lines.1 < MAX_OTHER_LINES_PER_SECOND;
        match is_within_limit {
            true => queue.other_lines.1 += 1,
            false => queue.dropped_other_lines += 1,
        }
        is_within_limit
    }

    fn queue_message(&self, unix_time: Duration, level: log::Level, module: &str, message: &str) {
        self.queue_or_drop_line(&self.format_line(unix_time, level, module, message));
    }

    fn format_line(
        &self,
        unix_time: Duration,
        level: log::Level,
        module: &str,
        message: &str,
    ) -> String {
        let level = level.as_str().to_ascii_lowercase();
        let time = format_rfc3339_millis(i64::try_from(unix_time.as_millis()).unwrap_or_default());
        let is_json = self.options.read().unwrap_or_else(PoisonError::into_inner).is_json;
        let line = match (is_json, is_own_module(module)) {
            (true, _) => {
                json!({"time": time, "level": level, "module": module, "message": message})
                    .to_string()
            }
            (false, true) => format!("{time} {level}: {message}"),
            (false, false) => format!("{time} {level}: {module}: {message}"),
        };
        line + "\n"
    }

    /// Adds a line, or drops it if the queue is full. Never waits for standard error.
    fn queue_or_drop_line(&self, line: &str) {
        let mut queue = lock(&self.queue);
        if queue.lines.len() + line.len() > MAX_QUEUED_LOG_BYTES {
            queue.dropped_lines += 1;
            return;
        }
        queue.lines.extend_from_slice(line.as_bytes());
        drop(queue);
        self.queue_changed.notify_all();
    }

    /// Writes queued lines as long as the process lives.
    fn write_lines(&self, mut out: impl Write) {
        let (mut lines, mut dropped_reported) = (Vec::new(), 0);
        loop {
            let queue = lock(&self.queue);
            let is_empty = |queue: &mut Queue| queue.lines.is_empty();
            let waited = self.queue_changed.wait_while(queue, is_empty);
            let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut lines, &mut queue.lines);
            let dropped = queue.dropped_lines - dropped_reported;
            if dropped > 0 {
                dropped_reported = queue.dropped_lines;
                let message =
                    format!("{dropped} lines were dropped because standard error was not read");
                let line = self.format_line(
                    machine_time_since_epoch(),
                    log::Level::Warn,
                    "riskgate",
                    &message,
                );
                lines.extend_from_slice(line.as_bytes());
            }
            queue.bytes_in_write = lines.len();
            drop(queue);
            for piece in split_into_chunks(&lines) {
                let dropped = write_chunk(&mut out, piece);
                let mut queue = lock(&self.queue);
                queue.bytes_in_write -= piece.len();
                queue.dropped_lines += dropped;
                drop(queue);
                self.queue_changed.notify_all();
            }
            lines.clear();
            lines.shrink_to(MAX_ATOMIC_WRITE_BYTES);
        }
    }

    /// Waits until all lines are written. Gives up after `total_timeout`, if there is one, or once
    /// no bytes were written for `stall_timeout`.
    fn wait_until_written(&self, stall_timeout: Duration, total_timeout: Option<Duration>) {
        let started = Instant::now();
        let mut queue = lock(&self.queue);
        loop {
            let left = queue.lines.len() + queue.bytes_in_write;
            let total_left = total_timeout.map(|total| total.saturating_sub(started.elapsed()));
            let time = total_left.map_or(stall_timeout, |total_left| stall_timeout.min(total_left));
            if left == 0 || time.is_zero() {
                return;
            }
            let is_unchanged = |queue: &mut Queue| queue.lines.len() + queue.bytes_in_write >= left;
            let waited = self.queue_changed.wait_timeout_while(queue, time, is_unchanged);
            let (after, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                return;
            }
            queue = after;
        }
    }
}

/// Writes a chunk. Returns how many of its lines were not written completely. If another process
/// has made standard error non-blocking, a write takes only the bytes that the pipe can hold.
fn write_chunk(out: &mut impl Write, chunk: &[u8]) -> u64 {
    let mut left = chunk;
    while !left.is_empty() {
        match out.write(left) {
            Ok(written @ 1..) => left = &left[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // riskgate has no other place where it could report the error.
            Ok(0) | Err(_) => break,
        }
    }
    left.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Splits `lines` into chunks of whole lines, each of at most [`MAX_ATOMIC_WRITE_BYTES`] bytes. A
/// longer line is a chunk of its own.
fn split_into_chunks(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = lines;
    std::iter::from_fn(move || {
        let end = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        let first = || rest.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let at = end(&rest[..rest.len().min(MAX_ATOMIC_WRITE_BYTES)])
            .or_else(first)
            .unwrap_or(rest.len());
        let (piece, left) = rest.split_at(at);
        rest = left;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests;
