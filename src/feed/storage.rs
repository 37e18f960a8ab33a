//! What is kept of a feed on the disk: its last good list, and what is known of it.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::FeedError;
use crate::support::regular_file::{parent_dir, read_regular_text, write_atomically};
use crate::table::FeedList;

/// How many lists back one that returns is recognised.
const MAX_DIGESTS: usize = 100;
const MAX_STATE_BYTES: u64 = 1 << 20;

/// What is known of a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FeedState {
    /// Which place, digest and key the rest is about. Of another source nothing is known.
    pub source_digest: String,
    /// The list's `ETag` and `Last-Modified`, for conditional requests (RFC 9110 section 13.1).
    pub etag: Option<String>,
    /// See above.
    pub modified: Option<String>,
    /// When it was tried last, in seconds since 1970.
    pub attempted_at: Option<i64>,
    /// When its list was last seen to be good, changed or not.
    pub fetched_at: Option<i64>,
    /// When its list changed last.
    pub changed_at: Option<i64>,
    /// The rows of its list.
    pub rows: usize,
    /// Length, number and change time of the file of the list, to see whether it was changed.
    pub list_fingerprint: Option<[i64; 4]>,
    /// What was wrong with the last try.
    pub fault: Option<String>,
    /// The SHA-256 of the names of each list that was taken, the last one at the end.
    pub digests: Vec<String>,
}

impl FeedState {
    /// Forgets what was known of another source, and says whether there was one. Where nothing is
    /// known the kept list is taken for one of this source.
    pub(super) fn reset_if_source_changed(&mut self, source: String) -> bool {
        if self.source_digest == source {
            return false;
        }
        let had_another = !self.source_digest.is_empty();
        let FeedState { rows, changed_at, fetched_at, list_fingerprint, .. } = *self;
        let nothing = FeedState::default();
        *self = FeedState {
            source_digest: source,
            rows,
            changed_at,
            fetched_at,
            list_fingerprint,
            ..nothing
        };
        had_another
    }

    /// Adds the digest of a list that was taken.
    pub(super) fn push_digest(&mut self, digest: String) {
        self.digests.retain(|known| *known != digest);
        self.digests.push(digest);
        let surplus = self.digests.len().saturating_sub(MAX_DIGESTS);
        self.digests.drain(..surplus);
    }
}

fn state_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.json"))
}

/// What is known; nothing if there is no file, or none that can be read: then all is fetched anew.
pub(super) fn read_state(folder: &Path, name: &str, list: &Path) -> FeedState {
    let text = read_regular_text(&state_path(folder, name), MAX_STATE_BYTES).unwrap_or_default();
    let state: FeedState = serde_json::from_str(&text).unwrap_or_default();
    // Without its list nothing may be answered by "not modified", nor by "the same again".
    match is_list_intact(&state, list) {
        true => state,
        false => {
            let mut digests = state.digests;
            digests.pop();
            FeedState { etag: None, modified: None, digests, rows: 0, ..state }
        }
    }
}

/// Whether the kept list is as it was written. It is read only if it is not the file that was
/// written last.
fn is_list_intact(state: &FeedState, list: &Path) -> bool {
    let fingerprint = fingerprint_file(list);
    fingerprint.is_some_and(|fingerprint| Some(fingerprint) == state.list_fingerprint)
        || matches!(FeedList::read(list), Ok(Some(_)))
}

/// What tells a file from another one in its place: its length, number and change time. `None` if
/// it can't be opened.
fn fingerprint_file(path: &Path) -> Option<[i64; 4]> {
    let metadata = File::open(path).and_then(|file| file.metadata()).ok()?;
    let number = |unsigned: u64| unsigned.cast_signed();
    Some([number(metadata.len()), number(metadata.ino()), metadata.ctime(), metadata.ctime_nsec()])
}

/// Writes what is known.
pub(super) fn write_state(folder: &Path, name: &str, state: &FeedState) -> Result<(), FeedError> {
    let text = serde_json::to_string_pretty(state).unwrap_or_default();
    write_file(&state_path(folder, name), text.as_bytes())
}

/// The names of the last good list; none without one.
pub(super) fn read_list(path: &Path) -> HashSet<String> {
    let text = FeedList::read(path).ok().flatten().unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// What is wrong with the kept list, if anything is.
pub(super) fn find_list_fault(state: &FeedState, path: &Path) -> Option<String> {
    let is_known = fingerprint_file(path)
        .is_some_and(|fingerprint| Some(fingerprint) == state.list_fingerprint);
    let found = if is_known { None } else { FeedList::read(path).err() };
    found.map(|found| format!("{}: expected the kept list, but found {found}", path.display()))
}

/// Keeps these names.
pub(super) fn write_list(
    state: &mut FeedState,
    path: &Path,
    names: &[String],
) -> Result<(), FeedError> {
    write_file(path, FeedList::render(names).as_bytes())?;
    state.list_fingerprint = fingerprint_file(path);
    Ok(())
}

/// Keeps other processes from updating this feed until it is dropped.
pub(super) fn lock_feed(folder: &Path, name: &str) -> Result<File, FeedError> {
    let path = folder.join(format!("{name}.lock"));
    let locked = fs::create_dir_all(folder).and_then(|()| {
        let file = File::options().create(true).append(true).open(&path)?;
        file.lock().map(|()| file)
    });
    let file = locked.map_err(|error| file_error(&path, &error))?;
    remove_half_written(folder, name);
    Ok(file)
}

/// Removes what an update left that was killed: nobody else writes, since the lock is held.
fn remove_half_written(folder: &Path, name: &str) {
    let begin = format!("{name}.");
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let file = file.to_string_lossy();
        if file.starts_with(&begin) && file.ends_with(".new") {
            // What stays is in nobody's way.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), FeedError> {
    let written = fs::create_dir_all(parent_dir(path)).and_then(|()| write_atomically(path, bytes));
    written.map_err(|error| file_error(path, &error))
}

fn file_error(path: &Path, error: &io::Error) -> FeedError {
    FeedError::new(path.display().to_string(), error.to_string())
}
