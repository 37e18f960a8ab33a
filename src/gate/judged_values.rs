//! The verdicts on the values of a form's fields, and the strictest decision on these values.

use std::net::IpAddr;

use smol_str::SmolStr;

use crate::decide::{Action, CountFacts, ScorePolicy, decide_strictest};
use crate::model::domain::Domain;
use crate::model::email::{EmailAddress, EmailError, without_invisible_characters};
use crate::model::sign_up::{Pseudonym, SignUp};
use crate::model::verdict::Score;
use crate::screening::MAX_ADDRESSES_IN_VALUE;
use crate::table::{Table, TableAnswer};

use super::address_facts::{AddressFacts, facts_by_idna_2003, facts_of_address};
use super::answers::look_up_and_count;
use super::request_context::RequestContext;
use super::screen_rules::{ScreenAction, ScreenMode, ScreeningResult, ScreeningRule};
use super::state::Gate;

/// The score of a text that is no address.
const NO_ADDRESS_SCORE: Score = Score::new(100).unwrap();
/// The score of an address with dots where RFC 5321 allows none. Some providers have given out such
/// addresses, so this score is lower than the one at which riskgate blocks by default.
const MISPLACED_DOTS_SCORE: Score = Score::new(75).unwrap();

/// One verdict on a value. A value may have several.
#[derive(Clone)]
pub(super) struct JudgedValue {
    pub facts: AddressFacts,
    pub suggestion: Option<SmolStr>,
}

/// The strictest decision on the values of a form.
pub(super) struct FormDecision {
    /// The value that led to the decision.
    pub value: JudgedValue,
    pub action: Action,
    pub rule: Option<ScreeningRule>,
    /// The sign-ups of all addresses in the form.
    pub sign_ups: Vec<SignUp>,
}

impl Gate {
    /// Decides about the values of a form, by the rules of `[[rule]]` and the scores of the route.
    /// Returns the strictest decision; `None` without a value. See [`decide_strictest`].
    pub(super) fn decide_form(
        &self,
        judged: Vec<JudgedValue>,
        route: &str,
        scores: &ScorePolicy,
        ctx: &RequestContext,
    ) -> Option<FormDecision> {
        let mut sign_ups = Vec::new();
        for sign_up in judged.iter().filter_map(|value| value.facts.sign_up) {
            if !sign_ups.contains(&sign_up) {
                sign_ups.push(sign_up);
            }
        }
        let rules = ctx.rules.decisions.rules();
        let (value, decision) =
            decide_strictest(judged, |it| it.facts.for_rules(), route, rules, scores)?;
        let rule = decision
            .rule
            .map(|rule| ScreeningRule { name: rule.name.clone(), message: rule.message.clone() });
        Some(FormDecision { value, action: decision.action, rule, sign_ups })
    }

    /// Judges the value of a field. Returns these verdicts:
    /// - for an address: those of [`Gate::judge_typed_address`];
    /// - for several addresses with commas between them: those of [`Gate::judge_address`] for each;
    /// - for any other text, or too many addresses: a verdict on each domain behind `@`, and one on
    ///   the text.
    pub(super) fn judge_value(
        &self,
        value: &str,
        table: &Table,
        ctx: &RequestContext,
    ) -> Vec<JudgedValue> {
        let visible = without_invisible_characters(value);
        let value = visible.trim();
        let meant_by_slip = || {
            let behind_at = value.split_once('@')?.1;
            table.suggest_provider_for_slip(behind_at, ctx.unix_now()).map(SmolStr::new)
        };
        let client = ctx.client_address;
        let wants_counts = ctx.rules.decisions.asks_for_counts();
        let judged = self.judge_typed_address(value, client, wants_counts, table, ctx);
        if let Ok((_, mut verdicts)) = judged {
            if value.ends_with('.') {
                verdicts.iter_mut().for_each(|it| {
                    it.suggestion = meant_by_slip().or_else(|| it.suggestion.take());
                });
            }
            return verdicts;
        }
        let members: Option<Vec<EmailAddress>> =
            value.split(',').map(|member| EmailAddress::parse_typed(member).ok()).collect();
        if let Some(addresses) = members
            && addresses.len() <= MAX_ADDRESSES_IN_VALUE
        {
            let judge = |address| self.judge_address(address, client, wants_counts, table, ctx);
            return addresses.iter().flat_map(judge).collect();
        }
        // A server may take a part of the text for an address, so riskgate judges each domain.
        let judge = |domain: &Domain| {
            let lookup = look_up_and_count(&self.state, table, domain, ctx);
            JudgedValue::of_domain(domain, &lookup)
        };
        let mut verdicts: Vec<JudgedValue> = domains_in(value).iter().map(judge).collect();
        let score = if has_misplaced_dots(value) { MISPLACED_DOTS_SCORE } else { NO_ADDRESS_SCORE };
        let domain = verdicts.last().and_then(|verdict| verdict.facts.domain.clone());
        let suggestion = verdicts.last().and_then(|verdict| verdict.suggestion.clone());
        let suggestion = suggestion.or_else(meant_by_slip);
        let facts = AddressFacts::of_no_address(domain, score);
        verdicts.push(JudgedValue { facts, suggestion });
        verdicts
    }

    /// Judges the address that a user of this client has typed, and the domain that software with
    /// the IDNA of 2003 reads in the address. Reads the counts of other sign-ups if `wants_counts`.
    ///
    /// # Errors
    /// If the text is no address, or an address in which some software reads another one.
    pub(super) fn judge_typed_address(
        &self,
        text: &str,
        client: Option<IpAddr>,
        wants_counts: bool,
        table: &Table,
        ctx: &RequestContext,
    ) -> Result<(EmailAddress, Vec<JudgedValue>), EmailError> {
        let address = EmailAddress::parse_typed(text)?;
        let facts = facts_by_idna_2003(text, table, ctx.rules.unknown_score, ctx.unix_now());
        let by_idna_2003 = facts.map(|facts| JudgedValue { facts, suggestion: None });
        let judged = self.judge_address(&address, client, wants_counts, table, ctx);
        Ok((address, by_idna_2003.into_iter().chain(judged).collect()))
    }

    /// Judges the address of a sign-up by this client. Returns the verdict on the domain, and a
    /// second verdict if the local part is a role.
    fn judge_address(
        &self,
        address: &EmailAddress,
        client: Option<IpAddr>,
        wants_counts: bool,
        table: &Table,
        ctx: &RequestContext,
    ) -> Vec<JudgedValue> {
        let lookup = look_up_and_count(&self.state, table, address.domain(), ctx);
        let sign_up = self.identify_sign_up(address, &lookup, client, ctx);
        let counts = match &sign_up {
            Some(sign_up) if wants_counts => self.state.sign_ups.count_others(sign_up),
            _ => CountFacts::default(),
        };
        let suggestion = lookup.suggest_provider(address.domain()).map(SmolStr::new);
        let judged = facts_of_address(address, &lookup, table.role_score()).into_iter();
        judged
            .map(|facts| JudgedValue {
                facts: AddressFacts { sign_up, counts, ..facts },
                suggestion: suggestion.clone(),
            })
            .collect()
    }
}

impl JudgedValue {
    /// The verdict on a domain, without an address.
    fn of_domain(domain: &Domain, lookup: &TableAnswer<'_>) -> JudgedValue {
        JudgedValue {
            facts: AddressFacts::of_domain(domain, lookup),
            suggestion: lookup.suggest_provider(domain).map(SmolStr::new),
        }
    }
}

impl FormDecision {
    /// Returns the result of the screening, on a route in this mode.
    pub fn into_result(self, mode: ScreenMode) -> ScreeningResult {
        let facts = self.value.facts;
        ScreeningResult {
            action: match (self.action, mode) {
                (Action::Block, ScreenMode::Block) => ScreenAction::Block,
                (Action::Block, ScreenMode::Shadow | ScreenMode::Annotate) => {
                    ScreenAction::WouldBlock
                }
                (Action::Review, _) => ScreenAction::Review,
                (Action::Pass, _) => ScreenAction::Pass,
            },
            reason: facts.reason.as_str(),
            score: Some(facts.score),
            domain: facts.domain,
            suggestion: self.value.suggestion,
            rule: self.rule,
            inbox: single_inbox(&self.sign_ups),
            sign_ups: self.sign_ups,
            is_upstream_told: mode != ScreenMode::Shadow,
        }
    }
}

/// The inbox of a form. `None` if the form has no sign-up, or if its addresses belong to several
/// inboxes: the server may use any of the addresses.
fn single_inbox(sign_ups: &[SignUp]) -> Option<Pseudonym> {
    let inbox = sign_ups.first()?.inbox;
    sign_ups.iter().all(|it| it.inbox == inbox).then_some(inbox)
}

/// Returns the domains behind `@` in a text that is no address, at most
/// [`MAX_ADDRESSES_IN_VALUE`].
fn domains_in(text: &str) -> Vec<Domain> {
    let is_in_domain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-');
    let behind_at = text.split('@').skip(1).take(MAX_ADDRESSES_IN_VALUE);
    let ends = behind_at.map(|rest| rest.split(|c| !is_in_domain(c)).next().unwrap_or_default());
    ends.filter_map(|domain| Domain::parse(domain).ok()).collect()
}

/// Returns true if the text would be an address without the dots of its local part.
fn has_misplaced_dots(text: &str) -> bool {
    let Some((local_part, domain)) = text.split_once('@') else { return false };
    let without_dots: String = local_part.split('.').filter(|part| !part.is_empty()).collect();
    EmailAddress::parse_typed(&format!("{without_dots}@{domain}")).is_ok()
}
