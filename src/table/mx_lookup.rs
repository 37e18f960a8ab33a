//! What the DNS may change in the answer for a name that no list has.

use super::answer::Lookup;
use super::entry::{ANSWER_NO_MAIL, ANSWER_PARKED};
use super::manifest::ListKind;
use super::mx::{IMPLICIT_MX, rule_for_special_mx};
use super::table_data::Table;
use crate::model::verdict::Rule;

impl Table {
    /// Whether something follows from this MX host, so that nobody need ask whether it is there.
    pub fn is_known_mx_host(&self, host: &str) -> bool {
        self.mx.find(host).is_some()
    }

    /// Large providers: a DNS that does not know their mail hosts is not to be believed.
    pub fn large_providers(&self) -> &[String] {
        &self.decoded.meta.inferred.typos_of
    }
}

impl Lookup<'_> {
    /// Whether the DNS may say more of the name: only rules for unlisted names have judged it.
    pub fn is_undecided_by_lists(&self) -> bool {
        match self.verdict.rule {
            Rule::Typo | Rule::ThrowawayName | Rule::MailInName | Rule::Unknown => {
                self.matched_at.is_none()
            }
            // Its row is the suffix's: with any other list, somebody has said more of the name.
            Rule::FreeSubdomain => self.is_only_in_lists_of(ListKind::FreeSubdomain),
            _ => false,
        }
    }

    /// The same with what the DNS says of the name, written as in a list of kind `mx`, or as
    /// [`IMPLICIT_MX`]. It changes nothing where a list or the operator has said something. What
    /// flags a name outranks all rules for unlisted names; what does not leaves their flags.
    pub fn apply_mx(self, mx: &str) -> Self {
        if !self.is_undecided_by_lists() || mx == IMPLICIT_MX {
            return self;
        }
        let answer = match rule_for_special_mx(mx) {
            Some(Rule::Parked) => Some(ANSWER_PARKED),
            Some(_) => Some(ANSWER_NO_MAIL),
            None => self.answer_by_mx_host(mx),
        };
        match answer {
            Some(number) => Lookup {
                is_learned: true,
                has_learned_host: rule_for_special_mx(mx).is_none(),
                ..self.table.make_lookup(number, None)
            },
            None => Lookup { has_learned_host: true, ..self },
        }
    }

    /// The number of the answer that follows from this MX host, if any does.
    fn answer_by_mx_host(&self, host: &str) -> Option<u16> {
        let (unknown, mail_in_name) = self.table.mx.find(host)?;
        match self.verdict.rule {
            Rule::Unknown => Some(unknown),
            Rule::MailInName => Some(mail_in_name),
            _ => {
                let verdict = self.table.decoded.answers[usize::from(unknown)].verdict;
                verdict.reason.is_flagged().then_some(unknown)
            }
        }
    }

    fn is_only_in_lists_of(&self, kind: ListKind) -> bool {
        let lists = self.table.decoded.answers[usize::from(self.answer_number)].lists;
        let mut numbered = (0..).zip(self.table.lists());
        numbered.all(|(number, list)| lists >> number & 1 == 0 || list.kind == kind.word())
    }
}
