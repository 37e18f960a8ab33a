//! Files, seen from outside: whether something changed and was then left alone.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often sources are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// A source is read only once it has been left alone for this long.
const QUIET: Duration = Duration::from_millis(500);

/// What a file, or each file of a folder, looks like from outside.
type Prints = Vec<(PathBuf, u64, u64, u64, i64, i64)>;

/// Sees when one of several paths changed and all were then left alone.
pub(super) struct Watch {
    paths: Vec<PathBuf>,
    read: Prints,
    seen: Prints,
    since: Instant,
}

impl Watch {
    /// A file or a folder, if there is one to look at.
    pub(super) fn new(path: Option<PathBuf>) -> Watch {
        Watch::of(path.into_iter().collect())
    }

    /// Files and folders, each of which may be missing.
    pub(super) fn of(paths: Vec<PathBuf>) -> Watch {
        let read = prints(&paths);
        Watch { paths, seen: read.clone(), read, since: Instant::now() }
    }

    /// The first path.
    pub(super) fn path(&self) -> Option<&Path> {
        self.paths.first().map(PathBuf::as_path)
    }

    /// Whether it differs from what was read last, and has been quiet for long enough.
    pub(super) fn is_due(&mut self) -> bool {
        let now = prints(&self.paths);
        if now != self.seen {
            self.seen = now;
            self.since = Instant::now();
        }
        self.seen != self.read && self.since.elapsed() >= QUIET
    }

    /// What is there now is what is being read.
    pub(super) fn mark(&mut self) {
        self.read = prints(&self.paths);
        self.seen = self.read.clone();
    }

    pub(super) fn has_changed(&self) -> bool {
        prints(&self.paths) != self.read
    }
}

fn prints(paths: &[PathBuf]) -> Prints {
    paths.iter().flat_map(|path| prints_of(path)).collect()
}

/// What a file, or a folder and each file in it, look like.
fn prints_of(path: &Path) -> Prints {
    let print = |path: PathBuf| {
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
    let mut prints = vec![print(path.to_owned())];
    if let Ok(entries) = std::fs::read_dir(path) {
        prints.extend(entries.filter_map(Result::ok).map(|entry| print(entry.path())));
        prints[1..].sort();
    }
    prints
}
