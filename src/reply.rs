//! The one writer of answers: status, headers and body of everything that riskgate says itself.
//!
//! Owns the names and the order of our headers. It decides nothing; who calls it has decided.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, CACHE_CONTROL, CONNECTION,
    CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderName, HeaderValue, RETRY_AFTER, VARY,
    WWW_AUTHENTICATE,
};
use pingora_core::Result;
use pingora_http::ResponseHeader;
use pingora_proxy::Session;

use crate::quota::Allowance;
use crate::refusal::Refusal;

/// The request's id, in both directions.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Set on every answer at which clients let their own user through.
pub const X_FAIL_OPEN: HeaderName = HeaderName::from_static("x-fail-open");
/// Says that the upstream answered.
pub const X_RISKGATE_SOURCE: HeaderName = HeaderName::from_static("x-riskgate-source");
/// The limit and its window (draft-ietf-httpapi-ratelimit-headers).
pub const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// What remains, and until when (draft-ietf-httpapi-ratelimit-headers).
pub const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_TABLE_VERSION: HeaderName = HeaderName::from_static("x-table-version");
const X_MATCHED_DOMAIN: HeaderName = HeaderName::from_static("x-matched-domain");

const EXPOSED: &str = "RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, X-Fail-Open";
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
    Open(String),
}

/// What every answer to one request carries, whatever the answer is.
#[derive(Clone, Debug, Default)]
pub struct Common {
    /// The request's id.
    pub request_id: String,
    /// Which browsers may read it.
    pub cors: Cors,
    /// What the caller may still spend.
    pub allowance: Option<Allowance>,
}

/// An answer of our own.
pub struct Reply {
    status: u16,
    body: Bytes,
    extra: Vec<(HeaderName, HeaderValue)>,
    closes: bool,
}

impl Reply {
    /// 200 with a JSON body.
    pub fn json(body: Bytes) -> Reply {
        Reply { status: 200, body, extra: Vec::new(), closes: false }
    }

    /// The verdict on a domain: version of the table, and the parent that matched, if one did.
    pub fn verdict(body: Bytes, table_version: &str, matched: Option<&str>) -> Reply {
        let mut reply = Reply::json(body);
        reply.add(X_TABLE_VERSION, table_version);
        if let Some(matched) = matched {
            reply.add(X_MATCHED_DOMAIN, matched);
        }
        reply
    }

    /// A refusal, with the headers that belong to it.
    pub fn refusal(refusal: &Refusal) -> Reply {
        let mut reply = Reply::json(Bytes::from(refusal.body()));
        reply.status = refusal.status();
        reply.closes = refusal.closes();
        match refusal {
            Refusal::Unauthorized => reply.add(WWW_AUTHENTICATE, r#"Bearer realm="riskgate""#),
            Refusal::MethodNotAllowed { allow } => reply.add(ALLOW, allow),
            Refusal::QuotaExceeded { retry_after, .. } => {
                reply.add(RETRY_AFTER, &retry_after.to_string());
            }
            Refusal::BadRequest
            | Refusal::Forbidden { .. }
            | Refusal::NotFound
            | Refusal::UriTooLong
            | Refusal::InvalidDomain(_)
            | Refusal::InvalidTarget(_)
            | Refusal::HeadersTooLarge
            | Refusal::Internal
            | Refusal::UpstreamUnavailable
            | Refusal::UpstreamTimeout => {}
        }
        if refusal.fails_open() {
            reply.add(X_FAIL_OPEN, "true");
        }
        reply
    }

    /// 204 to an OPTIONS request that is no preflight.
    pub fn options(allow: &str) -> Reply {
        let mut reply = Reply { status: 204, body: Bytes::new(), extra: Vec::new(), closes: false };
        reply.add(ALLOW, allow);
        reply
    }

    /// The answer to a preflight: 204 if some key allows the origin, 403 otherwise.
    pub fn preflight(allowed: bool, allow: &str) -> Reply {
        let mut reply = Reply { status: 403, body: Bytes::new(), extra: Vec::new(), closes: false };
        if allowed {
            reply.status = 204;
            reply.add(ACCESS_CONTROL_ALLOW_METHODS, allow);
            reply.add(ACCESS_CONTROL_ALLOW_HEADERS, PREFLIGHT_HEADERS);
            reply.add(ACCESS_CONTROL_MAX_AGE, "600");
        }
        reply
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.status
    }

    fn add(&mut self, name: HeaderName, value: &str) {
        // Our own values are ASCII; what is not would be our fault and is left out.
        if let Ok(value) = HeaderValue::from_str(value) {
            self.extra.push((name, value));
        }
    }

    /// The header, as every protocol version needs it.
    pub fn header(&self, common: &Common) -> Result<ResponseHeader> {
        let mut header = ResponseHeader::build_no_case(self.status, Some(16))?;
        if self.status != 204 {
            if !self.body.is_empty() {
                header.insert_header(CONTENT_TYPE, "application/json")?;
            }
            header.insert_header(CONTENT_LENGTH, self.body.len())?;
        }
        header.insert_header(CACHE_CONTROL, "no-store")?;
        for (name, value) in &self.extra {
            header.append_header(name, value)?;
        }
        common.apply(&mut header)?;
        Ok(header)
    }

    /// Writes the answer; the body is left out for HEAD.
    pub async fn write(&self, session: &mut Session, common: &Common) -> Result<()> {
        let header = Box::new(self.header(common)?);
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

    /// The whole answer as HTTP/1.1 bytes, for a connection that closes behind it.
    pub fn wire(&self, common: &Common, date: &str) -> Bytes {
        let mut out = BytesMut::with_capacity(512);
        let Ok(mut header) = self.header(common) else { return Bytes::new() };
        let _ = header.insert_header(DATE, date);
        let _ = header.insert_header(CONNECTION, "close");
        out.put_slice(b"HTTP/1.1 ");
        out.put_slice(header.status.as_str().as_bytes());
        out.put_slice(b" ");
        out.put_slice(header.status.canonical_reason().unwrap_or("").as_bytes());
        out.put_slice(b"\r\n");
        header.header_to_h1_wire(&mut out);
        out.put_slice(b"\r\n");
        out.put_slice(&self.body);
        out.freeze()
    }
}

impl Common {
    /// Puts onto a header what every answer carries, our own or the upstream's.
    pub fn apply(&self, header: &mut ResponseHeader) -> Result<()> {
        header.insert_header(X_REQUEST_ID, self.request_id.as_str())?;
        if let Some(Allowance { limit, remaining, reset_in }) = self.allowance {
            header.insert_header(RATELIMIT_POLICY, format!("\"monthly\";q={limit}"))?;
            header.insert_header(RATELIMIT, format!("\"monthly\";r={remaining};t={reset_in}"))?;
        }
        match &self.cors {
            Cors::Indifferent => return Ok(()),
            Cors::Closed => {}
            Cors::Open(origin) => {
                header.insert_header(ACCESS_CONTROL_ALLOW_ORIGIN, origin.as_str())?;
                header.insert_header(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED)?;
            }
        }
        header.append_header(VARY, "Origin")?;
        Ok(())
    }
}
