//! Writes the lines of the access log to standard output or to a file, and starts new files.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::queue::{BATCH_BYTES, Queue, SharedQueue};
use crate::support::lock::lock;
use crate::support::regular_file::{check_creatable, follow_symlinks};

/// How long the writer waits at most until a batch is full.
const LINE_BATCH_DELAY: Duration = Duration::from_millis(200);

/// The target of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogTarget {
    /// The file to which riskgate appends; `None` for standard output. riskgate reopens the file
    /// after [`AccessLog::request_reopen`](super::AccessLog::request_reopen).
    pub path: Option<PathBuf>,
    /// When riskgate starts a new file; `None` if riskgate never does.
    pub rotation: Option<LogRotation>,
}

/// When riskgate starts a new file, and how many old files it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRotation {
    /// riskgate starts a new file once the current file has this many bytes.
    pub max_bytes: u64,
    /// How many old files stay. `access.log.1` is the newest, `access.log.<kept_files>` the oldest.
    pub kept_files: u32,
}

impl LogTarget {
    /// Checks that a log could be started with this target, without creating the file.
    pub fn check_is_writable(&self) -> std::io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        match open_options(false).open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => check_creatable(path),
            outcome => outcome.map(drop),
        }
    }

    /// Lists the files to which riskgate renames a full log, those that do not exist yet included.
    pub fn list_old_files(&self) -> Vec<PathBuf> {
        let (Some(path), Some(rotation)) = (&self.path, self.rotation) else { return Vec::new() };
        let path = follow_symlinks(path);
        (1..=rotation.kept_files).map(|number| old_file_path(&path, number)).collect()
    }

    fn open(&self) -> std::io::Result<Output> {
        match &self.path {
            None => Ok(Output::Stdout(std::io::stdout())),
            Some(path) => Ok(Output::File(open_options(true).open(path)?)),
        }
    }
}

/// An opened target.
enum Output {
    Stdout(std::io::Stdout),
    File(File),
}

impl Output {
    fn as_write(&mut self) -> &mut dyn Write {
        match self {
            Output::Stdout(stdout) => stdout,
            Output::File(file) => file,
        }
    }
}

/// Returns the options to open the log file. The file contains addresses of clients, so a new file
/// has mode 0640: its owner may write to the file, and its group (for a log shipper) may read it,
/// unless the umask of the process denies that.
fn open_options(creates: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    // If the path is a pipe that nobody reads, opening the pipe fails instead of blocking forever.
    options.append(true).create(creates).mode(0o640).custom_flags(libc::O_NONBLOCK);
    options
}

/// The writer of the log, which runs in a thread of its own.
pub(super) struct Writer {
    out: Output,
    target: LogTarget,
    shared: Arc<SharedQueue>,
    /// The lines that are being written.
    lines: Vec<u8>,
    /// Whether `lines` starts with the rest of a line whose first part is written already.
    has_partial_line: bool,
    /// Whether the last write failed because the disk is full.
    is_disk_full: bool,
    /// Whether the last attempt to start a new file failed.
    is_rotation_failing: bool,
}

impl Writer {
    /// Opens the target.
    pub fn open(target: LogTarget, shared: Arc<SharedQueue>) -> std::io::Result<Writer> {
        Ok(Writer {
            out: target.open()?,
            target,
            shared,
            lines: Vec::new(),
            has_partial_line: false,
            is_disk_full: false,
            is_rotation_failing: false,
        })
    }

    /// Writes lines until the log is closed. Then counts the lines that are left as dropped.
    pub fn run(&mut self) {
        loop {
            let has_leftover = !self.lines.is_empty();
            let is_closed = self.wait_for_lines();
            if self.shared.reopen_requested.swap(false, Ordering::AcqRel) {
                if has_leftover {
                    self.flush();
                    self.drop_partial_line();
                }
                self.reopen();
            }
            self.flush();
            self.rotate_if_full();
            self.drop_excess_lines();
            if is_closed {
                return self.count_unwritten_as_dropped();
            }
        }
    }

    fn reopen(&mut self) {
        match self.target.open() {
            Ok(out) => self.out = out,
            Err(error) => log::error!("log.path: expected to reopen it, but found: {error}"),
        }
    }

    /// Starts a new file if the current file is full. If that fails, riskgate goes on with the
    /// current file. Waits while a line is written only in part, unless the disk is full: then the
    /// old file keeps a part of the line, and the new file may replace an older one on the disk.
    fn rotate_if_full(&mut self) {
        let LogTarget { path: Some(path), rotation: Some(rotation) } = &self.target else { return };
        let Output::File(file) = &self.out else { return };
        if self.has_partial_line && !self.is_disk_full {
            return;
        }
        let own = match file.metadata() {
            Ok(own) if own.len() >= rotation.max_bytes => own,
            _ => return,
        };
        match free_log_path(path, *rotation, &own) {
            Ok(()) => match self.target.open() {
                Ok(out) => {
                    (self.out, self.is_rotation_failing) = (out, false);
                    self.drop_partial_line();
                }
                Err(error) => self.report_failed_rotation("open a new file", &error),
            },
            Err(error) => self.report_failed_rotation("rename the file", &error),
        }
    }

    /// Logs an error, unless the attempt before failed as well.
    fn report_failed_rotation(&mut self, step: &str, error: &std::io::Error) {
        if !std::mem::replace(&mut self.is_rotation_failing, true) {
            log::error!("log.max_bytes: expected to {step}, but found: {error}");
        }
    }

    /// Waits until a batch is full, at most for [`LINE_BATCH_DELAY`], and takes all lines from the
    /// queue. If the writer still has unwritten lines, the new lines stay in the queue until the
    /// log is closed. Returns true once the log is closed.
    fn wait_for_lines(&mut self) -> bool {
        let queue = lock(&self.shared.queue);
        let is_below_batch =
            |queue: &mut Queue| !queue.is_closed && queue.lines.len() < BATCH_BYTES;
        let waited =
            self.shared.batch_ready.wait_timeout_while(queue, LINE_BATCH_DELAY, is_below_batch);
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if self.lines.is_empty() {
            std::mem::swap(&mut self.lines, &mut queue.lines);
        } else if queue.is_closed {
            self.lines.append(&mut queue.lines);
        } else if queue.lines.len() >= BATCH_BYTES {
            // The target takes no bytes, perhaps because the disk is full. The writer tries again
            // after a pause.
            drop(queue);
            std::thread::sleep(LINE_BATCH_DELAY);
            return false;
        }
        queue.is_closed
    }

    /// Writes as many bytes as the target takes. The writer keeps the rest, and writes the rest
    /// later, so that a partly written line is completed.
    fn flush(&mut self) {
        let mut written = 0;
        self.is_disk_full = false;
        while written < self.lines.len() {
            match self.out.as_write().write(&self.lines[written..]) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let kinds = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded];
                    self.is_disk_full = kinds.contains(&error.kind());
                    break;
                }
            }
        }
        if written > 0 {
            self.has_partial_line = self.lines[written - 1] != b'\n';
        }
        self.lines.drain(..written);
        // Standard output buffers an incomplete line until it is flushed.
        let _ = self.out.as_write().flush();
    }

    /// Drops the rest of a partly written line, because the rest must not go into another file.
    fn drop_partial_line(&mut self) {
        let end = self.lines.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if self.has_partial_line && end > 0 {
            self.lines.drain(..end);
            self.shared.dropped_lines.fetch_add(1, Ordering::Relaxed);
            self.has_partial_line = false;
        }
    }

    /// Keeps whole unwritten lines of at most [`BATCH_BYTES`], and drops all lines after these.
    /// Tells the queue whether the writer has unwritten lines.
    fn drop_excess_lines(&mut self) {
        let kept = self.lines.len().min(BATCH_BYTES);
        let end = self.lines[..kept].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if end < self.lines.len() {
            let excess = self.lines[end..].iter().filter(|byte| **byte == b'\n').count();
            self.shared.dropped_lines.fetch_add(excess as u64, Ordering::Relaxed);
            self.lines.truncate(end);
        }
        lock(&self.shared.queue).has_writer_leftover = !self.lines.is_empty();
    }

    /// Counts as dropped all lines that were still unwritten when the log closed.
    fn count_unwritten_as_dropped(&self) {
        let queue = lock(&self.shared.queue);
        let lines = self.lines.iter().chain(&queue.lines).filter(|byte| **byte == b'\n').count();
        self.shared.dropped_lines.fetch_add(lines as u64, Ordering::Relaxed);
    }
}

/// The file to which a full log at this path is renamed as the old file with this number.
fn old_file_path(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// Renames each old file to the next number, which replaces the oldest, and the log to number 1. If
/// no old files are kept, deletes the log. If another process has put a new file in place of `own`,
/// as during an upgrade, does nothing. If `path` is a symbolic link, the link stays, and the old
/// files are beside the file to which the link leads.
fn free_log_path(path: &Path, rotation: LogRotation, own: &Metadata) -> std::io::Result<()> {
    let is_own = |found: Metadata| (found.dev(), found.ino()) == (own.dev(), own.ino());
    if !std::fs::metadata(path).is_ok_and(is_own) {
        return Ok(());
    }
    let path = &path.canonicalize()?;
    let numbered = |number: u32| old_file_path(path, number);
    for number in (1..rotation.kept_files).rev() {
        match std::fs::rename(numbered(number), numbered(number + 1)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    match rotation.kept_files {
        0 => std::fs::remove_file(path),
        _ => std::fs::rename(path, numbered(1)),
    }
}

#[cfg(test)]
mod tests;
