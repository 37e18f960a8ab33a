//! The end of a request: it is counted in the metrics and written to the access log.

use std::net::IpAddr;

use pingora::Error;
use pingora_proxy::Session;

use crate::gate::route;
use crate::model::refusal::Refusal;
use crate::observe::access_log::LogEntry;

use super::judge::Gate;
use super::request_context::RequestContext;
use super::session::{client_address, has_response_started};

impl Gate {
    /// Counts a finished request in the metrics, and writes its line to the access log. Call this
    /// method in your `ProxyHttp::logging`, with the error that Pingora passes to it.
    pub fn logging(&self, session: &Session, error: Option<&Error>, ctx: &mut RequestContext) {
        let answer = session.response_written().filter(|_| has_response_started(session));
        let status = answer.map_or(0, |header| header.status.as_u16());
        ctx.set_outcome_if_unset(status, if error.is_some() { "aborted" } else { "ok" });
        let header = session.req_header();
        self.record_request(
            ctx,
            header.method.as_str(),
            header.raw_path(),
            client_address(session),
        );
    }

    /// Counts and logs a request that was refused before the gates: its method and path are unknown
    /// or not trusted, so they are not logged.
    pub(crate) fn record_refusal(
        &self,
        refusal: &Refusal,
        ctx: &mut RequestContext,
        client: Option<IpAddr>,
    ) {
        ctx.set_outcome_if_unset(refusal.status(), refusal.code());
        self.record_request(ctx, "", b"", client);
    }

    /// Counts and logs a finished request.
    pub(crate) fn record_request(
        &self,
        ctx: &RequestContext,
        method: &str,
        target: &[u8],
        client: Option<IpAddr>,
    ) {
        let elapsed = ctx.started().elapsed();
        let outcome = ctx.outcome.unwrap_or("other");
        self.state.metrics.requests.count_request(ctx.route, outcome, elapsed.as_secs_f64());
        if !self.state.access_log.is_enabled() {
            return;
        }
        let redacted_path;
        let path = match &ctx.domain {
            Some(domain) => [route::DOMAIN_PATH_PREFIX, domain.as_str()],
            None => {
                redacted_path = route::redact_path(target);
                ["", redacted_path.as_str()]
            }
        };
        self.state.access_log.write_entry(&LogEntry {
            at_ms: ctx.started_unix_ms,
            request_id: route::redact_request_id(&ctx.common_headers.request_id),
            client: client.map(|address| address.to_canonical()),
            method: route::redact_if_key_length(method),
            route: ctx.route.as_str(),
            path,
            status: ctx.status,
            outcome,
            reason: ctx.reason,
            key_id: ctx.key.as_ref().map(|key| key.id.as_str()),
            account: ctx.key.as_ref().map(|key| key.account.name.as_str()),
            duration_us: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
        });
    }
}
