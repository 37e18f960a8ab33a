//! What a proxy behind the gates does with a request that passed, for any Pingora proxy to mount.
//!
//! Owns what the upstream server learns of a request, what the client learns of the server's
//! answer, and what it hears when there is none. It chooses no server and holds no deadline.

use std::net::IpAddr;

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use pingora_core::Result;
use pingora_error::{Error, ErrorSource, ErrorType};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::{FailToProxy, Session};

use crate::message::forwarding::{ClientInfo, clean_response, prepare_upstream_request};
use crate::model::refusal::Refusal;
use crate::support::socket_reset::set_reset_on_close;

use super::judge::Gate;
use super::request_context::RequestContext;
use super::session::{client_address, has_response_started};

/// The client has left, or its answer was cut: nothing more is sent to it.
const NO_RESPONSE: FailToProxy = FailToProxy { error_code: 0, can_reuse_downstream: false };

impl Gate {
    /// Makes the request that the upstream server gets: the canonical target, `host` in `Host`,
    /// what [`Gate`] knows of the caller in `X-Riskgate-` and `X-Forwarded-` fields, and nothing
    /// that the caller forged; never its key. One call in your `upstream_request_filter`; what you
    /// add to the request yourself comes behind it. An error for what did not pass the gates.
    pub fn upstream_request_filter(
        &self,
        session: &Session,
        request: &mut RequestHeader,
        ctx: &RequestContext,
        host: &str,
    ) -> Result<()> {
        let (Some(target), Some(_)) = (ctx.forward(), &ctx.permit) else {
            return Error::e_explain(ErrorType::InternalError, "no permit");
        };
        let is_secure = session.digest().is_some_and(|digest| digest.ssl_digest.is_some());
        let client_info = self.client_info(ctx, client_address(session), is_secure);
        prepare_upstream_request(request, target, host, &client_info)
    }

    /// What is told to a server about who asks.
    pub(crate) fn client_info<'v>(
        &self,
        ctx: &'v RequestContext,
        address: Option<IpAddr>,
        is_secure: bool,
    ) -> ClientInfo<'v> {
        ClientInfo {
            key: ctx.permit.as_ref().and_then(|permit| permit.key()),
            request_id: &ctx.common_headers.request_id,
            address,
            is_trusted_proxy: address.is_some_and(|a| self.trusted_proxies.contains(a)),
            is_tls: is_secure,
        }
    }

    /// Makes the answer that the client gets of the server's: without what is not the server's to
    /// say, with what every answer of riskgate carries. One call in your `response_filter`.
    pub fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut RequestContext,
    ) -> Result<()> {
        if response.status.is_informational() {
            // We ask for no upgrade, so a 101 is none of ours; other 1xx are not forwarded.
            return match response.status.as_u16() {
                101 => Err(Error::new_up(ErrorType::InvalidHTTPHeader)),
                _ => Ok(()),
            };
        }
        if session.is_process_shutting_down() {
            session.set_keepalive(None);
        }
        clean_response(response)?;
        // Our own version and phrase, whatever the upstream speaks (RFC 9112 section 2.3).
        response.set_version(http::Version::HTTP_11);
        response.set_reason_phrase(None)?;
        if session.req_header().version < http::Version::HTTP_11
            && response.remove_header(&TRANSFER_ENCODING).is_some()
        {
            // HTTP/1.0 knows no chunks: the body ends with the connection.
            response.remove_header(&CONTENT_LENGTH);
        }
        if response.status == http::StatusCode::NO_CONTENT {
            // It has no body, and says no length (RFC 9110 section 8.6).
            response.remove_header(&CONTENT_LENGTH);
        }
        ctx.common_headers.apply_to(response)?;
        ctx.set_upstream_outcome(response.status.as_u16());
        Ok(())
    }

    /// Answers a request that could not be served: 500 with `X-Fail-Open: true`. The call is given
    /// back, unless a server received the request and was too slow, or the client left. One call in
    /// your `fail_to_proxy`, with the error that you got there.
    pub async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut RequestContext,
    ) -> FailToProxy {
        // A connection that was not made in time has given no server the request.
        let upstream_refusal = match error.etype() {
            ErrorType::ReadTimedout | ErrorType::WriteTimedout => Refusal::UpstreamTimeout,
            _ => Refusal::UpstreamUnavailable,
        };
        self.answer_failure(session, error, ctx, &upstream_refusal, false).await
    }

    /// The same where more is known: what the client hears of a server that failed, and whether
    /// the client itself was too slow, is still there, and hears that.
    pub(crate) async fn answer_failure(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut RequestContext,
        upstream_refusal: &Refusal,
        is_slow_client: bool,
    ) -> FailToProxy {
        let is_downstream = *error.esource() == ErrorSource::Downstream;
        if has_response_started(session) || is_downstream && !is_slow_client {
            ctx.mark_aborted();
            if session.req_header().version < http::Version::HTTP_11
                && let Some(stream) = session.as_downstream().stream()
            {
                // An end in order would say that all of the body has come.
                set_reset_on_close(stream.id());
            }
            return NO_RESPONSE;
        }
        let refusal = match error.esource() {
            ErrorSource::Upstream => upstream_refusal,
            ErrorSource::Downstream => &Refusal::UpstreamTimeout,
            ErrorSource::Internal | ErrorSource::Unset => &Refusal::Internal,
        };
        if *refusal == Refusal::Internal {
            // By its id: the target may hold an address.
            log::error!("request {}: {:?}", ctx.common_headers.request_id, error.etype());
        }
        // Pingora closes behind a failed exchange; the answer must say so.
        session.set_keepalive(None);
        let reply = self.reply_to_refusal(refusal, ctx);
        match reply.write(session, &ctx.common_headers).await {
            Ok(()) => FailToProxy { error_code: refusal.status(), can_reuse_downstream: false },
            Err(_) => NO_RESPONSE,
        }
    }
}
