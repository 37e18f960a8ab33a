//! Which fields go on, in each direction.

use crate::message::forwarding_headers::is_x_forwarded_field;
use crate::message::request_head::{MAX_CONNECTION_OPTIONS, list_members};

const RISKGATE_PREFIX: &str = "x-riskgate";
/// What a caller may not say to the upstream: what is  suggest  for us, what we say ourselves, what
/// would route anew behind us, and what is for one hop only (RFC 9110 section 7.6.1).
const DROPPED_REQUEST_FIELDS: [&str; 23] = [
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
const DROPPED_RESPONSE_FIELDS: [&str; 17] = [
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
pub(super) fn is_request_field_forwarded(name: &[u8], trusted: bool) -> bool {
    !DROPPED_REQUEST_FIELDS.iter().any(|other| is_field(name, other))
        && !has_prefix(name, RISKGATE_PREFIX)
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        && (trusted || !is_x_forwarded_field(name))
}

/// The names that the values of `Connection` nominate, for one hop only (RFC 9110 section
/// 7.6.1); `None` if they are too many to be meant.
pub(crate) fn parse_connection_options<'v>(
    values: impl Iterator<Item = &'v [u8]>,
) -> Option<Vec<&'v [u8]>> {
    let few: Vec<&[u8]> = values.flat_map(list_members).take(MAX_CONNECTION_OPTIONS + 1).collect();
    (few.len() <= MAX_CONNECTION_OPTIONS).then_some(few)
}

/// Whether a field of the upstream's answer goes on to the client. What frames it stays, whatever
/// is nominated.
pub(crate) fn is_response_field_forwarded(name: &[u8], nominated: &[&[u8]]) -> bool {
    is_framing_field(name)
        || !DROPPED_RESPONSE_FIELDS.iter().any(|other| is_field(name, other))
            && !has_prefix(name, "access-control-")
            && !has_prefix(name, RISKGATE_PREFIX)
            && !is_hop_by_hop(name, nominated)
}

/// Whether a field is for one hop only. `close` and `keep-alive` nominate none.
pub(super) fn is_hop_by_hop(name: &[u8], nominated: &[&[u8]]) -> bool {
    nominated.iter().any(|other| other.eq_ignore_ascii_case(name))
        && !is_field(name, "close")
        && !is_field(name, "keep-alive")
}

/// Whether this field says where a body ends.
pub(crate) fn is_framing_field(name: &[u8]) -> bool {
    is_field(name, "content-length") || is_field(name, "transfer-encoding")
}

/// Whether these are the transfer codings of a body that can be passed on: none, or chunks. We ask
/// for no other.
pub(crate) fn is_chunked<'v>(mut codings: impl Iterator<Item = &'v [u8]>) -> Option<bool> {
    match (codings.next(), codings.next()) {
        (None, _) => Some(false),
        (Some(coding), None) if is_field(coding, "chunked") => Some(true),
        _ => None,
    }
}

/// Names are compared whatever their case.
fn is_field(name: &[u8], known: &str) -> bool {
    name.eq_ignore_ascii_case(known.as_bytes())
}

fn has_prefix(name: &[u8], with: &str) -> bool {
    name.get(..with.len()).is_some_and(|begin| is_field(begin, with))
}
