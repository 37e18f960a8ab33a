//! What crosses: headers on their way to the upstream, and on their way back.
//!
//! Owns which of them are the caller's to say, the upstream's, or ours. It knows no server and no
//! connection.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, COOKIE, EXPECT, FORWARDED, HOST, HeaderName,
    HeaderValue, UPGRADE,
};
use pingora_core::Result;
use pingora_http::{RequestHeader, ResponseHeader};

use crate::keys::Key;
use crate::reply::{X_FAIL_OPEN, X_RISKGATE_SOURCE};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const OURS: &str = "x-riskgate-";
/// What an upstream may not say to the client: names of ours, and those of one hop only
/// (RFC 9110 section 7.6.1); `Connection` itself is Pingora's.
const NOT_THEIRS: [&str; 12] = [
    "server",
    "set-cookie",
    "x-fail-open",
    "x-request-id",
    "x-table-version",
    "x-matched-domain",
    "ratelimit",
    "ratelimit-policy",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "upgrade",
];

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
pub(super) fn prepare_request(
    request: &mut RequestHeader,
    target: &[u8],
    host: &str,
    caller: &Caller<'_>,
) -> Result<()> {
    let said = |request: &RequestHeader, name| request.headers.get(name).cloned();
    // HTTP/2 says the host in the target.
    let authority = request.uri.authority();
    let authority = authority.and_then(|a| HeaderValue::from_str(a.as_str()).ok());
    let (asked_host, forwarded_for, proto, forwarded_host) = (
        authority.or_else(|| said(request, HOST)),
        said(request, X_FORWARDED_FOR),
        said(request, X_FORWARDED_PROTO),
        said(request, X_FORWARDED_HOST),
    );
    request.set_raw_path(target)?;
    join_cookies(request)?;
    for name in [AUTHORIZATION, EXPECT, UPGRADE, FORWARDED, X_REAL_IP] {
        request.remove_header(&name);
    }
    let forged = |name: &&HeaderName| is_forged(name.as_str(), caller.trusted);
    let forged: Vec<HeaderName> = request.headers.keys().filter(forged).cloned().collect();
    for name in forged {
        request.remove_header(&name);
    }
    // A client whom the proxy in front of us did not name has none.
    if let Some(address) = caller.address {
        let address = address.to_canonical().to_string();
        let chain = match forwarded_for.filter(|_| caller.trusted) {
            Some(chain) => [chain.as_bytes(), b", ", address.as_bytes()].concat(),
            None => address.into_bytes(),
        };
        insert(request, X_FORWARDED_FOR, &chain)?;
    }
    let spoken: &[u8] = if caller.secure { b"https" } else { b"http" };
    let proto = proto.filter(|_| caller.trusted);
    insert(request, X_FORWARDED_PROTO, proto.as_ref().map_or(spoken, HeaderValue::as_bytes))?;
    let asked = forwarded_host.filter(|_| caller.trusted).or(asked_host);
    insert(request, X_FORWARDED_HOST, asked.as_ref().map_or(b"", HeaderValue::as_bytes))?;
    insert(request, HOST, host.as_bytes())?;
    request.insert_header("X-Request-Id", caller.request_id)?;
    if let Some(key) = caller.key {
        request.insert_header("X-Riskgate-Account", key.account.name.as_str())?;
        request.insert_header("X-Riskgate-Key-Id", key.id.as_str())?;
        request.insert_header("X-Riskgate-Plan", key.account.plan.as_str())?;
    }
    Ok(())
}

/// Takes out of the upstream's answer what is not its to say, and marks where it came from.
pub fn clean_response(response: &mut ResponseHeader) -> Result<()> {
    let nominated: Vec<String> = response
        .headers
        .get_all(CONNECTION)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let drop = |name: &&HeaderName| {
        let name = name.as_str();
        NOT_THEIRS.contains(&name)
            || name.starts_with("access-control-")
            || name.starts_with(OURS)
            || nominated.iter().any(|nominated| nominated == name)
    };
    let dropped: Vec<HeaderName> = response.headers.keys().filter(drop).cloned().collect();
    for name in dropped {
        response.remove_header(&name);
    }
    response.insert_header(X_RISKGATE_SOURCE, "upstream")?;
    let status = response.status.as_u16();
    if status == 429 || status >= 500 {
        response.insert_header(X_FAIL_OPEN, "true")?;
    }
    if !response.headers.contains_key(CACHE_CONTROL) {
        response.insert_header(CACHE_CONTROL, "no-store")?;
    }
    Ok(())
}

/// HTTP/2 may send cookies in crumbs; HTTP/1.1 knows one header of them (RFC 9113 section 8.2.3).
fn join_cookies(request: &mut RequestHeader) -> Result<()> {
    let crumbs: Vec<&[u8]> =
        request.headers.get_all(COOKIE).into_iter().map(HeaderValue::as_bytes).collect();
    match crumbs.len() {
        0 | 1 => Ok(()),
        _ => {
            let whole = crumbs.join(&b"; "[..]);
            insert(request, COOKIE, &whole)
        }
    }
}

/// Whether a caller's header would speak in our name, or route anew behind us. Names with `_` go
/// too: many servers fold them and ours into one.
fn is_forged(name: &str, trusted: bool) -> bool {
    const REROUTE: [&str; 3] = ["x-original-url", "x-rewrite-url", "x-http-method-override"];
    name.starts_with(OURS)
        || name.contains('_')
        || REROUTE.contains(&name)
        || (!trusted && name.starts_with("x-forwarded-"))
}

fn insert(request: &mut RequestHeader, name: HeaderName, value: &[u8]) -> Result<()> {
    match HeaderValue::from_bytes(value) {
        Ok(value) => request.insert_header(name, value),
        Err(_) => {
            request.remove_header(&name);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_speaks_in_our_name_however_it_is_spelled() {
        for name in
            ["x-riskgate-account", "x_riskgate_account", "x-riskgate_plan", "x-original-url", "a_b"]
        {
            assert!(is_forged(name, false) && is_forged(name, true), "{name}");
        }
        // What a proxy of ours says of the way here is kept.
        assert!(is_forged("x-forwarded-port", false));
        assert!(!is_forged("x-forwarded-port", true));
        assert!(!is_forged("traceparent", false));
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
