//! Files, seen from outside: whether something changed and was then left alone.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often sources are looked at.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// A source is read only once it has been left alone for this long.
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// What a file, or each file of a directory, looks like from outside.
type Fingerprints = Vec<(PathBuf, u64, u64, u64, i64, i64)>;

/// Sees when one of several paths changed and all were then left alone.
pub(super) struct FileWatch {
    paths: Vec<PathBuf>,
    last_read: Fingerprints,
    last_seen: Fingerprints,
    seen_at: Instant,
}

impl FileWatch {
    /// A file or a directory, if there is one to look at.
    pub(super) fn new(path: Option<PathBuf>) -> FileWatch {
        FileWatch::for_paths(path.into_iter().collect())
    }

    /// Files and directories, each of which may be missing.
    pub(super) fn for_paths(paths: Vec<PathBuf>) -> FileWatch {
        let last_read = fingerprint_paths(&paths);
        FileWatch { paths, last_seen: last_read.clone(), last_read, seen_at: Instant::now() }
    }

    /// The first path.
    pub(super) fn path(&self) -> Option<&Path> {
        self.paths.first().map(PathBuf::as_path)
    }

    /// Whether it differs from what was read last, and has been quiet for long enough.
    pub(super) fn is_due(&mut self) -> bool {
        let now = fingerprint_paths(&self.paths);
        if now != self.last_seen {
            self.last_seen = now;
            self.seen_at = Instant::now();
        }
        self.last_seen != self.last_read && self.seen_at.elapsed() >= SETTLE_TIME
    }

    /// What is there now is what is being read.
    pub(super) fn mark_read(&mut self) {
        self.last_read = fingerprint_paths(&self.paths);
        self.last_seen = self.last_read.clone();
    }

    pub(super) fn has_changed(&self) -> bool {
        fingerprint_paths(&self.paths) != self.last_read
    }
}

fn fingerprint_paths(paths: &[PathBuf]) -> Fingerprints {
    paths.iter().flat_map(|path| fingerprint_path(path)).collect()
}

/// What a file, or a directory and each file in it, look like.
fn fingerprint_path(path: &Path) -> Fingerprints {
    let fingerprint = |path: PathBuf| {
        // Follows links, so a swapped link shows as another inode; what is gone shows as zeros.
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
