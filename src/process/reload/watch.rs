//! Decides when files are read: once they changed and then stayed unchanged for a while, and again
//! after the system refused a read. A watch detects changes by the metadata of files.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::config::{
    Config, ConfigFault, ConfigSources, EffectiveSetting, EffectiveSettings, ReloadableConfig,
    SettingOrigin,
};

/// How often files are polled.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How long a changed file must stay unchanged before it is read.
const SETTLE_TIME: Duration = Duration::from_millis(500);
/// How long a requested reload waits for files that keep changing.
pub(super) const MAX_SETTLE_WAIT: Duration = Duration::from_secs(10);
/// The problem of a part whose files kept changing for [`MAX_SETTLE_WAIT`] after a request.
pub(super) const UNSETTLED: &str = "expected files that stay unchanged for half a second, but found changes for ten seconds; \
     they are read once they stay unchanged";
/// How long after the system refused a read the files are read again. The pause doubles with each
/// further refusal, up to [`MAX_RETRY_PAUSE`].
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between two refused reads.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(10);

/// Path, inode, size, device, mtime and ctime of files, and of directories with their entries.
type Fingerprints = Vec<(PathBuf, [u64; 3], [i64; 4])>;

/// Watches of the files that a process reads at its start. Each watch begins before its files are
/// read, so it notices a change during the start.
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
    /// Begins to watch, and then reads the config. Returns the watches, the config and its faults.
    /// The config is `None` if its sources could not be read.
    pub fn begin(sources: &ConfigSources) -> (InputWatches, Option<Config>, Vec<ConfigFault>) {
        // The config names the files to watch. So it is read twice: before the watches begin, to
        // find the files, and afterwards.
        let first = Config::read_and_list_files(sources);
        let paths_of = |list: fn(&Config) -> Vec<PathBuf>| {
            FileWatch::for_paths(first.config.as_ref().map(list).unwrap_or_default())
        };
        let mut watches = InputWatches {
            certificates: paths_of(|config| list_certificate_files(&config.reloadable)),
            startup_files: paths_of(list_startup_files),
            table: paths_of(|config| config.reloadable.table.input_paths()),
            key_file: paths_of(|config| config.reloadable.key_file.iter().cloned().collect()),
            config: FileWatch::for_paths(first.files),
            settings: None,
        };
        let read = Config::read_and_list_files(sources);
        watches.config.set_paths(read.files);
        watches.settings = read.settings;
        if let Some(config) = &read.config {
            watches.certificates.set_paths(list_certificate_files(&config.reloadable));
            watches.startup_files.set_paths(list_startup_files(config));
            watches.table.set_paths(config.reloadable.table.input_paths());
            watches.key_file.set_paths(config.reloadable.key_file.iter().cloned().collect());
        }
        (watches, read.config, read.faults)
    }
}

impl InputWatches {
    /// Returns true if no source of the config sets this setting.
    pub fn is_default(&self, key: &str) -> bool {
        let is_default =
            |it: &EffectiveSetting| it.key == key && it.origin == SettingOrigin::Default;
        self.settings.as_ref().is_some_and(|settings| settings.0.iter().any(is_default))
    }
}

/// Lists the files that are read only when the process starts.
fn list_startup_files(config: &Config) -> Vec<PathBuf> {
    config.startup.files_read_at_start().into_iter().map(|(_, path)| path).collect()
}

/// Lists the files of the certificates of the HTTPS listener.
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

/// The next read after the system refused one.
#[derive(Clone)]
struct Retry {
    due_at: Instant,
    /// The time between the refused read and the next one.
    pause: Duration,
}

impl FileWatch {
    /// Watches files and directories, which count as read in their current state. Each may be
    /// missing.
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

    /// Watches files and directories that nobody has read. The first read is due once they have
    /// been unchanged for [`SETTLE_TIME`].
    pub(super) fn for_unread_paths(paths: Vec<PathBuf>) -> FileWatch {
        FileWatch { fingerprints_at_read: Vec::new(), ..FileWatch::for_paths(paths) }
    }

    /// Watches these paths from now on. If a path was watched before, a change since the last read
    /// is still noticed. A new path counts as read in its current state.
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

    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    pub(super) fn first_path(&self) -> Option<&Path> {
        self.paths.first().map(PathBuf::as_path)
    }

    /// Returns true if the files must be read: all have been unchanged for [`SETTLE_TIME`], and
    /// either one has changed since the last read, or the retry of a refused read is due. Call this
    /// regularly, because each call compares the files with the call before.
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

    /// Records that the files are read in their current state. Call this just before you read them.
    pub(super) fn mark_read(&mut self) {
        self.fingerprints_at_read = fingerprint_paths(&self.paths);
        self.latest_fingerprints = self.fingerprints_at_read.clone();
    }

    /// Records the outcome of a read. If `is_transient` is true, the system refused the read for
    /// now, or a certificate is not valid yet: [`FileWatch::is_read_due`] then returns true again
    /// later, even if no file changes.
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

/// Returns the fingerprint of a file, or of a directory and of each entry in it.
fn fingerprint_path(path: &Path) -> Fingerprints {
    let fingerprint = |path: PathBuf| {
        // `metadata` follows links, so a swapped link shows as another inode. A missing file has
        // zeros.
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
mod tests;
