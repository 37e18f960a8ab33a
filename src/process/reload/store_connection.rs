//! The connection of a thread to the store, which is opened when it is needed.

use std::time::Duration;

use crate::config::StoreOptions;
use crate::store::{Store, StoreError};

/// Returns the store of a thread. If `store` is `None`, first opens the store with this timeout:
/// see
/// [`Store::open`]. Never creates a store.
pub(super) fn open_if_none<'s>(
    store: &'s mut Option<Store>,
    options: &StoreOptions,
    timeout: Duration,
) -> Result<&'s mut Store, StoreError> {
    match store {
        Some(store) => Ok(store),
        none => Ok(none.insert(options.open_existing(timeout)?)),
    }
}
