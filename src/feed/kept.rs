//! What is kept of a feed on the disk: its last good list, and what is known of it.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::FeedError;
use crate::regular_file::{folder_of, read_regular_text, write_beside};

/// How many lists back one that returns is recognised.
const REMEMBERED: usize = 100;
const MAX_STATE: u64 = 1 << 20;
const MAX_KEPT: u64 = 1 << 30;

/// What is known of a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FeedState {
    /// Which place, digest and key the rest is about. Of another source nothing is known.
    pub source: String,
    /// The list's `ETag` and `Last-Modified`, for conditional requests (RFC 9110 section 13.1).
    pub etag: Option<String>,
    /// See above.
    pub modified: Option<String>,
    /// When it was tried last, in seconds since 1970.
    pub tried_at: Option<i64>,
    /// When its list was last seen to be good, changed or not.
    pub fetched_at: Option<i64>,
    /// When its list changed last.
    pub changed_at: Option<i64>,
    /// The rows of its list.
    pub rows: usize,
    /// What was wrong with the last try.
    pub fault: Option<String>,
    /// The SHA-256 of each list that was taken, the last one at the end.
    pub digests: Vec<String>,
}

impl FeedState {
    /// Forgets what was known of another source, and says whether there was one. Where nothing is
    /// known the kept list is taken for one of this source.
    pub(super) fn reset_if_source_changed(&mut self, source: String) -> bool {
        if self.source == source {
            return false;
        }
        let had_another = !self.source.is_empty();
        let FeedState { rows, changed_at, fetched_at, .. } = *self;
        *self = FeedState { source, rows, changed_at, fetched_at, ..FeedState::default() };
        had_another
    }

    /// Adds the digest of a list that was taken.
    pub(super) fn remember(&mut self, digest: String) {
        self.digests.retain(|known| *known != digest);
        self.digests.push(digest);
        let surplus = self.digests.len().saturating_sub(REMEMBERED);
        self.digests.drain(..surplus);
    }
}

fn state_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.json"))
}

/// What is known; nothing if there is no file, or none that can be read: then all is fetched anew.
pub(super) fn read_state(folder: &Path, name: &str, list: &Path) -> FeedState {
    let text = read_regular_text(&state_path(folder, name), MAX_STATE).unwrap_or_default();
    let state: FeedState = serde_json::from_str(&text).unwrap_or_default();
    // Without its list nothing may be answered by "not modified".
    match list.exists() {
        true => state,
        false => FeedState { etag: None, modified: None, digests: Vec::new(), rows: 0, ..state },
    }
}

/// Writes what is known.
pub(super) fn write_state(folder: &Path, name: &str, state: &FeedState) -> Result<(), FeedError> {
    let text = serde_json::to_string_pretty(state).unwrap_or_default();
    write(&state_path(folder, name), text.as_bytes())
}

/// The names of the last good list; none without one.
pub(super) fn read_list(path: &Path) -> HashSet<String> {
    let text = read_regular_text(path, MAX_KEPT).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Keeps these names, sorted, one a line.
pub(super) fn write_list(path: &Path, names: &[String]) -> Result<(), FeedError> {
    let mut text = names.join("\n");
    text.push('\n');
    write(path, text.as_bytes())
}

/// Keeps other processes from updating this feed until it is dropped.
pub(super) fn lock(folder: &Path, name: &str) -> Result<File, FeedError> {
    let path = folder.join(format!("{name}.lock"));
    let locked = fs::create_dir_all(folder).and_then(|()| {
        let file = File::options().create(true).append(true).open(&path)?;
        file.lock().map(|()| file)
    });
    locked.map_err(|error| fault_at(&path, &error))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), FeedError> {
    let written = fs::create_dir_all(folder_of(path)).and_then(|()| write_beside(path, bytes));
    written.map_err(|error| fault_at(path, &error))
}

fn fault_at(path: &Path, error: &io::Error) -> FeedError {
    FeedError::new(path.display().to_string(), error.to_string())
}
