//! Creates, revokes and imports keys.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use super::expiry::Expiry;
use super::fault::ManagementFault;
use super::repeatable::RepeatableRequest;
use crate::config::{
    Config, ReloadableConfig, TextKind, find_mistyped_name, find_nearest_name, guess_text,
};
use crate::keys::{
    AccountSources, DeclaredKey, ID_OR_ACCOUNT_FORMAT, Token, UnfitAccountName, collect_accounts,
    has_generated_key, is_valid_id_or_account, read_key_file, sha256,
};
use crate::model::origin::OriginPattern;
use crate::model::typed_address::first_mark_of_address;
use crate::model::visible_text::is_control_or_invisible;
use crate::observe::redaction::may_be_sent_key;
use crate::store::{ChangeAuthor, KeyRow, NewKeyPlan, RepeatableRequestRow, Store, StoreError};
use crate::table::quote_excerpt;

/// The longest label, in characters.
const MAX_LABEL_CHARS: usize = 200;
/// The most origins of a key.
const MAX_ORIGINS: usize = 100;

/// A key to create.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// The account of the key. If the account does not exist, riskgate creates it with the key.
    pub account: String,
    /// The plan of a new account. A known account must have this plan already.
    pub plan: Option<String>,
    /// A label for people.
    pub label: Option<String>,
    /// The origins that may use the key; empty if all may.
    #[serde(default)]
    pub origins: Vec<String>,
    /// Whether requests without an origin are refused.
    #[serde(default)]
    pub require_origin: bool,
    /// When the key expires: `90d`, or a time.
    pub expires: Option<String>,
}

/// A new key that is ready to be added to the store.
pub struct PreparedKey {
    /// The row of the key.
    pub row: KeyRow,
    /// The text of the key.
    pub token: Token,
    plan: Option<NewKeyPlan>,
    /// What the store is to remember of the request, if the request can be repeated.
    request: Option<RepeatableRequestRow>,
    /// Whether an earlier request has added the key.
    is_in_store: bool,
}

/// Checks the values of a new key, without a store. Returns when the key expires.
///
/// # Errors
/// Returns a fault if a value is faulty.
pub fn check_new_key(
    config: &ReloadableConfig,
    new: &NewKey,
) -> Result<Option<Expiry>, ManagementFault> {
    check_account_name("account", &new.account)?;
    check_plan(config, new.plan.as_deref())?;
    check_label_and_origins(new)?;
    new.expires.as_deref().map(Expiry::parse).transpose()
}

/// Checks a new key, and creates its text and its id. If the client made the same request before,
/// returns the key that the earlier request added.
///
/// # Errors
/// Returns a fault in these cases. That the account has another plan shows only in
/// [`PreparedKey::add`].
/// - A value is faulty, or depends on the present time, which is not known.
/// - The store or the key file can't be read.
/// - The `Idempotency-Key` of the request belongs to another request or to another admin token.
/// - The system gives no random bits.
pub fn prepare_key(
    store: &mut Store,
    config: &ReloadableConfig,
    new: &NewKey,
    request: Option<&RepeatableRequest<'_>>,
) -> Result<PreparedKey, ManagementFault> {
    // A repeated request is not checked again: the config may have changed since the first one.
    if let Some((row, token)) = find_repeated_key(store, config, request)? {
        return Ok(PreparedKey { row, token, plan: None, request: None, is_in_store: true });
    }
    let expires = check_new_key(config, new)?;
    check_name_if_new(store, config, &new.account)?;
    let plan = new.plan.as_deref().map(|plan| {
        let declared = read_declared_keys(config)?;
        let accounts = collect_accounts(&[], &declared);
        Ok::<_, ManagementFault>(new_key_plan(plan.to_owned(), &new.account, &accounts))
    });
    let plan = plan.transpose()?;
    let created_at = store.now().unix_now;
    let id = draw_key_id()?;
    let (token, record) = create_token(config, &id, request)?;
    let row = KeyRow {
        id,
        account: new.account.clone(),
        label: new.label.clone(),
        digest: token.sha256(),
        origins: new.origins.clone(),
        require_origin: new.require_origin,
        created_at,
        expires_at: expires.map(|when| when.to_unix_seconds(store.now())).transpose()?,
        revoked_at: None,
    };
    Ok(PreparedKey { row, token, plan, request: record, is_in_store: false })
}

impl PreparedKey {
    /// Adds the key to the store, unless an earlier request has added it.
    ///
    /// # Errors
    /// If the store fails or refuses the key, for example because the account has another plan than
    /// the new key names. After [`StoreError::Unavailable`], the store may have the key.
    pub fn add(&self, store: &mut Store, author: &ChangeAuthor) -> Result<(), StoreError> {
        if self.is_in_store {
            return Ok(());
        }
        let key = (self.row.clone(), self.plan.clone());
        store.add_keys(author, &[key], self.request.as_ref())
    }
}

/// A key that is revoked.
pub struct RevokedKey {
    /// Since when the key is revoked, in Unix seconds. A key that was revoked before keeps its
    /// time.
    pub revoked_at: i64,
    /// The row of the key in the store; `None` if the row can't be read.
    pub row: Option<KeyRow>,
}

/// Revokes a key of the store or of the key file. To revoke a key that only the key file has, adds
/// a revoked row with the digest of the key to the store.
/// `declared_keys` returns the keys of the key file, and is called only if the store has no key
/// with this id.
///
/// # Errors
/// Returns a fault if no key has this id, if the key file can't be read, or if the store fails.
pub fn revoke_key(
    store: &mut Store,
    author: &ChangeAuthor,
    id: &str,
    declared_keys: impl FnOnce() -> Result<Arc<Vec<DeclaredKey>>, ManagementFault>,
) -> Result<RevokedKey, ManagementFault> {
    let now = store.now().unix_now;
    let revoked = |row: Option<KeyRow>| {
        let revoked_at = row.as_ref().and_then(|row| row.revoked_at).unwrap_or(now);
        RevokedKey { revoked_at, row }
    };
    match store.expire_or_revoke_key(author, id, None, Some(now)) {
        Err(StoreError::Conflict(_)) => {}
        done => {
            done?;
            return Ok(revoked(store.find_key(id)?));
        }
    }
    let declared_keys = declared_keys()?;
    let Some(declared) = declared_keys.iter().find(|declared| declared.key.id == id) else {
        return Err(unknown_id_fault(store, &declared_keys, id)?);
    };
    match store.find_key_by_digest(&declared.key.digest)? {
        // The store has the same key under another id.
        Some(stored) => {
            store.expire_or_revoke_key(author, &stored.id, None, Some(now))?;
        }
        None => {
            let declared = KeyRow { revoked_at: None, ..declared.key.clone() };
            store.revoke_declared_key(author, &declared, now)?;
        }
    }
    Ok(revoked(store.find_key_by_digest(&declared.key.digest)?))
}

/// The fault of an `id` that no key has, neither of the store nor of `declared_keys`.
///
/// # Errors
/// If the store fails.
pub(super) fn unknown_id_fault(
    store: &mut Store,
    declared_keys: &[DeclaredKey],
    id: &str,
) -> Result<ManagementFault, StoreError> {
    let text = match store.find_key_by_digest(&sha256(id.as_bytes()))? {
        Some(stored) => describe_key_in_place_of_id(&stored.id),
        None => {
            // Only a text that may be a key is compared with the ids of all keys.
            let rows = may_be_sent_key(id).then(|| store.ring_rows()).transpose()?.flatten();
            let stored = rows.map(|rows| rows.keys).unwrap_or_default();
            describe_unknown_id(id, declared_keys, stored.iter().map(|key| key.id.as_str()))
        }
    };
    Ok(ManagementFault::NotFound(text))
}

/// Says that no key has this id: none of `declared_keys`, and none of `stored_ids`. If the operator
/// gave the text of a declared key in place of its id, names the id. The result leaves out an `id`
/// that looks like the text of a key, unless it is almost the id of a key.
pub fn describe_unknown_id<'k>(
    id: &str,
    declared_keys: &'k [DeclaredKey],
    stored_ids: impl Iterator<Item = &'k str>,
) -> String {
    let digest = sha256(id.as_bytes());
    if let Some(declared) = declared_keys.iter().find(|declared| declared.key.digest == digest) {
        return describe_key_in_place_of_id(&declared.key.id);
    }
    let list = "`riskgate keys list` shows the ids";
    if !may_be_sent_key(id) {
        let found = quote_sent_name(id);
        return format!("expected the id of a key, but found {found}, which no key has; {list}");
    }
    let known = declared_keys.iter().map(|declared| declared.key.id.as_str()).chain(stored_ids);
    match find_mistyped_name(id, known) {
        Some(meant) => format!(
            "expected the id of a key, but found {}, which no key has; write {meant}",
            quote_excerpt(id)
        ),
        None => format!(
            "expected the id of a key such as key_0123456789abcdef, but found {}, and no key has \
             it; {list}",
            quote_sent_name(id)
        ),
    }
}

fn describe_key_in_place_of_id(id: &str) -> String {
    format!("expected the id of a key, but found the key itself; its id is {id}")
}

/// Quotes a text in place of an id or a name that riskgate does not know. Does not quote what may
/// be a key or an e-mail address.
pub fn quote_sent_name(text: &str) -> String {
    match first_mark_of_address(text).is_none() && may_be_sent_key(text) {
        true => "what may be a key".to_owned(),
        false => quote_excerpt(text),
    }
}

/// The keys of a file that `keys import` is to add to the store.
pub struct ImportedKeys {
    file: PathBuf,
    keys: Vec<DeclaredKey>,
}

impl ImportedKeys {
    /// Reads the file, and checks the form, the plans and the labels of its keys, without a store.
    ///
    /// # Errors
    /// Returns every fault of the file that is found.
    pub fn read(config: &ReloadableConfig, file: &Path) -> Result<ImportedKeys, ManagementFault> {
        let keys = read_keys_of_file(file)?;
        check_imported_keys(file, &keys, |DeclaredKey { key, plan }| {
            let mut checks = vec![check_plan(config, plan.as_deref())];
            checks.push(check_label(key.label.as_ref()));
            checks.extend(key.origins.iter().map(|origin| check_origin_has_no_key(origin)));
            checks
        })?;
        Ok(ImportedKeys { file: file.to_owned(), keys })
    }

    /// Checks the names of the accounts for a store that has no account yet.
    ///
    /// # Errors
    /// Returns every name that no new account may have, or the fault of the key file of the config.
    pub fn check_names_of_new_accounts(
        &self,
        config: &ReloadableConfig,
    ) -> Result<(), ManagementFault> {
        let check_name = |DeclaredKey { key, .. }: &DeclaredKey| {
            vec![check_name_if_undeclared(config, &key.account)]
        };
        check_imported_keys(&self.file, &self.keys, check_name)
    }
}

/// Checks each key by `check`, and returns all faults together.
fn check_imported_keys(
    file: &Path,
    keys: &[DeclaredKey],
    mut check: impl FnMut(&DeclaredKey) -> Vec<Result<(), ManagementFault>>,
) -> Result<(), ManagementFault> {
    let mut faults = Vec::new();
    for key in keys {
        let found = check(key).into_iter().filter_map(Result::err);
        faults
            .extend(found.map(|fault| format!("{}: keys.{}.{fault}", file.display(), key.key.id)));
    }
    if faults.is_empty() { Ok(()) } else { Err(ManagementFault::File(faults)) }
}

/// Imports the keys of a key file, all or none, and returns their ids.
///
/// # Errors
/// Returns a fault if the name of a new account is not allowed, if the key file of the config is
/// faulty, or if the store fails or refuses a key. The store refuses a key that exists already, and
/// a key whose account has another plan than the file names.
pub fn import_keys(
    store: &mut Store,
    config: &ReloadableConfig,
    author: &ChangeAuthor,
    imported: ImportedKeys,
) -> Result<Vec<String>, ManagementFault> {
    let ImportedKeys { file, keys } = imported;
    let check_name = |DeclaredKey { key, .. }: &DeclaredKey| {
        vec![check_name_if_new(store, config, &key.account)]
    };
    check_imported_keys(&file, &keys, check_name)?;
    let declared = read_declared_keys(config)?;
    let accounts_of_key_file = collect_accounts(&[], &declared);
    let now = store.now().unix_now;
    let rows: Vec<(KeyRow, Option<NewKeyPlan>)> = keys
        .into_iter()
        .map(|DeclaredKey { key, plan }| {
            let plan = plan.map(|plan| new_key_plan(plan, &key.account, &accounts_of_key_file));
            let created_at = if key.created_at == 0 { now } else { key.created_at };
            (KeyRow { created_at, ..key }, plan)
        })
        .collect();
    store.add_keys(author, &rows, None)?;
    Ok(rows.into_iter().map(|(key, _)| key.id).collect())
}

/// The plan that a new key names, with the plan that the account has by the key file of the config.
/// `of_key_file` has the accounts of that file.
fn new_key_plan(
    plan: String,
    account: &str,
    of_key_file: &BTreeMap<&str, AccountSources<'_>>,
) -> NewKeyPlan {
    let by_key_file = of_key_file.get(account).and_then(AccountSources::plan_by_key_file);
    NewKeyPlan { plan, by_key_file: by_key_file.map(str::to_owned) }
}

/// Reads the keys of the config's key file. Returns no keys if the config names no key file.
///
/// # Errors
/// Returns the faults of the file that are found.
pub fn read_declared_keys(config: &ReloadableConfig) -> Result<Vec<DeclaredKey>, ManagementFault> {
    config.key_file.as_deref().map_or(Ok(Vec::new()), read_keys_of_file)
}

fn read_keys_of_file(path: &Path) -> Result<Vec<DeclaredKey>, ManagementFault> {
    read_key_file(path, &Config::env_var)
        .map_err(|faults| ManagementFault::File(faults.iter().map(ToString::to_string).collect()))
}

/// Checks the form of the name of an account.
///
/// # Errors
/// Returns a fault of the value `field` if the name has another form.
pub fn check_account_name(field: &'static str, name: &str) -> Result<(), ManagementFault> {
    match is_valid_id_or_account(name) {
        true => Ok(()),
        false => Err(ManagementFault::invalid(field, ID_OR_ACCOUNT_FORMAT, format!("{name:?}"))),
    }
}

/// Checks the name of an account that may be new. A new account must not have a name that is an
/// [`UnfitAccountName`].
///
/// # Errors
/// For such a name, returns a fault if the account is new, or if the store or the key file fails.
pub(super) fn check_name_if_new(
    store: &mut Store,
    config: &ReloadableConfig,
    name: &str,
) -> Result<(), ManagementFault> {
    match check_name_if_undeclared(config, name) {
        Err(ManagementFault::Invalid { .. }) if store.find_account(name)?.is_some() => Ok(()),
        checked => checked,
    }
}

/// Checks the name of an account that is new unless the key file declares the account: the store
/// has no account. Else like `check_name_if_new`.
///
/// # Errors
/// Returns a fault of the name, or that of the key file.
pub fn check_name_if_undeclared(
    config: &ReloadableConfig,
    name: &str,
) -> Result<(), ManagementFault> {
    let is_declared = || {
        read_declared_keys(config)
            .map(|keys| keys.iter().any(|declared| declared.key.account == name))
    };
    match check_new_account_name("account", name) {
        Err(_) if is_declared()? => Ok(()),
        checked => checked,
    }
}

/// Checks the name of a new account.
///
/// # Errors
/// Returns a fault of the value `field`, without the name if that may be an address or a key.
pub fn check_new_account_name(field: &'static str, name: &str) -> Result<(), ManagementFault> {
    check_account_name(field, name)?;
    let advice = "logs and the audit show names: write a name or number of your own, such as acme";
    let (expected, found) = match UnfitAccountName::find(name) {
        None => return Ok(()),
        Some(UnfitAccountName::BeginsWithBrace) => {
            ("the name of a new account not to begin with }", format!("{name:?}"))
        }
        Some(UnfitAccountName::HasAt) => {
            ("the name of a new account without @", format!("one with @; {advice}"))
        }
        Some(UnfitAccountName::HasKey) => ("the name of a new account", format!("a key; {advice}")),
    };
    Err(ManagementFault::invalid(field, expected, found))
}

/// Checks that a text for people has no key.
///
/// # Errors
/// Returns a fault of the value `field` if the text has a key that riskgate generated.
pub(super) fn check_has_no_key(field: &'static str, text: &str) -> Result<(), ManagementFault> {
    match has_generated_key(text) {
        true => {
            let found = "one; write the id of the key instead";
            Err(ManagementFault::invalid(field, "a text without a key", found))
        }
        false => Ok(()),
    }
}

/// Checks that the config has this plan, if a plan is given.
///
/// # Errors
/// Returns a fault if the config does not have the plan.
pub fn check_plan(config: &ReloadableConfig, plan: Option<&str>) -> Result<(), ManagementFault> {
    match plan {
        Some(plan) if !config.plans.contains_key(plan) => {
            let known: Vec<&str> = config.plans.keys().map(String::as_str).collect();
            let expected = format!("one of {}", known.join(", "));
            let meant = find_nearest_name(plan, known.into_iter()).map(str::to_owned);
            Err(ManagementFault::invalid("plan", expected, format!("{plan:?}")).with_meant(meant))
        }
        _ => Ok(()),
    }
}

/// Checks the length of a label, and that the label neither controls a terminal that prints
/// it nor misleads its reader.
fn check_label(label: Option<&String>) -> Result<(), ManagementFault> {
    let is_valid = |label: &&String| {
        label.chars().count() <= MAX_LABEL_CHARS && !label.chars().any(is_control_or_invisible)
    };
    match label.filter(|label| !is_valid(label)) {
        None => label.map_or(Ok(()), |label| check_has_no_key("label", label)),
        Some(label) => {
            let expected = format!("up to {MAX_LABEL_CHARS} visible characters on one line");
            Err(ManagementFault::invalid("label", expected, format!("{label:?}")))
        }
    }
}

/// Checks that an origin has no key: lists and the audit show origins.
fn check_origin_has_no_key(origin: &str) -> Result<(), ManagementFault> {
    match has_generated_key(origin) {
        true => {
            let found = "one; write the origin of your pages, such as https://app.example.com";
            Err(ManagementFault::invalid("origin", "an origin without a key", found))
        }
        false => Ok(()),
    }
}

fn check_label_and_origins(new: &NewKey) -> Result<(), ManagementFault> {
    check_label(new.label.as_ref())?;
    if new.origins.len() > MAX_ORIGINS {
        let expected = format!("up to {MAX_ORIGINS} origins");
        let found = new.origins.len().to_string();
        return Err(ManagementFault::invalid("origin", expected, found));
    }
    for origin in &new.origins {
        check_origin_has_no_key(origin)?;
        OriginPattern::parse(origin).map_err(|error| {
            // A word such as `null` is hardly the name of a host.
            let is_host = |it: &str| it.contains('.') || it.contains("://localhost");
            let is_valid = |it: &str| is_host(it) && OriginPattern::parse(it).is_ok();
            let meant = guess_text(origin, TextKind::Origin, is_valid);
            ManagementFault::of_parse_error("origin", &error, origin).with_meant(meant)
        })?;
    }
    Ok(())
}

/// Finds the key that an earlier request with the same `Idempotency-Key` added, and derives the
/// text of that key. `None` if the store remembers no earlier request, and for a request without
/// `Idempotency-Key`.
pub(super) fn find_repeated_key(
    store: &mut Store,
    config: &ReloadableConfig,
    request: Option<&RepeatableRequest<'_>>,
) -> Result<Option<(KeyRow, Token)>, ManagementFault> {
    let Some(request) = request else { return Ok(None) };
    let Some(record) = request.find_record(store)? else { return Ok(None) };
    let token = request.derive_token(&config.key_prefix, &record.salt)?;
    let row = store.find_key(&record.key_id)?.filter(|row| row.digest == token.sha256());
    row.map(|row| Some((row, token))).ok_or_else(|| {
        ManagementFault::Conflict(
            "Idempotency-Key: expected the admin token of the first request, but found another"
                .to_owned(),
        )
    })
}

/// Creates the text of a new key. Without a `request` that can be repeated, the text is random.
/// With such a request, the text is derived, and what the store has to remember is returned as
/// well.
pub(super) fn create_token(
    config: &ReloadableConfig,
    key_id: &str,
    request: Option<&RepeatableRequest<'_>>,
) -> Result<(Token, Option<RepeatableRequestRow>), ManagementFault> {
    match request {
        Some(request) => {
            let record = request.create_record(key_id, &config.key_prefix)?;
            Ok((request.derive_token(&config.key_prefix, &record.salt)?, Some(record)))
        }
        None => match Token::generate(&config.key_prefix) {
            Ok(token) => Ok((token, None)),
            Err(error) => Err(ManagementFault::NoRandomBits(error.to_string())),
        },
    }
}

/// Draws the id of a new key: 64 random bits, short enough to say aloud, long enough to be unique.
pub(super) fn draw_key_id() -> Result<String, ManagementFault> {
    let mut bytes = [0u8; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| ManagementFault::NoRandomBits(error.to_string()))?;
    Ok(format!("key_{:016x}", u64::from_be_bytes(bytes)))
}
