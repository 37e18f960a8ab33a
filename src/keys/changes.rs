//! Builds the next key ring from the serving one and the changes in the store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::key::{Account, Key};
use super::key_file::DeclaredKey;
use super::key_ring::{KeyRing, digest_prefix};
use super::limits::{EffectiveLimit, Plans, resolve_effective_limits};
use super::merge::merge_keys;
use crate::model::origin::OriginPattern;
use crate::quota::Ledger;
use crate::store::RingChanges;

impl KeyRing {
    /// Returns a new ring: this ring with the changes of the store. The new ring is the same as a
    /// ring built from all rows. Returns `None` if the changes are not enough; the caller must then
    /// build the ring from all rows. `declared` and `plans` must be those that this ring was built
    /// with. The changes must begin at the version of this ring.
    pub fn with_changes(
        &self,
        changes: &RingChanges,
        declared: &[DeclaredKey],
        plans: &Plans,
        ledger: &Ledger,
    ) -> Option<KeyRing> {
        let RingChanges { ring_version, keys, damaged, .. } = changes;
        let ids: HashSet<&str> = keys.iter().map(|key| key.id.as_str()).collect();
        let mut declared_ids = declared.iter().map(|declared| declared.key.id.as_str());
        // A key of the store and another key of the key file may have the same id.
        let needs_full_rebuild = !damaged.key_digests_by_id.is_empty()
            || !self.digests_of_unreadable_rows.is_empty()
            || declared_ids.any(|id| ids.contains(id));
        if needs_full_rebuild {
            return None;
        }
        let changed_digests: HashSet<[u8; 16]> =
            keys.iter().map(|key| digest_prefix(&key.digest)).collect();
        // The changed keys, merged with their entries in the key file.
        let declared_changed: Vec<DeclaredKey> = declared
            .iter()
            .filter(|declared| changed_digests.contains(&digest_prefix(&declared.key.digest)))
            .cloned()
            .collect();
        let merged = merge_keys(keys, &declared_changed);
        let effective_limits = self.resolve_affected_limits(changes, declared, plans);

        let mut next = KeyRing { ring_version: ring_version.clone(), ..self.clone() };
        next.add_or_replace_accounts(effective_limits, ledger);
        let mut changed_patterns: HashSet<OriginPattern> =
            merged.iter().flat_map(|key| key.origins.iter().cloned()).collect();
        for prefix in &changed_digests {
            if let Some(before) = next.keys_by_digest_prefix.remove(prefix) {
                changed_patterns.extend(before.origins.iter().cloned());
                next.key_faults.remove(&before.id);
            }
        }
        for key in merged {
            next.insert_key(key);
        }
        next.allowed_origins.recompute_expiry_of_patterns(
            &changed_patterns,
            next.keys_by_digest_prefix.values().map(Arc::as_ref),
        );
        Some(next)
    }

    /// Returns the limits, after the changes, of the accounts that the changes affect.
    fn resolve_affected_limits(
        &self,
        changes: &RingChanges,
        declared: &[DeclaredKey],
        plans: &Plans,
    ) -> Vec<EffectiveLimit> {
        let RingChanges { accounts, keys, damaged, .. } = changes;
        let mut changed_names: HashSet<&str> =
            accounts.iter().map(|account| account.name.as_str()).collect();
        changed_names.extend(damaged.account_names.iter().map(String::as_str));
        let accounts_of_keys = keys.iter().map(|key| key.account.as_str());
        changed_names.extend(accounts_of_keys.filter(|name| !self.accounts.contains_key(*name)));
        let affected_keys = keys.iter().filter(|key| changed_names.contains(key.account.as_str()));
        let affected_declared = declared
            .iter()
            .filter(|declared| changed_names.contains(declared.key.account.as_str()));
        resolve_effective_limits(
            accounts,
            &damaged.account_names,
            affected_keys,
            affected_declared,
            plans,
        )
    }

    /// Adds the accounts that are new, and replaces the accounts whose plan, limit or fault
    /// differs. The keys of a replaced account then point to the new account. The other accounts
    /// and keys stay shared with the previous ring.
    fn add_or_replace_accounts(&mut self, effective_limits: Vec<EffectiveLimit>, ledger: &Ledger) {
        let is_same = |known: &Account, effective: &EffectiveLimit| {
            known.plan == effective.plan
                && known.limit == effective.limit
                && known.fault == effective.fault
        };
        let new_accounts: HashMap<String, Arc<Account>> = effective_limits
            .into_iter()
            .filter(|effective| {
                self.accounts.get(&effective.account).is_none_or(|known| !is_same(known, effective))
            })
            .map(|effective| effective.into_account(ledger))
            .collect();
        if new_accounts.is_empty() {
            return;
        }
        for key in self.keys_by_digest_prefix.values_mut() {
            if let Some(account) = new_accounts.get(&key.account.name) {
                *key = Arc::new(key.with_account(account));
            }
        }
        self.accounts.extend(new_accounts);
    }
}

impl Key {
    /// Copies the key, and lets the copy point to a new version of its account.
    fn with_account(&self, account: &Arc<Account>) -> Key {
        Key {
            account: Arc::clone(account),
            lease: Arc::clone(&account.lease),
            limit: account.limit,
            is_faulty: self.has_own_fault || account.fault.is_some(),
            ..self.clone()
        }
    }
}
