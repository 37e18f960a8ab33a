//! Applies DNS records to the answer for an unlisted name.

use std::net::IpAddr;

use super::answer::TableAnswer;
use super::entry::{FixedAnswer, NO_ANSWER};
use super::manifest::ListKind;
use super::mx::{IMPLICIT_MX, MxAnswerIndexes, find_longest_suffix, rule_for_special_mx};
use super::table_data::Table;
use crate::model::domain::{Domain, self_and_parent_offsets};
use crate::model::verdict::Rule;

impl Table {
    /// Whether the table has an answer for this MX host or for a suffix of it.
    pub fn is_known_mx_host(&self, host: &str) -> bool {
        self.known_mx_answer(host).is_some()
    }

    /// The indexes of the table's answers for this MX host, or for its longest known suffix; `None`
    /// if the table has none.
    pub fn known_mx_answer(&self, host: &str) -> Option<MxAnswerIndexes> {
        find_longest_suffix(&self.mx_answers, host).copied()
    }

    /// Whether a list of kind `mx_address` has this address.
    pub fn is_listed_mx_address(&self, address: IpAddr) -> bool {
        self.find_mx_address_answer_index(address).is_some()
    }

    fn find_mx_address_answer_index(&self, address: IpAddr) -> Option<u16> {
        let answers = &self.decoded_table.meta.mx_address;
        let at = answers.binary_search_by_key(&address, |row| row.address).ok()?;
        Some(answers[at].answer)
    }

    /// Whether the lists call this name, or the owner of this MX host, real. They do in two cases:
    /// a list of MX hosts has the host, or a row matches the name or host, and the reason is
    /// `safe`. `now` is in seconds since 1970.
    pub fn is_known_as_real(&self, name_or_host: &str, now: i64) -> bool {
        if let Some(MxAnswerIndexes { unknown, .. }) = self.known_mx_answer(name_or_host)
            && self.decoded_table.answers[usize::from(unknown)].verdict.reason.is_safe()
        {
            return true;
        }
        // The first labels of an MX host may contain an underscore, which no domain contains.
        let mut parents = self_and_parent_offsets(name_or_host);
        let domain = parents.find_map(|start| Domain::parse(&name_or_host[start..]).ok());
        domain.is_some_and(|domain| self.lookup(&domain, now).is_listed_as_real())
    }

    /// The providers under `typos_of` in the manifest, for `DnsClient::probe_resolvers`. While a
    /// probe fails, riskgate resolves no names with these resolvers.
    pub fn resolver_probe_providers(&self) -> &[String] {
        &self.decoded_table.meta.inferred.typos_of
    }
}

impl TableAnswer<'_> {
    /// Whether DNS records may change the answer. They may if a rule for unlisted names other than
    /// `unknown_tld` gave the answer, or if only lists of suffixes with free names did. An answer
    /// of another list, or of an override that sets reason or score, stays.
    pub fn is_undecided_by_lists(&self) -> bool {
        match self.verdict.rule {
            Rule::LookAlike
            | Rule::Typo
            | Rule::ThrowawayName
            | Rule::BulkName
            | Rule::MailInName
            | Rule::Unknown => self.matched_name_offset.is_none(),
            // The matching row is that of the free suffix. If another list has a row as well, that
            // other list decided the answer.
            Rule::FreeSubdomain => self.is_only_in_lists_of_kind(ListKind::FreeSubdomain),
            _ => false,
        }
    }

    /// Applies an MX fact: a value as in a list of kind `mx`, or [`IMPLICIT_MX`]. The fact changes
    /// nothing unless [`TableAnswer::is_undecided_by_lists`] returns true. A fact that flags the
    /// name outranks the rules that gave such an answer. If a rule flags the name, a fact that does
    /// not flag it changes neither verdict nor label.
    pub fn apply_mx_fact(self, mx_value: &str) -> Self {
        if !self.is_undecided_by_lists() || mx_value == IMPLICIT_MX {
            return self;
        }
        let answer = match rule_for_special_mx(mx_value) {
            Some(Rule::Parked) => Some(FixedAnswer::Parked as u16),
            Some(_) => Some(FixedAnswer::NoMail as u16),
            None => self.find_mx_answer_index(mx_value),
        };
        match answer {
            Some(number) => TableAnswer {
                is_from_dns_fact: true,
                has_mail_host: rule_for_special_mx(mx_value).is_none(),
                ..self.table.make_answer(number, None).with_fields_laid_over(self.fields_laid_over)
            },
            None => TableAnswer { has_mail_host: true, ..self },
        }
    }

    /// Applies the addresses of the name's MX host, after [`TableAnswer::apply_mx_fact`] has
    /// applied the host. A listed address raises the score of a name that neither a list, nor the
    /// MX host, nor a flagging rule judges. An address for which `may_be_used_by_real_names`
    /// returns true does not count.
    pub fn apply_mx_addresses(
        self,
        addresses: &[IpAddr],
        may_be_used_by_real_names: impl Fn(IpAddr) -> bool,
    ) -> Self {
        let rule = self.verdict.rule;
        let is_unjudged = matches!(rule, Rule::Unknown | Rule::BulkName | Rule::MailInName)
            && self.is_undecided_by_lists()
            && !self.is_from_dns_fact;
        if !is_unjudged {
            return self;
        }
        let find_answer = |address: &IpAddr| {
            let number = self.table.find_mx_address_answer_index(*address)?;
            (!may_be_used_by_real_names(*address)).then_some(number)
        };
        match addresses.iter().find_map(find_answer) {
            Some(number) => {
                let raised = self.table.make_answer(number, None);
                let raised = raised.with_fields_laid_over(self.fields_laid_over);
                match raised.verdict.score > self.verdict.score {
                    true => TableAnswer { is_from_dns_fact: true, has_mail_host: true, ..raised },
                    false => self,
                }
            }
            None => self,
        }
    }

    /// The index of the answer that replaces this one if the name has this MX host. `None` if the
    /// host is unknown or changes nothing.
    fn find_mx_answer_index(&self, host: &str) -> Option<u16> {
        let MxAnswerIndexes { unknown, bulk_name, mail_in_name } =
            *find_longest_suffix(&self.table.mx_answers, host)?;
        match self.verdict.rule {
            Rule::Unknown => Some(unknown),
            Rule::BulkName => Some(bulk_name),
            Rule::MailInName => Some(mail_in_name),
            _ => {
                let verdict = self.table.decoded_table.answers[usize::from(unknown)].verdict;
                (!verdict.reason.is_safe()).then_some(unknown)
            }
        }
    }

    /// Whether all lists behind the answer are of this kind. Ignores overrides that set neither
    /// reason nor score.
    fn is_only_in_lists_of_kind(&self, kind: ListKind) -> bool {
        let lists = self.table.decoded_table.answers[usize::from(self.answer_index)].list_bits;
        let has_fields = self.fields_laid_over != NO_ANSWER;
        let mut numbered = (0..).zip(self.table.lists());
        numbered.all(|(number, list)| {
            lists >> number & 1 == 0
                || list.kind == kind.as_str()
                || has_fields && list.kind == ListKind::Override.as_str()
        })
    }
}
