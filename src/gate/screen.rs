//! Screening: judges the e-mail addresses in a posted form before the form is forwarded.
//!
//! It never changes a body. A form that can't be read, and a form that riskgate fails to judge, are
//! forwarded.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use smol_str::SmolStr;

use crate::message::request_head::{takes_body, value_if_single};
use crate::message::response::Reply;
use crate::model::domain::Domain;
use crate::model::email::{EmailAddress, without_invisible_characters};
use crate::model::refusal::Refusal;
use crate::model::verdict::{Reason, Score};
use crate::screening::{
    BodyHeaders, FieldValues, MAX_ADDRESSES_IN_VALUE, ReceivedBody, UnreadCause, read_field_values,
};
use crate::table::Table;

use super::answers::look_up_and_count;
use super::beginning::Head;
use super::request_context::RequestContext;
use super::route::query_of;
use super::screen_rules::{ScreenAction, ScreenMode, ScreenPolicy, ScreeningResult};
use super::state::Gate;

/// The score of what is no address at all.
const NO_ADDRESS_SCORE: Score = Score::new(100).unwrap();
/// The score of an address with dots where RFC 5321 allows none. Some providers have given out such
/// addresses, so it is below the score at which riskgate blocks by default.
const OLD_ADDRESS_SCORE: Score = Score::new(75).unwrap();

/// The verdict on one value.
struct ValueVerdict {
    reason: Reason,
    score: Score,
    domain: Option<Domain>,
    suggestion: Option<SmolStr>,
}

impl Gate {
    /// Screens a request by its body, if its route or the proxy that asks wants that. Returns the
    /// response if the request is answered: it is refused, or a proxy asked whether to admit it.
    pub(crate) fn screen<'r>(
        &self,
        head: impl Head<'r>,
        body: ReceivedBody<'_>,
        ctx: &mut RequestContext,
    ) -> Option<Reply> {
        if let Some(rules) = ctx.authz.clone() {
            return Some(self.screen_for_proxy(head, body, &rules, ctx));
        }
        let rules = ctx.screen_rules.clone().filter(|_| takes_body(head.method().as_bytes()))?;
        let query = query_of(head.target());
        let found = read_field_values(body_headers(head), query, body, &rules.fields);
        let screened = self.judge_values(found, &rules.policy, ctx);
        let refusal = self.finish_screening(screened, &rules.policy, ctx)?;
        let is_refused_for_address = matches!(refusal, Refusal::EmailRefused { .. });
        let refused = self.finish_with_refusal(&refusal, ctx);
        Some(match &rules.redirect {
            Some(location) if is_refused_for_address && ctx.accepted.is_html_first() => {
                ctx.response_status = 303;
                let screened = ctx.screened.as_deref();
                let suggestion = screened.and_then(|screened| screened.suggestion.as_deref());
                Reply::see_other(&add_suggestion(location, suggestion)).varying_by_accept()
            }
            _ => refused,
        })
    }

    /// Counts a form, and keeps its result for the log and for the server. Returns the refusal if
    /// the form is to be refused.
    pub(super) fn finish_screening(
        &self,
        screened: ScreeningResult,
        policy: &ScreenPolicy,
        ctx: &mut RequestContext,
    ) -> Option<Refusal> {
        let (action, reason) = (screened.action.as_str(), screened.reason);
        let domain = screened.domain.as_ref().map(Domain::as_str);
        let metric = || self.state.metrics.requests.screened_forms(&policy.route, action, reason);
        self.state.screening_counts.count_form(&policy.route, action, reason, domain, metric);
        let refusal = match (screened.action, screened.score) {
            (ScreenAction::Block, Some(_)) => Some(Refusal::EmailRefused {
                message: policy.message.clone(),
                reason,
                suggestion: screened.suggestion.clone(),
            }),
            (ScreenAction::Block, None) => Some(Refusal::FormUnreadable { why: reason }),
            _ => None,
        };
        ctx.screened = Some(Box::new(screened));
        refusal
    }

    /// Judges the values that were read.
    pub(super) fn judge_values(
        &self,
        found: Result<FieldValues, UnreadCause>,
        policy: &ScreenPolicy,
        ctx: &RequestContext,
    ) -> ScreeningResult {
        let found = match found {
            Ok(found) => found,
            Err(cause) => return ScreeningResult::unread(cause, policy),
        };
        let table = self.state.table.peek();
        let is_to_be_blocked = |verdict: &ValueVerdict| {
            verdict.score >= policy.block_score && policy.block_reasons.contains(&verdict.reason)
        };
        let judge = |value: &String| self.judge_value(value, &table, ctx);
        let verdicts = found.values.iter().flat_map(judge);
        // A verdict that is not to be blocked must not hide one that is.
        let worst = verdicts.max_by_key(|verdict| (is_to_be_blocked(verdict), verdict.score));
        let Some(worst) = worst else {
            return ScreeningResult::unread(UnreadCause::NoField, policy);
        };
        // PHP's FILTER_SANITIZE_EMAIL removes what is no ASCII character.
        let hides_blocked_address = || {
            let domains = found.values.iter().filter_map(|value| Some(value.rsplit_once('@')?.1));
            let ascii = domains.filter(|domain| !domain.is_ascii());
            let ascii = ascii.map(|domain| domain.replace(|c: char| !c.is_ascii(), ""));
            let domains = ascii.filter_map(|domain| Domain::parse(&domain).ok());
            domains
                .map(|domain| look_up_alone(&table, &domain, ctx))
                .any(|it| is_to_be_blocked(&it))
        };
        let is_blocked = is_to_be_blocked(&worst);
        let is_hiding = !is_blocked && found.unread.is_none() && hides_blocked_address();
        let unread = found.unread.or(is_hiding.then_some(UnreadCause::Broken));
        let action = match (is_blocked, policy.mode, unread) {
            (true, ScreenMode::Block, _) => ScreenAction::Block,
            (true, ..) => ScreenAction::WouldBlock,
            // Another server might read the value that could not be read.
            (false, _, Some(cause)) => return ScreeningResult::unread(cause, policy),
            (false, _, None) => ScreenAction::Pass,
        };
        ScreeningResult {
            action,
            reason: worst.reason.as_str(),
            score: Some(worst.score),
            domain: worst.domain,
            suggestion: worst.suggestion,
            is_upstream_told: policy.mode != ScreenMode::Shadow,
        }
    }

    /// Judges the value of a field, which should be an address, or several with commas between
    /// them. An address has the verdict on its domain, and a second one if its local part counts.
    fn judge_value(&self, value: &str, table: &Table, ctx: &RequestContext) -> Vec<ValueVerdict> {
        let visible = without_invisible_characters(value);
        let value = visible.trim();
        let meant_by_slip = || {
            let behind_at = value.split_once('@')?.1;
            table.suggest_provider_for_slip(behind_at, ctx.unix_now()).map(SmolStr::new)
        };
        let judge = |domain: &Domain, local_part_verdict: Option<(Reason, Score)>| {
            let lookup = look_up_and_count(&self.state, table, domain, ctx);
            let suggestion = lookup.suggest_provider(domain).map(SmolStr::new);
            let of_domain = (lookup.verdict.reason, lookup.verdict.score);
            let verdicts = [Some(of_domain), local_part_verdict].into_iter().flatten();
            let verdict = |(reason, score)| ValueVerdict {
                reason,
                score,
                domain: Some(domain.clone()),
                suggestion: suggestion.clone(),
            };
            verdicts.map(verdict).collect::<Vec<_>>()
        };
        let judge_address = |address: &EmailAddress| {
            let role = (Reason::RoleAccount, table.role_score());
            judge(address.domain(), address.is_role().then_some(role))
        };
        let parse =
            |text: &str| EmailAddress::parse(text).ok().filter(|it| !it.hides_another_address());
        if let Some(address) = parse(value) {
            let mut verdicts = judge_address(&address);
            if let Some(other) = by_idna_2003(value).and_then(|it| parse(&it)) {
                verdicts.push(look_up_alone(table, other.domain(), ctx));
            }
            if value.ends_with('.') {
                verdicts.iter_mut().for_each(|it| {
                    it.suggestion = meant_by_slip().or_else(|| it.suggestion.take());
                });
            }
            return verdicts;
        }
        let members: Option<Vec<EmailAddress>> =
            value.split(',').map(|member| parse(member.trim())).collect();
        if let Some(addresses) = members
            && addresses.len() <= MAX_ADDRESSES_IN_VALUE
        {
            return addresses.iter().flat_map(judge_address).collect();
        }
        // A server may take a part of the text for an address, so each domain in it is judged.
        let mut verdicts: Vec<ValueVerdict> =
            domains_in(value).iter().flat_map(|domain| judge(domain, None)).collect();
        let score = if is_old_address(value) { OLD_ADDRESS_SCORE } else { NO_ADDRESS_SCORE };
        let domain = verdicts.last().and_then(|verdict| verdict.domain.clone());
        let suggestion = verdicts.last().and_then(|verdict| verdict.suggestion.clone());
        let suggestion = suggestion.or_else(meant_by_slip);
        verdicts.push(ValueVerdict { reason: Reason::Undeliverable, score, domain, suggestion });
        verdicts
    }
}

/// Looks up a domain that only some software reads in a value. It is not counted, and the DNS is
/// not asked about it.
fn look_up_alone(table: &Table, domain: &Domain, ctx: &RequestContext) -> ValueVerdict {
    let verdict = table.lookup(domain, ctx.unix_now()).verdict;
    let (reason, score, domain) = (verdict.reason, verdict.score, Some(domain.clone()));
    ValueVerdict { reason, score, domain, suggestion: None }
}

/// Returns the address as software with the IDNA of 2003 reads it, if that may be another one:
/// Python's codec and Java's `IDN` write `ss` for `ß` (RFC 3490, UTS 46 section 4).
fn by_idna_2003(value: &str) -> Option<String> {
    const DEVIATIONS: [char; 5] = ['ß', 'ẞ', 'ς', '\u{200c}', '\u{200d}'];
    let (local_part, domain) = value.rsplit_once('@')?;
    let mapped = |domain: &str| {
        let domain = domain.replace(['ß', 'ẞ'], "ss").replace('ς', "σ");
        domain.replace(['\u{200c}', '\u{200d}'], "")
    };
    domain.contains(DEVIATIONS).then(|| format!("{local_part}@{}", mapped(domain)))
}

/// Returns the domains behind each `@` of a text that is no address.
fn domains_in(text: &str) -> Vec<Domain> {
    let is_in_domain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-');
    let behind_at = text.split('@').skip(1).take(MAX_ADDRESSES_IN_VALUE);
    let ends = behind_at.map(|rest| rest.split(|c| !is_in_domain(c)).next().unwrap_or_default());
    ends.filter_map(|domain| Domain::parse(domain).ok()).collect()
}

/// Returns true for an address whose local part has dots at its ends or side by side.
fn is_old_address(text: &str) -> bool {
    let Some((local_part, domain)) = text.split_once('@') else { return false };
    let without_dots: String = local_part.split('.').filter(|part| !part.is_empty()).collect();
    EmailAddress::parse(&format!("{without_dots}@{domain}"))
        .is_ok_and(|it| !it.hides_another_address())
}

/// Returns the fields that tell how the body is to be read.
pub(super) fn body_headers<'r>(head: impl Head<'r>) -> BodyHeaders<'r> {
    let mut encodings = head.values(CONTENT_ENCODING);
    BodyHeaders {
        content_type: value_if_single(head.values(CONTENT_TYPE)),
        is_encoded: encodings
            .any(|value| !value.is_empty() && !value.eq_ignore_ascii_case(b"identity")),
    }
}

/// Returns the page for a browser whose form is refused. Its query names the provider that the user
/// probably meant.
fn add_suggestion(location: &str, suggestion: Option<&str>) -> String {
    let Some(provider) = suggestion else { return location.to_owned() };
    let (target, fragment) = location.split_at(location.find('#').unwrap_or(location.len()));
    let separator = if target.contains('?') { '&' } else { '?' };
    format!("{target}{separator}did_you_mean={provider}{fragment}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suggestion_is_added_to_the_query_of_the_redirect() {
        for (location, expected) in [
            ("/signup", "/signup?did_you_mean=gmail.com"),
            ("/signup?email=refused", "/signup?email=refused&did_you_mean=gmail.com"),
            ("/signup?a#b?", "/signup?a&did_you_mean=gmail.com#b?"),
            ("https://a.test#b", "https://a.test?did_you_mean=gmail.com#b"),
        ] {
            assert_eq!(add_suggestion(location, Some("gmail.com")), expected);
            assert_eq!(add_suggestion(location, None), location);
        }
    }
}
