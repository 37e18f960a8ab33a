//! The facts about a sign-up that a rule can ask for.

use std::fmt;

use serde_json::Value;

use crate::model::verdict::{Reason, Rule, Score, VerdictSource};

/// A fact, by its name in rules and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The domain of the address.
    Domain,
    /// The risk score.
    RiskScore,
    /// The reason of the score.
    Reason,
    /// Where the verdict comes from.
    VerdictSource,
    /// Whether the domain is a free mailbox provider.
    IsFreeProvider,
    /// Whether the domain is an organisation's own mail domain.
    IsCorporateEmail,
    /// Whether the domain belongs to an alias or relay service.
    IsAlias,
    /// Whether the address belongs to a function or a machine.
    IsRole,
    /// How many other addresses of this inbox signed up within 30 days.
    InboxAccounts30d,
    /// How many other inboxes of the registrable domain signed up within an hour.
    DomainAccounts1h,
    /// How many other inboxes of the registrable domain signed up within a day.
    DomainAccounts1d,
    /// How many other inboxes signed up from the client's network within an hour.
    ClientAccounts1h,
}

/// The values that a fact may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactType {
    /// Whole numbers from 0 to this one.
    Number(u32),
    /// `true` and `false`.
    Truth,
    /// The name of a domain.
    Domain,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// The value of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactValue<'f> {
    /// The value of a fact of the type `Number`.
    Number(u32),
    /// The value of a fact of the type `Truth`.
    Truth(bool),
    /// The value of a fact of the type `Domain` or `Word`.
    Text(&'f str),
}

/// The counts of sign-ups other than the one to decide. `None` is a count without a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountFacts {
    /// See [`Fact::InboxAccounts30d`].
    pub inbox_accounts_30d: Option<u32>,
    /// See [`Fact::DomainAccounts1h`].
    pub domain_accounts_1h: Option<u32>,
    /// See [`Fact::DomainAccounts1d`].
    pub domain_accounts_1d: Option<u32>,
    /// See [`Fact::ClientAccounts1h`].
    pub client_accounts_1h: Option<u32>,
}

/// What is known about one sign-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts<'f> {
    /// The domain of the address; `None` for a text that is no address.
    pub domain: Option<&'f str>,
    /// The risk score.
    pub risk_score: Score,
    /// The reason of the score.
    pub reason: Reason,
    /// What is known about the domain; `None` for a text that is no address.
    pub of_domain: Option<DomainFacts>,
    /// Whether the address belongs to a role (`sales@`) or a machine (`noreply@`), and not to a
    /// person; `None` if the facts are about a domain alone, or about a text that is no address.
    pub is_role: Option<bool>,
    /// The counts.
    pub counts: CountFacts,
}

/// What is known about a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainFacts {
    /// Where the verdict comes from.
    pub verdict_source: VerdictSource,
    /// The rule of the table that decided reason and score.
    pub table_rule: Rule,
    /// Whether it is a free mailbox provider.
    pub is_free_provider: bool,
    /// Whether it is an organisation's own mail domain.
    pub is_corporate_email: bool,
    /// Whether it belongs to an alias or relay service.
    pub is_alias: bool,
}

/// The highest count: a count stops here, which bounds the work for it.
pub const MAX_COUNT: u32 = 1_000;

/// The names of [`Reason::ALL`].
const REASON_NAMES: [&str; 4] = [
    Reason::Safe.as_str(),
    Reason::Disposable.as_str(),
    Reason::Undeliverable.as_str(),
    Reason::RoleAccount.as_str(),
];
/// The names of [`VerdictSource::ALL`].
const VERDICT_SOURCE_NAMES: [&str; 4] = [
    VerdictSource::List.as_str(),
    VerdictSource::Rule.as_str(),
    VerdictSource::Dns.as_str(),
    VerdictSource::None.as_str(),
];

impl Fact {
    /// All facts, in the order in which answers have them.
    pub const ALL: [Fact; 12] = [
        Fact::Domain,
        Fact::RiskScore,
        Fact::Reason,
        Fact::VerdictSource,
        Fact::IsFreeProvider,
        Fact::IsCorporateEmail,
        Fact::IsAlias,
        Fact::IsRole,
        Fact::InboxAccounts30d,
        Fact::DomainAccounts1h,
        Fact::DomainAccounts1d,
        Fact::ClientAccounts1h,
    ];

    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Fact::Domain => "domain",
            Fact::RiskScore => "risk_score",
            Fact::Reason => "reason",
            Fact::VerdictSource => "verdict_source",
            Fact::IsFreeProvider => "is_free_provider",
            Fact::IsCorporateEmail => "is_corporate_email",
            Fact::IsAlias => "is_alias",
            Fact::IsRole => "is_role",
            Fact::InboxAccounts30d => "inbox_accounts_30d",
            Fact::DomainAccounts1h => "domain_accounts_1h",
            Fact::DomainAccounts1d => "domain_accounts_1d",
            Fact::ClientAccounts1h => "client_accounts_1h",
        }
    }

    /// The fact with this name.
    pub fn parse(name: &str) -> Option<Fact> {
        Fact::ALL.into_iter().find(|fact| fact.as_str() == name)
    }

    /// Whether the fact is a count of sign-ups.
    pub const fn is_count(self) -> bool {
        matches!(
            self,
            Fact::InboxAccounts30d
                | Fact::DomainAccounts1h
                | Fact::DomainAccounts1d
                | Fact::ClientAccounts1h
        )
    }

    /// The type of the fact's values.
    pub const fn fact_type(self) -> FactType {
        match self {
            Fact::Domain => FactType::Domain,
            Fact::RiskScore => FactType::Number(100),
            Fact::Reason => FactType::Word(&REASON_NAMES),
            Fact::VerdictSource => FactType::Word(&VERDICT_SOURCE_NAMES),
            Fact::IsFreeProvider | Fact::IsCorporateEmail | Fact::IsAlias | Fact::IsRole => {
                FactType::Truth
            }
            Fact::InboxAccounts30d
            | Fact::DomainAccounts1h
            | Fact::DomainAccounts1d
            | Fact::ClientAccounts1h => FactType::Number(MAX_COUNT),
        }
    }
}

impl CountFacts {
    /// Sets the value of a count. Ignores a fact that is no count.
    pub fn set(&mut self, fact: Fact, number: u32) {
        match fact {
            Fact::InboxAccounts30d => self.inbox_accounts_30d = Some(number),
            Fact::DomainAccounts1h => self.domain_accounts_1h = Some(number),
            Fact::DomainAccounts1d => self.domain_accounts_1d = Some(number),
            Fact::ClientAccounts1h => self.client_accounts_1h = Some(number),
            _ => {}
        }
    }
}

impl fmt::Display for FactValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FactValue::Number(number) => number.fmt(f),
            FactValue::Truth(truth) => truth.fmt(f),
            FactValue::Text(text) => f.write_str(text),
        }
    }
}

impl From<FactValue<'_>> for Value {
    fn from(value: FactValue<'_>) -> Value {
        match value {
            FactValue::Number(number) => number.into(),
            FactValue::Truth(truth) => truth.into(),
            FactValue::Text(text) => text.into(),
        }
    }
}

impl Facts<'_> {
    /// The value of a fact; `None` if the fact has no value.
    pub fn value(&self, fact: Fact) -> Option<FactValue<'_>> {
        let counts = &self.counts;
        Some(match fact {
            Fact::Domain => FactValue::Text(self.domain?),
            Fact::RiskScore => FactValue::Number(self.risk_score.value().into()),
            Fact::Reason => FactValue::Text(self.reason.as_str()),
            Fact::VerdictSource => FactValue::Text(self.of_domain?.verdict_source.as_str()),
            Fact::IsFreeProvider => FactValue::Truth(self.of_domain?.is_free_provider),
            Fact::IsCorporateEmail => FactValue::Truth(self.of_domain?.is_corporate_email),
            Fact::IsAlias => FactValue::Truth(self.of_domain?.is_alias),
            Fact::IsRole => FactValue::Truth(self.is_role?),
            Fact::InboxAccounts30d => FactValue::Number(counts.inbox_accounts_30d?),
            Fact::DomainAccounts1h => FactValue::Number(counts.domain_accounts_1h?),
            Fact::DomainAccounts1d => FactValue::Number(counts.domain_accounts_1d?),
            Fact::ClientAccounts1h => FactValue::Number(counts.client_accounts_1h?),
        })
    }
}

#[cfg(test)]
mod tests;
