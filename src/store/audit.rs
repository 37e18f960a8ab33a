//! Who made a change, and the records of changes that a store keeps.
//!
//! Values only. The store writes a record in the same step as the change that it is about, so there
//! is no change without its record. No record contains the text or the digest of a key.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::rows::{AccountRow, KeyRow};
use crate::model::month::{Month, format_rfc3339};
use crate::model::monthly_limit::MonthlyLimit;

/// For how long a store keeps its records, in seconds.
pub const AUDIT_RETENTION_SECONDS: i64 = 400 * 86_400;
/// A source with more bytes of entries than this is remembered by its digest alone.
const MAX_SOURCE_STATE_BYTES: usize = 256 << 10;
/// The most changed entries of a source that one record lists.
const MAX_LISTED_ENTRIES: usize = 200;

/// The surface through which a change was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    const ALL: [ChangeSurface; 5] = [
        ChangeSurface::Cli,
        ChangeSurface::Api,
        ChangeSurface::Page,
        ChangeSurface::File,
        ChangeSurface::Riskgate,
    ];

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

    pub(super) fn parse(text: &str) -> Option<ChangeSurface> {
        ChangeSurface::ALL.into_iter().find(|surface| surface.as_str() == text)
    }
}

/// Who made a change, and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeAuthor {
    /// The name of a user of the machine, or of an admin token.
    pub actor: String,
    /// The surface that the actor used.
    pub surface: ChangeSurface,
    /// A machine, the address of a client, or the path of a file.
    pub place: String,
}

impl ChangeAuthor {
    /// The author of what riskgate does without an operator, on the machine `place`.
    pub fn riskgate(place: &str) -> ChangeAuthor {
        ChangeAuthor {
            actor: "riskgate".to_owned(),
            surface: ChangeSurface::Riskgate,
            place: place.to_owned(),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "actor": self.actor, "via": self.surface.as_str(), "from": self.place })
    }

    /// Parses what [`ChangeAuthor::to_json`] returned.
    pub(super) fn from_json(value: &Value) -> Option<ChangeAuthor> {
        Some(ChangeAuthor {
            actor: value["actor"].as_str()?.to_owned(),
            surface: ChangeSurface::parse(value["via"].as_str()?)?,
            place: value["from"].as_str()?.to_owned(),
        })
    }
}

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// A key was created.
    KeyCreate,
    /// Keys were imported from a file.
    KeyImport,
    /// A key was replaced by another, and ends.
    KeyRotate,
    /// A rotation was undone, because nobody saw the new key.
    KeyRotationUndo,
    /// A key was revoked, or its expiry was lowered.
    KeyRevoke,
    /// Keys and accounts that the store had lost were written back.
    KeyRestore,
    /// The plan or the limit of an account was set.
    AccountSet,
    /// A domain was allowed or denied.
    OverrideSet,
    /// The override of a domain was removed.
    OverrideClear,
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
    /// The store was returned to an earlier month.
    StoreRepairMonth,
}

impl ChangeKind {
    /// The operation in records.
    pub fn as_str(self) -> &'static str {
        match self {
            ChangeKind::KeyCreate => "key.create",
            ChangeKind::KeyImport => "key.import",
            ChangeKind::KeyRotate => "key.rotate",
            ChangeKind::KeyRotationUndo => "key.rotation_undo",
            ChangeKind::KeyRevoke => "key.revoke",
            ChangeKind::KeyRestore => "key.restore",
            ChangeKind::AccountSet => "account.set",
            ChangeKind::OverrideSet => "override.set",
            ChangeKind::OverrideClear => "override.clear",
            ChangeKind::OverrideFileChange => "override_file.change",
            ChangeKind::KeyFileChange => "key_file.change",
            ChangeKind::ConfigChange => "config.change",
            ChangeKind::TokenChange => "admin_token.change",
            ChangeKind::TableChange => "table.change",
            ChangeKind::StoreInit => "store.init",
            ChangeKind::StoreFill => "store.fill",
            ChangeKind::StoreRepairMonth => "store.repair_month",
        }
    }
}

/// A change to record, whose state before and after the caller knows.
#[derive(Clone, Debug)]
pub struct Change {
    /// What the change does.
    pub kind: ChangeKind,
    /// The key, account, domain or file that it is about.
    pub target: String,
    /// The state before; null if there was none.
    pub before: Value,
    /// The state after; null if there is none.
    pub after: Value,
}

/// The record of a change.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditRecord {
    /// Identifies the record in its store. Later records have higher ids, see [`AuditRecord::order`].
    pub id: String,
    /// Unix seconds.
    pub at: i64,
    /// Who made the change.
    pub author: ChangeAuthor,
    /// What the change does, as [`ChangeKind::as_str`] names it.
    pub operation: String,
    /// The key, account, domain or file that it is about.
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
            "via": self.author.surface.as_str(), "from": self.author.place,
            "operation": self.operation, "target": self.target,
            "before": self.before, "after": self.after,
        })
    }

    /// Parses an id into numbers that sort as the records do. `None` if the text is no id.
    pub fn order(id: &str) -> Option<(u64, u64)> {
        match id.split_once('-') {
            Some((time, number)) => Some((time.parse().ok()?, number.parse().ok()?)),
            None => Some((id.parse().ok()?, 0)),
        }
    }
}

/// The latest state of a file or another source, as names and values: settings of the config, rows
/// of overrides, or keys of the key file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// Names the source: its kind, path and machine.
    pub subject: String,
    /// The values by name. A secret must not be among them.
    pub entries: BTreeMap<String, String>,
}

impl SourceState {
    /// The entries as the store keeps them. Many entries become their number and their digest.
    pub(super) fn stored_text(&self) -> String {
        let text = json!(self.entries).to_string();
        if text.len() <= MAX_SOURCE_STATE_BYTES {
            return text;
        }
        use sha2::Digest as _;
        let digest = hex::encode(sha2::Sha256::digest(text.as_bytes()));
        json!({ "number of entries": self.entries.len().to_string(), "sha256": digest }).to_string()
    }
}

/// Returns the entries that differ, with the values before and after. The inputs are texts of
/// [`SourceState::stored_text`].
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
        if old.len().max(new.len()) >= MAX_LISTED_ENTRIES {
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

/// A key in a record: everything but its digest.
pub(super) fn key_to_json(key: &KeyRow) -> Value {
    json!({
        "account": key.account, "label": key.label, "origins": key.origins,
        "require_origin": key.require_origin, "created_at": format_rfc3339(key.created_at),
        "expires_at": key.expires_at.map(format_rfc3339),
        "revoked_at": key.revoked_at.map(format_rfc3339),
    })
}

/// An account in a record.
pub(super) fn account_to_json(account: &AccountRow) -> Value {
    let limit = match account.own_limit {
        Some(MonthlyLimit::Calls(calls)) => json!(calls),
        Some(MonthlyLimit::Unlimited) => json!("unlimited"),
        None => Value::Null,
    };
    json!({ "plan": account.plan, "own_limit": limit })
}

/// The change that adds these keys: the creation of one key, or an import of several. `None` without
/// a key.
pub(super) fn change_of_added_keys(keys: &[(KeyRow, Option<String>)]) -> Option<Change> {
    let (kind, target, after) = match keys {
        [] => return None,
        [(key, _)] => (ChangeKind::KeyCreate, key.id.clone(), key_to_json(key)),
        _ => {
            let ids = keys.iter().take(MAX_LISTED_ENTRIES).map(|(key, _)| key.id.as_str());
            let ids = ids.collect::<Vec<_>>();
            let count = keys.len();
            (ChangeKind::KeyImport, format!("{count} keys"), json!({ "keys": count, "ids": ids }))
        }
    };
    Some(Change { kind, target, before: Value::Null, after })
}

/// The change that writes lost rows back.
pub(super) fn change_of_restored_rows(count: usize) -> Change {
    let (kind, target) = (ChangeKind::KeyRestore, format!("{count} keys and accounts"));
    Change { kind, target, before: Value::Null, after: json!({ "rows": count }) }
}

/// The change that returns the store to an earlier month.
pub(super) fn change_of_repaired_month(before: Option<Month>, after: Month) -> Change {
    Change {
        kind: ChangeKind::StoreRepairMonth,
        target: "the store".to_owned(),
        before: json!({ "month": before.map(|month| month.to_string()) }),
        after: json!({ "month": after.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(entries: &[(&str, &str)]) -> SourceState {
        let entries = entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        SourceState { subject: "config".to_owned(), entries: entries.collect() }
    }

    #[test]
    fn a_record_of_a_source_lists_what_differs() {
        let before = state(&[("a", "1"), ("b", "2"), ("c", "3")]).stored_text();
        let after = state(&[("a", "1"), ("b", "4"), ("d", "5")]).stored_text();
        let (old, new) = diff_source_states(&before, &after);
        assert_eq!(old, json!({ "b": "2", "c": "3" }));
        assert_eq!(new, json!({ "b": "4", "d": "5" }));
    }

    #[test]
    fn a_large_source_is_remembered_by_its_digest() {
        let large = |last: &str| {
            let mut large = state(&[]);
            large.entries.extend((0..20_000).map(|n| (format!("{n}.example"), "deny".to_owned())));
            large.entries.insert("last".to_owned(), last.to_owned());
            large.stored_text()
        };
        let (before, after) = (large("a"), large("b"));
        assert!(before.len() < 200);
        let (old, new) = diff_source_states(&before, &after);
        assert_ne!(old["sha256"], new["sha256"]);
        assert_eq!(old.get("number of entries"), None, "the number is the same");
    }

    #[test]
    fn ids_sort_as_their_records() {
        let ids = ["9", "10", "1700000000000-0", "1700000000000-2", "1700000000000-10"];
        assert!(ids.map(AuditRecord::order).is_sorted());
        assert_eq!(AuditRecord::order("a-1"), None);
    }
}
