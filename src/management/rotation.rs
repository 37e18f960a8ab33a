//! Rotates keys: a new key replaces an old key, and the old key works for some time longer.

use std::path::Path;
use std::time::Duration;

use super::expiry::Expiry;
use super::fault::ManagementFault;
use super::keys::{
    create_token, draw_key_id, find_repeated_key, read_declared_keys, unknown_id_fault,
};
use super::repeatable::RepeatableRequest;
use crate::config::{ReloadableConfig, TextKind, guess_text, parse_duration};
use crate::keys::{Token, merge_keys};
use crate::model::month::parse_rfc3339;
use crate::store::{
    AuditOperation, ChangeAuthor, KeyRow, RepeatableRequestRow, Rotation, Store, StoreError,
};

/// How long the old key still works, if the operator says nothing.
pub const DEFAULT_OVERLAP: &str = "7d";

/// How many records of the audit one page has, and how many pages a rotation reads at most to find
/// earlier rotations of the key.
const RECORDS_PER_PAGE: usize = 1_000;
const MAX_PAGES_OF_RECORDS: usize = 100;

/// A rotation that is ready to be committed.
pub struct PreparedRotation {
    /// The old key in the store, and the new key.
    pub rotation: Rotation,
    /// The text of the new key.
    pub token: Token,
    /// The expiry of the old key before the rotation.
    former_expires_at: Option<i64>,
    /// What the store is to remember of the request, if the request can be repeated.
    request: Option<RepeatableRequestRow>,
    /// Whether an earlier request has rotated the key.
    is_in_store: bool,
}

/// Parses how long the old key stays valid, by default [`DEFAULT_OVERLAP`], and when the new key
/// expires.
///
/// # Errors
/// Returns a fault if a text has another form.
pub fn parse_rotation_times(
    overlap: Option<&str>,
    expires: Option<&str>,
) -> Result<(Duration, Option<Expiry>), ManagementFault> {
    let overlap_text = overlap.unwrap_or(DEFAULT_OVERLAP);
    let overlap = parse_duration(overlap_text).ok_or_else(|| {
        let is_number = overlap_text.bytes().all(|byte| byte.is_ascii_digit());
        let meant = match overlap_text.parse::<u32>() {
            Ok(days) => Some(format!("{days}d")),
            // Nobody lets a key work for some milliseconds or seconds more.
            Err(_) if is_number => None,
            Err(_) => guess_text(overlap_text, TextKind::Time, |it| parse_duration(it).is_some()),
        };
        ManagementFault::invalid("overlap", "a duration such as 7d", format!("{overlap_text:?}"))
            .with_meant(meant)
    })?;
    Ok((overlap, expires.map(Expiry::parse).transpose()?))
}

/// Prepares the replacement of the key `id` by a new key with the same settings. The old key ends
/// after the `overlap`, unless it expires earlier. The new key expires at `expires`. By default,
/// the new key gets the lifetime that the old key had in all, counted from now. If the client made
/// the same request before, the result has the new key of the earlier request.
///
/// # Errors
/// Returns a fault in these cases:
/// - A value is faulty, or the present time is not known.
/// - The store does not have the key: only the key file has it, or nobody.
/// - The key file has ended the key, or leaves it no origin.
/// - The `Idempotency-Key` of the request belongs to another request or to another admin token.
/// - The store or the key file can't be read, or the system gives no random bits.
pub fn prepare_rotation(
    store: &mut Store,
    config: &ReloadableConfig,
    id: &str,
    overlap: Option<&str>,
    expires: Option<&str>,
    request: Option<&RepeatableRequest<'_>>,
) -> Result<PreparedRotation, ManagementFault> {
    let (overlap, expires) = parse_rotation_times(overlap, expires)?;
    let Some(old) = find_stored_key(store, config, id)? else {
        check_not_declared(config, id)?;
        return Err(unknown_id_fault(store, &read_declared_keys(config)?, id)?);
    };
    let now = store.now();
    let unix_now = now.unix_now;
    let overlap = i64::try_from(overlap.as_secs()).unwrap_or(i64::MAX);
    let repeated = find_repeated_key(store, config, request)?;
    let end_of_overlap = match repeated {
        // The first request has set the end of the old key already, so this value is only shown.
        Some(_) => unix_now.saturating_add(overlap),
        None => Expiry::After(overlap).to_unix_seconds(now)?,
    };
    let old_expires_at = old.expires_at.map_or(end_of_overlap, |at| at.min(end_of_overlap));
    let (old_id, former_expires_at) = (old.id.clone(), old.expires_at);
    let is_in_store = repeated.is_some();
    let (new_key, token, request) = match repeated {
        Some((row, token)) => (row, token, None),
        None => {
            let settings = restrict_by_key_file(&old, config, unix_now)?;
            let unrotated = KeyRow { expires_at: find_end_before_rotations(store, &old)?, ..old };
            let end = restrict_by_key_file(&unrotated, config, unix_now)?.expires_at;
            let term = end.map(|at| at.saturating_sub(settings.created_at));
            let same_term = term.map(|term| unix_now.saturating_add(term));
            let expires_at =
                expires.map(|when| when.to_unix_seconds(now)).transpose()?.or(same_term);
            let id = draw_key_id()?;
            let (token, record) = create_token(config, &id, request)?;
            let (created_at, digest) = (unix_now, token.sha256());
            let row = KeyRow { id, digest, created_at, expires_at, revoked_at: None, ..settings };
            (row, token, record)
        }
    };
    let rotation = Rotation { old_id, new_key, old_expires_at, unix_now };
    Ok(PreparedRotation { rotation, token, former_expires_at, request, is_in_store })
}

impl PreparedRotation {
    /// Rotates the key in the store, unless an earlier request has done so.
    ///
    /// # Errors
    /// If the store fails, or if the old key is revoked or has expired. After
    /// [`StoreError::Unavailable`], the store may have the new key.
    pub fn commit(&self, store: &mut Store, author: &ChangeAuthor) -> Result<(), StoreError> {
        if self.is_in_store {
            return Ok(());
        }
        store.rotate_key(author, &self.rotation, self.request.as_ref())
    }

    /// Undoes the rotation: for a caller that could not show the new key to anybody.
    ///
    /// # Errors
    /// If the store fails, or has no such rotation.
    pub fn undo(&self, store: &mut Store, author: &ChangeAuthor) -> Result<(), StoreError> {
        store.undo_rotation(author, &self.rotation, self.former_expires_at)
    }
}

/// Returns when the key would end if it had not been rotated, in Unix seconds. `None` if it would
/// not end. Each record of a rotation in the audit has the end that the key had before. Looks at
/// the records since the key was made, and at [`MAX_PAGES_OF_RECORDS`] at most, so that no rotation
/// takes long. If a rotation is older than these, its end of the key counts.
fn find_end_before_rotations(store: &mut Store, key: &KeyRow) -> Result<Option<i64>, StoreError> {
    let rotations = [AuditOperation::KeyRotate, AuditOperation::KeyRotationUndo];
    let mut end = key.expires_at;
    let mut oldest_id: Option<String> = None;
    for _ in 0..MAX_PAGES_OF_RECORDS {
        // A rotated key has an end, so a key without an end was not rotated.
        if end.is_none() {
            break;
        }
        let page = store.read_audit_before(oldest_id.as_deref(), RECORDS_PER_PAGE)?;
        for record in page.iter().filter(|record| record.target == key.id) {
            if !rotations.iter().any(|rotation| rotation.as_str() == record.operation) {
                return Ok(end);
            }
            end = record.before["expires_at"].as_str().and_then(parse_rfc3339);
        }
        match page.last() {
            Some(oldest) if page.len() == RECORDS_PER_PAGE && oldest.at >= key.created_at => {
                oldest_id = Some(oldest.id.clone())
            }
            _ => break,
        }
    }
    Ok(end)
}

/// Returns the key with the settings that are in force. If the key file has the key, it restricts
/// the settings of the store's row.
///
/// # Errors
/// If the key file can't be read. If the key file has the key, also in these cases:
/// - The key file has revoked the key.
/// - The key has expired, by the key file or by the store.
/// - No origin is left to the key.
fn restrict_by_key_file(
    stored: &KeyRow,
    config: &ReloadableConfig,
    unix_now: i64,
) -> Result<KeyRow, ManagementFault> {
    let declared = read_declared_keys(config)?;
    let declared = declared.into_iter().find(|declared| declared.key.digest == stored.digest);
    let Some(declared) = declared else { return Ok(stored.clone()) };
    let (rows, declared) = ([stored.clone()], [declared]);
    let [merged] = &merge_keys(&rows, &declared)[..] else { return Ok(stored.clone()) };
    let refuse = |found: &str| {
        let expected = "a key that works, by the store and by keys.file";
        ManagementFault::Conflict(format!("expected {expected}, but found {found}: {}", stored.id))
    };
    if declared[0].key.revoked_at.is_some() {
        return Err(refuse("a revoked one"));
    }
    if merged.row.expires_at.is_some_and(|at| at <= unix_now) {
        return Err(refuse("an expired one"));
    }
    if merged.is_origin_restricted && merged.origins.is_empty() {
        return Err(refuse("one that allows no origin"));
    }
    let origins = merged.origins.iter().map(ToString::to_string).collect();
    Ok(KeyRow { origins, ..merged.row.clone().into_owned() })
}

/// Checks that the key file has no key with this id, which the store does not have.
///
/// # Errors
/// If the key file has the key, or can't be read.
pub fn check_not_declared(config: &ReloadableConfig, id: &str) -> Result<(), ManagementFault> {
    if !read_declared_keys(config)?.iter().any(|declared| declared.key.id == id) {
        return Ok(());
    }
    let file = config.key_file.as_deref().unwrap_or(Path::new("keys.file"));
    Err(ManagementFault::Conflict(format!(
        "expected a key of the store, but found {id} in {}, which riskgate does not change: add a \
         new key to that file, and an `expires` to {id}",
        file.display()
    )))
}

/// Finds the store's row of a key by the key's id. The store may have a key of the key file under
/// another id: then the digest in the key file finds the row.
fn find_stored_key(
    store: &mut Store,
    config: &ReloadableConfig,
    id: &str,
) -> Result<Option<KeyRow>, ManagementFault> {
    if let Some(found) = store.find_key(id)? {
        return Ok(Some(found));
    }
    let declared = read_declared_keys(config)?.into_iter().find(|declared| declared.key.id == id);
    match declared {
        Some(declared) => Ok(store.find_key_by_digest(&declared.key.digest)?),
        None => Ok(None),
    }
}
