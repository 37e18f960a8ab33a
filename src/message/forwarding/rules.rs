//! Which fields go on, in each direction.

use crate::message::forwarding_headers::is_forwarded;
use crate::message::request_head::{MOST_CONNECTION_OPTIONS, members};

const OURS: &str = "x-riskgate";
/// What a caller may not say to the upstream: what is meant for us, what we say ourselves, what
/// would route anew behind us, and what is for one hop only (RFC 9110 section 7.6.1).
const NOT_THE_CALLERS: [&str; 23] = [
    "authorization",
    "host",
    "expect",
    "forwarded",
    "x-real-ip",
    "x-request-id",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-original-url",
    "x-rewrite-url",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "te",
    "trailer",
    "upgrade",
    "http2-settings",
];
/// What an upstream may not say to the client: names of ours, and those of one hop only.
const NOT_THEIRS: [&str; 17] = [
    "connection",
    "date",
    "server",
    "set-cookie",
    "x-fail-open",
    "x-request-id",
    "x-table-version",
    "x-matched-domain",
    "x-verdict-source",
    "x-did-you-mean",
    "ratelimit",
    "ratelimit-policy",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "trailer",
    "upgrade",
];

/// Whether a caller's field goes on to the upstream: none that would speak in our name. Names with
/// other characters than letters, digits and `-` do not either: many servers fold them and ours
/// into one.
pub(super) fn crosses(name: &[u8], trusted: bool) -> bool {
    !NOT_THE_CALLERS.iter().any(|other| is(name, other))
        && !begins(name, OURS)
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        && (trusted || !is_forwarded(name))
}

/// The names that the values of `Connection` nominate, for one hop only (RFC 9110 section
/// 7.6.1); `None` if they are too many to be meant.
pub(crate) fn nominated<'v>(values: impl Iterator<Item = &'v [u8]>) -> Option<Vec<&'v [u8]>> {
    let few: Vec<&[u8]> = values.flat_map(members).take(MOST_CONNECTION_OPTIONS + 1).collect();
    (few.len() <= MOST_CONNECTION_OPTIONS).then_some(few)
}

/// Whether a field of the upstream's answer goes on to the client. What frames it stays, whatever
/// is nominated.
pub(crate) fn returns(name: &[u8], nominated: &[&[u8]]) -> bool {
    frames(name)
        || !NOT_THEIRS.iter().any(|other| is(name, other))
            && !begins(name, "access-control-")
            && !begins(name, OURS)
            && !is_nominated(name, nominated)
}

/// Whether a field is for one hop only. `close` and `keep-alive` nominate none.
pub(super) fn is_nominated(name: &[u8], nominated: &[&[u8]]) -> bool {
    nominated.iter().any(|other| other.eq_ignore_ascii_case(name))
        && !is(name, "close")
        && !is(name, "keep-alive")
}

/// Whether this field says where a body ends.
pub(crate) fn frames(name: &[u8]) -> bool {
    is(name, "content-length") || is(name, "transfer-encoding")
}

/// Whether these are the transfer codings of a body that can be passed on: none, or chunks. We ask
/// for no other.
pub(crate) fn is_chunked<'v>(mut codings: impl Iterator<Item = &'v [u8]>) -> Option<bool> {
    match (codings.next(), codings.next()) {
        (None, _) => Some(false),
        (Some(coding), None) if is(coding, "chunked") => Some(true),
        _ => None,
    }
}

/// Names are compared whatever their case.
fn is(name: &[u8], known: &str) -> bool {
    name.eq_ignore_ascii_case(known.as_bytes())
}

fn begins(name: &[u8], with: &str) -> bool {
    name.get(..with.len()).is_some_and(|begin| is(begin, with))
}
