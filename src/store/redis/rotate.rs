//! Rotating a key on a server, and taking a rotation back: each is one script.

use super::connection::Redis;
use super::key_names::RING_KEYS;
use super::reply::to_hex;
use super::rows::format_key;
use super::scripts::Script;
use crate::store::error;
use crate::store::error::StoreError;
use crate::store::rows::KeyRow;

impl Redis {
    pub(in super::super) fn rotate_key(
        &mut self,
        old: &str,
        new: &KeyRow,
        ends: i64,
        now: i64,
    ) -> Result<(), StoreError> {
        let (digest, row) = (to_hex(&new.digest), format_key(new));
        let words = ["rotate", old, &new.id, &ends.to_string(), &now.to_string(), &digest, &row];
        self.run_rotation("rotating a key", &words, old)
    }

    pub(in super::super) fn undo_rotation(
        &mut self,
        old: &str,
        new: &str,
        ends: i64,
        before: Option<i64>,
        now: i64,
    ) -> Result<(), StoreError> {
        let before = before.map_or("-".to_owned(), |time| time.to_string());
        let words = ["undo", old, new, &ends.to_string(), &now.to_string(), &before];
        self.run_rotation("taking a rotation back", &words, old)
    }

    fn run_rotation(
        &mut self,
        doing: &'static str,
        words: &[&str],
        old: &str,
    ) -> Result<(), StoreError> {
        let mut arguments = vec![self.random_id()?];
        arguments.extend(words.iter().map(|word| (*word).to_owned()));
        match self.write_after_imports(doing, Script::RotateKey, &RING_KEYS, &arguments)? {
            0 => Err(error::unknown_key_error(old)),
            _ => Ok(()),
        }
    }
}
