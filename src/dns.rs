//! Learns DNS facts about names in no list: in the background, cached, shared between nodes.
//!
//! Owns the DNS queries, the interpretation of the DNS answers, the bounded cache of facts, the
//! bounded queue of names to resolve, and the exchange of facts with the store. No request waits
//! for any of these. This module decides how long a fact counts. `table` decides how a fact changes
//! a verdict, and which verdicts no fact changes. `process/reload` decides when names are resolved,
//! and on which thread.

mod cache;
mod client;
mod fact;
mod finding;
mod held_findings;
mod options;
mod pacer;
mod queries;
mod shared_addresses;
mod status;
mod sync;

pub use cache::DnsFactCache;
pub use client::DnsClient;
pub use fact::{apply_fact_if_usable, latest_useless_expiry};
pub use finding::DnsFinding;
pub use held_findings::{HeldFindings, MAX_HELD_FINDINGS};
pub use options::DnsOptions;
pub use pacer::Pacer;
pub use queries::NameQueryTasks;
pub use shared_addresses::find_shared_addresses_in_store;
pub use status::DnsStatus;
pub use sync::DnsFactSync;
