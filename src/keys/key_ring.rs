//! All keys and accounts, made from the store and a key file.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use subtle::ConstantTimeEq;

use super::fault::{RingError, RingFault};
use super::file::DeclaredKey;
use super::key::{Account, Key};
use super::limits::{Plans, check_plans, limits};
use super::merge::{MergedKey, merge};
use super::origins::Origins;
use super::token::digest;
use crate::model::origin::Origin;
use crate::quota::Ledger;
use crate::store::{RingMark, RingRows};

/// All keys, as one request sees them.
pub struct KeyRing {
    pub(super) keys: HashMap<[u8; 16], Arc<Key>>,
    pub(super) accounts: HashMap<String, Arc<Account>>,
    pub(super) origins: Origins,
    /// What is wrong with single keys, by id.
    pub(super) faults: BTreeMap<String, RingFault>,
    /// Keys whose rows can't be read.
    pub(super) unreadable: HashSet<[u8; 16]>,
    /// The state of the store that this ring was made from.
    pub(super) mark: RingMark,
}

impl KeyRing {
    /// The ring of both sources; a key in both is as the stricter of both says. Faults of one key
    /// or account are told by [`KeyRing::faults`], and hold nobody else back.
    pub fn build(
        rows: &RingRows,
        declared: &[DeclaredKey],
        plans: &Plans,
        ledger: &Ledger,
    ) -> KeyRing {
        let in_force = limits(&rows.accounts, &rows.damaged.accounts, &rows.keys, declared, plans);
        let mut ring = KeyRing {
            keys: HashMap::with_capacity(rows.keys.len() + declared.len()),
            accounts: in_force.into_iter().map(|it| it.into_account(ledger)).collect(),
            origins: Origins::none(),
            faults: faults_of_keys(rows),
            unreadable: rows.damaged.keys.values().flatten().map(prefix).collect(),
            mark: rows.mark(),
        };
        for key in merge(&rows.keys, declared) {
            ring.add(key);
        }
        ring.origins.add_all(ring.keys.values().map(Arc::as_ref));
        ring
    }

    /// Refuses a key file that can't go with what the store holds and with the plans.
    pub fn check_file(
        rows: &RingRows,
        declared: &[DeclaredKey],
        plans: &Plans,
    ) -> Result<(), RingError> {
        let damaged = &rows.damaged.accounts;
        check_plans(limits(&rows.accounts, damaged, &rows.keys, declared, plans), declared)
    }

    /// What is wrong with keys and accounts that are served with 500, as a ring would tell it.
    pub fn faults_of(rows: &RingRows, declared: &[DeclaredKey], plans: &Plans) -> Vec<RingFault> {
        let damaged = &rows.damaged.accounts;
        let in_force = limits(&rows.accounts, damaged, &rows.keys, declared, plans);
        let of_accounts = in_force.into_iter().filter_map(|it| it.fault);
        let of_keys = merge(&rows.keys, declared).into_iter().filter_map(|key| key.fault);
        of_accounts.chain(of_keys).chain(faults_of_keys(rows).into_values()).collect()
    }

    /// What is wrong with keys and accounts of this ring, whose calls are our failure.
    pub fn faults(&self) -> Vec<&RingFault> {
        let of_accounts = self.accounts.values().filter_map(|account| account.fault.as_ref());
        let mut faults: Vec<_> = of_accounts.chain(self.faults.values()).collect();
        faults.sort_by_cached_key(|fault| fault.to_string());
        faults
    }

    /// Refuses what a store holds now if it is another one than the one that this ring came from,
    /// or no store at all any more.
    pub fn may_become(&self, mark: Option<&RingMark>) -> Result<(), RingError> {
        let RingMark { store_id, version, .. } = &self.mark;
        let found = match mark {
            Some(now) if now.store_id == *store_id => return Ok(()),
            Some(now) => format!("version {} of {}", now.version, now.store_id),
            None => "none".to_owned(),
        };
        Err(RingError::LostMark { store: store_id.clone(), expected: *version, found })
    }

    /// Whether this is the digest of a key whose row in the store can't be read: nobody knows
    /// whether it is good.
    pub fn is_unreadable(&self, digest: &[u8; 32]) -> bool {
        self.unreadable.contains(&prefix(digest))
    }

    /// The key with this digest, unless it is revoked or expired. The digest is compared in
    /// constant time, and an unknown key takes the same steps as a known one.
    pub fn find(&self, digest: &[u8; 32], unix_now: i64) -> Option<&Arc<Key>> {
        let (prefix, _) = digest.split_first_chunk::<16>()?;
        let key = self.keys.get(prefix)?;
        let same: bool = key.digest.ct_eq(digest).into();
        let live = !key.revoked && key.expires_at.is_none_or(|expires_at| unix_now < expires_at);
        (same && live).then_some(key)
    }

    /// Whether some key that is good now allows this origin: the rule of preflights, which carry
    /// no key. An unrestricted key allows every origin.
    pub fn some_key_allows(&self, origin: &Origin, unix_now: i64) -> bool {
        self.origins.allow(origin, unix_now)
    }

    /// Whether this is the text of a key that it holds, revoked ones included.
    pub fn holds(&self, text: &[u8]) -> bool {
        self.keys.contains_key(&prefix(&digest(text)))
    }

    /// How many keys it holds, revoked ones included.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it holds no key at all.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The version of the store's keys that it was made from.
    pub fn version(&self) -> u64 {
        self.mark.version
    }

    pub(super) fn add(&mut self, merged: MergedKey<'_>) {
        let MergedKey { row, origins, is_restricted, fault } = merged;
        let Some(account) = self.accounts.get(&row.account) else { return };
        let key = Key {
            id: row.id.clone(),
            account: Arc::clone(account),
            lease: Arc::clone(&account.lease),
            limit: account.limit,
            require_origin: row.require_origin,
            digest: row.digest,
            origins,
            is_restricted,
            expires_at: row.expires_at,
            revoked: row.revoked_at.is_some(),
            is_faulty: fault.is_some(),
        };
        self.keys.insert(prefix(&row.digest), Arc::new(key));
        self.faults.extend(fault.map(|fault| (row.id.clone(), fault)));
    }
}

/// The part of a digest that keys are looked up by.
pub(super) fn prefix(digest: &[u8; 32]) -> [u8; 16] {
    let mut prefix = [0; 16];
    prefix.copy_from_slice(&digest[..16]);
    prefix
}

/// What is wrong with keys whose rows can't be read.
pub(super) fn faults_of_keys(rows: &RingRows) -> BTreeMap<String, RingFault> {
    let damaged = rows.damaged.keys.keys();
    damaged.map(|id| (id.clone(), RingFault::DamagedKey { id: id.clone() })).collect()
}
