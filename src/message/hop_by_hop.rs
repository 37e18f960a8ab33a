//! The header fields that concern only one connection.

use super::field_names::FieldNameSet;

/// Fields that concern only one connection even if `Connection` does not list them (RFC 9110
/// section 7.6.1, RFC 7540 section 3.2.1, RFC 7235). A caller that forwards the framing of a body
/// makes an exception for `Transfer-Encoding`.
static HOP_BY_HOP_FIELDS: FieldNameSet<10> = FieldNameSet::new([
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
]);

/// Returns true if the field of this name concerns only one connection, even if `Connection` does
/// not list it.
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    HOP_BY_HOP_FIELDS.contains(name)
}
