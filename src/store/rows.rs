//! The rows that pass between the state in memory and a store. Values only.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::model::month::Month;
use crate::model::monthly_limit::MonthlyLimit;

/// Marks of accounts kept with a row of the top list.
pub const MAX_TOP_ACCOUNTS: usize = 16;

/// Names of which the store keeps what the DNS said: those written last.
pub const MAX_LEARNED: usize = 100_000;

/// So many are read or written at once.
pub(super) const LEARNED_PAGE: usize = 1_000;

/// An account as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRow {
    /// Its name.
    pub name: String,
    /// Its plan, if one was set.
    pub plan: Option<String>,
    /// A limit of its own, instead of the plan's.
    pub limit: Option<MonthlyLimit>,
}

/// A key as the store keeps it: never the key itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// Its public id, the one in logs.
    pub id: String,
    /// The account that it spends from.
    pub account: String,
    /// What its owner calls it.
    pub label: Option<String>,
    /// SHA-256 of the key.
    pub digest: [u8; 32],
    /// The origins that it is restricted to; none means unrestricted.
    pub origins: Vec<String>,
    /// Whether a request without `Origin` is refused.
    pub require_origin: bool,
    /// Unix seconds.
    pub created_at: i64,
    /// Unix seconds.
    pub expires_at: Option<i64>,
    /// Unix seconds.
    pub revoked_at: Option<i64>,
}

impl KeyRow {
    /// Ends when either row of the same key says so; true if this one did not say so before.
    pub fn merge_end(&mut self, other: &KeyRow) -> bool {
        self.digest == other.digest && self.advance_end(other.expires_at, other.revoked_at)
    }

    /// Ends at these times at the latest; true if it did not before.
    pub(super) fn advance_end(&mut self, expires_at: Option<i64>, revoked_at: Option<i64>) -> bool {
        let before = (self.expires_at, self.revoked_at);
        self.expires_at = match (self.expires_at, expires_at) {
            (Some(one), Some(another)) => Some(one.min(another)),
            (one, another) => one.or(another),
        };
        self.revoked_at = self.revoked_at.or(revoked_at);
        (self.expires_at, self.revoked_at) != before
    }
}

/// Rows that the store holds and that can't be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DamagedRows {
    /// Keys, by id, with the digest if the store still tells it.
    pub keys: BTreeMap<String, Option<[u8; 32]>>,
    /// Accounts, by name.
    pub accounts: BTreeSet<String>,
}

/// All keys and accounts of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingRows {
    /// Which store this is; drawn when it was created.
    pub store_id: String,
    /// Grows with every change of keys and accounts.
    pub version: u64,
    /// The id of the change that led to this version.
    pub change_id: Option<String>,
    /// The accounts that were created or set.
    pub accounts: Vec<AccountRow>,
    /// The keys, revoked ones included.
    pub keys: Vec<KeyRow>,
    /// What else is there.
    pub damaged: DamagedRows,
}

impl RingRows {
    /// Which state of which store they are.
    pub fn ring_version(&self) -> RingVersion {
        let RingRows { store_id, version, change_id: history, .. } = self;
        RingVersion { store_id: store_id.clone(), version: *version, change_id: history.clone() }
    }

    /// Takes changes over: what changed is replaced or added.
    pub fn apply_changes(&mut self, changes: RingChanges) {
        let RingChanges { mark, accounts, keys, damaged, .. } = changes;
        let RingVersion { store_id, version, change_id: history } = mark;
        (self.store_id, self.version, self.change_id) = (store_id, version, history);
        let changed: HashSet<&str> = keys.iter().map(|key| key.id.as_str()).collect();
        let changed = |id: &str| changed.contains(id) || damaged.keys.contains_key(id);
        // One that the store lost may come back under another id.
        let digests: HashSet<[u8; 32]> = keys.iter().map(|key| key.digest).collect();
        self.keys.retain(|key| !changed(&key.id) && !digests.contains(&key.digest));
        self.damaged.keys.retain(|id, _| !changed(id));
        self.keys.extend(keys);
        let changed: HashSet<&str> = accounts.iter().map(|it| it.name.as_str()).collect();
        let changed = |name: &str| changed.contains(name) || damaged.accounts.contains(name);
        self.accounts.retain(|account| !changed(&account.name));
        self.damaged.accounts.retain(|name| !changed(name));
        self.accounts.extend(accounts);
        self.damaged.keys.extend(damaged.keys);
        self.damaged.accounts.extend(damaged.accounts);
    }
}

/// Which store this is, and the state of its keys and accounts. Two states with the same version
/// are of different histories if another change led to it: one was lost in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingVersion {
    /// Drawn when the store was created.
    pub store_id: String,
    /// Grows with every change of keys and accounts.
    pub version: u64,
    /// The id of the change that led to this version, drawn with it. None before the first
    /// change, and after one by a riskgate that drew none.
    pub change_id: Option<String>,
}

/// Keys and accounts that changed after some version.
#[derive(Clone, Debug, Default)]
pub struct RingChanges {
    /// The state that they lead to.
    pub mark: RingVersion,
    /// The id of the change that led to the version after which these are, in the history of the
    /// state that they lead to. None if the store does not know it any more.
    pub since: Option<String>,
    /// The accounts that changed, as they now are.
    pub accounts: Vec<AccountRow>,
    /// The keys that changed, as they now are.
    pub keys: Vec<KeyRow>,
    /// What changed, and can't be read.
    pub damaged: DamagedRows,
}

impl RingChanges {
    /// Whether they lead on from a state that is known: of the same store and history.
    pub fn follows(&self, known: &RingVersion) -> bool {
        self.mark.store_id == known.store_id
            && self.mark.version >= known.version
            && self.since.is_some()
            && self.since == known.change_id
    }

    /// Whether they show that the store has lost a state that was known.
    pub fn shows_loss_since(&self, known: &RingVersion) -> bool {
        self.mark.version < known.version || self.since.is_some() && self.since != known.change_id
    }
}

/// What `riskgate store copy` moves.
#[derive(Clone, Debug)]
pub struct StoreContents {
    /// Keys and accounts.
    pub ring: RingRows,
    /// The month that the numbers are of.
    pub month: Month,
    /// Its numbers, by account.
    pub usage: Vec<UsageRow>,
    /// The counts of the top list.
    pub top: Vec<TopRow>,
}

/// What `riskgate store repair-month` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairedMonth {
    /// The latest month as it was; none if no node had counted in any.
    pub previous: Option<Month>,
    /// Numbers of later months that were dropped: of so many accounts and months.
    pub dropped: u64,
}

/// One row of `riskgate usage`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// Whose calls.
    pub account: String,
    /// What all nodes say that they spent.
    pub spent: u64,
    /// What all nodes hold as leased, spent or not.
    pub leased: u64,
    /// Its numbers can't be read, and the others of this row say nothing.
    pub is_damaged: bool,
}

/// A row's count for the top list, as it is kept over restarts.
#[derive(Clone, Debug, PartialEq)]
pub struct TopRow {
    /// The name of the row that matched.
    pub domain: String,
    /// The decayed count at `at`.
    pub count: f64,
    /// Unix seconds.
    pub at: i64,
    /// Marks of some accounts that are behind it.
    pub accounts: Vec<u64>,
}

impl TopRow {
    /// A row after a credit of which the marks of these accounts were new.
    pub(crate) fn with_credit(
        known: Option<TopRow>,
        credit: &TopCredit,
        accounts: &[u64],
        half_life: f64,
    ) -> TopRow {
        let mut row = known.unwrap_or_else(|| TopRow {
            domain: credit.domain.clone(),
            count: credit.base,
            at: credit.at,
            accounts: Vec::new(),
        });
        row.count = row.count_at(credit.at, half_life) + accounts.len() as f64;
        row.at = row.at.max(credit.at);
        for account in accounts {
            if row.accounts.len() < MAX_TOP_ACCOUNTS && !row.accounts.contains(account) {
                row.accounts.push(*account);
            }
        }
        row
    }

    /// The count, decayed to a later second.
    pub fn count_at(&self, at: i64, half_life: f64) -> f64 {
        self.count * (-((at - self.at).max(0) as f64) / half_life).exp2()
    }
}

/// What the DNS said of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedRow {
    /// The name.
    pub name: String,
    /// As in a list of kind `mx`: a host, or a word in its place.
    pub mx: String,
    /// Until when it holds, in Unix seconds.
    pub until: i64,
}

/// Flagged look-ups of one row, to be counted.
#[derive(Clone, Debug, PartialEq)]
pub struct TopCredit {
    /// The name of the row that matched.
    pub domain: String,
    /// What a row that is not there yet starts with: the count of the one that made room for it.
    pub base: f64,
    /// Unix seconds.
    pub at: i64,
    /// For each account that asked: its mark of the day for this row, and its own.
    pub sightings: Vec<(u64, u64)>,
}
