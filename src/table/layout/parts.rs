//! What a table holds beside its lines, unpacked.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::table::entry::Entry;
use crate::table::inference::InferenceSettings;
use crate::table::mx::MxAnswers;
use crate::table::rules::StoredAnswer;
use crate::table::source_packages::SourcePackage;

/// One list of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListInfo {
    /// The file beside the manifest.
    pub file: String,
    /// Its kind, for disposable lists with the tier.
    pub kind: String,
    /// The source that it was made from, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Rows that were read.
    pub rows: u32,
    /// Rows among them that match nothing: they name an ICANN suffix, or they came by a feed and
    /// are no domains, or would flag what the lists guard.
    pub ignored: u32,
    /// It stands beside the lists of the manifest: the operator's own overrides, or a feed's list.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_added: bool,
}

/// What a table knows of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::table) struct TableMeta {
    pub built_at: i64,
    pub suffix_list_version: String,
    pub rows: u64,
    pub max_changed_share: f64,
    /// When the next override ends, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_override_expiry: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tlds_date: Option<i64>,
    pub allow_flagging: Vec<String>,
    pub seed: Vec<String>,
    #[serde(default)]
    pub inferred: InferenceSettings,
    #[serde(default)]
    pub mx: Vec<MxAnswers>,
    #[serde(default)]
    pub list: Vec<ListInfo>,
    #[serde(default)]
    pub source: Vec<SourcePackage>,
}

/// A checked table: what is small is unpacked, the rest stays in the bytes.
pub(in crate::table) struct DecodedTable {
    pub hash: u128,
    pub hash_key: [u8; 16],
    pub meta: TableMeta,
    pub labels: Vec<String>,
    pub answers: Vec<StoredAnswer>,
    pub entries: Vec<Entry>,
    /// Top-level domains with their flags.
    pub tlds: Vec<(String, u8)>,
    pub buckets: Range<usize>,
    /// For each line where its names begin, as `u32`.
    pub name_offsets: Range<usize>,
    /// The names in the order of their slots, each behind its length.
    pub names: Range<usize>,
}
