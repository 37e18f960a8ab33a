//! All keys and accounts, made from the store and a key file.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use subtle::ConstantTimeEq;

use super::allowed_origins::AllowedOrigins;
use super::fault::{RingError, RingFault};
use super::key::{Account, Key};
use super::key_file::DeclaredKey;
use super::limits::{Plans, check_plans, effective_limits};
use super::merge::{MergedKey, merge_keys};
use super::token::sha256;
use crate::model::origin::Origin;
use crate::quota::Ledger;
use crate::store::{RingRows, RingVersion};

/// All keys, as one request sees them.
pub struct KeyRing {
    pub(super) keys: HashMap<[u8; 16], Arc<Key>>,
    pub(super) accounts: HashMap<String, Arc<Account>>,
    pub(super) origins: AllowedOrigins,
    /// What is wrong with single keys, by id.
    pub(super) faults: BTreeMap<String, RingFault>,
    /// Keys whose rows can't be read.
    pub(super) unreadable_digests: HashSet<[u8; 16]>,
    /// The state of the store that this ring was made from.
    pub(super) ring_version: RingVersion,
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
        let effective_limits =
            effective_limits(&rows.accounts, &rows.damaged.accounts, &rows.keys, declared, plans);
        let mut ring = KeyRing {
            keys: HashMap::with_capacity(rows.keys.len() + declared.len()),
            accounts: effective_limits
                .into_iter()
                .map(|effective| effective.into_account(ledger))
                .collect(),
            origins: AllowedOrigins::empty(),
            faults: damaged_key_faults(rows),
            unreadable_digests: rows.damaged.keys.values().flatten().map(digest_prefix).collect(),
            ring_version: rows.ring_version(),
        };
        for key in merge_keys(&rows.keys, declared) {
            ring.insert_key(key);
        }
        ring.origins.add_keys(ring.keys.values().map(Arc::as_ref));
        ring
    }

    /// Refuses a key file that can't go with what the store holds and with the plans.
    pub fn check_key_file(
        rows: &RingRows,
        declared: &[DeclaredKey],
        plans: &Plans,
    ) -> Result<(), RingError> {
        let damaged = &rows.damaged.accounts;
        check_plans(
            effective_limits(&rows.accounts, damaged, &rows.keys, declared, plans),
            declared,
        )
    }

    /// What is wrong with keys and accounts that are served with 500, as a ring would tell it.
    pub fn find_faults(rows: &RingRows, declared: &[DeclaredKey], plans: &Plans) -> Vec<RingFault> {
        let damaged = &rows.damaged.accounts;
        let effective_limits =
            effective_limits(&rows.accounts, damaged, &rows.keys, declared, plans);
        let of_accounts = effective_limits.into_iter().filter_map(|effective| effective.fault);
        let of_keys = merge_keys(&rows.keys, declared).into_iter().filter_map(|key| key.fault);
        of_accounts.chain(of_keys).chain(damaged_key_faults(rows).into_values()).collect()
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
    pub fn check_succession(&self, mark: Option<&RingVersion>) -> Result<(), RingError> {
        let RingVersion { store_id, version, .. } = &self.ring_version;
        let found = match mark {
            Some(now) if now.store_id == *store_id => return Ok(()),
            Some(now) => format!("version {} of {}", now.version, now.store_id),
            None => "none".to_owned(),
        };
        Err(RingError::DifferentStore { store: store_id.clone(), expected: *version, found })
    }

    /// Whether this is the digest of a key whose row in the store can't be read: nobody knows
    /// whether it is good.
    pub fn is_row_unreadable(&self, digest: &[u8; 32]) -> bool {
        self.unreadable_digests.contains(&digest_prefix(digest))
    }

    /// The key with this digest, unless it is revoked or expired. The digest is compared in
    /// constant time, and an unknown key takes the same steps as a known one.
    pub fn find_key(&self, digest: &[u8; 32], unix_now: i64) -> Option<&Arc<Key>> {
        let (prefix, _) = digest.split_first_chunk::<16>()?;
        let key = self.keys.get(prefix)?;
        let is_same: bool = key.digest.ct_eq(digest).into();
        let is_valid =
            !key.is_revoked && key.expires_at.is_none_or(|expires_at| unix_now < expires_at);
        (is_same && is_valid).then_some(key)
    }

    /// Whether some key that is good now allows this origin: the rule of preflights, which carry
    /// no key. An unrestricted key allows every origin.
    pub fn is_origin_allowed(&self, origin: &Origin, unix_now: i64) -> bool {
        self.origins.is_allowed(origin, unix_now)
    }

    /// Whether this is the text of a key that it holds, revoked ones included.
    pub fn contains_key(&self, text: &[u8]) -> bool {
        self.keys.contains_key(&digest_prefix(&sha256(text)))
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
        self.ring_version.version
    }

    pub(super) fn insert_key(&mut self, merged: MergedKey<'_>) {
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
            is_revoked: row.revoked_at.is_some(),
            is_faulty: fault.is_some(),
        };
        self.keys.insert(digest_prefix(&row.digest), Arc::new(key));
        self.faults.extend(fault.map(|fault| (row.id.clone(), fault)));
    }
}

/// The part of a digest that keys are looked up by.
pub(super) fn digest_prefix(digest: &[u8; 32]) -> [u8; 16] {
    let mut prefix = [0; 16];
    prefix.copy_from_slice(&digest[..16]);
    prefix
}

/// What is wrong with keys whose rows can't be read.
pub(super) fn damaged_key_faults(rows: &RingRows) -> BTreeMap<String, RingFault> {
    let damaged = rows.damaged.keys.keys();
    damaged.map(|id| (id.clone(), RingFault::DamagedKey { id: id.clone() })).collect()
}
