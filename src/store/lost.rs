//! Rows that a store had acknowledged and lost: in a failover, or because a backup was restored.
//!
//! Compares the rows that this node knows with those that the store holds now, and decides which
//! apply. A known key stays valid, and ends no later than known. Plans and limits apply as the
//! store holds them. A digest identifies a key, whatever its id in the store:
//!
//! - If the store has the same digest under another id, it is the same key. The key gets the id of
//!   the store, and the earlier end of both rows.
//! - If the store has another digest under the id of a lost key, the lost key stays valid under a
//!   new id. Each node derives the same new id from the old id and the digest. So nobody revokes
//!   another owner's key by mistake.
//!
//! This module reads no store.

use std::collections::{BTreeMap, HashSet};

use super::rows::{AccountRow, DamagedRows, KeyRow, RingChanges, RingRows};
use crate::model::month::format_rfc3339;
use crate::model::monthly_limit::MonthlyLimit;

/// The most losses of each kind that are listed; the rest are only counted.
const MAX_LISTED_LOSSES: usize = 5;

/// The rows that this node knows and that the store lost, or holds with other values.
#[derive(Debug, Default)]
pub struct LostRows {
    /// Keys by digest that the store does not hold, or holds with a later end or none.
    keys: BTreeMap<[u8; 32], LostKey>,
    /// Accounts that the store does not hold.
    accounts: BTreeMap<String, AccountRow>,
    /// Accounts whose plan or limit the store lost and holds with another value: the row that this
    /// node knew, and the store's row.
    accounts_with_lost_settings: BTreeMap<String, [AccountRow; 2]>,
}

/// A lost key, or a key whose end was lost.
#[derive(Clone, Debug)]
struct LostKey {
    /// The row that this node applies and writes back.
    row: KeyRow,
    /// Whether the store holds the key, so that only its end was lost.
    is_in_store: bool,
    /// The former id of the key, if another key has it now.
    previous_id: Option<String>,
}

impl LostRows {
    /// Compares the `known` rows with the `current` rows of the store. Adds what is missing to
    /// `current`, and remembers it as lost.
    ///
    /// `store_lost_data` is true if the store is known to have lost data. If it is false, a
    /// different plan or limit is an ordinary change, and a later expiry is an undone rotation. A
    /// missing row or revocation is a loss in either case, because no command removes one.
    pub fn merge_lost_rows(
        &mut self,
        known: &RingRows,
        current: &mut RingRows,
        store_lost_data: bool,
    ) {
        self.merge_lost_keys(known, current, store_lost_data);
        self.accounts.clear();
        let old = known.accounts.iter().map(|row| (row.name.as_str(), row));
        let mut old: BTreeMap<&str, &AccountRow> = old.collect();
        for row in &current.accounts {
            match old.remove(row.name.as_str()) {
                Some(before) if before != row && store_lost_data => {
                    let [before, row] = [before, row].map(Clone::clone);
                    self.accounts_with_lost_settings
                        .entry(row.name.clone())
                        .or_insert([before, row]);
                }
                // The account has been set since.
                Some(before) if before != row => {
                    drop(self.accounts_with_lost_settings.remove(&row.name))
                }
                _ => {}
            }
        }
        for (name, row) in old {
            if !current.damaged.accounts.contains(name) {
                self.accounts.insert(name.to_owned(), row.clone());
                current.accounts.push(row.clone());
            }
        }
    }

    fn merge_lost_keys(&mut self, known: &RingRows, current: &mut RingRows, store_lost_data: bool) {
        let lost_before = std::mem::take(&mut self.keys);
        let mut missing_keys: BTreeMap<[u8; 32], &KeyRow> =
            known.keys.iter().map(|row| (row.digest, row)).collect();
        for row in &mut current.keys {
            let Some(before) = missing_keys.remove(&row.digest) else { continue };
            let was_lost = store_lost_data || lost_before.contains_key(&row.digest);
            if row.apply_earlier_end(before.expires_at.filter(|_| was_lost), before.revoked_at) {
                let lost = LostKey { row: row.clone(), is_in_store: true, previous_id: None };
                self.keys.insert(row.digest, lost);
            }
        }
        let ids: HashSet<&str> = current.keys.iter().map(|row| row.id.as_str()).collect();
        let mut kept = Vec::new();
        for (digest, row) in missing_keys {
            if is_damaged(&current.damaged, row) {
                continue;
            }
            let previous_id = lost_before.get(&digest).and_then(|lost| lost.previous_id.clone());
            let mut lost = LostKey { row: row.clone(), is_in_store: false, previous_id };
            if ids.contains(row.id.as_str()) {
                lost.assign_new_id();
            }
            kept.push(lost.row.clone());
            self.keys.insert(digest, lost);
        }
        current.keys.extend(kept);
    }

    /// Applies the lost ends to later `changes` of the store, and forgets lost rows that the
    /// changes contain. Adds a lost key to the changes only if they give its id to another key.
    pub fn merge_lost_rows_into(&mut self, changes: &mut RingChanges) {
        self.accounts.retain(|name, _| {
            let is_in_store = changes.accounts.iter().any(|row| row.name == *name);
            !is_in_store && !changes.damaged.accounts.contains(name)
        });
        self.forget_accounts_set_again(changes);
        for row in &mut changes.keys {
            let Some(mut lost) = self.keys.remove(&row.digest) else { continue };
            if row.merge_earlier_end(&lost.row) {
                (lost.row, lost.is_in_store) = (row.clone(), true);
                self.keys.insert(row.digest, lost);
            }
        }
        self.keys.retain(|_, lost| !is_damaged(&changes.damaged, &lost.row));
        let ids: HashSet<&str> = changes.keys.iter().map(|row| row.id.as_str()).collect();
        let missing = self.keys.values_mut().filter(|lost| !lost.is_in_store);
        let mut kept = Vec::new();
        for lost in missing.filter(|lost| ids.contains(lost.row.id.as_str())) {
            lost.assign_new_id();
            kept.push(lost.row.clone());
        }
        changes.keys.extend(kept);
    }

    /// Forgets the lost plans and limits of accounts that were set after the loss. `changes` are
    /// the changes after the version that this node knew. If an account was set again in a change
    /// up to that version, it is still reported as lost until it is set once more, because this
    /// node can't tell its row from a lost one.
    pub fn forget_accounts_set_again(&mut self, changes: &RingChanges) {
        for row in &changes.accounts {
            // The changes contain the account of each new key too, even if it has not changed.
            let has_changed_key = changes.keys.iter().any(|key| key.account == row.name);
            let is_same =
                self.accounts_with_lost_settings.get(&row.name).is_some_and(|[_, now]| now == row);
            if !(has_changed_key && is_same) {
                self.accounts_with_lost_settings.remove(&row.name);
            }
        }
        for name in &changes.damaged.accounts {
            self.accounts_with_lost_settings.remove(name);
        }
    }

    /// Returns true if no lost row remains to be written back.
    pub fn is_fully_restored(&self) -> bool {
        self.keys.is_empty() && self.accounts.is_empty()
    }

    /// The rows to write back.
    pub fn rows_to_restore(&self) -> (Vec<KeyRow>, Vec<AccountRow>) {
        let keys = self.keys.values().map(|lost| lost.row.clone());
        (keys.collect(), self.accounts.values().cloned().collect())
    }

    /// One line for each loss that is not repaired yet, with the command that repairs it. Lists at
    /// most `MAX_LISTED_LOSSES` of each kind. Lost revocations come first, because a node without
    /// this knowledge would accept those keys.
    pub fn describe(&self) -> Vec<String> {
        let mut keys: Vec<&LostKey> = self.keys.values().collect();
        keys.sort_by_key(|lost| (lost.row.revoked_at.is_none(), !lost.is_in_store, &lost.row.id));
        let keys = keys.into_iter().map(LostKey::describe);
        let accounts = self.accounts.values().map(|row| {
            let (name, flags) = (&row.name, account_flags(row, row.plan.is_some(), true).join(" "));
            format!("account {name}; or run `riskgate accounts set {name} {flags}`")
        });
        let lines = shorten_list(keys.chain(accounts)).map(|lost| {
            let notice =
                "the store lost data that it had acknowledged; it stays in force here and is";
            format!("{notice} written back: {lost}")
        });
        lines
            .chain(shorten_list(
                self.accounts_with_lost_settings.values().map(describe_lost_settings),
            ))
            .collect()
    }
}

impl LostKey {
    /// Replaces the id with one that no other key has: the old id and the first 64 bits of the
    /// digest. A key can't be looked up by so few bits.
    fn assign_new_id(&mut self) {
        let KeyRow { id, digest, .. } = &mut self.row;
        let fingerprint = u64::from_be_bytes(*digest.first_chunk().unwrap_or(&[0; 8]));
        // A key id has at most 128 bytes.
        let kept: String = id.chars().take(100).collect();
        let new_id = format!("{kept}-{fingerprint:016x}");
        self.previous_id = Some(std::mem::replace(id, new_id));
    }

    fn describe(&self) -> String {
        let KeyRow { id, account, expires_at, revoked_at, .. } = &self.row;
        let revoke = format!("run `riskgate keys revoke {id}`");
        let previous_id = self.previous_id.as_ref();
        let renamed =
            previous_id.map(|previous| format!(" (its id {previous} is another key's now)"));
        let renamed = renamed.unwrap_or_default();
        match (revoked_at, self.is_in_store, expires_at) {
            (Some(_), ..) => format!("that key {id} was revoked{renamed}; or {revoke}"),
            (None, true, Some(at)) => {
                format!("that key {id} ends at {}; or {revoke} then", format_rfc3339(*at))
            }
            _ => format!(
                "key {id} of account {account}{renamed}; or run `riskgate keys create --account \
                 {account}` for a new one"
            ),
        }
    }
}

/// Returns true if the store holds an unreadable row with this key's id or digest.
fn is_damaged(damaged: &DamagedRows, row: &KeyRow) -> bool {
    let mut digests = damaged.keys.values().flatten();
    damaged.keys.contains_key(&row.id) || digests.any(|digest| *digest == row.digest)
}

fn shorten_list(lines: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let mut lines = lines;
    let mut shown: Vec<String> = lines.by_ref().take(MAX_LISTED_LOSSES).collect();
    let more = lines.count();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown.into_iter()
}

/// An account's plan and limit as flags of `riskgate accounts set`.
fn account_flags(row: &AccountRow, with_plan: bool, with_limit: bool) -> Vec<String> {
    let plan = with_plan.then(|| format!("--plan {}", plan_flag(row)));
    let limit = with_limit.then(|| format!("--limit {}", limit_flag(row)));
    plan.into_iter().chain(limit).collect()
}

fn plan_flag(row: &AccountRow) -> &str {
    row.plan.as_deref().unwrap_or("free")
}

fn limit_flag(row: &AccountRow) -> String {
    match row.limit {
        Some(MonthlyLimit::Calls(calls)) => calls.to_string(),
        Some(MonthlyLimit::Unlimited) => "unlimited".to_owned(),
        None => "plan".to_owned(),
    }
}

fn describe_lost_settings([before, now]: &[AccountRow; 2]) -> String {
    let is_changed = (before.plan != now.plan, before.limit != now.limit);
    let plan = is_changed.0.then(|| format!("the plan {}", plan_flag(before)));
    let limit = is_changed.1.then(|| format!("the limit {}", limit_flag(before)));
    let lost: Vec<String> = plan.into_iter().chain(limit).collect();
    let flags = account_flags(before, is_changed.0, is_changed.1).join(" ");
    let (name, lost) = (&before.name, lost.join(" and "));
    format!(
        "account {name}: the store lost {lost}, and its present setting is in force; run \
         `riskgate accounts set {name} {flags}`, or set the right one"
    )
}

#[cfg(test)]
mod tests;
