//! The next ring, from the one that serves and what changed in the store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::file::DeclaredKey;
use super::key::{Account, Key};
use super::key_ring::{KeyRing, prefix};
use super::limits::{InForce, Plans, limits};
use super::merge::merge;
use crate::model::origin::OriginPattern;
use crate::quota::Ledger;
use crate::store::RingChanges;

impl KeyRing {
    /// The ring after changes of the store, the same as one built from all rows; none where it
    /// takes all of them. `declared` and `plans` must be those that this ring was built with, and
    /// the changes must follow its state.
    pub fn after(
        &self,
        changes: &RingChanges,
        declared: &[DeclaredKey],
        plans: &Plans,
        ledger: &Ledger,
    ) -> Option<KeyRing> {
        let RingChanges { mark, keys, damaged, .. } = changes;
        let ids: HashSet<&str> = keys.iter().map(|key| key.id.as_str()).collect();
        let mut of_file = declared.iter().map(|declared| declared.key.id.as_str());
        // What the file says of the same id may be of another key.
        let needs_all = !damaged.keys.is_empty()
            || !self.unreadable.is_empty()
            || of_file.any(|id| ids.contains(id));
        if needs_all {
            return None;
        }
        let changed: HashSet<[u8; 16]> = keys.iter().map(|key| prefix(&key.digest)).collect();
        // The changed keys, with what the key file says of the same ones.
        let same: Vec<DeclaredKey> = declared
            .iter()
            .filter(|declared| changed.contains(&prefix(&declared.key.digest)))
            .cloned()
            .collect();
        let merged = merge(keys, &same);
        let in_force = self.in_force(changes, declared, plans);

        let mut next = KeyRing {
            keys: self.keys.clone(),
            accounts: self.accounts.clone(),
            origins: self.origins.clone(),
            faults: self.faults.clone(),
            unreadable: HashSet::new(),
            mark: mark.clone(),
        };
        next.replace_accounts(in_force, ledger);
        let mut touched: HashSet<OriginPattern> =
            merged.iter().flat_map(|key| key.origins.iter().cloned()).collect();
        for prefix in &changed {
            if let Some(before) = next.keys.remove(prefix) {
                touched.extend(before.origins.iter().cloned());
                next.faults.remove(&before.id);
            }
        }
        for key in merged {
            next.add(key);
        }
        next.origins.look_up(&touched, next.keys.values().map(Arc::as_ref));
        Some(next)
    }

    /// The accounts that changes concern, as they then are.
    fn in_force(
        &self,
        changes: &RingChanges,
        declared: &[DeclaredKey],
        plans: &Plans,
    ) -> Vec<InForce> {
        let RingChanges { accounts, keys, damaged, .. } = changes;
        let mut concerned: HashSet<&str> =
            accounts.iter().map(|account| account.name.as_str()).collect();
        concerned.extend(damaged.accounts.iter().map(String::as_str));
        let new = keys.iter().map(|key| key.account.as_str());
        concerned.extend(new.filter(|name| !self.accounts.contains_key(*name)));
        let of_keys = keys.iter().filter(|key| concerned.contains(key.account.as_str()));
        let of_file = declared.iter().filter(|it| concerned.contains(it.key.account.as_str()));
        limits(accounts, &damaged.accounts, of_keys, of_file, plans)
    }

    fn replace_accounts(&mut self, in_force: Vec<InForce>, ledger: &Ledger) {
        let same = |known: &Account, it: &InForce| {
            known.plan == it.plan && known.limit == it.limit && known.fault == it.fault
        };
        let replaced: HashMap<String, Arc<Account>> = in_force
            .into_iter()
            .filter(|it| self.accounts.get(&it.name).is_none_or(|known| !same(known, it)))
            .map(|it| it.into_account(ledger))
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
            revoked: self.revoked,
            is_faulty: self.is_faulty,
        }
    }
}
