//! The table of e-mail domains: what riskgate knows, and the one way to ask it.
//!
//! Built in memory from a folder of lists, or read from a compiled file; both are the same
//! bytes, looked up in place by the same code. Immutable, whole or not at all. It never asks the
//! DNS, never reads the clock, and never changes while it serves.

mod additions;
mod build;
mod cover;
mod csv;
mod disk;
mod fault;
mod file;
mod found;
mod infer;
mod lines;
mod lists;
mod manifest;
mod override_file;
mod packages;
mod records;
mod rules;
mod source;
mod tlds;

use std::path::Path;

pub use self::additions::{FeedKind, FeedList, FeedTier, TableSources};
pub use self::fault::{Fault, TableError};
pub use self::file::ListInfo;
pub use self::found::{Explanation, Found, Row};
pub use self::override_file::{NewOverride, OverrideFile, Word};
pub use self::packages::SourceInfo;
pub use self::source::Source;

use self::cover::{Entry, MAIL_IN_NAME, NONE, TYPO, UNKNOWN, UNKNOWN_TLD};
use self::disk::Bytes;
use self::file::{Parts, Texts};
use self::infer::{Inference, Inferred};
use self::manifest::TLDS_DAYS;
use self::rules::Answer;
use self::source::Folder;
use self::tlds::Tlds;
use crate::domain::{Domain, suffix_list_version, walk};
use crate::verdict::{Reason, Rule, Verdict};

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
    version: String,
    /// The public suffixes are others than those that the table was built with, so that its
    /// way-marks prove nothing.
    full_walk: bool,
    /// How many rows each entry has.
    uses: Vec<u32>,
}

/// A list of this many rows or more is watched for shrinking.
const LONG_LIST: u32 = 20;

impl Table {
    /// The table of a source, whole or not at all. A folder is read and built, a file is read
    /// and checked. It is read for no moment: overrides count whether they have ended or not.
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
                if additions.is_empty() {
                    return Ok(compiled);
                }
                let carried = file::read_carried(&compiled.bytes, &place)?;
                if carried.is_empty() {
                    let expected = "a compiled table that carries its lists, so that overrides and \
                                    feeds can be added (`riskgate table build` makes one)";
                    return Err(Fault::expected(place, expected, "one without them").into());
                }
                build(&Folder::Compiled(path, carried), &place)
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
        let mut table = Table { bytes, parts, tails, tlds, inference, version, full_walk, uses };
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
            return self.found(answer, Some(at));
        }
        let tld_at = name.rfind('.').map_or(0, |dot| dot + 1);
        let tld = self.tlds.flags(&name[tld_at..]);
        if tld & (cover::TLD_BEYOND_AT | cover::TLD_BEYOND_BELOW) != 0
            && let Some((answer, at)) = self.lookup_beyond(name, owner.unwrap_or(0), tld)
        {
            return self.found(answer, Some(at));
        }
        let is_young = self
            .parts
            .meta
            .tlds_date
            .is_some_and(|date| now < date.saturating_add(TLDS_DAYS * DAY));
        if tld & cover::TLD_EXISTS == 0 && is_young {
            return self.found(UNKNOWN_TLD, None);
        }
        let label = owner.map_or("", |owner| registrable_label(&name[owner..]));
        match self.inference.judge(name, label) {
            Some(Inferred::Typo) => self.found(TYPO, None),
            Some(Inferred::MailInName) => self.found(MAIL_IN_NAME, None),
            None => self.found(UNKNOWN, None),
        }
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
            let flag = if is_tld { cover::TLD_BEYOND_AT } else { cover::TLD_BEYOND_BELOW };
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
        let place = lines::place(&self.parts.key, name, lines.len() / lines::LINE);
        let value = lines::probe(lines, place, |line, slot| {
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
        let (lines, _) = self.bytes.of()[self.parts.lines.clone()].as_chunks::<{ lines::LINE }>();
        lines.iter().enumerate().flat_map(|(number, line)| {
            let values = (0..lines::SLOTS).map(|slot| usize::from(lines::value(line, slot)));
            self.names_of(number)
                .zip(values.take_while(|value| *value != 0))
                .filter_map(|(text, value)| Some((std::str::from_utf8(text?).ok()?, value - 1)))
        })
    }

    fn found(&self, number: u16, matched: Option<usize>) -> Found<'_> {
        let answer = &self.parts.answers[usize::from(number)];
        let label = label(&self.parts, answer);
        Found { verdict: answer.verdict, label, matched, table: self, answer: number }
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

    /// Whether this table may take the place of the one that serves. It may not flag a name that
    /// the other protects, and not differ from it in more rows than the manifest allows.
    pub fn accept(&self, previous: &Table) -> Result<(), TableError> {
        let mut faults = TableError::default();
        let at = || format!("table {}", self.version);
        if self.rows() == 0 {
            faults.push(Fault::expected(at(), "rows", "an empty table"));
        }
        let mut went = 0;
        for row in previous.names() {
            let now = self.row_of(row.name);
            let is_in_lists = now.is_some_and(|now| now.own.is_in_lists());
            went += usize::from(row.own.is_in_lists() && !is_in_lists);
            let was_protected = row.own.verdict.rule == Rule::Protected;
            let is_flagged = |row: &Row| row.own.verdict.reason.is_flagged();
            if was_protected
                && self.answer_to(row.name).is_some_and(|found| found.is_flagged_by_others())
                && !now.is_some_and(|now| is_flagged(&now) && self.may_flag(row.name))
            {
                faults.push(Fault::FlagsProtected { at: at(), name: row.name.to_owned() });
            }
        }
        for (before, now) in self.shrunken_lists(previous) {
            let went = before.rows.saturating_sub(now) as usize;
            let at = format!("{}: {}", at(), before.file);
            let (most, before) = (self.may_go(before.rows as usize), before.rows as usize);
            faults.push(Fault::Changed { at, most, before, came: 0, went });
        }
        let before = previous.rows_in_lists();
        let came = (self.rows_in_lists() + went).saturating_sub(before);
        let most = self.may_go(before);
        if came + went > most {
            faults.push(Fault::Changed { at: at(), most, before, came, went });
        }
        faults.into_result()
    }

    fn may_go(&self, before: usize) -> usize {
        (before as f64 * self.parts.meta.max_changed_share) as usize
    }

    /// Lists that lost more of their rows than the manifest allows, with what is left: emptied or
    /// cut by a full disk or half a copy. Short lists are edited by hand, and those may change.
    fn shrunken_lists<'l>(&'l self, previous: &'l Table) -> Vec<(&'l ListInfo, u32)> {
        // One that is not named any more has nothing left: half a manifest names fewer.
        let left = |before: &ListInfo| {
            let now = self.lists().iter().find(|now| now.file == before.file);
            now.map_or(0, |now| now.rows)
        };
        previous
            .lists()
            .iter()
            .filter(|before| before.rows >= LONG_LIST && !before.is_added)
            .map(|before| (before, left(before)))
            .filter(|(before, now)| {
                before.rows.saturating_sub(*now) as usize > self.may_go(before.rows as usize)
            })
            .collect()
    }

    /// What a name gets, which may be a public suffix of one label.
    fn answer_to(&self, name: &str) -> Option<Found<'_>> {
        match Domain::parse(name) {
            // A name in no list is not flagged by one, so the moment does not matter.
            Ok(domain) => Some(self.lookup(&domain, i64::MAX)),
            Err(_) => {
                self.probe(name).filter(|e| e.own != NONE).map(|e| self.found(e.own, Some(0)))
            }
        }
    }

    fn may_flag(&self, name: &str) -> bool {
        self.parts.meta.flag_protected.iter().any(|allowed| allowed == name)
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

    /// How many names have a row in the lists of the manifest: overrides and feeds that are added
    /// to them have guards of their own.
    fn rows_in_lists(&self) -> usize {
        let rows = self.parts.entries.iter().zip(&self.uses);
        let rows = rows.filter(|(entry, _)| entry.own != NONE);
        rows.filter(|(entry, _)| self.found(entry.own, None).is_in_lists())
            .map(|(_, uses)| *uses as usize)
            .sum()
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

/// Whether a text is a day such as `2026-12-31`.
pub fn is_day(text: &str) -> bool {
    packages::unix_day(text).is_some()
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
