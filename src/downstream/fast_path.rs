//! The fast path over HTTP/1.1: from the bytes of plain requests to the bytes of their responses,
//! without Pingora's proxy. A plain request is a GET, HEAD or OPTIONS without a body and without a
//! field that only the Pingora path handles. The fast path takes a request with a short body as
//! well, if the request is for an upstream server.
//!
//! The fast path has no rules of its own: it uses the parser, the gates and the response writer of
//! the Pingora path. It answers a request at once if it can. It returns a request to its caller if
//! the request has to wait for the store, or is to be forwarded. It leaves every other request in
//! the buffer for the Pingora path, without side effects. It never reads from or writes to a
//! connection itself.

use super::small_body::SmallBody;
use crate::exchange::closes_after_response;
use crate::gate::{
    ConnectionFacts, Gate, GateDecision, Judgement, MatchedRoute, ParsedBytes, PlainHead,
    RequestContext, RequestParts, StartTime, UnchargedRoute, unix_seconds_now,
};
use crate::message::request_head::{RequestHead, RequestLimits, parse_request_head, takes_body};
use crate::message::response::{Reply, format_http_date};

/// Once the buffered responses have this many bytes, the caller sends them before the fast path
/// answers the next request.
const FLUSH_THRESHOLD_BYTES: usize = 16 * 1024;

/// The fast path of one connection.
pub struct FastPath {
    gate: Gate,
    request_limits: RequestLimits,
    connection: ConnectionFacts,
    date_cache: DateCache,
}

/// A request: its header, parsed and as bytes.
struct ParsedRequest<'r> {
    head: RequestHead<'r>,
    header: &'r [u8],
}

impl<'r> ParsedRequest<'r> {
    /// Returns the head as the gates read it.
    fn gate_head(&self) -> PlainHead<'_, 'r, ParsedBytes<'r>> {
        PlainHead {
            method: method_text(&self.head),
            target: self.head.request_line.target,
            known: &self.head.fields,
            fields: ParsedBytes(self.header),
        }
    }
}

/// A request that passed the gates before the quota, and has to wait for the store.
pub struct RequestWaitingForStore<'r> {
    request: ParsedRequest<'r>,
    parts: RequestParts<'r>,
    route: MatchedRoute<'r>,
    ctx: RequestContext,
}

/// A request for an upstream server. The request has passed the gates, or all but the quota if its
/// method takes a body.
pub struct RequestForUpstream {
    /// The state of the request.
    pub ctx: RequestContext,
    /// The length of the request's header, in bytes.
    pub header_length: usize,
    /// Whether the client wants the connection to close after the response.
    pub wants_close: bool,
    /// The body, and the route that is still to be charged. `None` if the method takes no body: the
    /// call is charged already.
    pub(super) uncharged: Option<(SmallBody, UnchargedRoute)>,
    /// Whether the header announces a body.
    pub announces_body: bool,
}

/// Where [`FastPath::answer_requests`] stopped in the requests that have arrived.
pub enum BatchEnd<'r> {
    /// The caller takes this action next.
    Next(NextAction),
    /// The next request, at the front of the bytes not consumed, has to wait for the store. The
    /// caller sends the buffered responses, then calls [`FastPath::answer_after_wait`]. If it could
    /// not send them, it calls [`FastPath::abandon_request`].
    WaitForStore(Box<RequestWaitingForStore<'r>>),
}

/// What the caller does next with the connection.
pub enum NextAction {
    /// Read more bytes: the buffer is empty, or has only an incomplete request.
    ReadMore,
    /// Send the buffered responses before answering more requests.
    Flush,
    /// Send the responses and close the connection, as the last response announces.
    Close,
    /// Forward this request, which is at the front of the bytes not consumed, to an upstream
    /// server.
    Proxy(Box<RequestForUpstream>),
    /// Send the buffered responses, and discard the body of a refused request.
    Discard(SmallBody),
    /// Fall back to the Pingora path with the bytes not consumed.
    Fallback,
}

impl FastPath {
    /// Creates the fast path of a connection.
    pub(crate) fn new(
        gate: Gate,
        request_limits: RequestLimits,
        connection: ConnectionFacts,
    ) -> FastPath {
        FastPath { gate, request_limits, connection, date_cache: DateCache::default() }
    }

    /// Creates the fast path of a connection of which nothing is known; for benches.
    #[doc(hidden)]
    pub fn for_plain_connection(gate: Gate, request_limits: RequestLimits) -> FastPath {
        FastPath::new(gate, request_limits, ConnectionFacts::default())
    }

    /// Returns the value of the `Date` field for the current second.
    pub fn date_header_value(&mut self) -> &[u8] {
        self.date_cache.format_at(unix_seconds_now())
    }

    /// Answers the plain requests at the front of `arrived` in order, and appends the responses to
    /// `out`. Returns the number of bytes consumed, and where and why this function stopped.
    pub fn answer_requests<'r>(
        &mut self,
        arrived: &'r [u8],
        out: &mut Vec<u8>,
    ) -> (usize, BatchEnd<'r>) {
        let mut consumed = 0;
        // All requests that this call begins get the same start time.
        let start = StartTime::now();
        while consumed < arrived.len() {
            let head = match parse_request_head(&arrived[consumed..], 0, &self.request_limits) {
                Ok(Some(head)) if head.may_take_fast_path() => head,
                Ok(None) => return (consumed, BatchEnd::Next(NextAction::ReadMore)),
                Ok(Some(_)) | Err(_) => return (consumed, BatchEnd::Next(NextAction::Fallback)),
            };
            if self.gate.is_asked_by_proxy(head.request_line.target) {
                return (consumed, BatchEnd::Next(NextAction::Fallback));
            }
            if takes_body(head.request_line.method) {
                let (length, action) =
                    self.begin_request_with_body(&arrived[consumed..], head, start, out);
                return (consumed + length, BatchEnd::Next(action));
            }
            let header = &arrived[consumed..consumed + head.head_length];
            let request = ParsedRequest { head, header };
            let gate_head = request.gate_head();
            let mut ctx = self.gate.begin_request(start, &self.connection, "HTTP/1.1", gate_head);
            let parts = self.gate.read_parts(gate_head);
            match self.gate.judge_without_wait(&parts, &mut ctx) {
                Judgement::Decided(GateDecision::Reply(reply)) => {
                    consumed += header.len();
                    if self.write_reply(&reply, &request, &mut ctx, false, out) {
                        return (consumed, BatchEnd::Next(NextAction::Close));
                    }
                }
                Judgement::Decided(GateDecision::Forward) => {
                    let request = Box::new(RequestForUpstream::new(&request.head, ctx));
                    return (consumed, BatchEnd::Next(NextAction::Proxy(request)));
                }
                Judgement::MustWait(route) => {
                    let waiting = Box::new(RequestWaitingForStore { request, parts, route, ctx });
                    return (consumed, BatchEnd::WaitForStore(waiting));
                }
            }
            if out.len() >= FLUSH_THRESHOLD_BYTES {
                return (consumed, BatchEnd::Next(NextAction::Flush));
            }
        }
        (consumed, BatchEnd::Next(NextAction::ReadMore))
    }

    /// Runs the gates before the quota for a request whose method takes a body. Returns the number
    /// of bytes consumed, and what the caller does next.
    fn begin_request_with_body(
        &mut self,
        arrived: &[u8],
        head: RequestHead<'_>,
        start: StartTime,
        out: &mut Vec<u8>,
    ) -> (usize, NextAction) {
        let (header, behind) = arrived.split_at(head.head_length);
        let max_bytes = self.request_limits.body_bytes;
        let Some(body) = SmallBody::find(head.body, behind, max_bytes) else {
            return (0, NextAction::Fallback);
        };
        let request = ParsedRequest { head, header };
        let gate_head = request.gate_head();
        let mut ctx = self.gate.begin_request(start, &self.connection, "HTTP/1.1", gate_head);
        let parts = self.gate.read_parts(gate_head);
        match self.gate.pass_gates_before_body(&parts, &mut ctx) {
            // The request is for no upstream server. The Pingora path answers it.
            None => (0, NextAction::Fallback),
            Some(Ok(route)) => {
                let mut request = RequestForUpstream::new(&request.head, ctx);
                request.uncharged = Some((body, route));
                (0, NextAction::Proxy(Box::new(request)))
            }
            Some(Err(reply)) => {
                let closes = self.write_reply(&reply, &request, &mut ctx, false, out);
                let next = if closes { NextAction::Close } else { NextAction::Discard(body) };
                (header.len(), next)
            }
        }
    }

    /// Waits for the store, at most `store.deadline`. Then answers the request like
    /// [`FastPath::answer_requests`], or lets the caller forward it. If the process is about to end
    /// after the wait, the connection closes after the response.
    pub async fn answer_after_wait(
        &mut self,
        waiting: RequestWaitingForStore<'_>,
        is_process_ending: impl Fn() -> bool,
        out: &mut Vec<u8>,
    ) -> (usize, NextAction) {
        let RequestWaitingForStore { request, parts, route, mut ctx } = waiting;
        match self.gate.judge_after_wait(route, &parts, &mut ctx).await {
            GateDecision::Reply(reply) => {
                let is_ending = is_process_ending();
                let closes = self.write_reply(&reply, &request, &mut ctx, is_ending, out);
                (request.header.len(), if closes { NextAction::Close } else { NextAction::Flush })
            }
            GateDecision::Forward => {
                (0, NextAction::Proxy(Box::new(RequestForUpstream::new(&request.head, ctx))))
            }
        }
    }

    /// Counts and logs a request for which riskgate does not wait for the store, because it could
    /// not send the earlier responses.
    pub fn abandon_request(&self, waiting: RequestWaitingForStore<'_>) {
        let RequestWaitingForStore { request, mut ctx, .. } = waiting;
        ctx.set_aborted_outcome();
        self.gate.count_and_log_on_fast_path(&ctx, request.gate_head());
    }

    /// Appends the response to `out`, and counts and logs the request. Returns true if the
    /// connection closes after the response.
    fn write_reply(
        &mut self,
        reply: &Reply,
        request: &ParsedRequest<'_>,
        ctx: &mut RequestContext,
        is_process_ending: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        let wants_close = request.head.fields.wants_close;
        let should_close = closes_after_response(Some(reply), wants_close, is_process_ending);
        let date = self.date_cache.format_at(ctx.started_unix_seconds());
        ctx.append_as_http1(reply, date, should_close, out);
        self.gate.count_and_log_on_fast_path(ctx, request.gate_head());
        should_close
    }
}

impl RequestForUpstream {
    fn new(head: &RequestHead<'_>, ctx: RequestContext) -> RequestForUpstream {
        RequestForUpstream {
            ctx,
            header_length: head.head_length,
            wants_close: head.fields.wants_close,
            uncharged: None,
            announces_body: head.announces_body(),
        }
    }
}

/// Returns the method, which is a token of ASCII characters.
fn method_text<'r>(head: &RequestHead<'r>) -> &'r str {
    match head.request_line.method {
        b"GET" => "GET",
        other => std::str::from_utf8(other).unwrap_or_default(),
    }
}

/// Keeps the value of the `Date` field for the second in which it is true.
#[derive(Default)]
struct DateCache {
    unix_second: i64,
    date_text: Option<[u8; 29]>,
}

impl DateCache {
    fn format_at(&mut self, unix_now: i64) -> &[u8] {
        if self.date_text.is_none() || self.unix_second != unix_now {
            self.unix_second = unix_now;
            self.date_text = format_http_date(unix_now).as_bytes().try_into().ok();
        }
        self.date_text.as_ref().map_or(b"", |text| text)
    }
}
