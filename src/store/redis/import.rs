//! Adds keys to a server: up to `CHUNK_ROWS` keys with one script, more keys as an import.
//!
//! An import adds the keys in pages, so that no script blocks the server for long. Each row names
//! its import. One short script at the end commits the import, and all its rows take effect at
//! once. If an import fails, riskgate undoes it. If the process is killed, its import reserves the
//! names for up to ten more seconds. After that, the next process that writes one of these names
//! clears the import.

use super::connection::{CHUNK_ROWS, Redis};
use super::key_names::RING_REDIS_KEYS;
use super::key_names::import_plans_key;
use super::rows::{format_key, format_plan_or_empty};
use super::scripts::Script;
use super::write::ADD_KEYS_OPERATION;
use crate::store::error::StoreError;
use crate::store::rows::KeyRow;

/// How long an import reserves its names after each of its steps, in seconds.
const IMPORT_RESERVATION_SECONDS: u64 = 10;

impl Redis {
    pub(in super::super) fn add_keys(
        &mut self,
        keys_with_plans: &[(KeyRow, Option<String>)],
    ) -> Result<(), StoreError> {
        match keys_with_plans.len() {
            0 => return self.mark_as_store(),
            1..=CHUNK_ROWS => return self.add_key_page("-", keys_with_plans, true),
            _ => {}
        }
        let import = self.random_id()?;
        let mut is_first_page = true;
        let result = keys_with_plans.chunks(CHUNK_ROWS).try_for_each(|page| {
            let added = self.add_key_page(&import, page, is_first_page);
            is_first_page = false;
            added
        });
        let result = result.and_then(|()| self.commit_or_clear_import(&import, "commit").map(drop));
        if result.is_err() {
            // If this fails, the next process that meets the import clears it. A committed import
            // stays.
            let _ = self.clear_uncommitted_import(&import);
        }
        result
    }

    fn add_key_page(
        &mut self,
        import_id: &str,
        keys_with_plans: &[(KeyRow, Option<String>)],
        is_first_page: bool,
    ) -> Result<(), StoreError> {
        let mut arguments = Vec::with_capacity(4 + 5 * keys_with_plans.len());
        arguments.extend([self.random_id()?, import_id.to_owned()]);
        arguments
            .extend([u8::from(is_first_page).to_string(), IMPORT_RESERVATION_SECONDS.to_string()]);
        for (key, plan) in keys_with_plans {
            arguments.extend([key.id.clone(), hex::encode(key.digest), format_key(key)]);
            arguments.extend([key.account.clone(), format_plan_or_empty(plan.as_deref())]);
        }
        let plans = import_plans_key(import_id);
        let names = [&RING_REDIS_KEYS[..], &[&plans]].concat();
        self.run_write_script_after_imports(ADD_KEYS_OPERATION, Script::AddKeys, &names, &arguments)
            .map(drop)
    }
}
