//! The fast path for plain requests: from request bytes to response bytes, without Pingora's proxy.
//! A plain request is a GET, HEAD or OPTIONS over HTTP/1.1 without a body and without unusual
//! fields.
//!
//! The fast path has no rules of its own: the parser, the gates and the response writer are those
//! of the Pingora path. It answers a request at once if it can. If the request has to wait for the
//! store, or is to be forwarded, it returns the request to its caller. It leaves every other
//! request in the buffer for the Pingora path, without side effects. It never reads from or writes
//! to a connection itself.

use std::net::IpAddr;

use crate::gate::{Decision, Gate, MatchedRoute, RequestContext, RequestParts, StartTime};
use crate::message::request_head::{RequestHead, RequestLimits, parse_request_head};
use crate::message::response::{RenderOptions, Reply};

/// If the buffered responses have at least this many bytes, the caller sends them before the fast
/// path answers the next request.
const FLUSH_THRESHOLD_BYTES: usize = 16 * 1024;

/// The fast path of one connection.
pub struct FastPath {
    gate: Gate,
    request_limits: RequestLimits,
    client_address: Option<IpAddr>,
    date_cache: DateCache,
}

/// A request that passed the gates for key and origin, and has to wait for the store.
pub struct WaitingRequest<'r> {
    head: RequestHead<'r>,
    parts: RequestParts<'r>,
    route: MatchedRoute<'r>,
    ctx: RequestContext,
}

/// A request that passed the gates and is to be forwarded.
pub struct ProxyRequest {
    /// The state of the request.
    pub ctx: RequestContext,
    /// The length of its header, in bytes.
    pub header_length: usize,
    /// The method.
    pub method: &'static str,
    /// The target as the client sent it.
    pub target: Vec<u8>,
    /// Whether the client wants the connection to close after the response.
    pub wants_close: bool,
}

/// What the caller must do next with the connection, after [`FastPath::answer_requests`].
pub enum NextAction {
    /// Read more bytes: nothing is left in the buffer, or only an incomplete request.
    ReadMore,
    /// Send the buffered responses before answering more requests.
    Flush,
    /// Send the responses and close the connection, as the last response announces.
    Close,
    /// Forward a request to an upstream server. It is at the front of the bytes not consumed.
    Proxy(Box<ProxyRequest>),
    /// Fall back to the Pingora path with the bytes not consumed.
    Fallback,
}

impl FastPath {
    /// Creates the fast path for a client.
    pub fn new(
        gate: Gate,
        request_limits: RequestLimits,
        client_address: Option<IpAddr>,
    ) -> FastPath {
        FastPath { gate, request_limits, client_address, date_cache: DateCache::default() }
    }

    /// Returns the value of the `Date` field for the current second.
    pub fn date_header_value(&mut self) -> &[u8] {
        self.date_cache.format_at(StartTime::now().unix_seconds())
    }

    /// Answers the plain requests at the front of `arrived` in order, and appends the responses to
    /// `out`. Returns the number of bytes consumed and the next action. Returns a request that has
    /// to wait for the store as an error: send `out`, then call [`FastPath::answer_after_wait`].
    pub fn answer_requests<'r>(
        &mut self,
        arrived: &'r [u8],
        out: &mut Vec<u8>,
    ) -> (usize, Result<NextAction, Box<WaitingRequest<'r>>>) {
        let mut consumed = 0;
        // All requests in the buffer get the same start time.
        let start = StartTime::now();
        while consumed < arrived.len() {
            let head = match parse_request_head(&arrived[consumed..], 0, &self.request_limits) {
                Ok(Some(head)) if head.may_take_fast_path() => head,
                Ok(None) => return (consumed, Ok(NextAction::ReadMore)),
                Ok(Some(_)) | Err(_) => return (consumed, Ok(NextAction::Fallback)),
            };
            let mut ctx = RequestContext::from(start);
            let (method, target) = (plain_method(&head), head.request_line.target);
            let parts = self.gate.read_plain_request(method, target, &head.fields, &mut ctx);
            match self.gate.judge_without_wait(&parts, &mut ctx) {
                Ok(Decision::Reply(reply)) => {
                    consumed += head.head_length;
                    if self.write_reply(&reply, &head, &ctx, out) {
                        return (consumed, Ok(NextAction::Close));
                    }
                }
                Ok(Decision::Forward) => {
                    let request = Box::new(ProxyRequest::new(&head, ctx));
                    return (consumed, Ok(NextAction::Proxy(request)));
                }
                Err(route) => {
                    return (consumed, Err(Box::new(WaitingRequest { head, parts, route, ctx })));
                }
            }
            if out.len() >= FLUSH_THRESHOLD_BYTES {
                return (consumed, Ok(NextAction::Flush));
            }
        }
        (consumed, Ok(NextAction::ReadMore))
    }

    /// Waits for the store, at most `store.deadline`. Then answers the request like
    /// [`FastPath::answer_requests`], or returns it as one to forward.
    pub async fn answer_after_wait(
        &mut self,
        waiting: WaitingRequest<'_>,
        out: &mut Vec<u8>,
    ) -> (usize, NextAction) {
        let WaitingRequest { head, parts, route, mut ctx } = waiting;
        match self.gate.judge_after_wait(route, &parts, &mut ctx).await {
            Decision::Reply(reply) => {
                let closes = self.write_reply(&reply, &head, &ctx, out);
                (head.head_length, if closes { NextAction::Close } else { NextAction::Flush })
            }
            Decision::Forward => (0, NextAction::Proxy(Box::new(ProxyRequest::new(&head, ctx)))),
        }
    }

    /// Counts and logs a request whose client left before the request could wait.
    pub fn abandon_request(&self, waiting: WaitingRequest<'_>) {
        let WaitingRequest { head, mut ctx, .. } = waiting;
        ctx.set_aborted_outcome();
        self.count_and_log_request(&ctx, plain_method(&head), head.request_line.target);
    }

    /// Appends the response to `out`, and counts and logs the request. Returns true if the
    /// connection closes after the response.
    fn write_reply(
        &mut self,
        reply: &Reply,
        head: &RequestHead<'_>,
        ctx: &RequestContext,
        out: &mut Vec<u8>,
    ) -> bool {
        let method = plain_method(head);
        let should_close = head.fields.wants_close || reply.closes_connection();
        let options = RenderOptions { should_close, is_head_method: method == "HEAD" };
        let date = self.date_cache.format_at(ctx.started_unix_seconds());
        reply.append_as_http1(&ctx.common_headers, date, options, out);
        self.count_and_log_request(ctx, method, head.request_line.target);
        should_close
    }

    /// Counts a finished request in the metrics, also as one of the fast path, and writes its line
    /// to the access log.
    pub fn count_and_log_request(&self, ctx: &RequestContext, method: &str, target: &[u8]) {
        self.gate.state().metrics.requests.fast_path_requests.inc();
        self.gate.count_and_log_request(ctx, method, target, self.client_address);
    }
}

impl ProxyRequest {
    fn new(head: &RequestHead<'_>, ctx: RequestContext) -> ProxyRequest {
        ProxyRequest {
            ctx,
            header_length: head.head_length,
            method: plain_method(head),
            target: head.request_line.target.to_vec(),
            wants_close: head.fields.wants_close,
        }
    }
}

/// Returns the method of a plain request.
fn plain_method(head: &RequestHead<'_>) -> &'static str {
    match head.request_line.method {
        b"HEAD" => "HEAD",
        b"OPTIONS" => "OPTIONS",
        _ => "GET",
    }
}

/// Caches the value of the `Date` field, which changes once a second.
#[derive(Default)]
struct DateCache {
    unix_second: i64,
    date_text: Option<[u8; 29]>,
}

impl DateCache {
    fn format_at(&mut self, unix_now: i64) -> &[u8] {
        if self.date_text.is_none() || self.unix_second != unix_now {
            let since = std::time::Duration::from_secs(unix_now.cast_unsigned());
            let text = httpdate::fmt_http_date(std::time::UNIX_EPOCH + since);
            self.unix_second = unix_now;
            self.date_text = text.as_bytes().try_into().ok();
        }
        self.date_text.as_ref().map_or(b"", |text| text)
    }
}
