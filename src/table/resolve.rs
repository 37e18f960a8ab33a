//! Turns rows into one entry for each name. An entry has an answer for the name itself, for the
//! names below it, and for the names below it across public suffixes, which have other owners.
//!
//! Names inherit facts here, when the table is built, so that a look-up only needs the most
//! specific row.

use std::collections::HashMap;

use super::entry::{
    Entry, FIXED_RULES, NO_ANSWER, TLD_COVERS_ALL, TLD_EXISTS, TLD_HAS_COVERING_SUFFIX,
};
use super::fault::{TableError, TableFault};
use super::inheritance::{InheritableFacts, InheritedFacts, collect_inheritable, facts_of_row};
use super::manifest::{ListKind, ListOrigin, Manifest};
use super::mx::MxAnswers;
use super::rows::{Coverage, NO_REGISTRABLE, ParsedLists, Row};
use super::rules::{self, FLAGGING_LIST_BITS, Facts, OverrideRow, StoredAnswer};
use crate::model::domain::{DnsName, self_and_parent_offsets};
use crate::model::verdict::Rule;

/// The contents of a table: its names, entries and answers.
#[derive(Default)]
pub(super) struct ResolvedTable<'r> {
    /// The sorted names, each with the number of its entry, counted from 1.
    pub names: Vec<(&'r str, u16)>,
    pub entries: Vec<Entry>,
    pub answers: Vec<StoredAnswer>,
    pub tlds: HashMap<&'r str, u8>,
    /// The answers for names without a row by the suffix of their MX host.
    pub mx_answers: Vec<MxAnswers>,
    /// The number of names with rows.
    pub row_count: usize,
}

struct EntryBuilder<'r> {
    manifest: &'r Manifest,
    lists: &'r ParsedLists<'r>,
    display_names: &'r [String],
    inheritable_by_name: HashMap<&'r str, InheritableFacts>,
    /// The names of `guard.allow_flagging`: their line, and whether the name was flagged.
    allowed_to_flag: HashMap<String, (u32, bool)>,
    answer_numbers: HashMap<StoredAnswer, u16>,
    entry_numbers: HashMap<Entry, u16>,
    resolved: ResolvedTable<'r>,
}

/// Computes the entries of all names. `lists.rows` must be sorted by name.
pub(super) fn resolve_lists<'r>(
    lists: &'r ParsedLists<'r>,
    manifest: &'r Manifest,
    display_names: &'r [String],
    faults: &mut TableError,
) -> ResolvedTable<'r> {
    let mut allowed = HashMap::new();
    for (name, line) in &manifest.allow_flagging {
        let at = format!("{}:{line}: guard.allow_flagging", display_names[display_names.len() - 1]);
        match DnsName::parse(name) {
            Ok(name) => _ = allowed.insert(name.as_str().to_owned(), (*line, false)),
            Err(error) => faults.push(TableFault::Toml { at, message: error.to_string() }),
        }
    }
    let mut builder = EntryBuilder {
        manifest,
        lists,
        display_names,
        inheritable_by_name: collect_inheritable(lists, manifest),
        allowed_to_flag: allowed,
        answer_numbers: HashMap::new(),
        entry_numbers: HashMap::new(),
        resolved: ResolvedTable::default(),
    };
    for rule in FIXED_RULES {
        let facts = Facts { bits: rules::rule_bit(rule), ..Facts::default() };
        // Not interned, because interning could merge them, and their indexes are fixed.
        builder.resolved.answers.push(rules::decide_answer(&facts, None, &manifest.scores));
    }
    builder.build_entries(faults);
    builder.build_mx_answers(faults);
    for (name, (line, used)) in &builder.allowed_to_flag {
        if !used {
            let at =
                format!("{}:{line}: guard.allow_flagging", display_names[display_names.len() - 1]);
            let expected = "a protected name that an override or a list flags";
            faults.push(TableFault::expected(at, expected, super::fault::quote_excerpt(name)));
        }
    }
    let resolved = &builder.resolved;
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
    builder.resolved
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
            while let Some(registrable) =
                registrable_names.next_if(|registrable| *registrable < name)
            {
                names.push((registrable, self.intern_empty_non_terminal()));
            }
            let has_rows_below = registrable_names.next_if_eq(&name).is_some();
            names.push((name, self.build_entry(name, group, has_rows_below, faults)));
            self.resolved.row_count += 1;
        }
        for registrable in registrable_names {
            names.push((registrable, self.intern_empty_non_terminal()));
        }
        self.resolved.names = names;
        for tld in &self.lists.tlds {
            *self.resolved.tlds.entry(tld).or_default() |= TLD_EXISTS;
        }
    }

    /// The number of the entry of a registrable domain that has no row itself, but rows below it.
    fn intern_empty_non_terminal(&mut self) -> u16 {
        self.intern_entry(Entry {
            own_answer: NO_ANSWER,
            answer_below: NO_ANSWER,
            answer_across_suffixes: NO_ANSWER,
            has_rows_below: true,
        })
    }

    /// Builds the entry of a name from its rows, and returns the number of the entry.
    fn build_entry(
        &mut self,
        name: &'r str,
        group: &'r [Row],
        has_rows_below: bool,
        faults: &mut TableError,
    ) -> u16 {
        let inherited = self.collect_inherited(name, group[0].registrable_start);
        let inheritable = self.inheritable_by_name.get(name).copied().unwrap_or_default();
        let facts_by_coverage =
            [Coverage::NameOnly, Coverage::Subdomains, Coverage::AcrossSuffixes]
                .map(|coverage| self.merge_facts(group, coverage));
        let own_bits = facts_by_coverage[0].unwrap_or_default().bits;
        let is_protected = own_bits & rules::rule_bit(Rule::Protected) != 0;
        let override_numbers = self.find_overrides(&inheritable, &inherited);
        let is_allowed = self.allowed_to_flag.contains_key(name);

        let mut flagged_by = None;
        if is_protected && !is_allowed {
            flagged_by =
                group.iter().find(|row| row.fact_bits & FLAGGING_LIST_BITS != 0).map(list_and_line);
        }
        let mut answer_indexes = [NO_ANSWER; 3];
        for (i, sum) in facts_by_coverage.into_iter().enumerate() {
            let Some(mut facts) = sum else { continue };
            if i == 0 {
                // The suffix itself is not given out for free, only the names below it.
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
                let culprit = override_row.map_or_else(
                    || list_and_line(&group[0]),
                    |override_row| (override_row.list, override_row.line),
                );
                // An override in the operator's own file may flag even a protected name.
                let is_operators_override =
                    override_numbers[i].is_some_and(|number| self.is_operator_override(number));
                if is_protected && !is_allowed && !is_operators_override && flagged_by.is_none() {
                    flagged_by = Some(culprit);
                }
                if was_protected && let Some((_, used)) = self.allowed_to_flag.get_mut(name) {
                    *used = true;
                }
            }
            answer_indexes[i] = self.intern_answer(answer);
        }
        if let Some((list, line)) = flagged_by {
            let at = format!("{}:{line}", self.display_names[usize::from(list)]);
            faults.push(TableFault::FlagsProtected { at, name: name.to_owned() });
        }
        let [own, below, across_suffixes] = answer_indexes;
        if across_suffixes != NO_ANSWER {
            self.set_tld_flag(name);
        }
        self.intern_entry(Entry {
            own_answer: own,
            answer_below: below,
            answer_across_suffixes: across_suffixes,
            has_rows_below,
        })
    }

    /// The merged facts of the rows with at least this coverage; `None` if there is no such row.
    fn merge_facts(&self, group: &[Row], coverage: Coverage) -> Option<Facts> {
        let rows = group.iter().filter(|row| row.coverage >= coverage);
        let facts = rows.map(|row| facts_of_row(row, self.manifest));
        facts.reduce(|mut sum, facts| {
            sum.merge(facts);
            sum
        })
    }

    /// The numbers of the overrides that apply to the name itself, to names below it, and to names
    /// below it across public suffixes.
    fn find_overrides(
        &self,
        inheritable: &InheritableFacts,
        inherited: &InheritedFacts,
    ) -> [Option<u32>; 3] {
        let subtree_overrides = [
            inheritable.subtree_override_number,
            inherited.operator_override_number,
            inherited.subtree_override_number,
        ];
        let covering = self.nearest_override(&subtree_overrides);
        let own = self.nearest_override(
            &[&[inheritable.exact_override_number][..], &subtree_overrides].concat(),
        );
        [own, covering, covering]
    }

    /// Sets the flag of the TLD of a name whose row covers names across public suffixes.
    fn set_tld_flag(&mut self, name: &'r str) {
        let (tld, flag) = match name.rfind('.') {
            Some(dot) => (&name[dot + 1..], TLD_HAS_COVERING_SUFFIX),
            None => (name, TLD_COVERS_ALL),
        };
        *self.resolved.tlds.entry(tld).or_default() |= flag;
    }

    fn collect_inherited(&self, name: &str, registrable_start: u8) -> InheritedFacts {
        let mut inherited = InheritedFacts::default();
        for start in self_and_parent_offsets(name).skip(1) {
            let Some(inheritable) = self.inheritable_by_name.get(&name[start..]) else { continue };
            inherited.special_use.merge(inheritable.special_use);
            inherited.free_subdomain.merge(inheritable.free_subdomain);
            inherited.protection.merge(inheritable.protection);
            if registrable_start != NO_REGISTRABLE
                && start <= usize::from(registrable_start)
                && inherited.label.label == 0
            {
                inherited.label = inheritable.label;
            }
            if inherited.subtree_override_number == 0 {
                inherited.subtree_override_number = inheritable.subtree_override_number;
            }
            if inherited.operator_override_number == 0
                && self.is_operator_override(inheritable.subtree_override_number)
            {
                inherited.operator_override_number = inheritable.subtree_override_number;
            }
        }
        inherited
    }

    /// Adds the facts that a name inherits. A protected suffix protects the names below it from
    /// third-party lists and from DNS facts, but not from a role row, which is more specific, and
    /// not from a reviewed list of disposable names.
    fn add_inherited(&self, facts: &mut Facts, inherited: &InheritedFacts, across_suffixes: bool) {
        facts.merge(inherited.special_use.inheritable_part());
        // If a list says that the name is real, the fact of a free suffix above does not apply.
        if facts.bits & rules::REAL_NAME_BIT == 0 {
            facts.merge(inherited.free_subdomain.inheritable_part());
        }
        if facts.bits & (rules::rule_bit(Rule::Role) | rules::rule_bit(Rule::DisposableA)) == 0 {
            facts.merge(inherited.protection.inheritable_part());
        }
        if !across_suffixes && facts.label == 0 && inherited.label.label != 0 {
            facts.label = inherited.label.label;
            facts.lists |= inherited.label.lists;
        }
    }

    /// Computes the answers for names without a row by their MX host. The answers replace those of
    /// the rules `unknown` and `mail_in_name`. A protected name, or a name below one, can't be the
    /// host of a disposable operator.
    fn build_mx_answers(&mut self, faults: &mut TableError) {
        let lists: &'r ParsedLists<'r> = self.lists;
        let mut hosts: Vec<_> = lists.mx_labels.iter().collect();
        hosts.sort_unstable_by_key(|(suffix, _)| *suffix);
        for (suffix, (label, class)) in hosts {
            let is_disposable = class.fact_bits() == rules::rule_bit(Rule::DisposableMx);
            if is_disposable
                && self_and_parent_offsets(suffix).any(|start| self.is_protected(&suffix[start..]))
            {
                let mut lists = self.manifest.lists.iter().zip(self.display_names);
                let display_name =
                    lists.find_map(|(list, name)| (list.kind == ListKind::MxLabel).then_some(name));
                let at = format!("{}: class", display_name.map_or("", String::as_str));
                let expected = "no protected name among the disposable hosts";
                faults.push(TableFault::expected(
                    at,
                    expected,
                    super::fault::quote_excerpt(suffix),
                ));
            }
            let mut answer = |rule: Rule| {
                let bits = rules::rule_bit(rule) | class.fact_bits();
                let facts = Facts { bits, mx_label: *label, ..Facts::default() };
                self.intern_answer(rules::decide_answer(&facts, None, &self.manifest.scores))
            };
            let (unknown, mail_in_name) = (answer(Rule::Unknown), answer(Rule::MailInName));
            let suffix = suffix.clone();
            self.resolved.mx_answers.push(MxAnswers { suffix, unknown, mail_in_name });
        }
    }

    /// Whether a list protects exactly this name.
    fn is_protected(&self, name: &str) -> bool {
        let rows = &self.lists.rows;
        let first = rows.partition_point(|row| &*row.name < name);
        let mut rows = rows[first..].iter().take_while(|row| row.name == name);
        rows.any(|row| row.fact_bits & rules::rule_bit(Rule::Protected) != 0)
    }

    /// The override that applies. `numbers` has the nearest override first, and 0 for none. An
    /// override in the operator's own file takes precedence.
    fn nearest_override(&self, numbers: &[u32]) -> Option<u32> {
        let own = numbers.iter().find(|number| self.is_operator_override(**number));
        own.or_else(|| numbers.iter().find(|number| **number != 0)).copied()
    }

    /// Whether an override comes from the operator's own file.
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
        let answers = &mut self.resolved.answers;
        *self.answer_numbers.entry(answer).or_insert_with(|| {
            let number = u16::try_from(answers.len()).unwrap_or(NO_ANSWER).min(NO_ANSWER - 1);
            if number < NO_ANSWER - 1 {
                answers.push(answer);
            }
            number
        })
    }

    /// The number of an entry, counted from 1, because 0 marks an empty slot.
    fn intern_entry(&mut self, entry: Entry) -> u16 {
        let entries = &mut self.resolved.entries;
        *self.entry_numbers.entry(entry).or_insert_with(|| {
            entries.push(entry);
            u16::try_from(entries.len()).unwrap_or(u16::MAX)
        })
    }
}

fn list_and_line(row: &Row) -> (u8, u32) {
    (row.list, row.line)
}
