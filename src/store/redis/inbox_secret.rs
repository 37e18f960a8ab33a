//! The inbox secret on a server: a field of a hash.

use super::connection::Redis;
use super::fill::{OnExistingKey, Staging};
use super::scripts::Script;
use crate::store::error::StoreError;
use crate::store::inbox_secret::{StoredIdMark, StoredInboxSecret};
use crate::store::operations::InboxSecretBackend;

/// A hash: the inbox secret under [`SECRET_FIELD`], the mark of the ids under [`ID_MARK_FIELD`],
/// and the confirmation of the mark under [`ID_CONFIRMATION_FIELD`].
const INBOX_KEY: &str = "riskgate:{inbox}:secret";
const SECRET_FIELD: &str = "secret";
const ID_MARK_FIELD: &str = "inbox_id_mark";
const ID_CONFIRMATION_FIELD: &str = "inbox_id_confirmation";
/// How often riskgate tries to replace a secret that another node changes at the same time.
const MAX_SECRET_TRIES: usize = 8;
const KEEP_OPERATION: &str = "keeping the inbox secret";

impl InboxSecretBackend for Redis {
    fn keep_inbox_secret(
        &mut self,
        known: &StoredInboxSecret,
    ) -> Result<StoredInboxSecret, StoreError> {
        for _ in 0..MAX_SECRET_TRIES {
            let stored = self.read_inbox_secret()?;
            let kept = StoredInboxSecret::choose_kept(stored.as_ref(), known);
            if stored.as_ref() == Some(&kept) {
                return Ok(kept);
            }
            let before = stored.as_ref().map_or(String::new(), StoredInboxSecret::to_stored_text);
            let arguments = [before, kept.to_stored_text()];
            let script = Script::KeepInboxSecret;
            if self.run_write_script::<u64>(KEEP_OPERATION, script, &[INBOX_KEY], &arguments)? == 1
            {
                return Ok(kept);
            }
        }
        Err(self.unavailable_error(KEEP_OPERATION, "a secret that other nodes keep changing"))
    }

    fn read_inbox_secret(&mut self) -> Result<Option<StoredInboxSecret>, StoreError> {
        let text: Option<Vec<u8>> =
            self.query("reading the inbox secret", "HGET", (INBOX_KEY, SECRET_FIELD))?;
        let parse = |text: Vec<u8>| {
            StoredInboxSecret::from_stored_text(&String::from_utf8_lossy(&text), &self.location)
        };
        text.map(parse).transpose()
    }

    fn read_inbox_id_mark(&mut self) -> Result<Option<StoredIdMark>, StoreError> {
        let fields = (INBOX_KEY, ID_MARK_FIELD, ID_CONFIRMATION_FIELD);
        let (mark, confirmation): (Option<String>, Option<String>) =
            self.query("reading the mark of the inbox ids", "HMGET", fields)?;
        Ok(mark.map(|mark| StoredIdMark { mark, confirmation }))
    }

    fn write_inbox_id_mark(&mut self, written: &StoredIdMark) -> Result<(), StoreError> {
        let StoredIdMark { mark, confirmation } = written;
        let confirmation = confirmation.as_deref().unwrap_or_default();
        let fields = (INBOX_KEY, ID_MARK_FIELD, mark, ID_CONFIRMATION_FIELD, confirmation);
        self.query::<u64>("writing the mark of the inbox ids", "HSET", fields).map(drop)
    }
}

impl Redis {
    /// Stages the secret of another store, if it has one.
    pub(super) fn stage_inbox_secret(
        &mut self,
        staging: &mut Staging,
        secret: Option<&StoredInboxSecret>,
    ) -> Result<(), StoreError> {
        let field = secret.map(|secret| (SECRET_FIELD, secret.to_stored_text()));
        self.stage_hash(staging, INBOX_KEY, OnExistingKey::MergeHash, field.as_slice())
    }
}
