//! What crosses: headers on their way to the upstream, and on their way back.
//!
//! Owns which of them are the caller's to say, the upstream's, or ours, for headers in Pingora's form
//! and as bytes alike. It knows no server and no connection.

mod rules;

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{
    CACHE_CONTROL, CONNECTION, COOKIE, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use pingora_core::Result;
use pingora_error::{Error, ErrorType};
use pingora_http::{RequestHeader, ResponseHeader};

use super::forwarding_headers::{ClaimedPath, is_forwarded, keep_last_lines};
use crate::keys::Key;
use crate::message::request_head::fields_of;
use crate::message::response::{Field, header_value};
use rules::{crosses, is_nominated};
pub(crate) use rules::{frames, is_chunked, nominated, returns};

static TO_HOST: Field = Field::of(HOST, "Host: ");
static ACCOUNT: Field =
    Field::of(HeaderName::from_static("x-riskgate-account"), "x-riskgate-account: ");
static KEY_ID: Field =
    Field::of(HeaderName::from_static("x-riskgate-key-id"), "x-riskgate-key-id: ");
static PLAN: Field = Field::of(HeaderName::from_static("x-riskgate-plan"), "x-riskgate-plan: ");

/// What is told to the upstream about the caller.
pub struct Caller<'c> {
    /// The key that opened the gates.
    pub key: Option<&'c Arc<Key>>,
    /// The request's id.
    pub request_id: &'c str,
    /// The peer's address.
    pub address: Option<IpAddr>,
    /// Whether the peer is one of `listen.trusted_proxies`.
    pub trusted: bool,
    /// Whether it speaks TLS to us.
    pub secure: bool,
}

/// Makes the request that crosses: the canonical target, our headers, nothing forged.
pub fn prepare_request(
    request: &mut RequestHeader,
    target: &[u8],
    host: &str,
    caller: &Caller<'_>,
) -> Result<()> {
    let kept = ClaimedPath::fields_of(request);
    let mut claimed = ClaimedPath::default();
    for (name, value) in &kept {
        claimed.note(name.as_str().as_bytes(), value.as_bytes(), caller.trusted);
    }
    request.set_raw_path(target)?;
    join_cookies(request)?;
    drop_nominated(request);
    let stays = |name: &&HeaderName| !crosses(name.as_str().as_bytes(), caller.trusted);
    let staying: Vec<HeaderName> = request.headers.keys().filter(stays).cloned().collect();
    for name in staying {
        request.remove_header(&name);
    }
    keep_last_lines(request)?;
    let mut written = Ok(());
    our_words(&claimed, host, caller, &mut |field, value| {
        if let Err(error) = insert(request, field, value) {
            written = Err(error);
        }
    });
    written
}

/// Drops the fields that `Connection` declares to be of one hop, and that field itself. What trusted
/// proxies say of the way of a request stays: a client could nominate it behind their back.
pub fn drop_nominated(request: &mut RequestHeader) {
    let values = request.headers.get_all(CONNECTION).into_iter().map(HeaderValue::as_bytes);
    let nominated = nominated(values).unwrap_or_default();
    let is_dropped = |name: &&HeaderName| {
        let name = name.as_str().as_bytes();
        is_nominated(name, &nominated) && !is_forwarded(name)
    };
    let dropped: Vec<HeaderName> = request.headers.keys().filter(is_dropped).cloned().collect();
    for name in dropped.iter().chain([&CONNECTION]) {
        request.remove_header(name);
    }
}

/// The same as bytes, for a request without a body, from the bytes of a header that was found good.
pub(crate) fn write_request(
    header: &[u8],
    (method, target): (&str, &[u8]),
    host: &str,
    caller: &Caller<'_>,
    out: &mut Vec<u8>,
) {
    for part in [method.as_bytes(), b" ", target, b" HTTP/1.1\r\n"] {
        out.extend_from_slice(part);
    }
    let mut claimed = ClaimedPath::default();
    let mut fields = fields_of(header);
    while let Some((name, value)) = fields.next() {
        if !crosses(name, caller.trusted) {
            claimed.note(name, value, caller.trusted);
        } else if !is_forwarded(name)
            || !fields.clone().any(|(other, _)| other.eq_ignore_ascii_case(name))
        {
            for part in [name, b": ", value, b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
    }
    our_words(&claimed, host, caller, &mut |field, value| field.write(value, out));
    out.extend_from_slice(b"\r\n");
}

/// What we say to the upstream ourselves.
fn our_words(
    claimed: &ClaimedPath<'_>,
    host: &str,
    caller: &Caller<'_>,
    put: &mut impl FnMut(&Field, &[u8]),
) {
    put(&TO_HOST, host.as_bytes());
    claimed.write(caller.address, caller.secure, put);
    put(&header_value::REQUEST_ID, caller.request_id.as_bytes());
    if let Some(key) = caller.key {
        put(&ACCOUNT, key.account.name.as_bytes());
        put(&KEY_ID, key.id.as_bytes());
        put(&PLAN, key.account.plan.as_bytes());
    }
}

/// Takes out of the upstream's answer what is not its to say, and marks where it came from.
pub fn clean_response(response: &mut ResponseHeader) -> Result<()> {
    let malformed = |what| Error::explain(ErrorType::InvalidHTTPHeader, what).into_up();
    let values = |name| response.headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
    let nominated = nominated(values(CONNECTION)).ok_or_else(|| malformed("its Connection"))?;
    is_chunked(values(TRANSFER_ENCODING)).ok_or_else(|| malformed("its Transfer-Encoding"))?;
    let stays = |name: &&HeaderName| !returns(name.as_str().as_bytes(), &nominated);
    let staying: Vec<HeaderName> = response.headers.keys().filter(stays).cloned().collect();
    for name in staying {
        response.remove_header(&name);
    }
    let keeps_its_own = response.headers.contains_key(CACHE_CONTROL);
    let mut written = Ok(());
    mark(response.status.as_u16(), keeps_its_own, &mut |field, value| {
        if let Err(error) = response.insert_header(&field.name, value) {
            written = Err(error);
        }
    });
    written
}

/// What an upstream's answer says beside what it said itself.
pub(crate) fn mark(status: u16, has_cache_control: bool, put: &mut impl FnMut(&Field, &[u8])) {
    put(&header_value::SOURCE, b"upstream");
    if status == 429 || status >= 500 {
        put(&header_value::FAIL_OPEN, b"true");
    }
    if !has_cache_control {
        put(&header_value::CACHE_CONTROL, b"no-store");
    }
}

/// HTTP/2 may send cookies in crumbs; HTTP/1.1 knows one header of them (RFC 9113 section 8.2.3).
fn join_cookies(request: &mut RequestHeader) -> Result<()> {
    let crumbs: Vec<&[u8]> =
        request.headers.get_all(COOKIE).into_iter().map(HeaderValue::as_bytes).collect();
    match crumbs.len() {
        0 | 1 => Ok(()),
        _ => {
            let whole = crumbs.join(&b"; "[..]);
            insert(request, &Field::of(COOKIE, "Cookie: "), &whole)
        }
    }
}

/// What can't stand in a header is left out.
fn insert(request: &mut RequestHeader, field: &Field, value: &[u8]) -> Result<()> {
    HeaderValue::from_bytes(value).map_or(Ok(()), |value| request.insert_header(&field.name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_speaks_in_our_name_however_it_is_spelled() {
        for name in
            ["X-Riskgate-Account", "x_riskgate_account", "x-riskgate_plan", "x-Original-url", "a_b"]
        {
            let name = name.as_bytes();
            assert!(!crosses(name, false) && !crosses(name, true), "{name:?}");
        }
        // What a proxy of ours says of the way here is kept.
        assert!(!crosses(b"X-Forwarded-Prefix", false));
        assert!(crosses(b"X-Forwarded-Prefix", true));
        assert!(crosses(b"Traceparent", false));
    }

    /// What crosses of these fields, by both forms of a request, which must say the same.
    fn crossed(fields: &[(&str, &str)], trusted: bool) -> Vec<String> {
        let address = Some(IpAddr::from([192, 0, 2, 1]));
        let caller = Caller { key: None, request_id: "id", address, trusted, secure: false };
        let mut request = RequestHeader::build("GET", b"/asked", None).unwrap();
        let mut header = "GET /asked HTTP/1.1\r\n".to_owned();
        for (name, value) in fields {
            request.append_header((*name).to_owned(), *value).unwrap();
            header.push_str(&format!("{name}: {value}\r\n"));
        }
        prepare_request(&mut request, b"/target", "server", &caller).unwrap();
        let text = |name: &[u8], value: &[u8]| {
            let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
            format!("{}: {value}", name.to_ascii_lowercase())
        };
        let pairs = request.headers.iter();
        let mut said: Vec<String> =
            pairs.map(|(name, value)| text(name.as_str().as_bytes(), value.as_bytes())).collect();
        let mut out = Vec::new();
        write_request(
            format!("{header}\r\n").as_bytes(),
            ("GET", b"/target"),
            "server",
            &caller,
            &mut out,
        );
        let mut written: Vec<String> =
            fields_of(&out).map(|(name, value)| text(name, value)).collect();
        said.sort();
        written.sort();
        assert_eq!(said, written);
        let ours = ["host: ", "x-request-id: "];
        said.retain(|line| !ours.iter().any(|name| line.starts_with(name)));
        said
    }

    #[test]
    fn all_lines_of_a_trusted_proxy_are_one_list_and_the_last_word_counts() {
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
        assert_eq!(crossed(&fields, true), seen);
        let seen = [
            "x-forwarded-for: 192.0.2.1",
            "x-forwarded-host: asked.test",
            "x-forwarded-proto: http",
        ];
        assert_eq!(crossed(&fields, false), seen);
        // A proxy that says nothing but blanks says nothing.
        let blank = ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"];
        let blank = blank.map(|name| (name, " , "));
        assert_eq!(crossed(&[&fields[..1], &blank[..]].concat(), true), seen);
    }

    #[test]
    fn an_answer_loses_what_is_not_the_upstreams_to_say() {
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
        clean_response(&mut response).unwrap();
        let has = |name: &str| response.headers.contains_key(name);
        assert!(!has("server") && !has("x-table-version") && !has("x-hop"));
        assert!(!has("access-control-allow-origin"));
        assert!(has("content-type") && has("x-riskgate-source") && has("cache-control"));
    }
}
