//! The verdict on an e-mail address or a domain: the verdict on the domain, or the one on a local
//! part that is a role.

use serde::Serialize;

use crate::decide::ScorePolicy;
use crate::model::typed_address::AddressOrDomain;
use crate::model::verdict::{Reason, Rule, Score};
use crate::table::TableAnswer;

use super::address_facts::{AddressFacts, OtherFacts};

/// The deliverability if riskgate knows a mail host of the domain, or if the rule of the verdict
/// implies a mail host.
const KNOWN_DELIVERABILITY: u8 = 95;
/// The deliverability if nothing is known about the mail hosts of the domain.
const UNKNOWN_DELIVERABILITY: u8 = 50;
/// The deliverability if the mail hosts have no usable address.
const PARKED_DELIVERABILITY: u8 = 10;

/// The verdict on an address or a domain.
pub struct EmailVerdict<'t> {
    /// The reason of the score.
    pub reason: Reason,
    /// The risk score.
    pub score: Score,
    lookup: TableAnswer<'t>,
    suggestion: Option<&'t str>,
}

/// The JSON in the answer to a check: the members that the PyPI package `syvel` 0.1.0 reads.
#[derive(Serialize)]
struct CheckAnswerBody<'a> {
    email: String,
    is_risky: bool,
    risk_score: u8,
    reason: &'a str,
    deliverability_score: u8,
    did_you_mean: Option<&'a str>,
    is_free_provider: bool,
    is_corporate_email: bool,
    /// Whether the domain belongs to an alias or relay service.
    is_alias_email: bool,
    mx_provider_label: Option<&'a str>,
}

impl<'t> EmailVerdict<'t> {
    /// Judges an address or a domain. The verdict with the highest score counts. riskgate compares
    /// these verdicts:
    /// - `lookup`, the table's answer for the domain;
    /// - on a role address, the reason `role_account` with `role_score`;
    /// - on a domain that only other software reads in the address, the table's answer, but only if
    ///   the default of [`ScorePolicy`] blocks it.
    pub fn new(
        checked: &AddressOrDomain,
        lookup: &TableAnswer<'t>,
        mut others: OtherFacts,
        role_score: Score,
    ) -> EmailVerdict<'t> {
        let of_domain = (lookup.verdict.reason, lookup.verdict.score);
        let scores = ScorePolicy::default();
        let is_blocking = |it: &AddressFacts| scores.is_blocking(it.score, it.reason);
        let by_idna_2003 = others.by_idna_2003.take().filter(is_blocking);
        let as_ascii = others.refused_as_ascii(&scores);
        let of_others = by_idna_2003.into_iter().chain(as_ascii).map(|it| (it.reason, it.score));
        let of_role = checked.is_role().then_some((Reason::RoleAccount, role_score));
        let all = of_others.chain([of_domain]).chain(of_role);
        // Of equal scores, the last one counts.
        let (reason, score) = all.max_by_key(|(_, score)| *score).unwrap_or(of_domain);
        let suggestion = lookup.suggest_provider(checked.domain());
        EmailVerdict { reason, score, lookup: *lookup, suggestion }
    }

    /// How likely it is that mail arrives, 0 to 100. The number depends on the rule of the verdict
    /// and on whether riskgate knows a mail host of the domain. riskgate does not ask whether the
    /// mailbox exists.
    fn deliverability_score(&self) -> u8 {
        match self.lookup.verdict.rule {
            Rule::SpecialUse | Rule::UnknownTld | Rule::NoMail => 0,
            Rule::Parked => PARKED_DELIVERABILITY,
            Rule::Protected
            | Rule::Alias
            | Rule::AgentInbox
            | Rule::Free
            | Rule::Professional
            | Rule::DisposableMx
            | Rule::DisposableMxAddress => KNOWN_DELIVERABILITY,
            Rule::Override
            | Rule::DisposableA
            | Rule::DisposableB
            | Rule::DisposableC
            | Rule::DisposableD
            | Rule::Role
            | Rule::LookAlike
            | Rule::Typo
            | Rule::FreeSubdomain
            | Rule::ThrowawayName
            | Rule::BulkName
            | Rule::MailInName
            | Rule::Unknown => match self.lookup.is_known_to_receive_mail() {
                true => KNOWN_DELIVERABILITY,
                false => UNKNOWN_DELIVERABILITY,
            },
        }
    }

    /// Returns the JSON body of the answer to a check.
    pub fn render_check_body(&self, checked: &AddressOrDomain) -> String {
        let verdict = self.lookup.verdict;
        let body = CheckAnswerBody {
            email: checked.masked(),
            is_risky: self.score.is_risky(),
            risk_score: self.score.value(),
            reason: self.reason.as_str(),
            deliverability_score: self.deliverability_score(),
            did_you_mean: self.suggestion,
            is_free_provider: verdict.is_free_provider,
            is_corporate_email: verdict.is_corporate_email,
            is_alias_email: self.lookup.is_alias(),
            mx_provider_label: self.lookup.mail_service_label,
        };
        // A struct of plain values always serializes.
        serde_json::to_string(&body).unwrap_or_default()
    }
}
