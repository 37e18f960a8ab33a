//! Detects by metadata that files changed and have then stayed unchanged for a while.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often files are polled.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// A file is read only after it has stayed unchanged for this long.
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// Path, inode, size, device, mtime and ctime of a file, or of each file of a directory.
type Fingerprints = Vec<(PathBuf, u64, u64, u64, i64, i64)>;

/// Detects that one of several paths changed and that all have then stayed unchanged.
pub(super) struct FileWatch {
    paths: Vec<PathBuf>,
    fingerprints_at_read: Fingerprints,
    latest_fingerprints: Fingerprints,
    unchanged_since: Instant,
}

impl FileWatch {
    /// Watches one file or directory, or nothing.
    pub(super) fn new(path: Option<PathBuf>) -> FileWatch {
        FileWatch::for_paths(path.into_iter().collect())
    }

    /// Watches files and directories. Each may be missing.
    pub(super) fn for_paths(paths: Vec<PathBuf>) -> FileWatch {
        let fingerprints_at_read = fingerprint_paths(&paths);
        FileWatch {
            paths,
            latest_fingerprints: fingerprints_at_read.clone(),
            fingerprints_at_read,
            unchanged_since: Instant::now(),
        }
    }

    /// The first path.
    pub(super) fn first_path(&self) -> Option<&Path> {
        self.paths.first().map(PathBuf::as_path)
    }

    /// Returns true if a file has changed since the last read and all files have stayed unchanged
    /// for [`SETTLE_TIME`]. Must be called regularly, because each call compares with the call
    /// before.
    pub(super) fn has_settled_change(&mut self) -> bool {
        let now = fingerprint_paths(&self.paths);
        if now != self.latest_fingerprints {
            self.latest_fingerprints = now;
            self.unchanged_since = Instant::now();
        }
        self.latest_fingerprints != self.fingerprints_at_read
            && self.unchanged_since.elapsed() >= SETTLE_TIME
    }

    /// Records that the files are read in their current state. Call it just before you read them.
    pub(super) fn mark_read(&mut self) {
        self.fingerprints_at_read = fingerprint_paths(&self.paths);
        self.latest_fingerprints = self.fingerprints_at_read.clone();
    }

    /// Returns true if a file has changed since the last read, however recently.
    pub(super) fn has_changed_since_read(&self) -> bool {
        fingerprint_paths(&self.paths) != self.fingerprints_at_read
    }
}

fn fingerprint_paths(paths: &[PathBuf]) -> Fingerprints {
    paths.iter().flat_map(|path| fingerprint_path(path)).collect()
}

/// The fingerprint of a file, or of a directory and each file in it.
fn fingerprint_path(path: &Path) -> Fingerprints {
    let fingerprint = |path: PathBuf| {
        // Follows links, so that a swapped link shows as another inode. A missing file has zeros.
        let meta = std::fs::metadata(&path).ok();
        let get = |read: fn(&std::fs::Metadata) -> u64| meta.as_ref().map_or(0, read);
        let (inode, size, device) =
            (get(MetadataExt::ino), get(MetadataExt::size), get(MetadataExt::dev));
        let time = meta
            .as_ref()
            .map_or((0, 0), |m| (m.mtime() * 1_000_000_000 + m.mtime_nsec(), m.ctime_nsec()));
        (path, inode, size, device, time.0, time.1)
    };
    let mut prints = vec![fingerprint(path.to_owned())];
    if let Ok(entries) = std::fs::read_dir(path) {
        prints.extend(entries.filter_map(Result::ok).map(|entry| fingerprint(entry.path())));
        prints[1..].sort();
    }
    prints
}
