//! What the DNS says of names that no list has: asked in the background, kept, shared by nodes.
//!
//! Owns the questions, how answers are read, the bounded memory of what was learned and of what is
//! wanted, and what the store keeps of it. No request waits for any of this. What an answer does to
//! a verdict, and that it yields to every list, is decided by the table; when and on which thread
//! names are asked, by whoever calls.

mod cache;
mod client;
mod finding;
mod pacer;
mod queries;
mod sync;

use std::net::SocketAddr;

use crate::model::month::rfc3339;
use crate::table::Found;

pub use cache::LearnedCache;
pub use client::DnsClient;
pub use finding::DnsFinding;
pub use pacer::Pacer;
pub use queries::Queries;
pub use sync::LearnedSync;

/// A fact that flags nothing counts for so many seconds past its end, while no new answer comes.
const STALE: i64 = 86_400;

/// How the DNS is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsOptions {
    /// Whether names that no list has are asked in the background.
    pub learn: bool,
    /// Whom to ask; without any, those of the system.
    pub resolvers: Vec<SocketAddr>,
    /// Questions in a second.
    pub rate: u32,
    /// Names that are asked at the same time.
    pub concurrency: usize,
}

/// Whether anything of a learned row may count at a moment, in seconds since 1970.
fn is_usable_at(until: i64, now: i64) -> bool {
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

/// How the learning stands.
#[derive(Clone, Debug, Default)]
pub struct DnsStatus {
    /// Whether names are asked.
    pub is_learning: bool,
    /// Names of which something is known.
    pub known: usize,
    /// Names that wait to be asked.
    pub queue: usize,
    /// Names that were not taken, since too many waited.
    pub dropped: u64,
    /// When a resolver answered last, in seconds since 1970.
    pub answered_at: Option<i64>,
    /// Why nothing is learned, or not shared.
    pub problem: Option<String>,
}

impl DnsStatus {
    /// As JSON, for people and programs; moments in RFC 3339.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "learning": self.is_learning,
            "known": self.known,
            "queue": self.queue,
            "dropped": self.dropped,
            "answered_at": self.answered_at.map(rfc3339),
            "problem": self.problem,
        })
    }
}
