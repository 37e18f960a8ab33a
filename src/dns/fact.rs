//! Until when a learned fact counts, and what it does to a verdict.

use crate::table::Lookup;

/// A fact that flags nothing counts for so many seconds past its end, while no new answer comes.
const MAX_STALE_SECONDS: i64 = 86_400;

/// Whether anything of a learned row may count at a moment, in seconds since 1970.
pub(super) fn is_usable_at(expires_at: i64, now: i64) -> bool {
    now < expires_at.saturating_add(MAX_STALE_SECONDS)
}

/// What a table says of a name together with a learned fact; `None` if the fact counts no longer.
///
/// A fact that flags the name counts until its end and no longer, even while no resolver answers:
/// the name may have been registered since, and our failure must not lock its users out.
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
