//! The names of the Redis keys that several files use.

use crate::model::month::Month;

/// The prefix of the Redis keys that are in the hash slot of the keys and accounts.
pub(super) const RING_PREFIX: &str = "riskgate:{ring}:";

/// A hash: the rows of API keys by id.
pub(super) const API_KEYS: &str = "riskgate:{ring}:keys";

/// A hash: the ids of API keys by digest in hexadecimal.
pub(super) const DIGESTS: &str = "riskgate:{ring}:digests";

/// A hash: the rows of accounts by name.
pub(super) const ACCOUNTS: &str = "riskgate:{ring}:accounts";

/// A sorted set with a member for each key and account. The score is the version at which the key
/// or account last changed. If it has not changed since an import added it, the score is the
/// negated number of the import.
pub(super) const CHANGES: &str = "riskgate:{ring}:changed";

/// A hash: the state of each import by its id, see `ring_common.lua`.
pub(super) const IMPORTS: &str = "riskgate:{ring}:imports";

/// A stream: the records of the audit.
pub(super) const AUDIT: &str = "riskgate:{ring}:audit";

/// A hash: the latest state of each source by its subject.
pub(super) const SOURCE_STATES: &str = "riskgate:{ring}:sources";

/// A hash: the operator's overrides, see `overrides_common.lua`.
pub(super) const OVERRIDES: &str = "riskgate:{ring}:overrides";

/// The Redis keys that the scripts which change keys and accounts get first, in this order.
pub(super) const RING_REDIS_KEYS: [&str; 7] =
    [RING_META_KEY, API_KEYS, DIGESTS, ACCOUNTS, CHANGES, IMPORTS, AUDIT];

/// The Redis key that every script of the ring gets after its own ones. Nothing has this name: the
/// scripts prove with it that the user has the rights to a change.
pub(super) const UNUSED_RING_KEY: &str = "riskgate:{ring}:audit:none";

/// The operation in errors about reading keys and accounts.
pub(super) const READ_RING_OPERATION: &str = "reading the keys";

/// A hash: the store id, the versions of the ring and of the overrides, the ids of their latest
/// changes, the number of imports, the latest month, and the believed time of a gateway. Its other
/// fields show a probe whether the server was restarted or emptied.
pub(super) const RING_META_KEY: &str = "riskgate:{ring}:meta";

/// Written before riskgate counts the replicas that have restored rows, so that there is a write to
/// count.
pub(super) const REPLICATED_KEY: &str = "riskgate:{ring}:replicated";

/// Exists while all accounts recover from a data loss.
pub(super) const ALL_RECOVERING_KEY: &str = "riskgate:{ring}:recovering";

/// For how many seconds a server keeps an account's totals of a month after the first report about
/// them. This is more than a year, so no totals in use expire while the server's clock is wrong by
/// less than a year. A report after the end of the month shortens the time: see
/// `PAST_MONTH_TTL_SECONDS`.
pub(super) const LEDGER_TTL_SECONDS: i64 = 400 * 86_400;

/// The prefix of the Redis keys of all totals.
pub(super) const LEDGER_PREFIX: &str = "riskgate:ledger:{";

/// The Redis key of an account's totals of a month. Because of the braces, this Redis key is in the
/// same hash slot as [`account_recovering_key`] of the same account.
pub(super) fn ledger_key(account: &str, month: Month) -> String {
    format!("{LEDGER_PREFIX}{account}}}:{month}")
}

/// The Redis key that exists while one account's totals of a month recover from a data loss.
pub(super) fn account_recovering_key(account: &str, month: Month) -> String {
    format!("riskgate:recovering:{{{account}}}:{month}")
}

/// A hash: the rows of the top list by domain.
pub(super) const TOP_ROWS_KEY: &str = "riskgate:{top}:rows";

/// A hash: the requests that can be repeated, by their ids.
pub(super) const REPEATABLE_REQUESTS: &str = "riskgate:{ring}:requests";

/// How many seconds a server keeps a month's usage by day after the latest report about this month.
/// That suffices for the month itself and the
/// [`KEPT_PAST_MONTHS`](crate::store::rows::KEPT_PAST_MONTHS) months after it.
pub(super) const DAILY_USAGE_TTL_SECONDS: i64 = 430 * 86_400;

/// The prefix of all Redis keys of usage by day.
pub(super) const DAILY_USAGE_PREFIX: &str = "riskgate:usage:{";

/// The name of a hash: an account's calls of a month by day, route, node and key. Because of the
/// braces, this Redis key is in the same hash slot as [`ledger_key`] of the same account.
pub(super) fn daily_usage_key(account: &str, month: Month) -> String {
    format!("{DAILY_USAGE_PREFIX}{account}}}:{month}")
}
