//! What follows from the MX host of a name that no list has.
//!
//! Values only: the build works out the answers, and whoever has asked the DNS gets one of them.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::cover::{NO_MAIL, PARKED};
use super::{Found, Table};
use crate::domain::walk;
use crate::verdict::Rule;

/// The answers to names with an MX host at or below a suffix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MxAnswers {
    pub suffix: String,
    /// In the place of `Rule::Unknown`.
    pub unknown: u16,
    /// In the place of `Rule::MailInName`.
    pub mail_in_name: u16,
}

/// The same, to be asked.
pub(super) struct MxHosts(HashMap<String, (u16, u16)>);

impl MxHosts {
    pub(super) fn new(answers: &[MxAnswers]) -> MxHosts {
        let host = |it: &MxAnswers| (it.suffix.clone(), (it.unknown, it.mail_in_name));
        MxHosts(answers.iter().map(host).collect())
    }

    fn of(&self, host: &str) -> Option<(u16, u16)> {
        walk(host).find_map(|start| self.0.get(&host[start..])).copied()
    }
}

/// The rule that a word in the place of an MX host stands for.
pub(super) fn rule_without_host(text: &str) -> Option<Rule> {
    match text {
        "." | "nxdomain" => Some(Rule::NoMail),
        "parked" | "localhost" => Some(Rule::Parked),
        _ => None,
    }
}

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
    /// Whether the DNS may say more of the name: neither a list, nor the operator, nor a rule that
    /// outranks it has said anything.
    pub fn is_open_to_dns(&self) -> bool {
        let rule = self.verdict.rule;
        self.matched.is_none() && matches!(rule, Rule::MailInName | Rule::Unknown)
    }

    /// The same with what the DNS says of the name, written as in a list of kind `mx`. It changes
    /// nothing where a list, the operator or a rule that outranks it has said something.
    pub fn apply_mx(self, mx: &str) -> Self {
        if !self.is_open_to_dns() {
            return self;
        }
        let number = match rule_without_host(mx) {
            Some(Rule::Parked) => PARKED,
            Some(_) => NO_MAIL,
            None => match (self.table.mx.of(mx), self.verdict.rule) {
                (Some((unknown, _)), Rule::Unknown) => unknown,
                (Some((_, mail_in_name)), _) => mail_in_name,
                (None, _) => return self,
            },
        };
        Found { is_learned: true, ..self.table.found(number, None) }
    }
}
