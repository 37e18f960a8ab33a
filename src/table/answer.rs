//! The results of a look-up: an answer, a row, and their explanation.
//!
//! The results borrow from the table. `lookup` finds an answer that `rules` decided when the table
//! was built.

use std::borrow::Cow;

use super::entry::NO_ANSWER;
use super::layout::parts::ListInfo;
use super::rules::StoredAnswer;
use super::seen_days::SeenDays;
use super::source_packages::{self, SourcePackage};
use super::table_data::{Table, label_of_answer};
use crate::model::domain::Domain;
use crate::model::verdict::{Rule, Score, Verdict, VerdictSource};

/// A table's answer for a domain.
#[derive(Clone, Copy)]
pub struct TableAnswer<'t> {
    /// Reason, score, rule and what is known about the domain.
    pub verdict: Verdict,
    /// The label of the domain's mail service.
    pub mail_service_label: Option<&'t str>,
    /// The byte offset in the domain at which the matching row's name begins; `None` if no row
    /// matched.
    pub matched_name_offset: Option<usize>,
    pub(super) table: &'t Table,
    /// The index of the answer in the table.
    pub(super) answer_index: u16,
    /// The index of the answer whose fields an override lays over this one; [`NO_ANSWER`] if none
    /// does.
    pub(super) fields_laid_over: u16,
    /// Whether a DNS fact that riskgate learned gave the answer.
    pub(super) is_from_dns_fact: bool,
    /// Whether the DNS has a mail host for the name, even if the answer does not depend on it.
    pub(super) has_mail_host: bool,
    /// When sources had the name of the matching row.
    pub(super) seen_days: SeenDays,
}

/// One row of a table.
#[derive(Clone, Copy)]
pub struct TableRow<'t> {
    /// The name.
    pub name: &'t str,
    /// The answer for the name itself.
    pub own_answer: TableAnswer<'t>,
    /// The answer for names below it; `None` if the row covers only the name itself.
    pub answer_below: Option<TableAnswer<'t>>,
}

/// Why a table gives an answer.
#[derive(Clone, Debug)]
pub struct AnswerOrigin<'t> {
    /// The rule that decided reason and score.
    pub rule: Rule,
    /// The lists whose rows count for the answer: rows of the name, or of a suffix of it.
    pub lists: Vec<&'t ListInfo>,
    /// The sources of these lists, and the sources that vote for the row.
    pub sources: Vec<&'t SourcePackage>,
    /// When the first day began on which a source had the name of the row, in seconds since 1970;
    /// `None` if the day is not known.
    pub first_seen: Option<i64>,
    /// When the last day began on which a source had the name of the row, in seconds since 1970;
    /// `None` if the day is not known.
    pub last_seen: Option<i64>,
}

impl Table {
    /// The answer with this index. `matched_name_offset` is the byte offset in the domain at which
    /// the matching row's name begins; `None` if no row matched.
    pub(super) fn make_answer(
        &self,
        answer_index: u16,
        matched_name_offset: Option<usize>,
    ) -> TableAnswer<'_> {
        let answer = &self.decoded_table.answers[usize::from(answer_index)];
        let label = label_of_answer(&self.decoded_table, answer);
        let verdict = answer.verdict;
        TableAnswer {
            verdict,
            mail_service_label: label,
            matched_name_offset,
            table: self,
            answer_index,
            fields_laid_over: NO_ANSWER,
            is_from_dns_fact: false,
            has_mail_host: false,
            seen_days: SeenDays::default(),
        }
    }
}

impl<'t> TableAnswer<'t> {
    /// The answer as the table has it.
    fn stored(&self) -> &'t StoredAnswer {
        &self.table.decoded_table.answers[usize::from(self.answer_index)]
    }

    /// The rule that decides, or that would decide without the override that does.
    fn rule_of_lists(&self) -> Rule {
        match self.verdict.rule {
            Rule::Override => self.stored().rule_of_lists,
            rule => rule,
        }
    }

    /// Whether the domain belongs to an alias or relay service, whatever an override says about
    /// its risk.
    pub fn is_alias(&self) -> bool {
        self.rule_of_lists() == Rule::Alias
    }

    /// Whether the lists protect the domain, whatever an override says about its risk.
    pub fn is_protected(&self) -> bool {
        self.rule_of_lists() == Rule::Protected
    }

    /// Whether the domain is protected or belongs to a free provider: unrelated people may then
    /// have addresses there.
    pub fn is_protected_or_free_provider(&self) -> bool {
        self.is_protected() || self.verdict.is_free_provider
    }

    /// The part of the public answer's JSON that follows the domain. It begins with the closing
    /// quote of the domain.
    pub fn json_tail(&self) -> Cow<'t, str> {
        let is_as_stored =
            self.fields_laid_over == NO_ANSWER && self.verdict == self.stored().verdict;
        match is_as_stored {
            true => Cow::Borrowed(&self.table.json_tail_by_answer[usize::from(self.answer_index)]),
            false => Cow::Owned(self.verdict.render_json_tail(self.mail_service_label)),
        }
    }

    /// Applies the operator's score for unknown names, if there is one. A lower score of the rules
    /// `mail_in_name`, `bulk_name` and `disposable_mx_address` is raised to it.
    pub fn with_score_of_unknown_names(mut self, unknown_score: Option<Score>) -> Self {
        if let Some(unknown_score) = unknown_score {
            let score = &mut self.verdict.score;
            match self.verdict.rule {
                Rule::Unknown => *score = unknown_score,
                Rule::BulkName | Rule::MailInName | Rule::DisposableMxAddress => {
                    *score = unknown_score.max(*score);
                }
                _ => {}
            }
        }
        self
    }

    /// Lays the fields of an override over this answer. `index` is the index of the answer that has
    /// the override. Changes nothing if `index` is [`NO_ANSWER`].
    pub(super) fn with_fields_laid_over(mut self, index: u16) -> Self {
        let Some(stored) = self.table.decoded_table.answers.get(usize::from(index)) else {
            return self;
        };
        let fields = stored.set_by_override;
        if fields.sets_free_provider {
            self.verdict.is_free_provider = stored.verdict.is_free_provider;
            // No mail domain is that of a company and of a free provider.
            self.verdict.is_corporate_email &= !self.verdict.is_free_provider;
        }
        if fields.sets_corporate_email {
            self.verdict.is_corporate_email = stored.verdict.is_corporate_email;
        }
        if fields.sets_label {
            self.mail_service_label = label_of_answer(&self.table.decoded_table, stored);
        }
        self.fields_laid_over = index;
        self
    }

    /// The kind of source that decided the answer.
    pub fn verdict_source(&self) -> VerdictSource {
        if self.is_from_dns_fact { VerdictSource::Dns } else { self.verdict.rule.verdict_source() }
    }

    /// Whether riskgate knows that the name receives mail: the DNS has a mail host for it, the
    /// table has the label of its mail service, or a source of the table has verified its mail
    /// host.
    pub fn is_known_to_receive_mail(&self) -> bool {
        self.has_mail_host
            || self.mail_service_label.is_some()
            || self.table.unlisted_rules.has_verified_mx(self.stored().vote_bits)
    }

    /// Whether a DNS fact that riskgate learned says something against the name.
    pub fn is_unsafe_by_learned_fact(&self) -> bool {
        self.is_from_dns_fact && !self.verdict.reason.is_safe()
    }

    /// Whether a row of a list matched the name, and the reason is `safe`.
    pub fn is_listed_as_real(&self) -> bool {
        self.matched_name_offset.is_some() && self.verdict.reason.is_safe()
    }

    /// The day of the newest evidence for a verdict of lists, in seconds since 1970: the last day
    /// on which a source had the name, or the date of the newest source that lists it. `None` for
    /// an override, for a verdict that does not come from a list, and if no day is known.
    pub fn evidence_unix_seconds(&self) -> Option<i64> {
        if self.verdict.rule == Rule::Override || self.verdict_source() != VerdictSource::List {
            return None;
        }
        let of_sources = self.table.source_days_by_answer[usize::from(self.answer_index)];
        of_sources.newest_evidence(self.seen_days).to_unix_seconds()
    }

    /// The version of the table that gave the answer.
    pub fn table_version(&self) -> &'t str {
        self.table.version()
    }

    /// Whether a list of the manifest has a row for exactly this name.
    pub(super) fn is_in_manifest_lists(&self) -> bool {
        self.stored().is_in_manifest_lists
    }

    /// Whether a list of the manifest protects exactly this name, whatever an override says.
    pub fn is_protected_in_manifest_lists(&self) -> bool {
        self.stored().is_protected_in_manifest_lists
    }

    /// Whether the reason is not `safe`, and comes from something else than an override of the
    /// operator.
    pub(super) fn is_unsafe_but_not_by_operator(&self) -> bool {
        let is_added_override = self.verdict.rule == Rule::Override
            && self.explain().lists.iter().any(|list| list.is_added);
        !self.verdict.reason.is_safe() && !is_added_override
    }

    /// The well-known provider that the user probably meant, if the domain's name is close to the
    /// provider's name. `None` in these cases:
    ///
    /// - An override decided the verdict.
    /// - The name is protected, or belongs to an alias service, an inbox service for programs, a
    ///   role, a free provider, a professional mail service or a suffix with free names.
    /// - A list calls a disposable name real.
    /// - A row matched, and no rule decided: the row calls the name real, or has only its label.
    /// - The reason is `safe`, and the DNS has a mail host for the name.
    /// - A parent matched, and not the name itself.
    ///
    /// A disposable name gets a suggestion even if it has a mail host, because squatters collect
    /// mistyped mail.
    pub fn suggest_provider(&self, domain: &Domain) -> Option<&'t str> {
        let rule = self.verdict.rule;
        let is_real = match rule {
            Rule::Override | Rule::Protected | Rule::Alias | Rule::AgentInbox => true,
            Rule::Role | Rule::Free | Rule::Professional | Rule::FreeSubdomain => true,
            Rule::SpecialUse | Rule::UnknownTld | Rule::NoMail | Rule::Parked => false,
            Rule::DisposableA | Rule::DisposableB | Rule::DisposableC | Rule::DisposableD => {
                self.stored().is_known_or_cleared
            }
            Rule::DisposableMx
            | Rule::DisposableMxAddress
            | Rule::LookAlike
            | Rule::Typo
            | Rule::ThrowawayName
            | Rule::BulkName
            | Rule::MailInName => false,
            // The row calls the name real, or has only its label.
            Rule::Unknown => self.matched_name_offset.is_some(),
        };
        let is_real = is_real || self.has_mail_host && self.verdict.reason.is_safe();
        // If a parent matched, the mistyped name itself has no row.
        let parent_matched = self.matched_name_offset.is_some_and(|at| at > 0);
        if is_real || parent_matched { None } else { self.table.find_similar_provider(domain) }
    }

    /// The rule, lists and sources behind the answer.
    pub fn explain(&self) -> AnswerOrigin<'t> {
        let answer = self.stored();
        let answers = &self.table.decoded_table.answers;
        let laid_over = answers.get(usize::from(self.fields_laid_over));
        let list_bits = answer.list_bits | laid_over.map_or(0, |it| it.list_bits);
        let lists: Vec<&ListInfo> = (0..)
            .zip(self.table.lists())
            .filter(|(number, _)| list_bits >> number & 1 == 1)
            .map(|(_, list)| list)
            .collect();
        let has_voted = |source: &SourcePackage| {
            source
                .vote
                .is_some_and(|letter| answer.vote_bits & source_packages::vote_bit(letter) != 0)
        };
        let sources = self.table.sources().iter().filter(|source| {
            has_voted(source) || lists.iter().any(|list| list.source.as_ref() == Some(&source.name))
        });
        AnswerOrigin {
            rule: answer.verdict.rule,
            sources: sources.collect(),
            lists,
            first_seen: self.seen_days.first.to_unix_seconds(),
            last_seen: self.seen_days.last.to_unix_seconds(),
        }
    }
}

impl TableRow<'_> {
    /// Whether two rows give the same verdicts and labels for the name and for the names below it.
    pub fn has_same_answers(&self, other: &TableRow) -> bool {
        fn verdict_and_label_of<'t>(found: &TableAnswer<'t>) -> (Verdict, Option<&'t str>) {
            (found.verdict, found.mail_service_label)
        }
        verdict_and_label_of(&self.own_answer) == verdict_and_label_of(&other.own_answer)
            && self.answer_below.as_ref().map(verdict_and_label_of)
                == other.answer_below.as_ref().map(verdict_and_label_of)
    }
}
