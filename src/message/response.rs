//! The one writer of answers: status, headers and body of everything that riskgate says itself.
//!
//! Owns the names and the order of our headers, once for all protocols and both ways to answer. It
//! decides nothing; who calls it has decided.

pub(crate) mod header_value;

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::{HeaderValue, VARY};
use pingora_core::Result;
use pingora_http::ResponseHeader;
use pingora_proxy::Session;
use smol_str::SmolStr;

use crate::message::request_id::RequestId;
use crate::model::refusal::Refusal;
use crate::model::verdict::VerdictSource;
use crate::quota::Allowance;

pub(crate) use header_value::Field;
use header_value::Short;
pub use header_value::{X_FAIL_OPEN, X_REQUEST_ID, X_RISKGATE_SOURCE};

const EXPOSED: &str = "RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, X-Fail-Open, \
                       X-Table-Version, X-Matched-Domain, X-Verdict-Source, X-Did-You-Mean";
const PREFLIGHT_HEADERS: &str = "Authorization, Content-Type, Traceparent, X-Request-Id";

/// What browsers of another origin may read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cors {
    /// The answer does not depend on the origin.
    #[default]
    Indifferent,
    /// It does, and this request's origin may not read it, or there was none.
    Closed,
    /// This origin may read it.
    Open(SmolStr),
}

/// What every answer to one request carries, whatever the answer is.
#[derive(Clone, Debug, Default)]
pub struct Common {
    /// The request's id.
    pub request_id: RequestId,
    /// Which browsers may read it.
    pub cors: Cors,
    /// What the caller may still spend.
    pub allowance: Option<Allowance>,
}

/// An answer of our own.
pub struct Reply {
    status: u16,
    body: Bytes,
    more: More,
    fails_open: bool,
    closes: bool,
}

/// What an answer says beside what all of them say.
enum More {
    Nothing,
    Verdict(VerdictFacts),
    /// How to come in.
    Challenge,
    /// The methods that there are.
    Allow(SmolStr),
    /// Seconds until a quota starts anew.
    RetryAfter(u64),
    /// The methods that another origin may use.
    Preflight(SmolStr),
}

/// What the headers of a verdict say of it.
pub struct VerdictFacts {
    /// The table's version.
    version: Short<16>,
    source: VerdictSource,
    /// Where in the body the parent stands that matched.
    matched: Option<Range<usize>>,
    /// The provider that was probably meant.
    suggestion: Option<SmolStr>,
}

impl VerdictFacts {
    /// `matched` is where in the body the parent stands that matched, if one did.
    pub fn new(
        table_version: &str,
        source: VerdictSource,
        matched: Option<Range<usize>>,
        suggestion: Option<SmolStr>,
    ) -> VerdictFacts {
        VerdictFacts { version: Short::of(table_version), source, matched, suggestion }
    }
}

impl Reply {
    fn new(status: u16, body: Bytes, more: More) -> Reply {
        Reply { status, body, more, fails_open: false, closes: false }
    }

    /// 200 with a JSON body.
    pub fn json(body: Bytes) -> Reply {
        Reply::new(200, body, More::Nothing)
    }

    /// The verdict on a domain.
    pub fn verdict(body: Bytes, facts: VerdictFacts) -> Reply {
        Reply::new(200, body, More::Verdict(facts))
    }

    /// A refusal, with the headers that belong to it.
    pub fn refusal(refusal: &Refusal) -> Reply {
        let more = match refusal {
            Refusal::Unauthorized => More::Challenge,
            Refusal::MethodNotAllowed { allow } => More::Allow(allow.clone()),
            Refusal::QuotaExceeded { retry_after, .. } => More::RetryAfter(*retry_after),
            Refusal::BadRequest
            | Refusal::Forbidden { .. }
            | Refusal::NotFound
            | Refusal::UriTooLong
            | Refusal::ExpectationFailed
            | Refusal::InvalidDomain(_)
            | Refusal::InvalidTarget(_)
            | Refusal::HeadersTooLarge
            | Refusal::Internal
            | Refusal::UpstreamUnavailable
            | Refusal::UpstreamTimeout => More::Nothing,
        };
        let mut reply = Reply::new(refusal.status(), Bytes::from(refusal.body()), more);
        (reply.fails_open, reply.closes) = (refusal.fails_open(), refusal.closes());
        reply
    }

    /// 204 to an OPTIONS request that is no preflight.
    pub fn options(allow: SmolStr) -> Reply {
        Reply::new(204, Bytes::new(), More::Allow(allow))
    }

    /// The answer to a preflight: 204 if some key allows the origin, 403 otherwise.
    pub fn preflight(allowed: bool, allow: SmolStr) -> Reply {
        match allowed {
            true => Reply::new(204, Bytes::new(), More::Preflight(allow)),
            false => Reply::new(403, Bytes::new(), More::Nothing),
        }
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the connection closes behind it.
    pub fn closes(&self) -> bool {
        self.closes
    }

    /// Every field, in order.
    fn fields(&self, common: &Common, put: &mut impl FnMut(&Field, &[u8])) {
        if self.status != 204 {
            if !self.body.is_empty() {
                put(&header_value::CONTENT_TYPE, b"application/json");
            }
            put(&header_value::CONTENT_LENGTH, Short::<20>::number(self.body.len() as u64).bytes());
        }
        put(&header_value::CACHE_CONTROL, b"no-store");
        match &self.more {
            More::Nothing => {}
            More::Verdict(facts) => {
                put(&header_value::X_TABLE_VERSION, facts.version.bytes());
                let matched = facts.matched.as_ref();
                if let Some(parent) = matched.and_then(|at| self.body.get(at.clone())) {
                    put(&header_value::X_MATCHED_DOMAIN, parent);
                }
                put(&header_value::X_VERDICT_SOURCE, facts.source.as_str().as_bytes());
                if let Some(provider) = &facts.suggestion {
                    put(&header_value::X_DID_YOU_MEAN, provider.as_bytes());
                }
            }
            More::Challenge => put(&header_value::WWW_AUTHENTICATE, br#"Bearer realm="riskgate""#),
            More::Allow(methods) => put(&header_value::ALLOW, methods.as_bytes()),
            More::RetryAfter(seconds) => {
                put(&header_value::RETRY_AFTER, Short::<20>::number(*seconds).bytes());
            }
            More::Preflight(methods) => {
                put(&header_value::ALLOW_METHODS, methods.as_bytes());
                put(&header_value::ALLOW_HEADERS, PREFLIGHT_HEADERS.as_bytes());
                put(&header_value::MAX_AGE, b"600");
            }
        }
        if self.fails_open {
            put(&header_value::FAIL_OPEN, b"true");
        }
        common.fields(put);
    }

    /// The header, as every protocol version needs it.
    pub fn header(&self, common: &Common) -> ResponseHeader {
        let (mut parts, ()) = http::Response::new(()).into_parts();
        parts.status = StatusCode::from_u16(self.status).unwrap_or_default();
        parts.headers.reserve(16);
        // All values lie in one block.
        let mut block = BytesMut::with_capacity(512);
        self.fields(common, &mut |field, value| {
            block.extend_from_slice(value);
            // Our own values are visible ASCII; what is not would be our fault and is left out.
            if let Ok(value) = HeaderValue::from_maybe_shared(block.split().freeze()) {
                parts.headers.append(&field.name, value);
            }
        });
        ResponseHeader::from(parts)
    }

    /// Writes the answer; the body is left out for HEAD.
    pub async fn write(&self, session: &mut Session, common: &Common) -> Result<()> {
        let header = Box::new(self.header(common));
        let head = session.req_header().method == http::Method::HEAD;
        let body = if head { Bytes::new() } else { self.body.clone() };
        if self.closes {
            session.set_keepalive(None);
        }
        let client = session.as_downstream_mut();
        let written = async {
            client.write_response_header(header).await?;
            client.write_response_body(body, true).await
        };
        // Who does not take an answer has failed, not we.
        written.await.map_err(|error| error.into_down())
    }

    /// Appends the whole answer as HTTP/1.1 bytes, as Pingora would write them; the body is left
    /// out for HEAD. `date` is what `Date` says (RFC 9110 section 5.6.7).
    pub fn render(&self, common: &Common, date: &[u8], way: Way, out: &mut Vec<u8>) {
        write_status(self.status, out);
        self.fields(common, &mut |field, value| field.write(value, out));
        write_end(date, way.closes, out);
        if !way.is_head {
            out.extend_from_slice(&self.body);
        }
    }
}

/// Appends the first line of an answer.
pub(crate) fn write_status(status: u16, out: &mut Vec<u8>) {
    if status == 200 {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    let status = StatusCode::from_u16(status).unwrap_or_default();
    let reason = status.canonical_reason().unwrap_or("");
    for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Appends what every header ends with.
pub(crate) fn write_end(date: &[u8], closes: bool, out: &mut Vec<u8>) {
    header_value::DATE.write(date, out);
    header_value::CONNECTION.write(if closes { b"close" } else { b"keep-alive" }, out);
    out.extend_from_slice(b"\r\n");
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// The connection closes behind it.
    pub closes: bool,
    /// To a HEAD request.
    pub is_head: bool,
}

impl Common {
    /// Every field of it, in order.
    pub(crate) fn fields(&self, put: &mut impl FnMut(&Field, &[u8])) {
        put(&header_value::REQUEST_ID, self.request_id.as_bytes());
        if let Some(Allowance { limit, remaining, reset_in }) = self.allowance {
            let mut policy = Short::<64>::of("\"monthly\";q=");
            put(&header_value::RATELIMIT_POLICY, policy.add_number(limit).bytes());
            let mut left = Short::<64>::of("\"monthly\";r=");
            left.add_number(remaining).add(";t=").add_number(reset_in);
            put(&header_value::RATELIMIT, left.bytes());
        }
        match &self.cors {
            Cors::Indifferent => return,
            Cors::Closed => {}
            Cors::Open(origin) => {
                put(&header_value::ALLOW_ORIGIN, origin.as_bytes());
                put(&header_value::EXPOSE_HEADERS, EXPOSED.as_bytes());
            }
        }
        put(&header_value::VARY_BY, b"Origin");
    }

    /// Puts onto the upstream's header what every answer carries.
    pub fn apply(&self, header: &mut ResponseHeader) -> Result<()> {
        let mut written = Ok(());
        self.fields(&mut |field, value| {
            if let Err(error) = insert(header, field, value) {
                written = Err(error);
            }
        });
        written
    }
}

/// `Vary` is added to what the upstream says; all others are ours alone.
fn insert(header: &mut ResponseHeader, field: &Field, value: &[u8]) -> Result<()> {
    // Our own values are visible ASCII; what is not would be our fault and is left out.
    let Ok(value) = HeaderValue::from_bytes(value) else { return Ok(()) };
    match field.name == VARY {
        true => header.append_header(&field.name, value).map(drop),
        false => header.insert_header(&field.name, value),
    }
}
