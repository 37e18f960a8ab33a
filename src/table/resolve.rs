//! How names cover one another: rows become one entry for each name, with what it says of itself,
//! of the names below it, and of those below it that are somebody else's.
//!
//! What a name inherits is worked out here, once, so that a look-up takes the most specific row
//! and asks nothing else.

use std::collections::HashMap;

use super::entry::{
    Entry, FIXED_RULES, NO_ANSWER, TLD_COVERS_ALL, TLD_EXISTS, TLD_HAS_COVERING_SUFFIX,
};
use super::fault::{TableError, TableFault};
use super::inheritance::{Inheritable, Inherited, collect_inheritable, facts_of_row};
use super::manifest::{ListKind, ListOrigin, Manifest};
use super::mx::MxAnswers;
use super::rows::{Coverage, NO_REGISTRABLE, ParsedLists, Row};
use super::rules::{self, FLAGGING_LIST_BITS, Facts, OverrideRow, StoredAnswer};
use crate::model::domain::{DnsName, ancestor_offsets};
use crate::model::verdict::Rule;

/// The dictionary and who points into it.
#[derive(Default)]
pub(super) struct Resolved<'r> {
    /// Sorted; each with the number of its entry and 1.
    pub names: Vec<(&'r str, u16)>,
    pub entries: Vec<Entry>,
    pub answers: Vec<StoredAnswer>,
    pub tlds: HashMap<&'r str, u8>,
    /// What follows from the MX host of a name without a row, by suffixes of hosts.
    pub mx: Vec<MxAnswers>,
    pub rows: usize,
}

struct EntryBuilder<'r> {
    manifest: &'r Manifest,
    lists: &'r ParsedLists<'r>,
    places: &'r [String],
    inheritable: HashMap<&'r str, Inheritable>,
    /// Protected names that may be flagged: their line, and whether one was.
    flaggable: HashMap<String, (u32, bool)>,
    answer_numbers: HashMap<StoredAnswer, u16>,
    entry_numbers: HashMap<Entry, u16>,
    covered: Resolved<'r>,
}

/// Works out the entries of all names. `lists.rows` must be sorted by name.
pub(super) fn resolve<'r>(
    lists: &'r ParsedLists<'r>,
    manifest: &'r Manifest,
    display_names: &'r [String],
    faults: &mut TableError,
) -> Resolved<'r> {
    let mut allowed = HashMap::new();
    for (name, line) in &manifest.allow_flagging {
        let at = format!("{}:{line}: guard.allow_flagging", display_names[display_names.len() - 1]);
        match DnsName::parse(name) {
            Ok(name) => _ = allowed.insert(name.as_str().to_owned(), (*line, false)),
            Err(error) => faults.push(TableFault::Toml { at, message: error.to_string() }),
        }
    }
    let mut build_table = EntryBuilder {
        manifest,
        lists,
        places: display_names,
        inheritable: collect_inheritable(lists, manifest),
        flaggable: allowed,
        answer_numbers: HashMap::new(),
        entry_numbers: HashMap::new(),
        covered: Resolved::default(),
    };
    for rule in FIXED_RULES {
        let facts = Facts { bits: rules::rule_bit(rule), ..Facts::default() };
        // Pushed and not interned: their numbers are fixed.
        build_table.covered.answers.push(rules::decide_answer(&facts, None, &manifest.scores));
    }
    build_table.build_entries(faults);
    build_table.build_mx_answers(faults);
    for (name, (line, used)) in &build_table.flaggable {
        if !used {
            let at =
                format!("{}:{line}: guard.allow_flagging", display_names[display_names.len() - 1]);
            let expected = "a protected name that an override or a list flags";
            faults.push(TableFault::expected(at, expected, super::fault::quote_excerpt(name)));
        }
    }
    let resolved = &build_table.covered;
    for (what, count) in [("answers", resolved.answers.len()), ("rows", resolved.entries.len())] {
        if count >= usize::from(u16::MAX) {
            let expected = format!("at most 65534 different {what}");
            faults.push(TableFault::expected(
                &display_names[display_names.len() - 1],
                expected,
                "more",
            ));
        }
    }
    build_table.covered
}

impl<'r> EntryBuilder<'r> {
    fn build_entries(&mut self, faults: &mut TableError) {
        let rows = &self.lists.rows;
        let mut registrable_names: Vec<&str> = rows
            .iter()
            .filter(|row| row.registrable_start != 0 && row.registrable_start != NO_REGISTRABLE)
            .map(|row| &row.name[usize::from(row.registrable_start)..])
            .collect();
        registrable_names.sort_unstable();
        registrable_names.dedup();
        let mut registrable_names = registrable_names.into_iter().peekable();
        let mut names = Vec::with_capacity(rows.len());
        for group in rows.chunk_by(|a, b| a.name == b.name) {
            let name: &str = &group[0].name;
            while let Some(registrable_start) =
                registrable_names.next_if(|registrable_start| *registrable_start < name)
            {
                names.push((registrable_start, self.intern_empty_non_terminal()));
            }
            let has_rows_below = registrable_names.next_if_eq(&name).is_some();
            names.push((name, self.build_entry(name, group, has_rows_below, faults)));
            self.covered.rows += 1;
        }
        for registrable_start in registrable_names {
            names.push((registrable_start, self.intern_empty_non_terminal()));
        }
        self.covered.names = names;
        for tld in &self.lists.tlds {
            *self.covered.tlds.entry(tld).or_default() |= TLD_EXISTS;
        }
    }

    /// The entry of a registrable domain that has no row, but rows below it.
    fn intern_empty_non_terminal(&mut self) -> u16 {
        self.intern_entry(Entry {
            own: NO_ANSWER,
            below: NO_ANSWER,
            across_suffixes: NO_ANSWER,
            has_rows_below: true,
        })
    }

    fn build_entry(
        &mut self,
        name: &'r str,
        group: &'r [Row],
        has_rows_below: bool,
        faults: &mut TableError,
    ) -> u16 {
        let inherited = self.collect_inherited(name, group[0].registrable_start);
        let inheritable = self.inheritable.get(name).copied().unwrap_or_default();
        let sum = |least: Coverage| {
            let rows = || group.iter().filter(|row| row.coverage >= least);
            let mut sum = Facts::default();
            rows().for_each(|row| sum.merge(facts_of_row(row, self.manifest)));
            rows().next().is_some().then_some(sum)
        };
        let sums =
            [sum(Coverage::NameOnly), sum(Coverage::Subdomains), sum(Coverage::AcrossSuffixes)];
        let direct = sums[0].unwrap_or_default().bits;
        let is_protected = direct & rules::rule_bit(Rule::Protected) != 0;
        let override_numbers = self.find_overrides(&inheritable, &inherited);
        let is_allowed = self.flaggable.contains_key(name);

        let mut flagged_by = None;
        if is_protected && !is_allowed {
            flagged_by =
                group.iter().find(|row| row.fact_bits & FLAGGING_LIST_BITS != 0).map(list_and_line);
        }
        let mut numbers = [NO_ANSWER; 3];
        for (i, sum) in sums.into_iter().enumerate() {
            let Some(mut facts) = sum else { continue };
            if i == 0 {
                // It is the names below that everybody gets.
                facts.bits &= !rules::rule_bit(Rule::FreeSubdomain);
            }
            self.add_inherited(&mut facts, &inherited, i == 2);
            let was_protected = facts.bits & rules::rule_bit(Rule::Protected) != 0;
            if is_allowed {
                facts.bits &= !rules::rule_bit(Rule::Protected);
            }
            let override_row = override_numbers[i].and_then(|number| self.override_row(number));
            let answer = rules::decide_answer(&facts, override_row, &self.manifest.scores);
            if answer.verdict.reason.is_flagged() {
                let by = override_row.map_or_else(
                    || list_and_line(&group[0]),
                    |override_row| (override_row.list, override_row.line),
                );
                // An operator's own override is the last word on every name.
                let is_operators =
                    override_numbers[i].is_some_and(|number| self.is_operator_override(number));
                if is_protected && !is_allowed && !is_operators && flagged_by.is_none() {
                    flagged_by = Some(by);
                }
                if was_protected && let Some((_, used)) = self.flaggable.get_mut(name) {
                    *used = true;
                }
            }
            numbers[i] = self.intern_answer(answer);
        }
        if let Some((list, line)) = flagged_by {
            let at = format!("{}:{line}", self.places[usize::from(list)]);
            faults.push(TableFault::FlagsProtected { at, name: name.to_owned() });
        }
        let [own, below, across_suffixes] = numbers;
        if across_suffixes != NO_ANSWER {
            self.flag_tld(name);
        }
        self.intern_entry(Entry { own, below, across_suffixes, has_rows_below })
    }

    /// The overrides of the name itself, of names below it, and of names below it across public
    /// suffixes.
    fn find_overrides(&self, inheritable: &Inheritable, inherited: &Inherited) -> [Option<u32>; 3] {
        let above = [
            inheritable.subtree_override,
            inherited.operator_subtree_override,
            inherited.subtree_override,
        ];
        let covering = self.nearest_override(&above);
        let own = self.nearest_override(&[&[inheritable.exact_override][..], &above].concat());
        [own, covering, covering]
    }

    /// Flags the TLD of a name whose answer crosses public suffixes.
    fn flag_tld(&mut self, name: &'r str) {
        let (tld, flag) = match name.rfind('.') {
            Some(dot) => (&name[dot + 1..], TLD_HAS_COVERING_SUFFIX),
            None => (name, TLD_COVERS_ALL),
        };
        *self.covered.tlds.entry(tld).or_default() |= flag;
    }

    fn collect_inherited(&self, name: &str, registrable_start: u8) -> Inherited {
        let mut inherited = Inherited::default();
        for start in ancestor_offsets(name).skip(1) {
            let Some(inheritable) = self.inheritable.get(&name[start..]) else { continue };
            inherited.special_use.merge(inheritable.special_use);
            inherited.free_subdomain.merge(inheritable.free_subdomain);
            inherited.protection.merge(inheritable.protection);
            if registrable_start != NO_REGISTRABLE
                && start <= usize::from(registrable_start)
                && inherited.label.label == 0
            {
                inherited.label = inheritable.label;
            }
            if inherited.subtree_override == 0 {
                inherited.subtree_override = inheritable.subtree_override;
            }
            if inherited.operator_subtree_override == 0
                && self.is_operator_override(inheritable.subtree_override)
            {
                inherited.operator_subtree_override = inheritable.subtree_override;
            }
        }
        inherited
    }

    /// A suffix protects from what lists of other people and the DNS say of names below it, but
    /// neither from a role row, which is more specific and says what the mailboxes are for, nor
    /// from a reviewed list of disposable names.
    fn add_inherited(&self, facts: &mut Facts, inherited: &Inherited, past_suffix: bool) {
        facts.merge(inherited.special_use.inheritable());
        // A row below that says that the name is real, or who its owner is, keeps its word.
        if facts.bits & rules::REAL_NAME_BIT == 0 {
            facts.merge(inherited.free_subdomain.inheritable());
        }
        if facts.bits & (rules::rule_bit(Rule::Role) | rules::rule_bit(Rule::DisposableA)) == 0 {
            facts.merge(inherited.protection.inheritable());
        }
        if !past_suffix && facts.label == 0 && inherited.label.label != 0 {
            facts.label = inherited.label.label;
            facts.lists |= inherited.label.lists;
        }
    }

    /// What a name without a row gets by its MX host, in the place of each of the two rules that
    /// yield to it. A protected name, or one below it, is no host of a disposable operator.
    fn build_mx_answers(&mut self, faults: &mut TableError) {
        let lists: &'r ParsedLists<'r> = self.lists;
        let mut hosts: Vec<_> = lists.mx_labels.iter().collect();
        hosts.sort_unstable_by_key(|(suffix, _)| *suffix);
        for (suffix, (label, class)) in hosts {
            let is_disposable = class.bits() == rules::rule_bit(Rule::DisposableMx);
            if is_disposable
                && ancestor_offsets(suffix).any(|start| self.is_protected(&suffix[start..]))
            {
                let mut lists = self.manifest.lists.iter().zip(self.places);
                let display_name =
                    lists.find_map(|(list, at)| (list.kind == ListKind::MxLabel).then_some(at));
                let at = format!("{}: class", display_name.map_or("", String::as_str));
                let expected = "no protected name among the disposable hosts";
                faults.push(TableFault::expected(
                    at,
                    expected,
                    super::fault::quote_excerpt(suffix),
                ));
            }
            let mut answer = |rule: Rule| {
                let bits = rules::rule_bit(rule) | class.bits();
                let facts = Facts { bits, mx_label: *label, ..Facts::default() };
                self.intern_answer(rules::decide_answer(&facts, None, &self.manifest.scores))
            };
            let (unknown, mail_in_name) = (answer(Rule::Unknown), answer(Rule::MailInName));
            let suffix = suffix.clone();
            self.covered.mx.push(MxAnswers { suffix, unknown, mail_in_name });
        }
    }

    /// Whether a list protects exactly this name.
    fn is_protected(&self, name: &str) -> bool {
        let rows = &self.lists.rows;
        let first = rows.partition_point(|row| &*row.name < name);
        let mut rows = rows[first..].iter().take_while(|row| row.name == name);
        rows.any(|row| row.fact_bits & rules::rule_bit(Rule::Protected) != 0)
    }

    /// The override that counts of these, the nearest first and 0 for none: one of the operator's
    /// own if there is any.
    fn nearest_override(&self, numbers: &[u32]) -> Option<u32> {
        let own = numbers.iter().find(|number| self.is_operator_override(**number));
        own.or_else(|| numbers.iter().find(|number| **number != 0)).copied()
    }

    /// Whether an override stands in the operator's own file beside the lists.
    fn is_operator_override(&self, number: u32) -> bool {
        self.override_row(number).is_some_and(|override_row| {
            self.manifest.lists[usize::from(override_row.list)].list_origin == ListOrigin::Operator
        })
    }

    fn override_row(&self, number: u32) -> Option<&'r OverrideRow<'r>> {
        let lists: &'r ParsedLists<'r> = self.lists;
        number.checked_sub(1).and_then(|index| lists.overrides.get(index as usize))
    }

    fn intern_answer(&mut self, answer: StoredAnswer) -> u16 {
        let answers = &mut self.covered.answers;
        *self.answer_numbers.entry(answer).or_insert_with(|| {
            let number = u16::try_from(answers.len()).unwrap_or(NO_ANSWER).min(NO_ANSWER - 1);
            if number < NO_ANSWER - 1 {
                answers.push(answer);
            }
            number
        })
    }

    /// The number of an entry and 1, since 0 is an empty slot.
    fn intern_entry(&mut self, entry: Entry) -> u16 {
        let entries = &mut self.covered.entries;
        *self.entry_numbers.entry(entry).or_insert_with(|| {
            entries.push(entry);
            u16::try_from(entries.len()).unwrap_or(u16::MAX)
        })
    }
}

fn list_and_line(row: &Row) -> (u8, u32) {
    (row.list, row.line)
}
