//! The writer of riskgate's own responses to the clients of the gateway: their status, header
//! fields and body.
//!
//! Owns the names and the order of riskgate's fields, over HTTP/1.1 and HTTP/2, on the Pingora path
//! and the fast path. The callers decide on the status, the body and the facts.

mod common_headers;
mod cors;
mod error_page;
pub(crate) mod header_field;

use std::ops::Range;

use bytes::Bytes;
use http::StatusCode;
use itoa::Buffer;
use pingora::http::ResponseHeader;
use smol_str::SmolStr;

use crate::model::refusal::Refusal;
use crate::model::verdict::VerdictSource;

use error_page::{PAGE_CONTENT_SECURITY_POLICY, render_error_page};

pub use common_headers::{CommonHeaders, StrictTransportSecurity};
pub use cors::{Cors, CorsGrant};
pub(crate) use header_field::{FieldName, FieldWriter};
pub use header_field::{TRACEPARENT, X_FAIL_OPEN, X_REQUEST_ID, X_RISKGATE_SOURCE};

/// The `Content-Type` of a page.
const HTML_CONTENT_TYPE: &str = "text/html; charset=utf-8";

/// A response of riskgate itself.
pub struct Reply {
    status: u16,
    body: Bytes,
    extra_headers: ExtraHeaders,
    /// Whether the response has `X-Fail-Open: true`, which asks the client to let its user through.
    asks_to_fail_open: bool,
    /// Whether the connection closes after the response.
    should_close: bool,
    /// The fields for the server behind a proxy that asked.
    facts: Vec<(&'static FieldName, SmolStr)>,
    /// The type of the body.
    content_type: &'static str,
    /// Whether another `Accept` would have led to another response.
    varies_by_accept: bool,
}

/// The header fields that only some responses carry.
enum ExtraHeaders {
    Nothing,
    /// The fields of a verdict, such as `X-Table-Version`.
    Verdict(VerdictFacts),
    /// `X-Riskgate-Source: table`.
    TableSource,
    /// The provider that the client's user probably meant.
    DidYouMean(SmolStr),
    /// `Location`.
    Location(SmolStr),
    /// `WWW-Authenticate`.
    Challenge,
    /// `Allow`: the allowed methods.
    Allow(SmolStr),
    /// `Retry-After`: seconds until the client may try again.
    RetryAfter(u64),
    /// The methods that a page of another origin may use, and the fields that it may send.
    Preflight {
        methods: SmolStr,
        headers: String,
    },
}

/// The facts in the header fields of a verdict.
pub struct VerdictFacts {
    /// The table's version.
    table_version: SmolStr,
    source: VerdictSource,
    /// The range of the body that is the matched parent domain.
    parent_range_in_body: Option<Range<usize>>,
    /// The provider that the client's user probably meant.
    suggested_provider: Option<SmolStr>,
    /// The day of the newest evidence, such as `2026-11-21`.
    evidence_date: Option<SmolStr>,
}

impl VerdictFacts {
    /// Creates the facts. `parent_range_in_body` is the range of the reply's body that is the
    /// matched parent domain; `None` if the domain itself matched, or if no row matched.
    pub fn new(
        table_version: &str,
        source: VerdictSource,
        parent_range_in_body: Option<Range<usize>>,
        suggested_provider: Option<SmolStr>,
        evidence_date: Option<SmolStr>,
    ) -> VerdictFacts {
        VerdictFacts {
            table_version: table_version.into(),
            source,
            parent_range_in_body,
            suggested_provider,
            evidence_date,
        }
    }
}

impl Reply {
    fn new(status: u16, body: Bytes, extra_headers: ExtraHeaders) -> Reply {
        let facts = Vec::new();
        Reply {
            status,
            body,
            extra_headers,
            asks_to_fail_open: false,
            should_close: false,
            facts,
            content_type: "application/json",
            varies_by_accept: false,
        }
    }

    /// Tells caches that another `Accept` would have led to another response.
    pub fn with_vary_by_accept(self) -> Reply {
        Reply { varies_by_accept: true, ..self }
    }

    /// Makes a 200 with a JSON body.
    pub fn of_json(body: Bytes) -> Reply {
        Reply::new(200, body, ExtraHeaders::Nothing)
    }

    /// Makes riskgate's own answer to a check, from the table.
    pub fn of_check_answer(body: Bytes) -> Reply {
        Reply::new(200, body, ExtraHeaders::TableSource)
    }

    /// Makes the answer with the verdict on a domain.
    pub fn of_verdict(body: Bytes, facts: VerdictFacts) -> Reply {
        Reply::new(200, body, ExtraHeaders::Verdict(facts))
    }

    /// Like [`Reply::of_refusal`], on a route with the statuses of a gateway (RFC 9110 section
    /// 15.6): 502 for [`Refusal::UpstreamUnavailable`], and 504 for [`Refusal::UpstreamTimeout`].
    pub fn of_refusal_with_gateway_status(refusal: &Refusal) -> Reply {
        let mut reply = Reply::of_refusal(refusal);
        match refusal {
            Refusal::UpstreamUnavailable => reply.status = 502,
            Refusal::UpstreamTimeout => reply.status = 504,
            _ => {}
        }
        reply
    }

    /// Returns the reply with the refusal's message for the clients of an operator's own service.
    pub fn with_message_on_route(self, refusal: &Refusal) -> Reply {
        Reply { body: Bytes::from(refusal.body_with_message(refusal.message_on_route())), ..self }
    }

    /// Returns the reply with an HTML page about the refusal as its body.
    pub fn with_page(self, refusal: &Refusal) -> Reply {
        let suggestion = refusal.suggestion().map(SmolStr::as_str);
        let page = render_error_page(self.status, refusal.message_on_route(), suggestion);
        Reply { body: page.into(), content_type: HTML_CONTENT_TYPE, ..self }
    }

    /// Returns the reply with problem details (RFC 9457) about the refusal as its body.
    pub fn with_problem_details(self, refusal: &Refusal, is_on_route: bool) -> Reply {
        let status = StatusCode::from_u16(self.status).unwrap_or_default();
        let title = status.canonical_reason().unwrap_or_default();
        let message = if is_on_route { refusal.message_on_route() } else { refusal.message() };
        let body = Bytes::from(refusal.problem_details(self.status, title, message));
        Reply { body, content_type: "application/problem+json", ..self }
    }

    /// Makes the response to a refused request, with the header fields for this refusal.
    pub fn of_refusal(refusal: &Refusal) -> Reply {
        let extra_headers = match refusal {
            Refusal::Unauthorized => ExtraHeaders::Challenge,
            Refusal::MethodNotAllowed { allow } => ExtraHeaders::Allow(allow.clone()),
            Refusal::EmailRefused { suggestion: Some(provider), .. }
            | Refusal::FormUnreadable { suggestion: Some(provider), .. } => {
                ExtraHeaders::DidYouMean(provider.clone())
            }
            Refusal::TooManyRequests { retry_after_seconds: retry_after }
            | Refusal::QuotaExceeded { retry_after_seconds: retry_after, .. } => {
                ExtraHeaders::RetryAfter(*retry_after)
            }
            Refusal::BadRequest
            | Refusal::Forbidden { .. }
            | Refusal::NotFound
            | Refusal::RequestTimeout
            | Refusal::ContentTooLarge
            | Refusal::UriTooLong
            | Refusal::ExpectationFailed
            | Refusal::EmailRefused { suggestion: None, .. }
            | Refusal::FormUnreadable { suggestion: None, .. }
            | Refusal::InvalidDomain(_)
            | Refusal::InvalidEmail(_)
            | Refusal::InvalidTarget(_)
            | Refusal::InvalidBatch(_)
            | Refusal::InvalidAssessment(_)
            | Refusal::HeadersTooLarge
            | Refusal::Internal
            | Refusal::UpstreamUnavailable
            | Refusal::UpstreamTimeout => ExtraHeaders::Nothing,
        };
        let mut reply = Reply::new(refusal.status(), Bytes::from(refusal.body()), extra_headers);
        (reply.asks_to_fail_open, reply.should_close) =
            (refusal.is_fail_open(), refusal.closes_connection());
        reply
    }

    /// Makes a response with this status and no body, for a proxy that mounts the gate and refuses
    /// a request by itself.
    pub fn of_mounting_proxy(status: u16) -> Reply {
        Reply::new(status, Bytes::new(), ExtraHeaders::Nothing)
    }

    /// Makes a 303, after which the client gets the page at `location`.
    pub fn see_other(location: &str) -> Reply {
        Reply::new(303, Bytes::new(), ExtraHeaders::Location(location.into()))
    }

    /// Makes a 308 to another location, without a body.
    pub fn permanent_redirect(location: &str) -> Reply {
        Reply::new(308, Bytes::new(), ExtraHeaders::Location(location.into()))
    }

    /// Makes a 204 that lists the allowed methods, in response to an OPTIONS request.
    pub fn of_options(allow: SmolStr) -> Reply {
        Reply::new(204, Bytes::new(), ExtraHeaders::Allow(allow))
    }

    /// Makes a 204, in response to a CORS preflight of an allowed origin. Pages of this origin may
    /// use these methods, and send these fields.
    pub fn of_preflight(methods: SmolStr, headers: String) -> Reply {
        Reply::new(204, Bytes::new(), ExtraHeaders::Preflight { methods, headers })
    }

    /// Makes a 403, in response to a CORS preflight of an origin that no key allows.
    pub fn of_refused_preflight() -> Reply {
        Reply::new(403, Bytes::new(), ExtraHeaders::Nothing)
    }

    /// Makes the response an answer to a proxy that asks whether to admit a request: with this
    /// status, and with these fields for the server behind the proxy.
    pub fn into_proxy_answer(
        mut self,
        status: u16,
        facts: Vec<(&'static FieldName, SmolStr)>,
    ) -> Reply {
        (self.status, self.facts) = (status, facts);
        self
    }

    /// Makes a 200 without a body for a proxy that asks: the proxy may let the request pass.
    /// `asks_to_fail_open` says that riskgate failed to judge the request, or that the month is
    /// spent.
    pub fn of_admission(asks_to_fail_open: bool) -> Reply {
        Reply { asks_to_fail_open, ..Reply::of_json(Bytes::new()) }
    }

    /// Returns the status code.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the body that is sent: none if the method is HEAD.
    pub fn body_for(&self, is_head_method: bool) -> &Bytes {
        static NO_BODY: Bytes = Bytes::new();
        if is_head_method { &NO_BODY } else { &self.body }
    }

    /// Lets a connection of HTTP/1.1 close after this response. Otherwise riskgate would take the
    /// unread rest of the request's body for the next request.
    pub fn with_connection_close(mut self) -> Reply {
        self.should_close = true;
        self
    }

    /// Returns true if this response makes a connection of HTTP/1.1 close.
    pub fn closes_connection(&self) -> bool {
        self.should_close
    }

    /// Passes each field but `Date` and `Connection` to `put`, in the order of the header.
    fn for_each_field(&self, common: &CommonHeaders, put: &mut impl FnMut(&FieldName, &[u8])) {
        if self.status != 204 {
            if !self.body.is_empty() {
                put(&header_field::CONTENT_TYPE, self.content_type.as_bytes());
            }
            put(&header_field::CONTENT_LENGTH, Buffer::new().format(self.body.len()).as_bytes());
        }
        put(&header_field::CACHE_CONTROL, b"no-store");
        match &self.extra_headers {
            ExtraHeaders::Nothing => {}
            ExtraHeaders::Verdict(facts) => {
                put(&header_field::X_TABLE_VERSION, facts.table_version.as_bytes());
                let parent_range = facts.parent_range_in_body.as_ref();
                if let Some(parent) = parent_range.and_then(|at| self.body.get(at.clone())) {
                    put(&header_field::X_MATCHED_DOMAIN, parent);
                }
                put(&header_field::X_VERDICT_SOURCE, facts.source.as_str().as_bytes());
                if let Some(date) = &facts.evidence_date {
                    put(&header_field::X_EVIDENCE_DATE, date.as_bytes());
                }
                if let Some(provider) = &facts.suggested_provider {
                    put(&header_field::X_DID_YOU_MEAN, provider.as_bytes());
                }
            }
            ExtraHeaders::TableSource => put(&header_field::X_RISKGATE_SOURCE_FIELD, b"table"),
            ExtraHeaders::DidYouMean(provider) => {
                put(&header_field::X_DID_YOU_MEAN, provider.as_bytes());
            }
            ExtraHeaders::Location(location) => put(&header_field::LOCATION, location.as_bytes()),
            ExtraHeaders::Challenge => {
                put(&header_field::WWW_AUTHENTICATE, br#"Bearer realm="riskgate""#)
            }
            ExtraHeaders::Allow(methods) => put(&header_field::ALLOW, methods.as_bytes()),
            ExtraHeaders::RetryAfter(seconds) => {
                put(&header_field::RETRY_AFTER, Buffer::new().format(*seconds).as_bytes());
            }
            ExtraHeaders::Preflight { methods, headers } => {
                put(&header_field::ACCESS_CONTROL_ALLOW_METHODS, methods.as_bytes());
                put(&header_field::ACCESS_CONTROL_ALLOW_HEADERS, headers.as_bytes());
                put(&header_field::ACCESS_CONTROL_MAX_AGE, b"600");
            }
        }
        self.facts.iter().for_each(|(field, value)| put(field, value.as_bytes()));
        if self.content_type == HTML_CONTENT_TYPE {
            put(&header_field::CONTENT_SECURITY_POLICY, PAGE_CONTENT_SECURITY_POLICY.as_bytes());
        }
        if self.varies_by_accept {
            put(&header_field::VARY, b"Accept");
        }
        if self.asks_to_fail_open {
            put(&header_field::X_FAIL_OPEN_FIELD, b"true");
        }
        common.for_each_field(put);
    }

    /// Returns the header as Pingora's type, which serves HTTP/1.1 and HTTP/2.
    pub fn to_response_header(&self, common: &CommonHeaders) -> ResponseHeader {
        let (mut parts, ()) = http::Response::new(()).into_parts();
        parts.status = StatusCode::from_u16(self.status).unwrap_or_default();
        let mut writer = FieldWriter::new(&mut parts.headers);
        self.for_each_field(common, &mut |field, value| writer.append(field, value));
        ResponseHeader::from(parts)
    }

    /// Appends the whole response to `out`, with the same bytes as Pingora writes over HTTP/1.1. A
    /// response to HEAD has no body. `date` is the value of `Date` (RFC 9110 section 5.6.7).
    pub fn append_as_http1(
        &self,
        common: &CommonHeaders,
        date: &[u8],
        options: RenderOptions,
        out: &mut Vec<u8>,
    ) {
        write_status_line(self.status, out);
        self.for_each_field(common, &mut |field, value| field.write_h1_line(value, out));
        finish_http1_header(date, options.should_close, out);
        out.extend_from_slice(self.body_for(options.is_head_method));
    }
}

/// Appends the status line of a response.
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

/// Appends `Date`, `Connection` and the empty line that ends an HTTP/1.1 header.
pub(crate) fn finish_http1_header(date: &[u8], should_close: bool, out: &mut Vec<u8>) {
    header_field::DATE.write_h1_line(date, out);
    header_field::CONNECTION
        .write_h1_line(if should_close { b"close" } else { b"keep-alive" }, out);
    out.extend_from_slice(b"\r\n");
}

/// Formats a time in Unix seconds for the field `Date` (RFC 9110 section 5.6.7).
pub fn format_http_date(unix_now: i64) -> String {
    let since = std::time::Duration::from_secs(unix_now.max(0).cast_unsigned());
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + since)
}

/// How [`Reply::append_as_http1`] writes a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenderOptions {
    /// Whether the connection closes after the response.
    pub should_close: bool,
    /// Whether the request's method is HEAD.
    pub is_head_method: bool,
}
