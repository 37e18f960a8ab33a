//! The verdicts on the values of a form's fields, and the strictest decision on these values.

use std::net::IpAddr;

use smol_str::SmolStr;

use crate::decide::{Action, CountFacts, ScorePolicy, decide_strictest};
use crate::model::domain::Domain;
use crate::model::email::EmailAddress;
use crate::model::sign_up::{Pseudonym, SignUp};
use crate::model::typed_address::{
    AT_SIGNS, OtherReadings, TypedAddress, without_invisible_characters,
};
use crate::model::verdict::Score;
use crate::screening::MAX_ADDRESSES_IN_VALUE;
use crate::table::{Table, TableAnswer};

use super::address_facts::{AddressFacts, OtherFacts, facts_of_address, look_up_sanitized};
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
    /// Whether only software that removes all characters beyond ASCII reads this domain.
    pub is_ascii_rest: bool,
}

/// What the verdicts on a value depend on, besides the value.
#[derive(Clone, Copy)]
pub(super) struct JudgingContext<'c> {
    pub table: &'c Table,
    pub scores: &'c ScorePolicy,
    /// The client that signs up.
    pub client: Option<IpAddr>,
    /// Whether to read the counts of other sign-ups.
    pub wants_counts: bool,
    pub request: &'c RequestContext,
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
    /// - for several addresses with commas between them: the same for each;
    /// - for any other text, or too many addresses: a verdict on the text, and verdicts on the
    ///   domains behind its first [`MAX_ADDRESSES_IN_VALUE`] `@`.
    pub(super) fn judge_value(&self, value: &str, ctx: JudgingContext<'_>) -> Vec<JudgedValue> {
        let visible = without_invisible_characters(value);
        let value = visible.trim();
        let (table, unix_now) = (ctx.table, ctx.request.unix_now);
        let meant_by_slip = || {
            let behind_at = value.split_once('@')?.1;
            table.suggest_provider_for_slip(behind_at, unix_now).map(SmolStr::new)
        };
        if let Ok(typed) = TypedAddress::parse(value) {
            let mut verdicts = self.judge_typed_address(&typed, ctx);
            if value.ends_with('.') {
                verdicts.iter_mut().for_each(|it| {
                    it.suggestion = meant_by_slip().or_else(|| it.suggestion.take());
                });
            }
            return verdicts;
        }
        let members = || value.split(',');
        let parse_members = || members().map(|it| TypedAddress::parse(it).ok()).collect();
        if members().count() <= MAX_ADDRESSES_IN_VALUE
            && let Some::<Vec<TypedAddress>>(addresses) = parse_members()
        {
            return addresses.iter().flat_map(|it| self.judge_typed_address(it, ctx)).collect();
        }
        // A server may take a part of the text for an address, so riskgate judges the domains. If
        // the text has more domains than riskgate judges, the form counts as not read completely.
        let (mut of_others, mut of_domains) = (Vec::new(), Vec::new());
        for text in value.split(AT_SIGNS).skip(1).take(MAX_ADDRESSES_IN_VALUE) {
            let domain = Domain::parse(start_of_domain(text, char::is_alphanumeric)).ok();
            let of_domain = domain.map(|domain| {
                let lookup = look_up_and_count(&self.state, table, &domain, ctx.request);
                JudgedValue::of_domain(&domain, &lookup)
            });
            let suggestion = of_domain.as_ref().and_then(|it| it.suggestion.clone());
            let readings = OtherReadings::of_domain(start_of_domain(text, |c| !c.is_ascii()));
            of_others.extend(ctx.judge_other_readings(&readings, suggestion));
            of_domains.extend(of_domain);
        }
        let last = of_domains.last();
        let score = if has_misplaced_dots(value) { MISPLACED_DOTS_SCORE } else { NO_ADDRESS_SCORE };
        let domain = last.and_then(|verdict| verdict.facts.domain.clone());
        let suggestion = last.and_then(|verdict| verdict.suggestion.clone());
        let suggestion = suggestion.or_else(meant_by_slip);
        let facts = AddressFacts::of_no_address(domain, score);
        let of_text = JudgedValue { facts, suggestion, is_ascii_rest: false };
        of_others.into_iter().chain(of_domains).chain([of_text]).collect()
    }

    /// Judges an address, and what other software reads in it.
    pub(super) fn judge_typed_address(
        &self,
        typed: &TypedAddress,
        ctx: JudgingContext<'_>,
    ) -> Vec<JudgedValue> {
        let address = &typed.address;
        let lookup = look_up_and_count(&self.state, ctx.table, address.domain(), ctx.request);
        let sign_up = self.identify_sign_up(address, &lookup, ctx.client, ctx.request);
        let of_address = self.judge_address(address, &lookup, sign_up, ctx);
        let suggestion = of_address.first().and_then(|it| it.suggestion.clone());
        let of_sanitized = self.judge_sanitized_address(typed, sign_up, ctx);
        let of_others = ctx.judge_other_readings(&typed.other_readings, suggestion);
        of_others.chain(of_sanitized).chain(of_address).collect()
    }

    /// Some software removes characters from an address. Judges the address that this software
    /// reads. This address has a sign-up of its own if its domain has a rule for inboxes, and its
    /// inbox is not that of `sign_up`, the sign-up of the address as riskgate reads it.
    fn judge_sanitized_address(
        &self,
        typed: &TypedAddress,
        sign_up: Option<SignUp>,
        ctx: JudgingContext<'_>,
    ) -> Vec<JudgedValue> {
        let rules = self.state.sign_ups.inbox_rules();
        let (unknown_score, unix_now) = (ctx.request.rules.unknown_score, ctx.request.unix_now);
        let found = look_up_sanitized(typed, rules, ctx.table, unknown_score, unix_now);
        let Some((sanitized, lookup)) = found else { return Vec::new() };
        let own_sign_up = rules.has_rule(sanitized.domain()).then(|| {
            let found = self.identify_sign_up(sanitized, &lookup, ctx.client, ctx.request)?;
            sign_up.is_none_or(|it| it.inbox != found.inbox).then_some(found)
        });
        self.judge_address(sanitized, &lookup, own_sign_up.flatten(), ctx)
    }

    /// Judges an address by the answer of the table for its domain. Returns the verdict on the
    /// domain, and a second verdict if the local part is a role.
    fn judge_address(
        &self,
        address: &EmailAddress,
        lookup: &TableAnswer<'_>,
        sign_up: Option<SignUp>,
        ctx: JudgingContext<'_>,
    ) -> Vec<JudgedValue> {
        let counts = match &sign_up {
            Some(sign_up) if ctx.wants_counts => self.state.sign_ups.count_others(sign_up),
            _ => CountFacts::default(),
        };
        let suggestion = lookup.suggest_provider(address.domain()).map(SmolStr::new);
        let judged = facts_of_address(address, lookup, ctx.table.role_score()).into_iter();
        judged
            .map(|facts| JudgedValue {
                facts: AddressFacts { sign_up, counts, ..facts },
                suggestion: suggestion.clone(),
                is_ascii_rest: false,
            })
            .collect()
    }
}

impl JudgingContext<'_> {
    /// Judges the domains that only some software reads. For the rest of a domain without its
    /// characters beyond ASCII, see [`OtherFacts::refused_as_ascii`]. `suggestion` is the provider
    /// that the user probably meant by the domain as riskgate reads it.
    fn judge_other_readings(
        &self,
        readings: &OtherReadings,
        suggestion: Option<SmolStr>,
    ) -> impl Iterator<Item = JudgedValue> + use<> {
        let (unknown_score, unix_now) = (self.request.rules.unknown_score, self.request.unix_now);
        let mut others = OtherFacts::look_up(readings, self.table, unknown_score, unix_now);
        let by_idna_2003 = others.by_idna_2003.take().map(|facts| (facts, false));
        let as_ascii = others.refused_as_ascii(self.scores).map(|facts| (facts, true));
        let judged = as_ascii.into_iter().chain(by_idna_2003);
        judged.map(move |(facts, is_ascii_rest)| JudgedValue {
            facts,
            suggestion: suggestion.clone(),
            is_ascii_rest,
        })
    }
}

impl JudgedValue {
    /// The verdict on a domain, without an address.
    fn of_domain(domain: &Domain, lookup: &TableAnswer<'_>) -> JudgedValue {
        JudgedValue {
            facts: AddressFacts::of_domain(domain, lookup),
            suggestion: lookup.suggest_provider(domain).map(SmolStr::new),
            is_ascii_rest: false,
        }
    }
}

impl FormDecision {
    /// Returns the result of the screening, on a route in this mode.
    pub fn into_result(self, mode: ScreenMode) -> ScreeningResult {
        let inbox = self.single_inbox();
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
            inbox,
            sign_ups: self.sign_ups,
            is_upstream_told: mode != ScreenMode::Shadow,
        }
    }

    /// The inbox of a form. `None` if the form has no sign-up, or if its addresses belong to
    /// several inboxes: the server may use any of the addresses.
    pub fn single_inbox(&self) -> Option<Pseudonym> {
        let inbox = self.sign_ups.first()?.inbox;
        self.sign_ups.iter().all(|it| it.inbox == inbox).then_some(inbox)
    }
}

/// Returns the start of a text that has only ASCII letters, digits, dots, hyphens and characters
/// for which `may_contain` is true.
fn start_of_domain(text: &str, may_contain: impl Fn(char) -> bool) -> &str {
    let is_in_domain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-') || may_contain(c);
    text.split(|c| !is_in_domain(c)).next().unwrap_or_default()
}

/// Returns true if the text would be an address without the dots of its local part.
fn has_misplaced_dots(text: &str) -> bool {
    let Some((local_part, domain)) = text.split_once('@') else { return false };
    let without_dots: String = local_part.split('.').filter(|part| !part.is_empty()).collect();
    TypedAddress::parse(&format!("{without_dots}@{domain}")).is_ok()
}
