//! Screening: judges the e-mail addresses in a posted form before the form is forwarded.
//!
//! It never changes a body. A form that can't be read, and a form that riskgate fails to judge, are
//! forwarded.

use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE};
use pingora::Result;
use pingora::http::RequestHeader;
use pingora_proxy::Session;
use smol_str::SmolStr;

use crate::message::request_head::{list_members, takes_body};
use crate::message::response::Reply;
use crate::model::domain::Domain;
use crate::model::email::EmailAddress;
use crate::model::refusal::Refusal;
use crate::model::verdict::{Reason, Score};
use crate::screening::{BodyHeaders, UnreadCause, read_field_values};
use crate::table::Table;

use super::answers::look_up_and_count;
use super::judge::Gate;
use super::request_context::RequestContext;
use super::screen_rules::{ScreenAction, ScreenMode, ScreenRules, ScreeningResult};

/// The score of what is no address at all.
const NO_ADDRESS_SCORE: Score = Score::new(100).unwrap();
/// The least score of an address with a valid domain and a local part that RFC 5321 does not allow.
/// Some providers have given out such local parts, so it is below the score at which riskgate blocks
/// by default.
const INVALID_LOCAL_PART_SCORE: Score = Score::new(75).unwrap();

/// The verdict on one value.
struct ValueVerdict {
    reason: Reason,
    score: Score,
    domain: Option<Domain>,
    suggestion: Option<SmolStr>,
}

impl Gate {
    /// Returns true if the body of this request is to be screened, once it has been read.
    pub(crate) fn is_body_screened(&self, session: &Session, ctx: &RequestContext) -> bool {
        let method = session.req_header().method.as_str();
        ctx.screen_rules.is_some() && takes_body(method.as_bytes())
    }

    /// Screens a request by its body. `body` is `None` if the body was not read, because it is too
    /// long or its length is unknown. Returns true if the request is refused, and answered.
    ///
    /// # Errors
    /// Returns an error if the client's connection can't be written to.
    pub(crate) async fn screen(
        &self,
        session: &mut Session,
        body: Option<&[u8]>,
        ctx: &mut RequestContext,
    ) -> Result<bool> {
        let Some(rules) = ctx.screen_rules.clone() else { return Ok(false) };
        let screened = self.screen_body(session.req_header(), body, &rules, ctx);
        let action = screened.action.as_str();
        self.state.metrics.requests.count_screened(&rules.route, action, screened.reason);
        let domain = screened.domain.as_ref().map(Domain::as_str);
        self.state.screening_counts.count_form(&rules.route, action, screened.reason, domain);
        let is_blocked = screened.action == ScreenAction::Block;
        let (reason, suggestion) = (screened.reason, screened.suggestion.clone());
        ctx.screened = Some(Box::new(screened));
        if !is_blocked {
            return Ok(false);
        }
        let message = rules.message.clone();
        let refusal = Refusal::EmailRefused { message, reason, suggestion };
        let refused = self.finish_with_refusal(&refusal, ctx);
        let reply = match &rules.redirect {
            Some(location) if prefers_html(session.req_header()) => {
                ctx.response_status = 303;
                Reply::see_other(location)
            }
            _ => refused,
        };
        reply.write_to_session(session, &ctx.common_headers).await?;
        Ok(true)
    }

    fn screen_body(
        &self,
        header: &RequestHeader,
        body: Option<&[u8]>,
        rules: &ScreenRules,
        ctx: &RequestContext,
    ) -> ScreeningResult {
        let found = body
            .ok_or(UnreadCause::TooLong)
            .and_then(|body| read_field_values(body_headers(header), body, &rules.fields));
        let found = match found {
            Ok(found) => found,
            Err(cause) => return ScreeningResult::unscreened(cause, rules.mode),
        };
        let table = self.state.table.peek();
        let unknown_score = self.state.reloadable_rules.peek().unknown_score;
        let is_to_be_blocked = |verdict: &ValueVerdict| {
            verdict.score >= rules.block_score && rules.block_reasons.contains(&verdict.reason)
        };
        let judge = |value: &String| self.judge_value(value, &table, unknown_score, ctx);
        let verdicts = found.values.iter().flat_map(judge);
        // A verdict that is not to be blocked must not hide one that is.
        let worst = verdicts.max_by_key(|verdict| (is_to_be_blocked(verdict), verdict.score));
        let Some(worst) = worst else {
            return ScreeningResult::unscreened(UnreadCause::NoField, rules.mode);
        };
        let action = match (is_to_be_blocked(&worst), rules.mode, found.unread) {
            (true, ScreenMode::Block, _) => ScreenAction::Block,
            (true, ..) => ScreenAction::WouldBlock,
            // Another server might read the value that could not be read.
            (false, _, Some(cause)) => return ScreeningResult::unscreened(cause, rules.mode),
            (false, _, None) => ScreenAction::Pass,
        };
        ScreeningResult {
            action,
            reason: worst.reason.as_str(),
            score: Some(worst.score),
            domain: worst.domain,
            suggestion: worst.suggestion,
            is_upstream_told: rules.mode != ScreenMode::Shadow,
        }
    }

    /// Judges the value of a field, which should be an address, or several with commas between them.
    /// An address has the verdict on its domain, and a second one if its local part counts.
    fn judge_value(
        &self,
        value: &str,
        table: &Table,
        unknown_score: Option<Score>,
        ctx: &RequestContext,
    ) -> Vec<ValueVerdict> {
        let judge = |domain: &Domain, local_part_verdict: Option<(Reason, Score)>| {
            let lookup = look_up_and_count(&self.state, table, domain, unknown_score, ctx);
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
        if let Ok(address) = EmailAddress::parse(value) {
            return judge_address(&address);
        }
        let members: Result<Vec<EmailAddress>, _> =
            value.split(',').map(|member| EmailAddress::parse(member.trim())).collect();
        if let Ok(addresses) = members {
            return addresses.iter().flat_map(judge_address).collect();
        }
        match value.rsplit_once('@').map(|(_, domain)| Domain::parse(domain)) {
            Some(Ok(domain)) => {
                judge(&domain, Some((Reason::Undeliverable, INVALID_LOCAL_PART_SCORE)))
            }
            _ => vec![ValueVerdict {
                reason: Reason::Undeliverable,
                score: NO_ADDRESS_SCORE,
                domain: None,
                suggestion: None,
            }],
        }
    }
}

fn body_headers(header: &RequestHeader) -> BodyHeaders<'_> {
    let mut types = header.headers.get_all(CONTENT_TYPE).iter();
    let content_type = types.next().filter(|_| types.next().is_none());
    let mut encodings = header.headers.get_all(CONTENT_ENCODING).iter();
    BodyHeaders {
        content_type: content_type.map(|value| value.as_bytes()),
        is_encoded: encodings.any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity")),
    }
}

/// Returns true for a form that a browser sends itself, without a script.
fn prefers_html(header: &RequestHeader) -> bool {
    let values = header.headers.get_all(ACCEPT).iter();
    let mut types = values.flat_map(|value| list_members(value.as_bytes()));
    const HTML: &[u8] = b"text/html";
    types
        .next()
        .and_then(|first| first.get(..HTML.len()))
        .is_some_and(|start| start.eq_ignore_ascii_case(HTML))
}
