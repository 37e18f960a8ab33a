//! The short way for plain requests: from bytes to bytes, without Pingora's proxy.
//!
//! It has no rule of its own: the header is read as at the door, the gates judge as in the filter,
//! and the reply is written by the same hand. It answers what a look into memory answers, says what
//! may cross, and leaves everything else where it lies, with nothing done about it. It knows no
//! connection.

use std::net::IpAddr;

use crate::gate::admission::OriginHeader;
use crate::gate::{Decision, Gate, GateRequest, RequestContext, StartTime};
use crate::message::request_head::{RequestHead, RequestLimits, parse_request_head};
use crate::message::response::RenderOptions;
use crate::model::refusal::Refusal;

/// Bytes of answers that are gathered before they are sent.
const FLUSH_THRESHOLD: usize = 16 * 1024;

/// The lane of one connection, with a way to servers if there is one.
pub struct FastPath<S> {
    gate: Gate,
    sizes: RequestLimits,
    client: Option<IpAddr>,
    servers: Option<S>,
    date: DateCache,
}

/// A request that may go on to a server: it has passed the gates.
pub struct ProxyRequest {
    /// What is known of it.
    pub visit: RequestContext,
    /// Bytes of its header.
    pub header_length: usize,
    /// Its method.
    pub method: &'static str,
    /// Its target as it came.
    pub target: Vec<u8>,
    /// Its client wants the connection to close behind the answer.
    pub closes: bool,
}

/// What comes next on the connection.
pub enum Action<S> {
    /// More requests, of which perhaps a part is here.
    ReadMore,
    /// Sending, before there are more answers.
    Flush,
    /// The end: the last answer says so.
    Close,
    /// One of the servers: what is left begins with a request that crosses.
    Proxy(S, Box<ProxyRequest>),
    /// The Pingora path: what is left is not for the lane.
    Fallback,
}

impl<S: Copy> FastPath<S> {
    /// A lane for this client; without servers what may go on to one is handed over.
    pub fn new(
        gate: Gate,
        sizes: RequestLimits,
        client: Option<IpAddr>,
        servers: Option<S>,
    ) -> FastPath<S> {
        FastPath { gate, sizes, client, servers, date: DateCache::default() }
    }

    /// What `Date` says now.
    pub fn date(&mut self) -> &[u8] {
        self.date.format_at(StartTime::now().unix_seconds())
    }

    /// Answers the plain requests at the front of what has arrived, each in its turn. How many
    /// bytes they were, and what comes next; the answers are appended to `out`.
    pub fn answer_requests(&mut self, arrived: &[u8], out: &mut Vec<u8>) -> (usize, Action<S>) {
        let mut consumed = 0;
        // What came together came now.
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
            let wants_end = head.fields.closes;
            let reply = match (decision, self.servers) {
                (Decision::Reply(reply), _) => reply,
                (Decision::Forward, Some(servers)) => {
                    let request = Box::new(ProxyRequest::new(&head, ctx, wants_end));
                    return (consumed, Action::Proxy(servers, request));
                }
                (Decision::Forward, None) => {
                    self.gate.reply_to_refusal(&Refusal::UpstreamUnavailable, &mut ctx)
                }
            };
            consumed += head.length;
            let closes = wants_end || reply.closes();
            let options = RenderOptions {
                should_close: closes,
                is_head_method: head.request_line.method == b"HEAD",
            };
            reply.render(
                &ctx.common_headers,
                self.date.format_at(start.unix_seconds()),
                options,
                out,
            );
            self.record_request(&ctx, method_of(&head), head.request_line.target);
            if closes {
                return (consumed, Action::Close);
            }
            if out.len() >= FLUSH_THRESHOLD {
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

    /// What was decided; `None` if it is not for the lane, and then nothing was done.
    fn try_judge_request(
        &self,
        head: &RequestHead<'_>,
        ctx: &mut RequestContext,
    ) -> Option<Decision> {
        let fields = &head.fields;
        let authorization_values = fields.authorization.into_iter();
        ctx.common_headers.request_id =
            self.gate.request_id(fields.request_id, authorization_values);
        let request = GateRequest {
            method: method_of(head),
            target: head.request_line.target,
            authorization: fields.authorization,
            origin: OriginHeader::read(fields.origin.into_iter()),
            is_preflight: false,
        };
        self.gate.try_judge_request(&request, ctx, self.servers.is_some())
    }
}

impl ProxyRequest {
    fn new(head: &RequestHead<'_>, ctx: RequestContext, closes: bool) -> ProxyRequest {
        let (method, target) = (method_of(head), head.request_line.target.to_vec());
        ProxyRequest { visit: ctx, header_length: head.length, method, target, closes }
    }
}

/// The method of a plain request.
fn method_of(head: &RequestHead<'_>) -> &'static str {
    if head.request_line.method == b"HEAD" { "HEAD" } else { "GET" }
}

/// The value of `Date`, which changes once a second.
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
