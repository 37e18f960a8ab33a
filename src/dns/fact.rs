//! How long a learned fact counts, and how it changes an answer.

use crate::table::Lookup;

/// A fact that does not flag the name counts this long after its expiry, until a new answer comes.
const MAX_STALE_SECONDS: i64 = 86_400;

/// Whether a learned fact may still count. Both times are in seconds since 1970.
pub(super) fn is_usable_at(expires_at: i64, now: i64) -> bool {
    now < expires_at.saturating_add(MAX_STALE_SECONDS)
}

/// Applies a learned fact to a table's answer; `None` if the fact no longer counts.
///
/// A fact that flags the name counts only until it expires, even while no resolver answers. The
/// name may have been registered since then, and an outage must not lock its users out.
pub fn apply_fact<'t>(
    found: Lookup<'t>,
    mx: &str,
    expires_at: i64,
    now: i64,
) -> Option<Lookup<'t>> {
    let applied = found.apply_mx(mx);
    let is_valid =
        now < expires_at || is_usable_at(expires_at, now) && !applied.is_flagged_by_learned_fact();
    is_valid.then_some(applied)
}
