//! Rows that a store had acknowledged and lost: in a failover, or because a backup was restored.
//!
//! Compares the known rows with those that the store holds, and decides which stay in force: keys
//! and their ends as known, plans and limits as the store says. A key is identified by its digest,
//! whatever id the store gives it:
//!
//! - If the store has the same digest under another id, it is the same key. It ends when either row
//!   says so, under the id that the store gives it.
//! - If the store gives the id of a key to another digest, the key stays in force under a new id,
//!   which each node derives from the old id and the digest. So nobody revokes another owner's key
//!   by mistake.
//!
//! It reads no store.

use std::collections::{BTreeMap, HashSet};

use super::rows::{AccountRow, DamagedRows, KeyRow, RingChanges, RingRows};
use crate::model::month::format_rfc3339;
use crate::model::monthly_limit::MonthlyLimit;

/// The most losses that are listed by name.
const MAX_NAMED: usize = 5;

/// Known rows that the store no longer holds as they were.
#[derive(Debug, Default)]
pub struct LostRows {
    /// Keys, by digest, that the store does not hold or that end later there.
    keys: BTreeMap<[u8; 32], LostKey>,
    /// Accounts that the store does not hold.
    accounts: BTreeMap<String, AccountRow>,
    /// Accounts whose plan or limit the store replaced: the known row, and the store's.
    replaced: BTreeMap<String, [AccountRow; 2]>,
}

/// A key as it stays in force.
#[derive(Clone, Debug)]
struct LostKey {
    row: KeyRow,
    /// The store holds the key; only its end was lost.
    is_in_store: bool,
    /// The former id of the key, if another key has it now.
    previous_id: Option<String>,
}

impl LostRows {
    /// Adds the known rows that are missing from the store to `now`, and remembers them as lost.
    ///
    /// `is_other_history` is true if the store is known to have lost data. If it is false,
    /// different plans and limits are ordinary changes, and a key that ends later is one whose
    /// rotation was undone. A missing row or revocation is a loss in either case, because no
    /// command removes one.
    pub fn keep_lost_rows(&mut self, known: &RingRows, now: &mut RingRows, is_other_history: bool) {
        self.keep_lost_keys(known, now, is_other_history);
        self.accounts.clear();
        let old = known.accounts.iter().map(|row| (row.name.as_str(), row));
        let mut old: BTreeMap<&str, &AccountRow> = old.collect();
        for row in &now.accounts {
            match old.remove(row.name.as_str()) {
                Some(before) if before != row && is_other_history => {
                    let [before, row] = [before, row].map(Clone::clone);
                    self.replaced.entry(row.name.clone()).or_insert([before, row]);
                }
                // The account has been set since.
                Some(before) if before != row => drop(self.replaced.remove(&row.name)),
                _ => {}
            }
        }
        for (name, row) in old {
            if !now.damaged.accounts.contains(name) {
                self.accounts.insert(name.to_owned(), row.clone());
                now.accounts.push(row.clone());
            }
        }
    }

    fn keep_lost_keys(&mut self, known: &RingRows, now: &mut RingRows, is_other_history: bool) {
        let lost_before = std::mem::take(&mut self.keys);
        let mut old: BTreeMap<[u8; 32], &KeyRow> =
            known.keys.iter().map(|row| (row.digest, row)).collect();
        for row in &mut now.keys {
            let Some(before) = old.remove(&row.digest) else { continue };
            let was_lost = is_other_history || lost_before.contains_key(&row.digest);
            if row.advance_end(before.expires_at.filter(|_| was_lost), before.revoked_at) {
                let lost = LostKey { row: row.clone(), is_in_store: true, previous_id: None };
                self.keys.insert(row.digest, lost);
            }
        }
        let ids: HashSet<&str> = now.keys.iter().map(|row| row.id.as_str()).collect();
        let mut kept = Vec::new();
        for (digest, row) in old {
            if is_damaged(&now.damaged, row) {
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
        now.keys.extend(kept);
    }

    /// Adds lost rows to later `changes` of the store, and forgets those that the changes bring
    /// back.
    pub fn keep_lost_rows_in(&mut self, changes: &mut RingChanges) {
        self.accounts.retain(|name, _| {
            let is_in_store = changes.accounts.iter().any(|row| row.name == *name);
            !is_in_store && !changes.damaged.accounts.contains(name)
        });
        self.forget_reset_accounts(changes);
        for row in &mut changes.keys {
            let Some(mut lost) = self.keys.remove(&row.digest) else { continue };
            if row.merge_end(&lost.row) {
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

    /// Forgets the lost plans and limits of accounts that were set after the loss, or after the
    /// version that was known. An account that was set again in a change before that version is
    /// still reported as lost until it is set once more, because the two cases look the same.
    pub fn forget_reset_accounts(&mut self, changes: &RingChanges) {
        for row in &changes.accounts {
            // A new key names its account too, but changes nothing in it.
            let is_named = changes.keys.iter().any(|key| key.account == row.name);
            let is_same = self.replaced.get(&row.name).is_some_and(|[_, now]| now == row);
            if !(is_named && is_same) {
                self.replaced.remove(&row.name);
            }
        }
        for name in &changes.damaged.accounts {
            self.replaced.remove(name);
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

    /// One line for each loss that is not repaired yet, with the command to run. At most
    /// `MAX_NAMED` are named; lost revocations come first, because those keys would be accepted
    /// again.
    pub fn describe(&self) -> Vec<String> {
        let mut keys: Vec<&LostKey> = self.keys.values().collect();
        keys.sort_by_key(|lost| (lost.row.revoked_at.is_none(), !lost.is_in_store, &lost.row.id));
        let keys = keys.into_iter().map(LostKey::describe);
        let accounts = self.accounts.values().map(|row| {
            let (name, flags) = (&row.name, account_flags(row, row.plan.is_some(), true).join(" "));
            format!("account {name}; or run `riskgate accounts set {name} {flags}`")
        });
        let lines = first_few(keys.chain(accounts)).map(|lost| {
            let notice =
                "the store lost data that it had acknowledged; it stays in force here and is";
            format!("{notice} written back: {lost}")
        });
        lines.chain(first_few(self.replaced.values().map(describe_replaced))).collect()
    }
}

impl LostKey {
    /// Derives an id that no other key has. It shows too little of the digest to find a key by.
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

fn first_few(lines: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let mut lines = lines;
    let mut shown: Vec<String> = lines.by_ref().take(MAX_NAMED).collect();
    let more = lines.count();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown.into_iter()
}

/// An account's plan and limit as flags of `riskgate accounts set`.
fn account_flags(row: &AccountRow, plan: bool, limit: bool) -> Vec<String> {
    let plan = plan.then(|| format!("--plan {}", plan_of(row)));
    let limit = limit.then(|| format!("--limit {}", limit_of(row)));
    plan.into_iter().chain(limit).collect()
}

fn plan_of(row: &AccountRow) -> &str {
    row.plan.as_deref().unwrap_or("free")
}

fn limit_of(row: &AccountRow) -> String {
    match row.limit {
        Some(MonthlyLimit::Calls(calls)) => calls.to_string(),
        Some(MonthlyLimit::Unlimited) => "unlimited".to_owned(),
        None => "plan".to_owned(),
    }
}

fn describe_replaced([before, now]: &[AccountRow; 2]) -> String {
    let is_changed = (before.plan != now.plan, before.limit != now.limit);
    let plan = is_changed.0.then(|| format!("the plan {}", plan_of(before)));
    let limit = is_changed.1.then(|| format!("the limit {}", limit_of(before)));
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
