//! The end of a request: riskgate counts the request in the metrics and writes its line to the
//! access log.

use std::net::IpAddr;
use std::time::Duration;

use http::header::USER_AGENT;
use pingora::Error;
use pingora_proxy::Session;

use crate::gate::route;
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

    /// Counts and logs a request that was refused before the gates. Its method and path are unknown
    /// or not trusted, so they are not logged.
    pub(crate) fn record_refusal_before_gates(
        &self,
        refusal: &Refusal,
        ctx: &mut RequestContext,
        peer_address: Option<IpAddr>,
    ) {
        // The header fields that name the client are not trusted either.
        ctx.client_address = peer_address;
        ctx.set_outcome_if_unset(refusal.status(), refusal.code());
        self.count_and_log_request(ctx, "", b"", || None);
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
