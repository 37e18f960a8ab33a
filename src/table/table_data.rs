//! The table: loads and compiles it, and tells its version, sources, counts and warnings.

use std::collections::HashMap;
use std::path::Path;

use super::added_lists::TableInputs;
use super::aligned_bytes::{self, AlignedBytes};
use super::buckets;
use super::build;
use super::embedded_lists;
use super::evidence::{SourceDays, find_source_days_by_answer};
use super::fault::{TableFault, TableFaults};
use super::layout::parts::{DecodedTable, ListInfo};
use super::layout::sections::LengthPrefixedTexts;
use super::layout::{decode, encode};
use super::location::{SourceFiles, TableLocation};
use super::manifest::{DEFAULT_SCORES, ListKind, MAX_TLD_LIST_AGE_DAYS};
use super::mx::MxAnswerIndexes;
use super::rules::StoredAnswer;
use super::seen_days::Day;
use super::source_packages::SourcePackage;
use super::tlds::TldFlags;
use super::unlisted_rules::UnlistedRules;
use crate::model::domain::suffix_list_version;
use crate::model::month::SECONDS_PER_DAY;
use crate::model::verdict::{Reason, Rule, Score, Verdict};

/// A table of e-mail domains.
pub struct Table {
    pub(super) bytes: AlignedBytes,
    pub(super) decoded_table: DecodedTable,
    /// For each answer, the part of the public answer's JSON that follows the domain.
    pub(super) json_tail_by_answer: Vec<String>,
    pub(super) tld_flags: TldFlags,
    /// The rules for names without a row.
    pub(super) unlisted_rules: UnlistedRules,
    /// The indexes of the answers by MX host suffix, for names without a row.
    pub(super) mx_answers: HashMap<String, MxAnswerIndexes>,
    pub(super) version: String,
    /// Whether the table was built with another public suffix list than that of this binary. If so,
    /// `NameEntry::has_rows_below` may be missing, and a look-up probes every parent.
    pub(super) has_other_suffix_list: bool,
    /// For each entry, how many names have it.
    pub(super) name_count_by_entry: Vec<u32>,
    /// For each answer, the dates of the sources behind it.
    pub(super) source_days_by_answer: Vec<SourceDays>,
    /// For each answer, whether the rules for unlisted names take precedence over it.
    pub(super) answer_yields_to_unlisted_rules: Vec<bool>,
    role_score: Score,
    overrides_judged_at: i64,
}

impl Table {
    /// Loads a table without added lists, or returns the faults. riskgate builds the table from the
    /// bundled lists or from a directory, or reads and checks a compiled file. This function reads
    /// no clock, so it lets no override expire.
    pub fn load(location: &TableLocation) -> Result<Table, TableFaults> {
        Table::build(&TableInputs::from_base(location.clone()), i64::MIN)
    }

    /// Builds a table with the added overrides and feeds, or returns the faults. Ignores overrides
    /// that have expired at `now`, in seconds since 1970. If no list is added to a compiled file,
    /// and none of its overrides has expired, riskgate only reads the file. Otherwise the file must
    /// carry its lists, as [`Table::compile`] writes them, and riskgate builds the table again.
    pub fn build(inputs: &TableInputs, now: i64) -> Result<Table, TableFaults> {
        let table = Table::read_or_build(inputs, now)?;
        Ok(Table { overrides_judged_at: now, ..table })
    }

    fn read_or_build(inputs: &TableInputs, now: i64) -> Result<Table, TableFaults> {
        let added_lists = inputs.read_added_lists()?;
        let build_table = |source_files: &SourceFiles, display_name: &str| {
            let texts = build::ListTextsInTable::Omitted;
            let bytes = build::build_table_bytes(source_files, &added_lists, now, texts)?;
            Table::from_bytes(bytes, display_name)
        };
        if let Some(kept) = &inputs.last_good_lists {
            let table = build_table(&kept.to_source_files()?, "the last good lists")?;
            return match kept.compiled_at {
                Some(compiled_at) => table.with_built_at(compiled_at),
                None => Ok(table),
            };
        }
        match &inputs.base_location {
            TableLocation::Bundled => build_table(&SourceFiles::Bundled, "the bundled table"),
            TableLocation::Path(path) if path.is_dir() => {
                build_table(&SourceFiles::Directory(path), &path.display().to_string())
            }
            TableLocation::Path(path) => {
                let display_name = path.display().to_string();
                let compiled =
                    Table::from_bytes(aligned_bytes::read_compiled_table(path)?, &display_name)?;
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

    /// Makes a table that can be written to a file, because it carries the texts of its lists.
    /// `built_at` is its compilation time, in seconds since 1970. Ignores overrides that have
    /// expired at this time. If the location is a compiled file, this function changes only the
    /// time.
    pub fn compile(location: &TableLocation, built_at: i64) -> Result<Table, TableFaults> {
        let (source_files, display_name) = match location {
            TableLocation::Bundled => (SourceFiles::Bundled, "the bundled table".to_owned()),
            TableLocation::Path(path) if path.is_dir() => {
                (SourceFiles::Directory(path), path.display().to_string())
            }
            TableLocation::Path(_) => return Table::load(location)?.with_built_at(built_at),
        };
        let texts = build::ListTextsInTable::Embedded;
        let bytes = build::build_table_bytes(&source_files, &[], built_at, texts)?;
        Table::from_bytes(bytes, &display_name)?.with_built_at(built_at)
    }

    pub(super) fn from_bytes(
        bytes: AlignedBytes,
        name_in_faults: &str,
    ) -> Result<Table, TableFaults> {
        let parts = decode::decode_table(&bytes, name_in_faults)?;
        let json_tail = |answer: &StoredAnswer| {
            answer.verdict.render_json_tail(label_of_answer(&parts, answer))
        };
        let mx_answers = parts.meta.mx.iter();
        let mut table = Table {
            json_tail_by_answer: parts.answers.iter().map(json_tail).collect(),
            tld_flags: TldFlags::new(&parts.tld_flags),
            unlisted_rules: UnlistedRules::new(&parts.meta.inferred),
            mx_answers: mx_answers.map(|it| (it.suffix.clone(), it.indexes)).collect(),
            version: format!("{:012x}", parts.content_hash >> 80),
            has_other_suffix_list: parts.meta.suffix_list_version != suffix_list_version(),
            name_count_by_entry: vec![0; parts.entries.len()],
            source_days_by_answer: find_source_days_by_answer(&parts.meta, &parts.answers),
            answer_yields_to_unlisted_rules: find_answers_yielding_to_rules(&parts),
            role_score: find_role_score(&parts),
            overrides_judged_at: i64::MIN,
            decoded_table: parts,
            bytes,
        };
        let mut row_counts = std::mem::take(&mut table.name_count_by_entry);
        table.iter_names_with_entry_index().for_each(|(_, number)| row_counts[number] += 1);
        table.name_count_by_entry = row_counts;
        Ok(table)
    }

    /// The score of role addresses: that of the table's role domains, or the default of the rule
    /// `role` if the table has no role domain.
    pub fn role_score(&self) -> Score {
        self.role_score
    }

    /// The names of a bucket, in the order of its slots.
    pub(super) fn names_in_bucket(&self, bucket: usize) -> LengthPrefixedTexts<'_> {
        let all = self.bytes.as_slice();
        let start = all[self.decoded_table.name_offset_range.clone()]
            .get(4 * bucket..)
            .and_then(|bytes| bytes.first_chunk())
            .map_or(usize::MAX, |bytes| u32::from_le_bytes(*bytes) as usize);
        LengthPrefixedTexts {
            remaining_bytes: all[self.decoded_table.name_range.clone()]
                .get(start..)
                .unwrap_or_default(),
        }
    }

    /// Every name of the table, with the index of its entry.
    pub(super) fn iter_names_with_entry_index(&self) -> impl Iterator<Item = (&str, usize)> {
        let (all_buckets, _) = self.bytes.as_slice()[self.decoded_table.bucket_range.clone()]
            .as_chunks::<{ buckets::BUCKET_BYTES }>();
        all_buckets.iter().enumerate().flat_map(|(number, bucket)| {
            let values = (0..buckets::SLOTS_PER_BUCKET)
                .map(|slot| usize::from(buckets::entry_number_in_slot(bucket, slot)));
            self.names_in_bucket(number)
                .zip(values.take_while(|value| *value != 0))
                .filter_map(|(text, value)| Some((std::str::from_utf8(text?).ok()?, value - 1)))
        })
    }

    /// The table's version: a short hash of the inputs on which its verdicts depend.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// When the table was compiled, in seconds since 1970. For a table that was not compiled, the
    /// day of its youngest source.
    pub fn built_at(&self) -> i64 {
        self.decoded_table.meta.built_at
    }

    /// The day of the newest source behind the table's disposable names, in seconds since 1970;
    /// `None` if no day is known. Ignores feeds.
    pub fn newest_source_day(&self) -> Option<i64> {
        let is_disposable = |answer: &StoredAnswer| {
            let rules =
                [Rule::DisposableA, Rule::DisposableB, Rule::DisposableC, Rule::DisposableD];
            rules.contains(&answer.verdict.rule)
        };
        let answers = self.decoded_table.answers.iter().zip(&self.source_days_by_answer);
        let days = answers.filter(|(answer, _)| is_disposable(answer)).map(|(_, days)| days.newest);
        days.max().and_then(Day::to_unix_seconds)
    }

    /// When the next override expires, in seconds since 1970. The table should then be built again.
    pub fn next_override_expiry(&self) -> Option<i64> {
        self.decoded_table.meta.next_override_expiry
    }

    /// The time `now` of [`Table::build`], by which it judged which overrides have expired, in
    /// seconds since 1970. `i64::MIN` for a table that another function made.
    pub fn overrides_judged_at(&self) -> i64 {
        self.overrides_judged_at
    }

    /// The same table with this compilation time, in seconds since 1970.
    pub fn with_built_at(mut self, built_at: i64) -> Result<Table, TableFaults> {
        self.decoded_table.meta.built_at = built_at;
        let bytes = encode::replace_meta(&self.bytes, &self.decoded_table)?;
        Table::from_bytes(bytes, "the stamped table")
    }

    /// The number of names with a row.
    pub fn row_count(&self) -> usize {
        self.row_counts_by_rule().iter().map(|(_, _, rows)| rows).sum()
    }

    /// The number of rows by reason and deciding rule.
    pub fn row_counts_by_rule(&self) -> Vec<(Reason, Rule, usize)> {
        let mut classes: Vec<(Reason, Rule, usize)> = Vec::new();
        for (entry, row_count) in self.decoded_table.entries.iter().zip(&self.name_count_by_entry) {
            let Some(answer) = self.decoded_table.answers.get(usize::from(entry.own_answer)) else {
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
        &self.decoded_table.meta.source
    }

    /// The lists of the manifest in its order, and then the added lists.
    pub fn lists(&self) -> &[ListInfo] {
        &self.decoded_table.meta.list
    }

    /// The initial order of the top list: names with another reason than `safe`, best known first.
    pub fn top_list_seed(&self) -> &[String] {
        &self.decoded_table.meta.seed
    }

    /// Warnings for the operator. `now` is in seconds since 1970.
    pub fn warnings(&self, now: i64) -> Vec<String> {
        let mut warnings = Vec::new();
        match self.decoded_table.meta.tlds_date {
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
                self.decoded_table.meta.suffix_list_version,
                suffix_list_version()
            ));
        }
        warnings.extend(self.decoded_table.meta.doubtful_override.iter().cloned());
        warnings
    }

    /// Writes the compiled table atomically.
    pub fn write_to(&self, path: &Path) -> Result<(), TableFaults> {
        aligned_bytes::write_file_atomically(path, self.bytes.as_slice()).map_err(TableFaults::from)
    }
}

fn find_role_score(parts: &DecodedTable) -> Score {
    let of_roles = parts.answers.iter().find(|answer| answer.verdict.rule == Rule::Role);
    let default = || DEFAULT_SCORES.iter().find(|(rule, _)| *rule == Rule::Role);
    match of_roles {
        Some(answer) => answer.verdict.score,
        None => default().and_then(|(_, score)| Score::new(*score)).unwrap_or(Score::ZERO),
    }
}

/// Finds for each answer whether the rules for unlisted names take precedence over it. They do if
/// three conditions hold: no rule decided the answer; no list gave the answer a label (an override
/// may have); no list of kind `known` is behind the answer.
fn find_answers_yielding_to_rules(parts: &DecodedTable) -> Vec<bool> {
    let is_known_list = |list: &ListInfo| list.kind == ListKind::Known.as_str();
    let real_name_lists = (0..).zip(&parts.meta.list).filter(|(_, list)| is_known_list(list));
    let real_name_lists = real_name_lists.fold(0u64, |lists, (number, _)| lists | 1 << number);
    let has_no_facts = |answer: &StoredAnswer| {
        answer.verdict.rule == Rule::Unknown
            && (answer.label_number == 0 || answer.set_by_override.sets_label)
            && answer.list_bits & real_name_lists == 0
    };
    parts.answers.iter().map(has_no_facts).collect()
}

/// The label of an answer.
pub(super) fn label_of_answer<'t>(
    parts: &'t DecodedTable,
    answer: &StoredAnswer,
) -> Option<&'t str> {
    let index = (answer.label_number as usize).checked_sub(1)?;
    parts.labels.get(index).map(String::as_str)
}
