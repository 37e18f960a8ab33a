//! The operator's overrides of domains.

use crate::store::audit::ChangeAuthor;
use crate::store::error::StoreError;
use crate::store::overrides::{
    OverrideTakeOver, OverrideUpdate, OverridesVersion, StoredOverride, StoredOverrides,
};

/// What both kinds of store do with overrides.
pub trait OverrideBackend {
    /// The version of the overrides. This read is cheap enough to be made several times a second.
    /// `None` if the store is not initialized, has lost its id, or if SQLite can't read the
    /// version. On a server, fails if the version can't be read, or if the number of overrides is
    /// not the one in the version.
    fn overrides_version(&mut self) -> Result<Option<OverridesVersion>, StoreError>;

    /// Reads all overrides. `None` or an error as for [`OverrideBackend::overrides_version`].
    fn stored_overrides(&mut self) -> Result<Option<StoredOverrides>, StoreError>;

    /// Reads the overrides that the store has, even if it has lost others.
    fn remaining_overrides(&mut self) -> Result<Option<StoredOverrides>, StoreError> {
        self.stored_overrides()
    }

    /// Reads the overrides of a domain that can be read, the exact one first.
    fn find_overrides(&mut self, domain: &str) -> Result<Vec<StoredOverride>, StoreError>;

    /// As in [`StoreEditor`](super::changes::StoreEditor).
    fn update_overrides(
        &mut self,
        author: &ChangeAuthor,
        update: &OverrideUpdate<'_>,
    ) -> Result<bool, StoreError>;

    /// As in [`StoreEditor`](super::changes::StoreEditor).
    fn take_over_overrides(
        &mut self,
        author: &ChangeAuthor,
        take_over: &OverrideTakeOver<'_>,
    ) -> Result<Option<usize>, StoreError>;
}
