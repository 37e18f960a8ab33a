//! Brings a feed up to date: fetch, verify, judge, keep.

use std::path::Path;

use super::checks;
use super::config::Feed;
use super::error::FeedError;
use super::fetch::{self, FeedUrl, FetchOutcome};
use super::storage::{self, FeedState};
use crate::table::Table;

/// What an update did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// A new list of this many rows is kept.
    Replaced(usize),
    /// The list is the one that is kept.
    Unchanged,
}

impl Feed {
    /// Fetches the list and keeps it, if it can be believed. `table` knows which names are
    /// protected. With `is_forced` a list is taken however much it changed, also an older one.
    /// Where another process updates the same feed it waits until that is done.
    ///
    /// # Errors
    /// If nothing new could be kept; what was kept before still is. The fault is kept beside it.
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
        let is_comparable = !state.reset_if_source_changed(self.source_digest()) && !is_forced;
        state.attempted_at = Some(now);
        let updated = self.fetch_and_save(folder, table, &mut state, now, is_comparable);
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

    /// The fault with the feed's name at its begin.
    fn with_feed_name(&self, error: FeedError) -> FeedError {
        match error.attempted_at == self.name {
            true => error,
            false => FeedError {
                attempted_at: format!("{}: {}", self.name, error.attempted_at),
                ..error
            },
        }
    }

    /// What decides where a list comes from and what proves it.
    pub(super) fn source_digest(&self) -> String {
        let url = |url: &FeedUrl| url.to_unredacted();
        let parts = [
            url(&self.url),
            self.sha256_url.as_ref().map(url).unwrap_or_default(),
            self.public_key.clone().unwrap_or_default(),
        ];
        fetch::sha256_hex(parts.join("\n").as_bytes())
    }

    fn fetch_and_save(
        &self,
        folder: &Path,
        table: &Table,
        state: &mut FeedState,
        now: i64,
        is_comparable: bool,
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
        // Of the names, so that neither a comment nor their order makes an old list a new one.
        let digest = fetch::sha256_hex(names.join("\n").as_bytes());
        if state.digests.last() == Some(&digest) {
            (state.etag, state.modified) = (fetched.etag, fetched.last_modified);
            return Ok(UpdateOutcome::Unchanged);
        }
        if is_comparable && state.digests.contains(&digest) {
            let why = "expected a newer list, but found one that was fetched before";
            return Err(FeedError::new(&self.name, why));
        }
        checks::check_protected_names(self, &names, table)?;
        let list = self.list_path(folder);
        if is_comparable {
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
