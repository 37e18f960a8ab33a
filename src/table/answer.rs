//! What a table gives back: an answer, a row, and the reasons for both.
//!
//! All of it borrows from the table; nothing here looks anything up or decides.

use std::borrow::Cow;

use super::layout::parts::ListInfo;
use super::source_packages::{self, SourcePackage};
use super::table_data::{Table, label_of_answer};
use crate::model::domain::Domain;
use crate::model::verdict::{Rule, Score, Verdict, VerdictSource};

/// What a table says of a domain.
#[derive(Clone, Copy)]
pub struct Lookup<'t> {
    /// Reason, score and facts.
    pub verdict: Verdict,
    /// The label of the mail service.
    pub label: Option<&'t str>,
    /// Where in the domain the row that matched begins, in bytes; `None` without a row.
    pub matched_at: Option<usize>,
    pub(super) table: &'t Table,
    /// The number of the answer in the table.
    pub(super) answer_number: u16,
    /// The DNS said something of the name that counts.
    pub(super) is_learned: bool,
    /// The DNS named a mail host of the name, whether anything follows from that or not.
    pub(super) has_learned_host: bool,
}

/// One row of a table.
#[derive(Clone, Copy)]
pub struct ListRow<'t> {
    /// The name.
    pub name: &'t str,
    /// What the table says of the name itself.
    pub own: Lookup<'t>,
    /// What it says of names below it; `None` if the row covers none.
    pub below: Option<Lookup<'t>>,
}

/// Why a table says what it says.
#[derive(Clone, Debug)]
pub struct Explanation<'t> {
    /// The rule that decided reason and score.
    pub rule: Rule,
    /// The lists that name the row or a suffix above it.
    pub lists: Vec<&'t ListInfo>,
    /// The sources behind these lists, and those that vote for the row.
    pub sources: Vec<&'t SourcePackage>,
}

impl Table {
    /// The answer of this number; `matched` is where in the domain its row begins.
    pub(super) fn make_lookup(&self, number: u16, matched: Option<usize>) -> Lookup<'_> {
        let answer = &self.decoded.answers[usize::from(number)];
        let label = label_of_answer(&self.decoded, answer);
        let verdict = answer.verdict;
        Lookup {
            verdict,
            label,
            matched_at: matched,
            table: self,
            answer_number: number,
            is_learned: false,
            has_learned_host: false,
        }
    }
}

impl<'t> Lookup<'t> {
    /// What follows the domain in the public answer, from the quote that ends the domain on.
    pub fn json_tail(&self) -> Cow<'t, str> {
        let answer = usize::from(self.answer_number);
        match self.verdict == self.table.decoded.answers[answer].verdict {
            true => Cow::Borrowed(&self.table.json_tails[answer]),
            false => Cow::Owned(self.verdict.render_json_tail(self.label)),
        }
    }

    /// The same with the operator's score for names of which nothing is known, if there is one. A
    /// name that says mail is never safer than they are.
    pub fn with_unknown_score(mut self, score: Option<Score>) -> Self {
        if let Some(score) = score {
            let own = &mut self.verdict.score;
            match self.verdict.rule {
                Rule::Unknown => *own = score,
                Rule::MailInName => *own = score.max(*own),
                _ => {}
            }
        }
        self
    }

    /// What it goes by.
    pub fn verdict_source(&self) -> VerdictSource {
        if self.is_learned { VerdictSource::Dns } else { self.verdict.rule.verdict_source() }
    }

    /// Whether it is flagged, by what the DNS said alone.
    pub fn is_flagged_by_learned_fact(&self) -> bool {
        self.is_learned && self.verdict.reason.is_flagged()
    }

    /// Whether a list of the manifest has a row for exactly this name.
    pub(super) fn is_in_manifest_lists(&self) -> bool {
        self.table.decoded.answers[usize::from(self.answer_number)].is_in_manifest_lists
    }

    /// Whether a list of the manifest protects exactly this name, whatever an override says.
    pub fn is_protected_by_name(&self) -> bool {
        self.table.decoded.answers[usize::from(self.answer_number)].is_protected_by_name
    }

    /// Whether the name is flagged, and not by the operator's own word beside the lists.
    pub(super) fn is_flagged_without_added_override(&self) -> bool {
        let is_own_word = self.verdict.rule == Rule::Override
            && self.explain().lists.iter().any(|list| list.is_added);
        self.verdict.reason.is_flagged() && !is_own_word
    }

    /// The well-known provider that the asked name was probably  suggest  to be: the name is close to
    /// it, and is flagged or not known to work. With a mail host that the DNS named it works.
    pub fn suggestion(&self, domain: &Domain) -> Option<&'t str> {
        let rule = self.verdict.rule;
        let is_known_to_work = match rule {
            Rule::Override | Rule::Protected | Rule::Alias => true,
            Rule::Role | Rule::Free | Rule::Professional | Rule::FreeSubdomain => true,
            Rule::SpecialUse | Rule::UnknownTld | Rule::NoMail | Rule::Parked => false,
            Rule::DisposableA | Rule::DisposableB | Rule::DisposableC | Rule::DisposableD => {
                let answer = &self.table.decoded.answers[usize::from(self.answer_number)];
                answer.is_real || self.table.inference.has_verified_mx(answer.votes)
            }
            Rule::DisposableMx | Rule::Typo | Rule::ThrowawayName | Rule::MailInName => false,
            // A row that says nothing else says that the name is real.
            Rule::Unknown => self.matched_at.is_some(),
        };
        let is_known_to_work =
            is_known_to_work || self.has_learned_host && !self.verdict.reason.is_flagged();
        // A parent that matched is another name than the one that was mistyped.
        let is_other = self.matched_at.is_some_and(|at| at > 0);
        if is_known_to_work || is_other {
            return None;
        }
        let cannot_receive_mail = matches!(rule, Rule::UnknownTld | Rule::NoMail);
        self.table.inference.suggest_provider(domain.as_str(), cannot_receive_mail)
    }

    /// Which rule, which lists and which sources.
    pub fn explain(&self) -> Explanation<'t> {
        let answer = &self.table.decoded.answers[usize::from(self.answer_number)];
        let lists: Vec<&ListInfo> = (0..)
            .zip(self.table.lists())
            .filter(|(number, _)| answer.lists >> number & 1 == 1)
            .map(|(_, list)| list)
            .collect();
        let votes = |source: &SourcePackage| {
            source.vote.is_some_and(|letter| answer.votes & source_packages::vote_bit(letter) != 0)
        };
        let sources = self.table.sources().iter().filter(|source| {
            votes(source) || lists.iter().any(|list| list.source.as_ref() == Some(&source.name))
        });
        Explanation { rule: answer.verdict.rule, sources: sources.collect(), lists }
    }
}

impl ListRow<'_> {
    /// Whether two rows give the same answers, to the name and to those below it.
    pub fn has_same_answers(&self, other: &ListRow) -> bool {
        fn answer_of<'t>(found: &Lookup<'t>) -> (Verdict, Option<&'t str>) {
            (found.verdict, found.label)
        }
        answer_of(&self.own) == answer_of(&other.own)
            && self.below.as_ref().map(answer_of) == other.below.as_ref().map(answer_of)
    }
}
