//! The inbox secret.

use crate::store::error::StoreError;
use crate::store::inbox_secret::StoredInboxSecret;

/// What both kinds of store do with the inbox secret.
pub trait InboxSecretBackend {
    /// Gives the store the secret that the caller knows, unless the store has an older one: it
    /// keeps the oldest, and of two secrets of one second the one with the smaller bytes. Returns
    /// the secret that the store has afterwards. So all nodes come to know one secret, and a node
    /// writes it back to a store that has lost it. Atomic.
    fn keep_inbox_secret(
        &mut self,
        known: &StoredInboxSecret,
    ) -> Result<StoredInboxSecret, StoreError>;

    /// The secret of the store; `None` if it has none.
    fn read_inbox_secret(&mut self) -> Result<Option<StoredInboxSecret>, StoreError>;

    /// The mark of the ids that the node which started last makes; `None` if the store has none.
    /// See [`write_inbox_id_mark`](InboxSecretBackend::write_inbox_id_mark).
    fn read_inbox_id_mark(&mut self) -> Result<Option<String>, StoreError>;

    /// Replaces the mark of the inbox ids: a text that two nodes have in common if and only if they
    /// make the same ids.
    fn write_inbox_id_mark(&mut self, mark: &str) -> Result<(), StoreError>;
}
