//! The key ring: all keys and accounts of the store and the key file.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use subtle::ConstantTimeEq;

use super::allowed_origins::AllowedOrigins;
use super::fault::{RingError, RingFault};
use super::key::{Account, Key};
use super::key_file::DeclaredKey;
use super::limits::{EffectiveLimit, Plans, find_plan_faults, resolve_effective_limits};
use super::merge::{MergedKey, merge_keys};
use super::token::sha256;
use crate::model::origin::Origin;
use crate::quota::Ledger;
use crate::store::{RingRows, RingVersion};

/// All keys and accounts. A ring never changes; each request uses one ring from start to end.
#[derive(Clone)]
pub struct KeyRing {
    pub(super) keys_by_digest_prefix: HashMap<[u8; 16], Arc<Key>>,
    pub(super) accounts: HashMap<String, Arc<Account>>,
    pub(super) allowed_origins: AllowedOrigins,
    /// The faults of keys, by key id.
    pub(super) key_faults: BTreeMap<String, RingFault>,
    /// The digest prefixes of the keys whose rows in the store can't be read, as far as the store
    /// tells the digests.
    pub(super) digests_of_unreadable_rows: HashSet<[u8; 16]>,
    /// The version of the store that this ring was built from.
    pub(super) ring_version: RingVersion,
}

impl KeyRing {
    /// Builds the ring from the store's rows and the key file. If a key is in both, the stricter
    /// settings apply. A fault of one key or account does not affect the others; see
    /// [`KeyRing::faults`].
    pub fn build(
        rows: &RingRows,
        declared: &[DeclaredKey],
        plans: &Plans,
        ledger: &Ledger,
    ) -> KeyRing {
        let effective_limits = resolve_limits_of_rows(rows, declared, plans);
        let mut ring = KeyRing {
            keys_by_digest_prefix: HashMap::with_capacity(rows.keys.len() + declared.len()),
            accounts: effective_limits
                .into_iter()
                .map(|effective| effective.into_account(ledger))
                .collect(),
            allowed_origins: AllowedOrigins::empty(),
            key_faults: make_damaged_key_faults(rows),
            digests_of_unreadable_rows: rows
                .damaged
                .key_digests_by_id
                .values()
                .flatten()
                .map(digest_prefix)
                .collect(),
            ring_version: rows.ring_version.clone(),
        };
        for key in merge_keys(&rows.keys, declared) {
            ring.insert_key(key);
        }
        ring.allowed_origins.add_keys(ring.keys_by_digest_prefix.values().map(Arc::as_ref));
        ring
    }

    /// Rejects a key file in two cases:
    /// - It gives an account two plans.
    /// - It gives an account a plan that the config does not define, and the store has neither a
    ///   plan nor a limit of its own for the account. A damaged row of the store is no such case.
    ///
    /// # Errors
    /// Returns one fault for each such account.
    pub fn check_key_file(
        rows: &RingRows,
        declared: &[DeclaredKey],
        plans: &Plans,
    ) -> Result<(), Vec<RingError>> {
        let faults = find_plan_faults(resolve_limits_of_rows(rows, declared, plans), declared);
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// Finds the faults that a ring built from these rows would have, without building the ring.
    pub fn find_faults(rows: &RingRows, declared: &[DeclaredKey], plans: &Plans) -> Vec<RingFault> {
        let effective_limits = resolve_limits_of_rows(rows, declared, plans);
        let account_faults = effective_limits.into_iter().filter_map(|effective| effective.fault);
        let key_faults = merge_keys(&rows.keys, declared).into_iter().filter_map(|key| key.fault);
        account_faults
            .chain(key_faults)
            .chain(make_damaged_key_faults(rows).into_values())
            .collect()
    }

    /// The faults of this ring's keys and accounts, sorted by text.
    pub fn faults(&self) -> Vec<&RingFault> {
        let of_accounts = self.accounts.values().filter_map(|account| account.fault.as_ref());
        let mut faults: Vec<_> = of_accounts.chain(self.key_faults.values()).collect();
        faults.sort_by_cached_key(|fault| fault.to_string());
        faults
    }

    /// The id of the store from which this ring was built.
    pub fn store_id(&self) -> &str {
        &self.ring_version.store_id
    }

    /// Fails if this ring was built from another store, or if the store was emptied. `current` is
    /// the version of the store now. Any version of the same store passes.
    pub fn check_same_store(&self, current: Option<&RingVersion>) -> Result<(), RingError> {
        let RingVersion { store_id, version, .. } = &self.ring_version;
        let found = match current {
            Some(now) if now.store_id == *store_id => return Ok(()),
            Some(now) => format!("version {} of {}", now.version, now.store_id),
            None => "none".to_owned(),
        };
        Err(RingError::DifferentStore { store: store_id.clone(), expected: *version, found })
    }

    /// Whether the row of the key with this digest can't be read in the store. The key may be
    /// valid, so riskgate must not answer 401.
    pub fn is_row_unreadable(&self, digest: &[u8; 32]) -> bool {
        self.digests_of_unreadable_rows.contains(&digest_prefix(digest))
    }

    /// Finds the key with this digest, unless the key is revoked or expired. A hash map finds the
    /// key by the first half of the digest; then the whole digests are compared in constant time.
    pub fn find_valid_key(&self, digest: &[u8; 32], unix_now: i64) -> Option<&Arc<Key>> {
        let (prefix, _) = digest.split_first_chunk::<16>()?;
        let key = self.keys_by_digest_prefix.get(prefix)?;
        let is_same: bool = key.digest.ct_eq(digest).into();
        let is_valid =
            !key.is_revoked && key.expires_at.is_none_or(|expires_at| unix_now < expires_at);
        (is_same && is_valid).then_some(key)
    }

    /// Returns true if a key that is not revoked lists an origin. Expired keys count.
    pub fn has_origins(&self) -> bool {
        self.allowed_origins.has_patterns()
    }

    /// Whether at least one valid key allows this origin. An unrestricted key allows every origin.
    pub fn does_any_key_allow_origin(&self, origin: &Origin, unix_now: i64) -> bool {
        self.allowed_origins.is_allowed(origin, unix_now)
    }

    /// Finds the account with this name.
    pub fn find_account(&self, name: &str) -> Option<&Arc<Account>> {
        self.accounts.get(name)
    }

    /// Whether the ring has a key with this text. Revoked and expired keys count.
    pub fn contains_key(&self, text: &[u8]) -> bool {
        self.keys_by_digest_prefix.contains_key(&digest_prefix(&sha256(text)))
    }

    /// The number of keys, including revoked and expired ones.
    pub fn len(&self) -> usize {
        self.keys_by_digest_prefix.len()
    }

    /// Whether the ring has no key.
    pub fn is_empty(&self) -> bool {
        self.keys_by_digest_prefix.is_empty()
    }

    /// The version of the store's keys that the ring was built from.
    pub fn version(&self) -> u64 {
        self.ring_version.version
    }

    /// Adds a key, unless the ring lacks its account.
    pub(super) fn insert_key(&mut self, merged: MergedKey<'_>) {
        let MergedKey { row, origins, is_origin_restricted: is_restricted, fault, .. } = merged;
        let Some(account) = self.accounts.get(&row.account) else { return };
        let key = Key {
            id: row.id.clone(),
            account: Arc::clone(account),
            lease: Arc::clone(&account.lease),
            usage: OnceLock::new(),
            limit: account.limit,
            require_origin: row.require_origin,
            digest: row.digest,
            origins,
            is_origin_restricted: is_restricted,
            expires_at: row.expires_at,
            is_revoked: row.revoked_at.is_some(),
            has_own_fault: fault.is_some(),
            is_faulty: fault.is_some() || account.fault.is_some(),
        };
        self.keys_by_digest_prefix.insert(digest_prefix(&row.digest), Arc::new(key));
        self.key_faults.extend(fault.map(|fault| (row.id.clone(), fault)));
    }
}

fn resolve_limits_of_rows(
    rows: &RingRows,
    declared: &[DeclaredKey],
    plans: &Plans,
) -> Vec<EffectiveLimit> {
    let damaged = &rows.damaged.account_names;
    resolve_effective_limits(&rows.accounts, damaged, &rows.keys, declared, plans)
}

/// The first half of a digest, by which the ring looks keys up.
pub(super) fn digest_prefix(digest: &[u8; 32]) -> [u8; 16] {
    let mut prefix = [0; 16];
    prefix.copy_from_slice(&digest[..16]);
    prefix
}

/// Makes a fault for each key whose row in the store can't be read, by key id.
fn make_damaged_key_faults(rows: &RingRows) -> BTreeMap<String, RingFault> {
    let damaged = rows.damaged.key_digests_by_id.keys();
    damaged.map(|id| (id.clone(), RingFault::DamagedKey { id: id.clone() })).collect()
}
