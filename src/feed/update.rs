//! Updates a feed: fetches its list, verifies and checks it, and stores it.

use std::path::Path;

use super::checks;
use super::config::Feed;
use super::error::FeedError;
use super::fetch::{self, FeedUrl, FetchOutcome};
use super::storage::{self, FeedState};
use crate::table::Table;

/// The result of an update that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// A new list with this many rows was stored.
    Replaced(usize),
    /// The list has not changed.
    Unchanged,
}

impl Feed {
    /// Fetches the list, and stores it if it passes the checks. `table` has the protected names.
    /// With `is_forced`, a list is accepted however much it changed, and even if it is older. If
    /// another process updates the same feed, this one waits.
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
    ) -> Result<UpdateOutcome, FeedError> {
        let _lock =
            storage::lock_feed(folder, &self.name).map_err(|error| self.with_feed_name(error))?;
        let mut state = self.read_state(folder);
        let compare_with_previous =
            !state.reset_if_source_changed(self.source_digest()) && !is_forced;
        state.attempted_at = Some(now);
        let updated = self.fetch_and_save(folder, table, &mut state, now, compare_with_previous);
        let updated = updated.map_err(|error| self.with_feed_name(error));
        match &updated {
            Ok(_) => (state.fetched_at, state.fault) = (Some(now), None),
            Err(error) => state.fault = Some(error.to_string()),
        }
        let written = storage::write_state(folder, &self.name, &state);
        updated.and_then(|updated| {
            written.map(|()| updated).map_err(|error| self.with_feed_name(error))
        })
    }

    /// The error with the feed's name at the beginning.
    fn with_feed_name(&self, error: FeedError) -> FeedError {
        match error.at == self.name {
            true => error,
            false => FeedError { at: format!("{}: {}", self.name, error.at), ..error },
        }
    }

    /// A digest of the settings that decide where the list comes from and how it is verified.
    pub(super) fn source_digest(&self) -> String {
        let url = |url: &FeedUrl| url.to_unredacted();
        let parts = [
            url(&self.url),
            self.sha256_url.as_ref().map(url).unwrap_or_default(),
            self.public_key.clone().unwrap_or_default(),
        ];
        fetch::sha256_hex(parts.join("\n").as_bytes())
    }

    /// Fetches, verifies, checks and stores the list. With `compare_with_previous`, rejects a list
    /// that was fetched before, and a list that changed too much.
    fn fetch_and_save(
        &self,
        folder: &Path,
        table: &Table,
        state: &mut FeedState,
        now: i64,
        compare_with_previous: bool,
    ) -> Result<UpdateOutcome, FeedError> {
        let fetched = match fetch::fetch(&self.url, state, self.max_bytes)? {
            FetchOutcome::NotModified => return Ok(UpdateOutcome::Unchanged),
            FetchOutcome::List(fetched) => fetched,
        };
        if let Some(url) = &self.sha256_url {
            fetch::check_digest(url, &fetch::sha256_hex(&fetched.bytes))?;
        }
        if let Some(key) = &self.public_key {
            fetch::check_signature(&self.url, key, &fetched.bytes)?;
        }
        let names = checks::parse_names(&self.name, &fetched.bytes)?;
        // The digest covers only the sorted names: a changed comment or order makes no new list.
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
            checks::check_changed_share(self, &storage::read_list(&list), &names)?;
        }
        storage::write_list(state, &list, &names)?;
        (state.etag, state.modified) = (fetched.etag, fetched.last_modified);
        (state.rows, state.changed_at) = (names.len(), Some(now));
        state.push_digest(digest);
        Ok(UpdateOutcome::Replaced(names.len()))
    }

    pub(super) fn read_state(&self, folder: &Path) -> FeedState {
        storage::read_state(folder, &self.name, &self.list_path(folder))
    }
}
