//! The process log on standard error: riskgate's own messages from level info, and errors of all
//! other crates.
//!
//! Owns the queue of lines and the thread that writes them. Logging only adds a line to the queue
//! in memory. So if nobody reads the pipe, or the terminal is stopped, only the writer's thread
//! blocks. If the queue is full, lines are dropped and counted.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most bytes of lines in the queue.
const MAX_QUEUED_BYTES: usize = 256 << 10;
/// The most bytes of one write. During an upgrade, two processes may write to the same pipe. A pipe
/// takes up to PIPE_BUF bytes (4096) atomically, so the lines of the two are not mixed.
const MAX_ATOMIC_WRITE_BYTES: usize = 4_096;
/// How long the process waits at its end until the last lines are written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long standard error may take no bytes before a process that failed to start gives up writing
/// its faults.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);

/// The process log. When it is dropped, the queued lines are written.
pub struct ProcessLog(Arc<Shared>);

/// The implementation of the `log` facade.
struct Logger(Arc<Shared>);

/// What the [`ProcessLog`] and the [`Logger`] share with the writer's thread.
#[derive(Default)]
struct Shared {
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
}

impl ProcessLog {
    /// Installs the log: from now on a thread writes all messages to standard error.
    pub fn install() -> io::Result<ProcessLog> {
        let out = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let log = ProcessLog::start_writer_thread(out)?;
        // If the program has installed a logger already, that one stays, and this log gets no
        // messages.
        if log::set_boxed_logger(Box::new(Logger(Arc::clone(&log.0)))).is_ok() {
            log::set_max_level(log::LevelFilter::Info);
        }
        Ok(log)
    }

    fn start_writer_thread(out: impl Write + Send + 'static) -> io::Result<ProcessLog> {
        let shared = Arc::new(Shared::default());
        let writer = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("error-log".to_owned())
            .spawn(move || writer.write_lines(out))?;
        Ok(ProcessLog(shared))
    }

    /// Returns the number of lines that were dropped because the queue was full or standard error
    /// did not take them.
    pub fn dropped_lines(&self) -> u64 {
        self.0.lock_queue().dropped_lines
    }

    /// Waits until all lines are written, for at most 1 s.
    pub fn flush(&self) {
        self.0.wait_until_written(FLUSH_TIMEOUT, Some(FLUSH_TIMEOUT));
    }

    /// Writes all these lines unchanged. Waits until they are written, or until standard error has
    /// taken no bytes for [`STALL_TIMEOUT`].
    pub fn write_final_lines(&self, lines: &[String]) {
        for line in lines {
            let mut queue = self.0.lock_queue();
            queue.lines.extend_from_slice(line.as_bytes());
            queue.lines.push(b'\n');
        }
        self.0.queue_changed.notify_all();
        self.0.wait_until_written(STALL_TIMEOUT, None);
    }
}

impl Drop for ProcessLog {
    fn drop(&mut self) {
        self.flush();
    }
}

impl log::Log for Logger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        let is_own = metadata.target().starts_with("riskgate");
        metadata.level() <= if is_own { log::Level::Info } else { log::Level::Error }
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = record.level().as_str().to_ascii_lowercase();
            let message = record.args().to_string();
            // Pingora quotes a header that it can't parse, and the header may contain a key.
            let message = message.split("buf: ").next().unwrap_or_default().trim_end();
            self.0.queue_or_drop_line(&format!("riskgate: {level}: {message}\n"));
        }
    }

    fn flush(&self) {
        self.0.wait_until_written(FLUSH_TIMEOUT, Some(FLUSH_TIMEOUT));
    }
}

impl Shared {
    fn lock_queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line, or drops it; never waits for standard error.
    fn queue_or_drop_line(&self, line: &str) {
        let mut queue = self.lock_queue();
        if queue.lines.len() + line.len() > MAX_QUEUED_BYTES {
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
            let queue = self.lock_queue();
            let is_empty = |queue: &mut Queue| queue.lines.is_empty();
            let waited = self.queue_changed.wait_while(queue, is_empty);
            let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut lines, &mut queue.lines);
            let dropped = queue.dropped_lines - dropped_reported;
            if dropped > 0 {
                dropped_reported = queue.dropped_lines;
                let text = "lines were dropped because standard error was not read";
                // A write to a Vec can't fail.
                let _ = writeln!(lines, "riskgate: warn: {dropped} {text}");
            }
            queue.bytes_in_write = lines.len();
            drop(queue);
            for piece in split_into_chunks(&lines) {
                let dropped = write_chunk(&mut out, piece);
                let mut queue = self.lock_queue();
                queue.bytes_in_write -= piece.len();
                queue.dropped_lines += dropped;
                drop(queue);
                self.queue_changed.notify_all();
            }
            lines.clear();
            lines.shrink_to(MAX_ATOMIC_WRITE_BYTES);
        }
    }

    /// Waits until all lines are written. Gives up after `total_timeout` (None: no limit), or if no
    /// bytes are written for `stall_timeout`.
    fn wait_until_written(&self, stall_timeout: Duration, total_timeout: Option<Duration>) {
        let started = Instant::now();
        let mut queue = self.lock_queue();
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

/// Writes a chunk. Returns how many of its lines were not written completely: if another process
/// has made standard error non-blocking, a write takes only the bytes that fit into the pipe's
/// buffer.
fn write_chunk(out: &mut impl Write, chunk: &[u8]) -> u64 {
    let mut left = chunk;
    while !left.is_empty() {
        match out.write(left) {
            Ok(written @ 1..) => left = &left[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // There is no other place to report the error to.
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
mod tests {
    use super::*;

    #[test]
    fn chunks_end_with_a_line_and_a_longer_line_is_one_chunk() {
        let long = "x".repeat(MAX_ATOMIC_WRITE_BYTES);
        let lines = format!("one\ntwo\n{long}\n{}\nlast\n", &long[..MAX_ATOMIC_WRITE_BYTES - 2]);
        let found: Vec<&[u8]> = split_into_chunks(lines.as_bytes()).collect();
        let lengths: Vec<usize> = found.iter().map(|piece| piece.len()).collect();
        assert_eq!(lengths, [8, MAX_ATOMIC_WRITE_BYTES + 1, MAX_ATOMIC_WRITE_BYTES - 1, 5]);
        assert_eq!(found.concat(), lines.as_bytes());
        assert_eq!(split_into_chunks(b"").count(), 0);
    }

    /// Fails the first writes with WouldBlock, like a full non-blocking pipe.
    struct BlockedWriter(u32, Arc<Mutex<Vec<u8>>>);

    impl Write for BlockedWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.saturating_sub(1);
            match self.0 {
                0 => self.1.lock().unwrap().write(bytes),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_standard_error_does_not_take_are_counted_and_logged() {
        let written = Arc::default();
        let log = ProcessLog::start_writer_thread(BlockedWriter(3, Arc::clone(&written))).unwrap();
        for lines in ["one\ntwo\n", "three\n", "four\n"] {
            log.0.queue_or_drop_line(lines);
            log.flush();
        }
        // The first three lines, and the line that reported the first two as dropped.
        assert_eq!(log.dropped_lines(), 4);
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        assert!(text.starts_with("four\nriskgate: warn: 2 lines were dropped"), "{text}");
    }

    #[test]
    fn logging_does_not_wait_for_a_reader_that_does_not_read() {
        let (reader, writer) = io::pipe().unwrap();
        let log = ProcessLog::start_writer_thread(File::from(std::os::fd::OwnedFd::from(writer)))
            .unwrap();
        let line = format!("{}\n", "x".repeat(1_000));
        let started = Instant::now();
        let mut added = 0;
        while log.dropped_lines() == 0 {
            log.0.queue_or_drop_line(&line);
            added += 1;
            assert!(added * line.len() < 2 * MAX_QUEUED_BYTES + (1 << 20), "no bound");
        }
        log.flush();
        assert!(started.elapsed() < FLUSH_TIMEOUT * 10, "{:?}", started.elapsed());
        // A reader that resumes gets all lines but the dropped ones, and the number of those.
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            let mut reader = io::BufReader::new(reader);
            while !text.contains("dropped") {
                assert!(io::BufRead::read_line(&mut reader, &mut text).unwrap() > 0);
            }
            text
        });
        log.0.queue_or_drop_line("the next\n");
        let text = reading.join().unwrap();
        assert_eq!(text.lines().filter(|it| it.starts_with("xxx")).count(), added - 1);
        assert!(text.ends_with("warn: 1 lines were dropped because standard error was not read\n"));
    }
}
