//! The whole proxy: the table of contents of a request.
//!
//! `request_filter` judges and answers, `upstream_peer` chooses a server, the other filters say
//! what crosses in each direction, `fail_to_proxy` turns what went wrong into an answer, and
//! `logging` counts it. What each step means stands in the room that it calls.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use pingora_core::Result;
use pingora_core::modules::http::HttpModules;
use pingora_core::protocols::Digest;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_error::{Error, ErrorType};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::{FailToProxy, ProxyHttp, Session};
use std::time::Duration;

use crate::gate::{Gate, Visit, client_address, has_answered};
use crate::model::refusal::Refusal;
use crate::proxy::request_body;
use crate::proxy::upstream::{Deadline, Failure, Place, Tries, Upstreams};

/// Of what an exchange has left of its time, as much is waited for a client that waits for a 100: 1.5
/// of 2.5 seconds, since many of them wait for one.
const PATIENCE: f32 = 0.6;

/// riskgate as a proxy of its own: a [`Gate`] with an upstream behind it.
pub struct Gateway {
    gate: Gate,
    upstreams: Arc<Upstreams>,
}

/// One request on its way through the gateway.
#[derive(Default)]
pub struct Passage {
    visit: Visit,
    tries: Tries,
    server: String,
    deadline: Option<Deadline>,
    /// All of the server's answer has come.
    is_answer_whole: bool,
    /// Its place among the exchanges under way.
    place: Option<Place>,
}

impl Gateway {
    /// A gateway of this gate and these servers.
    pub fn new(gate: Gate, upstreams: Arc<Upstreams>) -> Gateway {
        Gateway { gate, upstreams }
    }

    fn is_late(&self, passage: &Passage) -> bool {
        self.upstreams.is_late(passage.visit.started())
    }

    /// Answers a client that waits for a 100 in vain: it may ask again without.
    async fn refuse_expectation(
        &self,
        session: &mut Session,
        passage: &mut Passage,
    ) -> Result<bool> {
        self.gate.give_back(&mut passage.visit);
        let reply = self.gate.refused(&Refusal::ExpectationFailed, &mut passage.visit);
        reply.write(session, &passage.visit.common).await?;
        Ok(true)
    }
}

impl Passage {
    /// Drops the deadline if the exchange is over. Pingora gives the server's connection to the next
    /// request before it calls `logging`, and that one must not be cut by this one's deadline.
    fn end_exchange(&mut self, session: &mut Session) {
        if self.is_answer_whole && session.as_downstream_mut().is_body_done() {
            self.deadline = None;
        }
    }
}

/// Whether a body follows this header of a server's answer (RFC 9112 section 6.3).
fn may_have_body(session: &Session, response: &ResponseHeader) -> bool {
    let length = response.headers.get(CONTENT_LENGTH);
    session.req_header().method != http::Method::HEAD
        && !matches!(response.status.as_u16(), 204 | 304)
        && length.is_none_or(|length| length != "0")
}

/// Whether a part of a response's header had come: Pingora tells it in words alone.
fn has_begun_to_answer(error: &Error) -> bool {
    let said = error.context.as_ref().map(|context| context.as_str());
    let read = said.and_then(|said| said.rsplit_once("bytes already read: "));
    read.is_some_and(|(_, read)| read != "0")
}

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = Passage;

    fn new_ctx(&self) -> Passage {
        Passage::default()
    }

    /// None: every module costs each request something, and we need none.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn request_filter(&self, session: &mut Session, passage: &mut Passage) -> Result<bool> {
        let is_answered = self.gate.filter(session, &mut passage.visit).await?;
        if !is_answered {
            // Who sends a body has as long as the exchange.
            let left = self.upstreams.left(passage.visit.started()).unwrap_or_default();
            let (address, upstreams) = (client_address(session), &self.upstreams);
            let client = session.as_downstream_mut();
            client.set_read_timeout(Some(left));
            let patience = left.mul_f32(PATIENCE);
            if request_body::take_expectation(client)
                && !request_body::begins_within(client, address, upstreams, patience).await?
            {
                return self.refuse_expectation(session, passage).await;
            }
            let left = self.upstreams.left(passage.visit.started()).unwrap_or_default();
            request_body::take_short(client, address, upstreams, left).await?;
        }
        Ok(is_answered)
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        passage: &mut Passage,
    ) -> Result<Box<HttpPeer>> {
        if passage.visit.permit.is_none() {
            return Error::e_explain(ErrorType::InternalError, "no permit");
        }
        if passage.place.is_none() {
            let full = || Error::explain(ErrorType::ConnectError, "too many exchanges").into_up();
            passage.place = Some(self.upstreams.enter(client_address(session)).ok_or_else(full)?);
        }
        passage.tries.begin();
        let peer = self.upstreams.peer(passage.visit.started(), passage.tries.is_second());
        let peer = peer.ok_or_else(|| Error::new_up(ErrorType::ConnectTimedout))?;
        passage.server = peer._address.to_string();
        Ok(Box::new(peer))
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        peer: &HttpPeer,
        passage: &mut Passage,
        mut error: Box<Error>,
    ) -> Box<Error> {
        self.upstreams.eject(&peer._address);
        error.set_retry(passage.tries.may_repeat(Failure::Unconnected, self.is_late(passage)));
        error
    }

    async fn connected_to_upstream(
        &self,
        _session: &mut Session,
        _reused: bool,
        _peer: &HttpPeer,
        connection: std::os::unix::io::RawFd,
        _digest: Option<&Digest>,
        passage: &mut Passage,
    ) -> Result<()> {
        passage.tries.connected();
        passage.is_answer_whole = false;
        passage.deadline = self.upstreams.watch(passage.visit.started(), connection);
        Ok(())
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        passage: &mut Passage,
    ) -> Result<()> {
        let host = self.upstreams.host(&passage.server);
        self.gate.upstream_request_filter(session, request, &passage.visit, host)
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        session: &mut Session,
        mut error: Box<Error>,
        passage: &mut Passage,
        reused: bool,
    ) -> Box<Error> {
        let idempotent = session.req_header().method.is_idempotent();
        let begun = has_answered(session) || has_begun_to_answer(&error);
        // Of a long body the beginning is not kept.
        let is_kept = !session.as_downstream().retry_buffer_truncated();
        let failure = match begun {
            true => Failure::Begun,
            false => {
                Failure::Unanswered { is_reused: reused, is_repeatable: idempotent && is_kept }
            }
        };
        match passage.tries.may_repeat(failure, self.is_late(passage)) {
            true => error.retry.decide_reuse(true),
            false => error.set_retry(false),
        }
        error
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        passage: &mut Passage,
    ) -> Result<()> {
        let is_final = !response.status.is_informational();
        passage.is_answer_whole = is_final && !may_have_body(session, response);
        passage.end_exchange(session);
        self.gate.response_filter(session, response, &mut passage.visit)
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        _body: &mut Option<Bytes>,
        end_of_stream: bool,
        passage: &mut Passage,
    ) -> Result<()> {
        if end_of_stream && passage.is_answer_whole {
            passage.deadline = None;
        }
        Ok(())
    }

    fn response_body_filter(
        &self,
        session: &mut Session,
        _body: &mut Option<Bytes>,
        end_of_stream: bool,
        passage: &mut Passage,
    ) -> Result<Option<Duration>> {
        passage.is_answer_whole |= end_of_stream;
        passage.end_exchange(session);
        // What the deadline cut must not look complete.
        let left = self.upstreams.left(passage.visit.started());
        let left = left.ok_or_else(|| Error::new_up(ErrorType::ReadTimedout))?;
        // Who reads too slowly must not keep an exchange from others until then.
        let client = session.as_downstream_mut();
        client.set_write_timeout(client.get_write_timeout().map(|most| most.min(left)));
        Ok(None)
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        passage: &mut Passage,
    ) -> FailToProxy {
        passage.deadline = None;
        let timed_out = matches!(
            error.etype(),
            ErrorType::ReadTimedout | ErrorType::WriteTimedout | ErrorType::ConnectTimedout
        );
        let unanswered = passage.tries.refusal(timed_out || self.is_late(passage));
        // Who was too slow is still there, and hears it.
        let is_slow = timed_out && self.is_late(passage);
        self.gate.answer_failure(session, error, &mut passage.visit, &unanswered, is_slow).await
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, passage: &mut Passage) {
        (passage.deadline, passage.place) = (None, None);
        self.gate.logging(session, error, &mut passage.visit);
        if session.is_http2() && session.response_written().is_some() {
            request_body::discard(session.as_downstream_mut()).await;
        }
    }

    /// Our own log says it, without the target, which may hold an address.
    fn suppress_error_log(&self, _session: &Session, _passage: &Passage, _error: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _passage: &Passage,
        _error: &Error,
        _context: pingora_proxy::ProxyWarnLogContext,
    ) -> bool {
        true
    }
}
