//! The header fields that riskgate forwards, to the upstream server and back to the client.
//!
//! Owns which fields the client may set, which the upstream server may set, and which riskgate
//! sets, for Pingora's header types and for raw bytes alike. It knows no server and no connection.

mod rules;

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderName, HeaderValue,
    TRANSFER_ENCODING,
};
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};

use super::forwarding_headers::{
    ReceivedForwardingInfo, is_x_forwarded_field, keep_last_x_forwarded_values,
};
use super::response::{MalformedResponse, parse_content_length};
use crate::keys::Key;
use crate::message::request_head::iter_parsed_fields;
use crate::message::response::{HeaderField, header_field};
pub(crate) use rules::{
    is_chunked_if_supported, is_framing_field, is_response_field_forwarded,
    parse_connection_options,
};
use rules::{is_listed_as_hop_by_hop, is_request_field_forwarded};

static HOST_FIELD: HeaderField = HeaderField::new(HOST, "Host: ");
static X_RISKGATE_ACCOUNT: HeaderField =
    HeaderField::new(HeaderName::from_static("x-riskgate-account"), "x-riskgate-account: ");
static X_RISKGATE_KEY_ID: HeaderField =
    HeaderField::new(HeaderName::from_static("x-riskgate-key-id"), "x-riskgate-key-id: ");
static X_RISKGATE_PLAN: HeaderField =
    HeaderField::new(HeaderName::from_static("x-riskgate-plan"), "x-riskgate-plan: ");

static X_RISKGATE_ACTION: HeaderField =
    HeaderField::new(HeaderName::from_static("x-riskgate-action"), "x-riskgate-action: ");
static X_RISKGATE_SCORE: HeaderField =
    HeaderField::new(HeaderName::from_static("x-riskgate-score"), "x-riskgate-score: ");
static X_RISKGATE_REASON: HeaderField =
    HeaderField::new(HeaderName::from_static("x-riskgate-reason"), "x-riskgate-reason: ");
static X_RISKGATE_DOMAIN: HeaderField =
    HeaderField::new(HeaderName::from_static("x-riskgate-domain"), "x-riskgate-domain: ");
static X_RISKGATE_SUGGESTION: HeaderField =
    HeaderField::new(HeaderName::from_static("x-riskgate-suggestion"), "x-riskgate-suggestion: ");

/// What screening found in a form.
#[derive(Clone, Copy, Debug)]
pub struct ScreeningFacts<'f> {
    /// `pass`, `would_block` or `unscreened`.
    pub action: &'static str,
    /// The reason of the worst verdict, or why the form was not screened.
    pub reason: &'static str,
    /// The worst score.
    pub score: Option<u8>,
    /// The domain of the address with the worst score.
    pub domain: Option<&'f str>,
    /// The provider that the user probably meant.
    pub suggestion: Option<&'f str>,
}

/// The facts about the client that the upstream server is told.
pub struct ClientInfo<'c> {
    /// The key that the client authenticated with; `None` on a route that needs no key.
    pub key: Option<&'c Arc<Key>>,
    /// The request's id.
    pub request_id: &'c str,
    /// The address that the connection comes from; `None` if a PROXY header named no client.
    pub client_address: Option<IpAddr>,
    /// Whether that address is in `listen.trusted_proxies`.
    pub is_trusted_proxy: bool,
    /// Whether the client's connection uses TLS.
    pub is_client_tls: bool,
    /// What screening found in the body; `None` if the server is told nothing of it.
    pub screening: Option<ScreeningFacts<'c>>,
}

/// Turns the client's request into the request for the upstream server: sets the target and
/// riskgate's own fields, and removes the fields that a client could forge.
pub fn prepare_upstream_request(
    request: &mut RequestHeader,
    upstream_target: &[u8],
    upstream_host: &str,
    client_info: &ClientInfo<'_>,
) -> Result<()> {
    let kept = ReceivedForwardingInfo::copy_forwarding_fields(request);
    let mut received = ReceivedForwardingInfo::default();
    for (name, value) in &kept {
        received.record_field(
            name.as_str().as_bytes(),
            value.as_bytes(),
            client_info.is_trusted_proxy,
        );
    }
    request.set_raw_path(upstream_target)?;
    join_cookie_fields(request)?;
    remove_hop_by_hop_fields(request);
    let is_dropped = |name: &&HeaderName| {
        !is_request_field_forwarded(name.as_str().as_bytes(), client_info.is_trusted_proxy)
    };
    let dropped: Vec<HeaderName> = request.headers.keys().filter(is_dropped).cloned().collect();
    for name in dropped {
        request.remove_header(&name);
    }
    keep_last_x_forwarded_values(request)?;
    let mut result = Ok(());
    write_riskgate_request_fields(&received, upstream_host, client_info, &mut |field, value| {
        if let Err(error) = set_field_if_valid(request, field, value) {
            result = Err(error);
        }
    });
    result
}

/// Removes `Connection` and the hop-by-hop fields that it lists. `X-Forwarded-` fields stay even if
/// they are listed, because a client could list them to erase what a trusted proxy added.
pub fn remove_hop_by_hop_fields(request: &mut RequestHeader) {
    let values = request.headers.get_all(CONNECTION).into_iter().map(HeaderValue::as_bytes);
    let connection_options = parse_connection_options(values).unwrap_or_default();
    let is_dropped = |name: &&HeaderName| {
        let name = name.as_str().as_bytes();
        is_listed_as_hop_by_hop(name, &connection_options) && !is_x_forwarded_field(name)
    };
    let dropped: Vec<HeaderName> = request.headers.keys().filter(is_dropped).cloned().collect();
    for name in dropped.iter().chain([&CONNECTION]) {
        request.remove_header(name);
    }
}

/// Appends the request for the upstream server as HTTP/1.1 bytes. `client_header` is the header of
/// a plain request as bytes: it has no body and at most one `Cookie`, and its `Connection` lists no
/// field. So this function removes no listed field.
pub(crate) fn write_upstream_request(
    client_header: &[u8],
    (method, target): (&str, &[u8]),
    upstream_host: &str,
    client_info: &ClientInfo<'_>,
    out: &mut Vec<u8>,
) {
    for part in [method.as_bytes(), b" ", target, b" HTTP/1.1\r\n"] {
        out.extend_from_slice(part);
    }
    let mut received = ReceivedForwardingInfo::default();
    let mut fields = iter_parsed_fields(client_header);
    while let Some((name, value)) = fields.next() {
        if !is_request_field_forwarded(name, client_info.is_trusted_proxy) {
            received.record_field(name, value, client_info.is_trusted_proxy);
        } else if !is_x_forwarded_field(name)
            || !fields.clone().any(|(other, _)| other.eq_ignore_ascii_case(name))
        {
            for part in [name, b": ", value, b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
    }
    write_riskgate_request_fields(&received, upstream_host, client_info, &mut |field, value| {
        field.write_h1_line(value, out)
    });
    out.extend_from_slice(b"\r\n");
}

/// Passes to `put` the request fields that riskgate sets itself, each with its value.
fn write_riskgate_request_fields(
    received: &ReceivedForwardingInfo<'_>,
    upstream_host: &str,
    client_info: &ClientInfo<'_>,
    put: &mut impl FnMut(&HeaderField, &[u8]),
) {
    put(&HOST_FIELD, upstream_host.as_bytes());
    received.write_x_forwarded_fields(client_info.client_address, client_info.is_client_tls, put);
    put(&header_field::X_REQUEST_ID_FIELD, client_info.request_id.as_bytes());
    if let Some(key) = client_info.key {
        put(&X_RISKGATE_ACCOUNT, key.account.name.as_bytes());
        put(&X_RISKGATE_KEY_ID, key.id.as_bytes());
        put(&X_RISKGATE_PLAN, key.account.plan.as_bytes());
    }
    if let Some(facts) = &client_info.screening {
        put(&X_RISKGATE_ACTION, facts.action.as_bytes());
        put(&X_RISKGATE_REASON, facts.reason.as_bytes());
        if let Some(score) = facts.score {
            put(&X_RISKGATE_SCORE, itoa::Buffer::new().format(score).as_bytes());
        }
        if let Some(domain) = facts.domain {
            put(&X_RISKGATE_DOMAIN, domain.as_bytes());
        }
        if let Some(suggestion) = facts.suggestion {
            put(&X_RISKGATE_SUGGESTION, suggestion.as_bytes());
        }
    }
}

/// Turns an upstream server's response into the response for the client: removes the fields that
/// the server may not set, and adds riskgate's (such as `X-Riskgate-Source`). Returns an error if
/// `Connection` lists too many options, or if `Transfer-Encoding` is anything but one `chunked`.
/// Several equal values of `Content-Length` become one.
pub fn prepare_client_response(
    response: &mut ResponseHeader,
    may_set_cookies: bool,
) -> Result<(), MalformedResponse> {
    let values = |name| response.headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
    let connection_options =
        parse_connection_options(values(CONNECTION)).ok_or(MalformedResponse)?;
    is_chunked_if_supported(values(TRANSFER_ENCODING)).ok_or(MalformedResponse)?;
    let is_dropped = |name: &&HeaderName| {
        let name = name.as_str().as_bytes();
        !is_response_field_forwarded(name, &connection_options, may_set_cookies)
    };
    let dropped: Vec<HeaderName> = response.headers.keys().filter(is_dropped).cloned().collect();
    for name in dropped {
        response.remove_header(&name);
    }
    let lengths = response.headers.get_all(CONTENT_LENGTH).iter().map(HeaderValue::as_bytes);
    if let Some(length) = parse_content_length(lengths)? {
        response.insert_header(CONTENT_LENGTH, length).map_err(|_| MalformedResponse)?;
    }
    let has_cache_control = response.headers.contains_key(CACHE_CONTROL);
    let mut result = Ok(());
    write_riskgate_response_fields(
        response.status.as_u16(),
        has_cache_control,
        &mut |field, value| {
            if response.insert_header(&field.name, value).is_err() {
                result = Err(MalformedResponse);
            }
        },
    );
    result
}

/// Passes to `put` the fields that riskgate adds to an upstream server's response. A response with
/// status 429, or 500 and above, gets `X-Fail-Open`.
pub(crate) fn write_riskgate_response_fields(
    status: u16,
    has_cache_control: bool,
    put: &mut impl FnMut(&HeaderField, &[u8]),
) {
    put(&header_field::X_RISKGATE_SOURCE_FIELD, b"upstream");
    if status == 429 || status >= 500 {
        put(&header_field::X_FAIL_OPEN_FIELD, b"true");
    }
    if !has_cache_control {
        put(&header_field::CACHE_CONTROL, b"no-store");
    }
}

/// Joins several `Cookie` fields into one: an HTTP/2 client may split the field, and HTTP/1.1
/// allows only one (RFC 9113 section 8.2.3).
fn join_cookie_fields(request: &mut RequestHeader) -> Result<()> {
    let cookies: Vec<&[u8]> =
        request.headers.get_all(COOKIE).into_iter().map(HeaderValue::as_bytes).collect();
    match cookies.len() {
        0 | 1 => Ok(()),
        _ => {
            let joined = cookies.join(&b"; "[..]);
            set_field_if_valid(request, &HeaderField::new(COOKIE, "Cookie: "), &joined)
        }
    }
}

/// Sets a field; a value that is not allowed in a header is left out.
fn set_field_if_valid(
    request: &mut RequestHeader,
    field: &HeaderField,
    value: &[u8],
) -> Result<()> {
    HeaderValue::from_bytes(value).map_or(Ok(()), |value| request.insert_header(&field.name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_spoof_riskgate_fields_in_any_spelling() {
        for name in
            ["X-Riskgate-Account", "x_riskgate_account", "x-riskgate_plan", "x-Original-url", "a_b"]
        {
            let name = name.as_bytes();
            assert!(
                !is_request_field_forwarded(name, false) && !is_request_field_forwarded(name, true),
                "{name:?}"
            );
        }
        // The X-Forwarded- fields of a trusted proxy are kept.
        assert!(!is_request_field_forwarded(b"X-Forwarded-Prefix", false));
        assert!(is_request_field_forwarded(b"X-Forwarded-Prefix", true));
        assert!(is_request_field_forwarded(b"Traceparent", false));
    }

    /// Returns the fields that the upstream server gets for a request with these fields, without
    /// Host and X-Request-Id. Checks that the Pingora path and the fast path forward the same.
    fn forwarded_fields_on_both_paths(
        fields: &[(&str, &str)],
        is_trusted_proxy: bool,
    ) -> Vec<String> {
        let address = Some(IpAddr::from([192, 0, 2, 1]));
        let client_info = ClientInfo {
            key: None,
            request_id: "id",
            client_address: address,
            is_trusted_proxy,
            is_client_tls: false,
            screening: None,
        };
        let mut request = RequestHeader::build("GET", b"/asked", None).unwrap();
        let mut header = "GET /asked HTTP/1.1\r\n".to_owned();
        for (name, value) in fields {
            request.append_header((*name).to_owned(), *value).unwrap();
            header.push_str(&format!("{name}: {value}\r\n"));
        }
        prepare_upstream_request(&mut request, b"/target", "server", &client_info).unwrap();
        let text = |name: &[u8], value: &[u8]| {
            let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
            format!("{}: {value}", name.to_ascii_lowercase())
        };
        let pairs = request.headers.iter();
        let mut filtered: Vec<String> =
            pairs.map(|(name, value)| text(name.as_str().as_bytes(), value.as_bytes())).collect();
        let mut out = Vec::new();
        write_upstream_request(
            format!("{header}\r\n").as_bytes(),
            ("GET", b"/target"),
            "server",
            &client_info,
            &mut out,
        );
        let mut written: Vec<String> =
            iter_parsed_fields(&out).map(|(name, value)| text(name, value)).collect();
        filtered.sort();
        written.sort();
        assert_eq!(filtered, written);
        let always_set = ["host: ", "x-request-id: "];
        filtered.retain(|line| !always_set.iter().any(|name| line.starts_with(name)));
        filtered
    }

    #[test]
    fn x_forwarded_values_count_only_from_a_trusted_proxy() {
        let fields = [
            ("Host", "asked.test"),
            ("X-Forwarded-For", "6.6.6.6, ,7.7.7.7,"),
            ("x-forwarded-proto", "gopher"),
            ("X-FORWARDED-FOR", ""),
            ("X-Forwarded-Host", "evil.test, more.test"),
            ("X-Forwarded-Port", "1"),
            ("x-forwarded-for", "8.8.8.8"),
            ("X-Forwarded-Proto", "http, https"),
            ("X-Forwarded-Host", "shop.test"),
            ("X-forwarded-port", "80, 443"),
            ("X-Forwarded-Prefix", "/evil"),
            ("x-forwarded-prefix", "/shop"),
        ];
        let seen = [
            "x-forwarded-for: 6.6.6.6, 7.7.7.7, 8.8.8.8, 192.0.2.1",
            "x-forwarded-host: shop.test",
            "x-forwarded-port: 443",
            "x-forwarded-prefix: /shop",
            "x-forwarded-proto: https",
        ];
        assert_eq!(forwarded_fields_on_both_paths(&fields, true), seen);
        let seen = [
            "x-forwarded-for: 192.0.2.1",
            "x-forwarded-host: asked.test",
            "x-forwarded-proto: http",
        ];
        assert_eq!(forwarded_fields_on_both_paths(&fields, false), seen);
        // A value of only blanks and commas counts as absent.
        let blank = ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"];
        let blank = blank.map(|name| (name, " , "));
        assert_eq!(
            forwarded_fields_on_both_paths(&[&fields[..1], &blank[..]].concat(), true),
            seen
        );
    }

    #[test]
    fn a_response_loses_the_fields_that_an_upstream_may_not_set() {
        let mut response = ResponseHeader::build(200, None).unwrap();
        for (name, value) in [
            ("Server", "x"),
            ("X-Table-Version", "forged"),
            ("Access-Control-Allow-Origin", "*"),
            ("Connection", "X-Hop"),
            ("X-Hop", "1"),
            ("Content-Type", "text/plain"),
        ] {
            response.insert_header(name, value).unwrap();
        }
        prepare_client_response(&mut response, false).unwrap();
        let has = |name: &str| response.headers.contains_key(name);
        assert!(!has("server") && !has("x-table-version") && !has("x-hop"));
        assert!(!has("access-control-allow-origin"));
        assert!(has("content-type") && has("x-riskgate-source") && has("cache-control"));
    }
}
