//! The one writer of answers: status, headers and body of everything that riskgate says itself.
//!
//! Owns the names and the order of our headers, once for all protocols and both ways to answer. It
//! decides nothing; who calls it has decided.

pub(crate) mod header_field;

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

use header_field::FixedString;
pub(crate) use header_field::HeaderField;
pub use header_field::{X_FAIL_OPEN, X_REQUEST_ID, X_RISKGATE_SOURCE};

const EXPOSED_HEADERS: &str = "RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, X-Fail-Open, \
                       X-Table-Version, X-Matched-Domain, X-Verdict-Source, X-Did-You-Mean";
const PREFLIGHT_HEADERS: &str = "Authorization, Content-Type, Traceparent, X-Request-Id";

/// What browsers of another origin may read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cors {
    /// The answer does not depend on the origin.
    #[default]
    NotOriginDependent,
    /// It does, and this request's origin may not read it, or there was none.
    Denied,
    /// This origin may read it.
    Allowed(SmolStr),
}

/// What every answer to one request carries, whatever the answer is.
#[derive(Clone, Debug, Default)]
pub struct CommonHeaders {
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
    extra_headers: ExtraHeaders,
    fails_open: bool,
    should_close: bool,
}

/// What an answer says beside what all of them say.
enum ExtraHeaders {
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
    version: FixedString<16>,
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
        VerdictFacts { version: FixedString::new(table_version), source, matched, suggestion }
    }
}

impl Reply {
    fn new(status: u16, body: Bytes, extra_headers: ExtraHeaders) -> Reply {
        Reply { status, body, extra_headers, fails_open: false, should_close: false }
    }

    /// 200 with a JSON body.
    pub fn json(body: Bytes) -> Reply {
        Reply::new(200, body, ExtraHeaders::Nothing)
    }

    /// The verdict on a domain.
    pub fn verdict(body: Bytes, facts: VerdictFacts) -> Reply {
        Reply::new(200, body, ExtraHeaders::Verdict(facts))
    }

    /// A refusal, with the headers that belong to it.
    pub fn refusal(refusal: &Refusal) -> Reply {
        let more = match refusal {
            Refusal::Unauthorized => ExtraHeaders::Challenge,
            Refusal::MethodNotAllowed { allow } => ExtraHeaders::Allow(allow.clone()),
            Refusal::QuotaExceeded { retry_after, .. } => ExtraHeaders::RetryAfter(*retry_after),
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
            | Refusal::UpstreamTimeout => ExtraHeaders::Nothing,
        };
        let mut reply = Reply::new(refusal.status(), Bytes::from(refusal.body()), more);
        (reply.fails_open, reply.should_close) =
            (refusal.is_fail_open(), refusal.closes_connection());
        reply
    }

    /// 204 to an OPTIONS request that is no preflight.
    pub fn options_without_preflight(allow: SmolStr) -> Reply {
        Reply::new(204, Bytes::new(), ExtraHeaders::Allow(allow))
    }

    /// The answer to a preflight: 204 if some key allows the origin, 403 otherwise.
    pub fn preflight(allowed: bool, allow: SmolStr) -> Reply {
        match allowed {
            true => Reply::new(204, Bytes::new(), ExtraHeaders::Preflight(allow)),
            false => Reply::new(403, Bytes::new(), ExtraHeaders::Nothing),
        }
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the connection closes behind it.
    pub fn closes(&self) -> bool {
        self.should_close
    }

    /// Every field, in order.
    fn for_each_field(&self, common: &CommonHeaders, put: &mut impl FnMut(&HeaderField, &[u8])) {
        if self.status != 204 {
            if !self.body.is_empty() {
                put(&header_field::CONTENT_TYPE, b"application/json");
            }
            put(
                &header_field::CONTENT_LENGTH,
                FixedString::<20>::from_number(self.body.len() as u64).as_bytes(),
            );
        }
        put(&header_field::CACHE_CONTROL, b"no-store");
        match &self.extra_headers {
            ExtraHeaders::Nothing => {}
            ExtraHeaders::Verdict(facts) => {
                put(&header_field::X_TABLE_VERSION, facts.version.as_bytes());
                let matched = facts.matched.as_ref();
                if let Some(parent) = matched.and_then(|at| self.body.get(at.clone())) {
                    put(&header_field::X_MATCHED_DOMAIN, parent);
                }
                put(&header_field::X_VERDICT_SOURCE, facts.source.as_str().as_bytes());
                if let Some(provider) = &facts.suggestion {
                    put(&header_field::X_DID_YOU_MEAN, provider.as_bytes());
                }
            }
            ExtraHeaders::Challenge => {
                put(&header_field::WWW_AUTHENTICATE, br#"Bearer realm="riskgate""#)
            }
            ExtraHeaders::Allow(methods) => put(&header_field::ALLOW, methods.as_bytes()),
            ExtraHeaders::RetryAfter(seconds) => {
                put(
                    &header_field::RETRY_AFTER,
                    FixedString::<20>::from_number(*seconds).as_bytes(),
                );
            }
            ExtraHeaders::Preflight(methods) => {
                put(&header_field::ACCESS_CONTROL_ALLOW_METHODS, methods.as_bytes());
                put(&header_field::ACCESS_CONTROL_ALLOW_HEADERS, PREFLIGHT_HEADERS.as_bytes());
                put(&header_field::ACCESS_CONTROL_MAX_AGE, b"600");
            }
        }
        if self.fails_open {
            put(&header_field::FAIL_OPEN, b"true");
        }
        common.for_each_field(put);
    }

    /// The header, as every protocol version needs it.
    pub fn to_response_header(&self, common: &CommonHeaders) -> ResponseHeader {
        let (mut parts, ()) = http::Response::new(()).into_parts();
        parts.status = StatusCode::from_u16(self.status).unwrap_or_default();
        parts.headers.reserve(16);
        // All values lie in one block.
        let mut block = BytesMut::with_capacity(512);
        self.for_each_field(common, &mut |field, value| {
            block.extend_from_slice(value);
            // Our own values are visible ASCII; what is not would be our fault and is left out.
            if let Ok(value) = HeaderValue::from_maybe_shared(block.split().freeze()) {
                parts.headers.append(&field.name, value);
            }
        });
        ResponseHeader::from(parts)
    }

    /// Writes the answer; the body is left out for HEAD.
    pub async fn write(&self, session: &mut Session, common: &CommonHeaders) -> Result<()> {
        let header = Box::new(self.to_response_header(common));
        let head = session.req_header().method == http::Method::HEAD;
        let body = if head { Bytes::new() } else { self.body.clone() };
        if self.should_close {
            session.set_keepalive(None);
        }
        let client = session.as_downstream_mut();
        let result = async {
            client.write_response_header(header).await?;
            client.write_response_body(body, true).await
        };
        // Who does not take an answer has failed, not we.
        result.await.map_err(|error| error.into_down())
    }

    /// Appends the whole answer as HTTP/1.1 bytes, as Pingora would write them; the body is left
    /// out for HEAD. `date` is what `Date` says (RFC 9110 section 5.6.7).
    pub fn render(
        &self,
        common: &CommonHeaders,
        date: &[u8],
        options: RenderOptions,
        out: &mut Vec<u8>,
    ) {
        write_status_line(self.status, out);
        self.for_each_field(common, &mut |field, value| field.write_line(value, out));
        write_final_fields(date, options.should_close, out);
        if !options.is_head_method {
            out.extend_from_slice(&self.body);
        }
    }
}

/// Appends the first line of an answer.
pub(crate) fn write_status_line(status: u16, out: &mut Vec<u8>) {
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
pub(crate) fn write_final_fields(date: &[u8], closes: bool, out: &mut Vec<u8>) {
    header_field::DATE.write_line(date, out);
    header_field::CONNECTION.write_line(if closes { b"close" } else { b"keep-alive" }, out);
    out.extend_from_slice(b"\r\n");
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenderOptions {
    /// The connection closes behind it.
    pub should_close: bool,
    /// To a HEAD request.
    pub is_head_method: bool,
}

impl CommonHeaders {
    /// Every field of it, in order.
    pub(crate) fn for_each_field(&self, put: &mut impl FnMut(&HeaderField, &[u8])) {
        put(&header_field::REQUEST_ID, self.request_id.as_bytes());
        if let Some(Allowance { limit, remaining, reset_in }) = self.allowance {
            let mut policy = FixedString::<64>::new("\"monthly\";q=");
            put(&header_field::RATELIMIT_POLICY, policy.push_number(limit).as_bytes());
            let mut left = FixedString::<64>::new("\"monthly\";r=");
            left.push_number(remaining).push_str(";t=").push_number(reset_in);
            put(&header_field::RATELIMIT, left.as_bytes());
        }
        match &self.cors {
            Cors::NotOriginDependent => return,
            Cors::Denied => {}
            Cors::Allowed(origin) => {
                put(&header_field::ACCESS_CONTROL_ALLOW_ORIGIN, origin.as_bytes());
                put(&header_field::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS.as_bytes());
            }
        }
        put(&header_field::VARY, b"Origin");
    }

    /// Puts onto the upstream's header what every answer carries.
    pub fn apply_to(&self, header: &mut ResponseHeader) -> Result<()> {
        let mut result = Ok(());
        self.for_each_field(&mut |field, value| {
            if let Err(error) = insert_or_append_field(header, field, value) {
                result = Err(error);
            }
        });
        result
    }
}

/// `Vary` is added to what the upstream says; all others are ours alone.
fn insert_or_append_field(
    header: &mut ResponseHeader,
    field: &HeaderField,
    value: &[u8],
) -> Result<()> {
    // Our own values are visible ASCII; what is not would be our fault and is left out.
    let Ok(value) = HeaderValue::from_bytes(value) else { return Ok(()) };
    match field.name == VARY {
        true => header.append_header(&field.name, value).map(drop),
        false => header.insert_header(&field.name, value),
    }
}
