//! What the process itself has to say: warnings and errors of any crate, our own information.
//!
//! Owns the lines that wait for standard error, and the thread that writes them. Whoever logs only
//! adds a line to memory: a pipe that nobody reads, or a terminal that was stopped, holds up no
//! thread but that one. When there is no more room, lines are dropped and counted.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of lines that may wait.
const MAX_QUEUED_BYTES: usize = 256 << 10;
/// Written in one piece: a pipe takes so much whole or not at all (PIPE_BUF), and a predecessor
/// may write to the same place.
const MAX_ATOMIC_WRITE: usize = 4_096;
/// How long the last lines may take at the end, all together.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// After a failed start all faults are written, however long they are, as long as some are taken
/// within this time.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);

/// The log; when its last owner drops it, the lines that wait are written.
pub struct ProcessLog(Arc<Shared>);

/// The side that the `log` facade speaks to.
struct Logger(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Lines came, or were written.
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    lines: Vec<u8>,
    /// Bytes that the writer has taken and not yet written.
    in_write: usize,
    dropped: u64,
}

impl ProcessLog {
    /// Takes over standard error: what is logged from now on is written by a thread.
    pub fn install() -> io::Result<ProcessLog> {
        let out = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let log = ProcessLog::start(out)?;
        // A second log, as in a program that has one of its own, hears nothing.
        if log::set_boxed_logger(Box::new(Logger(Arc::clone(&log.0)))).is_ok() {
            log::set_max_level(log::LevelFilter::Info);
        }
        Ok(log)
    }

    fn start(out: impl Write + Send + 'static) -> io::Result<ProcessLog> {
        let shared = Arc::new(Shared::default());
        let writer = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("error-log".to_owned())
            .spawn(move || writer.write_lines(out))?;
        Ok(ProcessLog(shared))
    }

    /// Lines that were dropped, since too many waited or standard error did not take them.
    pub fn dropped(&self) -> u64 {
        self.0.lock().dropped
    }

    /// Waits until all lines are written, a second at most.
    pub fn flush(&self) {
        self.0.wait_until_written(FLUSH_TIMEOUT, Some(FLUSH_TIMEOUT));
    }

    /// Writes lines as they are, all of them, and waits as long as somebody takes them.
    pub fn write_final_lines(&self, lines: &[String]) {
        for line in lines {
            let mut queue = self.0.lock();
            queue.lines.extend_from_slice(line.as_bytes());
            queue.lines.push(b'\n');
        }
        self.0.changed.notify_all();
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
        let ours = metadata.target().starts_with("riskgate");
        metadata.level() <= if ours { log::Level::Info } else { log::Level::Error }
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = record.level().as_str().to_ascii_lowercase();
            let said = record.args().to_string();
            // Pingora quotes a header that it can't read whole, with the key or token in it.
            let said = said.split("buf: ").next().unwrap_or_default().trim_end();
            self.0.push_line(&format!("riskgate: {level}: {said}\n"));
        }
    }

    fn flush(&self) {
        self.0.wait_until_written(FLUSH_TIMEOUT, Some(FLUSH_TIMEOUT));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line, or drops it; never waits for standard error.
    fn push_line(&self, line: &str) {
        let mut queue = self.lock();
        if queue.lines.len() + line.len() > MAX_QUEUED_BYTES {
            queue.dropped += 1;
            return;
        }
        queue.lines.extend_from_slice(line.as_bytes());
        drop(queue);
        self.changed.notify_all();
    }

    /// Writes what comes, for as long as the process lives.
    fn write_lines(&self, mut out: impl Write) {
        let (mut lines, mut dropped_reported) = (Vec::new(), 0);
        loop {
            let queue = self.lock();
            let waits = |queue: &mut Queue| queue.lines.is_empty();
            let waited = self.changed.wait_while(queue, waits);
            let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut lines, &mut queue.lines);
            let dropped = queue.dropped - dropped_reported;
            if dropped > 0 {
                dropped_reported = queue.dropped;
                let words = "lines were dropped because standard error was not read";
                // Writing to memory does not fail.
                let _ = writeln!(lines, "riskgate: warn: {dropped} {words}");
            }
            queue.in_write = lines.len();
            drop(queue);
            for piece in split_at_lines(&lines) {
                let lost = write_chunk(&mut out, piece);
                let mut queue = self.lock();
                queue.in_write -= piece.len();
                queue.dropped += lost;
                drop(queue);
                self.changed.notify_all();
            }
            lines.clear();
            lines.shrink_to(MAX_ATOMIC_WRITE);
        }
    }

    /// Waits until nothing is left, `total` at most, or until nothing was written for `idle`.
    fn wait_until_written(&self, idle: Duration, total: Option<Duration>) {
        let begun = Instant::now();
        let mut queue = self.lock();
        loop {
            let left = queue.lines.len() + queue.in_write;
            let time = total.map_or(idle, |total| idle.min(total.saturating_sub(begun.elapsed())));
            if left == 0 || time.is_zero() {
                return;
            }
            let same = |queue: &mut Queue| queue.lines.len() + queue.in_write >= left;
            let waited = self.changed.wait_timeout_while(queue, time, same);
            let (after, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                return;
            }
            queue = after;
        }
    }
}

/// Writes these lines, and returns how many of them were not written whole. Another process may have
/// made standard error non-blocking; it then takes only what its buffer has room for.
fn write_chunk(out: &mut impl Write, piece: &[u8]) -> u64 {
    let mut left = piece;
    while !left.is_empty() {
        match out.write(left) {
            Ok(written @ 1..) => left = &left[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Nobody is left to be told why.
            Ok(0) | Err(_) => break,
        }
    }
    left.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Whole lines together up to [`PIECE`] bytes; a longer one alone.
fn split_at_lines(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = lines;
    std::iter::from_fn(move || {
        let end = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        let first = || rest.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let at =
            end(&rest[..rest.len().min(MAX_ATOMIC_WRITE)]).or_else(first).unwrap_or(rest.len());
        let (piece, left) = rest.split_at(at);
        rest = left;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_together_and_never_torn() {
        let long = "x".repeat(MAX_ATOMIC_WRITE);
        let lines = format!("one\ntwo\n{long}\n{}\nlast\n", &long[..MAX_ATOMIC_WRITE - 2]);
        let found: Vec<&[u8]> = split_at_lines(lines.as_bytes()).collect();
        let lengths: Vec<usize> = found.iter().map(|piece| piece.len()).collect();
        assert_eq!(lengths, [8, MAX_ATOMIC_WRITE + 1, MAX_ATOMIC_WRITE - 1, 5]);
        assert_eq!(found.concat(), lines.as_bytes());
        assert_eq!(split_at_lines(b"").count(), 0);
    }

    /// Takes nothing for some times, as a full pipe does that is not waited for.
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
    fn lines_that_standard_error_does_not_take_are_counted_and_told() {
        let taken = Arc::default();
        let log = ProcessLog::start(BlockedWriter(3, Arc::clone(&taken))).unwrap();
        for lines in ["one\ntwo\n", "three\n", "four\n"] {
            log.0.push_line(lines);
            log.flush();
        }
        // Three of ours, and the line that told of the first two.
        assert_eq!(log.dropped(), 4);
        let text = String::from_utf8(taken.lock().unwrap().clone()).unwrap();
        assert!(text.starts_with("four\nriskgate: warn: 2 lines were dropped"), "{text}");
    }

    #[test]
    fn nobody_waits_for_a_reader_that_does_not_read() {
        let (reader, writer) = io::pipe().unwrap();
        let log = ProcessLog::start(File::from(std::os::fd::OwnedFd::from(writer))).unwrap();
        let line = format!("{}\n", "x".repeat(1_000));
        let begun = Instant::now();
        let mut added = 0;
        while log.dropped() == 0 {
            log.0.push_line(&line);
            added += 1;
            assert!(added * line.len() < 2 * MAX_QUEUED_BYTES + (1 << 20), "there is no bound");
        }
        log.flush();
        assert!(begun.elapsed() < FLUSH_TIMEOUT * 10, "{:?}", begun.elapsed());
        // Who reads again gets all lines but the dropped ones, and hears how many those are.
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            let mut reader = io::BufReader::new(reader);
            while !text.contains("dropped") {
                assert!(io::BufRead::read_line(&mut reader, &mut text).unwrap() > 0);
            }
            text
        });
        log.0.push_line("the next\n");
        let text = reading.join().unwrap();
        assert_eq!(text.lines().filter(|it| it.starts_with("xxx")).count(), added - 1);
        assert!(text.ends_with("warn: 1 lines were dropped because standard error was not read\n"));
    }
}
