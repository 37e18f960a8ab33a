//! The rules for which header fields are forwarded, in each direction.

use crate::message::forwarding_headers::is_x_forwarded_field;
use crate::message::request_head::{MAX_CONNECTION_OPTIONS, list_members};

const RISKGATE_PREFIX: &str = "x-riskgate";
/// Request fields that are not forwarded to the upstream server: fields meant for riskgate, fields
/// that riskgate sets itself, fields that could change the route behind riskgate, and hop-by-hop
/// fields (RFC 9110 section 7.6.1).
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
/// Response fields that are not forwarded to the client: those that riskgate sets itself or that no
/// upstream server may set, and hop-by-hop fields.
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

/// Returns true if a client's field is forwarded to the upstream server. Names that riskgate uses
/// itself are not. Neither are names with characters other than letters, digits and `-`, because
/// many servers map such a name and riskgate's own to the same variable.
pub(super) fn is_request_field_forwarded(name: &[u8], trusted: bool) -> bool {
    !DROPPED_REQUEST_FIELDS.iter().any(|other| is_field(name, other))
        && !has_prefix(name, RISKGATE_PREFIX)
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        && (trusted || !is_x_forwarded_field(name))
}

/// Returns the field names that the values of `Connection` list as hop-by-hop (RFC 9110 section
/// 7.6.1); `None` if there are more than [`MAX_CONNECTION_OPTIONS`].
pub(crate) fn parse_connection_options<'v>(
    values: impl Iterator<Item = &'v [u8]>,
) -> Option<Vec<&'v [u8]>> {
    let names: Vec<&[u8]> =
        values.flat_map(list_members).take(MAX_CONNECTION_OPTIONS + 1).collect();
    (names.len() <= MAX_CONNECTION_OPTIONS).then_some(names)
}

/// Returns true if a field of the upstream's response is forwarded to the client. Framing fields
/// are, even if `Connection` lists them.
pub(crate) fn is_response_field_forwarded(name: &[u8], nominated: &[&[u8]]) -> bool {
    is_framing_field(name)
        || !DROPPED_RESPONSE_FIELDS.iter().any(|other| is_field(name, other))
            && !has_prefix(name, "access-control-")
            && !has_prefix(name, RISKGATE_PREFIX)
            && !is_hop_by_hop(name, nominated)
}

/// Returns true if `Connection` lists this field as hop-by-hop. The options `close` and
/// `keep-alive` name no field.
pub(super) fn is_hop_by_hop(name: &[u8], nominated: &[&[u8]]) -> bool {
    nominated.iter().any(|other| other.eq_ignore_ascii_case(name))
        && !is_field(name, "close")
        && !is_field(name, "keep-alive")
}

/// Returns true if this field determines the end of a body.
pub(crate) fn is_framing_field(name: &[u8]) -> bool {
    is_field(name, "content-length") || is_field(name, "transfer-encoding")
}

/// Returns whether a body is chunked, from its values of `Transfer-Encoding`. `None` means another
/// transfer coding, which riskgate neither requests nor forwards.
pub(crate) fn is_chunked<'v>(mut codings: impl Iterator<Item = &'v [u8]>) -> Option<bool> {
    match (codings.next(), codings.next()) {
        (None, _) => Some(false),
        (Some(coding), None) if is_field(coding, "chunked") => Some(true),
        _ => None,
    }
}

/// Compares names without regard to case.
fn is_field(name: &[u8], known: &str) -> bool {
    name.eq_ignore_ascii_case(known.as_bytes())
}

fn has_prefix(name: &[u8], prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| is_field(start, prefix))
}
