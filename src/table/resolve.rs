//! Turns the rows of each name into one entry. An entry has three answers: for the name itself, for
//! the names below it, and for the names below it across a further public suffix. The names across
//! a suffix have other owners.
//!
//! The build lets each name inherit the facts of its parents. So a look-up reads only the most
//! specific row.

mod doubtful_overrides;
mod overrides;

use std::collections::HashMap;

use super::entry::{
    NO_ANSWER, NameEntry, RULES_OF_FIXED_ANSWERS, TLD_COVERS_ALL, TLD_EXISTS,
    TLD_HAS_ROW_ACROSS_SUFFIXES,
};
use super::fault::{TableFault, TableFaults, quote_excerpt};
use super::inheritance::{
    InheritableFacts, InheritedFacts, collect_inheritable_facts, facts_of_row,
};
use super::manifest::{ListKind, ListOrigin, Manifest};
use super::mx::{MxAddressAnswer, MxAnswerIndexes, MxSuffixAnswerIndexes};
use super::rows::{Coverage, NO_REGISTRABLE_DOMAIN, ParsedLists, Row};
use super::rules::{self, FLAGGING_LIST_BITS, Facts, StoredAnswer};
use super::seen_days::SeenDays;
use crate::model::domain::{DnsName, self_and_parent_offsets};
use crate::model::verdict::Rule;
use doubtful_overrides::DoubtfulOverrides;

/// The contents of a table: its names, entries and answers.
#[derive(Default)]
pub(super) struct ResolvedTable<'r> {
    /// The sorted names, each with the number of its entry, counted from 1.
    pub names_and_entry_numbers: Vec<(&'r str, u16)>,
    pub entries: Vec<NameEntry>,
    pub answers: Vec<StoredAnswer>,
    pub tld_flags: HashMap<&'r str, u8>,
    /// The answers for names without a row by the suffix of their MX host.
    pub mx_answers: Vec<MxSuffixAnswerIndexes>,
    /// The answers for names without a row by an address of their MX host, sorted by address.
    pub mx_address_answers: Vec<MxAddressAnswer>,
    /// The number of names with rows.
    pub listed_name_count: usize,
    /// Warnings about overrides whose reason contradicts the score that their names keep.
    pub doubtful_overrides: Vec<String>,
}

struct EntryBuilder<'r> {
    manifest: &'r Manifest,
    lists: &'r ParsedLists<'r>,
    names_in_faults: &'r [String],
    inheritable_by_name: HashMap<&'r str, InheritableFacts>,
    /// For each name with an override for the name alone: its number, counted from 1.
    exact_override_numbers: HashMap<&'r str, u32>,
    /// For each name in `guard.allow_flagging`: its line in the manifest, and whether a list or an
    /// override flagged it. An unused exception is a fault.
    flaggable_name_line_and_use: HashMap<String, (u32, bool)>,
    index_by_answer: HashMap<StoredAnswer, u16>,
    number_by_entry: HashMap<NameEntry, u16>,
    doubtful_overrides: DoubtfulOverrides<'r>,
    resolved_table: ResolvedTable<'r>,
}

/// Computes the entries of all names, and the answers of mail hosts. `lists.rows` and
/// `lists.seen_rows` must be sorted by name.
pub(super) fn resolve_lists<'r>(
    lists: &'r ParsedLists<'r>,
    manifest: &'r Manifest,
    names_in_faults: &'r [String],
    faults: &mut TableFaults,
) -> ResolvedTable<'r> {
    let manifest_name = &names_in_faults[names_in_faults.len() - 1];
    let mut flaggable_names = HashMap::new();
    for (name, line) in &manifest.allow_flagging {
        let at = format!("{manifest_name}:{line}: guard.allow_flagging");
        match DnsName::parse(name) {
            Ok(name) => _ = flaggable_names.insert(name.as_str().to_owned(), (*line, false)),
            Err(error) => faults.push(TableFault::Toml { at, message: error.to_string() }),
        }
    }
    let exact_overrides = (1..).zip(&lists.overrides).filter(|(_, row)| !row.covers_subtree);
    let mut builder = EntryBuilder {
        manifest,
        lists,
        names_in_faults,
        inheritable_by_name: collect_inheritable_facts(lists, manifest),
        exact_override_numbers: exact_overrides.map(|(at, row)| (&*row.name, at)).collect(),
        flaggable_name_line_and_use: flaggable_names,
        index_by_answer: HashMap::new(),
        number_by_entry: HashMap::new(),
        doubtful_overrides: DoubtfulOverrides::default(),
        resolved_table: ResolvedTable::default(),
    };
    for rule in RULES_OF_FIXED_ANSWERS {
        let facts = Facts { fact_bits: rules::rule_bit(rule), ..Facts::default() };
        // These answers are not interned: that could merge equal ones, but each has a fixed index.
        builder.resolved_table.answers.push(rules::decide_answer(&facts, None, &manifest.scores));
    }
    builder.build_entries(faults);
    builder.build_mx_answers(faults);
    builder.build_mx_address_answers();
    builder.check_providers_are_free(faults);
    let doubtful = builder.doubtful_overrides.to_warnings(names_in_faults, &manifest.scores);
    builder.resolved_table.doubtful_overrides = doubtful;
    for (name, (line, used)) in &builder.flaggable_name_line_and_use {
        if !used {
            let at = format!("{manifest_name}:{line}: guard.allow_flagging");
            let expected = "a protected name that an override or a list flags";
            faults.push(TableFault::expected(at, expected, quote_excerpt(name)));
        }
    }
    let resolved_table = &builder.resolved_table;
    for (what, count) in
        [("answers", resolved_table.answers.len()), ("rows", resolved_table.entries.len())]
    {
        if count >= usize::from(u16::MAX) {
            let expected = format!("at most 65534 different {what}");
            faults.push(TableFault::expected(manifest_name, expected, "more"));
        }
    }
    builder.resolved_table
}

impl<'r> EntryBuilder<'r> {
    fn build_entries(&mut self, faults: &mut TableFaults) {
        let rows = &self.lists.rows;
        let mut registrable_names: Vec<&str> = rows
            .iter()
            .filter(|row| {
                row.registrable_start != 0 && row.registrable_start != NO_REGISTRABLE_DOMAIN
            })
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
            self.resolved_table.listed_name_count += 1;
        }
        for registrable in registrable_names {
            names.push((registrable, self.intern_empty_non_terminal()));
        }
        self.resolved_table.names_and_entry_numbers = names;
        for tld in &self.lists.tlds {
            *self.resolved_table.tld_flags.entry(tld).or_default() |= TLD_EXISTS;
        }
    }

    /// Returns the number of the entry for a registrable domain without a row, below which names
    /// have rows.
    fn intern_empty_non_terminal(&mut self) -> u16 {
        self.intern_entry(NameEntry {
            own_answer: NO_ANSWER,
            answer_below: NO_ANSWER,
            answer_across_suffixes: NO_ANSWER,
            has_rows_below: true,
            seen_days: SeenDays::default(),
        })
    }

    /// Builds the entry of a name from its rows, and returns the number of the entry.
    fn build_entry(
        &mut self,
        name: &'r str,
        rows_of_name: &'r [Row],
        has_rows_below: bool,
        faults: &mut TableFaults,
    ) -> u16 {
        let inherited = self.collect_inherited_facts(name, rows_of_name[0].registrable_start);
        let facts_by_coverage =
            [Coverage::NameOnly, Coverage::Subdomains, Coverage::AcrossSuffixes]
                .map(|coverage| self.merge_facts_with_coverage(rows_of_name, coverage));
        let own_facts = facts_by_coverage[0].unwrap_or_default();
        let is_protected = own_facts.fact_bits & rules::rule_bit(Rule::Protected) != 0;
        let override_numbers = self.find_override_numbers(name, &inherited);
        let is_allowed = self.flaggable_name_line_and_use.contains_key(name);

        let is_guarded = is_protected && !is_allowed;
        let mut flagged_by = is_guarded.then(|| find_flagging_row(rows_of_name)).flatten();
        let mut answer_indexes = [NO_ANSWER; 3];
        for (i, sum) in facts_by_coverage.into_iter().enumerate() {
            let Some(mut facts) = sum else { continue };
            if i == 0 {
                // The suffix itself is not given out for free, only the names below it.
                facts.fact_bits &= !rules::rule_bit(Rule::FreeSubdomain);
            }
            self.add_inherited_facts(&mut facts, &inherited.of_parents, i == 2);
            let was_protected = facts.fact_bits & rules::rule_bit(Rule::Protected) != 0;
            if is_allowed {
                facts.fact_bits &= !rules::rule_bit(Rule::Protected);
            }
            let override_row =
                override_numbers[i].and_then(|number| self.find_override_row(number));
            let answer = rules::decide_answer(&facts, override_row, &self.manifest.scores);
            self.doubtful_overrides.note(name, override_row, answer.verdict.score);
            if !answer.verdict.reason.is_safe() {
                let culprit = override_row.map_or_else(
                    || list_and_line(&rows_of_name[0]),
                    |override_row| (override_row.list_number, override_row.line_number),
                );
                // An override of the operator may flag even a protected name.
                let is_operators_override =
                    override_numbers[i].is_some_and(|number| self.is_operator_override(number));
                if is_guarded && !is_operators_override && flagged_by.is_none() {
                    flagged_by = Some(culprit);
                }
                if was_protected
                    && let Some((_, used)) = self.flaggable_name_line_and_use.get_mut(name)
                {
                    *used = true;
                }
            }
            answer_indexes[i] = self.intern_answer(answer);
        }
        if let Some((list, line)) = flagged_by {
            let at = format!("{}:{line}", self.names_in_faults[usize::from(list)]);
            faults.push(TableFault::FlagsProtected { at, name: name.to_owned() });
        }
        let [own, below, across_suffixes] = answer_indexes;
        if across_suffixes != NO_ANSWER {
            self.flag_tld_of_covering_name(name);
        }
        self.intern_entry(NameEntry {
            own_answer: own,
            answer_below: below,
            answer_across_suffixes: across_suffixes,
            has_rows_below,
            seen_days: self.find_seen_days(name, rows_of_name, own_facts.vote_bits),
        })
    }

    /// Finds when sources had the name: by the name's rows of feeds, and by the lists of kind
    /// `seen` whose source votes for the name. A list of days alone says nothing about a name.
    fn find_seen_days(&self, name: &str, rows_of_name: &[Row], vote_bits: u32) -> SeenDays {
        let mut days = SeenDays::default();
        rows_of_name.iter().for_each(|row| days.merge(row.seen_days));
        let seen_rows = &self.lists.seen_rows;
        let first = seen_rows.partition_point(|row| &*row.name < name);
        let of_name = seen_rows[first..].iter().take_while(|row| row.name == name);
        of_name.filter(|row| vote_bits & row.vote_bit != 0).for_each(|row| days.merge(row.days));
        days
    }

    /// The merged facts of the rows that cover at least `min_coverage`; `None` if there is no such
    /// row.
    fn merge_facts_with_coverage(
        &self,
        rows_of_name: &[Row],
        min_coverage: Coverage,
    ) -> Option<Facts> {
        let rows = rows_of_name.iter().filter(|row| row.coverage >= min_coverage);
        let facts = rows.map(|row| facts_of_row(row, self.manifest));
        facts.reduce(|mut sum, facts| {
            sum.merge(facts);
            sum
        })
    }

    /// Records at the TLD of this name that the name's row covers names across public suffixes.
    fn flag_tld_of_covering_name(&mut self, name: &'r str) {
        let (tld, flag) = match name.rfind('.') {
            Some(dot) => (&name[dot + 1..], TLD_HAS_ROW_ACROSS_SUFFIXES),
            None => (name, TLD_COVERS_ALL),
        };
        *self.resolved_table.tld_flags.entry(tld).or_default() |= flag;
    }

    fn collect_inherited_facts(&self, name: &str, registrable_start: u8) -> InheritedFacts {
        let mut inherited = InheritedFacts::default();
        for start in self_and_parent_offsets(name).skip(1) {
            let Some(inheritable) = self.inheritable_by_name.get(&name[start..]) else { continue };
            let of_parents = &mut inherited.of_parents;
            of_parents.special_use_facts.merge(inheritable.special_use_facts);
            of_parents.free_subdomain_facts.merge(inheritable.free_subdomain_facts);
            of_parents.protection_facts.merge(inheritable.protection_facts);
            if registrable_start != NO_REGISTRABLE_DOMAIN
                && start <= usize::from(registrable_start)
                && of_parents.label_facts.label_number == 0
            {
                of_parents.label_facts = inheritable.label_facts;
            }
            if of_parents.subtree_override_number == 0 {
                of_parents.subtree_override_number = inheritable.subtree_override_number;
            }
            let nearest_of_origin = match self.override_origin(inheritable.subtree_override_number)
            {
                Some(ListOrigin::Operator) => &mut inherited.file_override_number,
                Some(ListOrigin::Store) => &mut inherited.stored_override_number,
                _ => continue,
            };
            if *nearest_of_origin == 0 {
                *nearest_of_origin = inheritable.subtree_override_number;
            }
        }
        inherited
    }

    /// Adds the facts that a name inherits. A protected suffix protects the names below it from
    /// third-party lists and from DNS facts. Two kinds of names are not protected: a name with a
    /// role row, which is more specific, and a name in a disposable list of tier A, which people
    /// review.
    fn add_inherited_facts(
        &self,
        facts: &mut Facts,
        inherited_facts: &InheritableFacts,
        is_across_suffixes: bool,
    ) {
        facts.merge(inherited_facts.special_use_facts.to_inheritable_facts());
        // A name that a list calls real is not flagged for being below a free suffix.
        if facts.fact_bits & rules::KNOWN_OR_CLEARED_BIT == 0 {
            facts.merge(inherited_facts.free_subdomain_facts.to_inheritable_facts());
        }
        if facts.fact_bits & (rules::rule_bit(Rule::Role) | rules::rule_bit(Rule::DisposableA)) == 0
        {
            facts.merge(inherited_facts.protection_facts.to_inheritable_facts());
        }
        if !is_across_suffixes
            && facts.label_number == 0
            && inherited_facts.label_facts.label_number != 0
        {
            facts.label_number = inherited_facts.label_facts.label_number;
            facts.list_bits |= inherited_facts.label_facts.list_bits;
        }
    }

    /// For each suffix of MX hosts, computes the answers for unlisted names with such a host. A
    /// disposable suffix at or below a protected name is a fault.
    fn build_mx_answers(&mut self, faults: &mut TableFaults) {
        let lists: &'r ParsedLists<'r> = self.lists;
        let mut hosts: Vec<_> = lists.label_and_class_by_mx_suffix.iter().collect();
        hosts.sort_unstable_by_key(|(suffix, _)| *suffix);
        for (suffix, (label, class)) in hosts {
            let is_disposable = class.fact_bits() == rules::rule_bit(Rule::DisposableMx);
            if is_disposable
                && self_and_parent_offsets(suffix)
                    .any(|start| self.has_protected_row(&suffix[start..]))
            {
                let mut lists = self.manifest.list_specs.iter().zip(self.names_in_faults);
                let display_name =
                    lists.find_map(|(list, name)| (list.kind == ListKind::MxLabel).then_some(name));
                let at = format!("{}: class", display_name.map_or("", String::as_str));
                let expected = "no protected name among the disposable hosts";
                faults.push(TableFault::expected(at, expected, quote_excerpt(suffix)));
            }
            let mut answer = |rule: Rule| {
                let bits = rules::rule_bit(rule) | class.fact_bits();
                let facts = Facts { fact_bits: bits, mx_label_number: *label, ..Facts::default() };
                self.intern_answer(rules::decide_answer(&facts, None, &self.manifest.scores))
            };
            let indexes = MxAnswerIndexes {
                unknown: answer(Rule::Unknown),
                bulk_name: answer(Rule::BulkName),
                mail_in_name: answer(Rule::MailInName),
            };
            let suffix = suffix.clone();
            self.resolved_table.mx_answers.push(MxSuffixAnswerIndexes { suffix, indexes });
        }
    }

    /// Computes the answer for each listed address of MX hosts. If several lists have an address,
    /// the first list decides.
    fn build_mx_address_answers(&mut self) {
        let lists: &'r ParsedLists<'r> = self.lists;
        for row in &lists.mx_addresses {
            let facts = Facts {
                fact_bits: rules::rule_bit(Rule::DisposableMxAddress),
                list_bits: 1 << row.list_number,
                mx_label_number: row.label_number,
                ..Facts::default()
            };
            let answer =
                self.intern_answer(rules::decide_answer(&facts, None, &self.manifest.scores));
            let address = row.address;
            self.resolved_table.mx_address_answers.push(MxAddressAnswer { address, answer });
        }
        let answers = &mut self.resolved_table.mx_address_answers;
        answers.sort_by_key(|row| row.address);
        answers.dedup_by_key(|row| row.address);
    }

    /// Checks that a list of the manifest has each provider of the rules for unlisted names as a
    /// free provider. Otherwise riskgate would suggest a name that it does not know as one, and
    /// would refuse a disposable feed with this name.
    fn check_providers_are_free(&self, faults: &mut TableFaults) {
        for (name, at) in &self.manifest.provider_places {
            let mut rows = self.rows_of_name(name);
            let is_free = rows.any(|row| {
                let list = &self.manifest.list_specs[usize::from(row.list_number)];
                list.list_origin == ListOrigin::Manifest
                    && row.fact_bits & rules::rule_bit(Rule::Free) != 0
            });
            if !is_free {
                let expected = "a name that a list of kind free has";
                faults.push(TableFault::expected(at, expected, quote_excerpt(name)));
            }
        }
    }

    /// Whether a list protects exactly this name.
    fn has_protected_row(&self, name: &str) -> bool {
        let mut rows = self.rows_of_name(name);
        rows.any(|row| row.fact_bits & rules::rule_bit(Rule::Protected) != 0)
    }

    /// The rows of exactly this name.
    fn rows_of_name(&self, name: &str) -> impl Iterator<Item = &'r Row<'r>> {
        let rows = &self.lists.rows;
        let first = rows.partition_point(|row| &*row.name < name);
        rows[first..].iter().take_while(move |row| row.name == name)
    }

    fn intern_answer(&mut self, answer: StoredAnswer) -> u16 {
        let answers = &mut self.resolved_table.answers;
        *self.index_by_answer.entry(answer).or_insert_with(|| {
            answers.push(answer);
            u16::try_from(answers.len() - 1).unwrap_or(NO_ANSWER).min(NO_ANSWER - 1)
        })
    }

    /// Returns the number of an entry, counted from 1, because 0 marks an empty slot. Equal entries
    /// have one number.
    fn intern_entry(&mut self, entry: NameEntry) -> u16 {
        let entries = &mut self.resolved_table.entries;
        *self.number_by_entry.entry(entry).or_insert_with(|| {
            entries.push(entry);
            u16::try_from(entries.len()).unwrap_or(u16::MAX)
        })
    }
}

/// Finds the list and line of the first row that flags the name.
fn find_flagging_row(rows_of_name: &[Row]) -> Option<(u8, u32)> {
    rows_of_name.iter().find(|row| row.fact_bits & FLAGGING_LIST_BITS != 0).map(list_and_line)
}

fn list_and_line(row: &Row) -> (u8, u32) {
    (row.list_number, row.line_number)
}
