//! Adds keys to a server: up to `CHUNK_ROWS` keys with one script, more keys as an import.
//!
//! An import adds the keys in pages, so that no script blocks the server for long. Each row names
//! its import. One short script at the end commits the import, and all its rows take effect at
//! once. If an import fails, riskgate undoes it. If the process is killed, its import reserves the
//! names of its keys and accounts for up to ten more seconds. After that, the next process that
//! adds a key or sets an account with one of these names clears the import.

use super::audit::{format_change, format_request};
use super::connection::{CHUNK_ROWS, Redis};
use super::key_names::{REPEATABLE_REQUESTS, RING_REDIS_KEYS};
use super::rows::{format_key, format_plan_or_empty};
use super::scripts::Script;
use super::write::{ADD_KEYS_OPERATION, ImportEnd};
use crate::model::plan::DEFAULT_PLAN;
use crate::store::audit::{Change, ChangeAuthor};
use crate::store::error::StoreError;
use crate::store::new_key_plan::NewKeyPlan;
use crate::store::operations::KeyAdditionBackend;
use crate::store::rows::{KeyRow, RepeatableRequestRow};

/// How long an import reserves its names after each of its steps, in seconds.
const IMPORT_RESERVATION_SECONDS: u64 = 10;

/// A page of keys to add.
struct KeyPage<'p> {
    author: &'p ChangeAuthor,
    /// What the audit says of all pages.
    change: &'p Change,
    /// `-` if the keys take effect at once.
    import_id: &'p str,
    is_first: bool,
    request: Option<&'p RepeatableRequestRow>,
}

impl KeyAdditionBackend for Redis {
    fn add_keys(
        &mut self,
        author: &ChangeAuthor,
        keys_with_plans: &[(KeyRow, Option<NewKeyPlan>)],
        request: Option<&RepeatableRequestRow>,
        change: &Change,
    ) -> Result<(), StoreError> {
        let mut page = KeyPage { author, change, import_id: "-", is_first: true, request };
        if keys_with_plans.len() <= CHUNK_ROWS {
            return self.add_key_page(&page, keys_with_plans);
        }
        let import = self.random_id()?;
        page.import_id = &import;
        let result = keys_with_plans.chunks(CHUNK_ROWS).try_for_each(|keys| {
            let added = self.add_key_page(&page, keys);
            page.is_first = false;
            added
        });
        let commit = ImportEnd::Commit(author, change);
        let result = result.and_then(|()| self.run_end_import_script(&import, commit).map(drop));
        if result.is_err() {
            // If clearing fails, the next process that meets the import clears it. If the import is
            // committed after all, it stays.
            let _ = self.clear_uncommitted_import(&import);
        }
        result
    }
}

impl Redis {
    fn add_key_page(
        &mut self,
        page: &KeyPage<'_>,
        keys_with_plans: &[(KeyRow, Option<NewKeyPlan>)],
    ) -> Result<(), StoreError> {
        let KeyPage { author, change, import_id, is_first, request } = page;
        let mut arguments = Vec::with_capacity(11 + 6 * keys_with_plans.len());
        let [author, record @ ..] = format_change(author, change);
        arguments.extend([self.random_id()?, author]);
        arguments.extend([(*import_id).to_owned(), u8::from(*is_first).to_string()]);
        arguments.extend([IMPORT_RESERVATION_SECONDS.to_string(), format_request(*request)]);
        // The record of an import is written when the import is committed.
        let record = if *import_id == "-" { record } else { Default::default() };
        arguments.extend(record);
        arguments.extend([format_plan_or_empty(Some(DEFAULT_PLAN))]);
        for (key, plan) in keys_with_plans {
            arguments.extend([key.id.clone(), hex::encode(key.digest), format_key(key)]);
            let named = plan.as_ref().map(|it| it.plan.as_str());
            let by_key_file = plan.as_ref().and_then(|it| it.by_key_file.as_deref());
            arguments.push(key.account.clone());
            arguments.extend([named, by_key_file].map(format_plan_or_empty));
        }
        let names = [&RING_REDIS_KEYS[..], &[REPEATABLE_REQUESTS]].concat();
        self.run_write_script_after_imports(ADD_KEYS_OPERATION, Script::AddKeys, &names, &arguments)
            .map(drop)
    }
}
