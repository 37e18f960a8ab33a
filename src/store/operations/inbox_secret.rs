//! The inbox secret.

use crate::store::error::StoreError;
use crate::store::inbox_secret::{StoredIdMark, StoredInboxSecret};

/// What both kinds of store do with the inbox secret.
pub trait InboxSecretBackend {
    /// Gives the store the secret that the caller knows, unless the store has an older one (see
    /// `StoredInboxSecret::choose_kept`). Returns the secret that the store has afterwards. So all
    /// nodes come to know the same secret, and a store that has lost its secret gets it back.
    /// Atomic. Fails if the store has a damaged secret.
    fn keep_inbox_secret(
        &mut self,
        known: &StoredInboxSecret,
    ) -> Result<StoredInboxSecret, StoreError>;

    /// The secret of the store; `None` if it has none.
    fn read_inbox_secret(&mut self) -> Result<Option<StoredInboxSecret>, StoreError>;

    /// Reads what [`write_inbox_id_mark`](InboxSecretBackend::write_inbox_id_mark) wrote last;
    /// `None` if the store has no mark.
    fn read_inbox_id_mark(&mut self) -> Result<Option<StoredIdMark>, StoreError>;

    /// Replaces the mark of the inbox ids, and its confirmation. So the store has the mark of the
    /// node that wrote last.
    fn write_inbox_id_mark(&mut self, written: &StoredIdMark) -> Result<(), StoreError>;
}
