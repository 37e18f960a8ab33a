//! The client's side of an exchange.

use std::future::Future;

use tokio::time::Instant;

use crate::gate::RequestContext;
use crate::message::response::Reply;
use crate::proxy::upstream::ClientHeader;

/// The client of an exchange: a connection of HTTP/1.1, or a stream of HTTP/2. `should_close` is
/// for HTTP/1.1 alone: a connection of HTTP/2 ends with GOAWAY.
pub trait ExchangeClient: Send {
    /// The header of a response.
    type Header: ClientHeader;

    /// Returns the header of a response, without a field.
    fn begin_header(&mut self) -> Self::Header;

    /// Waits until the client gives up its request. Over HTTP/1.1, a client that closes its sending
    /// side may still wait for the response: see
    /// [`ClientCloseWatch`](super::client_close_watch::ClientCloseWatch). Unless `with_timer`, this
    /// notices only what the connection tells by itself, as HTTP/2 does.
    fn wait_until_gone(&mut self, with_timer: bool) -> impl Future<Output = ()> + Send;

    /// Sets the header of a server's response, which is sent with the first bytes of the body.
    fn set_response_header(&mut self, header: Self::Header, should_close: bool);

    /// The bytes of the response that are sent next; the caller appends the body.
    fn output(&mut self) -> &mut Vec<u8>;

    /// Sends the bytes in [`ExchangeClient::output`], until `latest_end` if there is one. Ends the
    /// response if `is_end`. Returns false if the client has left or does not read.
    fn send_output(
        &mut self,
        is_end: bool,
        latest_end: Option<Instant>,
    ) -> impl Future<Output = bool> + Send;

    /// Sends a whole response of riskgate. Returns false if the client has left or does not read.
    fn send_reply(
        &mut self,
        reply: &Reply,
        should_close: bool,
        ctx: &mut RequestContext,
    ) -> impl Future<Output = bool> + Send;
}
