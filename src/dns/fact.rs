//! Until when a learned fact counts, and what it does to a verdict.

use crate::table::Found;

/// A fact that flags nothing counts for so many seconds past its end, while no new answer comes.
const STALE: i64 = 86_400;

/// Whether anything of a learned row may count at a moment, in seconds since 1970.
pub(super) fn is_usable_at(until: i64, now: i64) -> bool {
    now < until.saturating_add(STALE)
}

/// What a table says of a name together with a learned fact; `None` if the fact counts no longer.
///
/// A fact that flags the name counts until its end and no longer, even while no resolver answers:
/// the name may have been registered since, and our failure must not lock its users out.
pub fn apply_fact<'t>(found: Found<'t>, mx: &str, until: i64, now: i64) -> Option<Found<'t>> {
    let applied = found.apply_mx(mx);
    let counts = now < until || is_usable_at(until, now) && !applied.is_flagged_by_learned_fact();
    counts.then_some(applied)
}
