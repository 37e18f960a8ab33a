//! Looks up the answer for a domain.
//!
//! The nearest row wins. If no row matches, the rules for unlisted names apply. A look-up reads the
//! table's bytes in place.

use super::answer::{ListRow, Lookup};
use super::buckets;
use super::entry::{
    ANSWER_MAIL_IN_NAME, ANSWER_THROWAWAY_NAME, ANSWER_TYPO, ANSWER_UNKNOWN, ANSWER_UNKNOWN_TLD,
    Entry, NO_ANSWER, TLD_COVERS_ALL, TLD_EXISTS, TLD_HAS_COVERING_SUFFIX,
};
use super::inference::InferredRule;
use super::manifest::MAX_TLD_LIST_AGE_DAYS;
use super::source_packages::SECONDS_PER_DAY;
use super::table_data::Table;
use crate::model::domain::{Domain, ancestor_offsets};

impl Table {
    /// The table's answer for a domain. `now` is in seconds since 1970.
    pub fn lookup(&self, domain: &Domain, now: i64) -> Lookup<'_> {
        let name = domain.as_str();
        let registrable_start = domain.registrable_start();
        let found = match registrable_start {
            Some(registrable_start) => self.lookup_registrable(name, registrable_start),
            // A public suffix is matched only by its own row, or by a row that covers suffixes.
            None => self.probe(name).map(|entry| (entry.own, 0)),
        };
        if let Some((answer, at)) = found.filter(|(answer, _)| *answer != NO_ANSWER) {
            return match self.defers_to_rules[usize::from(answer)] {
                true => self
                    .apply_inference(name, registrable_start)
                    .unwrap_or_else(|| self.make_lookup(answer, Some(at))),
                false => self.make_lookup(answer, Some(at)),
            };
        }
        let tld_at = name.rfind('.').map_or(0, |dot| dot + 1);
        let tld = self.tlds.flags(&name[tld_at..]);
        if tld & (TLD_COVERS_ALL | TLD_HAS_COVERING_SUFFIX) != 0
            && let Some((answer, at)) =
                self.lookup_suffix_rows(name, registrable_start.unwrap_or(0), tld)
        {
            return self.make_lookup(answer, Some(at));
        }
        let is_young =
            self.decoded.meta.tlds_date.is_some_and(|date| {
                now < date.saturating_add(MAX_TLD_LIST_AGE_DAYS * SECONDS_PER_DAY)
            });
        if tld & TLD_EXISTS == 0 && is_young {
            return self.make_lookup(ANSWER_UNKNOWN_TLD, None);
        }
        self.apply_inference(name, registrable_start)
            .unwrap_or_else(|| self.make_lookup(ANSWER_UNKNOWN, None))
    }

    /// The answer of the rules for unlisted names, if one applies.
    fn apply_inference(&self, name: &str, registrable_start: Option<usize>) -> Option<Lookup<'_>> {
        let label = registrable_start
            .map_or("", |registrable_start| registrable_label(&name[registrable_start..]));
        let answer = match self.inference.infer_rule(name, label)? {
            InferredRule::Typo => ANSWER_TYPO,
            InferredRule::ThrowawayName => ANSWER_THROWAWAY_NAME,
            InferredRule::MailInName => ANSWER_MAIL_IN_NAME,
        };
        Some(self.make_lookup(answer, None))
    }

    /// Whether the name is one of the large providers that names are compared with.
    pub fn is_large_provider(&self, name: &str) -> bool {
        self.inference.is_provider(name)
    }

    /// The nearest row at or below the registrable domain. The registrable domain is probed first:
    /// its entry tells whether there are rows below it, so that a miss costs one probe.
    fn lookup_registrable(&self, name: &str, registrable_start: usize) -> Option<(u16, usize)> {
        let registrable_entry = self.probe(&name[registrable_start..]);
        if registrable_entry.is_some_and(|entry| entry.has_rows_below) || self.needs_full_walk {
            for at in ancestor_offsets(name).take_while(|at| *at < registrable_start) {
                let entry = self.probe(&name[at..]);
                let answer =
                    entry.map_or(NO_ANSWER, |entry| if at == 0 { entry.own } else { entry.below });
                if answer != NO_ANSWER {
                    return Some((answer, at));
                }
            }
        }
        registrable_entry.map(|entry| {
            (if registrable_start == 0 { entry.own } else { entry.below }, registrable_start)
        })
    }

    /// The nearest row above the registrable domain that covers names across public suffixes.
    fn lookup_suffix_rows(
        &self,
        name: &str,
        registrable_start: usize,
        tld: u8,
    ) -> Option<(u16, usize)> {
        ancestor_offsets(name).skip_while(|at| *at <= registrable_start).find_map(|at| {
            let is_tld = !name[at..].contains('.');
            let flag = if is_tld { TLD_COVERS_ALL } else { TLD_HAS_COVERING_SUFFIX };
            if tld & flag == 0 {
                return None;
            }
            let answer = self.probe(&name[at..])?.across_suffixes;
            (answer != NO_ANSWER).then_some((answer, at))
        })
    }

    pub(super) fn probe(&self, name: &str) -> Option<&Entry> {
        let all = self.bytes.as_slice();
        let all_buckets = &all[self.decoded.buckets.clone()];
        let bucket_count = all_buckets.len() / buckets::BUCKET_BYTES;
        let name_hash = buckets::hash_name(&self.decoded.hash_key, name, bucket_count);
        let value = buckets::probe(all_buckets, name_hash, |bucket, slot| {
            self.names_in_bucket(bucket).nth(slot).flatten() == Some(name.as_bytes())
        })?;
        self.decoded.entries.get(usize::from(value) - 1)
    }

    fn make_row<'t>(&'t self, name: &'t str, entry: &Entry) -> Option<ListRow<'t>> {
        let found = |number: u16| (number != NO_ANSWER).then(|| self.make_lookup(number, Some(0)));
        Some(ListRow { name, own: found(entry.own)?, below: found(entry.below) })
    }

    /// The row of exactly this name.
    pub fn find_row<'t>(&'t self, name: &'t str) -> Option<ListRow<'t>> {
        self.make_row(name, self.probe(name)?)
    }

    /// All rows, in the order of their hashes.
    pub fn rows(&self) -> impl Iterator<Item = ListRow<'_>> {
        self.iter_entries()
            .filter_map(|(name, number)| self.make_row(name, &self.decoded.entries[number]))
    }
}

/// The first label of a registrable domain, which its owner chose.
fn registrable_label(registrable: &str) -> &str {
    registrable.split('.').next().unwrap_or_default()
}
