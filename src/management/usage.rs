//! Reads the usage of a month.

use crate::model::month::Month;
use crate::store::{DailyUsageRow, Store, StoreError};

/// Returns the month whose usage riskgate shows by default: the present month by the believed time,
/// or the month in which the store counts if that is later.
///
/// # Errors
/// If the store fails.
pub fn find_month_to_show(store: &mut Store) -> Result<Month, StoreError> {
    let now = Month::containing(store.now().unix_now);
    Ok(store.latest_month()?.map_or(now, |latest| latest.max(now)))
}

/// Reads the calls of a month by account, day, route and key: those of all accounts, or of
/// `only_account`.
///
/// # Errors
/// If the store fails.
pub fn read_daily_usage_of_month(
    store: &mut Store,
    month: Month,
    only_account: Option<&str>,
) -> Result<Vec<DailyUsageRow>, StoreError> {
    store.read_daily_usage(month, only_account, None, usize::MAX)
}
