//! Answers proxies that ask whether to admit a request of their client: `[authz]` in the config.
//!
//! nginx, Envoy, Traefik, Caddy and HAProxy can ask. All of them understand 200, 401 and 403, so
//! the gates answer nothing else. A request that riskgate refuses before the gates gets another
//! status, such as 400 or 431. If riskgate fails, or the month is spent, riskgate answers 200 with
//! `X-Fail-Open`: the proxy must let the user through.

use http::HeaderName;
use pingora::Result;
use pingora::http::RequestHeader;
use pingora_proxy::Session;
use smol_str::SmolStr;
use std::sync::Arc;

use crate::message::request_head::takes_body;
use crate::message::response::{FieldName, Reply};
use crate::message::riskgate_fields::{write_identity_fields, write_screening_fields};
use crate::model::domain::percent_decode;
use crate::model::refusal::Refusal;
use crate::model::route_label::RouteLabel;
use crate::model::typed_address::has_at_sign;
use crate::screening::{
    FieldValues, ReceivedBody, UnreadCause, read_body_values, read_query_values,
};

use super::admission::PresentedKey;
use super::authz_rules::{AUTHZ_KEY_FIELD, AuthzRules, AuthzScreening};
use super::beginning::{Head, HeaderFields, RequestParts};
use super::judge::{GatesToPass, OriginsOwner};
use super::request_context::RequestContext;
use super::route::query_of;
use super::screen::body_headers;
use super::screen_rules::ScreeningResult;
use super::state::Gate;

/// The fields with the client's method. Traefik and Caddy set `X-Forwarded-Method` unasked.
const ORIGINAL_METHOD_FIELDS: [HeaderName; 2] =
    [HeaderName::from_static("x-original-method"), HeaderName::from_static("x-forwarded-method")];
/// The fields with the client's target. Traefik and Caddy set `X-Forwarded-Uri` unasked.
const ORIGINAL_TARGET_FIELDS: [HeaderName; 2] =
    [HeaderName::from_static("x-original-uri"), HeaderName::from_static("x-forwarded-uri")];

/// The field with which Envoy says that it sends only the start of the client's body.
const PARTIAL_BODY_FIELD: HeaderName = HeaderName::from_static("x-envoy-auth-partial-body");

impl Gate {
    /// Answers a proxy that asks. Returns false, without an answer, if the gates let the request
    /// pass and the rules screen fields of the body. The caller then reads the body and calls
    /// [`Gate::screen`].
    pub(super) async fn answer_proxy_unless_body_needed(
        &self,
        session: &mut Session,
        rules: Arc<AuthzRules>,
        ctx: &mut RequestContext,
    ) -> Result<bool> {
        ctx.route = RouteLabel::Authz;
        ctx.authz = Some(Arc::clone(&rules));
        let header = session.req_header();
        let request = self.read_parts(header);
        let reply = if is_options_request(header) {
            // A preflight carries no key and no address (Fetch standard section 4.8).
            ctx.set_outcome_if_unset(200, "ok");
            Reply::of_admission(false)
        } else {
            match self.run_authz_gates(header, &request, &rules, ctx).await {
                Err(refusal) => self.finish_with_refusal(&refusal, ctx),
                Ok(()) if rules.is_body_needed() => return Ok(false),
                Ok(()) => self.screen_for_proxy(header, ReceivedBody::UNREAD, &rules, ctx),
            }
        };
        ctx.send_reply(&reply, session).await?;
        Ok(true)
    }

    /// Runs the gates that the rules name, in this order: key, origin, `max_per_client`, quota.
    async fn run_authz_gates(
        &self,
        header: &RequestHeader,
        request: &RequestParts<'_>,
        rules: &AuthzRules,
        ctx: &mut RequestContext,
    ) -> Result<(), Refusal> {
        let presented = match header.headers.contains_key(AUTHZ_KEY_FIELD) {
            true => PresentedKey::read_bare(header.values(AUTHZ_KEY_FIELD)),
            false => request.key,
        };
        let gates = GatesToPass {
            key: rules.needs_key.then_some(presented),
            origins: match rules.needs_key && rules.checks_origin {
                true => OriginsOwner::Keys,
                false => OriginsOwner::Server,
            },
            upstream_route: None,
        };
        self.pass_gates_before_quota(Ok(gates), request, ctx)?;
        self.charge(u64::from(rules.is_counted), ctx).await
    }

    /// Screens the addresses of a request that passed the gates, and answers the proxy.
    pub(super) fn screen_for_proxy<'r>(
        &self,
        head: impl Head<'r>,
        body: ReceivedBody<'_>,
        rules: &AuthzRules,
        ctx: &mut RequestContext,
    ) -> Reply {
        if let Some(screening) = &rules.screening {
            let found = read_addresses(head, body, screening);
            // A request without an address counts as a form only if it may have posted one: a
            // request for the page with the form has no address.
            let is_screened = found != Err(UnreadCause::NoField) || may_be_post(head);
            if is_screened {
                // riskgate does not see what the server answers, so each admitted sign-up counts,
                // unless the client has only asked for a page.
                let may_count = may_be_post(head) || !has_original_method(head);
                let screened = self.judge_values(found, &screening.policy, may_count, ctx);
                let sign_ups = screened.sign_ups.clone();
                if let Some(refusal) =
                    self.record_and_find_refusal(screened, &screening.policy, ctx)
                {
                    return self.finish_with_refusal(&refusal, ctx);
                }
                if may_count {
                    self.state.sign_ups.record_form(&sign_ups);
                }
            }
        }
        ctx.set_outcome_if_unset(200, "ok");
        Reply::of_admission(false).into_proxy_answer(200, fields_for_proxy(ctx, true))
    }

    /// Returns the answer to a proxy for a refusal.
    pub(super) fn answer_proxy_with_refusal(
        &self,
        refusal: &Refusal,
        ctx: &mut RequestContext,
    ) -> Reply {
        if let Some(status) = status_for_proxy(refusal) {
            return Reply::of_refusal(refusal)
                .into_proxy_answer(status, fields_for_proxy(ctx, false));
        }
        if let Some(screening) = ctx.authz.clone().and_then(|rules| rules.screening.clone())
            && ctx.screened.is_none()
        {
            let (code, policy) = (refusal.code(), &screening.policy);
            let unscreened = ScreeningResult::of_unscreened_form(code, policy.mode);
            self.record_screening(unscreened, &policy.route, ctx);
        }
        Reply::of_admission(true).into_proxy_answer(200, fields_for_proxy(ctx, true))
    }
}

impl AuthzRules {
    fn is_body_needed(&self) -> bool {
        self.screening.as_ref().is_some_and(|screening| !screening.body_fields.is_empty())
    }
}

/// Returns the status for a proxy; `None` if the proxy must let the user through.
fn status_for_proxy(refusal: &Refusal) -> Option<u16> {
    match refusal {
        Refusal::Unauthorized => Some(401),
        Refusal::Forbidden { .. }
        | Refusal::EmailRefused { .. }
        | Refusal::FormUnreadable { .. }
        | Refusal::TooManyRequests { .. } => Some(403),
        // These refusals say nothing against the client, or they don't occur here.
        Refusal::QuotaExceeded { .. }
        | Refusal::Internal
        | Refusal::UpstreamUnavailable
        | Refusal::UpstreamTimeout
        | Refusal::ExpectationFailed
        | Refusal::BadRequest
        | Refusal::NotFound
        | Refusal::MethodNotAllowed { .. }
        | Refusal::RequestTimeout
        | Refusal::ContentTooLarge
        | Refusal::UriTooLong
        | Refusal::HeadersTooLarge
        | Refusal::InvalidDomain(_)
        | Refusal::InvalidEmail(_)
        | Refusal::InvalidTarget(_)
        | Refusal::InvalidBatch(_)
        | Refusal::InvalidAssessment(_) => None,
    }
}

/// Returns the response fields that the proxy may copy into the request to its server. Many proxies
/// show a refusal to the client, so a refusal names neither the account nor the rule nor the inbox.
fn fields_for_proxy(ctx: &RequestContext, is_admitted: bool) -> Vec<(&'static FieldName, SmolStr)> {
    let mut facts = Vec::new();
    let mut put = |field: &'static FieldName, value: &[u8]| {
        facts.push((field, String::from_utf8_lossy(value).into()));
    };
    if let Some(key) = ctx.key.as_ref().filter(|_| is_admitted) {
        write_identity_fields(key, &mut put);
    }
    let screened = ctx.screened.as_deref().and_then(ScreeningResult::facts_for_upstream);
    if let Some(mut found) = screened {
        if !is_admitted {
            (found.rule, found.inbox) = (None, None);
        }
        write_screening_fields(&found, &mut put);
    }
    facts
}

/// Returns the values in all places that the rules name: header fields, queries, and the body.
fn read_addresses<'r>(
    head: impl Head<'r>,
    body: ReceivedBody<'_>,
    screening: &AuthzScreening,
) -> Result<FieldValues, UnreadCause> {
    let mut found = FieldValues::default();
    for value in screening.header_names.iter().flat_map(|name| head.values(name.clone())) {
        match std::str::from_utf8(value) {
            Ok(text) => push_header_value(text, &mut found),
            Err(_) => found.unread = Some(UnreadCause::OtherCharset),
        }
    }
    if !screening.body_fields.is_empty() {
        let is_whole = body.is_whole && !is_body_cut(head);
        let body = ReceivedBody { is_whole, ..body };
        found.append(read_body_values(body_headers(head), body, &screening.body_fields));
    }
    // If the proxy does not replace these fields, a client can send them. So riskgate reads the
    // queries of all targets.
    let (mut of_queries, mut may_have_at_sign) = (FieldValues::default(), false);
    for target in
        std::iter::once(head.target()).chain(iter_values_of_all(head, ORIGINAL_TARGET_FIELDS))
    {
        let query = query_of(target);
        may_have_at_sign |= may_encode_at_sign(query);
        of_queries.append(read_query_values(query, &screening.query_fields));
    }
    if body.bytes.is_empty() && !may_be_post(head) {
        // A link to a page may have a parameter of this name.
        of_queries.values.retain(|value| has_at_sign(value));
        if of_queries.values.is_empty() && !may_have_at_sign {
            of_queries.unread = None;
        }
    }
    found.append_query(of_queries);
    if !screening.body_fields.is_empty() {
        // The client may have posted a body that its proxy does not send to riskgate.
        let is_body_withheld =
            body.bytes.is_empty() && may_be_post(head) && !is_body_sent_whole(head);
        if is_body_withheld && !found.values.is_empty() {
            found.mark_unread(UnreadCause::TooLong);
        }
    }
    found.or_unread_cause()
}

/// Returns true if the query has an `@`, or may have one once riskgate or a server has decoded it:
/// `%40`, `%2540`, `%u0040`, or the bytes of a wider character.
fn may_encode_at_sign(query: &[u8]) -> bool {
    let is_wide = |text: &[u8]| matches!(text, [b'%', b'e' | b'E', b'f' | b'F']);
    query.iter().any(|byte| *byte == b'@' || *byte == 0xef)
        || query.windows(2).any(|text| text == b"40")
        || query.windows(3).any(is_wide)
}

/// Adds the address in a header field. A proxy may have copied the address from a query, in which
/// the address may be percent-encoded: `a%40b.com`, or `a@b%2Ecom`. So riskgate judges the decoded
/// text, and beside it the text as the proxy sent it, if this has `@` or can't be decoded.
fn push_header_value(text: &str, found: &mut FieldValues) {
    let decoded =
        percent_decode(text.as_bytes()).ok().and_then(|text| String::from_utf8(text).ok());
    if text.contains('@') || decoded.is_none() {
        found.push_text(text);
    }
    if let Some(decoded) = decoded {
        found.push_text(&decoded);
    }
}

/// Returns true if the client's request has the method OPTIONS. Some proxies ask with the client's
/// method, others with GET. A client could send the fields with the original method, so all methods
/// must be OPTIONS.
fn is_options_request(header: &RequestHeader) -> bool {
    let mut methods = iter_original_methods(header).peekable();
    methods.peek().is_some() && methods.all(|method| method == b"OPTIONS")
}

/// Returns true if Envoy says that it sends only the start of the body.
fn is_body_cut<'r>(head: impl Head<'r>) -> bool {
    head.values(PARTIAL_BODY_FIELD).any(|value| value.eq_ignore_ascii_case(b"true"))
}

/// Returns true if Envoy says that it sends the whole body, which may be empty.
fn is_body_sent_whole<'r>(head: impl Head<'r>) -> bool {
    let mut values = head.values(PARTIAL_BODY_FIELD).peekable();
    values.peek().is_some() && values.all(|value| value.eq_ignore_ascii_case(b"false"))
}

/// Returns true if the client's request may have posted a form: one of its methods takes a body.
fn may_be_post<'r>(head: impl Head<'r>) -> bool {
    iter_original_methods(head).any(takes_body)
}

/// Returns true if the question tells the method of the client's request.
fn has_original_method<'r>(head: impl Head<'r>) -> bool {
    iter_original_methods(head).next().is_some()
}

fn iter_original_methods<'r>(head: impl Head<'r>) -> impl Iterator<Item = &'r [u8]> {
    let own = Some(head.method().as_bytes()).filter(|method| *method != b"GET");
    own.into_iter().chain(iter_values_of_all(head, ORIGINAL_METHOD_FIELDS))
}

fn iter_values_of_all<'r>(
    head: impl Head<'r>,
    names: [HeaderName; 2],
) -> impl Iterator<Item = &'r [u8]> {
    names.into_iter().flat_map(move |name| head.values(name))
}
