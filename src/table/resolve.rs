//! How names cover one another: rows become one entry for each name, with what it says of itself,
//! of the names below it, and of those below it that are somebody else's.
//!
//! What a name inherits is worked out here, once, so that a look-up takes the most specific row
//! and asks nothing else.

use std::collections::HashMap;

use super::entry::{Entry, FIXED, NONE, TLD_BEYOND_AT, TLD_BEYOND_BELOW, TLD_EXISTS};
use super::fault::{Fault, TableError};
use super::inheritance::{Inherited, Legacy, facts, legacies};
use super::manifest::{Kind, Manifest, Origin};
use super::mx::MxAnswers;
use super::rows::{Lists, NO_OWNER, Reach, Row};
use super::rules::{self, Answer, Facts, LISTED_AS_FLAGGED, Override};
use crate::model::domain::{Name, walk};
use crate::model::verdict::Rule;

/// The dictionary and who points into it.
#[derive(Default)]
pub(super) struct Covered<'r> {
    /// Sorted; each with the number of its entry and 1.
    pub names: Vec<(&'r str, u16)>,
    pub entries: Vec<Entry>,
    pub answers: Vec<Answer>,
    pub tlds: HashMap<&'r str, u8>,
    /// What follows from the MX host of a name without a row, by suffixes of hosts.
    pub mx: Vec<MxAnswers>,
    pub rows: usize,
}

struct Build<'r> {
    manifest: &'r Manifest,
    lists: &'r Lists<'r>,
    places: &'r [String],
    legacies: HashMap<&'r str, Legacy>,
    /// Protected names that may be flagged: their line, and whether one was.
    allowed: HashMap<String, (u32, bool)>,
    answer_numbers: HashMap<Answer, u16>,
    entry_numbers: HashMap<Entry, u16>,
    covered: Covered<'r>,
}

/// Works out the entries of all names. `lists.rows` must be sorted by name.
pub(super) fn cover<'r>(
    lists: &'r Lists<'r>,
    manifest: &'r Manifest,
    places: &'r [String],
    faults: &mut TableError,
) -> Covered<'r> {
    let mut allowed = HashMap::new();
    for (name, line) in &manifest.flag_protected {
        let at = format!("{}:{line}: guard.flag_protected", places[places.len() - 1]);
        match Name::parse(name) {
            Ok(name) => _ = allowed.insert(name.as_str().to_owned(), (*line, false)),
            Err(error) => faults.push(Fault::Toml { at, message: error.to_string() }),
        }
    }
    let mut build = Build {
        manifest,
        lists,
        places,
        legacies: legacies(lists, manifest),
        allowed,
        answer_numbers: HashMap::new(),
        entry_numbers: HashMap::new(),
        covered: Covered::default(),
    };
    for rule in FIXED {
        let facts = Facts { bits: rules::bit(rule), ..Facts::default() };
        // Pushed and not interned: their numbers are fixed.
        build.covered.answers.push(rules::decide(&facts, None, &manifest.scores));
    }
    build.run(faults);
    build.mx(faults);
    for (name, (line, used)) in &build.allowed {
        if !used {
            let at = format!("{}:{line}: guard.flag_protected", places[places.len() - 1]);
            let expected = "a protected name that an override or a list flags";
            faults.push(Fault::expected(at, expected, super::fault::quoted(name)));
        }
    }
    let covered = &build.covered;
    for (what, count) in [("answers", covered.answers.len()), ("rows", covered.entries.len())] {
        if count >= usize::from(u16::MAX) {
            let expected = format!("at most 65534 different {what}");
            faults.push(Fault::expected(&places[places.len() - 1], expected, "more"));
        }
    }
    build.covered
}

impl<'r> Build<'r> {
    fn run(&mut self, faults: &mut TableError) {
        let rows = &self.lists.rows;
        let mut owners: Vec<&str> = rows
            .iter()
            .filter(|row| row.owner != 0 && row.owner != NO_OWNER)
            .map(|row| &row.name[usize::from(row.owner)..])
            .collect();
        owners.sort_unstable();
        owners.dedup();
        let mut owners = owners.into_iter().peekable();
        let mut names = Vec::with_capacity(rows.len());
        for group in rows.chunk_by(|a, b| a.name == b.name) {
            let name: &str = &group[0].name;
            while let Some(owner) = owners.next_if(|owner| *owner < name) {
                names.push((owner, self.way_mark()));
            }
            let has_rows_below = owners.next_if_eq(&name).is_some();
            names.push((name, self.entry(name, group, has_rows_below, faults)));
            self.covered.rows += 1;
        }
        for owner in owners {
            names.push((owner, self.way_mark()));
        }
        self.covered.names = names;
        for tld in &self.lists.tlds {
            *self.covered.tlds.entry(tld).or_default() |= TLD_EXISTS;
        }
    }

    /// The entry of a registrable domain that has no row, but rows below it.
    fn way_mark(&mut self) -> u16 {
        self.intern(Entry { own: NONE, below: NONE, beyond: NONE, has_rows_below: true })
    }

    fn entry(
        &mut self,
        name: &'r str,
        group: &'r [Row],
        has_rows_below: bool,
        faults: &mut TableError,
    ) -> u16 {
        let inherited = self.inherited(name, group[0].owner);
        let legacy = self.legacies.get(name).copied().unwrap_or_default();
        let sum = |least: Reach| {
            let rows = || group.iter().filter(|row| row.reach >= least);
            let mut sum = Facts::default();
            rows().for_each(|row| sum.add(facts(row, self.manifest)));
            rows().next().is_some().then_some(sum)
        };
        let sums = [sum(Reach::Exact), sum(Reach::Below), sum(Reach::Beyond)];
        let direct = sums[0].unwrap_or_default().bits;
        let is_protected = direct & rules::bit(Rule::Protected) != 0;
        let above = [legacy.subtree, inherited.operator_subtree, inherited.subtree];
        let covering = self.nearest_word(&above);
        let own = self.nearest_word(&[&[legacy.exact][..], &above].concat());
        let words = [own, covering, covering];
        let is_allowed = self.allowed.contains_key(name);

        let mut flags = None;
        if is_protected && !is_allowed {
            flags = group.iter().find(|row| row.bits & LISTED_AS_FLAGGED != 0).map(place_of);
        }
        let mut numbers = [NONE; 3];
        for (i, sum) in sums.into_iter().enumerate() {
            let Some(mut facts) = sum else { continue };
            let past_suffix = i == 2;
            if i == 0 {
                // It is the names below that everybody gets.
                facts.bits &= !rules::bit(Rule::FreeSubdomain);
            }
            self.add_inherited(&mut facts, &inherited, past_suffix);
            let was_protected = facts.bits & rules::bit(Rule::Protected) != 0;
            if is_allowed {
                facts.bits &= !rules::bit(Rule::Protected);
            }
            let word = words[i].and_then(|number| self.word(number));
            let answer = rules::decide(&facts, word, &self.manifest.scores);
            if answer.verdict.reason.is_flagged() {
                let by = word.map_or_else(|| place_of(&group[0]), |word| (word.list, word.line));
                // An operator's own override is the last word on every name.
                let is_last_word = words[i].is_some_and(|number| self.is_of_operator(number));
                if is_protected && !is_allowed && !is_last_word && flags.is_none() {
                    flags = Some(by);
                }
                if was_protected && let Some((_, used)) = self.allowed.get_mut(name) {
                    *used = true;
                }
            }
            numbers[i] = self.answer(answer);
        }
        if let Some((list, line)) = flags {
            let at = format!("{}:{line}", self.places[usize::from(list)]);
            faults.push(Fault::FlagsProtected { at, name: name.to_owned() });
        }
        let [own, below, beyond] = numbers;
        if beyond != NONE {
            let (tld, flag) = match name.rfind('.') {
                Some(dot) => (&name[dot + 1..], TLD_BEYOND_BELOW),
                None => (name, TLD_BEYOND_AT),
            };
            *self.covered.tlds.entry(tld).or_default() |= flag;
        }
        self.intern(Entry { own, below, beyond, has_rows_below })
    }

    fn inherited(&self, name: &str, owner: u8) -> Inherited {
        let mut inherited = Inherited::default();
        for start in walk(name).skip(1) {
            let Some(legacy) = self.legacies.get(&name[start..]) else { continue };
            inherited.special.add(legacy.special);
            inherited.free_subdomain.add(legacy.free_subdomain);
            inherited.protection.add(legacy.protection);
            if owner != NO_OWNER && start <= usize::from(owner) && inherited.label.label == 0 {
                inherited.label = legacy.label;
            }
            if inherited.subtree == 0 {
                inherited.subtree = legacy.subtree;
            }
            if inherited.operator_subtree == 0 && self.is_of_operator(legacy.subtree) {
                inherited.operator_subtree = legacy.subtree;
            }
        }
        inherited
    }

    /// A suffix protects from what lists of other people and the DNS say of names below it, but
    /// neither from a role row, which is more specific and says what the mailboxes are for, nor
    /// from a reviewed list of disposable names.
    fn add_inherited(&self, facts: &mut Facts, inherited: &Inherited, past_suffix: bool) {
        facts.add(inherited.special.inherited());
        // A row below that says that the name is real, or who its owner is, keeps its word.
        if facts.bits & rules::REAL == 0 {
            facts.add(inherited.free_subdomain.inherited());
        }
        if facts.bits & (rules::bit(Rule::Role) | rules::bit(Rule::DisposableA)) == 0 {
            facts.add(inherited.protection.inherited());
        }
        if !past_suffix && facts.label == 0 && inherited.label.label != 0 {
            facts.label = inherited.label.label;
            facts.lists |= inherited.label.lists;
        }
    }

    /// What a name without a row gets by its MX host, in the place of each of the two rules that
    /// yield to it. A protected name, or one below it, is no host of a disposable operator.
    fn mx(&mut self, faults: &mut TableError) {
        let lists: &'r Lists<'r> = self.lists;
        let mut hosts: Vec<_> = lists.mx_labels.iter().collect();
        hosts.sort_unstable_by_key(|(suffix, _)| *suffix);
        for (suffix, (label, class)) in hosts {
            let is_disposable = class.bits() == rules::bit(Rule::DisposableMx);
            if is_disposable && walk(suffix).any(|start| self.is_protected(&suffix[start..])) {
                let mut lists = self.manifest.lists.iter().zip(self.places);
                let place = lists.find_map(|(list, at)| (list.kind == Kind::MxLabel).then_some(at));
                let at = format!("{}: class", place.map_or("", String::as_str));
                let expected = "no protected name among the disposable hosts";
                faults.push(Fault::expected(at, expected, super::fault::quoted(suffix)));
            }
            let mut answer = |rule: Rule| {
                let bits = rules::bit(rule) | class.bits();
                let facts = Facts { bits, mx_label: *label, ..Facts::default() };
                self.answer(rules::decide(&facts, None, &self.manifest.scores))
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
        rows.any(|row| row.bits & rules::bit(Rule::Protected) != 0)
    }

    /// The override that counts of these, the nearest first and 0 for none: one of the operator's
    /// own if there is any.
    fn nearest_word(&self, numbers: &[u32]) -> Option<u32> {
        let own = numbers.iter().find(|number| self.is_of_operator(**number));
        own.or_else(|| numbers.iter().find(|number| **number != 0)).copied()
    }

    /// Whether an override stands in the operator's own file beside the lists.
    fn is_of_operator(&self, number: u32) -> bool {
        self.word(number).is_some_and(|word| {
            self.manifest.lists[usize::from(word.list)].origin == Origin::Operator
        })
    }

    fn word(&self, number: u32) -> Option<&'r Override<'r>> {
        let lists: &'r Lists<'r> = self.lists;
        number.checked_sub(1).and_then(|index| lists.overrides.get(index as usize))
    }

    fn answer(&mut self, answer: Answer) -> u16 {
        let answers = &mut self.covered.answers;
        *self.answer_numbers.entry(answer).or_insert_with(|| {
            let number = u16::try_from(answers.len()).unwrap_or(NONE).min(NONE - 1);
            if number < NONE - 1 {
                answers.push(answer);
            }
            number
        })
    }

    /// The number of an entry and 1, since 0 is an empty slot.
    fn intern(&mut self, entry: Entry) -> u16 {
        let entries = &mut self.covered.entries;
        *self.entry_numbers.entry(entry).or_insert_with(|| {
            entries.push(entry);
            u16::try_from(entries.len()).unwrap_or(u16::MAX)
        })
    }
}

fn place_of(row: &Row) -> (u8, u32) {
    (row.list, row.line)
}
