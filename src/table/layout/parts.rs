//! The parts of a checked table: its small sections are decoded; its buckets and names are ranges
//! of its bytes.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::table::entry::NameEntry;
use crate::table::mx::{MxAddressAnswer, MxSuffixAnswerIndexes};
use crate::table::rules::StoredAnswer;
use crate::table::source_packages::SourcePackage;
use crate::table::unlisted_rules::UnlistedRuleSettings;

/// One list of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListInfo {
    /// The list's file name. For the operator's file of overrides, its path. For the overrides of
    /// the store, [`STORED_OVERRIDES_LIST_NAME`](crate::table::STORED_OVERRIDES_LIST_NAME). For a
    /// feed's list, `feed` and the feed's name.
    pub file: String,
    /// The list's kind, for disposable lists with the tier.
    pub kind: String,
    /// The source that the list was made from, if the manifest names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The number of rows.
    pub rows: u32,
    /// The number of ignored rows. A row is ignored if it names an ICANN suffix that a list of its
    /// kind can't cover. A row of a feed is ignored as well if it is no valid name, or if it must
    /// not change the name's answer.
    pub ignored: u32,
    /// Whether the list is not in the manifest: it has the operator's overrides, or is a feed's
    /// list.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_added: bool,
}

/// The metadata of a table, stored as TOML.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::table) struct TableMeta {
    /// When the table was compiled, in seconds since 1970. For a table that was not compiled, the
    /// day of its youngest source.
    pub built_at: i64,
    pub suffix_list_version: String,
    /// The number of names with a row.
    pub rows: u64,
    /// The share of rows that this table may add and remove together when it replaces another
    /// table, from 0 to 1.
    pub max_changed_share: f64,
    /// When the next override expires, in seconds since 1970; `None` if none expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_override_expiry: Option<i64>,
    /// The date of the list of top-level domains, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tlds_date: Option<i64>,
    /// Protected names that a list may flag.
    pub allow_flagging: Vec<String>,
    /// The initial order of the top list.
    pub seed: Vec<String>,
    /// Warnings about overrides with a reason and without a score, for whose names the lists and
    /// rules have a score that contradicts the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubtful_override: Vec<String>,
    /// The settings of the rules for unlisted names.
    #[serde(default)]
    pub inferred: UnlistedRuleSettings,
    #[serde(default)]
    pub mx: Vec<MxSuffixAnswerIndexes>,
    /// Sorted by address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mx_address: Vec<MxAddressAnswer>,
    #[serde(default)]
    pub list: Vec<ListInfo>,
    #[serde(default)]
    pub source: Vec<SourcePackage>,
}

/// A checked table: small sections are decoded, large sections are ranges of the bytes.
pub(in crate::table) struct DecodedTable {
    pub content_hash: u128,
    pub hash_key: [u8; 16],
    pub meta: TableMeta,
    pub labels: Vec<String>,
    pub answers: Vec<StoredAnswer>,
    pub entries: Vec<NameEntry>,
    /// Top-level domains with their flags.
    pub tld_flags: Vec<(String, u8)>,
    pub bucket_range: Range<usize>,
    /// For each bucket the offset of its names, as `u32`.
    pub name_offset_range: Range<usize>,
    /// The names in the order of their slots, each prefixed with its length.
    pub name_range: Range<usize>,
}
