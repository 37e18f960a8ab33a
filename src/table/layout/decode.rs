//! Checks the bytes of a table and decodes its small sections.

use xxhash_rust::xxh3::xxh3_64;

use super::parts::{DecodedTable, TableMeta};
use super::sections::{
    ANSWER_BYTES, CHECKSUMMED_BYTES_START, ENTRY_BYTES, FORMAT_VERSION, LengthPrefixedTexts, MAGIC,
    SECTION_COUNT, TABLE_HEADER_BYTES, damage_fault, read_integer, section_range,
};
use crate::model::verdict::{Reason, Rule, Score, Verdict};
use crate::table::aligned_bytes::AlignedBytes;
use crate::table::buckets::{self, BUCKET_BYTES, SLOTS_PER_BUCKET};
use crate::table::entry::{NO_ANSWER, NameEntry, RULES_OF_FIXED_ANSWERS};
use crate::table::fault::TableFault;
use crate::table::rules::{FieldsSetByOverride, StoredAnswer};
use crate::table::seen_days::{Day, SeenDays};

fn decode_answer(
    bytes: &[u8; ANSWER_BYTES],
    label_count: usize,
    list_count: usize,
) -> Option<StoredAnswer> {
    let [reason, score, flags, rule, ..] = *bytes;
    let rule = Rule::from_number(rule)?;
    let answer = StoredAnswer {
        verdict: Verdict {
            reason: Reason::ALL.into_iter().find(|known| *known as u8 == reason)?,
            score: Score::new(score)?,
            is_free_provider: flags & 1 != 0,
            is_corporate_email: flags & 2 != 0,
            rule,
        },
        rule_of_lists: if bytes[20] == 0 { rule } else { Rule::from_number(bytes[20])? },
        label_number: u32::from_le_bytes(bytes[4..8].try_into().ok()?),
        list_bits: u64::from_le_bytes(bytes[8..16].try_into().ok()?),
        vote_bits: u32::from_le_bytes(bytes[16..20].try_into().ok()?),
        is_in_manifest_lists: flags & 4 != 0,
        is_protected_in_manifest_lists: flags & 8 != 0,
        is_known_or_cleared: flags & 16 != 0,
        set_by_override: FieldsSetByOverride {
            sets_free_provider: flags & 32 != 0,
            sets_corporate_email: flags & 64 != 0,
            sets_label: flags & 128 != 0,
        },
    };
    let has_known_lists = answer.list_bits.checked_shr(list_count as u32).unwrap_or(0) == 0;
    let is_valid = answer.label_number as usize <= label_count && has_known_lists;
    is_valid.then_some(answer)
}

fn decode_entry(bytes: &[u8; ENTRY_BYTES], answer_count: usize) -> Option<NameEntry> {
    let [a, b, c, d, e, f, flags, _, first @ .., last_low, last_high] = *bytes;
    let numbers = [[a, b], [c, d], [e, f]].map(u16::from_le_bytes);
    let is_valid = numbers.iter().all(|n| *n == NO_ANSWER || usize::from(*n) < answer_count);
    let [own, below, across_suffixes] = numbers;
    (is_valid && flags < 2).then_some(NameEntry {
        own_answer: own,
        answer_below: below,
        answer_across_suffixes: across_suffixes,
        has_rows_below: flags == 1,
        seen_days: SeenDays {
            first: Day(u16::from_le_bytes(first)),
            last: Day(u16::from_le_bytes([last_low, last_high])),
        },
    })
}

/// Decodes a table, after checking everything that look-ups rely on.
pub(in crate::table) fn decode_table(
    bytes: &AlignedBytes,
    name_in_faults: &str,
) -> Result<DecodedTable, TableFault> {
    let all = bytes.as_slice();
    check_header(all, name_in_faults)?;
    let section = |i: usize| section_range(all, i, name_in_faults);
    let damaged = |what: &str| damage_fault(name_in_faults, what);

    let meta = std::str::from_utf8(&all[section(0)?]).map_err(|_| damaged("description"))?;
    let meta: TableMeta = toml::from_str(meta).map_err(|_| damaged("description"))?;
    if meta.list.len() > 64 {
        return Err(damaged("description"));
    }
    let labels: Vec<String> = LengthPrefixedTexts { remaining_bytes: &all[section(1)?] }
        .map(|text| text.and_then(|text| std::str::from_utf8(text).ok()).map(str::to_owned))
        .collect::<Option<_>>()
        .ok_or_else(|| damaged("labels"))?;
    let answers: Vec<StoredAnswer> = split_into_records(&all[section(2)?])
        .and_then(|all| {
            all.iter().map(|b| decode_answer(b, labels.len(), meta.list.len())).collect()
        })
        .filter(|all: &Vec<StoredAnswer>| all.len() >= RULES_OF_FIXED_ANSWERS.len())
        .ok_or_else(|| damaged("answers"))?;
    let entries: Vec<NameEntry> = split_into_records(&all[section(3)?])
        .and_then(|all| all.iter().map(|b| decode_entry(b, answers.len())).collect())
        .ok_or_else(|| damaged("entries"))?;
    let is_answer = |number: u16| usize::from(number) < answers.len();
    if !meta.mx.iter().all(|host| host.indexes.all().into_iter().all(is_answer))
        || !meta.mx_address.iter().all(|row| is_answer(row.answer))
    {
        return Err(damaged("description"));
    }
    let mut tlds = Vec::new();
    let mut rest = &all[section(4)?];
    while let Some((flags, after)) = rest.split_first() {
        let mut texts = LengthPrefixedTexts { remaining_bytes: after };
        let name = texts.next().flatten().and_then(|text| std::str::from_utf8(text).ok());
        tlds.push((name.ok_or_else(|| damaged("top-level domains"))?.to_owned(), *flags));
        rest = texts.remaining_bytes;
    }
    let parts = DecodedTable {
        content_hash: u128::from(read_integer(all, 32, 8, name_in_faults)?)
            | u128::from(read_integer(all, 40, 8, name_in_faults)?) << 64,
        hash_key: all[48..64].try_into().map_err(|_| damaged("key"))?,
        meta,
        labels,
        answers,
        entries,
        tld_flags: tlds,
        bucket_range: section(5)?,
        name_offset_range: section(6)?,
        name_range: section(7)?,
    };
    check_buckets(all, &parts).ok_or_else(|| damaged("buckets"))?;
    // The embedded lists are decoded only when they are needed.
    section(SECTION_COUNT - 1)?;
    Ok(parts)
}

/// Checks the format, the length and the checksum.
fn check_header(all: &[u8], name_in_faults: &str) -> Result<(), TableFault> {
    let wrong =
        |expected: &str, found: String| Err(TableFault::expected(name_in_faults, expected, found));
    if all.get(..8) != Some(MAGIC) {
        return wrong("a compiled table", "other bytes".into());
    }
    let format = read_integer(all, 8, 4, name_in_faults)?;
    if format > u64::from(FORMAT_VERSION) {
        let found = format!("format {format}, made by a newer riskgate");
        return wrong(&format!("a compiled table of format {FORMAT_VERSION}"), found);
    }
    if format != u64::from(FORMAT_VERSION) || read_integer(all, 12, 4, name_in_faults)? != 0 {
        return wrong(
            &format!("a compiled table of format {FORMAT_VERSION}"),
            "another format".into(),
        );
    }
    let length = read_integer(all, 16, 8, name_in_faults)?;
    if length != all.len() as u64 || all.len() < TABLE_HEADER_BYTES {
        return wrong(&format!("{length} bytes"), format!("{}: a truncated file", all.len()));
    }
    if read_integer(all, 24, 8, name_in_faults)? != xxh3_64(&all[CHECKSUMMED_BYTES_START..]) {
        return wrong("bytes that match their checksum", "others: a damaged file".into());
    }
    Ok(())
}

/// Checks that the number in every slot is that of an entry, and that every used slot has a name.
/// `None` if the table is damaged.
fn check_buckets(table_bytes: &[u8], parts: &DecodedTable) -> Option<()> {
    let (all_buckets, rest) = table_bytes[parts.bucket_range.clone()].as_chunks::<BUCKET_BYTES>();
    let (starts, rest_of_starts) = table_bytes[parts.name_offset_range.clone()].as_chunks::<4>();
    let names = &table_bytes[parts.name_range.clone()];
    let is_valid = rest.is_empty()
        && rest_of_starts.is_empty()
        && starts.len() == all_buckets.len()
        && all_buckets.len() > buckets::OVERFLOW_BUCKET_COUNT;
    if !is_valid {
        return None;
    }
    for (bucket, start) in all_buckets.iter().zip(starts) {
        let mut texts = LengthPrefixedTexts {
            remaining_bytes: names.get(u32::from_le_bytes(*start) as usize..)?,
        };
        let mut saw_empty_slot = false;
        for slot in 0..SLOTS_PER_BUCKET {
            let value = usize::from(buckets::entry_number_in_slot(bucket, slot));
            // No used slot may follow an empty one: the n-th used slot has the n-th stored name.
            match (value, saw_empty_slot) {
                (0, _) => saw_empty_slot = true,
                (_, true) => return None,
                // Only the name is text: the length before it may be a byte above 127.
                _ => _ = texts.next().flatten().filter(|name| name.is_ascii())?,
            }
            if value > parts.entries.len() {
                return None;
            }
        }
    }
    Some(())
}

fn split_into_records<const N: usize>(bytes: &[u8]) -> Option<&[[u8; N]]> {
    let (all, rest) = bytes.as_chunks();
    rest.is_empty().then_some(all)
}
