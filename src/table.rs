//! The table of e-mail domains: what riskgate knows, and the one way to ask it.
//!
//! Built in memory from a directory of lists, or read from a compiled file; both are the same
//! bytes, looked up in place by the same code. Immutable, whole or not at all. It never asks the
//! DNS, never reads the clock, and never changes while it serves. What follows from the MX host of a
//! name without a row it says to who has asked the DNS.

mod added_lists;
mod aligned_bytes;
mod answer;
mod buckets;
mod build;
mod csv;
mod csv_lists;
mod embedded_lists;
mod entry;
mod fault;
mod inference;
mod inheritance;
mod layout;
mod lists;
mod location;
mod lookup;
mod manifest;
mod mx;
mod mx_lookup;
mod override_file;
mod resolve;
mod rows;
mod rules;
mod source_packages;
mod succession;
mod table_data;
mod tlds;

pub use self::added_lists::{FeedKind, FeedList, FeedTier, TableInputs};
pub use self::answer::{Explanation, ListRow, Lookup};
pub use self::fault::{TableError, TableFault};
pub use self::layout::parts::ListInfo;
pub use self::location::TableLocation;
pub use self::mx::IMPLICIT_MX;
pub use self::override_file::{NewOverride, OverrideAction, OverrideFile};
pub use self::source_packages::SourcePackage;
pub use self::succession::MIN_ROWS_TO_GUARD;
pub use self::table_data::Table;

#[cfg(test)]
mod tests;
