//! The rules by which riskgate forwards header fields, in each direction.

use super::fields_of_proxies::is_field_of_proxies;
use crate::exchange::forwarding_headers::is_x_forwarded_field;
use crate::message::field_names::{FieldNameSet, RISKGATE_FIELD_PREFIX, has_prefix_ignore_case};
use crate::message::hop_by_hop::is_hop_by_hop;

/// Request fields that riskgate does not forward to the upstream server, with one exception:
/// `Authorization` without a key, on a route that needs none. Some fields are meant for riskgate,
/// or riskgate sets them. Others, such as `X-Original-URL`, could make the server choose another
/// route than riskgate.
static DROPPED_REQUEST_FIELDS: FieldNameSet<15> = FieldNameSet::new([
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
]);
/// Response fields that riskgate does not forward to the client: it sets them itself, or no
/// upstream server may set them.
static DROPPED_RESPONSE_FIELDS: FieldNameSet<11> = FieldNameSet::new([
    "date",
    "server",
    "x-fail-open",
    "x-request-id",
    "x-table-version",
    "x-matched-domain",
    "x-verdict-source",
    "x-did-you-mean",
    "x-evidence-date",
    "ratelimit",
    "ratelimit-policy",
]);

/// The response fields that an upstream server may set, by the route of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedResponseFields {
    /// On a check, the server may set neither cookies nor CORS fields. A response without
    /// `Cache-Control` gets `no-store`.
    OfCheck,
    /// On a route of `[[upstream.route]]`, the server may set cookies, but no CORS fields.
    OfRoute,
    /// On a route where the server decides about other origins, it may set the CORS fields as well.
    OfRouteWithServerCors,
}

/// Returns true if riskgate forwards a client's field to the upstream server. It does not forward:
/// - [`DROPPED_REQUEST_FIELDS`] and `X-Riskgate-` fields,
/// - hop-by-hop fields that do not frame the body,
/// - names with other characters than letters, digits and `-`: many servers map `_` and `-` to the
///   same variable, so the server could take the field for riskgate's,
/// - fields in which proxies report the client, unless they come from a trusted proxy.
pub(super) fn is_request_field_forwarded(name: &[u8], is_trusted_proxy: bool) -> bool {
    !DROPPED_REQUEST_FIELDS.contains(name)
        && (!is_hop_by_hop(name) || is_framing_field(name))
        && !has_prefix_ignore_case(name, RISKGATE_FIELD_PREFIX)
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        && (is_trusted_proxy || !is_x_forwarded_field(name) && !is_field_of_proxies(name))
}

/// Returns true if riskgate forwards a field of the upstream server's response to the client.
/// Framing fields are forwarded even if `Connection` lists them. A checking service may set no
/// cookies: its clients are programs and pages of other origins.
pub(crate) fn is_response_field_forwarded(
    name: &[u8],
    connection_options: &[&[u8]],
    allowed: AllowedResponseFields,
) -> bool {
    is_framing_field(name)
        || (allowed != AllowedResponseFields::OfCheck || !equals_ignore_case(name, "set-cookie"))
            && !DROPPED_RESPONSE_FIELDS.contains(name)
            && !is_hop_by_hop(name)
            && (allowed == AllowedResponseFields::OfRouteWithServerCors
                || !has_prefix_ignore_case(name, "access-control-"))
            && !has_prefix_ignore_case(name, RISKGATE_FIELD_PREFIX)
            && !is_listed_as_hop_by_hop(name, connection_options)
}

/// Returns true if `Connection` lists this field as hop-by-hop. The options `close` and
/// `keep-alive` do not name fields.
pub(super) fn is_listed_as_hop_by_hop(name: &[u8], connection_options: &[&[u8]]) -> bool {
    connection_options.iter().any(|other| other.eq_ignore_ascii_case(name))
        && !equals_ignore_case(name, "close")
        && !equals_ignore_case(name, "keep-alive")
}

/// Returns true if this field determines the end of a body.
pub(crate) fn is_framing_field(name: &[u8]) -> bool {
    equals_ignore_case(name, "content-length") || equals_ignore_case(name, "transfer-encoding")
}

fn equals_ignore_case(name: &[u8], known: &str) -> bool {
    name.eq_ignore_ascii_case(known.as_bytes())
}
