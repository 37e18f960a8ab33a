//! Rotates a key on a server, and undoes a rotation: one script each.

use super::connection::Redis;
use super::key_names::RING_KEYS;
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
        old_expires_at: i64,
        now: i64,
    ) -> Result<(), StoreError> {
        let (digest, row) = (hex::encode(new.digest), format_key(new));
        let parameters =
            ["rotate", old, &new.id, &old_expires_at.to_string(), &now.to_string(), &digest, &row];
        self.run_rotation("rotating a key", &parameters, old)
    }

    pub(in super::super) fn undo_rotation(
        &mut self,
        old: &str,
        new: &str,
        old_expires_at: i64,
        former_expires_at: Option<i64>,
        now: i64,
    ) -> Result<(), StoreError> {
        let before = former_expires_at.map_or("-".to_owned(), |time| time.to_string());
        let parameters = ["undo", old, new, &old_expires_at.to_string(), &now.to_string(), &before];
        self.run_rotation("undoing a rotation", &parameters, old)
    }

    fn run_rotation(
        &mut self,
        operation: &'static str,
        parameters: &[&str],
        old: &str,
    ) -> Result<(), StoreError> {
        let mut arguments = vec![self.random_id()?];
        arguments.extend(parameters.iter().map(|parameter| (*parameter).to_owned()));
        match self.write_after_imports(operation, Script::RotateKey, &RING_KEYS, &arguments)? {
            0 => Err(error::unknown_key_error(old)),
            _ => Ok(()),
        }
    }
}
