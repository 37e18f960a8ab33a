//! The table of e-mail domains: what riskgate knows, and the one way to ask it.
//!
//! Built in memory from a folder of lists, or read from a compiled file; both are the same
//! bytes, looked up in place by the same code. Immutable, whole or not at all. It never asks the
//! DNS, never reads the clock, and never changes while it serves. What follows from the MX host of a
//! name without a row it says to who has asked the DNS.

mod additions;
mod answer;
mod buckets;
mod build;
mod carried;
mod csv;
mod disk;
mod entry;
mod fault;
mod guard;
mod infer;
mod inheritance;
mod layout;
mod lists;
mod lookup;
mod manifest;
mod mx;
mod mx_lookup;
mod override_file;
mod packages;
mod records;
mod resolve;
mod rows;
mod rules;
mod source;
mod table_data;
mod tlds;

pub use self::additions::{FeedKind, FeedList, FeedTier, TableSources};
pub use self::answer::{Explanation, Found, Row};
pub use self::fault::{Fault, TableError};
pub use self::guard::LONG_LIST;
pub use self::layout::parts::ListInfo;
pub use self::mx::OWN_ADDRESSES;
pub use self::override_file::{NewOverride, OverrideFile, Word};
pub use self::packages::{SourceInfo, is_day};
pub use self::source::Source;
pub use self::table_data::Table;

#[cfg(test)]
mod tests;
