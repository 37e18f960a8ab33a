//! Adding keys to a server: a page in one script, more as an import.
//!
//! An import of many keys goes in pages, so that none of its steps holds the server up. Its rows
//! name it, and are there for everybody once it was committed, in one short step. What failed is
//! undone; what was given up without a word, such as by a process that was killed, holds its names
//! for some seconds and is then cleared away by whoever meets it.

use super::connection::{CHUNK, Redis};
use super::key_names::RING;
use super::key_names::plans_name;
use super::reply::hex;
use super::rows::{key_text, plan_text};
use super::scripts::Script;
use super::write::ADDING;
use crate::store::error::StoreError;
use crate::store::rows::KeyRow;

/// Seconds for which an import holds its names after each of its steps.
const HELD_FOR: u64 = 10;

impl Redis {
    pub(in super::super) fn add_keys(
        &mut self,
        keys: &[(KeyRow, Option<String>)],
    ) -> Result<(), StoreError> {
        match keys.len() {
            0 => return self.init(),
            1..=CHUNK => return self.add_page("-", keys, true),
            _ => {}
        }
        let import = self.draw_id()?;
        let mut begins = true;
        let done = keys.chunks(CHUNK).try_for_each(|page| {
            let added = self.add_page(&import, page, begins);
            begins = false;
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
        begins: bool,
    ) -> Result<(), StoreError> {
        let mut arguments = Vec::with_capacity(4 + 5 * keys.len());
        arguments.extend([self.draw_id()?, import.to_owned()]);
        arguments.extend([u8::from(begins).to_string(), HELD_FOR.to_string()]);
        for (key, plan) in keys {
            arguments.extend([key.id.clone(), hex(&key.digest), key_text(key)]);
            arguments.extend([key.account.clone(), plan_text(plan.as_deref())]);
        }
        let plans = plans_name(import);
        let names = [&RING[..], &[&plans]].concat();
        self.write_beside_imports(ADDING, Script::Add, &names, &arguments).map(drop)
    }
}
