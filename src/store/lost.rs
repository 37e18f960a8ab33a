//! What a store had acknowledged and lost: in a failover, or under a restored backup.
//!
//! Compares rows that were known with those that the store holds. Owns the rule of what stays in
//! force: keys, and their ends, as known; plans and limits as the store says. A key is known by its
//! digest, whatever id the store gives it:
//!
//! - The same digest under another id is the same key. It ends when either row says so, under the
//!   id that the store gives it.
//! - A key whose id the store gives to another digest serves on, under an id that each node makes
//!   of the old one and the digest: nobody else's key can be revoked in its place.
//!
//! It reads no store.

use std::collections::{BTreeMap, HashSet};

use super::rows::{AccountRow, DamagedRows, KeyRow, RingChanges, RingRows};
use crate::model::month::format_rfc3339;
use crate::model::monthly_limit::MonthlyLimit;

/// How many losses are told by name.
const MAX_NAMED: usize = 5;

/// Rows that were known, and that the store does not hold as they were.
#[derive(Debug, Default)]
pub struct LostRows {
    /// Keys that the store does not hold, or that end later there, by digest.
    keys: BTreeMap<[u8; 32], LostKey>,
    /// Accounts that the store does not hold.
    accounts: BTreeMap<String, AccountRow>,
    /// Accounts whose plan or limit the store replaced: as known, and as the store says.
    replaced: BTreeMap<String, [AccountRow; 2]>,
}

/// A key as it stays in force.
#[derive(Clone, Debug)]
struct LostKey {
    row: KeyRow,
    /// The store holds it, and only its end was lost.
    is_in_store: bool,
    /// The id that it had until another key got it.
    previous_id: Option<String>,
}

impl LostRows {
    /// Adds to all rows of a store what was known and is not there, and remembers it.
    ///
    /// `is_other_history` is true if the store is known to have lost something. Otherwise its
    /// plans and limits were only changed, and a key that ends later is one whose rotation was
    /// taken back. A row or a revocation that is gone was lost in any case: no command takes one
    /// away.
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
                // It was set since.
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
            let had_id = lost_before.get(&digest).and_then(|lost| lost.previous_id.clone());
            let mut lost = LostKey { row: row.clone(), is_in_store: false, previous_id: had_id };
            if ids.contains(row.id.as_str()) {
                lost.assign_new_id();
            }
            kept.push(lost.row.clone());
            self.keys.insert(digest, lost);
        }
        now.keys.extend(kept);
    }

    /// Adds to later changes of the store what they still lack, and forgets what they bring back.
    pub fn keep_lost_rows_in(&mut self, changes: &mut RingChanges) {
        self.accounts.retain(|name, _| {
            let is_there = changes.accounts.iter().any(|row| row.name == *name);
            !is_there && !changes.damaged.accounts.contains(name)
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

    /// Forgets lost plans and limits of accounts that were set since: of those that changed after
    /// the loss, or after the version that was known. One that was set anew in a change before
    /// that version is told as lost too, until it is set once more: nobody can tell which it is.
    pub fn forget_reset_accounts(&mut self, changes: &RingChanges) {
        for row in &changes.accounts {
            // A new key names its account too, and changes nothing of it.
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

    /// Whether nothing remains to be written back.
    pub fn is_fully_restored(&self) -> bool {
        self.keys.is_empty() && self.accounts.is_empty()
    }

    /// What is to be written back.
    pub fn rows_to_restore(&self) -> (Vec<KeyRow>, Vec<AccountRow>) {
        let keys = self.keys.values().map(|lost| lost.row.clone());
        (keys.collect(), self.accounts.values().cloned().collect())
    }

    /// A line for each loss that is not made good yet, and what to run; some by name, and first
    /// what would open again.
    pub fn describe(&self) -> Vec<String> {
        let mut keys: Vec<&LostKey> = self.keys.values().collect();
        keys.sort_by_key(|lost| (lost.row.revoked_at.is_none(), !lost.is_in_store, &lost.row.id));
        let keys = keys.into_iter().map(LostKey::describe);
        let accounts = self.accounts.values().map(|row| {
            let (name, flags) = (&row.name, account_flags(row, row.plan.is_some(), true).join(" "));
            format!("account {name}; or run `riskgate accounts set {name} {flags}`")
        });
        let of_keys = first_few(keys.chain(accounts)).map(|lost| {
            let what =
                "the store lost data that it had acknowledged; it stays in force here and is";
            format!("{what} written back: {lost}")
        });
        of_keys.chain(first_few(self.replaced.values().map(describe_replaced))).collect()
    }
}

impl LostKey {
    /// Takes an id that no other key has. Of the digest it shows too little to find a key by.
    fn assign_new_id(&mut self) {
        let KeyRow { id, digest, .. } = &mut self.row;
        let mark = u64::from_be_bytes(*digest.first_chunk().unwrap_or(&[0; 8]));
        // The name of a key has 128 bytes at most.
        let kept: String = id.chars().take(100).collect();
        let own = format!("{kept}-{mark:016x}");
        self.previous_id = Some(std::mem::replace(id, own));
    }

    fn describe(&self) -> String {
        let KeyRow { id, account, expires_at, revoked_at, .. } = &self.row;
        let revoke = format!("run `riskgate keys revoke {id}`");
        let had_id = self.previous_id.as_ref();
        let renamed = had_id.map(|had| format!(" (its id {had} is another key's now)"));
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

/// Whether the store holds a row of this key, or of its id, that can't be read.
fn is_damaged(damaged: &DamagedRows, row: &KeyRow) -> bool {
    let mut digests = damaged.keys.values().flatten();
    damaged.keys.contains_key(&row.id) || digests.any(|digest| *digest == row.digest)
}

fn first_few(lines: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let mut lines = lines;
    let mut some: Vec<String> = lines.by_ref().take(MAX_NAMED).collect();
    let more = lines.count();
    if more > 0 {
        some.push(format!("and {more} more"));
    }
    some.into_iter()
}

/// An account's plan and limit as `riskgate accounts set` takes them.
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
    let is_other = (before.plan != now.plan, before.limit != now.limit);
    let plan = is_other.0.then(|| format!("the plan {}", plan_of(before)));
    let limit = is_other.1.then(|| format!("the limit {}", limit_of(before)));
    let lost: Vec<String> = plan.into_iter().chain(limit).collect();
    let flags = account_flags(before, is_other.0, is_other.1).join(" ");
    let (name, lost) = (&before.name, lost.join(" and "));
    format!(
        "account {name}: the store lost {lost}, and what it says now is followed; run `riskgate \
         accounts set {name} {flags}`, or set what is right"
    )
}

#[cfg(test)]
mod tests;
