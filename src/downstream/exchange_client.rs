//! The client's side of an exchange.

use std::future::{Future, ready};

use tokio::time::Instant;

use crate::gate::{HeldBytesGuard, RequestContext};
use crate::message::response::Reply;
use crate::proxy::upstream::ClientResponseHeader;

/// The client of an exchange: a connection of HTTP/1.1, or a stream of HTTP/2. Only HTTP/1.1 uses
/// `should_close`: a connection of HTTP/2 ends with GOAWAY.
pub trait ExchangeClient: Send {
    /// The header of a response.
    type Header: ClientResponseHeader;

    /// Returns an empty header for a response.
    fn begin_header(&mut self) -> Self::Header;

    /// Waits until the client has given up its request. Over HTTP/1.1,
    /// [`ClientCloseWatch`](super::client_close_watch::ClientCloseWatch) decides that, by a timer.
    /// Without `with_timer`, this method never notices that a client of HTTP/1.1 has left. A stream
    /// of HTTP/2 needs no timer.
    fn wait_until_gone(&mut self, with_timer: bool) -> impl Future<Output = ()> + Send;

    /// Called if the exchange goes on although the client has left.
    fn go_on_without_client(&self) {}

    /// Sets the header of a server's response. The next [`ExchangeClient::send_output`] sends the
    /// header, before the part of the body that has arrived.
    fn set_response_header(&mut self, header: Self::Header, should_close: bool);

    /// The bytes of the response that are sent next. The caller appends the body to them.
    fn output(&mut self) -> &mut Vec<u8>;

    /// Sends the bytes in [`ExchangeClient::output`], at most until `latest_end`. Ends the response
    /// if `is_end`. Returns false if the client has left or does not read.
    fn send_output(
        &mut self,
        is_end: bool,
        latest_end: Option<Instant>,
    ) -> impl Future<Output = bool> + Send;

    /// Returns the bytes of the response that riskgate has passed on, and that wait in memory until
    /// the client takes them; 0 if they are so few that they need not count. Over HTTP/1.1, no
    /// such bytes exist: the kernel has what is sent.
    fn unsent_bytes(&self) -> usize {
        0
    }

    /// Waits until the client has taken what [`ExchangeClient::unsent_bytes`] counts, at most until
    /// `latest_end`. Returns false, and resets the stream, if the client does not read.
    fn wait_until_sent(
        &mut self,
        _latest_end: Option<Instant>,
    ) -> impl Future<Output = bool> + Send {
        ready(true)
    }

    /// Keeps the guard that counts the unsent bytes until they are sent.
    fn keep_until_sent(&mut self, _held: HeldBytesGuard) {}

    /// Sends a whole response of riskgate. Returns false if the client has left or does not read.
    fn send_reply(
        &mut self,
        reply: &Reply,
        should_close: bool,
        ctx: &mut RequestContext,
    ) -> impl Future<Output = bool> + Send;
}
