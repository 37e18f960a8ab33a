//! Encodes a table into bytes.

use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::parts::{DecodedTable, TableMeta};
use super::sections::{
    ANSWER_BYTES, ENTRY_BYTES, FORMAT_VERSION, MAGIC, SECTION_COUNT, TABLE_HEADER_BYTES,
    section_range, write_checksum,
};
use crate::table::aligned_bytes::AlignedBytes;
use crate::table::buckets::{self, BUCKET_BYTES, SLOTS_PER_BUCKET};
use crate::table::embedded_lists::{self, ListsInCompiledTable};
use crate::table::entry::NameEntry;
use crate::table::fault::TableFault;
use crate::table::resolve::ResolvedTable;
use crate::table::rules::StoredAnswer;

/// The contents of a table to encode.
pub(in crate::table) struct TableContent<'r> {
    /// The result of `hash_inputs`.
    pub content_hash: u128,
    pub resolved_table: &'r ResolvedTable<'r>,
    pub labels: &'r [String],
    pub meta: TableMeta,
    pub embedded_lists: &'r ListsInCompiledTable,
}

/// The most hash keys to try. Unless somebody chose colliding names, the first key fits.
const MAX_HASH_KEY_ATTEMPTS: u64 = 64;

/// Encodes a table.
///
/// The hash key is derived from the content, so that the same sources give the same bytes. So
/// somebody who can add names to a source can choose names that collide. A look-up of such a name
/// probes up to sixteen further buckets. The answer is still right, because the look-up compares
/// the stored name. If a name finds no free slot, riskgate tries the next hash key.
pub(in crate::table) fn encode_table(content: &TableContent) -> Result<AlignedBytes, TableFault> {
    let names = &content.resolved_table.names_and_entry_numbers;
    let fitting = (0..MAX_HASH_KEY_ATTEMPTS).find_map(|attempt| {
        let key = xxh3_128_with_seed(&content.content_hash.to_le_bytes(), attempt).to_le_bytes();
        let filled = buckets::fill_buckets(&key, names.iter().copied())?;
        Some((key, filled))
    });
    let Some((key, (bucket_bytes, slots))) = fitting else {
        return Err(TableFault::expected(
            "the table",
            "names that spread over its buckets",
            "too many in the same buckets",
        ));
    };
    let mut starts = Vec::with_capacity(slots.len() / SLOTS_PER_BUCKET * 4);
    let mut texts = Vec::with_capacity(names.len() * 20);
    for bucket_slots in slots.chunks_exact(SLOTS_PER_BUCKET) {
        let start = u32::try_from(texts.len())
            .map_err(|_| TableFault::expected("the table", "names of at most 4 GiB", "more"))?;
        starts.extend_from_slice(&start.to_le_bytes());
        for number in bucket_slots.iter().filter(|number| **number != 0) {
            let name = names[*number as usize - 1].0;
            texts.push(name.len() as u8);
            texts.extend_from_slice(name.as_bytes());
        }
    }
    let meta = toml::to_string(&content.meta)
        .map_err(|error| TableFault::Toml { at: "the table".into(), message: error.to_string() })?;
    let mut labels = Vec::new();
    for label in content.labels {
        labels.push(label.len() as u8);
        labels.extend_from_slice(label.as_bytes());
    }
    let answers: Vec<u8> = content.resolved_table.answers.iter().flat_map(encode_answer).collect();
    let entries: Vec<u8> = content.resolved_table.entries.iter().flat_map(encode_entry).collect();
    let mut sorted: Vec<(&str, u8)> =
        content.resolved_table.tld_flags.iter().map(|(name, flags)| (*name, *flags)).collect();
    sorted.sort_unstable();
    let mut tlds = Vec::new();
    for (name, flags) in sorted {
        tlds.extend_from_slice(&[flags, name.len() as u8]);
        tlds.extend_from_slice(name.as_bytes());
    }
    let embedded_lists = embedded_lists::encode_lists(content.embedded_lists)?;
    let sections: [&[u8]; SECTION_COUNT] = [
        meta.as_bytes(),
        &labels,
        &answers,
        &entries,
        &tlds,
        &bucket_bytes,
        &starts,
        &texts,
        &embedded_lists,
    ];
    Ok(write_header_and_sections(content.content_hash, key, &sections))
}

fn write_header_and_sections(
    hash: u128,
    key: [u8; 16],
    sections: &[&[u8]; SECTION_COUNT],
) -> AlignedBytes {
    let mut at = TABLE_HEADER_BYTES;
    let offsets = sections.map(|section| {
        let offset = at;
        at = (at + section.len()).next_multiple_of(BUCKET_BYTES);
        offset
    });
    let mut bytes = AlignedBytes::zeroed(at);
    let all = bytes.as_mut_slice();
    all[..8].copy_from_slice(MAGIC);
    all[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    all[16..24].copy_from_slice(&(at as u64).to_le_bytes());
    all[32..48].copy_from_slice(&hash.to_le_bytes());
    all[48..64].copy_from_slice(&key);
    for (i, (section, offset)) in sections.iter().zip(offsets).enumerate() {
        let head = 64 + 16 * i;
        all[head..head + 8].copy_from_slice(&(offset as u64).to_le_bytes());
        all[head + 8..head + 16].copy_from_slice(&(section.len() as u64).to_le_bytes());
        all[offset..offset + section.len()].copy_from_slice(section);
    }
    write_checksum(all);
    bytes
}

/// Encodes a table again with other metadata; the other sections stay the same.
pub(in crate::table) fn replace_meta(
    bytes: &AlignedBytes,
    parts: &DecodedTable,
) -> Result<AlignedBytes, TableFault> {
    let meta = toml::to_string(&parts.meta)
        .map_err(|error| TableFault::Toml { at: "the table".into(), message: error.to_string() })?;
    let all = bytes.as_slice();
    let mut sections: [&[u8]; SECTION_COUNT] = [&[]; SECTION_COUNT];
    for (i, section) in sections.iter_mut().enumerate() {
        *section = section_range(all, i, "the table").map(|range| &all[range])?;
    }
    sections[0] = meta.as_bytes();
    Ok(write_header_and_sections(parts.content_hash, parts.hash_key, &sections))
}

fn encode_answer(answer: &StoredAnswer) -> [u8; ANSWER_BYTES] {
    let mut out = [0; ANSWER_BYTES];
    let verdict = &answer.verdict;
    out[0] = verdict.reason as u8;
    out[1] = verdict.score.value();
    out[2] = u8::from(verdict.is_free_provider)
        | u8::from(verdict.is_corporate_email) << 1
        | u8::from(answer.is_in_manifest_lists) << 2
        | u8::from(answer.is_protected_in_manifest_lists) << 3
        | u8::from(answer.is_known_or_cleared) << 4
        | u8::from(answer.set_by_override.sets_free_provider) << 5
        | u8::from(answer.set_by_override.sets_corporate_email) << 6
        | u8::from(answer.set_by_override.sets_label) << 7;
    out[3] = verdict.rule as u8;
    out[4..8].copy_from_slice(&answer.label_number.to_le_bytes());
    out[8..16].copy_from_slice(&answer.list_bits.to_le_bytes());
    out[16..20].copy_from_slice(&answer.vote_bits.to_le_bytes());
    // 0 stands for the rule of the verdict.
    out[20] = if answer.rule_of_lists == verdict.rule { 0 } else { answer.rule_of_lists as u8 };
    out
}

fn encode_entry(entry: &NameEntry) -> [u8; ENTRY_BYTES] {
    let mut out = [0; ENTRY_BYTES];
    out[..2].copy_from_slice(&entry.own_answer.to_le_bytes());
    out[2..4].copy_from_slice(&entry.answer_below.to_le_bytes());
    out[4..6].copy_from_slice(&entry.answer_across_suffixes.to_le_bytes());
    out[6] = u8::from(entry.has_rows_below);
    out[8..10].copy_from_slice(&entry.seen_days.first.0.to_le_bytes());
    out[10..].copy_from_slice(&entry.seen_days.last.0.to_le_bytes());
    out
}
