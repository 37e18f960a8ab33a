//! Decides when files are read: once they changed and then stayed unchanged for a while, and again
//! after a read that the system refused. Detects changes by metadata.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::config::{Config, ConfigFault, ConfigSources, EffectiveSettings, ReloadableConfig};

/// How often files are polled.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// A file is read only after it has stayed unchanged for this long.
const SETTLE_TIME: Duration = Duration::from_millis(500);
/// A requested reload waits this long for files that keep changing.
pub(super) const MAX_SETTLE_WAIT: Duration = Duration::from_secs(10);
/// The problem of a part whose files kept changing for [`MAX_SETTLE_WAIT`] of a requested reload.
pub(super) const UNSETTLED: &str = "expected files that stay unchanged for half a second, but found changes for ten seconds; \
     they are read once they stay unchanged";
/// After a read that the system refused, files are read again after this time, then after twice as
/// long each time, up to [`MAX_RETRY_PAUSE`].
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(500);
/// See [`FIRST_RETRY_PAUSE`].
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(10);

/// Path, inode, size, device, mtime and ctime of a file, or of each file of a directory.
type Fingerprints = Vec<(PathBuf, [u64; 3], [i64; 4])>;

/// Watches the files that a process reads at its start, from their state before they are read. So a
/// change during the start is noticed.
pub struct InputWatches {
    /// The config file and the files of secrets that it names.
    pub(super) config: FileWatch,
    pub(super) certificates: FileWatch,
    /// Files that are read at the start only.
    pub(super) startup_files: FileWatch,
    pub(super) table: FileWatch,
    pub(super) key_file: FileWatch,
    /// The settings that were read.
    pub(super) settings: Option<EffectiveSettings>,
}

impl InputWatches {
    /// Begins to watch, and then reads the config. Returns its faults too, and no config if no TOML
    /// could be read.
    pub fn begin(sources: &ConfigSources) -> (InputWatches, Option<Config>, Vec<ConfigFault>) {
        // Only a config that has been read names the files, so it is read once more.
        let first = Config::read_with_files(sources);
        let paths_of = |list: fn(&Config) -> Vec<PathBuf>| {
            FileWatch::for_paths(first.config.as_ref().map(list).unwrap_or_default())
        };
        let mut watches = InputWatches {
            certificates: paths_of(|config| list_certificate_files(&config.reloadable)),
            startup_files: paths_of(|config| config.startup.files_read_at_start()),
            table: paths_of(|config| config.reloadable.table.input_paths()),
            key_file: paths_of(|config| config.reloadable.key_file.iter().cloned().collect()),
            config: FileWatch::for_paths(first.files),
            settings: None,
        };
        let read = Config::read_with_files(sources);
        watches.config.set_paths(read.files);
        watches.settings = read.settings;
        if let Some(config) = &read.config {
            watches.certificates.set_paths(list_certificate_files(&config.reloadable));
            watches.startup_files.set_paths(config.startup.files_read_at_start());
            watches.table.set_paths(config.reloadable.table.input_paths());
            watches.key_file.set_paths(config.reloadable.key_file.iter().cloned().collect());
        }
        (watches, read.config, read.faults)
    }
}

/// The files of the certificates of the HTTPS listener.
pub(super) fn list_certificate_files(config: &ReloadableConfig) -> Vec<PathBuf> {
    let files = config.certificates.iter().flat_map(|files| [&files.chain, &files.key]);
    files.cloned().collect()
}

/// Detects that one of several paths changed and that all have then stayed unchanged.
#[derive(Clone)]
pub(super) struct FileWatch {
    paths: Vec<PathBuf>,
    fingerprints_at_read: Fingerprints,
    latest_fingerprints: Fingerprints,
    unchanged_since: Instant,
    retry: Option<Retry>,
}

/// The next read after one that the system refused.
#[derive(Clone)]
struct Retry {
    due_at: Instant,
    /// The time between the failed read and the next one.
    pause: Duration,
}

impl FileWatch {
    /// Watches files and directories. Each may be missing.
    pub(super) fn for_paths(paths: Vec<PathBuf>) -> FileWatch {
        let fingerprints_at_read = fingerprint_paths(&paths);
        FileWatch {
            paths,
            latest_fingerprints: fingerprints_at_read.clone(),
            fingerprints_at_read,
            unchanged_since: Instant::now(),
            retry: None,
        }
    }

    /// Watches files and directories that are still to be read, once they have been unchanged for
    /// [`SETTLE_TIME`].
    pub(super) fn for_unread_paths(paths: Vec<PathBuf>) -> FileWatch {
        FileWatch { fingerprints_at_read: Vec::new(), ..FileWatch::for_paths(paths) }
    }

    /// Watches these paths from now on. Paths that it already watches keep their state: if one of
    /// them changes now, this is still noticed. The others count as read in their current state.
    pub(super) fn set_paths(&mut self, paths: Vec<PathBuf>) {
        if paths == self.paths {
            return;
        }
        let known = self.fingerprints_at_read.clone();
        let fingerprint_at_read = |path: &PathBuf| -> Fingerprints {
            match self.paths.contains(path) {
                true => known.iter().filter(|it| it.0.starts_with(path)).cloned().collect(),
                false => fingerprint_path(path),
            }
        };
        self.fingerprints_at_read = paths.iter().flat_map(fingerprint_at_read).collect();
        self.latest_fingerprints = fingerprint_paths(&paths);
        self.unchanged_since = Instant::now();
        self.paths = paths;
    }

    /// The watched paths.
    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The first path.
    pub(super) fn first_path(&self) -> Option<&Path> {
        self.paths.first().map(PathBuf::as_path)
    }

    /// Returns true if the files must be read: one has changed since the last read and all have
    /// stayed unchanged for [`SETTLE_TIME`], or a read that the system refused is due again. Must
    /// be called regularly, because each call compares with the call before.
    pub(super) fn is_read_due(&mut self) -> bool {
        let is_settled = self.is_settled();
        let is_retry_due = self.retry.as_ref().is_some_and(|retry| retry.due_at <= Instant::now());
        is_settled && (is_retry_due || self.latest_fingerprints != self.fingerprints_at_read)
    }

    /// Returns true unless a file has changed since the last read and may still be being written.
    pub(super) fn is_settled(&mut self) -> bool {
        let now = fingerprint_paths(&self.paths);
        if now != self.latest_fingerprints {
            self.latest_fingerprints = now;
            self.unchanged_since = Instant::now();
        }
        self.latest_fingerprints == self.fingerprints_at_read
            || self.unchanged_since.elapsed() >= SETTLE_TIME
    }

    /// Waits until no file is being written, at most for this time.
    pub(super) fn wait_until_settled(&mut self, max_wait: Duration) {
        let last_check = Instant::now() + max_wait;
        while !self.is_settled() && Instant::now() < last_check {
            std::thread::sleep(SETTLE_TIME / 5);
        }
    }

    /// Records that the files are read in their current state. Call it just before you read them.
    pub(super) fn mark_read(&mut self) {
        self.fingerprints_at_read = fingerprint_paths(&self.paths);
        self.latest_fingerprints = self.fingerprints_at_read.clone();
    }

    /// Records the outcome of a read. If the system refused it for now, the files are read again
    /// later, although they don't change.
    pub(super) fn schedule_retry_if(&mut self, is_transient: bool) {
        let previous = self.retry.take().map(|retry| retry.pause);
        let pause = previous.map_or(FIRST_RETRY_PAUSE, |pause| (2 * pause).min(MAX_RETRY_PAUSE));
        self.retry = is_transient.then(|| Retry { due_at: Instant::now() + pause, pause });
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
        let (identity, times) = std::fs::metadata(&path).map_or_else(
            |_| Default::default(),
            |meta| {
                let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
                ([meta.ino(), meta.size(), meta.dev()], times)
            },
        );
        (path, identity, times)
    };
    let mut prints = vec![fingerprint(path.to_owned())];
    if let Ok(entries) = std::fs::read_dir(path) {
        prints.extend(entries.filter_map(Result::ok).map(|entry| fingerprint(entry.path())));
        prints[1..].sort();
    }
    prints
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch as it is half a second later.
    fn let_time_pass(watch: &mut FileWatch) {
        watch.unchanged_since -= SETTLE_TIME;
        if let Some(retry) = &mut watch.retry {
            retry.due_at -= retry.pause;
        }
    }

    #[test]
    fn new_paths_are_read_once_nobody_writes_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "a").unwrap();
        let mut watch = FileWatch::for_unread_paths(vec![path.clone()]);
        assert!(!watch.is_settled());
        let_time_pass(&mut watch);
        std::fs::write(&path, "longer").unwrap();
        assert!(!watch.is_settled(), "it is still being written");
        let_time_pass(&mut watch);
        assert!(watch.is_settled() && watch.is_read_due());
        watch.mark_read();
        assert!(!watch.is_read_due());
        assert!(FileWatch::for_unread_paths(Vec::new()).is_settled());
    }

    #[test]
    fn files_may_have_any_time() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let long = Duration::from_secs(1 << 34);
        for time in [std::time::UNIX_EPOCH + long, std::time::UNIX_EPOCH - long] {
            let mut watch = FileWatch::for_paths(vec![file.path().to_owned()]);
            // Not every file system has such a time; it then sets the nearest that it has.
            file.as_file().set_modified(time).unwrap();
            let_time_pass(&mut watch);
            assert!(!watch.is_settled() && watch.has_changed_since_read());
        }
    }

    #[test]
    fn a_refused_read_is_repeated_until_one_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "a").unwrap();
        let mut watch = FileWatch::for_paths(vec![path]);
        let_time_pass(&mut watch);
        assert!(!watch.is_read_due());
        for pause in [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000] {
            watch.mark_read();
            watch.schedule_retry_if(true);
            assert_eq!(watch.retry.as_ref().unwrap().pause, Duration::from_millis(pause));
            assert!(!watch.is_read_due());
            let_time_pass(&mut watch);
            assert!(watch.is_read_due());
        }
        watch.mark_read();
        watch.schedule_retry_if(false);
        let_time_pass(&mut watch);
        assert!(!watch.is_read_due());
    }

    #[test]
    fn a_changed_file_is_settled_after_half_a_second() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "a").unwrap();
        let mut watch = FileWatch::for_paths(vec![path.clone()]);
        assert!(watch.is_settled());
        std::fs::write(&path, "half of it").unwrap();
        assert!(!watch.is_settled() && !watch.is_read_due());
        let_time_pass(&mut watch);
        assert!(watch.is_settled() && watch.is_read_due());
        watch.mark_read();
        assert!(watch.is_settled() && !watch.is_read_due());
    }

    #[test]
    fn other_paths_keep_the_changes_of_known_ones() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("known"), "a").unwrap();
        std::fs::write(at("new"), "a").unwrap();
        let mut watch = FileWatch::for_paths(vec![at("known")]);
        std::fs::write(at("known"), "changed").unwrap();
        watch.set_paths(vec![at("known"), at("new")]);
        let_time_pass(&mut watch);
        assert!(watch.is_read_due());
        watch.mark_read();
        std::fs::write(at("new"), "changed").unwrap();
        assert!(!watch.is_settled());
        let_time_pass(&mut watch);
        assert!(watch.is_read_due());
    }
}
