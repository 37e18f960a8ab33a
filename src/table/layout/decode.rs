//! Checks the bytes of a table and reads its small parts.

use xxhash_rust::xxh3::xxh3_64;

use super::parts::{Meta, Parts};
use super::sections::{
    ANSWER, ENTRY, FORMAT, HEAD, MAGIC, SECTIONS, SUMMED, Texts, damaged, number, section_range,
};
use crate::model::verdict::{Reason, Rule, Score, Verdict};
use crate::table::buckets::{self, LINE, SLOTS};
use crate::table::disk::Bytes;
use crate::table::entry::{Entry, FIXED_ANSWERS, NONE};
use crate::table::fault::Fault;
use crate::table::rules::Answer;

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

fn read_entry(bytes: &[u8; ENTRY], answers: usize) -> Option<Entry> {
    let [a, b, c, d, e, f, flags, _] = *bytes;
    let numbers = [[a, b], [c, d], [e, f]].map(u16::from_le_bytes);
    let is_sound = numbers.iter().all(|n| *n == NONE || usize::from(*n) < answers);
    let [own, below, beyond] = numbers;
    (is_sound && flags < 2).then_some(Entry { own, below, beyond, has_rows_below: flags == 1 })
}

/// Checks everything that a look-up relies on.
pub(in crate::table) fn open(bytes: &Bytes, place: &str) -> Result<Parts, Fault> {
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
        .filter(|all: &Vec<Answer>| all.len() >= FIXED_ANSWERS)
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

fn records<const N: usize>(bytes: &[u8]) -> Option<&[[u8; N]]> {
    let (all, rest) = bytes.as_chunks();
    rest.is_empty().then_some(all)
}
