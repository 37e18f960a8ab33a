//! Builds the next key ring from the serving one and the changes in the store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::key::{Account, Key};
use super::key_file::DeclaredKey;
use super::key_ring::{KeyRing, digest_prefix};
use super::limits::{EffectiveLimit, Plans, effective_limits};
use super::merge::merge_keys;
use crate::model::origin::OriginPattern;
use crate::quota::Ledger;
use crate::store::RingChanges;

impl KeyRing {
    /// The ring after these changes of the store, equal to a ring built from all rows. `None` if
    /// only all rows give the right ring. `declared` and `plans` must be the ones that this ring
    /// was built with, and the changes must begin at its version.
    pub fn with_changes(
        &self,
        changes: &RingChanges,
        declared: &[DeclaredKey],
        plans: &Plans,
        ledger: &Ledger,
    ) -> Option<KeyRing> {
        let RingChanges { mark: ring_version, keys, damaged, .. } = changes;
        let ids: HashSet<&str> = keys.iter().map(|key| key.id.as_str()).collect();
        let mut declared_ids = declared.iter().map(|declared| declared.key.id.as_str());
        // An entry of the key file with the same id may be another key.
        let needs_all = !damaged.keys.is_empty()
            || !self.unreadable_digests.is_empty()
            || declared_ids.any(|id| ids.contains(id));
        if needs_all {
            return None;
        }
        let changed: HashSet<[u8; 16]> =
            keys.iter().map(|key| digest_prefix(&key.digest)).collect();
        // The changed keys, merged with their entries in the key file.
        let declared_changed: Vec<DeclaredKey> = declared
            .iter()
            .filter(|declared| changed.contains(&digest_prefix(&declared.key.digest)))
            .cloned()
            .collect();
        let merged = merge_keys(keys, &declared_changed);
        let effective_limits = self.changed_limits(changes, declared, plans);

        let mut next = KeyRing {
            keys: self.keys.clone(),
            accounts: self.accounts.clone(),
            origins: self.origins.clone(),
            faults: self.faults.clone(),
            unreadable_digests: HashSet::new(),
            ring_version: ring_version.clone(),
        };
        next.replace_accounts(effective_limits, ledger);
        let mut changed_patterns: HashSet<OriginPattern> =
            merged.iter().flat_map(|key| key.origins.iter().cloned()).collect();
        for prefix in &changed {
            if let Some(before) = next.keys.remove(prefix) {
                changed_patterns.extend(before.origins.iter().cloned());
                next.faults.remove(&before.id);
            }
        }
        for key in merged {
            next.insert_key(key);
        }
        next.origins.refresh_patterns(&changed_patterns, next.keys.values().map(Arc::as_ref));
        Some(next)
    }

    /// The accounts that the changes affect, with their limits after the changes.
    fn changed_limits(
        &self,
        changes: &RingChanges,
        declared: &[DeclaredKey],
        plans: &Plans,
    ) -> Vec<EffectiveLimit> {
        let RingChanges { accounts, keys, damaged, .. } = changes;
        let mut changed_names: HashSet<&str> =
            accounts.iter().map(|account| account.name.as_str()).collect();
        changed_names.extend(damaged.accounts.iter().map(String::as_str));
        let accounts_of_keys = keys.iter().map(|key| key.account.as_str());
        changed_names.extend(accounts_of_keys.filter(|name| !self.accounts.contains_key(*name)));
        let affected_keys = keys.iter().filter(|key| changed_names.contains(key.account.as_str()));
        let affected_declared = declared
            .iter()
            .filter(|declared| changed_names.contains(declared.key.account.as_str()));
        effective_limits(accounts, &damaged.accounts, affected_keys, affected_declared, plans)
    }

    fn replace_accounts(&mut self, effective_limits: Vec<EffectiveLimit>, ledger: &Ledger) {
        let is_same = |known: &Account, effective: &EffectiveLimit| {
            known.plan == effective.plan
                && known.limit == effective.limit
                && known.fault == effective.fault
        };
        let replaced: HashMap<String, Arc<Account>> = effective_limits
            .into_iter()
            .filter(|effective| {
                self.accounts.get(&effective.name).is_none_or(|known| !is_same(known, effective))
            })
            .map(|effective| effective.into_account(ledger))
            .collect();
        if replaced.is_empty() {
            return;
        }
        for key in self.keys.values_mut() {
            if let Some(account) = replaced.get(&key.account.name) {
                *key = Arc::new(key.with_account(account));
            }
        }
        self.accounts.extend(replaced);
    }
}

impl Key {
    fn with_account(&self, account: &Arc<Account>) -> Key {
        Key {
            id: self.id.clone(),
            account: Arc::clone(account),
            lease: Arc::clone(&account.lease),
            limit: account.limit,
            require_origin: self.require_origin,
            digest: self.digest,
            origins: self.origins.clone(),
            is_restricted: self.is_restricted,
            expires_at: self.expires_at,
            is_revoked: self.is_revoked,
            is_faulty: self.is_faulty,
        }
    }
}
