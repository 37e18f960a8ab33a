//! The rows that are exchanged with a store. Values only.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use crate::model::month::Month;
use crate::model::monthly_limit::MonthlyLimit;

/// The most accounts kept with a row of the top list.
pub const MAX_TOP_ROW_ACCOUNTS: usize = 16;

/// The most names for which a store keeps DNS facts. The names written longest ago are deleted.
pub const MAX_DNS_FACTS: usize = 100_000;
/// The most addresses of a mail host that a DNS fact may have.
pub const MAX_ADDRESSES_PER_DNS_FACT: usize = 4;

/// The most DNS facts read or written at once.
pub(super) const DNS_FACTS_PER_PAGE: usize = 1_000;

/// For how many months before the present month a store keeps usage by day, and an SQLite store
/// also totals. An SQLite store may delete older months when a month begins, if the time is then
/// settled.
pub(super) const KEPT_PAST_MONTHS: u16 = 13;

/// For how long a store knows a request that can be repeated, in seconds.
const REQUEST_RETENTION_SECONDS: i64 = 86_400;

/// The Unix second up to which the store has forgotten requests.
pub(super) fn latest_forgotten_request_time(unix_now: i64) -> i64 {
    unix_now.saturating_sub(REQUEST_RETENTION_SECONDS)
}

/// The most rows past their time that SQLite deletes at once. A server looks at about as many
/// fields of a hash at once.
pub(super) const EXPIRED_ROWS_PER_PAGE: usize = 500;

/// The most pages of each kind of row that one deletion of rows past their time looks at.
pub(super) const MAX_PAGES_OF_EXPIRED_ROWS: usize = 400;

/// An account as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRow {
    /// The account's name.
    pub name: String,
    /// The account's plan, if one was set.
    pub plan: Option<String>,
    /// The account's own limit, which replaces the plan's. `None` if the plan's limit applies.
    pub own_limit: Option<MonthlyLimit>,
}

/// A key as a store keeps it: never the secret itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// The public id of the key, which logs show.
    pub id: String,
    /// The account whose quota the key spends.
    pub account: String,
    /// The owner's name for the key.
    pub label: Option<String>,
    /// SHA-256 of the key.
    pub digest: [u8; 32],
    /// The origins that the key is restricted to; empty means unrestricted.
    pub origins: Vec<String>,
    /// Whether riskgate refuses requests with the key but without `Origin`.
    pub require_origin: bool,
    /// Unix seconds; 0 if the time is not known.
    pub created_at: i64,
    /// Unix seconds; `None` if the key never expires.
    pub expires_at: Option<i64>,
    /// Unix seconds; `None` unless the key was revoked.
    pub revoked_at: Option<i64>,
}

impl KeyRow {
    /// Orders keys by age, the oldest first, and keys of one second by their ids.
    pub fn compare_age(&self, other: &KeyRow) -> Ordering {
        (self.created_at, &self.id).cmp(&(other.created_at, &other.id))
    }

    /// Gives this row the expiry and the revocation of `other` if `other` ends the key earlier: see
    /// `apply_earlier_end`. Returns true if this row changed. If `other` is a row of another key,
    /// nothing changes.
    pub fn merge_earlier_end(&mut self, other: &KeyRow) -> bool {
        self.digest == other.digest && self.apply_earlier_end(other.expires_at, other.revoked_at)
    }

    /// Lowers the expiry to `expires_at`, unless the key expires earlier. Sets the revocation to
    /// `revoked_at`, unless the key is revoked already. Returns true if the row changed.
    pub(super) fn apply_earlier_end(
        &mut self,
        expires_at: Option<i64>,
        revoked_at: Option<i64>,
    ) -> bool {
        let before = (self.expires_at, self.revoked_at);
        self.expires_at = match (self.expires_at, expires_at) {
            (Some(one), Some(another)) => Some(one.min(another)),
            (one, another) => one.or(another),
        };
        self.revoked_at = self.revoked_at.or(revoked_at);
        (self.expires_at, self.revoked_at) != before
    }
}

/// Rows in the store that can't be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DamagedRows {
    /// The digests of the damaged keys by id; `None` if the store has no readable digest of the
    /// key.
    pub key_digests_by_id: BTreeMap<String, Option<[u8; 32]>>,
    /// The names of the damaged accounts.
    pub account_names: BTreeSet<String>,
}

/// All keys and accounts of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingRows {
    /// The store and version that the rows belong to.
    pub ring_version: RingVersion,
    /// The accounts that were created or set.
    pub accounts: Vec<AccountRow>,
    /// The keys, revoked ones included.
    pub keys: Vec<KeyRow>,
    /// Rows that can't be read.
    pub damaged: DamagedRows,
}

impl RingRows {
    /// Applies changes: replaces or adds the changed rows.
    pub fn apply_changes(&mut self, changes: RingChanges) {
        let RingChanges { ring_version, accounts, keys, damaged, .. } = changes;
        self.ring_version = ring_version;
        let changed: HashSet<&str> = keys.iter().map(|key| key.id.as_str()).collect();
        let changed = |id: &str| changed.contains(id) || damaged.key_digests_by_id.contains_key(id);
        // A key that the store had lost may have been added again under another id.
        let digests: HashSet<[u8; 32]> = keys.iter().map(|key| key.digest).collect();
        self.keys.retain(|key| !changed(&key.id) && !digests.contains(&key.digest));
        self.damaged.key_digests_by_id.retain(|id, _| !changed(id));
        self.keys.extend(keys);
        let changed: HashSet<&str> = accounts.iter().map(|row| row.name.as_str()).collect();
        let changed = |name: &str| changed.contains(name) || damaged.account_names.contains(name);
        self.accounts.retain(|account| !changed(&account.name));
        self.damaged.account_names.retain(|name| !changed(name));
        self.accounts.extend(accounts);
        self.damaged.key_digests_by_id.extend(damaged.key_digests_by_id);
        self.damaged.account_names.extend(damaged.account_names);
    }
}

/// Identifies a store and one version of its keys and accounts. If a store reports one version with
/// two different change ids, the store lost a change and then made another in its place: the two
/// versions belong to different histories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingVersion {
    /// The id of the store, drawn when it was created.
    pub store_id: String,
    /// Grows with every change of keys and accounts.
    pub version: u64,
    /// The random id of the change that led to this version. `None` before the first change, and
    /// after a change by a riskgate version that wrote no change ids.
    pub change_id: Option<String>,
}

/// Keys and accounts that changed after some version.
#[derive(Clone, Debug, Default)]
pub struct RingChanges {
    /// The version that the changes lead to.
    pub ring_version: RingVersion,
    /// The id of the change that led to the version after which the caller asked for changes.
    /// `None` if the store does not know that id.
    pub since_change_id: Option<String>,
    /// The changed accounts.
    pub accounts: Vec<AccountRow>,
    /// The changed keys.
    pub keys: Vec<KeyRow>,
    /// Changed rows that can't be read.
    pub damaged: DamagedRows,
}

impl RingChanges {
    /// Reduces the changes to those of keys and accounts that `rows` has with other values. Revoked
    /// keys that `rows` lacks stay, because the key file may have these keys. The changes then lead
    /// to the version of `rows`.
    pub fn keep_changes_of_known_rows(&mut self, rows: &RingRows) {
        let changed: HashSet<&str> = self.keys.iter().map(|key| key.id.as_str()).collect();
        let known: HashMap<&str, &KeyRow> = rows
            .keys
            .iter()
            .filter(|key| changed.contains(key.id.as_str()))
            .map(|key| (key.id.as_str(), key))
            .collect();
        let differs = |key: &KeyRow| match known.get(key.id.as_str()) {
            Some(known) => *known != key,
            None => key.revoked_at.is_some(),
        };
        let kept: HashSet<String> =
            self.keys.iter().filter(|key| differs(key)).map(|key| key.id.clone()).collect();
        self.keys.retain(|key| kept.contains(&key.id));
        let known: HashMap<&str, &AccountRow> =
            rows.accounts.iter().map(|account| (account.name.as_str(), account)).collect();
        let differs =
            |it: &AccountRow| known.get(it.name.as_str()).is_some_and(|known| *known != it);
        self.accounts.retain(differs);
        self.damaged = DamagedRows::default();
        self.ring_version = rows.ring_version.clone();
    }

    /// Whether no key and no account that can be read has changed.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.accounts.is_empty()
    }

    /// Returns true if the changes continue the known version, in the same store and history.
    pub fn follows(&self, known: &RingVersion) -> bool {
        self.ring_version.store_id == known.store_id
            && self.ring_version.version >= known.version
            && self.since_change_id.is_some()
            && self.since_change_id == known.change_id
    }

    /// Returns true if the changes prove that the store has lost the known version: the store is at
    /// an earlier version, or another change led to this version.
    pub fn prove_loss_of(&self, known: &RingVersion) -> bool {
        self.ring_version.version < known.version
            || self.since_change_id.is_some() && self.since_change_id != known.change_id
    }
}

/// The replacement of a key by a new one.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// The id of the old key in the store.
    pub old_id: String,
    /// The new key.
    pub new_key: KeyRow,
    /// The expiry of the old key in Unix seconds, unless it expires earlier.
    pub old_expires_at: i64,
    /// The current time in Unix seconds.
    pub unix_now: i64,
}

/// The result of `riskgate store repair-month`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonthRepair {
    /// The store's latest month before the repair; `None` if it had none.
    pub latest_month_before: Option<Month>,
    /// How many totals of later months were deleted. An account has one total for each month.
    pub deleted_totals: u64,
}

/// One row of `riskgate usage`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The account.
    pub account: String,
    /// The calls that all nodes have spent.
    pub spent: u64,
    /// The calls that all nodes have leased, spent or not.
    pub leased: u64,
    /// Whether the totals can't be read; `spent` and `leased` are 0 then.
    pub is_damaged: bool,
}

/// The calls of one account, day, route and key: a row of `riskgate usage --daily`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DailyUsageRow {
    /// The account.
    pub account: String,
    /// The day of the month, from 1.
    pub day: u8,
    /// The route, as metrics and the access log name it.
    pub route: String,
    /// The id of the key.
    pub key_id: String,
    /// The calls that all nodes have spent.
    pub calls: u64,
}

impl DailyUsageRow {
    /// The day, such as `2026-11-26`.
    pub fn date(&self, month: Month) -> String {
        format!("{month}-{:02}", self.day)
    }

    /// Renders the row for `riskgate usage --daily --json` and the admin API.
    pub fn to_json(&self, month: Month) -> serde_json::Value {
        serde_json::json!({
            "day": self.date(month), "account": self.account, "route": self.route,
            "key_id": self.key_id, "calls": self.calls,
        })
    }

    /// Returns where this row stands in the order of all rows.
    pub fn cursor(&self) -> DailyUsageCursor {
        (self.account.clone(), self.day, self.route.clone(), self.key_id.clone())
    }
}

/// Where a row of daily usage stands in the order of all rows: its account, day, route and key.
pub type DailyUsageCursor = (String, u8, String, String);

/// What a store remembers of a request that can be repeated without a second effect: the creation
/// or rotation of a key with an `Idempotency-Key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatableRequestRow {
    /// Identifies the request: a digest of the `Idempotency-Key` and the name of the admin token.
    pub id: String,
    /// The digest of what the request asks for.
    pub digest: String,
    /// Random bytes and the prefix of the key; the text of the key was derived from both. Contains
    /// no space.
    pub salt: String,
    /// The id of the key that the request added.
    pub key_id: String,
}

/// A row of the top list, the most frequently flagged domains, as a store keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct TopRow {
    /// The domain of the table's row that the look-ups matched.
    pub domain: String,
    /// The number of look-ups, decayed to the time `at`.
    pub count: f64,
    /// The Unix second for which `count` holds.
    pub at: i64,
    /// Hashes of the first accounts that looked the domain up, at most
    /// [`MAX_TOP_ROW_ACCOUNTS`].
    pub account_hashes: Vec<u64>,
}

impl TopRow {
    /// Returns the row after the credit. `row_before` is `None` for a new row. `new_account_hashes`
    /// are the hashes of the accounts whose look-ups count for the first time that day.
    pub(crate) fn add_lookups(
        row_before: Option<TopRow>,
        credit: &TopCredit,
        new_account_hashes: &[u64],
        half_life_seconds: f64,
    ) -> TopRow {
        let mut row = row_before.unwrap_or_else(|| TopRow {
            domain: credit.domain.clone(),
            count: credit.initial_count,
            at: credit.at,
            account_hashes: Vec::new(),
        });
        row.count = row.count_at(credit.at, half_life_seconds) + new_account_hashes.len() as f64;
        row.at = row.at.max(credit.at);
        for account in new_account_hashes {
            if row.account_hashes.len() < MAX_TOP_ROW_ACCOUNTS
                && !row.account_hashes.contains(account)
            {
                row.account_hashes.push(*account);
            }
        }
        row
    }

    /// The count, decayed to the Unix second `at`. Before the time of the row, nothing has decayed.
    pub fn count_at(&self, at: i64, half_life_seconds: f64) -> f64 {
        self.count * (-(at.saturating_sub(self.at).max(0) as f64) / half_life_seconds).exp2()
    }
}

/// A DNS fact: the mail host that DNS queries found for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsFactRow {
    /// The name.
    pub name: String,
    /// The mail host, or a keyword in its place, as in a list of kind `mx`.
    pub mx: String,
    /// Some addresses of the mail host; empty if riskgate did not look them up or found none.
    pub addresses: Vec<IpAddr>,
    /// When the fact expires, in Unix seconds.
    pub expires_at: i64,
}

impl DnsFactRow {
    /// The text that a store keeps as the mail host: the host, then each address after a space.
    /// Earlier versions of riskgate take the whole text for a host that no list has.
    pub(super) fn format_host_text(&self) -> String {
        let addresses = self.addresses.iter().map(|address| format!(" {address}"));
        std::iter::once(self.mx.clone()).chain(addresses).collect()
    }

    /// Parses a text of [`DnsFactRow::format_host_text`]. Skips a part that is no address.
    pub(super) fn from_host_text(name: String, host_text: &str, expires_at: i64) -> DnsFactRow {
        let (mx, addresses) = host_text.split_once(' ').unwrap_or((host_text, ""));
        let addresses = addresses.split(' ').filter_map(|text| text.parse().ok());
        let addresses = addresses.take(MAX_ADDRESSES_PER_DNS_FACT).collect();
        DnsFactRow { name, mx: mx.to_owned(), addresses, expires_at }
    }
}

/// Look-ups that matched one flagged row of the table, to be added to the top list.
#[derive(Clone, Debug, PartialEq)]
pub struct TopCredit {
    /// The domain of the table's row that the look-ups matched.
    pub domain: String,
    /// The initial count of a new row: the count of the row that was evicted for it, or 0.
    pub initial_count: f64,
    /// The Unix second at which the look-ups count.
    pub at: i64,
    /// For each account that looked the row up: the dedup hash (of account, row and day), and the
    /// hash of the account.
    pub dedup_hashes: Vec<(u64, u64)>,
}
