//! The steps of a request on the Pingora path before riskgate forwards it: the gates, the body, the
//! charge, and the screening.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use pingora::Result;
use pingora::http::RequestHeader;
use pingora::protocols::http::ServerSession;
use pingora_proxy::Session;

use super::request_body::{self, BodyOutlook, HeldBody, HoldError, MAX_HELD_BODY_BYTES};
use crate::gate::{
    AfterGates, BodyOptions, BodyToForward, Gate, PINGORA_TASK_BYTES, RequestContext,
    UnchargedRoute, has_final_response_started, send_continue_if_awaited, waiting_request_bytes,
};
use crate::model::refusal::Refusal;
use crate::screening::ReceivedBody;
use crate::support::lock::lock;

/// The most bytes of a frame that a client may send (RFC 9113 section 4.2).
const HTTP2_FRAME_BYTES: usize = 16 * 1024;
/// The most bytes of a body that Pingora reads at a time.
const PINGORA_READ_BYTES: usize = 64 * 1024;

/// How the Pingora path reads the bodies of requests before it forwards them.
#[derive(Clone, Copy)]
pub(super) struct BodyReadRules {
    /// Whether a read of an HTTP/1.1 body always ends at [`MAX_HELD_BODY_BYTES`], as it does on
    /// riskgate's own listeners.
    pub are_parts_bounded: bool,
    /// Whether riskgate reads a body only to screen it. If false, riskgate holds each short body
    /// until it is complete, so that no server waits for a slow client.
    pub is_for_screening_alone: bool,
}

/// A request that passed the gates before the quota on the fast path over HTTP/2, and whose body is
/// longer than riskgate holds. The Pingora path serves the rest of the request.
pub struct BegunUpload {
    /// The state of the request.
    pub ctx: RequestContext,
    /// The route, whose call is not charged yet.
    pub route: UnchargedRoute,
    /// The bytes of the body that were read.
    pub start: Bytes,
}

/// Where the header of a request keeps a [`BegunUpload`]: an extension must be `Clone`.
type AttachedUpload = Arc<Mutex<Option<BegunUpload>>>;

impl BegunUpload {
    /// Lets the Pingora path find the upload by the request's header.
    pub fn attach_to(self, header: &mut RequestHeader) {
        header.extensions_mut().insert(AttachedUpload::new(Mutex::new(Some(self))));
    }

    fn take_from(header: &mut RequestHeader) -> Option<BegunUpload> {
        let attached = header.extensions_mut().remove::<AttachedUpload>()?;
        lock(&attached).take()
    }
}

impl Gate {
    /// Judges a request by its route, key, origin, `max_per_client`, quota and format, in this
    /// order, but the JSON of a body before the quota. Screens its form if the route has
    /// `[upstream.route.screen]`. Call it first in your `request_filter`. If it returns true,
    /// riskgate has answered the request with a result or a refusal: return true. If it returns
    /// false, the request may be forwarded. Over HTTP/1.1, a client that waits for 100 Continue has
    /// then received the 100. A second call for the same request judges and counts nothing, and
    /// returns the same.
    ///
    /// To screen a form, this method reads the body: the whole body, or the first 64 KiB. Pingora
    /// keeps these bytes and forwards them, apart from the start of some longer bodies. Call
    /// [`Gate::request_body_filter`] in your `request_body_filter`, which adds this start.
    ///
    /// The future waits at most `listen.body_timeout` for a form, or for each part of a form that
    /// announces more than 64 KiB, and 2 s for the JSON of a post to riskgate. If the method takes
    /// no body, it waits at most `listen.body_timeout` for the end of an HTTP/2 stream. It waits
    /// for the store on `/v1/usage`, and if the process holds too few leased calls of the account:
    /// at most `store.deadline`, or eight times as long for `POST /v1/public/domains`.
    ///
    /// # Errors
    /// Returns an error if riskgate can't read from the client or can't write to it.
    pub async fn request_filter(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> Result<bool> {
        if ctx.has_begun() {
            return Ok(ctx.permit.is_none() || has_final_response_started(session));
        }
        let reading = BodyReadRules { are_parts_bounded: false, is_for_screening_alone: true };
        let Some(body) = admit_request(self, session, ctx, reading).await? else {
            self.discard_body_over_http2(session, ctx).await;
            return Ok(true);
        };
        ctx.body = body;
        if ctx.has_sign_ups()
            && let ServerSession::H1(client) = session.as_downstream_mut()
        {
            // The sign-up counts by the server's answer, even if the client leaves before it.
            client.set_abort_on_close(false);
        }
        send_continue_if_awaited(session).await?;
        Ok(false)
    }
}

/// Runs the gates for a request, reads its body, charges the call, and screens the form. Returns
/// the body to forward, or `None` if riskgate has answered the request.
pub(super) async fn admit_request(
    gate: &Gate,
    session: &mut Session,
    ctx: &mut RequestContext,
    reading: BodyReadRules,
) -> Result<Option<BodyToForward>> {
    if let Some(begun) = BegunUpload::take_from(session.req_header_mut()) {
        *ctx = begun.ctx;
        session.as_downstream_mut().set_read_timeout(Some(gate.body_options().timeout));
        let held = HeldBody::Start(begun.start);
        return charge_and_screen(gate, session, ctx, Some(begun.route), (held, true)).await;
    }
    let route = match gate.answer_unless_forwarded(session, ctx).await? {
        AfterGates::Answered => return Ok(None),
        AfterGates::Charged => return Ok(Some(BodyToForward::Nothing)),
        AfterGates::Uncharged(route) => Some(route),
        AfterGates::AskedByProxy => None,
    };
    let is_asked_by_proxy = route.is_none();
    let client = session.as_downstream_mut();
    let announced_length = request_body::announced_length(client.req_header());
    let announces_body = request_body::announces_body(announced_length, client);
    // If a proxy asks, riskgate reads the start of the body, however long the body is.
    let max_bytes = if is_asked_by_proxy { usize::MAX } else { gate.body_options().max_bytes };
    if announced_length.is_some_and(|length| length > max_bytes) {
        gate.refuse(&Refusal::ContentTooLarge, session, ctx).await?;
        return Ok(None);
    }
    let is_screened = ctx.is_body_screened();
    if reading.is_for_screening_alone && is_screened {
        // On the listeners of `riskgate run`, the connection sends the 100 when Pingora reads the
        // body.
        send_continue_if_awaited(session).await?;
    }
    let held = match is_screened || !reading.is_for_screening_alone {
        true => match hold_body(gate, session, ctx, &HoldRules { reading, is_screened, max_bytes })
            .await?
        {
            Ok(held) => held,
            // riskgate judges the request as one whose body was not read. Otherwise a client could
            // avoid the screening with a slow body.
            Err(HoldError::Fault(_)) if is_asked_by_proxy => HeldBody::Start(Bytes::new()),
            Err(error) => {
                let reply = gate.finish_with_refusal(&error.into_refusal()?, ctx);
                ctx.send_reply(&reply.with_connection_close(), session).await?;
                return Ok(None);
            }
        },
        false => HeldBody::Start(Bytes::new()),
    };
    charge_and_screen(gate, session, ctx, route, (held, announces_body)).await
}

/// Charges the call of a route, and screens the form. Returns the body to forward, or `None` if
/// riskgate has answered the request.
async fn charge_and_screen(
    gate: &Gate,
    session: &mut Session,
    ctx: &mut RequestContext,
    route: Option<UnchargedRoute>,
    (held, announces_body): (HeldBody, bool),
) -> Result<Option<BodyToForward>> {
    if let Some(route) = route {
        let target = session.req_header().raw_path();
        if let Some(reply) = gate.charge_after_body(target, route, ctx).await {
            ctx.send_reply(&reply, session).await?;
            return Ok(None);
        }
    }
    let (HeldBody::Whole(bytes) | HeldBody::Start(bytes)) = &held;
    let received = ReceivedBody { bytes, is_whole: matches!(held, HeldBody::Whole(_)) };
    if let Some(reply) = gate.screen(session.req_header(), received, ctx) {
        ctx.send_reply(&reply, session).await?;
        return Ok(None);
    }
    Ok(Some(match held {
        _ if !announces_body => BodyToForward::Nothing,
        HeldBody::Whole(body) => BodyToForward::Whole(body.len()),
        HeldBody::Start(start) => {
            // If Pingora has kept the start, Pingora forwards it.
            let is_kept = session.as_downstream().get_retry_buffer().is_some();
            BodyToForward::new_streamed(if is_kept { Bytes::new() } else { start })
        }
    }))
}

/// How riskgate holds the body of a request.
struct HoldRules {
    reading: BodyReadRules,
    /// Whether riskgate screens the body, and so holds the start even of a longer body.
    is_screened: bool,
    /// The most bytes that the body may have.
    max_bytes: usize,
}

/// Reads the whole body of a request, or the start of a longer body.
async fn hold_body(
    gate: &Gate,
    session: &mut Session,
    ctx: &mut RequestContext,
    rules: &HoldRules,
) -> Result<Result<HeldBody, HoldError>> {
    let client = session.as_downstream_mut();
    client.set_read_timeout(Some(gate.body_options().timeout));
    let awaits_impossible_continue = request_body::awaits_impossible_continue(client);
    request_body::remove_expect(client);
    let announced_length = request_body::announced_length(client.req_header());
    let mut memory = gate.begin_held_body(ctx);
    let mut first_part = Bytes::new();
    if awaits_impossible_continue {
        // Pingora keeps the part, and forwards it.
        client.enable_retry_buffering();
        match request_body::wait_for_body_start(client, &mut memory).await {
            Ok(part) => first_part = part,
            Err(error) => return Ok(Err(error)),
        }
    }
    if announced_length.is_some_and(|length| length > MAX_HELD_BODY_BYTES) && !rules.is_screened {
        return Ok(Ok(HeldBody::Start(first_part)));
    }
    let max_last_part = match announced_length {
        _ if client.is_http2() => HTTP2_FRAME_BYTES,
        // The end of a chunked body is a part of its own.
        None => 0,
        Some(_) if rules.reading.are_parts_bounded => 0,
        Some(_) => PINGORA_READ_BYTES,
    };
    let outlook = BodyOutlook { announced_length, max_last_part };
    client.enable_retry_buffering();
    let options = BodyOptions { max_bytes: rules.max_bytes, ..gate.body_options().clone() };
    let request_bytes = waiting_request_bytes(client.req_header(), PINGORA_TASK_BYTES);
    let memory = (&mut memory, request_bytes);
    Ok(request_body::hold_body(client, outlook, first_part, memory, &options).await)
}
