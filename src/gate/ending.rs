//! The end of a request: the bytes or the header that a driver writes for a reply of riskgate, then
//! the metrics and the line in the access log.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::USER_AGENT;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::http::ServerSession;
use pingora::{Error, Result};
use pingora_proxy::Session;

use crate::gate::route;
use crate::message::request_head::RequestLineGuess;
use crate::message::response::{RenderOptions, Reply, format_http_date};
use crate::model::refusal::Refusal;
use crate::model::route_label::RouteLabel;
use crate::model::verdict::Score;
use crate::observe::access_log::{AccessLog, LogEntry};
use crate::observe::latest_forms::LatestForm;
use crate::observe::redaction::redact_secrets;

use super::beginning::{Head, ParsedBytes, UnreadHead};
use super::held_bytes::HeldBytesGuard;
use super::request_context::{ConnectionFacts, RequestContext, StartTime};
use super::screen_rules::{ScreenAction, ScreeningResult};
use super::session::{close_if_process_ends, has_final_response_started};
use super::state::Gate;
use super::trace_spans::collect_spans;
use super::unsent_response::{ResponsePart, UnsentResponse};

/// The most characters of `User-Agent` in the log.
const MAX_USER_AGENT_CHARS: usize = 256;

/// riskgate's answer to a request that it refuses or redirects by its head alone. riskgate charges
/// no call for the request.
#[must_use]
pub(crate) struct EarlyAnswer<'g> {
    gate: &'g Gate,
    ctx: RequestContext,
    reply: Reply,
    logged_head: LoggedHead<'g>,
}

/// The head of a request with an [`EarlyAnswer`], for the access log.
pub(crate) enum LoggedHead<'g> {
    /// riskgate does not accept the head, and logs neither its method nor its path.
    Untrusted,
    /// The header of a request over HTTP/1.1, after riskgate has parsed it.
    Bytes(&'g [u8]),
    /// The header of a request over HTTP/2.
    Header(Box<RequestHeader>),
}

impl EarlyAnswer<'_> {
    /// Returns the response as HTTP/1.1 bytes. The response says that the connection closes.
    pub fn render_as_http1(&mut self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(512);
        let date = format_http_date(self.ctx.started_unix_seconds());
        self.ctx.append_as_http1(&self.reply, date.as_bytes(), true, &mut bytes);
        bytes
    }

    /// Sends the response on an HTTP/2 stream. Returns false if riskgate could not send the whole
    /// response.
    pub async fn send_on_http2_stream(&mut self, stream: &mut ServerSession) -> bool {
        self.ctx.write_to_session(&self.reply, stream).await.is_ok()
    }

    /// Returns the guard that counts the bytes of the request while riskgate discards its body.
    pub fn begin_held_body(&self) -> HeldBytesGuard {
        self.gate.begin_held_body(&self.ctx)
    }

    /// Counts and logs the request. `is_sent` says whether riskgate could send the whole response.
    pub fn count_and_log(mut self, is_sent: bool) {
        if !is_sent {
            self.ctx.record_unsent_reply();
        }
        let (gate, ctx) = (self.gate, &self.ctx);
        match &self.logged_head {
            LoggedHead::Untrusted => gate.count_and_log(ctx, UnreadHead { is_head_method: false }),
            LoggedHead::Bytes(header) => gate.count_and_log(ctx, ParsedBytes(header)),
            LoggedHead::Header(header) => gate.count_and_log(ctx, &**header),
        }
    }
}

impl RequestContext {
    /// Appends a reply to `out` as HTTP/1.1 bytes, and notes the length of its body for the log.
    /// `date` is the value of `Date`.
    pub(crate) fn append_as_http1(
        &mut self,
        reply: &Reply,
        date: &[u8],
        should_close: bool,
        out: &mut Vec<u8>,
    ) {
        let options = RenderOptions { should_close, is_head_method: self.is_head_method };
        reply.append_as_http1(&self.common_headers, date, options, out);
        self.response_bytes = reply.body_for(self.is_head_method).len() as u64;
    }

    /// Returns the header of a reply as Pingora's type, and its body. Notes the length of the body
    /// for the log.
    pub(crate) fn header_and_body(&mut self, reply: &Reply) -> (Box<ResponseHeader>, Bytes) {
        let body = reply.body_for(self.is_head_method).clone();
        self.response_bytes = body.len() as u64;
        (Box::new(reply.to_response_header(&self.common_headers)), body)
    }

    /// Writes a reply to Pingora's session.
    ///
    /// # Errors
    /// Returns an error of the downstream connection if riskgate can't write to the client.
    pub(crate) async fn write_to_session(
        &mut self,
        reply: &Reply,
        session: &mut ServerSession,
    ) -> Result<()> {
        let (header, mut body) = self.header_and_body(reply);
        if let Some(response) = UnsentResponse::of_request(session.req_header()) {
            let response = Arc::clone(response);
            body = response.track(body, ResponsePart::of_reply(session.is_body_done()));
        }
        if reply.closes_connection() {
            session.set_keepalive(None);
        }
        let written = async {
            session.write_response_header(header).await?;
            session.write_response_body(body, true).await
        };
        written.await.map_err(|error| error.into_down())
    }

    /// Writes a reply to Pingora's session. The connection closes if the process is about to end.
    ///
    /// # Errors
    /// Returns an error of the downstream connection if riskgate can't write to the client.
    pub(crate) async fn send_reply(&mut self, reply: &Reply, session: &mut Session) -> Result<()> {
        close_if_process_ends(session);
        self.write_to_session(reply, session.as_downstream_mut()).await
    }
}

impl Gate {
    /// Counts a finished request in the metrics, and writes its line to the access log. Call this
    /// method in your `ProxyHttp::logging`, with the error that Pingora passes to it.
    pub fn logging(&self, session: &Session, error: Option<&Error>, ctx: &mut RequestContext) {
        self.begin_if_new(session, ctx);
        let answer = session.response_written().filter(|_| has_final_response_started(session));
        let status = answer.map_or(0, |header| header.status.as_u16());
        ctx.set_outcome_if_unset(status, if error.is_some() { "aborted" } else { "ok" });
        ctx.response_bytes = session.body_bytes_sent() as u64;
        self.count_and_log(ctx, session.req_header());
    }

    /// Renders the metrics of this gate in Prometheus' text format, for a page of your own. The
    /// page `/metrics` of `riskgate run` has more metrics: those of what a mounted gate does not
    /// know, such as the client connections.
    pub fn render_metrics(&self) -> Vec<u8> {
        self.state.render_metrics(0)
    }

    /// Refuses a request before the gates, because riskgate does not accept its head. The caller
    /// sends the reply, then calls [`EarlyAnswer::count_and_log`].
    pub(crate) fn refuse_before_gates(
        &self,
        refusal: &Refusal,
        connection: &ConnectionFacts,
        protocol: &'static str,
        is_head_method: bool,
    ) -> EarlyAnswer<'_> {
        let mut ctx = self.begin_unread_request(connection, protocol, is_head_method);
        ctx.set_outcome_if_unset(refusal.status(), refusal.code());
        EarlyAnswer {
            gate: self,
            ctx,
            reply: Reply::of_refusal(refusal),
            logged_head: LoggedHead::Untrusted,
        }
    }

    /// Refuses a request whose head was read. On a route of `[[upstream.route]]`, the refusal has
    /// the form and the CORS fields of the route. If a body is too long, or no route takes the
    /// method, riskgate first matches the route and runs the gates before the quota. If one of
    /// these steps refuses the request, the client gets the refusal of this step. riskgate skips
    /// these steps if the target is no path, or if a proxy asks.
    pub(crate) fn refuse_with_head<'g, 'r>(
        &'g self,
        refusal: &Refusal,
        connection: &ConnectionFacts,
        protocol: &'static str,
        (head, logged_head): (impl Head<'r>, LoggedHead<'g>),
    ) -> EarlyAnswer<'g> {
        let mut ctx = self.begin_request(StartTime::now(), connection, protocol, head);
        let request = self.read_parts(head);
        let is_judged =
            matches!(refusal, Refusal::ContentTooLarge | Refusal::MethodNotAllowed { .. })
                && request.target.starts_with(b"/")
                && !self.is_asked_by_proxy(request.target);
        let found = match is_judged {
            true => self.match_route_and_pass_gates(&request, &mut ctx).err(),
            // This call finds the route and sets the CORS fields. It always returns the refusal.
            false => self.pass_gates_before_quota(Err(refusal.clone()), &request, &mut ctx).err(),
        };
        let reply = self.finish_with_refusal(found.as_ref().unwrap_or(refusal), &mut ctx);
        EarlyAnswer { gate: self, ctx, reply, logged_head }
    }

    /// Redirects a request to another location. `header` are the bytes of its header, after
    /// riskgate has parsed them.
    pub(crate) fn redirect<'g>(
        &'g self,
        location: &str,
        connection: &ConnectionFacts,
        header: &'g [u8],
    ) -> EarlyAnswer<'g> {
        let protocol = RequestLineGuess::guess(header).protocol();
        let head = ParsedBytes(header);
        let mut ctx = self.begin_request(StartTime::now(), connection, protocol, head);
        let reply = Reply::permanent_redirect(location);
        ctx.set_outcome_if_unset(reply.status(), "redirected");
        EarlyAnswer { gate: self, ctx, reply, logged_head: LoggedHead::Bytes(header) }
    }

    /// Counts and logs a finished request of the fast path.
    pub(crate) fn count_and_log_on_fast_path<'h>(&self, ctx: &RequestContext, head: impl Head<'h>) {
        self.state.metrics.requests.fast_path_requests.inc();
        self.count_and_log(ctx, head);
    }

    /// Counts and logs a finished request with this head.
    pub(crate) fn count_and_log<'h>(&self, ctx: &RequestContext, head: impl Head<'h>) {
        let elapsed = ctx.started_at().elapsed();
        let outcome = ctx.outcome.unwrap_or("other");
        self.state.metrics.requests.count_request(ctx.route, outcome, elapsed.as_secs_f64());
        self.record_latest_form(ctx);
        if !self.state.access_log.is_enabled() && !self.state.tracer.is_on() {
            return;
        }
        let redacted_path;
        let path = match &ctx.requested_domain {
            Some(domain) => [route::DOMAIN_PATH_PREFIX, domain.as_str()],
            None => {
                redacted_path = route::redact_path(head.target());
                ["", redacted_path.as_str()]
            }
        };
        let screened = ctx.screened.as_deref();
        let user_agent = user_agent_for_log(&self.state.access_log, head);
        let attempt = ctx.attempts.last();
        let trace_id = ctx.trace.map(|trace| trace.trace_id_text());
        let entry = LogEntry {
            at_ms: ctx.start.unix_ms,
            request_id: ctx.request_id(),
            client: ctx.client_address.map(|address| address.to_canonical()),
            method: route::redact_if_key_length(head.method()),
            route: ctx.route.as_str(),
            path_parts: path,
            status: ctx.response_status,
            outcome,
            reason: screened.map(|screened| screened.reason).or(ctx.verdict_reason),
            inbox: screened.and_then(|screened| screened.inbox),
            screening: screened.map(ScreeningResult::log_entry),
            key_id: ctx.key.as_ref().map(|key| key.id.as_str()),
            account: ctx.key.as_ref().map(|key| key.account.name.as_str()),
            duration_us: microseconds(elapsed),
            response_bytes: ctx.response_bytes,
            user_agent: user_agent.as_deref(),
            protocol: ctx.protocol,
            tls: ctx.connection.tls_version.as_deref(),
            upstream: attempt.map(|attempt| attempt.server),
            upstream_us: attempt.map(|attempt| microseconds(attempt.duration)),
            trace_id: trace_id.as_deref(),
        };
        if self.state.access_log.is_enabled() {
            self.state.access_log.queue_entry(&entry);
        }
        if let Some(trace) = ctx.trace.filter(|trace| trace.is_sampled) {
            self.state.tracer.queue_spans(collect_spans(ctx, &trace, &entry));
        }
    }

    /// Keeps what the operator may see of a form: in one list if riskgate refused the form, and in
    /// another if a rule decided about the form.
    fn record_latest_form(&self, ctx: &RequestContext) {
        let Some((screened, route)) = ctx.screened.as_deref().zip(ctx.screening_route()) else {
            return;
        };
        let form = || LatestForm {
            at: ctx.unix_now,
            route: route.into(),
            action: screened.action.as_str(),
            rule: screened.rule.as_ref().map(|rule| rule.name.clone()),
            reason: screened.reason,
            score: screened.score.map(Score::value),
            domain: screened.domain.as_ref().map(|domain| domain.as_str().into()),
        };
        if screened.action == ScreenAction::Block && ctx.route != RouteLabel::Assess {
            self.state.refused_forms.record(form());
        }
        if screened.rule.is_some() {
            self.state.forms_decided_by_rules.record(form());
        }
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the start of `User-Agent`, without secrets; `None` if the request has no such field or
/// the log does not show it.
fn user_agent_for_log<'h>(log: &AccessLog, head: impl Head<'h>) -> Option<String> {
    let value = if log.has_user_agent() { head.values(USER_AGENT).next()? } else { return None };
    // A part of a secret may not look like a secret, so riskgate shortens the text last.
    let shown = redact_secrets(&String::from_utf8_lossy(value));
    Some(shown.chars().take(MAX_USER_AGENT_CHARS).collect())
}
