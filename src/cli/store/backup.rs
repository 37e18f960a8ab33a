//! `riskgate store backup`: copies the store into a new file, verifies the new file, and then
//! replaces an older backup by it.
//!
//! Each backup prepares its new file in a directory of its own, so backups that run at the same
//! time don't touch each other's files. If several commands write one backup at the same time, the
//! backup that read the store last stays. On a file system without locks, another of them may stay.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::contents::{open_and_read_contents, report_copy, write_contents};
use crate::cli::config_args::ConfigArgs;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{print_message, print_progress};
use crate::cli::store_access::{COMMAND_STORE_TIMEOUT, check_no_other_store_is_served};
use crate::config::hint_for_unopened;
use crate::model::believed_time::BelievedTime;
use crate::model::month::format_rfc3339;
use crate::store::{
    AccountRow, AuditRecord, RedisOptions, StoreContents, StoreUrl, find_log_beside,
    is_unused_backup,
};
use crate::support::regular_file::{is_same_file, lock_within, parent_dir};
use crate::support::work_dir::WorkDir;

/// The start of the names of the directories in which backups are prepared.
const WORK_DIR_PREFIX: &str = ".riskgate-backup-";

/// Saves the store of the config in `file`.
pub(super) fn run(config: &ConfigArgs, file: &Path, json: bool) -> Result<(), CommandFailure> {
    let config = config.read_config()?;
    check_no_other_store_is_served(&config)?;
    let options = config.startup.store;
    if let StoreUrl::Sqlite(store) = &options.url
        && is_same_file(file, store)
    {
        let file = file.display();
        let expected = "expected another file than the store";
        return Err(CommandFailure::failed(format!("{file}: {expected}, but found the store")));
    }
    if let Some(found) = describe_other_file(file) {
        let file = file.display();
        let expected = "expected no file, or an older backup";
        return Err(CommandFailure::failed(format!("{file}: {expected}, but found {found}")));
    }
    let failed = |error: io::Error| {
        let hint = match parent_dir(file).exists() {
            true => String::new(),
            false => hint_for_unopened(file).map(|it| format!("; {it}")).unwrap_or_default(),
        };
        let file = file.display();
        CommandFailure::failed(format!("{file}: expected to write it, but found {error}{hint}"))
    };
    // While the older backup is open, no other file gets its inode.
    let older = File::open(file).ok();
    let (contents, time) = open_and_read_contents(&options.url, &options.redis)?;
    if contents.is_empty() && may_hold_a_backup(file, &options.redis) {
        return Err(CommandFailure::failed(format!(
            "expected a store with keys, accounts, usage or sign-ups, but found an empty one; the \
             older backup {} is kept",
            file.display()
        )));
    }
    let folder = parent_dir(file);
    let work = WorkDir::create_in(folder, WORK_DIR_PREFIX).map_err(failed)?;
    let written = work.path().join("written");
    write_contents(&contents, time, &StoreUrl::Sqlite(written.clone()), &options.redis)?;
    // The move leaves behind the files that SQLite has beside `written`: a restore will find the
    // backup alone, so the verification reads it alone.
    let complete = work.path().join("complete");
    File::open(&written)
        .and_then(|file| file.sync_all())
        .and_then(|()| fs::rename(&written, &complete))
        .map_err(failed)?;
    print_progress("verifying the backup");
    verify_backup(&complete, &contents, &options.redis).map_err(|found| {
        let file = file.display();
        let expected = "expected to read back what was written";
        CommandFailure::failed(format!("{file}: {expected}, but found {found}; it was not saved"))
    })?;
    let folder = File::open(folder).map_err(failed)?;
    // Not all file systems have locks. Without a lock, the backup is made nevertheless.
    if let Err(error) = lock_within(&folder, COMMAND_STORE_TIMEOUT)
        && error.kind() == io::ErrorKind::TimedOut
    {
        return Err(failed(error));
    }
    if is_other_file(file, older.as_ref())
        && let Some((later, at)) = read_later_backup(file, (&contents, time), &options.redis)
    {
        let (file, at) = (file.display(), format_rfc3339(at));
        print_message(format!("another backup has read the store later, at {at}; {file} keeps it"));
        return report_copy("kept", &later, json);
    }
    fs::rename(&complete, file).and_then(|()| folder.sync_all()).map_err(failed)?;
    report_copy("saved", &contents, json)
}

/// Returns true if there is a file at this path now, and it is another file than `before`.
fn is_other_file(path: &Path, before: Option<&File>) -> bool {
    let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let before = before.and_then(|file| file.metadata().ok()).map(identity);
    fs::metadata(path).is_ok_and(|now| Some(identity(now)) != before)
}

/// Returns the contents of the backup in `file`, and when that backup read the store. `contents`
/// were read at `time`. Returns `None` if that backup read the store no later, or can't be read.
fn read_later_backup(
    file: &Path,
    (contents, time): (&StoreContents, BelievedTime),
    redis: &RedisOptions,
) -> Option<(StoreContents, i64)> {
    let url = StoreUrl::Sqlite(file.to_owned());
    let (mut saved, _) = open_and_read_contents(&url, redis).ok()?;
    // The last record is that of the backup itself.
    let at = saved.audit.pop()?.at;
    let is_later = (at, saved.audit.len()) > (time.unix_now, contents.audit.len());
    is_later.then_some((saved, at))
}

/// Returns false if the file is missing or is a backup of an empty store. Returns true for a file
/// that can't be read.
fn may_hold_a_backup(file: &Path, redis: &RedisOptions) -> bool {
    match fs::exists(file) {
        Ok(false) => false,
        _ => open_and_read_contents(&StoreUrl::Sqlite(file.to_owned()), redis)
            .map_or(true, |(saved, _)| !saved.is_empty()),
    }
}

/// Fails unless the file is a store with these contents. Compares the rows of keys, accounts,
/// overrides and sign-ups, the inbox secret, and what identifies the records of the audit. Of the
/// other contents, compares the number of rows. The error says what was found.
fn verify_backup(
    path: &Path,
    contents: &StoreContents,
    redis: &RedisOptions,
) -> Result<(), String> {
    let text = |failure: CommandFailure| failure.message_lines.join("; ");
    let (saved, _) =
        open_and_read_contents(&StoreUrl::Sqlite(path.to_owned()), redis).map_err(text)?;
    let differs = |what: &str, found: usize, written: usize| {
        Err(format!("{found} of {written} {what}, or others than these"))
    };
    if saved.ring.keys != contents.ring.keys {
        return differs("keys", saved.ring.keys.len(), contents.ring.keys.len());
    }
    if sort_by_name(&saved.ring.accounts) != sort_by_name(&contents.ring.accounts) {
        return differs("accounts", saved.ring.accounts.len(), contents.ring.accounts.len());
    }
    if saved.overrides != contents.overrides {
        return differs("overrides", saved.overrides.len(), contents.overrides.len());
    }
    if !has_same_records(&saved.audit, &contents.audit) {
        return differs("records of the audit", saved.audit.len(), contents.audit.len());
    }
    if saved.inbox_secret != contents.inbox_secret || saved.sign_ups != contents.sign_ups {
        return differs("sign-ups", saved.sign_ups.len(), contents.sign_ups.len());
    }
    let counts = |contents: &StoreContents| {
        let StoreContents { usage, top_rows, quota_events, daily_usage, source_states, .. } =
            contents;
        [
            ("numbers of accounts", usage.len()),
            ("top counts", top_rows.len()),
            ("quota events", quota_events.len()),
            ("months of usage by day", daily_usage.len()),
            ("states of sources", source_states.len()),
        ]
    };
    let other = counts(&saved).into_iter().zip(counts(contents)).find(|(it, other)| it != other);
    match other {
        Some(((what, found), (_, written))) => Err(format!("{found} of {written} {what}")),
        None => Ok(()),
    }
}

fn sort_by_name(accounts: &[AccountRow]) -> Vec<&AccountRow> {
    let mut accounts: Vec<&AccountRow> = accounts.iter().collect();
    accounts.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    accounts
}

/// Returns true if `saved`, the audit of a backup, has the records `written` and then the record of
/// the backup itself. The oldest of `written` may be missing: a store deletes old records with any
/// change.
fn has_same_records(saved: &[AuditRecord], written: &[AuditRecord]) -> bool {
    let Some((_, saved)) = saved.split_last() else { return false };
    let Some(deleted) = written.len().checked_sub(saved.len()) else { return false };
    let facts = |record: &AuditRecord| (record.at, record.operation.clone(), record.target.clone());
    let is_kept = saved.len() == written.len() || !saved.is_empty();
    is_kept && saved.iter().map(facts).eq(written[deleted..].iter().map(facts))
}

/// Describes what is at this path, if a backup must not replace it. `None` for nothing, and for a
/// backup without a log. SQLite would apply a log that lies beside the new backup.
fn describe_other_file(path: &Path) -> Option<String> {
    if let Some(log) = find_log_beside(path) {
        let log = log.display();
        return Some(format!("{log} beside it, which is of a store: move both away"));
    }
    const SQLITE_START: &[u8] = b"SQLite format 3\0";
    let kind = fs::symlink_metadata(path).ok()?.file_type();
    if !kind.is_file() {
        return Some("something that is no regular file".to_owned());
    }
    let mut start = [0; SQLITE_START.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    match read {
        Ok(()) if start == SQLITE_START && is_unused_backup(path) => None,
        Ok(()) if start == SQLITE_START => {
            Some("a store in use, or a database of another program".to_owned())
        }
        _ => Some("another file".to_owned()),
    }
}
