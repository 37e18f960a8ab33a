//! The files of a feed: its last good list and its state.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::FeedError;
use super::stored_names::StoredNames;
use super::verified_list::{ListFingerprint, VerifiedList};
use crate::support::regular_file::{lock_within, parent_dir, read_regular_text, write_atomically};
use crate::table::FeedList;

/// The number of accepted lists whose digests riskgate keeps. If a server serves one of these lists
/// again after a newer list, riskgate rejects the update, unless the newer list is old or the
/// update is forced.
const MAX_KEPT_DIGESTS: usize = 100;
/// The largest file of a state, in bytes.
const MAX_STATE_BYTES: u64 = 1 << 20;

/// The state of a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FeedState {
    /// Identifies the settings (URL, digest URL, key and kind) of the list on disk, or of the first
    /// attempt. Empty before the first attempt.
    pub source_digest: String,
    /// Identifies the settings of the last attempt. Empty in a state of an earlier version, whose
    /// `source_digest` also identifies these settings.
    pub attempted_source_digest: String,
    /// The list's `ETag`, for conditional requests (RFC 9110 section 13.1).
    pub etag: Option<String>,
    /// The list's `Last-Modified`, see `etag`.
    pub modified: Option<String>,
    /// When the last attempt to fetch was made, in seconds since 1970.
    pub attempted_at: Option<i64>,
    /// When an attempt last succeeded, in seconds since 1970. The list need not have changed.
    pub fetched_at: Option<i64>,
    /// When the list last changed, in seconds since 1970.
    pub changed_at: Option<i64>,
    /// The number of rows of the list.
    pub rows: usize,
    /// The number of names that have left the list, but are kept.
    pub kept: usize,
    /// Since when the published list may differ from the last good list, in seconds since 1970: the
    /// last successful attempt, or the first one after the state was lost.
    pub may_differ_since: Option<i64>,
    /// Length, inode and change time of the list's file, to detect other writers.
    pub list_fingerprint: Option<ListFingerprint>,
    /// The fault of the last attempt, if it failed.
    pub fault: Option<String>,
    /// The SHA-256 of the names of each of the last accepted lists, the latest at the end.
    pub digests: Vec<String>,
}

impl FeedState {
    /// Assigns the state to the source with this digest; `is_of_source` tells whether the state
    /// belonged to it before. If the state belonged to another source, keeps only what describes
    /// the list on disk, and returns true. Returns false for a state that belonged to this source
    /// or to none: the list on disk then counts as a list of this source.
    pub(super) fn reset_if_source_changed(
        &mut self,
        source_digest: String,
        is_of_source: bool,
    ) -> bool {
        let has_other_source = !self.source_digest.is_empty() && !is_of_source;
        if has_other_source {
            let FeedState { rows, kept, changed_at, fetched_at, list_fingerprint, .. } = *self;
            let empty = FeedState::default();
            *self = FeedState { rows, kept, changed_at, fetched_at, list_fingerprint, ..empty };
        }
        self.source_digest = source_digest;
        has_other_source
    }

    /// The digest of the settings of the last attempt.
    pub(super) fn last_attempted_digest(&self) -> &str {
        match self.attempted_source_digest.is_empty() {
            true => &self.source_digest,
            false => &self.attempted_source_digest,
        }
    }

    /// Returns the age of the last good list at `now`, which is in seconds since 1970. If the state
    /// does not know the age, or a clock was ahead, the list ages from `now` on.
    pub(super) fn measure_age_of_list(&mut self, now: i64) -> Duration {
        let since = self.may_differ_since.or(self.fetched_at).unwrap_or(now).min(now);
        self.may_differ_since = Some(since);
        Duration::from_secs(now.abs_diff(since))
    }

    /// Adds the digest of an accepted list as the latest. Drops the oldest digest if there are too
    /// many.
    pub(super) fn push_list_digest(&mut self, digest: String) {
        self.digests.retain(|known| *known != digest);
        self.digests.push(digest);
        let surplus = self.digests.len().saturating_sub(MAX_KEPT_DIGESTS);
        self.digests.drain(..surplus);
    }
}

fn state_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.json"))
}

/// Reads the state. The state is empty if its file is missing or not valid. If the list on disk is
/// missing or damaged, the state lacks what would let an update skip the fetch. Before an update
/// calls this function, it checks that the system can open both files.
pub(super) fn read_state(
    folder: &Path,
    name: &str,
    list_path: &Path,
    verified: &VerifiedList,
) -> FeedState {
    let state = read_written_state(folder, name);
    // If the list on disk is missing or damaged, riskgate must fetch it without conditions and
    // store it, even if its digest is that of the last list.
    match examine_list(&state, list_path, verified) {
        // The state of an update that follows has the fingerprint of a copied list.
        ListCondition::Intact(list_fingerprint) => FeedState { list_fingerprint, ..state },
        ListCondition::Missing | ListCondition::Faulty(_) => {
            let mut digests = state.digests;
            digests.pop();
            FeedState { etag: None, modified: None, digests, rows: 0, kept: 0, ..state }
        }
    }
}

/// Reads the state as it was written, whatever has become of the list.
pub(super) fn read_written_state(folder: &Path, name: &str) -> FeedState {
    let text = read_regular_text(&state_path(folder, name), MAX_STATE_BYTES).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Fails if the system can't open the state or the list for now. An update would take these files
/// for missing, and so accept any list and forget the earlier ones.
pub(super) fn check_files_can_be_opened(
    folder: &Path,
    name: &str,
    list_path: &Path,
) -> Result<(), FeedError> {
    for path in [state_path(folder, name).as_path(), list_path] {
        match File::open(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(file_error(path, &error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// What has become of a list on disk.
enum ListCondition {
    /// The list is as riskgate wrote it, and has this fingerprint. `None` if the file was replaced
    /// meanwhile.
    Intact(Option<ListFingerprint>),
    Missing,
    /// What was found instead.
    Faulty(String),
}

/// Examines the list on disk: by its fingerprint, or else by its checksum.
fn examine_list(state: &FeedState, list_path: &Path, verified: &VerifiedList) -> ListCondition {
    // The fingerprint is taken before the file is read. If the file changes later, the fingerprint
    // no longer matches.
    let fingerprint = fingerprint_file(list_path);
    if fingerprint.is_some()
        && [state.list_fingerprint, verified.fingerprint()].contains(&fingerprint)
    {
        return ListCondition::Intact(fingerprint);
    }
    match FeedList::read_verified_text(list_path) {
        Ok(Some(_)) => {
            verified.remember(fingerprint);
            ListCondition::Intact(fingerprint)
        }
        Ok(None) => ListCondition::Missing,
        Err(found) => ListCondition::Faulty(found.to_string()),
    }
}

/// Length, inode and change time of a file, to detect that it was replaced or changed. `None` if
/// the file can't be opened.
fn fingerprint_file(path: &Path) -> Option<ListFingerprint> {
    let metadata = File::open(path).and_then(|file| file.metadata()).ok()?;
    let signed = |unsigned: u64| unsigned.cast_signed();
    Some([signed(metadata.len()), signed(metadata.ino()), metadata.ctime(), metadata.ctime_nsec()])
}

/// Writes the state.
pub(super) fn write_state(folder: &Path, name: &str, state: &FeedState) -> Result<(), FeedError> {
    let text = serde_json::to_string_pretty(state).unwrap_or_default();
    create_dir_and_write_file(&state_path(folder, name), text.as_bytes())
}

/// The names in the feed's file; no names if there is no file or it is damaged.
pub(super) fn read_stored_names(path: &Path) -> StoredNames {
    let text = FeedList::read_verified_text(path).ok().flatten().unwrap_or_default();
    StoredNames::parse(&text)
}

/// The length of the feed's file; 0 if there is none.
pub(super) fn list_file_length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// The fault of the list on disk, if it is damaged, or if it is missing and `is_list_expected`.
pub(super) fn find_list_fault(
    state: &FeedState,
    path: &Path,
    verified: &VerifiedList,
    is_list_expected: bool,
) -> Option<String> {
    let found = match examine_list(state, path, verified) {
        ListCondition::Missing if is_list_expected => "no such file".to_owned(),
        ListCondition::Faulty(found) => found,
        ListCondition::Intact(_) | ListCondition::Missing => return None,
    };
    Some(format!("{}: expected the kept list, but found {found}", path.display()))
}

/// Writes the text of the feed's file, and the fingerprint of the file into the state.
pub(super) fn write_list_and_fingerprint(
    state: &mut FeedState,
    path: &Path,
    text: &str,
) -> Result<(), FeedError> {
    create_dir_and_write_file(path, text.as_bytes())?;
    state.list_fingerprint = fingerprint_if_unchanged(path, text);
    Ok(())
}

/// The fingerprint of the list that was just written. `None` if another process has changed the
/// file since then, because a fingerprint means that riskgate wrote the file.
fn fingerprint_if_unchanged(path: &Path, written_text: &str) -> Option<ListFingerprint> {
    // The fingerprint is taken before the comparison. If the file changes later, the fingerprint
    // no longer matches.
    let fingerprint = fingerprint_file(path)?;
    (fs::read(path).ok()? == written_text.as_bytes()).then_some(fingerprint)
}

/// Locks the feed, so that no other process updates it until the returned file is dropped. If
/// another process holds the lock, waits up to `max_wait`. Also removes temporary files of a killed
/// update.
pub(super) fn lock_feed_and_clean_up(
    folder: &Path,
    name: &str,
    max_wait: Duration,
) -> Result<File, FeedError> {
    let path = folder.join(format!("{name}.lock"));
    let file = fs::create_dir_all(folder)
        .and_then(|()| File::options().create(true).append(true).open(&path))
        .map_err(|error| file_error(&path, &error))?;
    lock_within(&file, max_wait).map_err(|found| {
        let message = format!("expected to get the lock, but found: {found}");
        FeedError::new(path.display().to_string(), message)
    })?;
    remove_temporary_files(folder, name);
    Ok(file)
}

/// The lock is held, so no other process is writing such files.
fn remove_temporary_files(folder: &Path, name: &str) {
    let prefix = format!("{name}.");
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let file = file.to_string_lossy();
        if file.starts_with(&prefix) && file.ends_with(".new") {
            // A file that can't be removed does no harm.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn create_dir_and_write_file(path: &Path, bytes: &[u8]) -> Result<(), FeedError> {
    let written = fs::create_dir_all(parent_dir(path)).and_then(|()| write_atomically(path, bytes));
    written.map_err(|error| file_error(path, &error))
}

fn file_error(path: &Path, error: &io::Error) -> FeedError {
    FeedError::new(path.display().to_string(), error.to_string())
}

#[cfg(test)]
mod tests;
