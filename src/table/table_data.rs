//! The table: its bytes, how it is loaded and compiled, and its version, sources and counts.

use std::path::Path;

use super::added_lists::TableInputs;
use super::aligned_bytes::{self, AlignedBytes};
use super::buckets;
use super::build;
use super::embedded_lists;
use super::fault::{TableError, TableFault};
use super::layout::parts::{DecodedTable, ListInfo};
use super::layout::sections::LengthPrefixedTexts;
use super::layout::{decode, encode};
use super::location::{SourceFiles, TableLocation};
use super::manifest::{ListKind, MAX_TLD_LIST_AGE_DAYS};
use super::mx::MxAnswerMap;
use super::rules::StoredAnswer;
use super::source_packages::{SECONDS_PER_DAY, SourcePackage};
use super::tlds::TldFlags;
use super::unlisted_rules::UnlistedRules;
use crate::model::domain::suffix_list_version;
use crate::model::verdict::{Reason, Rule, Verdict};

/// A table of e-mail domains.
pub struct Table {
    pub(super) bytes: AlignedBytes,
    pub(super) decoded: DecodedTable,
    /// For each answer, the part of the public answer's JSON that follows the domain.
    pub(super) json_tails: Vec<String>,
    pub(super) tlds: TldFlags,
    /// The rules for names without a row.
    pub(super) unlisted_rules: UnlistedRules,
    /// The answers by MX host for names without a row.
    pub(super) mx_answers: MxAnswerMap,
    pub(super) version: String,
    /// Whether the table was built with another public suffix list than that of this binary. If so,
    /// a look-up can't rely on `Entry::has_rows_below` and probes every parent.
    pub(super) has_other_suffix_list: bool,
    /// For each entry, how many names have it.
    pub(super) names_per_entry: Vec<u32>,
    /// For each answer, whether the rules for unlisted names take precedence over it.
    pub(super) yields_to_unlisted_rules: Vec<bool>,
}

impl Table {
    /// Loads a table, or returns the faults. riskgate builds it from the bundled lists or from a
    /// directory, or reads and checks a compiled file. No clock is read: no override expires.
    pub fn load(location: &TableLocation) -> Result<Table, TableError> {
        Table::build(&TableInputs::from_base(location.clone()), i64::MIN)
    }

    /// Builds a table with the added overrides and feeds, or returns the faults. They can be added
    /// to a compiled file only if it carries its lists, as a file of [`Table::compile`] does.
    /// Overrides that have expired at `now`, in seconds since 1970, are ignored.
    pub fn build(inputs: &TableInputs, now: i64) -> Result<Table, TableError> {
        let added_lists = inputs.read_added_lists()?;
        let build_table = |source_files: &SourceFiles, display_name: &str| {
            Table::from_bytes(
                build::build_table(
                    source_files,
                    &added_lists,
                    now,
                    build::ListTextsInTable::Omitted,
                )?,
                display_name,
            )
        };
        match &inputs.location {
            TableLocation::Bundled => build_table(&SourceFiles::Bundled, "the bundled table"),
            TableLocation::Path(path) if path.is_dir() => {
                build_table(&SourceFiles::Directory(path), &path.display().to_string())
            }
            TableLocation::Path(path) => {
                let display_name = path.display().to_string();
                let compiled =
                    Table::from_bytes(aligned_bytes::read_compiled(path)?, &display_name)?;
                let has_expired = compiled.next_override_expiry().is_some_and(|end| end <= now);
                if added_lists.is_empty() && !has_expired {
                    return Ok(compiled);
                }
                let embedded = embedded_lists::decode_lists(&compiled.bytes, &display_name)?;
                if embedded.is_empty() {
                    let expected = "a compiled table that carries its lists, so that overrides and \
                                    feeds can be added (`riskgate table build` makes one)";
                    return Err(
                        TableFault::expected(display_name, expected, "one without them").into()
                    );
                }
                build_table(&SourceFiles::Compiled(path, embedded), &display_name)?
                    .with_built_at(compiled.built_at())
            }
        }
    }

    /// Compiles a table for writing: with the texts of its lists, and with the compilation time
    /// `built_at`, in seconds since 1970.
    pub fn compile(location: &TableLocation, built_at: i64) -> Result<Table, TableError> {
        let build_table = |source_files: &SourceFiles, display_name: &str| {
            Table::from_bytes(
                build::build_table(source_files, &[], built_at, build::ListTextsInTable::Embedded)?,
                display_name,
            )
        };
        let table = match location {
            TableLocation::Bundled => build_table(&SourceFiles::Bundled, "the bundled table")?,
            TableLocation::Path(path) if path.is_dir() => {
                build_table(&SourceFiles::Directory(path), &path.display().to_string())?
            }
            TableLocation::Path(_) => Table::load(location)?,
        };
        table.with_built_at(built_at)
    }

    pub(super) fn from_bytes(bytes: AlignedBytes, display_name: &str) -> Result<Table, TableError> {
        let parts = decode::decode_table(&bytes, display_name)?;
        let json_tails = parts
            .answers
            .iter()
            .map(|answer| answer.verdict.render_json_tail(label_of_answer(&parts, answer)))
            .collect();
        let tlds = TldFlags::new(&parts.tlds);
        let version = format!("{:012x}", parts.hash >> 80);
        let needs_full_walk = parts.meta.suffix_list_version != suffix_list_version();
        let row_counts = vec![0; parts.entries.len()];
        let unlisted_rules = UnlistedRules::new(&parts.meta.inferred);
        let mx = MxAnswerMap::new(&parts.meta.mx);
        let defers_to_rules = find_yielding_answers(&parts);
        let mut table = Table {
            bytes,
            decoded: parts,
            json_tails,
            tlds,
            unlisted_rules,
            mx_answers: mx,
            version,
            has_other_suffix_list: needs_full_walk,
            names_per_entry: row_counts,
            yields_to_unlisted_rules: defers_to_rules,
        };
        let mut row_counts = std::mem::take(&mut table.names_per_entry);
        table.iter_entries().for_each(|(_, number)| row_counts[number] += 1);
        table.names_per_entry = row_counts;
        Ok(table)
    }

    /// The names of a bucket, in the order of its slots.
    pub(super) fn names_in_bucket(&self, bucket: usize) -> LengthPrefixedTexts<'_> {
        let all = self.bytes.as_slice();
        let start = all[self.decoded.name_offsets.clone()]
            .get(4 * bucket..)
            .and_then(|bytes| bytes.first_chunk())
            .map_or(usize::MAX, |bytes| u32::from_le_bytes(*bytes) as usize);
        LengthPrefixedTexts {
            rest: all[self.decoded.names.clone()].get(start..).unwrap_or_default(),
        }
    }

    /// Every name of the table, with the index of its entry.
    pub(super) fn iter_entries(&self) -> impl Iterator<Item = (&str, usize)> {
        let (all_buckets, _) = self.bytes.as_slice()[self.decoded.buckets.clone()]
            .as_chunks::<{ buckets::BUCKET_BYTES }>();
        all_buckets.iter().enumerate().flat_map(|(number, bucket)| {
            let values = (0..buckets::SLOTS_PER_BUCKET)
                .map(|slot| usize::from(buckets::slot_value(bucket, slot)));
            self.names_in_bucket(number)
                .zip(values.take_while(|value| *value != 0))
                .filter_map(|(text, value)| Some((std::str::from_utf8(text?).ok()?, value - 1)))
        })
    }

    /// The table's version: a short hash of everything that the table was built from.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// When the table was compiled, in seconds since 1970. For a table that was built at start, the
    /// day of its youngest source.
    pub fn built_at(&self) -> i64 {
        self.decoded.meta.built_at
    }

    /// When the next override expires, in seconds since 1970. The table should then be built again.
    pub fn next_override_expiry(&self) -> Option<i64> {
        self.decoded.meta.next_override_expiry
    }

    /// The same table with this compilation time, in seconds since 1970.
    pub fn with_built_at(mut self, built_at: i64) -> Result<Table, TableError> {
        self.decoded.meta.built_at = built_at;
        let bytes = encode::replace_meta(&self.bytes, &self.decoded)?;
        Table::from_bytes(bytes, "the stamped table")
    }

    /// The number of names with a row.
    pub fn row_count(&self) -> usize {
        self.row_counts_by_rule().iter().map(|(_, _, rows)| rows).sum()
    }

    /// The number of rows by reason and deciding rule.
    pub fn row_counts_by_rule(&self) -> Vec<(Reason, Rule, usize)> {
        let mut classes: Vec<(Reason, Rule, usize)> = Vec::new();
        for (entry, row_count) in self.decoded.entries.iter().zip(&self.names_per_entry) {
            let Some(answer) = self.decoded.answers.get(usize::from(entry.own_answer)) else {
                continue;
            };
            let Verdict { reason, rule, .. } = answer.verdict;
            match classes.iter_mut().find(|class| (class.0, class.1) == (reason, rule)) {
                Some(class) => class.2 += *row_count as usize,
                None => classes.push((reason, rule, *row_count as usize)),
            }
        }
        classes.sort_by_key(|(reason, rule, _)| (*rule, *reason as u8));
        classes
    }

    /// The packages that the lists were made from.
    pub fn sources(&self) -> &[SourcePackage] {
        &self.decoded.meta.source
    }

    /// The lists, in the order of the manifest.
    pub fn lists(&self) -> &[ListInfo] {
        &self.decoded.meta.list
    }

    /// The initial order of the top list: names that the table flags, best known first.
    pub fn seed(&self) -> &[String] {
        &self.decoded.meta.seed
    }

    /// Warnings for the operator. `now` is in seconds since 1970.
    pub fn warnings(&self, now: i64) -> Vec<String> {
        let mut warnings = Vec::new();
        match self.decoded.meta.tlds_date {
            None => warnings.push(
                "no list of top-level domains: names below one that does not exist count as \
                 unknown domains"
                    .to_owned(),
            ),
            Some(date) if now >= date.saturating_add(MAX_TLD_LIST_AGE_DAYS * SECONDS_PER_DAY) => {
                warnings.push(format!(
                    "the list of top-level domains is {} days old, over {MAX_TLD_LIST_AGE_DAYS}: \
                     names below one that does not exist count as unknown domains",
                    now.saturating_sub(date) / SECONDS_PER_DAY
                ));
            }
            Some(_) => {}
        }
        if self.has_other_suffix_list {
            warnings.push(format!(
                "compiled with the public suffixes of {}, read with those of {}: look-ups take \
                 longer",
                self.decoded.meta.suffix_list_version,
                suffix_list_version()
            ));
        }
        warnings
    }

    /// Writes the compiled table atomically.
    pub fn write_to(&self, path: &Path) -> Result<(), TableError> {
        aligned_bytes::write_file(path, self.bytes.as_slice()).map_err(TableError::from)
    }
}

/// For each answer, whether the rules for unlisted names take precedence: no rule decided the
/// answer, it has no label, and no list says that the name is real.
fn find_yielding_answers(parts: &DecodedTable) -> Vec<bool> {
    let is_known_list = |list: &ListInfo| list.kind == ListKind::Known.as_str();
    let real_name_lists = (0..).zip(&parts.meta.list).filter(|(_, list)| is_known_list(list));
    let real_name_lists = real_name_lists.fold(0u64, |lists, (number, _)| lists | 1 << number);
    let has_no_facts = |answer: &StoredAnswer| {
        answer.verdict.rule == Rule::Unknown
            && answer.label == 0
            && answer.lists & real_name_lists == 0
    };
    parts.answers.iter().map(has_no_facts).collect()
}

/// The label of an answer.
pub(super) fn label_of_answer<'t>(
    parts: &'t DecodedTable,
    answer: &StoredAnswer,
) -> Option<&'t str> {
    let index = (answer.label as usize).checked_sub(1)?;
    parts.labels.get(index).map(String::as_str)
}
