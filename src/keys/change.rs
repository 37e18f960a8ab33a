//! The next ring, from the one that serves and what changed in the store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{
    Account, DeclaredKey, InForce, Key, KeyRing, Plans, RingError, all_keys, limits, patterns,
    prefix,
};
use crate::origin::OriginPattern;
use crate::quota::Ledger;
use crate::store::{KeyRow, RingChanges, RingMark};

impl KeyRing {
    /// The ring after changes of the store, the same as one built from all rows. `declared` and
    /// `plans` must be those that this ring was built with.
    pub fn after(
        &self,
        changes: &RingChanges,
        declared: &[DeclaredKey],
        plans: &Plans,
        ledger: &Ledger,
    ) -> Result<KeyRing, RingError> {
        let RingChanges { store_id, version, accounts, keys } = changes;
        let mark = RingMark { store_id: store_id.clone(), version: *version };
        self.may_become(Some(&mark))?;
        // Checked whole before a limit changes: a ring that is refused leaves no trace.
        let changed: HashSet<[u8; 16]> = keys.iter().map(|key| prefix(&key.digest)).collect();
        // The changed keys, and what the key file says of the same ones.
        let merged: Vec<&KeyRow> = all_keys(keys, declared)?
            .into_iter()
            .filter(|row| changed.contains(&prefix(&row.digest)))
            .collect();
        let origins = merged.iter().map(|row| patterns(row)).collect::<Result<Vec<_>, _>>()?;
        let in_force = {
            let mut concerned: HashSet<&str> =
                accounts.iter().map(|account| account.name.as_str()).collect();
            let new = keys.iter().map(|key| key.account.as_str());
            concerned.extend(new.filter(|name| !self.accounts.contains_key(*name)));
            let of_keys = keys.iter().filter(|key| concerned.contains(key.account.as_str()));
            let of_file = declared.iter().filter(|it| concerned.contains(it.key.account.as_str()));
            limits(accounts, of_keys, of_file, plans)?
        };

        let mut next = KeyRing {
            keys: self.keys.clone(),
            accounts: self.accounts.clone(),
            origins: self.origins.clone(),
            mark,
        };
        next.replace_accounts(in_force, ledger);
        let mut touched: HashSet<OriginPattern> = origins.iter().flatten().cloned().collect();
        for prefix in &changed {
            if let Some(before) = next.keys.remove(prefix) {
                touched.extend(before.origins.iter().cloned());
            }
        }
        for (row, origins) in merged.into_iter().zip(origins) {
            next.add(row, origins);
        }
        next.origins.look_up(&touched, next.keys.values().map(Arc::as_ref));
        Ok(next)
    }

    fn replace_accounts(&mut self, in_force: Vec<InForce>, ledger: &Ledger) {
        let same = |known: &Account, it: &InForce| known.plan == it.plan && known.limit == it.limit;
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
            expires_at: self.expires_at,
            revoked: self.revoked,
        }
    }
}
