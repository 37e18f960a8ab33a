//! The Pingora filters after `request_filter`, for any Pingora proxy to mount.
//!
//! Owns the content of the request to the upstream server, the content of the response to the
//! client, and the error response if the exchange fails. The proxy that mounts the gate chooses the
//! server and enforces the time limits.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::{Error, ErrorSource, ErrorType, Result};
use pingora_proxy::{FailToProxy, Session};

use crate::exchange::forwarding::{
    ClientInfo, HostChoice, prepare_client_response, prepare_upstream_request,
};
use crate::exchange::{
    Attempts, BodyFault, FailedEnd, Failure, MalformedResponse, StatusKind, is_html_type,
    may_have_framing_fields,
};
use crate::message::response::Reply;
use crate::model::refusal::Refusal;
use crate::support::socket_reset::set_reset_on_close;

use super::request_context::RequestContext;
use super::screen_rules::ScreeningResult;
use super::session::{close_if_process_ends, has_final_response_started};
use super::state::Gate;

/// Tells Pingora to send nothing more: the client has left, or it has a response or a part of one.
const NO_RESPONSE: FailToProxy = FailToProxy { error_code: 0, can_reuse_downstream: false };

/// An exchange that has failed, at the end of its last attempt.
pub(crate) struct FailedExchange {
    /// What failed.
    pub failure: Failure,
    /// The attempts.
    pub attempts: Attempts,
    /// Whether the deadline of the exchange has passed.
    pub is_past_deadline: bool,
    /// Whether the client has got the whole response of the server. Only the rest of the client's
    /// body is missing then.
    pub is_response_sent: bool,
}

impl Gate {
    /// Makes the request that the upstream server gets: with the target, the length of a body that
    /// was read, `Host`, and the client's identity in `X-Riskgate-` and `X-Forwarded-` fields.
    /// Fields that the client could forge are removed, with the client's key. Call this method in
    /// your `upstream_request_filter`, before you add fields of your own. `host` is the server's
    /// name, with the port unless it is the default port. On a route of `[[upstream.route]]`, the
    /// server gets the route's `host` or the client's `Host` instead. Over HTTP/1.1, the server
    /// gets the names of most fields in lower case, as over HTTP/2.
    ///
    /// # Errors
    /// Returns an error if the request did not pass the gates, or if `host` is empty or no valid
    /// field value.
    pub fn upstream_request_filter(
        &self,
        _session: &Session,
        request: &mut RequestHeader,
        ctx: &RequestContext,
        host: &str,
    ) -> Result<()> {
        ctx.body.reset_byte_count();
        ctx.body.set_framing(request)?;
        let (Some(target), Some(_)) = (ctx.upstream_target(), &ctx.permit) else {
            return Error::e_explain(ErrorType::InternalError, "no permit");
        };
        let client_info = self.collect_client_info(ctx);
        prepare_upstream_request(request, target, host, &client_info)
    }

    /// Adds the start of a longer body, if riskgate has read it to screen the body and Pingora does
    /// not keep it. Call this method in your `request_body_filter`.
    ///
    /// # Errors
    /// Returns an error if the body is longer than `listen.max_body_bytes`. Return the error from
    /// your filter; Pingora then calls your `fail_to_proxy`.
    pub fn request_body_filter(
        &self,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut RequestContext,
    ) -> Result<()> {
        self.pass_body_part(body, end_of_stream, ctx).map(drop)
    }

    /// Like [`Gate::request_body_filter`]. Returns true if the body is streamed.
    pub(crate) fn pass_body_part(
        &self,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut RequestContext,
    ) -> Result<bool> {
        match ctx.body.pass_part(body, end_of_stream) {
            Some(bytes) if bytes > self.body_options().max_bytes => {
                Err(BodyFault::too_long_error())
            }
            passed => Ok(passed.is_some()),
        }
    }

    /// Collects what riskgate tells the upstream server about the client.
    pub(crate) fn collect_client_info<'v>(&'v self, ctx: &'v RequestContext) -> ClientInfo<'v> {
        let peer_address = ctx.connection.peer_address;
        ClientInfo {
            key: ctx.permit.as_ref().and_then(|permit| permit.key()),
            request_id: &ctx.common_headers.request_id,
            peer_address,
            is_trusted_proxy: self.is_trusted_proxy(peer_address),
            trusted_proxies: &self.startup_rules.client_address.trusted_proxies,
            reads_forwarded: self.startup_rules.client_address.reads_forwarded(),
            is_client_tls: ctx.connection.tls_version.is_some(),
            key_header: self.startup_rules.key_header.as_ref(),
            passes_authorization: ctx.passes_authorization,
            host: match ctx.upstream_route.map(|index| &ctx.rules.upstream_routes[index]) {
                None => HostChoice::OfServer,
                Some(route) => {
                    route.host.as_deref().map_or(HostChoice::OfClient, HostChoice::OfRoute)
                }
            },
            is_new_trace: ctx.trace.is_some_and(|trace| trace.parent_id.is_none()),
            traceparent: ctx.traceparent_after(ctx.attempts.len()),
            screening: ctx.screened.as_deref().and_then(ScreeningResult::facts_for_upstream),
        }
    }

    /// Turns the upstream server's response into the response for the client: removes the fields
    /// that the server may not set, and adds riskgate's own fields, such as `X-Request-Id`
    /// and `RateLimit`. Over HTTP/1.1, the client gets the names of most fields in lower case, as
    /// over HTTP/2. Call this method in your `response_filter`.
    ///
    /// # Errors
    /// Returns an error if the response is malformed, a 101, which riskgate never asks for, or the
    /// 65th informational one. Return the error from your filter; Pingora then calls your
    /// `fail_to_proxy`.
    pub fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut RequestContext,
    ) -> Result<()> {
        match StatusKind::from(response.status.as_u16()) {
            // Pingora drops the response, unless it is a 100 and the header has `Expect`.
            StatusKind::Informational => {
                return ctx.informational.count_next().map_err(MalformedResponse::into_error);
            }
            StatusKind::Invalid => return Err(MalformedResponse::Status.into_error()),
            StatusKind::Final => {}
        }
        close_if_process_ends(session);
        prepare_client_response(response, ctx.allowed_response_fields(), &ctx.common_headers)
            .map_err(MalformedResponse::into_error)?;
        // A proxy sends its own version (RFC 9112 section 2.3).
        response.set_version(http::Version::HTTP_11);
        if session.req_header().version < http::Version::HTTP_11
            && response.remove_header(&TRANSFER_ENCODING).is_some()
        {
            // HTTP/1.0 has no chunks: the end of the connection ends the body.
            response.remove_header(&CONTENT_LENGTH);
        }
        if !may_have_framing_fields(response.status.as_u16()) {
            response.remove_header(&CONTENT_LENGTH);
            response.remove_header(&TRANSFER_ENCODING);
        }
        let is_html = response.headers.get_all(CONTENT_TYPE).iter().any(is_html_type);
        self.record_upstream_status(response.status.as_u16(), is_html, ctx);
        Ok(())
    }

    /// Answers a request whose exchange with the upstream server failed. Call this method in your
    /// `fail_to_proxy`, with the error that Pingora passes there, and return its result.
    ///
    /// The answer is 500 with `X-Fail-Open: true`, apart from these cases:
    /// - If the server failed on a route with `failure_status = "gateway"`, the answer is 502 or
    ///   504.
    /// - If the client's body is malformed, too long or too slow, the answer is 400, 413 or 408.
    /// - With `check.answer = "fallback"`, riskgate answers a check itself.
    /// - If the error is an `HTTPStatus` of your own filters, the answer has this status and no
    ///   `X-Fail-Open`.
    /// - If the client has left, or has a part of the response, the connection closes.
    ///
    /// riskgate refunds the call, unless the server was too slow, riskgate has answered the check,
    /// or the connection closes without an answer.
    ///
    /// If the server or riskgate failed, riskgate logs the type of the error and the id of the
    /// request. Return true from your `suppress_error_log` and `suppress_proxy_warn_log`: the lines
    /// that Pingora logs otherwise contain the path, the query and parts of bodies.
    pub async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut RequestContext,
    ) -> FailToProxy {
        self.begin_if_new(session, ctx);
        let failure = classify_error(error);
        if matches!(failure, Failure::Connect | Failure::TimedOut | Failure::BrokenResponse(_)) {
            // Pingora's text of the error may contain parts of the response.
            let (id, kind) = (ctx.request_id(), error.etype().as_str());
            log::warn!("request {id}: expected a response of the server, but found {kind}");
        }
        let failed = FailedExchange {
            failure,
            attempts: Attempts::with_connected_last_attempt(),
            is_past_deadline: false,
            is_response_sent: false,
        };
        let answer = self.answer_failure(session, error, ctx, failed).await;
        if answer.error_code > 0 {
            self.discard_body_over_http2(session, ctx).await;
        }
        answer
    }

    /// Like [`Gate::fail_to_proxy`], for a proxy that knows how its exchange failed.
    pub(crate) async fn answer_failure(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut RequestContext,
        failed: FailedExchange,
    ) -> FailToProxy {
        let FailedExchange { failure, attempts, is_past_deadline, is_response_sent } = failed;
        let has_started = has_final_response_started(session);
        if has_started && is_response_sent {
            return NO_RESPONSE;
        }
        let own_status = find_status_of_mounting_proxy(error).filter(|_| !has_started);
        let reply = match (own_status, attempts.end_after(failure, is_past_deadline, has_started)) {
            (Some(status), _) => self.finish_with_status(status, ctx),
            (None, FailedEnd::Refuse(refusal)) => {
                if refusal == Refusal::Internal {
                    // Only the id is logged: the target may contain an e-mail address.
                    log::error!("request {}: {:?}", ctx.request_id(), error.etype());
                }
                self.finish_with_refusal(&refusal, ctx)
            }
            (None, FailedEnd::Abort) => {
                abort_exchange(session, ctx);
                return NO_RESPONSE;
            }
        };
        // Pingora closes the connection after a failed exchange; the response must announce that.
        session.set_keepalive(None);
        match ctx.send_reply(&reply, session).await {
            Ok(()) => FailToProxy { error_code: reply.status(), can_reuse_downstream: false },
            Err(_) => {
                ctx.record_unsent_reply();
                NO_RESPONSE
            }
        }
    }

    /// Returns the response with which the proxy that mounts the gate refuses a request by itself.
    /// The request does not count.
    fn finish_with_status(&self, status: u16, ctx: &mut RequestContext) -> Reply {
        self.refund(ctx);
        ctx.set_outcome_if_unset(status, "other");
        Reply::of_mounting_proxy(status)
    }
}

/// Ends an exchange whose client gets nothing more.
fn abort_exchange(session: &Session, ctx: &mut RequestContext) {
    ctx.set_aborted_outcome();
    if session.req_header().version < http::Version::HTTP_11
        && let Some(stream) = session.as_downstream().stream()
    {
        // An HTTP/1.0 client would take an orderly close for the end of the body, so the connection
        // is reset.
        set_reset_on_close(stream.id());
    }
}

/// Returns the status with which the proxy that mounts the gate refuses a request in its own
/// filters. `None` if the error comes from the connection to the server, or has no such status.
fn find_status_of_mounting_proxy(error: &Error) -> Option<u16> {
    match (error.esource(), error.etype()) {
        (ErrorSource::Upstream, _) => None,
        (_, ErrorType::HTTPStatus(status)) => {
            Some(*status).filter(|status| StatusKind::from(*status) == StatusKind::Final)
        }
        _ => None,
    }
}

/// Returns what failed, by the type of Pingora's error. Pingora does not say whether a part of the
/// response had arrived.
pub(crate) fn classify_error(error: &Error) -> Failure {
    match (error.esource(), error.etype()) {
        (
            ErrorSource::Upstream,
            ErrorType::ConnectTimedout | ErrorType::ConnectRefused | ErrorType::ConnectError,
        ) => Failure::Connect,
        (ErrorSource::Upstream, ErrorType::ReadTimedout | ErrorType::WriteTimedout) => {
            Failure::TimedOut
        }
        (ErrorSource::Upstream, _) => Failure::BrokenResponse(MalformedResponse::of_error(error)),
        (ErrorSource::Downstream, _) => match BodyFault::find_in(error) {
            Some(fault) => Failure::RequestBody(fault),
            None => Failure::Client,
        },
        (ErrorSource::Internal | ErrorSource::Unset, _) => Failure::Internal,
    }
}
