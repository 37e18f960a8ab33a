//! The fast path for plain requests: from request bytes to response bytes, without Pingora's proxy.
//! A plain request is a GET or HEAD over HTTP/1.1 without a body and without unusual fields.
//!
//! The fast path has no rules of its own: the parser, the gates and the response writer are those
//! of the Pingora path. It answers a request if that needs no I/O. If a request is to be forwarded,
//! it returns the request to its caller. It leaves every other request in the buffer for the
//! Pingora path, without side effects. It never reads from or writes to a connection itself.

use std::net::IpAddr;

use crate::gate::admission::OriginHeader;
use crate::gate::{Decision, Gate, RequestContext, RequestParts, StartTime};
use crate::message::request_head::{RequestHead, RequestLimits, parse_request_head};
use crate::message::response::RenderOptions;
use crate::model::refusal::Refusal;

/// If the buffered responses have at least this many bytes, the caller sends them before the fast
/// path answers the next request.
const FLUSH_THRESHOLD_BYTES: usize = 16 * 1024;

/// The fast path of one connection. `S` is the caller's reference to the upstream servers to which
/// requests may be forwarded.
pub struct FastPath<S> {
    gate: Gate,
    request_limits: RequestLimits,
    client_address: Option<IpAddr>,
    servers: Option<S>,
    date_cache: DateCache,
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
pub enum NextAction<S> {
    /// Read more bytes: nothing is left in the buffer, or only an incomplete request.
    ReadMore,
    /// Send the buffered responses before answering more requests.
    Flush,
    /// Send the responses and close the connection, as the last response announces.
    Close,
    /// Forward a request to an upstream server. It is at the front of the bytes not consumed.
    Proxy(S, Box<ProxyRequest>),
    /// Fall back to the Pingora path with the bytes not consumed.
    Fallback,
}

impl<S: Copy> FastPath<S> {
    /// Creates the fast path for a client. If `servers` is `None`, every request that is to be
    /// forwarded falls back to the Pingora path.
    pub fn new(
        gate: Gate,
        request_limits: RequestLimits,
        client_address: Option<IpAddr>,
        servers: Option<S>,
    ) -> FastPath<S> {
        FastPath { gate, request_limits, client_address, servers, date_cache: DateCache::default() }
    }

    /// Returns the value of the `Date` field for the current second.
    pub fn date_header_value(&mut self) -> &[u8] {
        self.date_cache.format_at(StartTime::now().unix_seconds())
    }

    /// Answers the plain requests at the front of `arrived` in order, and appends the responses to
    /// `out`. Returns the number of bytes consumed and the next action.
    pub fn answer_requests(&mut self, arrived: &[u8], out: &mut Vec<u8>) -> (usize, NextAction<S>) {
        let mut consumed = 0;
        // All requests in the buffer get the same start time.
        let start = StartTime::now();
        while consumed < arrived.len() {
            let head = match parse_request_head(&arrived[consumed..], 0, &self.request_limits) {
                Ok(Some(head)) if head.may_take_fast_path() => head,
                Ok(None) => return (consumed, NextAction::ReadMore),
                Ok(Some(_)) | Err(_) => return (consumed, NextAction::Fallback),
            };
            let mut ctx = RequestContext::from(start);
            let Some(decision) = self.try_judge_request(&head, &mut ctx) else {
                return (consumed, NextAction::Fallback);
            };
            let wants_close = head.fields.wants_close;
            let reply = match (decision, self.servers) {
                (Decision::Reply(reply), _) => reply,
                (Decision::Forward, Some(servers)) => {
                    let request = Box::new(ProxyRequest::new(&head, ctx, wants_close));
                    return (consumed, NextAction::Proxy(servers, request));
                }
                (Decision::Forward, None) => {
                    self.gate.finish_with_refusal(&Refusal::UpstreamUnavailable, &mut ctx)
                }
            };
            consumed += head.head_length;
            let should_close = wants_close || reply.closes_connection();
            let options =
                RenderOptions { should_close, is_head_method: head.request_line.method == b"HEAD" };
            reply.append_as_http1(
                &ctx.common_headers,
                self.date_cache.format_at(start.unix_seconds()),
                options,
                out,
            );
            self.count_and_log_request(&ctx, get_or_head(&head), head.request_line.target);
            if should_close {
                return (consumed, NextAction::Close);
            }
            if out.len() >= FLUSH_THRESHOLD_BYTES {
                return (consumed, NextAction::Flush);
            }
        }
        (consumed, NextAction::ReadMore)
    }

    /// Counts a finished request in the metrics, also as one of the fast path, and writes its line
    /// to the access log.
    pub fn count_and_log_request(&self, ctx: &RequestContext, method: &str, target: &[u8]) {
        self.gate.state().metrics.requests.fast_path_requests.inc();
        self.gate.count_and_log_request(ctx, method, target, self.client_address);
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
            self.gate.accept_or_generate_request_id(fields.request_id, authorization_values);
        let request = RequestParts {
            method: get_or_head(head),
            target: head.request_line.target,
            authorization: fields.authorization,
            origin: OriginHeader::read(fields.origin.into_iter()),
            has_cors_request_method: false,
        };
        self.gate.try_judge_request(&request, ctx, self.servers.is_some())
    }
}

impl ProxyRequest {
    fn new(head: &RequestHead<'_>, ctx: RequestContext, wants_close: bool) -> ProxyRequest {
        let (method, target) = (get_or_head(head), head.request_line.target.to_vec());
        ProxyRequest { ctx, header_length: head.head_length, method, target, wants_close }
    }
}

/// Returns the method of a plain request, which is GET or HEAD.
fn get_or_head(head: &RequestHead<'_>) -> &'static str {
    if head.request_line.method == b"HEAD" { "HEAD" } else { "GET" }
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
