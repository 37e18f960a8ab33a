//! The names of all keys on a server. Those that one script touches share a hash tag.

use crate::model::month::Month;

pub(super) const KEYS: &str = "riskgate:{ring}:keys";

pub(super) const DIGESTS: &str = "riskgate:{ring}:digests";

pub(super) const ACCOUNTS: &str = "riskgate:{ring}:accounts";

pub(super) const CHANGES: &str = "riskgate:{ring}:changed";

pub(super) const IMPORTS: &str = "riskgate:{ring}:imports";

/// What all scripts of the ring are given.
pub(super) const RING_KEYS: [&str; 6] = [RING_META, KEYS, DIGESTS, ACCOUNTS, CHANGES, IMPORTS];

pub(super) const READING_KEYS: &str = "reading the keys";

/// Which store it is, and the version of its keys and accounts.
pub(super) const RING_META: &str = "riskgate:{ring}:meta";

pub(super) const RECOVERING_KEY: &str = "riskgate:{ring}:recovering";

/// Numbers of a month are kept for so long from its first call on, in seconds: a server's clock
/// that is wrong for a while, and not by a year, throws none away that are in use.
pub(super) const LEDGER_TTL: i64 = 400 * 86_400;

/// What all numbers' names begin with.
pub(super) const LEDGER_PREFIX: &str = "riskgate:ledger:{";

/// The month's numbers of an account. The braces make both keys of an account fall together.
pub(super) fn ledger_key(account: &str, month: Month) -> String {
    format!("{LEDGER_PREFIX}{account}}}:{month}")
}

pub(super) fn recovering_key(account: &str, month: Month) -> String {
    format!("riskgate:recovering:{{{account}}}:{month}")
}

pub(super) const TOP_KEY: &str = "riskgate:{top}:rows";

/// What an import changes of accounts that are there already, when it is committed.
pub(super) fn plans_key(import: &str) -> String {
    format!("riskgate:{{ring}}:plans:{import}")
}
