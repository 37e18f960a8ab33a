//! The names of all keys on a server. The keys that one script touches share a hash tag.

use crate::model::month::Month;

pub(super) const KEYS: &str = "riskgate:{ring}:keys";

pub(super) const DIGESTS: &str = "riskgate:{ring}:digests";

pub(super) const ACCOUNTS: &str = "riskgate:{ring}:accounts";

pub(super) const CHANGES: &str = "riskgate:{ring}:changed";

pub(super) const IMPORTS: &str = "riskgate:{ring}:imports";

/// The keys that every script of the ring gets.
pub(super) const RING_KEYS: [&str; 6] = [RING_META, KEYS, DIGESTS, ACCOUNTS, CHANGES, IMPORTS];

pub(super) const READING_KEYS: &str = "reading the keys";

/// The store id, and the version of its keys and accounts.
pub(super) const RING_META: &str = "riskgate:{ring}:meta";

pub(super) const RECOVERING_KEY: &str = "riskgate:{ring}:recovering";

/// How long the totals of a month are kept from its first call on, in seconds. A server clock that
/// is wrong by less than a year expires no totals in use.
pub(super) const LEDGER_TTL: i64 = 400 * 86_400;

/// The prefix of all ledger keys.
pub(super) const LEDGER_PREFIX: &str = "riskgate:ledger:{";

/// The key of an account's totals of a month. Because of the braces, both keys of an account have
/// the same hash slot.
pub(super) fn ledger_key(account: &str, month: Month) -> String {
    format!("{LEDGER_PREFIX}{account}}}:{month}")
}

pub(super) fn recovering_key(account: &str, month: Month) -> String {
    format!("riskgate:recovering:{{{account}}}:{month}")
}

pub(super) const TOP_KEY: &str = "riskgate:{top}:rows";

/// The key of the plans that an import gives to existing accounts when it is committed.
pub(super) fn plans_key(import: &str) -> String {
    format!("riskgate:{{ring}}:plans:{import}")
}
