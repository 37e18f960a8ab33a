//! The names of all keys on a server. Those that one script touches share a hash tag.

use crate::model::month::Month;

pub(super) const ROWS: &str = "riskgate:{ring}:keys";

pub(super) const DIGESTS: &str = "riskgate:{ring}:digests";

pub(super) const ACCOUNTS: &str = "riskgate:{ring}:accounts";

pub(super) const CHANGED: &str = "riskgate:{ring}:changed";

pub(super) const IMPORTS: &str = "riskgate:{ring}:imports";

/// What all scripts of the ring are given.
pub(super) const RING: [&str; 6] = [MARK, ROWS, DIGESTS, ACCOUNTS, CHANGED, IMPORTS];

pub(super) const READING: &str = "reading the keys";

/// Which store it is, and the version of its keys and accounts.
pub(super) const MARK: &str = "riskgate:{ring}:mark";

pub(super) const SETTLING: &str = "riskgate:{ring}:settling";

/// Numbers of a month are kept for so long from its first call on, in seconds: a server's clock
/// that is wrong for a while, and not by a year, throws none away that are in use.
pub(super) const KEPT_FOR: i64 = 400 * 86_400;

/// What all numbers' names begin with.
pub(super) const LEDGER: &str = "riskgate:ledger:{";

/// The month's numbers of an account. The braces make both keys of an account fall together.
pub(super) fn numbers_key(account: &str, month: Month) -> String {
    format!("{LEDGER}{account}}}:{month}")
}

pub(super) fn settling_key(account: &str, month: Month) -> String {
    format!("riskgate:settling:{{{account}}}:{month}")
}

pub(super) const TOP: &str = "riskgate:{top}:rows";

/// What an import changes of accounts that are there already, when it is committed.
pub(super) fn plans_name(import: &str) -> String {
    format!("riskgate:{{ring}}:plans:{import}")
}
