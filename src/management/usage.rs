//! The usage of a month.

use crate::model::month::Month;
use crate::quota::unix_now;
use crate::store::{DailyUsageRow, Store, StoreError};

/// The month whose usage is shown unless another is asked for: the present one by the store's clock,
/// or a later one if the store counts in it.
///
/// # Errors
/// If the store fails.
pub fn month_to_show(store: &mut Store) -> Result<Month, StoreError> {
    let now = Month::containing(store.unix_now()?.unwrap_or_else(unix_now));
    Ok(store.latest_month()?.map_or(now, |latest| latest.max(now)))
}

/// Reads the calls of a month by account, day, route and key: of all accounts, or of one.
///
/// # Errors
/// If the store fails.
pub fn read_whole_daily_usage(
    store: &mut Store,
    month: Month,
    only_account: Option<&str>,
) -> Result<Vec<DailyUsageRow>, StoreError> {
    store.read_daily_usage(month, only_account, None, usize::MAX)
}
