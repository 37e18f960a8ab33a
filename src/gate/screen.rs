//! Screening: judges the e-mail addresses in a posted form before riskgate forwards the form.
//!
//! Screening never changes a body. riskgate forwards a form that it can't read, unless the policy
//! blocks such forms.

use arrayvec::ArrayVec;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use crate::decide::{Action, has_too_many_inboxes};
use crate::message::request_head::{takes_body, value_if_single};
use crate::message::response::Reply;
use crate::model::domain::Domain;
use crate::model::refusal::Refusal;
use crate::screening::{
    BodyHeaders, FieldPath, FieldValues, ReceivedBody, UnreadCause, read_field_values,
    read_query_values,
};

use super::beginning::Head;
use super::judged_values::JudgingContext;
use super::request_context::RequestContext;
use super::route::{path_parameters_of, query_of};
use super::screen_rules::{ScreenPolicy, ScreeningResult};
use super::state::Gate;

fn has_field_in_path(target: &[u8], fields: &[FieldPath]) -> bool {
    !read_query_values(path_parameters_of(target), fields).values.is_empty()
}

impl Gate {
    /// Screens a request with this body, if its route or `[authz]` has rules for that. Returns the
    /// response if riskgate answers the request: it refuses the form, or a proxy asks.
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
        let mut found = read_field_values(body_headers(head), query, body, &rules.fields);
        if has_field_in_path(head.target(), &rules.fields) {
            match &mut found {
                Ok(found) => found.mark_unread(UnreadCause::Broken),
                Err(cause) => *cause = UnreadCause::Broken,
            }
        }
        let screened = self.judge_values(found, &rules.policy, rules.counts_forms(), ctx);
        let refusal = self.record_and_find_refusal(screened, &rules.policy, ctx)?;
        let is_refused_for_address = matches!(refusal, Refusal::EmailRefused { .. });
        let refused = self.finish_with_refusal(&refusal, ctx);
        Some(match &rules.redirect {
            Some(location) if is_refused_for_address && ctx.accepted.is_html_first() => {
                ctx.response_status = 303;
                let screened = ctx.screened.as_deref();
                let suggestion = screened.and_then(|screened| screened.suggestion.as_deref());
                Reply::see_other(&add_suggestion(location, suggestion)).with_vary_by_accept()
            }
            _ => refused,
        })
    }

    /// Records the screening of a form. Returns the refusal if the form is to be refused.
    pub(super) fn record_and_find_refusal(
        &self,
        screened: ScreeningResult,
        policy: &ScreenPolicy,
        ctx: &mut RequestContext,
    ) -> Option<Refusal> {
        let refusal = screened.refusal(policy);
        self.record_screening(screened, &policy.route, ctx);
        refusal
    }

    /// Counts a form, and stores its result for the log and for the server.
    pub(super) fn record_screening(
        &self,
        screened: ScreeningResult,
        route: &str,
        ctx: &mut RequestContext,
    ) {
        let (action, reason) = (screened.action.as_str(), screened.reason);
        let domain = screened.domain.as_ref().map(Domain::as_str);
        let metrics = &self.state.metrics.requests;
        let metric = || metrics.screened_form_counter(route, action, reason);
        self.state.screening_counts.count_form(route, action, reason, domain, metric);
        if let Some(rule) = &screened.rule {
            metrics.count_rule_decision(&rule.name, route, action);
        }
        ctx.screened = Some(Box::new(screened));
    }

    /// Judges the values that riskgate has found in a form. `may_count` says whether a sign-up by
    /// this form may count. Returns the result of the screening.
    pub(super) fn judge_values(
        &self,
        found: Result<FieldValues, UnreadCause>,
        policy: &ScreenPolicy,
        may_count: bool,
        ctx: &RequestContext,
    ) -> ScreeningResult {
        let found = match found {
            Ok(found) => found,
            Err(cause) => return ScreeningResult::of_unread_form(cause, policy),
        };
        let table = self.state.table.peek();
        let judging = JudgingContext {
            table: &table,
            scores: &policy.scores,
            client: ctx.client_address,
            wants_counts: ctx.rules.decisions.asks_for_counts(),
            request: ctx,
        };
        let judged = found.values.iter().flat_map(|value| self.judge_value(value, judging));
        let (ascii_rests, judged): (Vec<_>, Vec<_>) = judged.partition(|it| it.is_ascii_rest);
        let Some(mut decision) = self.decide_form(judged, &policy.route, &policy.scores, ctx)
        else {
            return ScreeningResult::of_unread_form(UnreadCause::NoField, policy);
        };
        let is_blocked = decision.action == Action::Block;
        if may_count && has_too_many_inboxes(&decision.sign_ups) {
            decision.sign_ups.clear();
            if !is_blocked {
                let avoids_rule = ctx.rules.decisions.asks_for_counts_on(&policy.route);
                return ScreeningResult::of_form_with_many_inboxes(policy, avoids_rule);
            }
        }
        let is_hiding = !ascii_rests.is_empty();
        match found.unread.or(is_hiding.then_some(UnreadCause::Broken)) {
            // The server might read a value that riskgate could not read.
            Some(cause) if !is_blocked => ScreeningResult {
                sign_ups: decision.sign_ups,
                suggestion: ascii_rests.into_iter().rev().find_map(|it| it.suggestion),
                ..ScreeningResult::of_unread_form(cause, policy)
            },
            _ => decision.into_result(policy.mode),
        }
    }
}

/// Returns the header fields that say how the body is to be read.
pub(super) fn body_headers<'r>(head: impl Head<'r>) -> BodyHeaders<'r> {
    let (mut content_types, mut is_encoded) = (ArrayVec::<&[u8], 2>::new(), false);
    // One pass reads both fields: on the fast path of HTTP/1.1, each pass splits the header into
    // lines again.
    for (name, value) in head.iter() {
        if name.eq_ignore_ascii_case(CONTENT_TYPE.as_str().as_bytes()) {
            let _ = content_types.try_push(value);
        } else if name.eq_ignore_ascii_case(CONTENT_ENCODING.as_str().as_bytes()) {
            is_encoded |= !value.is_empty() && !value.eq_ignore_ascii_case(b"identity");
        }
    }
    BodyHeaders { content_type: value_if_single(content_types.into_iter()), is_encoded }
}

/// Returns the location to which riskgate sends a browser whose form it refuses. If riskgate
/// suggests a provider, the query names this provider.
fn add_suggestion(location: &str, suggestion: Option<&str>) -> String {
    let Some(provider) = suggestion else { return location.to_owned() };
    let (target, fragment) = location.split_at(location.find('#').unwrap_or(location.len()));
    let separator = if target.contains('?') { '&' } else { '?' };
    format!("{target}{separator}did_you_mean={provider}{fragment}")
}

#[cfg(test)]
mod tests;
