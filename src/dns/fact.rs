//! How long a learned fact counts, and how it changes an answer.

use std::net::IpAddr;

use crate::table::TableAnswer;

/// A fact that does not flag the name counts for this time after its expiry, unless a new answer
/// replaces it earlier.
const MAX_STALE_SECONDS: i64 = 86_400;

/// Returns true unless the fact expired a day ago or earlier. Both times are in seconds since 1970.
/// A fact that flags its name stops counting earlier; see [`apply_fact_if_usable`].
pub(super) fn is_before_stale_limit(expires_at: i64, now: i64) -> bool {
    now < stale_limit(expires_at)
}

/// When a fact ends that does not flag its name, in seconds since 1970.
pub(super) fn stale_limit(expires_at: i64) -> i64 {
    expires_at.saturating_add(MAX_STALE_SECONDS)
}

/// The latest expiry of facts that have ended, whatever they say. The store deletes these facts.
/// Both times are in seconds since 1970.
pub fn latest_useless_expiry(now: i64) -> i64 {
    now.saturating_sub(MAX_STALE_SECONDS)
}

/// Applies a learned fact to a table's answer; `None` if the fact no longer counts.
/// `may_be_used_by_real_names` returns true for an address of an MX host that real names use too,
/// or may use as far as riskgate knows.
///
/// A fact that flags the name counts only until it expires, even while no resolver answers. The
/// name may have been registered since then, and an outage of the resolvers must not lock out the
/// users of the name.
pub fn apply_fact_if_usable<'t>(
    answer: TableAnswer<'t>,
    (mx, addresses): (&str, &[IpAddr]),
    expires_at: i64,
    now: i64,
    may_be_used_by_real_names: impl Fn(IpAddr) -> bool,
) -> Option<TableAnswer<'t>> {
    let applied = answer.apply_mx_fact(mx).apply_mx_addresses(addresses, may_be_used_by_real_names);
    let still_counts = now < expires_at
        || is_before_stale_limit(expires_at, now) && !applied.is_unsafe_by_learned_fact();
    still_counts.then_some(applied)
}

#[cfg(test)]
mod tests;
