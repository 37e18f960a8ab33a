//! The key ring: which key opens which account, made from the store and a key file.
//!
//! Owns keys in memory, by digest, and what they allow. It is immutable: a change makes a new
//! ring, which shares with the old one what did not change. It never holds a key's text, and knows
//! no header.

mod change;
mod file;
mod limits;
mod origins;
mod token;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use subtle::ConstantTimeEq;

use crate::origin::{Origin, OriginPattern};
use crate::quota::{Lease, Ledger};
use crate::store::{KeyRow, LimitRow, RingMark, RingRows};
use limits::{InForce, limits};
use origins::Origins;

pub use file::{DeclaredKey, KeyFileError, NAME_FORM, hash_text, is_name, read_key_file};
pub use token::{SHORTEST_KEY, Token, TokenError, digest};

/// The plan of an account that has none set.
pub const DEFAULT_PLAN: &str = "free";

/// Calls in a calendar month, by plan name.
pub type Plans = BTreeMap<String, LimitRow>;

/// Who calls: an account with its limit in force and its lease.
pub struct Account {
    /// Its name.
    pub name: String,
    /// Its plan.
    pub plan: String,
    /// The limit in force: its own, else its plan's.
    pub limit: LimitRow,
    /// What its calls are spent from.
    pub lease: Arc<Lease>,
}

/// A key, without its text. What a call asks first stands first, in as few lines of the cache as
/// may be.
#[repr(C)]
pub struct Key {
    digest: [u8; 32],
    /// The account's lease, one step nearer.
    pub lease: Arc<Lease>,
    revoked: bool,
    /// Whether a request without `Origin` is refused.
    pub require_origin: bool,
    expires_at: Option<i64>,
    origins: Vec<OriginPattern>,
    /// The account's limit, one step nearer.
    pub limit: LimitRow,
    /// Whose it is.
    pub account: Arc<Account>,
    /// Its public id.
    pub id: String,
}

/// All keys, as one request sees them.
pub struct KeyRing {
    keys: HashMap<[u8; 16], Arc<Key>>,
    accounts: HashMap<String, Arc<Account>>,
    origins: Origins,
    /// The store's identity and version that this ring was made from.
    mark: RingMark,
}

/// Why rows make no ring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// An account's plan is not in the config.
    #[error("account {account}: expected one of the plans {known}, but found {found:?}")]
    UnknownPlan {
        /// Whose plan.
        account: String,
        /// The plans there are.
        known: String,
        /// What the account says.
        found: String,
    },
    /// An origin in the store does not parse.
    #[error(
        "key {id}: origins: expected an origin such as https://app.example.com, but found {found:?}"
    )]
    Origin {
        /// Which key.
        id: String,
        /// What it says.
        found: String,
    },
    /// Two keys with one id that are not the same key.
    #[error(
        "key {id}: expected one key with this id, but found another in the key file and the store"
    )]
    SameId {
        /// Which id.
        id: String,
    },
    /// One account with two plans in the key file.
    #[error(
        "account {account}: expected one plan for all its keys, but found {first:?} and {second:?}"
    )]
    TwoPlans {
        /// Which account.
        account: String,
        /// The plan of an earlier key.
        first: String,
        /// The plan of a later key.
        second: String,
    },
    /// The store lost what it had: another store, or an older state of this one.
    #[error(
        "the store lost its mark or went back: expected version {expected} or later of {store}, but found {found}"
    )]
    LostMark {
        /// The store that the serving ring came from.
        store: String,
        /// Its version.
        expected: u64,
        /// What is there now.
        found: String,
    },
}

impl KeyRing {
    /// The ring of both sources; what is revoked in either is revoked.
    pub fn build(
        rows: &RingRows,
        declared: &[DeclaredKey],
        plans: &Plans,
        ledger: &Ledger,
    ) -> Result<KeyRing, RingError> {
        // Checked whole before a limit changes: a ring that is refused leaves no trace.
        let keys = all_keys(&rows.keys, declared)?;
        let origins = keys.iter().map(|row| patterns(row)).collect::<Result<Vec<_>, _>>()?;
        let in_force = limits(&rows.accounts, &rows.keys, declared, plans)?;
        let mut ring = KeyRing {
            keys: HashMap::with_capacity(rows.keys.len() + declared.len()),
            accounts: in_force.into_iter().map(|it| it.into_account(ledger)).collect(),
            origins: Origins::none(),
            mark: RingMark { store_id: rows.store_id.clone(), version: rows.version },
        };
        for (row, origins) in keys.into_iter().zip(origins) {
            ring.add(row, origins);
        }
        ring.origins.add_all(ring.keys.values().map(Arc::as_ref));
        Ok(ring)
    }

    /// Whether rows and declarations would make a ring.
    pub fn check(
        rows: &RingRows,
        declared: &[DeclaredKey],
        plans: &Plans,
    ) -> Result<(), RingError> {
        limits(&rows.accounts, &rows.keys, declared, plans)?;
        all_keys(&rows.keys, declared)?.into_iter().try_for_each(|row| patterns(row).map(drop))
    }

    /// Refuses what a store holds now if it is another one than the one that this ring came from,
    /// an older state of it, or no store at all any more.
    pub fn may_become(&self, mark: Option<&RingMark>) -> Result<(), RingError> {
        let RingMark { store_id, version } = &self.mark;
        let found = match mark {
            Some(now) if now.store_id == *store_id && now.version >= *version => return Ok(()),
            Some(now) => format!("version {} of {}", now.version, now.store_id),
            None => "none".to_owned(),
        };
        Err(RingError::LostMark { store: store_id.clone(), expected: *version, found })
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

    fn add(&mut self, row: &KeyRow, origins: Vec<OriginPattern>) {
        let prefix = prefix(&row.digest);
        let known = self.keys.get(&prefix).is_some_and(|key| key.revoked);
        if let Some(account) = self.accounts.get(&row.account) {
            let key = Key {
                id: row.id.clone(),
                account: Arc::clone(account),
                lease: Arc::clone(&account.lease),
                limit: account.limit,
                require_origin: row.require_origin,
                digest: row.digest,
                origins,
                expires_at: row.expires_at,
                revoked: row.revoked_at.is_some() || known,
            };
            self.keys.insert(prefix, Arc::new(key));
        }
    }
}

impl Key {
    /// Whether the key names origins at all.
    pub fn is_restricted(&self) -> bool {
        !self.origins.is_empty()
    }

    /// Whether one of its patterns covers the origin; a key without origins allows every one.
    pub fn allows(&self, origin: &Origin) -> bool {
        self.origins.is_empty() || self.origins.iter().any(|pattern| pattern.matches(origin))
    }
}

fn prefix(digest: &[u8; 32]) -> [u8; 16] {
    let mut prefix = [0; 16];
    prefix.copy_from_slice(&digest[..16]);
    prefix
}

/// The keys of both sources; an id names one key.
fn all_keys<'r>(
    rows: &'r [KeyRow],
    declared: &'r [DeclaredKey],
) -> Result<Vec<&'r KeyRow>, RingError> {
    let all: Vec<&KeyRow> =
        rows.iter().chain(declared.iter().map(|declared| &declared.key)).collect();
    let mut ids: HashMap<&str, [u8; 32]> = HashMap::with_capacity(all.len());
    for row in &all {
        if ids.insert(&row.id, row.digest).is_some_and(|other| other != row.digest) {
            return Err(RingError::SameId { id: row.id.clone() });
        }
    }
    Ok(all)
}

fn patterns(row: &KeyRow) -> Result<Vec<OriginPattern>, RingError> {
    let pattern = |text: &String| {
        OriginPattern::parse(text)
            .map_err(|_| RingError::Origin { id: row.id.clone(), found: text.clone() })
    };
    row.origins.iter().map(pattern).collect()
}

#[cfg(test)]
mod tests;
