//! What the DNS may change in the answer for a name that no list has.

use super::answer::Found;
use super::entry::{NO_MAIL, PARKED};
use super::manifest::Kind;
use super::mx::{OWN_ADDRESSES, rule_without_host};
use super::table_data::Table;
use crate::model::verdict::Rule;

impl Table {
    /// Whether something follows from this MX host, so that nobody need ask whether it is there.
    pub fn knows_mx_host(&self, host: &str) -> bool {
        self.mx.of(host).is_some()
    }

    /// Large providers: a DNS that does not know their mail hosts is not to be believed.
    pub fn large_providers(&self) -> &[String] {
        &self.parts.meta.inferred.typos_of
    }
}

impl Found<'_> {
    /// Whether the DNS may say more of the name: only rules for unlisted names have judged it.
    pub fn is_open_to_dns(&self) -> bool {
        match self.verdict.rule {
            Rule::Typo | Rule::ThrowawayName | Rule::MailInName | Rule::Unknown => {
                self.matched.is_none()
            }
            // Its row is the suffix's: with any other list, somebody has said more of the name.
            Rule::FreeSubdomain => self.is_only_in_lists_of(Kind::FreeSubdomain),
            _ => false,
        }
    }

    /// The same with what the DNS says of the name, written as in a list of kind `mx`, or as
    /// [`OWN_ADDRESSES`]. It changes nothing where a list or the operator has said something. What
    /// flags a name outranks all rules for unlisted names; what does not leaves their flags.
    pub fn apply_mx(self, mx: &str) -> Self {
        if !self.is_open_to_dns() || mx == OWN_ADDRESSES {
            return self;
        }
        let answer = match rule_without_host(mx) {
            Some(Rule::Parked) => Some(PARKED),
            Some(_) => Some(NO_MAIL),
            None => self.answer_by_mx_host(mx),
        };
        match answer {
            Some(number) => Found {
                is_learned: true,
                has_learned_host: rule_without_host(mx).is_none(),
                ..self.table.found(number, None)
            },
            None => Found { has_learned_host: true, ..self },
        }
    }

    /// The number of the answer that follows from this MX host, if any does.
    fn answer_by_mx_host(&self, host: &str) -> Option<u16> {
        let (unknown, mail_in_name) = self.table.mx.of(host)?;
        match self.verdict.rule {
            Rule::Unknown => Some(unknown),
            Rule::MailInName => Some(mail_in_name),
            _ => {
                let verdict = self.table.parts.answers[usize::from(unknown)].verdict;
                verdict.reason.is_flagged().then_some(unknown)
            }
        }
    }

    fn is_only_in_lists_of(&self, kind: Kind) -> bool {
        let lists = self.table.parts.answers[usize::from(self.answer)].lists;
        let mut numbered = (0..).zip(self.table.lists());
        numbered.all(|(number, list)| lists >> number & 1 == 0 || list.kind == kind.word())
    }
}
