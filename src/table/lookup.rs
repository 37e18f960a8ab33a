//! Finds what a table says of a domain.
//!
//! The nearest row wins; the rules for names without a row come last. Reads the table's bytes in
//! place and changes nothing.

use super::answer::{Found, Row};
use super::buckets;
use super::entry::{
    Entry, MAIL_IN_NAME, NONE, THROWAWAY_NAME, TLD_BEYOND_AT, TLD_BEYOND_BELOW, TLD_EXISTS, TYPO,
    UNKNOWN, UNKNOWN_TLD,
};
use super::infer::Inferred;
use super::manifest::TLDS_DAYS;
use super::packages::DAY;
use super::table_data::Table;
use crate::model::domain::{Domain, walk};

impl Table {
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
        if tld & (TLD_BEYOND_AT | TLD_BEYOND_BELOW) != 0
            && let Some((answer, at)) = self.lookup_beyond(name, owner.unwrap_or(0), tld)
        {
            return self.found(answer, Some(at));
        }
        let is_young = self
            .parts
            .meta
            .tlds_date
            .is_some_and(|date| now < date.saturating_add(TLDS_DAYS * DAY));
        if tld & TLD_EXISTS == 0 && is_young {
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
            let flag = if is_tld { TLD_BEYOND_AT } else { TLD_BEYOND_BELOW };
            if tld & flag == 0 {
                return None;
            }
            let answer = self.probe(&name[at..])?.beyond;
            (answer != NONE).then_some((answer, at))
        })
    }

    pub(super) fn probe(&self, name: &str) -> Option<&Entry> {
        let all = self.bytes.of();
        let lines = &all[self.parts.lines.clone()];
        let place = buckets::place(&self.parts.key, name, lines.len() / buckets::LINE);
        let value = buckets::probe(lines, place, |line, slot| {
            self.names_of(line).nth(slot).flatten() == Some(name.as_bytes())
        })?;
        self.parts.entries.get(usize::from(value) - 1)
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
}

/// The first label of a registrable domain: what its owner chose.
fn registrable_label(registrable: &str) -> &str {
    registrable.split('.').next().unwrap_or_default()
}
