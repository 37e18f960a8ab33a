//! The fast path for plain requests: from request bytes to response bytes, without Pingora's proxy.
//!
//! It has no rules of its own: the parser, the gates and the response writer are those of the
//! Pingora path. It answers a request if that needs no I/O. If a request is to be forwarded, it
//! returns the request to its caller. It leaves every other request in the buffer for the Pingora
//! path, without side effects. It never reads from or writes to a connection itself.

use std::net::IpAddr;

use crate::gate::admission::OriginHeader;
use crate::gate::{Decision, Gate, RequestContext, RequestParts, StartTime};
use crate::message::request_head::{RequestHead, RequestLimits, parse_request_head};
use crate::message::response::RenderOptions;
use crate::model::refusal::Refusal;

/// If the buffered responses have at least this many bytes, they are sent before the next request
/// is answered.
const FLUSH_THRESHOLD_BYTES: usize = 16 * 1024;

/// The fast path of one connection; `S` are the upstream servers that it may forward to.
pub struct FastPath<S> {
    gate: Gate,
    sizes: RequestLimits,
    client: Option<IpAddr>,
    servers: Option<S>,
    date: DateCache,
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
    /// The client wants the connection to close after the response.
    pub wants_close: bool,
}

/// The caller's next action on the connection.
pub enum Action<S> {
    /// Read more bytes: the bytes not consumed are none, or an incomplete request.
    ReadMore,
    /// Send the buffered responses before answering more requests.
    Flush,
    /// Send the responses and close the connection, as the last response announces.
    Close,
    /// Forward the request at the front of the bytes not consumed to an upstream server.
    Proxy(S, Box<ProxyRequest>),
    /// Fall back to the Pingora path with the bytes not consumed.
    Fallback,
}

impl<S: Copy> FastPath<S> {
    /// Creates the fast path for a client. Without `servers` it falls back to the Pingora path for
    /// every request that is to be forwarded.
    pub fn new(
        gate: Gate,
        sizes: RequestLimits,
        client: Option<IpAddr>,
        servers: Option<S>,
    ) -> FastPath<S> {
        FastPath { gate, sizes, client, servers, date: DateCache::default() }
    }

    /// Returns the value of `Date` for the current second.
    pub fn date(&mut self) -> &[u8] {
        self.date.format_at(StartTime::now().unix_seconds())
    }

    /// Answers the plain requests at the front of `arrived` in order, and appends the responses to
    /// `out`. Returns the number of bytes consumed and the next action.
    pub fn answer_requests(&mut self, arrived: &[u8], out: &mut Vec<u8>) -> (usize, Action<S>) {
        let mut consumed = 0;
        // All requests in the buffer get the same start time.
        let start = StartTime::now();
        while consumed < arrived.len() {
            let head = match parse_request_head(&arrived[consumed..], 0, &self.sizes) {
                Ok(Some(head)) if head.is_plain() => head,
                Ok(None) => return (consumed, Action::ReadMore),
                Ok(Some(_)) | Err(_) => return (consumed, Action::Fallback),
            };
            let mut ctx = RequestContext::from(start);
            let Some(decision) = self.try_judge_request(&head, &mut ctx) else {
                return (consumed, Action::Fallback);
            };
            let wants_close = head.fields.wants_close;
            let reply = match (decision, self.servers) {
                (Decision::Reply(reply), _) => reply,
                (Decision::Forward, Some(servers)) => {
                    let request = Box::new(ProxyRequest::new(&head, ctx, wants_close));
                    return (consumed, Action::Proxy(servers, request));
                }
                (Decision::Forward, None) => {
                    self.gate.reply_to_refusal(&Refusal::UpstreamUnavailable, &mut ctx)
                }
            };
            consumed += head.length;
            let should_close = wants_close || reply.closes_connection();
            let options =
                RenderOptions { should_close, is_head_method: head.request_line.method == b"HEAD" };
            reply.render(
                &ctx.common_headers,
                self.date.format_at(start.unix_seconds()),
                options,
                out,
            );
            self.record_request(&ctx, plain_method(&head), head.request_line.target);
            if should_close {
                return (consumed, Action::Close);
            }
            if out.len() >= FLUSH_THRESHOLD_BYTES {
                return (consumed, Action::Flush);
            }
        }
        (consumed, Action::ReadMore)
    }

    /// Counts and logs a request that is over.
    pub fn record_request(&self, ctx: &RequestContext, method: &str, target: &[u8]) {
        self.gate.state().metrics.requests.fast_path_requests.inc();
        self.gate.record_request(ctx, method, target, self.client);
    }

    /// Runs the gates. Returns `None` if the Pingora path must serve the request; no call is spent
    /// then.
    fn try_judge_request(
        &self,
        head: &RequestHead<'_>,
        ctx: &mut RequestContext,
    ) -> Option<Decision> {
        let fields = &head.fields;
        let authorization_values = fields.authorization.into_iter();
        ctx.common_headers.request_id =
            self.gate.choose_request_id(fields.request_id, authorization_values);
        let request = RequestParts {
            method: plain_method(head),
            target: head.request_line.target,
            authorization: fields.authorization,
            origin: OriginHeader::read(fields.origin.into_iter()),
            is_preflight: false,
        };
        self.gate.try_judge_request(&request, ctx, self.servers.is_some())
    }
}

impl ProxyRequest {
    fn new(head: &RequestHead<'_>, ctx: RequestContext, wants_close: bool) -> ProxyRequest {
        let (method, target) = (plain_method(head), head.request_line.target.to_vec());
        ProxyRequest { ctx, header_length: head.length, method, target, wants_close }
    }
}

/// Returns the method of a plain request, which is GET or HEAD.
fn plain_method(head: &RequestHead<'_>) -> &'static str {
    if head.request_line.method == b"HEAD" { "HEAD" } else { "GET" }
}

/// Caches the text of `Date`, which changes once a second.
#[derive(Default)]
struct DateCache {
    second: i64,
    text: Option<[u8; 29]>,
}

impl DateCache {
    fn format_at(&mut self, unix_now: i64) -> &[u8] {
        if self.text.is_none() || self.second != unix_now {
            let since = std::time::Duration::from_secs(unix_now.cast_unsigned());
            let text = httpdate::fmt_http_date(std::time::UNIX_EPOCH + since);
            self.second = unix_now;
            self.text = text.as_bytes().try_into().ok();
        }
        self.text.as_ref().map_or(b"", |text| text)
    }
}
