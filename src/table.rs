//! The table of e-mail domains: what riskgate knows about them, and the look-up.
//!
//! riskgate builds a table in memory from the lists inside the binary or in a directory, or reads
//! it from a compiled file. All tables have the same byte layout, and a look-up reads the bytes in
//! place. A table is immutable. If the manifest, one of its lists or the overrides have a fault,
//! riskgate makes no table of them. A table sends no DNS queries and reads no clock: `dns` finds
//! the MX host of an unlisted name, and the table then gives the answer for this host.

mod added_lists;
mod aligned_bytes;
mod answer;
mod buckets;
mod build;
mod bulk_names;
mod csv;
mod csv_lists;
mod embedded_lists;
mod entry;
mod evidence;
mod fault;
mod inheritance;
mod keep_lists;
mod kept_lists;
mod layout;
mod list_days;
mod lists;
mod location;
mod look_alikes;
mod lookup;
mod manifest;
mod mx;
mod mx_lookup;
mod override_list_row;
mod override_rows;
mod parent_promotion;
mod resolve;
mod rows;
mod rules;
mod seen_days;
mod similar_names;
mod slip;
mod source_packages;
mod succession;
mod table_data;
mod tlds;
mod unlisted_rules;

pub use self::added_lists::{
    FeedKind, FeedList, FeedTier, STORED_OVERRIDES_LIST_NAME, TableInputs,
};
pub use self::answer::{AnswerOrigin, TableAnswer, TableRow};
pub use self::fault::{TableFault, TableFaults, quote_excerpt};
pub use self::kept_lists::KeptLists;
pub use self::layout::parts::ListInfo;
pub use self::location::{TableLocation, read_list_file};
pub use self::mx::IMPLICIT_MX;
pub use self::override_list_row::OverrideListRow;
pub use self::override_rows::{
    InvalidOverride, NewOverride, OverrideAction, parse_override_rows, render_override_list,
};
pub use self::source_packages::SourcePackage;
pub use self::succession::MIN_ROWS_FOR_CHANGE_CHECK;
pub use self::table_data::Table;

#[cfg(test)]
mod tests;
