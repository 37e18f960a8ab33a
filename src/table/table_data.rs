//! The table itself: its bytes, how it is made, and what it says of itself.

use std::path::Path;

use super::additions::TableSources;
use super::buckets;
use super::build;
use super::carried;
use super::disk::{self, Bytes};
use super::fault::{Fault, TableError};
use super::infer::Inference;
use super::layout::parts::{ListInfo, Parts};
use super::layout::sections::Texts;
use super::layout::{decode, encode};
use super::manifest::{Kind, TLDS_DAYS};
use super::mx::MxHosts;
use super::packages::{DAY, SourceInfo};
use super::rules::Answer;
use super::source::{Folder, Source};
use super::tlds::Tlds;
use crate::model::domain::suffix_list_version;
use crate::model::verdict::{Reason, Rule, Verdict};

/// A table of e-mail domains.
pub struct Table {
    pub(super) bytes: Bytes,
    pub(super) parts: Parts,
    /// What follows the domain in the public answer, for each answer.
    pub(super) tails: Vec<String>,
    pub(super) tlds: Tlds,
    /// The rules for names without a row.
    pub(super) inference: Inference,
    /// What follows from the MX hosts of names without a row.
    pub(super) mx: MxHosts,
    pub(super) version: String,
    /// The public suffixes are others than those that the table was built with, so that its
    /// way-marks prove nothing.
    pub(super) full_walk: bool,
    /// How many rows each entry has.
    pub(super) uses: Vec<u32>,
    /// For each answer: its row says nothing of a name that a rule could judge.
    pub(super) leaves_to_rules: Vec<bool>,
}

impl Table {
    /// The table of a source, whole or not at all. A folder is read and built, a file is read
    /// and checked. Overrides count whether they have ended or not.
    pub fn load(source: &Source) -> Result<Table, TableError> {
        Table::assemble(&TableSources::of(source.clone()), i64::MIN)
    }

    /// The table of a source with all that is added to it, whole or not at all. A compiled file to
    /// which something is added must carry its lists, as [`Table::compile`] makes it. `now` is in
    /// seconds since 1970: overrides that have ended say nothing.
    pub fn assemble(sources: &TableSources, now: i64) -> Result<Table, TableError> {
        let additions = sources.additions()?;
        let build = |folder: &Folder, place: &str| {
            Table::open(build::build(folder, &additions, now, build::Texts::Left)?, place)
        };
        match &sources.base {
            Source::Bundled => build(&Folder::Bundled, "the bundled table"),
            Source::Path(path) if path.is_dir() => {
                build(&Folder::Path(path), &path.display().to_string())
            }
            Source::Path(path) => {
                let place = path.display().to_string();
                let compiled = Table::open(disk::read(path)?, &place)?;
                let has_ended = compiled.next_end().is_some_and(|end| end <= now);
                if additions.is_empty() && !has_ended {
                    return Ok(compiled);
                }
                let carried = carried::read(&compiled.bytes, &place)?;
                if carried.is_empty() {
                    let expected = "a compiled table that carries its lists, so that overrides and \
                                    feeds can be added (`riskgate table build` makes one)";
                    return Err(Fault::expected(place, expected, "one without them").into());
                }
                build(&Folder::Compiled(path, carried), &place)?.stamp(compiled.built_at())
            }
        }
    }

    /// The table of a folder or a compiled file as it should be written: with the moment at which
    /// it was compiled, in seconds since 1970, and with the texts of its lists.
    pub fn compile(source: &Source, built_at: i64) -> Result<Table, TableError> {
        let build = |folder: &Folder, place: &str| {
            Table::open(build::build(folder, &[], built_at, build::Texts::Carried)?, place)
        };
        let table = match source {
            Source::Bundled => build(&Folder::Bundled, "the bundled table")?,
            Source::Path(path) if path.is_dir() => {
                build(&Folder::Path(path), &path.display().to_string())?
            }
            Source::Path(_) => Table::load(source)?,
        };
        table.stamp(built_at)
    }

    pub(super) fn open(bytes: Bytes, place: &str) -> Result<Table, TableError> {
        let parts = decode::open(&bytes, place)?;
        let tails = parts
            .answers
            .iter()
            .map(|answer| answer.verdict.render_tail(label(&parts, answer)))
            .collect();
        let tlds = Tlds::new(&parts.tlds);
        let version = format!("{:012x}", parts.hash >> 80);
        let full_walk = parts.meta.suffixes != suffix_list_version();
        let uses = vec![0; parts.entries.len()];
        let inference = Inference::new(&parts.meta.inferred);
        let mx = MxHosts::new(&parts.meta.mx);
        let leaves_to_rules = leaves_to_rules(&parts);
        let mut table = Table {
            bytes,
            parts,
            tails,
            tlds,
            inference,
            mx,
            version,
            full_walk,
            uses,
            leaves_to_rules,
        };
        let mut uses = std::mem::take(&mut table.uses);
        table.slots().for_each(|(_, number)| uses[number] += 1);
        table.uses = uses;
        Ok(table)
    }

    /// The names of a line, in the order of its slots.
    pub(super) fn names_of(&self, line: usize) -> Texts<'_> {
        let all = self.bytes.of();
        let start = all[self.parts.starts.clone()]
            .get(4 * line..)
            .and_then(|bytes| bytes.first_chunk())
            .map_or(usize::MAX, |bytes| u32::from_le_bytes(*bytes) as usize);
        Texts { rest: all[self.parts.names.clone()].get(start..).unwrap_or_default() }
    }

    /// Every name in the lines, with the number of its entry.
    pub(super) fn slots(&self) -> impl Iterator<Item = (&str, usize)> {
        let (lines, _) = self.bytes.of()[self.parts.lines.clone()].as_chunks::<{ buckets::LINE }>();
        lines.iter().enumerate().flat_map(|(number, line)| {
            let values = (0..buckets::SLOTS).map(|slot| usize::from(buckets::value(line, slot)));
            self.names_of(number)
                .zip(values.take_while(|value| *value != 0))
                .filter_map(|(text, value)| Some((std::str::from_utf8(text?).ok()?, value - 1)))
        })
    }

    /// A short hash of everything that the table was built from.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// When it was compiled, in seconds since 1970; for a table built from lists just now, the
    /// day of its youngest source.
    pub fn built_at(&self) -> i64 {
        self.parts.meta.built_at
    }

    /// When an override ends, so that the table should be made anew; in seconds since 1970.
    pub fn next_end(&self) -> Option<i64> {
        self.parts.meta.next_end
    }

    /// The same table with the moment at which it was compiled.
    pub fn stamp(mut self, built_at: i64) -> Result<Table, TableError> {
        self.parts.meta.built_at = built_at;
        let bytes = encode::with_meta(&self.bytes, &self.parts)?;
        Table::open(bytes, "the stamped table")
    }

    /// How many names have a row.
    pub fn rows(&self) -> usize {
        self.rows_by_class().iter().map(|(_, _, rows)| rows).sum()
    }

    /// How many rows each rule decided, and for which reason.
    pub fn rows_by_class(&self) -> Vec<(Reason, Rule, usize)> {
        let mut classes: Vec<(Reason, Rule, usize)> = Vec::new();
        for (entry, uses) in self.parts.entries.iter().zip(&self.uses) {
            let Some(answer) = self.parts.answers.get(usize::from(entry.own)) else { continue };
            let Verdict { reason, rule, .. } = answer.verdict;
            match classes.iter_mut().find(|class| (class.0, class.1) == (reason, rule)) {
                Some(class) => class.2 += *uses as usize,
                None => classes.push((reason, rule, *uses as usize)),
            }
        }
        classes.sort_by_key(|(reason, rule, _)| (*rule, *reason as u8));
        classes
    }

    /// The packages that the lists were made from.
    pub fn sources(&self) -> &[SourceInfo] {
        &self.parts.meta.source
    }

    /// The lists, in the order of the manifest.
    pub fn lists(&self) -> &[ListInfo] {
        &self.parts.meta.list
    }

    /// The first order of the top list: names that the table flags, best known first.
    pub fn seed(&self) -> &[String] {
        &self.parts.meta.seed
    }

    /// What an operator should know at a moment, in seconds since 1970.
    pub fn warnings(&self, now: i64) -> Vec<String> {
        let mut warnings = Vec::new();
        match self.parts.meta.tlds_date {
            None => warnings.push(
                "no list of top-level domains: names below one that does not exist count as \
                 unknown domains"
                    .to_owned(),
            ),
            Some(date) if now >= date.saturating_add(TLDS_DAYS * DAY) => warnings.push(format!(
                "the list of top-level domains is {} days old, over {TLDS_DAYS}: names below one \
                 that does not exist count as unknown domains",
                now.saturating_sub(date) / DAY
            )),
            Some(_) => {}
        }
        if self.full_walk {
            warnings.push(format!(
                "compiled with the public suffixes of {}, read with those of {}: look-ups take \
                 longer",
                self.parts.meta.suffixes,
                suffix_list_version()
            ));
        }
        warnings
    }

    /// Writes the compiled table: beside the path first, then in one step in its place.
    pub fn write_to(&self, path: &Path) -> Result<(), TableError> {
        disk::write(path, self.bytes.of()).map_err(TableError::from)
    }
}

/// For each answer whether its row says nothing: it neither decides, nor labels, nor says that the
/// name is real.
fn leaves_to_rules(parts: &Parts) -> Vec<bool> {
    let says_real = |list: &ListInfo| list.kind == Kind::Known.word();
    let real = (0..).zip(&parts.meta.list).filter(|(_, list)| says_real(list));
    let real = real.fold(0u64, |lists, (number, _)| lists | 1 << number);
    let says_nothing = |answer: &Answer| {
        answer.verdict.rule == Rule::Unknown && answer.label == 0 && answer.lists & real == 0
    };
    parts.answers.iter().map(says_nothing).collect()
}

/// The label of an answer.
pub(super) fn label<'t>(parts: &'t Parts, answer: &Answer) -> Option<&'t str> {
    let index = (answer.label as usize).checked_sub(1)?;
    parts.labels.get(index).map(String::as_str)
}
