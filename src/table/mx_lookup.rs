//! Applies DNS records to the answer for an unlisted name.

use super::answer::TableAnswer;
use super::entry::{ANSWER_NO_MAIL, ANSWER_PARKED};
use super::manifest::ListKind;
use super::mx::{IMPLICIT_MX, MxAnswerIndexes, rule_for_special_mx};
use super::table_data::Table;
use crate::model::verdict::Rule;

impl Table {
    /// Whether the table has an answer for this MX host or for a suffix of it.
    pub fn is_known_mx_host(&self, host: &str) -> bool {
        self.known_mx_answer(host).is_some()
    }

    /// The table's answer for this MX host or for its longest known suffix, as a number; `None` if
    /// it has none.
    pub fn known_mx_answer(&self, host: &str) -> Option<MxAnswerIndexes> {
        self.mx_answers.find_answer_indexes(host)
    }

    /// The providers under `typos_of` in the manifest. riskgate asks new resolvers for their mail
    /// hosts. If the resolvers find none, riskgate sends them no further queries until a later
    /// probe succeeds.
    pub fn resolver_probe_providers(&self) -> &[String] {
        &self.decoded_table.meta.inferred.typos_of
    }
}

impl TableAnswer<'_> {
    /// Whether DNS records may change the answer. They may if no list and no override decided it.
    pub fn is_undecided_by_lists(&self) -> bool {
        match self.verdict.rule {
            Rule::LookAlike
            | Rule::Typo
            | Rule::ThrowawayName
            | Rule::BulkName
            | Rule::MailInName
            | Rule::Unknown => self.matched_name_offset.is_none(),
            // The matching row is that of the free suffix. If another list has a row too, that list
            // decided the answer.
            Rule::FreeSubdomain => self.is_only_in_lists_of_kind(ListKind::FreeSubdomain),
            _ => false,
        }
    }

    /// Applies an MX fact: a value as in a list of kind `mx`, or [`IMPLICIT_MX`]. If a list or an
    /// override decided the answer, the fact changes nothing. A fact that flags the name outranks
    /// all rules for unlisted names. If a rule flags the name, a fact that does not flag it changes
    /// neither verdict nor label.
    pub fn apply_mx_fact(self, mx_value: &str) -> Self {
        if !self.is_undecided_by_lists() || mx_value == IMPLICIT_MX {
            return self;
        }
        let answer = match rule_for_special_mx(mx_value) {
            Some(Rule::Parked) => Some(ANSWER_PARKED),
            Some(_) => Some(ANSWER_NO_MAIL),
            None => self.find_mx_answer_index(mx_value),
        };
        match answer {
            Some(number) => TableAnswer {
                is_from_dns_fact: true,
                has_mail_host: rule_for_special_mx(mx_value).is_none(),
                ..self.table.make_answer(number, None)
            },
            None => TableAnswer { has_mail_host: true, ..self },
        }
    }

    /// The index of the answer that replaces this one if the name has this MX host. `None` if the
    /// host is unknown or changes nothing.
    fn find_mx_answer_index(&self, host: &str) -> Option<u16> {
        let MxAnswerIndexes { unknown, bulk_name, mail_in_name } =
            self.table.mx_answers.find_answer_indexes(host)?;
        match self.verdict.rule {
            Rule::Unknown => Some(unknown),
            Rule::BulkName => Some(bulk_name),
            Rule::MailInName => Some(mail_in_name),
            _ => {
                let verdict = self.table.decoded_table.answers[usize::from(unknown)].verdict;
                verdict.reason.is_flagged().then_some(unknown)
            }
        }
    }

    fn is_only_in_lists_of_kind(&self, kind: ListKind) -> bool {
        let lists = self.table.decoded_table.answers[usize::from(self.answer_index)].list_bits;
        let mut numbered = (0..).zip(self.table.lists());
        numbered.all(|(number, list)| lists >> number & 1 == 0 || list.kind == kind.as_str())
    }
}
