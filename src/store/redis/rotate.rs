//! Rotates a key on a server, and undoes a rotation: one script each.

use super::connection::Redis;
use super::key_names::RING_REDIS_KEYS;
use super::rows::format_key;
use super::scripts::Script;
use crate::store::error;
use crate::store::error::StoreError;
use crate::store::rows::KeyRow;

impl Redis {
    pub(in super::super) fn rotate_key(
        &mut self,
        old_id: &str,
        new_key: &KeyRow,
        old_expires_at: i64,
        unix_now: i64,
    ) -> Result<(), StoreError> {
        let (digest, row) = (hex::encode(new_key.digest), format_key(new_key));
        let parameters = [
            "rotate",
            old_id,
            &new_key.id,
            &old_expires_at.to_string(),
            &unix_now.to_string(),
            &digest,
            &row,
        ];
        self.run_rotate_key_script("rotating a key", &parameters, old_id)
    }

    pub(in super::super) fn undo_rotation(
        &mut self,
        old_id: &str,
        new_id: &str,
        old_expires_at: i64,
        former_expires_at: Option<i64>,
        unix_now: i64,
    ) -> Result<(), StoreError> {
        let before = former_expires_at.map_or("-".to_owned(), |time| time.to_string());
        let parameters =
            ["undo", old_id, new_id, &old_expires_at.to_string(), &unix_now.to_string(), &before];
        self.run_rotate_key_script("undoing a rotation", &parameters, old_id)
    }

    fn run_rotate_key_script(
        &mut self,
        operation: &'static str,
        script_arguments: &[&str],
        old_id: &str,
    ) -> Result<(), StoreError> {
        let mut arguments = vec![self.random_id()?];
        arguments.extend(script_arguments.iter().map(|parameter| (*parameter).to_owned()));
        match self.run_write_script_after_imports(
            operation,
            Script::RotateKey,
            &RING_REDIS_KEYS,
            &arguments,
        )? {
            0 => Err(error::unknown_key_error(old_id)),
            _ => Ok(()),
        }
    }
}
