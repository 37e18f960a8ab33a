//! Which month's usage is shown.

use crate::model::month::Month;
use crate::store::{Store, StoreError};

/// Returns the month whose usage riskgate shows by default: the present month by the believed time,
/// or the month in which the store counts if that is later.
///
/// # Errors
/// If the store fails.
pub fn find_month_to_show(store: &mut Store) -> Result<Month, StoreError> {
    let now = Month::containing(store.now().unix_now);
    Ok(store.latest_month()?.map_or(now, |latest| latest.max(now)))
}
