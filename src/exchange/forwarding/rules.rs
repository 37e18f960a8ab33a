//! The rules for which header fields are forwarded, in each direction.

use super::fields_of_proxies::is_field_of_proxies;
use crate::exchange::forwarding_headers::is_x_forwarded_field;
use crate::message::field_names::FieldNames;
use crate::message::hop_by_hop::is_hop_by_hop;

const RISKGATE_FIELD_PREFIX: &str = "x-riskgate";
/// Request fields that are not forwarded to the upstream server. Some are meant for riskgate or set
/// by riskgate. Some could make the server choose another route than riskgate did (such as
/// `X-Original-URL`).
static DROPPED_REQUEST_FIELDS: FieldNames<15> = FieldNames::new([
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
/// Response fields that are not forwarded to the client: those that riskgate sets itself or that no
/// upstream server may set.
static DROPPED_RESPONSE_FIELDS: FieldNames<11> = FieldNames::new([
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

/// What an upstream server may set in its response, by the route of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFreedom {
    /// A check: no cookies, no CORS. A response without `Cache-Control` gets `no-store`.
    Check,
    /// A route: cookies, and its own `Cache-Control` or none.
    Route,
    /// A route on which the server decides about other origins: also the CORS fields.
    RouteWithServerCors,
}

/// Returns true if a client's field is forwarded to the upstream server. Dropped fields, hop-by-hop
/// fields that do not frame the body, and riskgate's own fields are not forwarded. A name with
/// characters other than letters, digits and `-` is not forwarded either: many servers map `_` and
/// `-` to the same variable, so the name could pass for riskgate's. Fields in which proxies report
/// the client are forwarded only from a trusted proxy.
pub(super) fn is_request_field_forwarded(name: &[u8], is_trusted_proxy: bool) -> bool {
    !DROPPED_REQUEST_FIELDS.contains(name)
        && (!is_hop_by_hop(name) || is_framing_field(name))
        && !has_prefix_ignore_case(name, RISKGATE_FIELD_PREFIX)
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        && (is_trusted_proxy || !is_x_forwarded_field(name) && !is_field_of_proxies(name))
}

/// Returns true if a field of the upstream server's response is forwarded to the client. Framing
/// fields are always forwarded, even if `Connection` lists them. A checking service may set no
/// cookies: its clients are programs and pages of other origins.
pub(crate) fn is_response_field_forwarded(
    name: &[u8],
    connection_options: &[&[u8]],
    freedom: ServerFreedom,
) -> bool {
    is_framing_field(name)
        || (freedom != ServerFreedom::Check || !equals_ignore_case(name, "set-cookie"))
            && !DROPPED_RESPONSE_FIELDS.contains(name)
            && !is_hop_by_hop(name)
            && (freedom == ServerFreedom::RouteWithServerCors
                || !has_prefix_ignore_case(name, "access-control-"))
            && !has_prefix_ignore_case(name, RISKGATE_FIELD_PREFIX)
            && !is_listed_as_hop_by_hop(name, connection_options)
}

/// Returns true if `Connection` lists this field as hop-by-hop. The options `close` and
/// `keep-alive` name no field.
pub(super) fn is_listed_as_hop_by_hop(name: &[u8], connection_options: &[&[u8]]) -> bool {
    connection_options.iter().any(|other| other.eq_ignore_ascii_case(name))
        && !equals_ignore_case(name, "close")
        && !equals_ignore_case(name, "keep-alive")
}

/// Returns true if this field determines the end of a body.
pub(crate) fn is_framing_field(name: &[u8]) -> bool {
    equals_ignore_case(name, "content-length") || equals_ignore_case(name, "transfer-encoding")
}

/// Returns true if the two names are equal without regard to case.
fn equals_ignore_case(name: &[u8], known: &str) -> bool {
    name.eq_ignore_ascii_case(known.as_bytes())
}

fn has_prefix_ignore_case(name: &[u8], prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| equals_ignore_case(start, prefix))
}
