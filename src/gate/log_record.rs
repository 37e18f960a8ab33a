//! The end of a request: riskgate counts the request in the metrics and writes its line to the
//! access log.

use std::net::IpAddr;
use std::time::Duration;

use http::header::USER_AGENT;
use pingora::Error;
use pingora::protocols::http::ServerSession;
use pingora_proxy::Session;
use smol_str::SmolStr;

use crate::gate::route;
use crate::message::response::{RenderOptions, Reply};
use crate::model::refusal::Refusal;
use crate::observe::access_log::{AccessLog, LogEntry};
use crate::observe::redaction::redact_secrets;

use super::header_values::iter_values;
use super::judge::Gate;
use super::request_context::RequestContext;
use super::screen_rules::ScreeningResult;
use super::session::has_final_response_started;
use super::trace_spans::collect_spans;

/// The most characters of `User-Agent` in the log.
const MAX_USER_AGENT_CHARS: usize = 256;

/// What riskgate knows of a connection whose request it could not read.
pub(crate) struct ConnectionFacts {
    /// The address that the connection comes from.
    pub peer_address: Option<IpAddr>,
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.
    pub protocol: &'static str,
    /// The version of TLS; `None` without TLS.
    pub tls_version: Option<SmolStr>,
}

/// The refusal of a request that did not reach the gates. All drivers send, count and log it alike.
#[must_use]
pub(crate) struct EarlyRefusal<'g> {
    gate: &'g Gate,
    ctx: RequestContext,
    reply: Reply,
    is_head_method: bool,
}

impl EarlyRefusal<'_> {
    /// The believed time of the refusal, in seconds since 1970.
    pub fn unix_now(&self) -> i64 {
        self.ctx.unix_now()
    }

    /// Returns the response as HTTP/1.1 bytes, after which the connection closes. `date` is the value of
    /// `Date`.
    pub fn to_http1_bytes(&self, date: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(512);
        let options = RenderOptions { should_close: true, is_head_method: self.is_head_method };
        self.reply.append_as_http1(&self.ctx.common_headers, date.as_bytes(), options, &mut bytes);
        bytes
    }

    /// Sends the response on an HTTP/2 stream. Returns false if the client has left or reset it.
    pub async fn send_on_stream(&self, stream: &mut ServerSession) -> bool {
        self.reply.write_to_session(stream, &self.ctx.common_headers).await.is_ok()
    }

    /// Counts and logs the request. Its method and path are unknown or not trusted, so they are not
    /// logged. `is_sent` is false if the client did not get the whole response.
    pub fn count_and_log(mut self, is_sent: bool) {
        if !is_sent {
            self.ctx.response_bytes = 0;
        }
        self.gate.count_and_log_request(&self.ctx, "", b"", || None);
    }
}

impl Gate {
    /// Counts a finished request in the metrics, and writes its line to the access log. Call this
    /// method in your `ProxyHttp::logging`, with the error that Pingora passes to it.
    pub fn logging(&self, session: &Session, error: Option<&Error>, ctx: &mut RequestContext) {
        let answer = session.response_written().filter(|_| has_final_response_started(session));
        let status = answer.map_or(0, |header| header.status.as_u16());
        ctx.set_outcome_if_unset(status, if error.is_some() { "aborted" } else { "ok" });
        ctx.response_bytes = session.body_bytes_sent() as u64;
        let header = session.req_header();
        let user_agent = || iter_values(header, USER_AGENT).next();
        self.count_and_log_request(ctx, header.method.as_str(), header.raw_path(), user_agent);
    }

    /// Renders the metrics of this gate in Prometheus' text format, for a page of your own. They are those
    /// of `/metrics` of `riskgate run`, without its connections.
    pub fn render_metrics(&self) -> Vec<u8> {
        self.state.render_metrics(0)
    }

    /// Refuses a request before the gates, because it is malformed or too large. The caller sends the
    /// reply, then calls [`EarlyRefusal::count_and_log`].
    pub(crate) fn refuse_before_gates(
        &self,
        refusal: &Refusal,
        connection: ConnectionFacts,
        is_head_method: bool,
    ) -> EarlyRefusal<'_> {
        let mut ctx = RequestContext::default();
        let reply = Reply::refusal(refusal);
        ctx.unix_now = self.state.ledger.believed_now();
        ctx.common_headers.request_id = self.state.request_ids.generate();
        ctx.common_headers.hsts = self.hsts(connection.tls_version.is_some());
        // The header fields that name the client are not trusted.
        ctx.client_address = connection.peer_address;
        (ctx.protocol, ctx.tls_version) = (Some(connection.protocol), connection.tls_version);
        ctx.set_outcome_if_unset(refusal.status(), refusal.code());
        ctx.set_reply_bytes(&reply, if is_head_method { "HEAD" } else { "" });
        EarlyRefusal { gate: self, ctx, reply, is_head_method }
    }

    /// Counts and logs a finished request of the fast path.
    pub(crate) fn count_and_log_fast_path_request<'h>(
        &self,
        ctx: &RequestContext,
        method: &str,
        target: &[u8],
        user_agent: impl FnOnce() -> Option<&'h [u8]>,
    ) {
        self.state.metrics.requests.fast_path_requests.inc();
        self.count_and_log_request(ctx, method, target, user_agent);
    }

    /// Counts and logs a finished request. `user_agent` returns its `User-Agent`.
    fn count_and_log_request<'h>(
        &self,
        ctx: &RequestContext,
        method: &str,
        target: &[u8],
        user_agent: impl FnOnce() -> Option<&'h [u8]>,
    ) {
        let elapsed = ctx.started_at().elapsed();
        let outcome = ctx.outcome.unwrap_or("other");
        self.state.metrics.requests.count_request(ctx.route, outcome, elapsed.as_secs_f64());
        if !self.state.access_log.is_enabled() && !self.state.tracer.is_on() {
            return;
        }
        let redacted_path;
        let path = match &ctx.requested_domain {
            Some(domain) => [route::DOMAIN_PATH_PREFIX, domain.as_str()],
            None => {
                redacted_path = route::redact_path(target);
                ["", redacted_path.as_str()]
            }
        };
        let screened = ctx.screened.as_deref();
        let user_agent = user_agent_for_log(&self.state.access_log, user_agent);
        let attempt = ctx.attempts.last();
        let trace_id = ctx.trace.map(|trace| trace.trace_id_text());
        let entry = LogEntry {
            at_ms: ctx.started_unix_ms,
            request_id: route::redact_id_if_email(&ctx.common_headers.request_id),
            client: ctx.client_address.map(|address| address.to_canonical()),
            method: route::redact_if_key_length(method),
            route: ctx.route.as_str(),
            path_parts: path,
            status: ctx.response_status,
            outcome,
            reason: screened.map(|screened| screened.reason).or(ctx.verdict_reason),
            screening: screened.map(ScreeningResult::log_entry),
            key_id: ctx.key.as_ref().map(|key| key.id.as_str()),
            account: ctx.key.as_ref().map(|key| key.account.name.as_str()),
            duration_us: microseconds(elapsed),
            response_bytes: ctx.response_bytes,
            user_agent: user_agent.as_deref(),
            protocol: ctx.protocol,
            tls: ctx.tls_version.as_deref(),
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
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the start of `User-Agent`, without secrets; `None` if the log doesn't need it.
fn user_agent_for_log<'h>(
    log: &AccessLog,
    value: impl FnOnce() -> Option<&'h [u8]>,
) -> Option<String> {
    let value = if log.has_user_agent() { value()? } else { return None };
    // A secret that is cut may not look like one any more, so the text is cut last.
    let shown = redact_secrets(&String::from_utf8_lossy(value));
    Some(shown.chars().take(MAX_USER_AGENT_CHARS).collect())
}
