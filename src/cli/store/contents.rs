//! Reads the contents of a store, and writes them to another store.

use serde_json::json;

use crate::cli::author::find_command_author;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{print_progress, print_warning, report_change};
use crate::cli::store_access::{COMMAND_STORE_TIMEOUT, tell_store_the_time};
use crate::model::believed_time::BelievedTime;
use crate::model::month::Month;
use crate::store::{RedisOptions, Store, StoreContents, StoreError, StoreUrl};
use crate::support::counted::CountedNoun;

/// Returns the path of the file, or the address of the server without user and password.
pub(super) fn describe_url(url: &StoreUrl) -> String {
    match url {
        StoreUrl::Sqlite(path) => path.display().to_string(),
        StoreUrl::Redis(url) => url.without_credentials(),
    }
}

/// Opens a store, and reads everything that a copy writes to another store. Also returns the
/// present time, by what the opened store knows. Fails if the server is empty, or if a row is
/// damaged.
pub(super) fn open_and_read_contents(
    url: &StoreUrl,
    options: &RedisOptions,
) -> Result<(StoreContents, BelievedTime), CommandFailure> {
    print_progress("reading the store");
    let mut store = Store::open_to_copy(url, options, COMMAND_STORE_TIMEOUT)?;
    store.check_safe_if_reachable()?;
    store.raise_busy_timeout()?;
    let is_empty = || CommandFailure::failed("expected a store, but found an empty server");
    let contents = store.read_contents()?.ok_or_else(is_empty)?;
    check_no_row_is_damaged(&contents)?;
    tell_store_the_time(&mut store)?;
    Ok((contents, store.now()))
}

/// Writes contents into an empty store. Creates the store if it is a file that does not exist.
pub(super) fn write_contents(
    contents: &StoreContents,
    time: BelievedTime,
    to: &StoreUrl,
    options: &RedisOptions,
) -> Result<(), CommandFailure> {
    print_progress(format!("writing {}", CountedNoun(contents.ring.keys.len(), "key")));
    let target = Store::open(to, options, COMMAND_STORE_TIMEOUT);
    let mut target = target.map_err(StoreError::without_corruption_advice)?;
    target.check_safe_if_reachable()?;
    target.raise_busy_timeout()?;
    target.set_time(time);
    target.fill_empty_store(&find_command_author(), contents)?;
    if let Err(error) = target.checkpoint_wal() {
        // The store is complete with its log. The next process that opens the store moves the log.
        print_warning(format!("{error}; keep the files beside the store with it"));
    }
    Ok(())
}

/// Prints what was copied. `done` is what was done, such as `copied`.
pub(super) fn report_copy(
    done: &str,
    contents: &StoreContents,
    json: bool,
) -> Result<(), CommandFailure> {
    let StoreContents { ring, usage_month: month, usage, top_rows: top, audit, .. } = contents;
    let (keys, accounts, numbers, top, records) =
        (ring.keys.len(), ring.accounts.len(), usage.len(), top.len(), audit.len());
    let (overrides, sign_ups) = (contents.overrides.len(), contents.sign_ups.len());
    // A store that has counted no call has no month.
    let month = (*month != Month::FIRST).then(|| month.to_string());
    let counted = match &month {
        Some(month) => format!("the numbers of {} in {month}", CountedNoun(numbers, "account")),
        None => "no numbers".to_owned(),
    };
    let done = format!(
        "{done} {}, {}, {counted}, {}, {}, {}, {} of the audit",
        CountedNoun(keys, "key"),
        CountedNoun(accounts, "account"),
        CountedNoun(top, "top count"),
        CountedNoun(sign_ups, "sign-up"),
        CountedNoun(overrides, "override"),
        CountedNoun(records, "record"),
    );
    let object = json!({
        "keys": keys, "accounts": accounts, "month": month,
        "usage": numbers, "top": top, "overrides": overrides, "sign_ups": sign_ups,
        "audit": records,
    });
    report_change(&done, &object, json)
}

/// Fails if a key, an account, an override or the totals of an account are damaged, because a copy
/// leaves none out.
fn check_no_row_is_damaged(contents: &StoreContents) -> Result<(), CommandFailure> {
    let damaged = &contents.ring.damaged;
    let of_ring = damaged.key_digests_by_id.keys().chain(&damaged.account_names);
    if let Some(name) = of_ring.chain(&contents.damaged_overrides).next() {
        return Err(CommandFailure::failed(format!(
            "expected rows that can be read, but found another for {name}"
        )));
    }
    match contents.usage.iter().find(|row| row.is_damaged) {
        Some(row) => Err(CommandFailure::failed(format!(
            "expected numbers that can be read, but found others for {}",
            row.account
        ))),
        None => Ok(()),
    }
}
