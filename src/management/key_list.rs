//! Lists keys, without their texts.

use serde_json::{Value, json};

use crate::keys::{DeclaredKey, MergedKey, collect_accounts, merge_keys};
use crate::model::month::{format_known_time, format_rfc3339};
use crate::store::{AccountRow, KeyRow};

/// A key as lists show it. If a key is in the store and in the key file, the stricter settings of
/// both apply.
#[derive(Clone, Debug)]
pub struct KeyEntry {
    /// The public id.
    pub id: String,
    /// The account whose quota the key spends.
    pub account: String,
    /// The plan of the account.
    pub plan: String,
    /// The owner's name for the key.
    pub label: Option<String>,
    /// The origins that a restricted key allows.
    pub origins: Vec<String>,
    /// Whether only these origins may use the key.
    pub is_origin_restricted: bool,
    /// Whether requests without an origin are refused.
    pub require_origin: bool,
    /// Unix seconds; 0 if the key file does not say when the key was created.
    pub created_at: i64,
    /// Unix seconds; `None` if the key never expires.
    pub expires_at: Option<i64>,
    /// Unix seconds; `None` unless the key was revoked.
    pub revoked_at: Option<i64>,
    /// Whether the store has the key. riskgate rotates no other key.
    pub is_in_store: bool,
}

/// Whether a key is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// The key is neither expired nor revoked.
    Active,
    /// The key has expired, and was not revoked.
    Expired,
    /// The key was revoked.
    Revoked,
}

impl KeyState {
    /// Returns the state's name in lists.
    pub fn as_str(self) -> &'static str {
        match self {
            KeyState::Active => "active",
            KeyState::Expired => "expired",
            KeyState::Revoked => "revoked",
        }
    }

    /// Parses a state's name. `None` for any other text.
    pub fn parse(text: &str) -> Option<KeyState> {
        let all = [KeyState::Active, KeyState::Expired, KeyState::Revoked];
        all.into_iter().find(|state| state.as_str() == text)
    }
}

impl KeyEntry {
    /// Creates the entry of a key from its row in the store. `plan` is the plan of its account.
    pub fn from_row(row: &KeyRow, plan: &str) -> KeyEntry {
        KeyEntry {
            id: row.id.clone(),
            account: row.account.clone(),
            plan: plan.to_owned(),
            label: row.label.clone(),
            origins: row.origins.clone(),
            is_origin_restricted: !row.origins.is_empty(),
            require_origin: row.require_origin,
            created_at: row.created_at,
            expires_at: row.expires_at,
            revoked_at: row.revoked_at,
            is_in_store: true,
        }
    }

    /// Returns the state of the key at this time.
    pub fn state_at(&self, unix_now: i64) -> KeyState {
        match (self.revoked_at, self.expires_at) {
            (Some(_), _) => KeyState::Revoked,
            (None, Some(expires_at)) if expires_at <= unix_now => KeyState::Expired,
            _ => KeyState::Active,
        }
    }

    /// When the key was created; `None` if the key file does not say.
    pub fn created_at_text(&self) -> Option<String> {
        format_known_time(self.created_at)
    }

    /// Renders the entry for `riskgate keys list --json` and the admin API.
    pub fn to_json(&self, unix_now: i64) -> Value {
        json!({
            "id": self.id, "account": self.account, "plan": self.plan, "label": self.label,
            "origins": self.origins, "restricted": self.is_origin_restricted,
            "require_origin": self.require_origin, "created_at": self.created_at_text(),
            "expires_at": self.expires_at.map(format_rfc3339),
            "revoked_at": self.revoked_at.map(format_rfc3339),
            "state": self.state_at(unix_now).as_str(), "in_store": self.is_in_store,
        })
    }
}

/// Lists the keys of the store and of the key file: those of unknown age, then the oldest first.
pub fn list_keys(
    keys: &[KeyRow],
    accounts: &[AccountRow],
    declared: &[DeclaredKey],
) -> Vec<KeyEntry> {
    let accounts = collect_accounts(accounts, declared);
    let to_entry = |merged: &MergedKey<'_>| {
        let account = accounts.get(merged.row.account.as_str()).copied().unwrap_or_default();
        let mut entry = KeyEntry::from_row(&merged.row, account.plan());
        entry.is_origin_restricted = merged.is_origin_restricted;
        entry.is_in_store = merged.is_in_store;
        if merged.fault.is_none() {
            entry.origins = merged.origins.iter().map(ToString::to_string).collect();
        }
        entry
    };
    let merged = merge_keys(keys, declared);
    let mut sorted: Vec<&MergedKey<'_>> = merged.iter().collect();
    // Most rows are sorted by age already, so a stable sort is quick.
    sorted.sort_by(|a, b| a.row.compare_age(&b.row));
    sorted.into_iter().map(to_entry).collect()
}
