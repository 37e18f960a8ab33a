//! A request on the Pingora path until it may be forwarded: the gates, its body, the charge, the
//! screening.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use pingora::Result;
use pingora_proxy::Session;

use super::held_bytes::{HeldBytes, HeldBytesGuard};
use super::request_body::{self, BodyOutlook, HeldBody, MAX_HELD_BODY_BYTES};
use super::upstream::BodyOptions;
use crate::gate::{BodyToForward, Gate, Gated, RequestContext, send_continue_if_awaited};
use crate::model::network::Networks;
use crate::screening::ReceivedBody;

/// The most bytes of a frame that a client may send (RFC 9113 section 4.2).
const HTTP2_FRAME_BYTES: usize = 16 * 1024;
/// The most bytes of a body that Pingora reads at a time.
const PINGORA_READ_BYTES: usize = 64 * 1024;

/// The bodies that a mounted gate reads. It waits as long as `riskgate run` does by default, and
/// holds as many bytes.
static MOUNTED_BODY_OPTIONS: BodyOptions = BodyOptions {
    max_bytes: usize::MAX,
    timeout: Duration::from_secs(10),
    max_held_bytes: 64 * 1024 * 1024,
};
static MOUNTED_HELD_BYTES: LazyLock<HeldBytes> =
    LazyLock::new(|| HeldBytes::new(MOUNTED_BODY_OPTIONS.max_held_bytes, Networks::default()));

/// How the bodies of requests are read before they are forwarded.
pub(super) struct BodyReading<'r> {
    pub options: &'r BodyOptions,
    pub held_bytes: HeldBytesGuard<'r>,
    /// Whether no read of an HTTP/1.1 body goes on beyond [`MAX_HELD_BODY_BYTES`].
    pub are_parts_bounded: bool,
    /// Whether a body is read only if it is screened. Otherwise it is held, so that a slow client
    /// keeps no server waiting.
    pub is_for_screening_alone: bool,
}

impl Gate {
    /// Judges a request by its route, key, origin, `max_per_client`, quota and format, in this
    /// order, and screens its form if the route has `[upstream.route.screen]`. Call it first in
    /// your `request_filter`. If it returns true, riskgate has answered the request with a result
    /// or a refusal: return true too. If it returns false, the request may be forwarded. A client
    /// that waits for 100 Continue has then received the 100.
    ///
    /// To screen a form, it reads the body: whole, or the first 64 KiB. Pingora keeps what was read
    /// and forwards it, but for the start of some longer bodies. Call [`Gate::request_body_filter`]
    /// in your `request_body_filter`, which adds that start.
    ///
    /// The future waits for the client's body (at most 10 s), and for the store: on `/v1/usage`, or
    /// if the account has no leased call left, at most `store.deadline`.
    ///
    /// # Errors
    /// Returns an error if the client's connection can't be read from or written to.
    pub async fn request_filter(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> Result<bool> {
        let reading = |ctx: &RequestContext| BodyReading {
            options: &MOUNTED_BODY_OPTIONS,
            // Clients of a trusted proxy that does not tell them apart have no limit of their own.
            held_bytes: MOUNTED_HELD_BYTES
                .begin(ctx.client_address().filter(|client| !self.is_trusted_proxy(Some(*client)))),
            are_parts_bounded: false,
            is_for_screening_alone: true,
        };
        let Some(body) = admit_request(self, session, ctx, reading).await? else {
            return Ok(true);
        };
        ctx.body = body;
        send_continue_if_awaited(session).await?;
        Ok(false)
    }
}

/// Runs the gates for a request, reads its body, charges the call, and screens the form. Returns
/// the body to forward, or `None` if riskgate has answered the request.
pub(super) async fn admit_request<'r>(
    gate: &Gate,
    session: &mut Session,
    ctx: &mut RequestContext,
    reading: impl FnOnce(&RequestContext) -> BodyReading<'r>,
) -> Result<Option<BodyToForward>> {
    let route = match gate.answer_unless_forwarded(session, ctx).await? {
        Gated::Answered => return Ok(None),
        Gated::Charged => return Ok(Some(BodyToForward::Nothing)),
        Gated::Uncharged(route) => Some(route),
        Gated::AskedByProxy => None,
    };
    let client = session.as_downstream_mut();
    let announces_body =
        !client.is_body_done() || request_body::announced_length(client.req_header()).is_some();
    let is_screened = ctx.is_body_screened();
    let reading = reading(ctx);
    if reading.is_for_screening_alone && is_screened {
        // The listeners of `riskgate run` send it when the body is read.
        send_continue_if_awaited(session).await?;
    }
    let held = match is_screened || !reading.is_for_screening_alone {
        true => match hold_body(gate, session, ctx, reading, is_screened).await? {
            Some(held) => held,
            None => return Ok(None),
        },
        false => HeldBody::Start(Bytes::new()),
    };
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
            // Pingora sends what it has kept.
            let is_kept = session.as_downstream().get_retry_buffer().is_some();
            BodyToForward::streamed(if is_kept { Bytes::new() } else { start })
        }
    }))
}

/// Reads the body of a request, as far as it is held before a server is asked. Returns `None` if
/// the request is answered because that failed.
async fn hold_body(
    gate: &Gate,
    session: &mut Session,
    ctx: &mut RequestContext,
    mut reading: BodyReading<'_>,
    is_start_needed: bool,
) -> Result<Option<HeldBody>> {
    let client = session.as_downstream_mut();
    client.set_read_timeout(Some(reading.options.timeout));
    let awaits_impossible_continue = request_body::awaits_impossible_continue(client);
    request_body::remove_expect(client);
    let announced_length = request_body::announced_length(client.req_header());
    if announced_length.is_some_and(|length| length > MAX_HELD_BODY_BYTES) && !is_start_needed {
        return Ok(Some(HeldBody::Start(Bytes::new())));
    }
    let max_last_part = match announced_length {
        _ if client.is_http2() => HTTP2_FRAME_BYTES,
        // The end of a chunked body is a part of its own.
        None => 0,
        Some(_) if reading.are_parts_bounded => 0,
        Some(_) => PINGORA_READ_BYTES,
    };
    let outlook = BodyOutlook { announced_length, max_last_part };
    client.enable_retry_buffering();
    let held = async {
        let memory = &mut reading.held_bytes;
        let first_part = match awaits_impossible_continue {
            true => request_body::wait_for_body_start(client, memory).await?,
            false => Bytes::new(),
        };
        request_body::hold_body(client, outlook, first_part, memory, reading.options).await
    };
    match held.await {
        Ok(body) => Ok(Some(body)),
        Err(error) => {
            gate.refuse(&error.into_refusal()?, session, ctx).await?;
            Ok(None)
        }
    }
}
