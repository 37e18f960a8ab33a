//! What the DNS says of names that no list has: asked in the background, kept, shared by nodes.
//!
//! Owns the questions, how answers are read, the bounded memory of what was learned and of what is
//! wanted, and what the store keeps of it. No request waits for any of this. What an answer does to
//! a verdict, and that it yields to every list, is decided by the table; when and on which thread
//! names are asked, by whoever calls.

mod cache;
mod client;
mod fact;
mod finding;
mod options;
mod pacer;
mod queries;
mod status;
mod sync;

pub use cache::LearnedCache;
pub use client::DnsClient;
pub use fact::apply_fact;
pub use finding::DnsFinding;
pub use options::DnsOptions;
pub use pacer::Pacer;
pub use queries::QueryTasks;
pub use status::DnsStatus;
pub use sync::LearnedSync;
