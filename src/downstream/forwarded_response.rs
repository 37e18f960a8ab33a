//! The response of an upstream server, on its way to the client.
//!
//! While the client reads nothing, riskgate reads on, up to about [`MAX_BYTES_READ_AHEAD`], as long
//! as memory is left. Once the whole response has arrived, and riskgate may hold what is unsent,
//! the server is free for other exchanges, even if the client is slow.

use std::convert::Infallible;
use std::future::pending;

use tokio::time::Instant;

use super::context::ListenerContext;
use super::exchange_client::ExchangeClient;
use crate::exchange::{Failure, MalformedResponse};
use crate::gate::{HeldBytesGuard, RequestContext};
use crate::proxy::upstream::{
    DeadlinePassed, ExchangeDeadline, ExchangePermit, ResponseBody, ResponseHead,
    UpstreamConnection,
};

/// The space reserved for one read of a response body, in bytes.
const BODY_READ_BYTES: usize = 16 * 1024;
/// Once riskgate has read this many bytes of a response while the client read nothing, riskgate
/// waits for the client.
const MAX_BYTES_READ_AHEAD: usize = 256 * 1024;

/// A response whose header is written for the client, and whose body is still to be forwarded.
pub(super) struct UpstreamResponse {
    pub head: ResponseHead,
    /// The connection, with the bytes that arrived after the header.
    pub connection: UpstreamConnection,
}

/// A response whose header is written for the client, and whose body is being forwarded.
pub(super) struct ForwardedResponse<'c> {
    context: &'c ListenerContext,
    body: ResponseBody,
    is_connection_reusable: bool,
    /// The connection to the server; `None` once the server is free for other exchanges.
    connection: Option<UpstreamConnection>,
    permit: Option<ExchangePermit>,
    /// The bytes for the client that riskgate has read while the client read nothing.
    read_ahead: Vec<u8>,
    /// Counts the bytes that wait for the client; `None` if no bytes have waited.
    held: Option<HeldBytesGuard>,
    /// Why the response ended before it was complete; `None` if it has not.
    failure: Option<Failure>,
}

impl<'c> ForwardedResponse<'c> {
    pub(super) fn new(
        context: &'c ListenerContext,
        response: UpstreamResponse,
        permit: Option<ExchangePermit>,
    ) -> ForwardedResponse<'c> {
        ForwardedResponse {
            context,
            body: response.head.body,
            is_connection_reusable: response.head.is_connection_reusable,
            connection: Some(response.connection),
            permit,
            read_ahead: Vec::new(),
            held: None,
            failure: None,
        }
    }

    /// Sends the header of the response, and forwards its body to the client. Adds the bytes of the
    /// body to `ctx.response_bytes`. If the connection can be reused, puts the connection into the
    /// pool of idle connections.
    pub(super) async fn forward_to<C: ExchangeClient>(
        mut self,
        client: &mut C,
        deadline: &mut ExchangeDeadline,
        ctx: &mut RequestContext,
    ) -> Result<(), Failure> {
        let mut sent_bytes = 0;
        loop {
            deadline.restart_after_response_part();
            self.take_next_part(client.output());
            let is_last = self.read_ahead.is_empty();
            let latest_end = deadline.whole_end().map(Instant::from_std);
            let is_end = is_last && self.failure.is_none() && self.body.is_complete();
            // Chunks make what was read ahead a little longer than the body.
            let untaken_bytes = self.read_ahead.len() as u64;
            let taken_bytes = self.body.forwarded_bytes().saturating_sub(untaken_bytes);
            if !self.send_output(client, is_end, latest_end, ctx).await {
                return Err(Failure::Client);
            }
            ctx.response_bytes += taken_bytes.saturating_sub(sent_bytes);
            sent_bytes = taken_bytes.max(sent_bytes);
            self.release_taken_bytes(client);
            if let (Some(failure), true) = (self.failure, self.read_ahead.is_empty()) {
                return Err(failure);
            }
            if is_end {
                return self.free_server_at_end(client, latest_end, ctx).await;
            }
            let Some(connection) = self.connection.as_mut().filter(|_| self.read_ahead.is_empty())
            else {
                continue;
            };
            let read = tokio::select! {
                biased;
                () = client.wait_until_gone(true) => return Err(Failure::Client),
                read = deadline.wait_within(connection.read(BODY_READ_BYTES)) => read,
            };
            match read {
                Ok(Ok(0)) => {
                    self.finish_at_eof(client.output());
                    if let Some(failure) = self.failure {
                        return Err(failure);
                    }
                }
                Ok(Ok(1..)) => {}
                Ok(Err(_)) => return Err(Failure::BrokenResponse(MalformedResponse::Incomplete)),
                Err(DeadlinePassed) => return Err(Failure::TimedOut),
            }
        }
    }

    /// Frees the server once the whole response was passed on. If riskgate may not hold what the
    /// client has not taken, the exchange keeps its permit until the client has taken it.
    async fn free_server_at_end<C: ExchangeClient>(
        &mut self,
        client: &mut C,
        latest_end: Option<Instant>,
        ctx: &RequestContext,
    ) -> Result<(), Failure> {
        let unsent_bytes = client.unsent_bytes();
        if unsent_bytes > 0
            && !self.can_hold(unsent_bytes, ctx)
            && !client.wait_until_sent(latest_end).await
        {
            return Err(Failure::Client);
        }
        if let Some(held) = self.held.take() {
            client.keep_until_sent(held);
        }
        self.free_server();
        Ok(())
    }

    /// Sends the client the bytes in its output, and reads on during the send. If riskgate may not
    /// hold these bytes beside those that the client has not taken, the client has to take those
    /// first.
    async fn send_output<C: ExchangeClient>(
        &mut self,
        client: &mut C,
        is_end: bool,
        latest_end: Option<Instant>,
        ctx: &RequestContext,
    ) -> bool {
        let earlier_bytes = client.unsent_bytes();
        let unsent_bytes = earlier_bytes + client.output().len();
        let must_wait =
            earlier_bytes > 0 && !self.can_hold(unsent_bytes + self.read_ahead.len(), ctx);
        let sending = async {
            (!must_wait || client.wait_until_sent(latest_end).await)
                && client.send_output(is_end, latest_end).await
        };
        tokio::select! {
            biased;
            is_sent = sending => is_sent,
            never = self.read_while_client_waits(unsent_bytes, ctx) => match never {},
        }
    }

    /// Reads on, up to about [`MAX_BYTES_READ_AHEAD`], as long as the memory for waiting bytes
    /// allows. Frees the server once the response has ended or failed, and its waiting bytes fit.
    /// Never returns.
    async fn read_while_client_waits(
        &mut self,
        unsent_bytes: usize,
        ctx: &RequestContext,
    ) -> Infallible {
        loop {
            let waiting_bytes = unsent_bytes + self.read_ahead.len();
            let has_ended = self.body.is_complete() || self.failure.is_some();
            let is_free = has_ended && self.can_hold(waiting_bytes, ctx);
            if is_free {
                self.free_server();
            }
            let may_read = !self.body.is_complete()
                && self.failure.is_none()
                && self.read_ahead.len() < MAX_BYTES_READ_AHEAD
                && self.can_hold(waiting_bytes + BODY_READ_BYTES, ctx);
            let read = match &mut self.connection {
                Some(connection) if may_read => connection.read(BODY_READ_BYTES).await,
                _ => pending().await,
            };
            let mut read_ahead = std::mem::take(&mut self.read_ahead);
            match read {
                Ok(0) => self.finish_at_eof(&mut read_ahead),
                Ok(1..) => self.forward_arrived_bytes(&mut read_ahead),
                Err(_) => self.note_if_malformed(Err(MalformedResponse::Incomplete)),
            }
            self.read_ahead = read_ahead;
        }
    }

    /// Returns true if riskgate may hold this many bytes that wait for the client.
    fn can_hold(&mut self, bytes: usize, ctx: &RequestContext) -> bool {
        let gate = &self.context.gate;
        self.held.get_or_insert_with(|| gate.begin_held_body(ctx)).grow_to(bytes)
    }

    /// Counts only what still waits for the client, once the client has taken what was read ahead.
    fn release_taken_bytes<C: ExchangeClient>(&mut self, client: &C) {
        if self.read_ahead.is_empty()
            && let Some(held) = &mut self.held
        {
            self.read_ahead = Vec::new();
            held.shrink_to(client.unsent_bytes());
        }
    }

    /// Moves the next part for the client to `out`: a part of what was read ahead, or else what has
    /// arrived. Each part has the whole write timeout, so a part is short.
    fn take_next_part(&mut self, out: &mut Vec<u8>) {
        if self.read_ahead.is_empty() {
            return self.forward_arrived_bytes(out);
        }
        let length = self.read_ahead.len().min(BODY_READ_BYTES);
        out.extend(self.read_ahead.drain(..length));
    }

    /// Moves the part of the body that has arrived to `out`, in the form that the client gets.
    /// After a failure, what has arrived belongs to no body.
    fn forward_arrived_bytes(&mut self, out: &mut Vec<u8>) {
        let Some(connection) = self.connection.as_mut().filter(|_| self.failure.is_none()) else {
            return;
        };
        let taken = self.body.forward_arrived_bytes(&mut connection.arrived, out);
        self.note_if_malformed(taken);
    }

    fn finish_at_eof(&mut self, out: &mut Vec<u8>) {
        let finished = self.body.finish_at_eof(out);
        self.note_if_malformed(finished);
    }

    fn note_if_malformed(&mut self, result: Result<(), MalformedResponse>) {
        if let Err(malformed) = result {
            self.failure = Some(Failure::BrokenResponse(malformed));
        }
    }

    /// Gives up the permit and the connection. Other exchanges may use the connection if it is
    /// reusable.
    fn free_server(&mut self) {
        self.permit = None;
        let Some(connection) = self.connection.take() else { return };
        if self.is_connection_reusable && self.failure.is_none() {
            self.context.upstreams.return_to_idle_pool(connection);
        }
    }
}
