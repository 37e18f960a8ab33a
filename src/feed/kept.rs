//! What is kept of a feed on the disk: its last good list, and what is known of it.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::FeedError;
use crate::support::regular_file::{folder_of, read_regular_text, write_beside};
use crate::table::FeedList;

/// How many lists back one that returns is recognised.
const REMEMBERED: usize = 100;
const MAX_STATE: u64 = 1 << 20;

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
    /// Length, number and change time of the file of the list, to see whether it was changed.
    pub list_stamp: Option<[i64; 4]>,
    /// What was wrong with the last try.
    pub fault: Option<String>,
    /// The SHA-256 of the names of each list that was taken, the last one at the end.
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
        let FeedState { rows, changed_at, fetched_at, list_stamp, .. } = *self;
        let nothing = FeedState::default();
        *self = FeedState { source, rows, changed_at, fetched_at, list_stamp, ..nothing };
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
    // Without its list nothing may be answered by "not modified", nor by "the same again".
    match is_list_whole(&state, list) {
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
fn is_list_whole(state: &FeedState, list: &Path) -> bool {
    let stamp = file_stamp(list);
    stamp.is_some_and(|stamp| Some(stamp) == state.list_stamp)
        || matches!(FeedList::read(list), Ok(Some(_)))
}

/// What tells a file from another one in its place: its length, number and change time. `None` if
/// it can't be opened.
fn file_stamp(path: &Path) -> Option<[i64; 4]> {
    let metadata = File::open(path).and_then(|file| file.metadata()).ok()?;
    let number = |unsigned: u64| unsigned.cast_signed();
    Some([number(metadata.len()), number(metadata.ino()), metadata.ctime(), metadata.ctime_nsec()])
}

/// Writes what is known.
pub(super) fn write_state(folder: &Path, name: &str, state: &FeedState) -> Result<(), FeedError> {
    let text = serde_json::to_string_pretty(state).unwrap_or_default();
    write(&state_path(folder, name), text.as_bytes())
}

/// The names of the last good list; none without one.
pub(super) fn read_list(path: &Path) -> HashSet<String> {
    let text = FeedList::read(path).ok().flatten().unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// What is wrong with the kept list, if anything is.
pub(super) fn list_fault(state: &FeedState, path: &Path) -> Option<String> {
    let is_known = file_stamp(path).is_some_and(|stamp| Some(stamp) == state.list_stamp);
    let found = if is_known { None } else { FeedList::read(path).err() };
    found.map(|found| format!("{}: expected the kept list, but found {found}", path.display()))
}

/// Keeps these names.
pub(super) fn write_list(
    state: &mut FeedState,
    path: &Path,
    names: &[String],
) -> Result<(), FeedError> {
    write(path, FeedList::render(names).as_bytes())?;
    state.list_stamp = file_stamp(path);
    Ok(())
}

/// Keeps other processes from updating this feed until it is dropped.
pub(super) fn lock(folder: &Path, name: &str) -> Result<File, FeedError> {
    let path = folder.join(format!("{name}.lock"));
    let locked = fs::create_dir_all(folder).and_then(|()| {
        let file = File::options().create(true).append(true).open(&path)?;
        file.lock().map(|()| file)
    });
    let file = locked.map_err(|error| fault_at(&path, &error))?;
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

fn write(path: &Path, bytes: &[u8]) -> Result<(), FeedError> {
    let written = fs::create_dir_all(folder_of(path)).and_then(|()| write_beside(path, bytes));
    written.map_err(|error| fault_at(path, &error))
}

fn fault_at(path: &Path, error: &io::Error) -> FeedError {
    FeedError::new(path.display().to_string(), error.to_string())
}
