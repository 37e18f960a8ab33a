//! Adding keys to a server: a page in one script, more as an import.
//!
//! An import of many keys goes in pages, so that none of its steps holds the server up. Its rows
//! name it, and are there for everybody once it was committed, in one short step. What failed is
//! undone; what was given up without a word, such as by a process that was killed, holds its names
//! for some seconds and is then cleared away by whoever meets it.

use super::connection::{CHUNK_ROWS, Redis};
use super::key_names::RING_KEYS;
use super::key_names::plans_key;
use super::reply::to_hex;
use super::rows::{format_key, format_plan};
use super::scripts::Script;
use super::write::ADDING;
use crate::store::error::StoreError;
use crate::store::rows::KeyRow;

/// Seconds for which an import holds its names after each of its steps.
const IMPORT_TTL_SECONDS: u64 = 10;

impl Redis {
    pub(in super::super) fn add_keys(
        &mut self,
        keys: &[(KeyRow, Option<String>)],
    ) -> Result<(), StoreError> {
        match keys.len() {
            0 => return self.init(),
            1..=CHUNK_ROWS => return self.add_page("-", keys, true),
            _ => {}
        }
        let import = self.random_id()?;
        let mut is_first_page = true;
        let done = keys.chunks(CHUNK_ROWS).try_for_each(|page| {
            let added = self.add_page(&import, page, is_first_page);
            is_first_page = false;
            added
        });
        let done = done.and_then(|()| self.end_import(&import, "commit").map(drop));
        if done.is_err() {
            // Else it is cleared away by whoever meets it. One that was committed stays.
            let _ = self.clear_import(&import);
        }
        done
    }

    fn add_page(
        &mut self,
        import: &str,
        keys: &[(KeyRow, Option<String>)],
        is_first_page: bool,
    ) -> Result<(), StoreError> {
        let mut arguments = Vec::with_capacity(4 + 5 * keys.len());
        arguments.extend([self.random_id()?, import.to_owned()]);
        arguments.extend([u8::from(is_first_page).to_string(), IMPORT_TTL_SECONDS.to_string()]);
        for (key, plan) in keys {
            arguments.extend([key.id.clone(), to_hex(&key.digest), format_key(key)]);
            arguments.extend([key.account.clone(), format_plan(plan.as_deref())]);
        }
        let plans = plans_key(import);
        let names = [&RING_KEYS[..], &[&plans]].concat();
        self.write_after_imports(ADDING, Script::AddKeys, &names, &arguments).map(drop)
    }
}
