//! Looks up the answer for a domain.
//!
//! The row of the name itself wins, or else the row of its nearest parent. A row of a public suffix
//! counts for names below the suffix only if the row says so. If no row matches, or if the row has
//! no fact about the name, the rules for unlisted names apply. A look-up reads the table's bytes in
//! place.

use super::answer::{TableAnswer, TableRow};
use super::buckets;
use super::entry::{
    FixedAnswer, NO_ANSWER, NameEntry, TLD_COVERS_ALL, TLD_EXISTS, TLD_HAS_ROW_ACROSS_SUFFIXES,
};
use super::look_alikes::{LookAlike, read_look_alike};
use super::manifest::MAX_TLD_LIST_AGE_DAYS;
use super::rules::FieldsSetByOverride;
use super::seen_days::SeenDays;
use super::similar_names::{SuffixState, TypedName};
use super::table_data::Table;
use crate::model::domain::{Domain, find_last, self_and_parent_offsets};
use crate::model::month::SECONDS_PER_DAY;

/// A row that matched a name.
#[derive(Clone, Copy)]
struct MatchedRow {
    /// The index of the answer; [`NO_ANSWER`] if the row does not cover the name.
    answer: u16,
    /// The byte offset in the name at which the row's name begins.
    name_offset: usize,
    seen_days: SeenDays,
}

impl MatchedRow {
    /// The row of the name itself.
    fn of_name(entry: &NameEntry, name_offset: usize) -> MatchedRow {
        MatchedRow { answer: entry.own_answer, name_offset, seen_days: entry.seen_days }
    }

    /// The row of the name itself, or of a parent if the row's name begins within the name.
    fn of_name_or_parent(entry: &NameEntry, name_offset: usize) -> MatchedRow {
        let answer = if name_offset == 0 { entry.own_answer } else { entry.answer_below };
        MatchedRow { answer, ..MatchedRow::of_name(entry, name_offset) }
    }
}

impl Table {
    /// The table's answer for a domain. `now`, in seconds since 1970, only decides whether the list
    /// of TLDs is recent enough to be used.
    pub fn lookup(&self, domain: &Domain, now: i64) -> TableAnswer<'_> {
        let name = domain.as_str();
        let registrable_start = domain.registrable_start();
        let found = match registrable_start {
            Some(registrable_start) => self.find_row_up_to_registrable(name, registrable_start),
            // A public suffix is matched only by its own row, or by a row that covers suffixes.
            None => self.find_entry(name).map(|entry| MatchedRow::of_name(entry, 0)),
        };
        if let Some(row) = found.filter(|row| row.answer != NO_ANSWER) {
            return match self.answer_yields_to_unlisted_rules[usize::from(row.answer)] {
                true => self.apply_rules_below_row(domain, registrable_start, row, now),
                false => self.make_answer_of_row(row),
            };
        }
        let tld_at = find_last(name, b'.').map_or(0, |dot| dot + 1);
        let tld_flags = self.tld_flags.flags_of(&name[tld_at..]);
        if tld_flags & (TLD_COVERS_ALL | TLD_HAS_ROW_ACROSS_SUFFIXES) != 0
            && let Some(row) =
                self.find_row_above_registrable(name, registrable_start.unwrap_or(0), tld_flags)
        {
            let judges_no_name = self.answer_yields_to_unlisted_rules[usize::from(row.answer)]
                && self.fields_laid_over_by(row.answer).is_any();
            return match judges_no_name {
                true => self.apply_rules_below_row(domain, registrable_start, row, now),
                false => self.make_answer_of_row(row),
            };
        }
        self.answer_unlisted_name(domain, registrable_start, tld_flags, now)
    }

    /// The fields that the override behind an answer lays over the answers of rules and DNS facts.
    fn fields_laid_over_by(&self, answer_index: u16) -> FieldsSetByOverride {
        self.decoded_table.answers[usize::from(answer_index)].set_by_override
    }

    /// The answer for a name without a row.
    fn answer_unlisted_name(
        &self,
        domain: &Domain,
        registrable_start: Option<usize>,
        tld_flags: u8,
        now: i64,
    ) -> TableAnswer<'_> {
        let is_tld_list_recent =
            self.decoded_table.meta.tlds_date.is_some_and(|date| {
                now < date.saturating_add(MAX_TLD_LIST_AGE_DAYS * SECONDS_PER_DAY)
            });
        if tld_flags & TLD_EXISTS == 0 && is_tld_list_recent {
            return self.make_answer(FixedAnswer::UnknownTld as u16, None);
        }
        self.apply_unlisted_rules(domain, registrable_start)
            .unwrap_or_else(|| self.make_answer(FixedAnswer::Unknown as u16, None))
    }

    /// The answer for a name whose row says nothing about the risk: the answer of the rules for
    /// unlisted names, or else the answer of the row. If the row comes from an override alone, the
    /// name is answered as if it had no row. In both cases, the fields that the override sets
    /// replace those of the answer.
    fn apply_rules_below_row(
        &self,
        domain: &Domain,
        registrable_start: Option<usize>,
        row: MatchedRow,
        now: i64,
    ) -> TableAnswer<'_> {
        let stored = &self.decoded_table.answers[usize::from(row.answer)];
        if !stored.set_by_override.is_any() {
            return self
                .apply_unlisted_rules(domain, registrable_start)
                .unwrap_or_else(|| self.make_answer_of_row(row));
        }
        match stored.is_known_or_cleared || stored.vote_bits != 0 {
            true => self
                .apply_unlisted_rules(domain, registrable_start)
                .map(|answer| answer.with_fields_laid_over(row.answer))
                .unwrap_or_else(|| self.make_answer_of_row(row)),
            false => {
                let name = domain.as_str();
                let tld_at = find_last(name, b'.').map_or(0, |dot| dot + 1);
                let tld_flags = self.tld_flags.flags_of(&name[tld_at..]);
                self.answer_unlisted_name(domain, registrable_start, tld_flags, now)
                    .with_fields_laid_over(row.answer)
            }
        }
    }

    /// The answer of the rules for unlisted names, if one applies.
    fn apply_unlisted_rules(
        &self,
        domain: &Domain,
        registrable_start: Option<usize>,
    ) -> Option<TableAnswer<'_>> {
        let name = domain.as_str();
        let typed = || self.split_typed_name(name, registrable_start);
        let look_alike = read_domain_as_look_alike(domain);
        let rules = &self.unlisted_rules;
        let answer = rules.find_answer(name, typed, look_alike.as_ref(), registrable_start)?;
        Some(self.make_answer(answer as u16, None))
    }

    /// Splits a name as it is compared with providers. `None` if it is a public suffix or too long.
    fn split_typed_name<'n>(
        &self,
        name: &'n str,
        registrable_start: Option<usize>,
    ) -> Option<TypedName<'n>> {
        let tld = &name[find_last(name, b'.').map_or(0, |dot| dot + 1)..];
        let has_tld_list = self.decoded_table.meta.tlds_date.is_some();
        let is_tld = !has_tld_list || self.tld_flags.flags_of(tld) & TLD_EXISTS != 0;
        let suffix_state = match registrable_start? {
            _ if !is_tld => SuffixState::HasNoTld,
            0 => SuffixState::Exists,
            _ => SuffixState::IsNoSuffix,
        };
        TypedName::new(name, suffix_state)
    }

    /// The provider that was probably meant by the name, whatever lists say about the name: the one
    /// that it looks like, or that slips of the finger lead from.
    pub(super) fn find_similar_provider(&self, domain: &Domain) -> Option<&str> {
        let apparent = read_domain_as_look_alike(domain).map(|it| it.apparent_name);
        let looks_like = |name: &str| self.unlisted_rules.find_provider(name);
        if let Some(provider) = apparent.as_deref().and_then(looks_like) {
            return Some(provider);
        }
        let apparent = apparent.and_then(|name| Domain::parse(&name).ok());
        let domain = apparent.as_ref().unwrap_or(domain);
        let provider = self.unlisted_rules.find_provider_with_repeated_suffix(domain.as_str());
        if provider.is_some() {
            return provider;
        }
        let typed = self.split_typed_name(domain.as_str(), domain.registrable_start())?;
        self.unlisted_rules.suggest_provider(&typed)
    }

    /// Whether the name is one of the providers under `typos_of` and `suggest` in the manifest.
    pub fn is_large_provider(&self, name: &str) -> bool {
        self.unlisted_rules.is_compared_provider(name)
    }

    /// The answer of a row that matched.
    fn make_answer_of_row(&self, row: MatchedRow) -> TableAnswer<'_> {
        let has_fields = self.fields_laid_over_by(row.answer).is_any();
        TableAnswer {
            seen_days: row.seen_days,
            fields_laid_over: if has_fields { row.answer } else { NO_ANSWER },
            ..self.make_answer(row.answer, Some(row.name_offset))
        }
    }

    /// Finds the nearest row at or below the registrable domain. The row's answer may be
    /// `NO_ANSWER`. Reads the entry of the registrable domain first, because this entry tells
    /// whether names below it have rows. If not, or without this entry, the look-up reads no
    /// further entry, unless the table has another suffix list.
    fn find_row_up_to_registrable(
        &self,
        name: &str,
        registrable_start: usize,
    ) -> Option<MatchedRow> {
        let registrable_entry = self.find_entry(&name[registrable_start..]);
        if registrable_entry.is_some_and(|entry| entry.has_rows_below) || self.has_other_suffix_list
        {
            for at in self_and_parent_offsets(name).take_while(|at| *at < registrable_start) {
                let row = self
                    .find_entry(&name[at..])
                    .map(|entry| MatchedRow::of_name_or_parent(entry, at));
                if let Some(row) = row.filter(|row| row.answer != NO_ANSWER) {
                    return Some(row);
                }
            }
        }
        registrable_entry.map(|entry| MatchedRow::of_name_or_parent(entry, registrable_start))
    }

    /// Finds the nearest row above the registrable domain that covers names across public suffixes.
    fn find_row_above_registrable(
        &self,
        name: &str,
        registrable_start: usize,
        tld_flags: u8,
    ) -> Option<MatchedRow> {
        self_and_parent_offsets(name).skip_while(|at| *at <= registrable_start).find_map(|at| {
            let is_tld = !name[at..].contains('.');
            let flag = if is_tld { TLD_COVERS_ALL } else { TLD_HAS_ROW_ACROSS_SUFFIXES };
            if tld_flags & flag == 0 {
                return None;
            }
            let entry = self.find_entry(&name[at..])?;
            let row = MatchedRow {
                answer: entry.answer_across_suffixes,
                ..MatchedRow::of_name(entry, at)
            };
            (row.answer != NO_ANSWER).then_some(row)
        })
    }

    pub(super) fn find_entry(&self, name: &str) -> Option<&NameEntry> {
        let all = self.bytes.as_slice();
        let all_buckets = &all[self.decoded_table.bucket_range.clone()];
        let bucket_count = all_buckets.len() / buckets::BUCKET_BYTES;
        let name_hash = buckets::hash_name(&self.decoded_table.hash_key, name, bucket_count);
        let value = buckets::find_entry_number(all_buckets, name_hash, |bucket, slot| {
            self.names_in_bucket(bucket).nth(slot).flatten() == Some(name.as_bytes())
        })?;
        self.decoded_table.entries.get(usize::from(value) - 1)
    }

    /// The row of an entry; `None` if only names below its name have rows.
    fn make_row<'t>(&'t self, name: &'t str, entry: &NameEntry) -> Option<TableRow<'t>> {
        let found = |answer: u16| {
            let row = MatchedRow { answer, ..MatchedRow::of_name(entry, 0) };
            (answer != NO_ANSWER).then(|| self.make_answer_of_row(row))
        };
        Some(TableRow {
            name,
            own_answer: found(entry.own_answer)?,
            answer_below: found(entry.answer_below),
        })
    }

    /// The row of exactly this name.
    pub fn find_row<'t>(&'t self, name: &'t str) -> Option<TableRow<'t>> {
        self.make_row(name, self.find_entry(name)?)
    }

    /// All rows, in the order of the hash table's buckets.
    pub fn iter_rows(&self) -> impl Iterator<Item = TableRow<'_>> {
        self.iter_names_with_entry_index()
            .filter_map(|(name, number)| self.make_row(name, &self.decoded_table.entries[number]))
    }
}

/// Reads a domain with letters of other scripts as a person would.
fn read_domain_as_look_alike(domain: &Domain) -> Option<LookAlike> {
    read_look_alike(&domain.to_unicode()?)
}
