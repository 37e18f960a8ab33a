//! Adds keys to a server: up to `CHUNK_ROWS` keys with one script, more keys as an import.
//!
//! An import adds the keys in pages, so that no script blocks the server for long. Each row names
//! its import. One short script at the end commits the import, and all its rows take effect at
//! once. A failed import is undone. If the process is killed, its import reserves the names for up
//! to ten seconds; the next process that writes one of these names then clears the import.

use super::connection::{CHUNK_ROWS, Redis};
use super::key_names::RING_KEYS;
use super::key_names::plans_key;
use super::rows::{format_key, format_plan};
use super::scripts::Script;
use super::write::ADD_KEYS_OPERATION;
use crate::store::error::StoreError;
use crate::store::rows::KeyRow;

/// How long an import reserves its names after each of its steps, in seconds.
const IMPORT_RESERVATION_SECONDS: u64 = 10;

impl Redis {
    pub(in super::super) fn add_keys(
        &mut self,
        keys: &[(KeyRow, Option<String>)],
    ) -> Result<(), StoreError> {
        match keys.len() {
            0 => return self.mark_as_store(),
            1..=CHUNK_ROWS => return self.add_page("-", keys, true),
            _ => {}
        }
        let import = self.random_id()?;
        let mut is_first_page = true;
        let result = keys.chunks(CHUNK_ROWS).try_for_each(|page| {
            let added = self.add_page(&import, page, is_first_page);
            is_first_page = false;
            added
        });
        let result = result.and_then(|()| self.end_import(&import, "commit").map(drop));
        if result.is_err() {
            // If this fails, the next process that meets the import clears it. A committed import
            // stays.
            let _ = self.clear_import(&import);
        }
        result
    }

    fn add_page(
        &mut self,
        import: &str,
        keys: &[(KeyRow, Option<String>)],
        is_first_page: bool,
    ) -> Result<(), StoreError> {
        let mut arguments = Vec::with_capacity(4 + 5 * keys.len());
        arguments.extend([self.random_id()?, import.to_owned()]);
        arguments
            .extend([u8::from(is_first_page).to_string(), IMPORT_RESERVATION_SECONDS.to_string()]);
        for (key, plan) in keys {
            arguments.extend([key.id.clone(), hex::encode(key.digest), format_key(key)]);
            arguments.extend([key.account.clone(), format_plan(plan.as_deref())]);
        }
        let plans = plans_key(import);
        let names = [&RING_KEYS[..], &[&plans]].concat();
        self.write_after_imports(ADD_KEYS_OPERATION, Script::AddKeys, &names, &arguments).map(drop)
    }
}
