//! Checks whether a fetched list is plausible, and whether riskgate has the memory to check it.

use std::collections::HashSet;
use std::time::Duration;

use super::config::Feed;
use super::error::FeedError;
use crate::support::memory;
use crate::table::{FeedKind, MIN_ROWS_FOR_CHANGE_CHECK, Table};

/// The bytes of memory that an update needs for each byte of a list, besides
/// [`UPDATE_BYTES_PER_NAME`]: texts of the names, of the sorted list, and of the former list.
const UPDATE_BYTES_PER_BYTE: u64 = 6;
/// The length of a short name with its line feed. [`check_memory`] estimates the number of names in
/// the file of a feed by it.
const ASSUMED_BYTES_PER_STORED_NAME: u64 = 8;
/// The bytes of memory that an update needs for each name of a list.
const UPDATE_BYTES_PER_NAME: u64 = 176;

/// Fails if the process can't get the memory for checking a list and comparing it with the names in
/// the feed's file, because a failed allocation would end the process. `stored_bytes` is the length
/// of the feed's file.
pub(super) fn check_memory(
    feed_name: &str,
    bytes: &[u8],
    stored_bytes: u64,
) -> Result<(), FeedError> {
    let list_bytes = bytes.len() as u64 + stored_bytes;
    let names = count_possible_names(bytes) + stored_bytes / ASSUMED_BYTES_PER_STORED_NAME;
    let needed = UPDATE_BYTES_PER_BYTE * list_bytes + UPDATE_BYTES_PER_NAME * names;
    memory::check_available(needed).map_err(|found| FeedError::new(feed_name, found.to_string()))
}

/// Counts the texts of a list that may be names, in each format that riskgate reads: a line of a
/// hosts file may have many names. Counts the addresses of a hosts file as well.
fn count_possible_names(bytes: &[u8]) -> u64 {
    let texts = bytes.split(|byte| byte.is_ascii_whitespace() || *byte == b',');
    texts.filter(|text| !text.is_empty()).count() as u64
}

/// Rejects a list whose file would be longer than may be read. `text` is that of the file.
pub(super) fn check_file_length(feed: &Feed, text: &str, max_bytes: u64) -> Result<(), FeedError> {
    let found = text.len() as u64;
    if found <= max_bytes {
        return Ok(());
    }
    let why =
        format!("expected a list whose file has at most {max_bytes} bytes, but found {found}");
    Err(FeedError::new(&feed.name, why))
}

/// Rejects a list of disposable domains that contains a large provider. Also rejects such a list if
/// at least two of its names, and more than 1 % of its names, are protected. A good list may
/// contain a few protected names; the table ignores them.
pub(super) fn check_protected_names(
    feed: &Feed,
    fetched_names: &[String],
    table: &Table,
) -> Result<(), FeedError> {
    if !matches!(feed.kind, FeedKind::Disposable(_)) {
        return Ok(());
    }
    let large_provider = fetched_names.iter().find(|name| table.is_large_provider(name));
    let is_protected = |name: &&String| {
        table.find_row(name).is_some_and(|row| row.own_answer.is_protected_in_manifest_lists())
    };
    let max = (fetched_names.len() / 100).max(1);
    match large_provider.or(fetched_names.iter().filter(is_protected).nth(max)) {
        None => Ok(()),
        Some(name) => {
            let why = format!("expected no protected name, but found {name}");
            Err(FeedError::new(&feed.name, why))
        }
    }
}

/// Once the last good list is older than the feed's interval, the share of rows that an update may
/// change doubles in this time. The checks of [`MAX_SHRINKAGE_FACTOR`] and
/// [`check_protected_names`] don't relax.
const DOUBLING_TIME_OF_MAX_CHANGE: Duration = Duration::from_hours(7 * 24);

/// riskgate refuses a list with fewer rows than the last good list had, divided by this factor,
/// however old the last good list is, unless that list is short.
const MAX_SHRINKAGE_FACTOR: usize = 10;

/// While the last good list is younger than this, riskgate refuses a list that it had accepted
/// before the last good list. Afterwards the publisher may have gone back to an earlier list on
/// purpose.
const REFUSE_EARLIER_LISTS_FOR: Duration = Duration::from_hours(7 * 24);

/// Rejects a list that riskgate had accepted before, as the caller has found, unless the last good
/// list is old.
pub(super) fn refuse_earlier_list_unless_old(
    feed: &Feed,
    age_of_last_list: Duration,
) -> Result<(), FeedError> {
    if age_of_last_list >= REFUSE_EARLIER_LISTS_FOR {
        return Ok(());
    }
    let why = "expected a newer list, but found one that was fetched before";
    Err(FeedError::new(&feed.name, why))
}

/// Rejects a list that lost or gained too many names since the last good list, because it is
/// probably truncated, empty or another list. The older the last good list is, the more may change.
/// If the last good list is short, accepts any change.
pub(super) fn check_changed_share(
    feed: &Feed,
    previous_names: &HashSet<String>,
    fetched_names: &[String],
    age_of_last_list: Duration,
) -> Result<(), FeedError> {
    let before = previous_names.len();
    if before < MIN_ROWS_FOR_CHANGE_CHECK as usize {
        return Ok(());
    }
    let overdue = age_of_last_list.saturating_sub(feed.fetch_interval);
    let doublings = overdue.div_duration_f64(DOUBLING_TIME_OF_MAX_CHANGE);
    let share = feed.max_changed_percent as f64 / 100.0 * doublings.exp2();
    let max = (before as f64 * share) as usize;
    let (added, removed) = match feed.is_rolling {
        // A rolling list has other names each day, so only its length counts.
        true => {
            (fetched_names.len().saturating_sub(before), before.saturating_sub(fetched_names.len()))
        }
        false => {
            let unchanged =
                fetched_names.iter().filter(|name| previous_names.contains(*name)).count();
            (fetched_names.len() - unchanged, before - unchanged)
        }
    };
    let is_cut = fetched_names.len() < before / MAX_SHRINKAGE_FACTOR;
    if added <= max && removed <= max && !is_cut {
        return Ok(());
    }
    let (expected, found) = match feed.is_rolling {
        true => ("more or fewer", format!("{} rows", fetched_names.len())),
        false => ("to be added and to be removed", format!("{added} new and {removed} gone")),
    };
    let name = &feed.name;
    if is_cut {
        let (least, found) = (before / MAX_SHRINKAGE_FACTOR, fetched_names.len());
        return Err(FeedError::new(
            name,
            format!(
                "expected {least} rows or more after {before}, but found {found}; `riskgate table \
                 update --force {name}` accepts the list now"
            ),
        ));
    }
    Err(FeedError::new(
        name,
        format!(
            "expected at most {max} of {before} rows {expected}, but found {found}; riskgate \
             accepts more changes with each day, and `riskgate table update --force {name}` \
             accepts the list now"
        ),
    ))
}

#[cfg(test)]
mod tests;
