//! The operator's overrides of domains.

use crate::store::audit::ChangeAuthor;
use crate::store::error::StoreError;
use crate::store::overrides::{
    OverrideTakeOver, OverrideUpdate, OverridesVersion, StoredOverride, StoredOverrides,
};

/// What both kinds of store do with overrides.
pub trait OverrideBackend {
    /// The version of the overrides. This read is cheap enough to be made several times a second.
    /// `None` if the store is not initialized, or has lost its id. On a server, fails if the store
    /// has lost some overrides.
    fn overrides_version(&mut self) -> Result<Option<OverridesVersion>, StoreError>;

    /// Reads all overrides. `None` if the store is not initialized. On a server, fails if the store
    /// has lost some overrides.
    fn stored_overrides(&mut self) -> Result<Option<StoredOverrides>, StoreError>;

    /// Reads the overrides that the store has, even if it has lost others.
    fn remaining_overrides(&mut self) -> Result<Option<StoredOverrides>, StoreError> {
        self.stored_overrides()
    }

    /// Reads the overrides of a domain, the exact one first.
    fn find_overrides(&mut self, domain: &str) -> Result<Vec<StoredOverride>, StoreError>;

    /// As in [`StoreChanges`](super::changes::StoreChanges).
    fn update_overrides(
        &mut self,
        author: &ChangeAuthor,
        update: &OverrideUpdate<'_>,
    ) -> Result<bool, StoreError>;

    /// As in [`StoreChanges`](super::changes::StoreChanges).
    fn take_over_overrides(
        &mut self,
        author: &ChangeAuthor,
        take_over: &OverrideTakeOver<'_>,
    ) -> Result<Option<usize>, StoreError>;
}
