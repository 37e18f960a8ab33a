//! The operator's overrides of domains.

use super::changes::StoreChanges;
use crate::store::audit::ChangeAuthor;
use crate::store::error::StoreError;
use crate::store::overrides::{
    OverrideTakeOver, OverrideUpdate, OverridesVersion, StoredOverride, StoredOverrides,
};

/// What both kinds of store do with overrides.
pub trait OverrideBackend {
    /// The version of the overrides. This read is cheap enough to be made several times a second.
    /// `None` if the store is not initialized, or has lost its id.
    fn overrides_version(&mut self) -> Result<Option<OverridesVersion>, StoreError>;

    /// Reads all overrides. `None` if the store is not initialized. Fails if the store has lost
    /// some.
    fn stored_overrides(&mut self) -> Result<Option<StoredOverrides>, StoreError>;

    /// Reads the overrides of a domain, the exact one first.
    fn find_overrides(&mut self, domain: &str) -> Result<Vec<StoredOverride>, StoreError>;

    /// As in [`StoreChanges`].
    fn update_overrides(
        &mut self,
        author: &ChangeAuthor,
        update: &OverrideUpdate<'_>,
    ) -> Result<bool, StoreError>;

    /// As in [`StoreChanges`].
    fn take_over_overrides(
        &mut self,
        author: &ChangeAuthor,
        take_over: &OverrideTakeOver<'_>,
    ) -> Result<Option<usize>, StoreError>;
}

impl StoreChanges<'_> {
    /// Changes the overrides of a domain. Returns false and changes nothing if they are no longer
    /// as the caller has read them. Fails if the store would have more than
    /// [`MAX_STORED_OVERRIDES`](crate::store::MAX_STORED_OVERRIDES).
    pub fn update_overrides(&mut self, update: &OverrideUpdate<'_>) -> Result<bool, StoreError> {
        let (store, author) = self.store_and_author();
        store.update_overrides(author, update)
    }

    /// Adds the rows of a file in one step, and remembers the file. An override that the store has
    /// of the same name and scope stays. Returns how many rows were added; `None` if the store
    /// remembers the file already.
    pub fn take_over_overrides(
        &mut self,
        take_over: &OverrideTakeOver<'_>,
    ) -> Result<Option<usize>, StoreError> {
        let (store, author) = self.store_and_author();
        store.take_over_overrides(author, take_over)
    }
}
