//! The table of e-mail domains: what riskgate knows, and the one way to ask it.
//!
//! Built in memory from a folder of lists, or read from a compiled file; both are the same
//! bytes, looked up in place by the same code. Immutable, whole or not at all. It never asks the
//! DNS, never reads the clock, and never changes while it serves. What follows from the MX host of a
//! name without a row it says to who has asked the DNS.

mod additions;
mod buckets;
mod build;
mod carried;
mod csv;
mod disk;
mod fault;
mod file;
mod guard;
mod infer;
mod lists;
mod lookup;
mod manifest;
mod mx;
mod override_file;
mod packages;
mod records;
mod resolve;
mod rules;
mod source;
mod tlds;

use std::path::Path;

pub use self::additions::{FeedKind, FeedList, FeedTier, TableSources};
pub use self::fault::{Fault, TableError};
pub use self::file::ListInfo;
pub use self::guard::LONG_LIST;
pub use self::lookup::{Explanation, Found, Row};
pub use self::mx::OWN_ADDRESSES;
pub use self::override_file::{NewOverride, OverrideFile, Word};
pub use self::packages::{SourceInfo, is_day};
pub use self::source::Source;

use self::disk::Bytes;
use self::file::{Parts, Texts};
use self::infer::{Inference, Inferred};
use self::manifest::TLDS_DAYS;
use self::mx::MxHosts;
use self::resolve::{Entry, MAIL_IN_NAME, NONE, THROWAWAY_NAME, TYPO, UNKNOWN, UNKNOWN_TLD};
use self::rules::Answer;
use self::source::Folder;
use self::tlds::Tlds;
use crate::model::domain::{Domain, suffix_list_version, walk};
use crate::model::verdict::{Reason, Rule, Verdict};

const DAY: i64 = 86_400;

/// A table of e-mail domains.
pub struct Table {
    bytes: Bytes,
    parts: Parts,
    /// What follows the domain in the public answer, for each answer.
    tails: Vec<String>,
    tlds: Tlds,
    /// The rules for names without a row.
    inference: Inference,
    /// What follows from the MX hosts of names without a row.
    mx: MxHosts,
    version: String,
    /// The public suffixes are others than those that the table was built with, so that its
    /// way-marks prove nothing.
    full_walk: bool,
    /// How many rows each entry has.
    uses: Vec<u32>,
    /// For each answer: its row says nothing of a name that a rule could judge.
    leaves_to_rules: Vec<bool>,
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

    fn open(bytes: Bytes, place: &str) -> Result<Table, TableError> {
        let parts = file::open(&bytes, place)?;
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

    /// What the table says of a domain at a moment, in seconds since 1970.
    pub fn lookup(&self, domain: &Domain, now: i64) -> Found<'_> {
        let name = domain.as_str();
        let owner = domain.registrable_start();
        let found = match owner {
            Some(owner) => self.lookup_owned(name, owner),
            // A public suffix: only a row of its own matches it, or one that covers suffixes.
            None => self.probe(name).map(|entry| (entry.own, 0)),
        };
        if let Some((answer, at)) = found.filter(|(answer, _)| *answer != NONE) {
            return match self.leaves_to_rules[usize::from(answer)] {
                true => self.infer(name, owner).unwrap_or_else(|| self.found(answer, Some(at))),
                false => self.found(answer, Some(at)),
            };
        }
        let tld_at = name.rfind('.').map_or(0, |dot| dot + 1);
        let tld = self.tlds.flags(&name[tld_at..]);
        if tld & (resolve::TLD_BEYOND_AT | resolve::TLD_BEYOND_BELOW) != 0
            && let Some((answer, at)) = self.lookup_beyond(name, owner.unwrap_or(0), tld)
        {
            return self.found(answer, Some(at));
        }
        let is_young = self
            .parts
            .meta
            .tlds_date
            .is_some_and(|date| now < date.saturating_add(TLDS_DAYS * DAY));
        if tld & resolve::TLD_EXISTS == 0 && is_young {
            return self.found(UNKNOWN_TLD, None);
        }
        self.infer(name, owner).unwrap_or_else(|| self.found(UNKNOWN, None))
    }

    /// What the rules say of a name that no row judges.
    fn infer(&self, name: &str, owner: Option<usize>) -> Option<Found<'_>> {
        let label = owner.map_or("", |owner| registrable_label(&name[owner..]));
        let answer = match self.inference.judge(name, label)? {
            Inferred::Typo => TYPO,
            Inferred::ThrowawayName => THROWAWAY_NAME,
            Inferred::MailInName => MAIL_IN_NAME,
        };
        Some(self.found(answer, None))
    }

    /// Whether this is one of the large providers that the rules suggest.
    pub fn is_large_provider(&self, name: &str) -> bool {
        self.inference.knows_provider(name)
    }

    /// The registrable domain first: its row says whether there are rows below it, so that a
    /// miss costs one probe.
    fn lookup_owned(&self, name: &str, owner: usize) -> Option<(u16, usize)> {
        let owned = self.probe(&name[owner..]);
        if owned.is_some_and(|entry| entry.has_rows_below) || self.full_walk {
            for at in walk(name).take_while(|at| *at < owner) {
                let entry = self.probe(&name[at..]);
                let answer =
                    entry.map_or(NONE, |entry| if at == 0 { entry.own } else { entry.below });
                if answer != NONE {
                    return Some((answer, at));
                }
            }
        }
        owned.map(|entry| (if owner == 0 { entry.own } else { entry.below }, owner))
    }

    /// Rows above the registrable domain: those that cover public suffixes.
    fn lookup_beyond(&self, name: &str, owner: usize, tld: u8) -> Option<(u16, usize)> {
        walk(name).skip_while(|at| *at <= owner).find_map(|at| {
            let is_tld = !name[at..].contains('.');
            let flag = if is_tld { resolve::TLD_BEYOND_AT } else { resolve::TLD_BEYOND_BELOW };
            if tld & flag == 0 {
                return None;
            }
            let answer = self.probe(&name[at..])?.beyond;
            (answer != NONE).then_some((answer, at))
        })
    }

    fn probe(&self, name: &str) -> Option<&Entry> {
        let all = self.bytes.of();
        let lines = &all[self.parts.lines.clone()];
        let place = buckets::place(&self.parts.key, name, lines.len() / buckets::LINE);
        let value = buckets::probe(lines, place, |line, slot| {
            self.names_of(line).nth(slot).flatten() == Some(name.as_bytes())
        })?;
        self.parts.entries.get(usize::from(value) - 1)
    }

    /// The names of a line, in the order of its slots.
    fn names_of(&self, line: usize) -> Texts<'_> {
        let all = self.bytes.of();
        let start = all[self.parts.starts.clone()]
            .get(4 * line..)
            .and_then(|bytes| bytes.first_chunk())
            .map_or(usize::MAX, |bytes| u32::from_le_bytes(*bytes) as usize);
        Texts { rest: all[self.parts.names.clone()].get(start..).unwrap_or_default() }
    }

    /// Every name in the lines, with the number of its entry.
    fn slots(&self) -> impl Iterator<Item = (&str, usize)> {
        let (lines, _) = self.bytes.of()[self.parts.lines.clone()].as_chunks::<{ buckets::LINE }>();
        lines.iter().enumerate().flat_map(|(number, line)| {
            let values = (0..buckets::SLOTS).map(|slot| usize::from(buckets::value(line, slot)));
            self.names_of(number)
                .zip(values.take_while(|value| *value != 0))
                .filter_map(|(text, value)| Some((std::str::from_utf8(text?).ok()?, value - 1)))
        })
    }

    fn row<'t>(&'t self, name: &'t str, entry: &Entry) -> Option<Row<'t>> {
        let found = |number: u16| (number != NONE).then(|| self.found(number, Some(0)));
        Some(Row { name, own: found(entry.own)?, below: found(entry.below) })
    }

    /// The row of exactly this name.
    pub fn row_of<'t>(&'t self, name: &'t str) -> Option<Row<'t>> {
        self.row(name, self.probe(name)?)
    }

    /// All rows, in no order that means anything.
    pub fn names(&self) -> impl Iterator<Item = Row<'_>> {
        self.slots().filter_map(|(name, number)| self.row(name, &self.parts.entries[number]))
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
        let bytes = file::with_meta(&self.bytes, &self.parts)?;
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
    let says_real = |list: &ListInfo| list.kind == manifest::Kind::Known.word();
    let real = (0..).zip(&parts.meta.list).filter(|(_, list)| says_real(list));
    let real = real.fold(0u64, |lists, (number, _)| lists | 1 << number);
    let says_nothing = |answer: &Answer| {
        answer.verdict.rule == Rule::Unknown && answer.label == 0 && answer.lists & real == 0
    };
    parts.answers.iter().map(says_nothing).collect()
}

/// The first label of a registrable domain: what its owner chose.
fn registrable_label(registrable: &str) -> &str {
    registrable.split('.').next().unwrap_or_default()
}

fn label<'t>(parts: &'t Parts, answer: &Answer) -> Option<&'t str> {
    let index = (answer.label as usize).checked_sub(1)?;
    parts.labels.get(index).map(String::as_str)
}

#[cfg(test)]
mod tests;
