//! The inbox secret.

use crate::store::error::StoreError;
use crate::store::inbox_secret::StoredInboxSecret;

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
    fn read_inbox_id_mark(&mut self) -> Result<Option<String>, StoreError>;

    /// Replaces the mark of the inbox ids: a text that is the same on two nodes if and only if both
    /// make the same ids. So the store has the mark of the node that wrote last, after a start or a
    /// reload.
    fn write_inbox_id_mark(&mut self, mark: &str) -> Result<(), StoreError>;
}
