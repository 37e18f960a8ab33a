//! Rotates a key on a server, and undoes a rotation: one script each.

use super::audit::format_request;
use super::connection::Redis;
use super::key_names::{REPEATABLE_REQUESTS, RING_REDIS_KEYS};
use super::rows::format_key;
use super::scripts::Script;
use crate::store::audit::ChangeAuthor;
use crate::store::error::{self, StoreError};
use crate::store::operations::RotationBackend;
use crate::store::rows::{RepeatableRequestRow, Rotation};

impl RotationBackend for Redis {
    fn rotate_key(
        &mut self,
        author: &ChangeAuthor,
        rotation: &Rotation,
        request: Option<&RepeatableRequestRow>,
    ) -> Result<(), StoreError> {
        let (digest, row) = (hex::encode(rotation.new_key.digest), format_key(&rotation.new_key));
        let last = [digest, row, format_request(request)];
        self.run_rotate_key_script("rotating a key", "rotate", author, rotation, last)
    }

    fn undo_rotation(
        &mut self,
        author: &ChangeAuthor,
        rotation: &Rotation,
        former_expires_at: Option<i64>,
    ) -> Result<(), StoreError> {
        let before = former_expires_at.map_or("-".to_owned(), |time| time.to_string());
        self.run_rotate_key_script("undoing a rotation", "undo", author, rotation, [before])
    }
}

impl Redis {
    fn run_rotate_key_script<const N: usize>(
        &mut self,
        operation: &'static str,
        step: &str,
        author: &ChangeAuthor,
        rotation: &Rotation,
        last_arguments: [String; N],
    ) -> Result<(), StoreError> {
        let Rotation { old_id, new_key, old_expires_at, unix_now } = rotation;
        let mut arguments = vec![self.random_id()?, author.to_json().to_string(), step.to_owned()];
        arguments.extend([old_id.clone(), new_key.id.clone()]);
        arguments.extend([old_expires_at.to_string(), unix_now.to_string()]);
        arguments.extend(last_arguments);
        let names = [&RING_REDIS_KEYS[..], &[REPEATABLE_REQUESTS]].concat();
        let script = Script::RotateKey;
        match self.run_write_script_after_imports(operation, script, &names, &arguments)? {
            0 => Err(error::unknown_key_error(old_id)),
            _ => Ok(()),
        }
    }
}
