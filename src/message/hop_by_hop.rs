//! The header fields that concern one connection alone.

use super::field_names::FieldNames;

/// Fields that concern one connection even if `Connection` does not list them (RFC 9110 section
/// 7.6.1, RFC 7540 section 3.2.1, RFC 7235). `Transfer-Encoding` is one; a caller that forwards the
/// framing of a body exempts it.
static HOP_BY_HOP_FIELDS: FieldNames<10> = FieldNames::new([
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

/// Returns true if the field of this name, in any case, concerns one connection alone.
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    HOP_BY_HOP_FIELDS.contains(name)
}
