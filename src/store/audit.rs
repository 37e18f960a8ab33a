//! The audit: who made which change, and the records of changes that a store keeps.
//!
//! No record that is shown contains the text or the digest of a key. `operations` says how a record
//! is written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::new_key_plan::NewKeyPlan;
use super::rows::{AccountRow, KeyRow};
use crate::model::month::{Month, format_known_time, format_rfc3339};
use crate::model::monthly_limit::MonthlyLimit;
use crate::support::machine_name::machine_name;

/// How old a record becomes, in seconds, before a store may delete it.
pub const AUDIT_RETENTION_SECONDS: i64 = 400 * 86_400;
/// If the entries of a source have more bytes than this, the store remembers their digest instead.
const MAX_SOURCE_STATE_BYTES: usize = 256 << 10;
/// The most changed entries of a source that a record lists in the state before, and in the state
/// after.
const MAX_LISTED_SOURCE_ENTRIES: usize = 200;
/// The most ids, the most plans and the most states that the record of an import lists.
const MAX_LISTED_KEYS: usize = 2_000;

/// The surface through which a change was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeSurface {
    /// The command line.
    Cli,
    /// The admin API.
    Api,
    /// The operator's page.
    Page,
    /// A file that riskgate reads, such as the config.
    File,
    /// riskgate itself, without an operator.
    Riskgate,
}

impl ChangeSurface {
    /// The surface in records.
    pub fn as_str(self) -> &'static str {
        match self {
            ChangeSurface::Cli => "cli",
            ChangeSurface::Api => "api",
            ChangeSurface::Page => "page",
            ChangeSurface::File => "file",
            ChangeSurface::Riskgate => "riskgate",
        }
    }
}

/// Who made a change, and from where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeAuthor {
    /// The name of a user of the machine or of an admin token, the owner of a file, such as `owner
    /// uid 1000`, or `riskgate`.
    pub actor: String,
    /// The surface that the actor used.
    pub via: ChangeSurface,
    /// The machine, the address of the client, or the path and machine of the file that the change
    /// came from.
    pub from: String,
}

impl ChangeAuthor {
    /// The author of what riskgate does without an operator, on the machine `from`.
    pub fn riskgate(from: &str) -> ChangeAuthor {
        ChangeAuthor {
            actor: "riskgate".to_owned(),
            via: ChangeSurface::Riskgate,
            from: from.to_owned(),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!(self)
    }

    /// Parses what [`ChangeAuthor::to_json`] returned.
    pub(super) fn from_json(value: &Value) -> Option<ChangeAuthor> {
        ChangeAuthor::deserialize(value).ok()
    }
}

/// What a change does: the operation that a record names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditOperation {
    /// A key was created.
    KeyCreate,
    /// Several keys were added at once.
    KeyImport,
    /// A key was replaced by a new key, and the old key got an expiry, unless it expired earlier.
    KeyRotate,
    /// A rotation was undone, because nobody saw the new key.
    KeyRotationUndo,
    /// A key was revoked, or given an earlier expiry.
    KeyRevoke,
    /// Keys and accounts that the store had lost were written back.
    KeyRestore,
    /// The plan or the limit of an account was set.
    AccountSet,
    /// A domain was allowed or denied.
    OverrideSet,
    /// The override of a domain was removed.
    OverrideClear,
    /// The rows of a file of overrides were taken over into the store.
    OverrideTakeOver,
    /// The file of overrides changed.
    OverrideFileChange,
    /// The key file changed.
    KeyFileChange,
    /// The config changed.
    ConfigChange,
    /// An admin token was added, changed or removed.
    TokenChange,
    /// The lists of the table changed.
    TableChange,
    /// An empty store was initialized.
    StoreInit,
    /// An empty store was filled from another one.
    StoreFill,
    /// The store was returned to an earlier month, or only totals of later months were deleted.
    StoreRepairMonth,
    /// The sign-ups of an inbox were deleted.
    SignUpsDelete,
}

impl AuditOperation {
    /// All operations.
    pub const ALL: [AuditOperation; 19] = [
        AuditOperation::KeyCreate,
        AuditOperation::KeyImport,
        AuditOperation::KeyRotate,
        AuditOperation::KeyRotationUndo,
        AuditOperation::KeyRevoke,
        AuditOperation::KeyRestore,
        AuditOperation::AccountSet,
        AuditOperation::OverrideSet,
        AuditOperation::OverrideClear,
        AuditOperation::OverrideTakeOver,
        AuditOperation::OverrideFileChange,
        AuditOperation::KeyFileChange,
        AuditOperation::ConfigChange,
        AuditOperation::TokenChange,
        AuditOperation::TableChange,
        AuditOperation::StoreInit,
        AuditOperation::StoreFill,
        AuditOperation::StoreRepairMonth,
        AuditOperation::SignUpsDelete,
    ];

    /// The operation's name in records.
    pub fn as_str(self) -> &'static str {
        match self {
            AuditOperation::KeyCreate => "key.create",
            AuditOperation::KeyImport => "key.import",
            AuditOperation::KeyRotate => "key.rotate",
            AuditOperation::KeyRotationUndo => "key.rotation_undo",
            AuditOperation::KeyRevoke => "key.revoke",
            AuditOperation::KeyRestore => "key.restore",
            AuditOperation::AccountSet => "account.set",
            AuditOperation::OverrideSet => "override.set",
            AuditOperation::OverrideClear => "override.clear",
            AuditOperation::OverrideTakeOver => "override.take_over",
            AuditOperation::OverrideFileChange => "override_file.change",
            AuditOperation::KeyFileChange => "key_file.change",
            AuditOperation::ConfigChange => "config.change",
            AuditOperation::TokenChange => "admin_token.change",
            AuditOperation::TableChange => "table.change",
            AuditOperation::StoreInit => "store.init",
            AuditOperation::StoreFill => "store.fill",
            AuditOperation::StoreRepairMonth => "store.repair_month",
            AuditOperation::SignUpsDelete => "sign_ups.delete",
        }
    }
}

/// A change to record. The caller knows the states before and after it.
#[derive(Clone, Debug)]
pub struct Change {
    /// What the change does.
    pub operation: AuditOperation,
    /// The key, account, domain or file that changed.
    pub target: String,
    /// The state before; null if there was none.
    pub before: Value,
    /// The state after; null if there is none.
    pub after: Value,
}

/// The record of a change.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditRecord {
    /// Identifies the record in its store. Later records have higher ids:
    /// see [`AuditRecord::parse_id`].
    pub id: String,
    /// Unix seconds.
    pub at: i64,
    /// Who made the change.
    pub author: ChangeAuthor,
    /// The name of an [`AuditOperation`]. Kept as text, so that a record of a newer riskgate can be
    /// read.
    pub operation: String,
    /// The key, account, domain or file that changed.
    pub target: String,
    /// The state before; null if there was none.
    pub before: Value,
    /// The state after; null if there is none.
    pub after: Value,
}

impl AuditRecord {
    /// Renders the record for `riskgate audit --json`, the admin API and `audit.path`.
    pub fn to_json(&self) -> Value {
        json!({
            "id": self.id, "at": format_rfc3339(self.at), "actor": self.author.actor,
            "via": self.author.via.as_str(), "from": self.author.from,
            "operation": self.operation, "target": self.target,
            "before": self.before, "after": self.after,
        })
    }

    /// Parses an id into numbers that sort as the records do. `None` if the text is no id.
    pub fn parse_id(id: &str) -> Option<(u64, u64)> {
        match id.split_once('-') {
            Some((time, number)) => Some((time.parse().ok()?, number.parse().ok()?)),
            None => Some((id.parse().ok()?, 0)),
        }
    }
}

/// The latest state of a source, as names and values. Sources are what an operator changes outside
/// the store: the settings of the config, the admin tokens, the rows of the file of overrides, the
/// keys of the key file, and the lists of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// Names the source by its kind, path and machine. This text is the target of a record of the
    /// source's change.
    pub subject: String,
    /// Names the source without its machine. If the store has no state of a source on this machine,
    /// the new state is compared with the latest one on any machine: containers get a new machine
    /// name at each start.
    pub shared_subject: String,
    /// The values by name. A secret must not be among them.
    pub entries: BTreeMap<String, String>,
}

impl SourceState {
    /// The state of a source on this machine. `shared_subject` names the source without its
    /// machine.
    pub fn on_this_machine(
        shared_subject: String,
        entries: BTreeMap<String, String>,
    ) -> SourceState {
        let subject = format!("{shared_subject} on {}", machine_name());
        SourceState { subject, shared_subject, entries }
    }

    /// Renders the entries for the store. If they have more than 256 KiB, renders their number and
    /// their digest instead.
    pub fn to_stored_text(&self) -> String {
        let text = json!(self.entries).to_string();
        if text.len() <= MAX_SOURCE_STATE_BYTES {
            return text;
        }
        use sha2::Digest as _;
        let digest = hex::encode(sha2::Sha256::digest(text.as_bytes()));
        json!({ "number of entries": self.entries.len().to_string(), "sha256": digest }).to_string()
    }

    /// The names of the entries that differ from a text of [`SourceState::to_stored_text`]. If more
    /// than 200 differ, one name stands for the others.
    pub fn list_changed_entries(&self, before: &str) -> Vec<String> {
        let (before, after) = diff_source_states(before, &self.to_stored_text());
        let objects = [&before, &after].into_iter().filter_map(Value::as_object);
        objects.flat_map(|entries| entries.keys().cloned()).collect()
    }
}

/// Returns the entries that differ, with the values before and after: up to
/// [`MAX_LISTED_SOURCE_ENTRIES`] in each state. Counts the others. The inputs are texts of
/// [`SourceState::to_stored_text`].
pub(super) fn diff_source_states(before: &str, after: &str) -> (Value, Value) {
    let parse = |text| serde_json::from_str::<BTreeMap<String, String>>(text).unwrap_or_default();
    let (before, after) = (parse(before), parse(after));
    let (mut old, mut new) = (Map::new(), Map::new());
    let mut unlisted = 0;
    for name in before.keys().chain(after.keys().filter(|name| !before.contains_key(*name))) {
        let (was, is) = (before.get(name), after.get(name));
        if was == is {
            continue;
        }
        if old.len().max(new.len()) >= MAX_LISTED_SOURCE_ENTRIES {
            unlisted += 1;
            continue;
        }
        old.extend(was.map(|was| (name.clone(), json!(was))));
        new.extend(is.map(|is| (name.clone(), json!(is))));
    }
    if unlisted > 0 {
        new.insert("further changed entries".to_owned(), json!(unlisted));
    }
    (Value::Object(old), Value::Object(new))
}

/// Renders a key for a record, without its digest.
pub(super) fn key_to_json(key: &KeyRow) -> Value {
    json!({
        "account": key.account, "label": key.label, "origins": key.origins,
        "require_origin": key.require_origin, "created_at": format_known_time(key.created_at),
        "expires_at": key.expires_at.map(format_rfc3339),
        "revoked_at": key.revoked_at.map(format_rfc3339),
    })
}

/// Renders an account for a record.
pub(super) fn account_to_json(account: &AccountRow) -> Value {
    let limit = match account.own_limit {
        Some(MonthlyLimit::Calls(calls)) => json!(calls),
        Some(MonthlyLimit::Unlimited) => json!("unlimited"),
        None => Value::Null,
    };
    json!({ "plan": account.plan, "own_limit": limit })
}

/// The change that adds these keys: the creation of one key, or an import of several keys. `None`
/// if there is no key.
pub(super) fn change_of_added_keys(keys: &[(KeyRow, Option<NewKeyPlan>)]) -> Option<Change> {
    let plan_to_store = |plan: &Option<NewKeyPlan>| {
        plan.as_ref().and_then(NewKeyPlan::plan_to_store).map(str::to_owned)
    };
    let (operation, target, after) = match keys {
        [] => return None,
        [(key, plan)] => {
            let mut after = key_to_json(key);
            if let (Some(plan), Value::Object(entries)) = (plan_to_store(plan), &mut after) {
                entries.insert("plan".to_owned(), json!(plan));
            }
            (AuditOperation::KeyCreate, key.id.clone(), after)
        }
        _ => {
            let ids = keys.iter().take(MAX_LISTED_KEYS).map(|(key, _)| key.id.as_str());
            let ids = ids.collect::<Vec<_>>();
            let plans =
                keys.iter().filter_map(|(key, plan)| Some((&key.account, plan_to_store(plan)?)));
            let plans = plans.take(MAX_LISTED_KEYS).collect::<BTreeMap<_, _>>();
            let states = keys.iter().take(MAX_LISTED_KEYS);
            let states = states.map(|(key, _)| (key.id.as_str(), key_to_json(key)));
            let states = states.collect::<BTreeMap<_, _>>();
            let count = keys.len();
            (
                AuditOperation::KeyImport,
                format!("{count} keys"),
                json!({ "keys": count, "ids": ids, "plans": plans, "states": states }),
            )
        }
    };
    Some(Change { operation, target, before: Value::Null, after })
}

/// The change that revokes a key which only the key file has.
pub(super) fn change_of_revoked_declared_key(declared: &KeyRow, revoked: &KeyRow) -> Change {
    Change {
        operation: AuditOperation::KeyRevoke,
        target: declared.id.clone(),
        before: key_to_json(declared),
        after: key_to_json(revoked),
    }
}

/// The change that writes lost rows back.
pub(super) fn change_of_restored_rows(count: usize) -> Change {
    let (operation, target) = (AuditOperation::KeyRestore, format!("{count} keys and accounts"));
    Change { operation, target, before: Value::Null, after: json!({ "rows": count }) }
}

/// The change that returns the store to an earlier month, or only deletes totals of later months.
/// `None` if neither is necessary.
pub(super) fn change_of_repaired_month(
    before: Option<Month>,
    month: Month,
    deleted_totals: u64,
) -> Option<Change> {
    let after = before.map(|before| before.min(month));
    let text = |month: Option<Month>| month.map(|month| month.to_string());
    (after != before || deleted_totals > 0).then(|| Change {
        operation: AuditOperation::StoreRepairMonth,
        target: "the store".to_owned(),
        before: json!({ "month": text(before) }),
        after: json!({ "month": text(after), "deleted_totals": deleted_totals }),
    })
}

#[cfg(test)]
mod tests;
