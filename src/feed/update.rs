//! Updates a feed: fetches its list, verifies and checks it, and stores it.

use std::path::Path;
use std::time::Duration;

use super::checks;
use super::config::Feed;
use super::error::FeedError;
use super::fetch::{self, ClientSettings, FeedLocation, FetchOutcome};
use super::list_formats;
use super::storage::{self, FeedState};
use super::stored_names::{self, StoredNames};
use crate::model::believed_time::BelievedTime;
use crate::table::{FeedList, Table};

/// The result of an update that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// A new list with this many rows was stored.
    ListReplaced(usize),
    /// The published list is the same as the last good list.
    Unchanged,
}

/// How a fetched list is compared with the last good list.
#[derive(Clone, Copy)]
enum ComparisonMode {
    /// The last good list came from another source. No name of it is kept.
    OtherSource,
    /// However much has changed, the operator wants the fetched list.
    Forced,
    /// The last good list has this age. The fetched list must not differ too much. Unless the last
    /// good list is old, the fetched list must not be an earlier one.
    Checked(Duration),
}

impl Feed {
    /// Fetches the list, and stores it if it passes the checks. `table` has the protected names.
    /// Removes names that left the list long before `now`. If `is_forced` is true, riskgate accepts
    /// a list that changed too much, or that it accepted before. If another process updates the
    /// same feed, this function first waits for that process, up to `max_lock_wait`.
    ///
    /// # Errors
    /// If the list could not be fetched, checked or stored. The last good list is kept. The fault
    /// is stored in the state, unless another process holds the lock, or a file can't be opened or
    /// written.
    pub fn update(
        &self,
        folder: &Path,
        table: &Table,
        now: BelievedTime,
        is_forced: bool,
        max_lock_wait: Duration,
    ) -> Result<UpdateOutcome, FeedError> {
        let _lock = storage::lock_feed_and_clean_up(folder, &self.name, max_lock_wait)
            .map_err(|error| self.prefix_feed_name(error))?;
        storage::check_files_can_be_opened(folder, &self.name, &self.list_path(folder))
            .map_err(|error| self.prefix_feed_name(error))?;
        let mut state = self.read_state(folder);
        let is_of_source = self.has_source_digest(&state.source_digest);
        let has_other_source =
            state.reset_if_source_changed(self.digest_source_settings(), is_of_source);
        let comparison = match (has_other_source, is_forced) {
            (true, _) => ComparisonMode::OtherSource,
            (false, true) => ComparisonMode::Forced,
            // Until the clocks have agreed for a while, the time may be far ahead. So the last good
            // list counts as new.
            (false, false) => ComparisonMode::Checked(match now.allows_deletion() {
                true => state.measure_age_of_list(now.unix_now),
                false => Duration::ZERO,
            }),
        };
        let updated = self.fetch_verify_and_save(folder, table, &mut state, now, comparison);
        let updated = updated.map_err(|error| self.prefix_feed_name(error));
        if updated.is_err() && has_other_source {
            // The list on disk is still that of the other source.
            state = storage::read_written_state(folder, &self.name);
        }
        state.attempted_at = Some(now.unix_now);
        state.attempted_source_digest = self.digest_source_settings();
        match &updated {
            Ok(_) => {
                state.fetched_at = Some(now.unix_now);
                (state.may_differ_since, state.fault) = (state.fetched_at, None);
            }
            Err(error) => state.fault = Some(error.to_string()),
        }
        let written = storage::write_state(folder, &self.name, &state);
        updated.and_then(|updated| {
            written.map(|()| updated).map_err(|error| self.prefix_feed_name(error))
        })
    }

    /// The error with the feed's name at the beginning.
    fn prefix_feed_name(&self, error: FeedError) -> FeedError {
        match error.at == self.name {
            true => error,
            false => FeedError { at: format!("{}: {}", self.name, error.at), ..error },
        }
    }

    /// A digest of the settings that decide where the list comes from and how it is verified, and
    /// of the list's kind.
    pub(super) fn digest_source_settings(&self) -> String {
        format!("{} {}", self.digest_source_without_kind(), self.kind.as_str())
    }

    /// Whether a state's digest is that of this feed's source. A state of an earlier version does
    /// not have the kind.
    pub(super) fn has_source_digest(&self, digest: &str) -> bool {
        digest == self.digest_source_settings() || digest == self.digest_source_without_kind()
    }

    fn digest_source_without_kind(&self) -> String {
        let url = |url: &FeedLocation| url.to_unredacted_text();
        let parts = [
            url(&self.url),
            self.sha256_url.as_ref().map(url).unwrap_or_default(),
            self.minisign_public_key.clone().unwrap_or_default(),
        ];
        fetch::sha256_hex(parts.join("\n").as_bytes())
    }

    /// Fetches, verifies, checks and stores the list.
    fn fetch_verify_and_save(
        &self,
        folder: &Path,
        table: &Table,
        state: &mut FeedState,
        now: BelievedTime,
        comparison: ComparisonMode,
    ) -> Result<UpdateOutcome, FeedError> {
        let client = ClientSettings { tls_ca: self.tls_ca.as_deref(), proxy: &self.proxy };
        let fetched = match fetch::fetch_list(&self.url, client, state, self.max_list_bytes)? {
            FetchOutcome::NotModified => return self.drop_outdated_names(folder, state, now),
            FetchOutcome::List(fetched) => fetched,
        };
        if let Some(url) = &self.sha256_url {
            fetch::check_published_digest(url, client, &fetch::sha256_hex(&fetched.bytes))?;
        }
        if let Some(key) = &self.minisign_public_key {
            fetch::check_signature(&self.url, client, key, &fetched.bytes)?;
        }
        let list = self.list_path(folder);
        checks::check_memory(&self.name, &fetched.bytes, storage::list_file_length(&list))?;
        let names = list_formats::parse_names(&self.name, &fetched.bytes)?;
        // The digest covers only the sorted names. A changed comment or order does not change it.
        let digest = fetch::sha256_hex(names.join("\n").as_bytes());
        if state.digests.last() == Some(&digest) {
            (state.etag, state.modified) = (fetched.etag, fetched.last_modified);
            return self.drop_outdated_names(folder, state, now);
        }
        if let ComparisonMode::Checked(age) = comparison
            && state.digests.contains(&digest)
        {
            checks::refuse_earlier_list_unless_old(self, age)?;
        }
        checks::check_protected_names(self, &names, table)?;
        let stored = match comparison {
            ComparisonMode::OtherSource => StoredNames::default(),
            ComparisonMode::Forced | ComparisonMode::Checked(_) => {
                storage::read_stored_names(&list)
            }
        };
        if let ComparisonMode::Checked(age) = comparison {
            checks::check_changed_share(self, &stored.listed, &names, age)?;
        }
        let listed_at = now.allows_deletion().then_some(now.unix_now);
        self.write_names(&list, state, StoredNames { listed_at, ..stored }, &names, now)?;
        (state.etag, state.modified) = (fetched.etag, fetched.last_modified);
        state.changed_at = Some(now.unix_now);
        state.push_list_digest(digest);
        Ok(UpdateOutcome::ListReplaced(names.len()))
    }

    /// Writes the feed's file: the names of the list, which riskgate has had since
    /// `stored.listed_at`, and the departed names that are kept.
    fn write_names(
        &self,
        list_path: &Path,
        state: &mut FeedState,
        stored: StoredNames,
        listed_names: &[String],
        now: BelievedTime,
    ) -> Result<(), FeedError> {
        let listed_at = stored.listed_at;
        let mut departed = stored.into_departed(listed_names, now);
        departed.retain(|_, left_at| !self.is_outdated(*left_at, now));
        let max_bytes = self.max_list_bytes.min(FeedList::MAX_FILE_BYTES);
        let lines = stored_names::render_lines(listed_names, listed_at, &departed, max_bytes);
        let text = FeedList::render_with_checksum(&lines);
        checks::check_file_length(self, &text, max_bytes)?;
        storage::write_list_and_fingerprint(state, list_path, &text)?;
        let name_lines = lines.iter().filter(|line| !line.starts_with('#')).count();
        state.kept = name_lines - listed_names.len();
        state.rows = listed_names.len();
        Ok(())
    }

    /// Removes outdated names from the feed's file, whose list has not changed.
    fn drop_outdated_names(
        &self,
        folder: &Path,
        state: &mut FeedState,
        now: BelievedTime,
    ) -> Result<UpdateOutcome, FeedError> {
        let list = self.list_path(folder);
        if state.kept > 0 {
            checks::check_memory(&self.name, &[], storage::list_file_length(&list))?;
            let stored = storage::read_stored_names(&list);
            if stored.departed.values().any(|left_at| self.is_outdated(*left_at, now)) {
                let mut listed_names: Vec<String> = stored.listed.iter().cloned().collect();
                listed_names.sort_unstable();
                self.write_names(&list, state, stored, &listed_names, now)?;
            }
        }
        Ok(UpdateOutcome::Unchanged)
    }

    /// Whether a name that left the list at `left_at`, in seconds since 1970, has been kept long
    /// enough. True if `keep_departed` is zero. Otherwise false until the clocks have agreed for a
    /// while (see [`BelievedTime::allows_deletion`]), because the time may be far ahead until then.
    fn is_outdated(&self, left_at: i64, now: BelievedTime) -> bool {
        let kept_for = now.unix_now.saturating_sub(left_at);
        self.keep_departed.is_zero()
            || (now.allows_deletion() && kept_for > self.keep_departed.as_secs().cast_signed())
    }

    pub(super) fn read_state(&self, folder: &Path) -> FeedState {
        let list = self.list_path(folder);
        storage::read_state(folder, &self.name, &list, &self.verified_list)
    }
}
