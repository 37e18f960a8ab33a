//! The bytes of a table: how they are laid out, written and checked.
//!
//! A compiled file and a table in memory are the same bytes. They are checked once, as a whole,
//! before anything looks a name up: magic, format, length, checksum, then every offset. A
//! checksum finds accidents, not attackers; who fetches tables must check where they come from.
//!
//! Little endian throughout. Head (256 bytes): magic, `u32` format, `u32` 0, `u64` length, `u64`
//! xxh3 of all that follows, `u128` content hash, the hash key, then offset and length of each
//! section as two `u64`.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

use super::buckets::{self, LINE, SLOTS};
use super::build::Content;
use super::carried;
use super::disk::Bytes;
use super::fault::Fault;
use super::infer::InferenceSettings;
use super::mx::MxAnswers;
use super::packages::SourceInfo;
use super::resolve::Entry;
use super::rules::Answer;
use crate::model::verdict::{Reason, Rule, Score, Verdict};

/// The layout that this reads and writes.
pub(super) const FORMAT: u32 = 3;
const MAGIC: &[u8; 8] = b"riskgate";
const HEAD: usize = 256;
/// Where that begins which the checksum covers.
const SUMMED: usize = 32;
pub(super) const SECTIONS: usize = 9;
const ANSWER: usize = 24;
const ENTRY: usize = 8;
/// How many keys are tried. With honest names the first one fits.
const KEYS: u64 = 64;

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
pub(super) struct Meta {
    pub built_at: i64,
    pub suffixes: String,
    pub rows: u64,
    pub max_changed_share: f64,
    /// When the next override ends, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_end: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tlds_date: Option<i64>,
    pub flag_protected: Vec<String>,
    pub seed: Vec<String>,
    #[serde(default)]
    pub inferred: InferenceSettings,
    #[serde(default)]
    pub mx: Vec<MxAnswers>,
    #[serde(default)]
    pub list: Vec<ListInfo>,
    #[serde(default)]
    pub source: Vec<SourceInfo>,
}

/// A checked table: what is small is unpacked, the rest stays in the bytes.
pub(super) struct Parts {
    pub hash: u128,
    pub key: [u8; 16],
    pub meta: Meta,
    pub labels: Vec<String>,
    pub answers: Vec<Answer>,
    pub entries: Vec<Entry>,
    /// Top-level domains with their flags.
    pub tlds: Vec<(String, u8)>,
    pub lines: Range<usize>,
    /// For each line where its names begin, as `u32`.
    pub starts: Range<usize>,
    /// The names in the order of their slots, each behind its length.
    pub names: Range<usize>,
}

/// Lays a table out.
///
/// The key of the hash follows from the content, so that the same sources give the same bytes.
/// Who can choose names of a source can therefore choose names that crowd together; what they
/// gain is a longer probe of at most sixteen lines, never a wrong answer, since every hit is
/// confirmed against its name. Where names crowd so much that one does not fit, the next key is
/// taken.
pub(super) fn compose(content: &Content) -> Result<Bytes, Fault> {
    let names = &content.covered.names;
    let fitting = (0..KEYS).find_map(|attempt| {
        let key = xxh3_128_with_seed(&content.hash.to_le_bytes(), attempt).to_le_bytes();
        let filled = buckets::fill(&key, names.iter().copied())?;
        Some((key, filled))
    });
    let Some((key, (lines, slots))) = fitting else {
        return Err(Fault::expected("the table", "names that spread over its lines", "a crowd"));
    };
    let mut starts = Vec::with_capacity(slots.len() / SLOTS * 4);
    let mut texts = Vec::with_capacity(names.len() * 20);
    for line in slots.chunks_exact(SLOTS) {
        let start = u32::try_from(texts.len())
            .map_err(|_| Fault::expected("the table", "names of at most 4 GiB", "more"))?;
        starts.extend_from_slice(&start.to_le_bytes());
        for number in line.iter().filter(|number| **number != 0) {
            let name = names[*number as usize - 1].0;
            texts.push(name.len() as u8);
            texts.extend_from_slice(name.as_bytes());
        }
    }
    let meta = toml::to_string(&content.meta)
        .map_err(|error| Fault::Toml { at: "the table".into(), message: error.to_string() })?;
    let mut labels = Vec::new();
    for label in content.labels {
        labels.push(label.len() as u8);
        labels.extend_from_slice(label.as_bytes());
    }
    let answers: Vec<u8> = content.covered.answers.iter().flat_map(write_answer).collect();
    let entries: Vec<u8> = content.covered.entries.iter().flat_map(write_entry).collect();
    let mut sorted: Vec<(&str, u8)> =
        content.covered.tlds.iter().map(|(name, flags)| (*name, *flags)).collect();
    sorted.sort_unstable();
    let mut tlds = Vec::new();
    for (name, flags) in sorted {
        tlds.extend_from_slice(&[flags, name.len() as u8]);
        tlds.extend_from_slice(name.as_bytes());
    }
    let carried = carried::write(content.carried)?;
    let sections: [&[u8]; SECTIONS] =
        [meta.as_bytes(), &labels, &answers, &entries, &tlds, &lines, &starts, &texts, &carried];
    Ok(assemble(content.hash, key, &sections))
}

fn assemble(hash: u128, key: [u8; 16], sections: &[&[u8]; SECTIONS]) -> Bytes {
    let mut at = HEAD;
    let offsets = sections.map(|section| {
        let offset = at;
        at = (at + section.len()).next_multiple_of(LINE);
        offset
    });
    let mut bytes = Bytes::zeroed(at);
    let all = bytes.of_mut();
    all[..8].copy_from_slice(MAGIC);
    all[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    all[16..24].copy_from_slice(&(at as u64).to_le_bytes());
    all[32..48].copy_from_slice(&hash.to_le_bytes());
    all[48..64].copy_from_slice(&key);
    for (i, (section, offset)) in sections.iter().zip(offsets).enumerate() {
        let head = 64 + 16 * i;
        all[head..head + 8].copy_from_slice(&(offset as u64).to_le_bytes());
        all[head + 8..head + 16].copy_from_slice(&(section.len() as u64).to_le_bytes());
        all[offset..offset + section.len()].copy_from_slice(section);
    }
    seal(all);
    bytes
}

/// Writes the checksum over all that it covers.
pub(super) fn seal(all: &mut [u8]) {
    let sum = xxh3_64(&all[SUMMED..]);
    all[24..32].copy_from_slice(&sum.to_le_bytes());
}

/// The same bytes with another description of themselves.
pub(super) fn with_meta(bytes: &Bytes, parts: &Parts) -> Result<Bytes, Fault> {
    let meta = toml::to_string(&parts.meta)
        .map_err(|error| Fault::Toml { at: "the table".into(), message: error.to_string() })?;
    let all = bytes.of();
    let mut sections: [&[u8]; SECTIONS] = [&[]; SECTIONS];
    for (i, section) in sections.iter_mut().enumerate() {
        *section = section_range(all, i, "the table").map(|range| &all[range])?;
    }
    sections[0] = meta.as_bytes();
    Ok(assemble(parts.hash, parts.key, &sections))
}

fn write_answer(answer: &Answer) -> [u8; ANSWER] {
    let mut out = [0; ANSWER];
    let verdict = &answer.verdict;
    out[0] = verdict.reason as u8;
    out[1] = verdict.score.value();
    out[2] = u8::from(verdict.is_free_provider)
        | u8::from(verdict.is_corporate_email) << 1
        | u8::from(answer.is_in_lists) << 2
        | u8::from(answer.is_protected_by_name) << 3
        | u8::from(answer.is_real) << 4;
    out[3] = verdict.rule as u8;
    out[4..8].copy_from_slice(&answer.label.to_le_bytes());
    out[8..16].copy_from_slice(&answer.lists.to_le_bytes());
    out[16..20].copy_from_slice(&answer.votes.to_le_bytes());
    out
}

fn read_answer(bytes: &[u8; ANSWER], labels: usize, lists: usize) -> Option<Answer> {
    let [reason, score, flags, rule, ..] = *bytes;
    let answer = Answer {
        verdict: Verdict {
            reason: Reason::ALL.into_iter().find(|known| *known as u8 == reason)?,
            score: Score::new(score)?,
            is_free_provider: flags & 1 != 0,
            is_corporate_email: flags & 2 != 0,
            rule: Rule::from_number(rule)?,
        },
        label: u32::from_le_bytes(bytes[4..8].try_into().ok()?),
        lists: u64::from_le_bytes(bytes[8..16].try_into().ok()?),
        votes: u32::from_le_bytes(bytes[16..20].try_into().ok()?),
        is_in_lists: flags & 4 != 0,
        is_protected_by_name: flags & 8 != 0,
        is_real: flags & 16 != 0,
    };
    let known_lists = answer.lists.checked_shr(lists as u32).unwrap_or(0) == 0;
    let is_sound = answer.label as usize <= labels && known_lists && flags < 32;
    is_sound.then_some(answer)
}

fn write_entry(entry: &Entry) -> [u8; ENTRY] {
    let mut out = [0; ENTRY];
    out[..2].copy_from_slice(&entry.own.to_le_bytes());
    out[2..4].copy_from_slice(&entry.below.to_le_bytes());
    out[4..6].copy_from_slice(&entry.beyond.to_le_bytes());
    out[6] = u8::from(entry.has_rows_below);
    out
}

fn read_entry(bytes: &[u8; ENTRY], answers: usize) -> Option<Entry> {
    let [a, b, c, d, e, f, flags, _] = *bytes;
    let numbers = [[a, b], [c, d], [e, f]].map(u16::from_le_bytes);
    let is_sound = numbers.iter().all(|n| *n == super::resolve::NONE || usize::from(*n) < answers);
    let [own, below, beyond] = numbers;
    (is_sound && flags < 2).then_some(Entry { own, below, beyond, has_rows_below: flags == 1 })
}

/// Checks everything that a look-up relies on.
pub(super) fn open(bytes: &Bytes, place: &str) -> Result<Parts, Fault> {
    let all = bytes.of();
    let wrong = |expected: &str, found: String| Err(Fault::expected(place, expected, found));
    if all.get(..8) != Some(MAGIC) {
        return wrong("a compiled table", "other bytes".into());
    }
    let format = number(all, 8, 4, place)?;
    if format > u64::from(FORMAT) {
        let found = format!("format {format}, made by a newer riskgate");
        return wrong(&format!("a compiled table of format {FORMAT}"), found);
    }
    if format != u64::from(FORMAT) || number(all, 12, 4, place)? != 0 {
        return wrong(&format!("a compiled table of format {FORMAT}"), "another format".into());
    }
    let length = number(all, 16, 8, place)?;
    if length != all.len() as u64 || all.len() < HEAD {
        return wrong(&format!("{length} bytes"), format!("{}: a truncated file", all.len()));
    }
    if number(all, 24, 8, place)? != xxh3_64(&all[SUMMED..]) {
        return wrong("bytes that match their checksum", "others: a damaged file".into());
    }
    let section = |i: usize| section_range(all, i, place);
    let damaged = |what: &str| damaged(place, what);

    let meta = std::str::from_utf8(&all[section(0)?]).map_err(|_| damaged("description"))?;
    let meta: Meta = toml::from_str(meta).map_err(|_| damaged("description"))?;
    if meta.list.len() > 64 {
        return Err(damaged("description"));
    }
    let labels: Vec<String> = Texts { rest: &all[section(1)?] }
        .map(|text| text.and_then(|text| std::str::from_utf8(text).ok()).map(str::to_owned))
        .collect::<Option<_>>()
        .ok_or_else(|| damaged("labels"))?;
    let answers: Vec<Answer> = records(&all[section(2)?])
        .and_then(|all| all.iter().map(|b| read_answer(b, labels.len(), meta.list.len())).collect())
        .filter(|all: &Vec<Answer>| all.len() >= super::resolve::FIXED_ANSWERS)
        .ok_or_else(|| damaged("answers"))?;
    let entries: Vec<Entry> = records(&all[section(3)?])
        .and_then(|all| all.iter().map(|b| read_entry(b, answers.len())).collect())
        .ok_or_else(|| damaged("entries"))?;
    let is_answer = |number: u16| usize::from(number) < answers.len();
    if !meta.mx.iter().all(|host| is_answer(host.unknown) && is_answer(host.mail_in_name)) {
        return Err(damaged("description"));
    }
    let mut tlds = Vec::new();
    let mut rest = &all[section(4)?];
    while let Some((flags, after)) = rest.split_first() {
        let mut texts = Texts { rest: after };
        let name = texts.next().flatten().and_then(|text| std::str::from_utf8(text).ok());
        tlds.push((name.ok_or_else(|| damaged("top-level domains"))?.to_owned(), *flags));
        rest = texts.rest;
    }
    let parts = Parts {
        hash: u128::from(number(all, 32, 8, place)?) | u128::from(number(all, 40, 8, place)?) << 64,
        key: all[48..64].try_into().map_err(|_| damaged("key"))?,
        meta,
        labels,
        answers,
        entries,
        tlds,
        lines: section(5)?,
        starts: section(6)?,
        names: section(7)?,
    };
    check_lines(all, &parts).ok_or_else(|| damaged("lines"))?;
    // What else stands in it is read only when something is added to the table.
    section(SECTIONS - 1)?;
    Ok(parts)
}

/// Every value is that of an entry, and every slot has its name.
fn check_lines(all: &[u8], parts: &Parts) -> Option<()> {
    let (lines, rest) = all[parts.lines.clone()].as_chunks::<LINE>();
    let (starts, odd) = all[parts.starts.clone()].as_chunks::<4>();
    let names = &all[parts.names.clone()];
    let is_sound = rest.is_empty()
        && odd.is_empty()
        && starts.len() == lines.len()
        && lines.len() > buckets::PADDING
        && names.iter().all(|b| b.is_ascii());
    if !is_sound {
        return None;
    }
    for (line, start) in lines.iter().zip(starts) {
        let mut texts = Texts { rest: names.get(u32::from_le_bytes(*start) as usize..)? };
        let mut is_over = false;
        for slot in 0..SLOTS {
            let value = usize::from(buckets::value(line, slot));
            // Slots are filled from the first one on, so a name is found by counting.
            match (value, is_over) {
                (0, _) => is_over = true,
                (_, true) => return None,
                _ => _ = texts.next().flatten()?,
            }
            if value > parts.entries.len() {
                return None;
            }
        }
    }
    Some(())
}

/// Texts that each stand behind their length; `None` where one is cut off.
pub(super) struct Texts<'b> {
    pub rest: &'b [u8],
}

impl<'b> Iterator for Texts<'b> {
    type Item = Option<&'b [u8]>;

    fn next(&mut self) -> Option<Option<&'b [u8]>> {
        let (length, rest) = self.rest.split_first()?;
        match rest.split_at_checked(usize::from(*length)) {
            Some((text, after)) => {
                self.rest = after;
                Some(Some(text))
            }
            None => {
                self.rest = &[];
                Some(None)
            }
        }
    }
}

fn records<const N: usize>(bytes: &[u8]) -> Option<&[[u8; N]]> {
    let (all, rest) = bytes.as_chunks();
    rest.is_empty().then_some(all)
}

pub(super) fn damaged(place: &str, what: &str) -> Fault {
    Fault::expected(place, format!("sound {what}"), "a damaged file")
}

fn number(all: &[u8], at: usize, size: usize, place: &str) -> Result<u64, Fault> {
    let found = all.get(at..at + size).ok_or_else(|| {
        Fault::expected(place, format!("at least {HEAD} bytes"), format!("{}", all.len()))
    })?;
    Ok(found.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

pub(super) fn section_range(all: &[u8], i: usize, place: &str) -> Result<Range<usize>, Fault> {
    let offset = number(all, 64 + 16 * i, 8, place)?;
    let length = number(all, 72 + 16 * i, 8, place)?;
    let end = offset.checked_add(length).filter(|end| *end <= all.len() as u64);
    match end {
        Some(end) if offset >= HEAD as u64 => Ok(offset as usize..end as usize),
        _ => Err(damaged(place, "sections")),
    }
}
