//! Updates a feed: fetches its list, verifies and checks it, and stores it.

use std::path::Path;
use std::time::Duration;

use super::checks;
use super::config::Feed;
use super::error::FeedError;
use super::fetch::{self, FeedLocation, FetchOutcome};
use super::storage::{self, FeedState};
use crate::table::Table;

/// The result of an update that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// A new list with this many rows was stored.
    ListReplaced(usize),
    /// The published list is the same as the last good list.
    Unchanged,
}

impl Feed {
    /// Fetches the list, and stores it if it passes the checks. `table` has the protected names. If
    /// `is_forced` is true, riskgate accepts a list that changed too much, or that it accepted
    /// before. If another process updates the same feed, this function first waits for it, up to
    /// `max_lock_wait`.
    ///
    /// # Errors
    /// If the list could not be fetched, checked or stored. The last good list is kept, and the
    /// fault is stored in the state.
    pub fn update(
        &self,
        folder: &Path,
        table: &Table,
        now: i64,
        is_forced: bool,
        max_lock_wait: Duration,
    ) -> Result<UpdateOutcome, FeedError> {
        let _lock = storage::lock_feed_and_clean_up(folder, &self.name, max_lock_wait)
            .map_err(|error| self.prefix_feed_name(error))?;
        storage::check_files_can_be_opened(folder, &self.name, &self.list_path(folder))
            .map_err(|error| self.prefix_feed_name(error))?;
        let mut state = self.read_state(folder);
        let compare_with_previous =
            !state.reset_if_source_changed(self.digest_source_settings()) && !is_forced;
        state.attempted_at = Some(now);
        let updated =
            self.fetch_verify_and_save(folder, table, &mut state, now, compare_with_previous);
        let updated = updated.map_err(|error| self.prefix_feed_name(error));
        match &updated {
            Ok(_) => (state.fetched_at, state.fault) = (Some(now), None),
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

    /// A digest of the settings that decide where the list comes from and how it is verified.
    pub(super) fn digest_source_settings(&self) -> String {
        let url = |url: &FeedLocation| url.to_unredacted_text();
        let parts = [
            url(&self.url),
            self.sha256_url.as_ref().map(url).unwrap_or_default(),
            self.minisign_public_key.clone().unwrap_or_default(),
        ];
        fetch::sha256_hex(parts.join("\n").as_bytes())
    }

    /// Fetches, verifies, checks and stores the list. If `compare_with_previous` is true, rejects a
    /// list that was accepted before the last one, and a list that changed too much.
    fn fetch_verify_and_save(
        &self,
        folder: &Path,
        table: &Table,
        state: &mut FeedState,
        now: i64,
        compare_with_previous: bool,
    ) -> Result<UpdateOutcome, FeedError> {
        let fetched = match fetch::fetch_list(&self.url, state, self.max_list_bytes)? {
            FetchOutcome::NotModified => return Ok(UpdateOutcome::Unchanged),
            FetchOutcome::List(fetched) => fetched,
        };
        if let Some(url) = &self.sha256_url {
            fetch::check_published_digest(url, &fetch::sha256_hex(&fetched.bytes))?;
        }
        if let Some(key) = &self.minisign_public_key {
            fetch::check_signature(&self.url, key, &fetched.bytes)?;
        }
        checks::check_memory(&self.name, &fetched.bytes)?;
        let names = checks::parse_names(&self.name, &fetched.bytes)?;
        // The digest covers only the sorted names. A changed comment or order does not change it.
        let digest = fetch::sha256_hex(names.join("\n").as_bytes());
        if state.digests.last() == Some(&digest) {
            (state.etag, state.modified) = (fetched.etag, fetched.last_modified);
            return Ok(UpdateOutcome::Unchanged);
        }
        if compare_with_previous && state.digests.contains(&digest) {
            let why = "expected a newer list, but found one that was fetched before";
            return Err(FeedError::new(&self.name, why));
        }
        checks::check_protected_names(self, &names, table)?;
        let list = self.list_path(folder);
        if compare_with_previous {
            checks::check_changed_share(self, &storage::read_list_names(&list), &names)?;
        }
        storage::write_list_and_fingerprint(state, &list, &names)?;
        (state.etag, state.modified) = (fetched.etag, fetched.last_modified);
        (state.rows, state.changed_at) = (names.len(), Some(now));
        state.push_list_digest(digest);
        Ok(UpdateOutcome::ListReplaced(names.len()))
    }

    pub(super) fn read_state(&self, folder: &Path) -> FeedState {
        storage::read_state(folder, &self.name, &self.list_path(folder))
    }
}
