//! Rows that a store had acknowledged and lost: in a failover, or because a backup was restored.
//!
//! Compares the rows that this node knows with the rows that the store holds now, and decides which
//! rows apply. A row of a key that the store lacks stays in effect, unless the store has a damaged
//! row of the key. A revocation that this node knows stays in effect. An expiry that this node
//! knows never moves to a later time, unless a rotation was undone. The plan and the limit of an
//! account apply as the store holds them, if it has the account. A digest identifies a key,
//! whatever the key's id in the store:
//!
//! - If the store has the digest of a lost key under another id, both are the same key. The key
//!   gets the id in the store, and the earlier of the two ends.
//! - If the store has another digest under the id of a lost key, the lost key stays in effect under
//!   a new id. Each node derives the same new id from the old id and the digest. Without a new id,
//!   somebody could revoke another owner's key by mistake.
//!
//! This module reads no store.

use std::collections::{BTreeMap, HashSet};

use super::rows::{AccountRow, DamagedRows, KeyRow, RingChanges, RingRows};
use crate::model::month::format_rfc3339;
use crate::model::monthly_limit::MonthlyLimit;

/// The most lost rows, lost settings of accounts and lost overrides that are listed; the rest are
/// only counted.
const MAX_LISTED_LOSSES: usize = 5;

/// The rows that this node knows and that the store lost, or holds with other values.
#[derive(Debug, Default)]
pub struct LostRows {
    /// Keys by digest that the store lacks, or that end later or never in the store.
    lost_keys: BTreeMap<[u8; 32], LostKey>,
    /// Accounts by name that the store lacks.
    missing_accounts: BTreeMap<String, AccountRow>,
    /// Accounts by name whose plan or limit the store lost and holds with another value. The first
    /// row is the one that this node knew, the second is the store's.
    accounts_with_lost_settings: BTreeMap<String, [AccountRow; 2]>,
}

/// A lost key, or a key whose end was lost.
#[derive(Clone, Debug)]
struct LostKey {
    /// The row that this node applies and writes back.
    row: KeyRow,
    /// Whether the store still holds the key, but with a later end or none.
    lost_only_its_end: bool,
    /// The former id of the key; set if another key has that id in the store now.
    previous_id: Option<String>,
}

impl LostRows {
    /// Compares the `known` rows of this node with the `current` rows of the store. Adds the rows
    /// that the store lacks, unless it has a damaged row in their place. Gives keys in `current`
    /// the earlier ends that were lost. Remembers all these rows as lost.
    ///
    /// `store_lost_data` is true if the store is known to have lost data. If `store_lost_data` is
    /// false, a different plan or limit is an ordinary change, and a later expiry comes from an
    /// undone rotation, unless this key was found lost before: then the earlier expiry stays. A
    /// missing row or revocation is always a loss, because no command removes a row or a
    /// revocation.
    pub fn find_and_keep_lost_rows(
        &mut self,
        known: &RingRows,
        current: &mut RingRows,
        store_lost_data: bool,
    ) {
        self.merge_lost_keys(known, current, store_lost_data);
        self.missing_accounts.clear();
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
            if !current.damaged.account_names.contains(name) {
                self.missing_accounts.insert(name.to_owned(), row.clone());
                current.accounts.push(row.clone());
            }
        }
    }

    fn merge_lost_keys(&mut self, known: &RingRows, current: &mut RingRows, store_lost_data: bool) {
        let lost_before = std::mem::take(&mut self.lost_keys);
        let mut missing_keys: BTreeMap<[u8; 32], &KeyRow> =
            known.keys.iter().map(|row| (row.digest, row)).collect();
        for row in &mut current.keys {
            let Some(before) = missing_keys.remove(&row.digest) else { continue };
            let was_lost = store_lost_data || lost_before.contains_key(&row.digest);
            if row.apply_earlier_end(before.expires_at.filter(|_| was_lost), before.revoked_at) {
                let lost = LostKey { row: row.clone(), lost_only_its_end: true, previous_id: None };
                self.lost_keys.insert(row.digest, lost);
            }
        }
        let ids: HashSet<&str> = current.keys.iter().map(|row| row.id.as_str()).collect();
        let is_damaged = damaged_key_check(&current.damaged);
        let mut kept = Vec::new();
        for (digest, row) in missing_keys {
            if is_damaged(row) {
                continue;
            }
            let previous_id = lost_before.get(&digest).and_then(|lost| lost.previous_id.clone());
            let mut lost = LostKey { row: row.clone(), lost_only_its_end: false, previous_id };
            if ids.contains(row.id.as_str()) {
                lost.assign_new_id();
            }
            kept.push(lost.row.clone());
            self.lost_keys.insert(digest, lost);
        }
        current.keys.extend(kept);
    }

    /// Applies the lost ends of keys to later `changes` of the store, and forgets the other lost
    /// rows that are in `changes`. If `changes` gives the id of a lost key to another key, adds the
    /// lost key under a new id.
    pub fn apply_losses_to_changes(&mut self, changes: &mut RingChanges) {
        if !self.missing_accounts.is_empty() {
            let in_store: HashSet<&str> =
                changes.accounts.iter().map(|row| row.name.as_str()).collect();
            self.missing_accounts.retain(|name, _| {
                let is_damaged = changes.damaged.account_names.contains(name);
                !in_store.contains(name.as_str()) && !is_damaged
            });
        }
        self.forget_accounts_set_again(changes);
        for row in &mut changes.keys {
            let Some(mut lost) = self.lost_keys.remove(&row.digest) else { continue };
            if row.merge_earlier_end(&lost.row) {
                (lost.row, lost.lost_only_its_end) = (row.clone(), true);
                self.lost_keys.insert(row.digest, lost);
            }
        }
        let is_damaged = damaged_key_check(&changes.damaged);
        self.lost_keys.retain(|_, lost| !is_damaged(&lost.row));
        let ids: HashSet<&str> = changes.keys.iter().map(|row| row.id.as_str()).collect();
        let missing = self.lost_keys.values_mut().filter(|lost| !lost.lost_only_its_end);
        let mut kept = Vec::new();
        for lost in missing.filter(|lost| ids.contains(lost.row.id.as_str())) {
            lost.assign_new_id();
            kept.push(lost.row.clone());
        }
        changes.keys.extend(kept);
    }

    /// Forgets the lost plans and limits of accounts that were set again after the loss. `changes`
    /// holds the changes after the version that this node knew. The version numbers of a store that
    /// lost changes begin again at a lower number. So an account may have been set again at a
    /// version that this node knew. Such an account is not in `changes`, and counts as lost until
    /// it is set once more.
    pub fn forget_accounts_set_again(&mut self, changes: &RingChanges) {
        if self.accounts_with_lost_settings.is_empty() {
            return;
        }
        // The changes contain the account of each new key, even if the account has not changed.
        let with_changed_key: HashSet<&str> =
            changes.keys.iter().map(|key| key.account.as_str()).collect();
        for row in &changes.accounts {
            let is_same =
                self.accounts_with_lost_settings.get(&row.name).is_some_and(|[_, now]| now == row);
            if !(with_changed_key.contains(row.name.as_str()) && is_same) {
                self.accounts_with_lost_settings.remove(&row.name);
            }
        }
        for name in &changes.damaged.account_names {
            self.accounts_with_lost_settings.remove(name);
        }
    }

    /// Returns true if no lost row remains to be written back.
    pub fn is_fully_restored(&self) -> bool {
        self.lost_keys.is_empty() && self.missing_accounts.is_empty()
    }

    /// The rows to write back.
    pub fn rows_to_restore(&self) -> (Vec<KeyRow>, Vec<AccountRow>) {
        let keys = self.lost_keys.values().map(|lost| lost.row.clone());
        (keys.collect(), self.missing_accounts.values().cloned().collect())
    }

    /// Lines about the losses that are not repaired yet, with the commands that repair them: up to
    /// [`MAX_LISTED_LOSSES`] rows, as many lost settings, and the numbers of the others. Lost
    /// revocations come first, because a node that does not know them would accept the keys.
    pub fn describe_losses(&self) -> Vec<String> {
        let mut keys: Vec<&LostKey> = self.lost_keys.values().collect();
        keys.sort_by_key(|lost| {
            (lost.row.revoked_at.is_none(), !lost.lost_only_its_end, &lost.row.id)
        });
        let keys = keys.into_iter().map(LostKey::describe_loss);
        let accounts = self.missing_accounts.values().map(|row| {
            let (name, (plan, limit)) = (&row.name, flag_values(row));
            let plan = row.plan.as_ref().map_or(String::new(), |_| format!("--plan {plan} "));
            format!("account {name}; or run `riskgate accounts set {name} {plan}--limit {limit}`")
        });
        let lines = keep_first_losses(keys.chain(accounts)).map(|lost| {
            let notice =
                "the store lost data that it had acknowledged; it stays in force here and is";
            format!("{notice} written back: {lost}")
        });
        lines
            .chain(keep_first_losses(
                self.accounts_with_lost_settings.values().map(describe_lost_settings),
            ))
            .collect()
    }
}

impl LostKey {
    /// Replaces the id of the lost key with an id made of the start of the old id and the first 64
    /// bits of the digest. Logs may show this id, because 64 bits don't reveal the digest.
    fn assign_new_id(&mut self) {
        let KeyRow { id, digest, .. } = &mut self.row;
        let fingerprint = u64::from_be_bytes(*digest.first_chunk().unwrap_or(&[0; 8]));
        // A key id has at most 128 bytes.
        let kept: String = id.chars().take(100).collect();
        let new_id = format!("{kept}-{fingerprint:016x}");
        self.previous_id = Some(std::mem::replace(id, new_id));
    }

    fn describe_loss(&self) -> String {
        let KeyRow { id, account, expires_at, revoked_at, .. } = &self.row;
        let revoke = format!("run `riskgate keys revoke {id}`");
        let previous_id = self.previous_id.as_ref();
        let renamed =
            previous_id.map(|previous| format!(" (its id {previous} is another key's now)"));
        let renamed = renamed.unwrap_or_default();
        match (revoked_at, self.lost_only_its_end, expires_at) {
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

/// The check whether the store holds an unreadable row with the id or the digest of a key.
fn damaged_key_check(damaged: &DamagedRows) -> impl Fn(&KeyRow) -> bool {
    let by_id = &damaged.key_digests_by_id;
    let digests: HashSet<&[u8; 32]> = by_id.values().flatten().collect();
    move |row| by_id.contains_key(&row.id) || digests.contains(&row.digest)
}

/// Keeps the first lines, and counts the others in a last one.
pub fn keep_first_losses(lines: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let mut lines = lines;
    let mut shown: Vec<String> = lines.by_ref().take(MAX_LISTED_LOSSES).collect();
    let more = lines.count();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown.into_iter()
}

/// An account's plan and limit, as flags of `riskgate accounts set` have them.
fn flag_values(row: &AccountRow) -> (&str, String) {
    let limit = match row.own_limit {
        Some(MonthlyLimit::Calls(calls)) => calls.to_string(),
        Some(MonthlyLimit::Unlimited) => "unlimited".to_owned(),
        None => "plan".to_owned(),
    };
    (row.plan.as_deref().unwrap_or("free"), limit)
}

fn describe_lost_settings([before, now]: &[AccountRow; 2]) -> String {
    let (plan, limit) = flag_values(before);
    let (mut lost, mut flags) = (Vec::new(), Vec::new());
    if before.plan != now.plan {
        lost.push(format!("the plan {plan}"));
        flags.push(format!("--plan {plan}"));
    }
    if before.own_limit != now.own_limit {
        lost.push(format!("the limit {limit}"));
        flags.push(format!("--limit {limit}"));
    }
    let (name, lost, flags) = (&before.name, lost.join(" and "), flags.join(" "));
    format!(
        "account {name}: the store lost {lost}, and its present setting is in force; run \
         `riskgate accounts set {name} {flags}`, or set the right one"
    )
}

#[cfg(test)]
mod tests;
