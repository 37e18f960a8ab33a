//! The `X-Forwarded-` fields: those received from trusted proxies, and those written for the
//! upstream server.
//!
//! Owns the rules for several lines of one `X-Forwarded-` field, for Pingora's header types and for
//! raw bytes alike. The caller decides whether a peer is a trusted proxy.

use std::io::Write;
use std::net::IpAddr;

use http::header::{HOST, HeaderName, HeaderValue};
use pingora::Result;
use pingora::http::RequestHeader;

use crate::message::request_head::list_members;
use crate::message::response::HeaderField;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");

static X_FORWARDED_FOR_FIELD: HeaderField = HeaderField::new(X_FORWARDED_FOR, "x-forwarded-for: ");
static X_FORWARDED_PROTO_FIELD: HeaderField =
    HeaderField::new(X_FORWARDED_PROTO, "x-forwarded-proto: ");
static X_FORWARDED_HOST_FIELD: HeaderField =
    HeaderField::new(X_FORWARDED_HOST, "x-forwarded-host: ");
static X_FORWARDED_PORT_FIELD: HeaderField =
    HeaderField::new(X_FORWARDED_PORT, "x-forwarded-port: ");

/// The values of `Host` and the `X-Forwarded-` fields in a received request. `host` is recorded for
/// every client, the other fields only for a trusted proxy.
#[derive(Default)]
pub(super) struct ReceivedForwardingInfo<'r> {
    host: Option<&'r [u8]>,
    /// The members of all lines of `X-Forwarded-For`, which form one list in order (RFC 9110
    /// section 5.3).
    forwarded_for: Vec<&'r [u8]>,
    forwarded_proto: Option<&'r [u8]>,
    forwarded_host: Option<&'r [u8]>,
    forwarded_port: Option<&'r [u8]>,
}

impl<'r> ReceivedForwardingInfo<'r> {
    /// Copies the fields that `record_field` needs. `ReceivedForwardingInfo` then borrows from the
    /// copy, so the caller can change the request meanwhile.
    pub fn copy_forwarding_fields(request: &RequestHeader) -> Vec<(HeaderName, HeaderValue)> {
        // In HTTP/2 the target contains the host.
        let authority = request.uri.authority();
        let authority = authority.and_then(|a| HeaderValue::from_str(a.as_str()).ok());
        let mut fields: Vec<_> = authority.map(|value| (HOST, value)).into_iter().collect();
        let names = [HOST, X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST, X_FORWARDED_PORT];
        for name in names {
            let values = request.headers.get_all(&name).into_iter().cloned();
            fields.extend(values.map(|value| (name.clone(), value)));
        }
        fields
    }

    /// Records a received field, if it is `Host` or an `X-Forwarded-` field from a trusted proxy. A
    /// proxy appends its value to the last line of a list, or adds a line at the end. So the last
    /// member of the last line comes from the nearest proxy.
    pub fn record_field(&mut self, name: &[u8], value: &'r [u8], is_trusted: bool) {
        let is = |known: &HeaderName| name.eq_ignore_ascii_case(known.as_str().as_bytes());
        if is(&HOST) {
            self.host.get_or_insert(value);
        }
        if !is_trusted {
            return;
        }
        if is(&X_FORWARDED_FOR) {
            self.forwarded_for.extend(list_members(value));
        } else if is(&X_FORWARDED_PROTO) {
            self.forwarded_proto = last_list_member(value);
        } else if is(&X_FORWARDED_HOST) {
            self.forwarded_host = last_list_member(value);
        } else if is(&X_FORWARDED_PORT) {
            self.forwarded_port = last_list_member(value);
        }
    }

    /// Passes the `X-Forwarded-` fields for the upstream server to `put`. `X-Forwarded-For` lists
    /// the received addresses and, at the end, `peer_address`.
    pub fn write_x_forwarded_fields(
        &self,
        peer_address: Option<IpAddr>,
        is_tls: bool,
        put: &mut impl FnMut(&HeaderField, &[u8]),
    ) {
        // There is no address if the PROXY header named no client (UNKNOWN, LOCAL).
        if let Some(peer) = peer_address {
            // The peer's address comes last: an upstream server that reads the list from the right
            // and skips the proxies that it trusts arrives at the client.
            let mut list = Vec::with_capacity(64);
            for member in &self.forwarded_for {
                list.extend_from_slice(member);
                list.extend_from_slice(b", ");
            }
            // A write to a Vec can't fail.
            let _ = write!(list, "{}", peer.to_canonical());
            put(&X_FORWARDED_FOR_FIELD, &list);
        }
        let scheme: &[u8] = if is_tls { b"https" } else { b"http" };
        put(&X_FORWARDED_PROTO_FIELD, self.forwarded_proto.unwrap_or(scheme));
        put(&X_FORWARDED_HOST_FIELD, self.forwarded_host.or(self.host).unwrap_or_default());
        if let Some(port) = self.forwarded_port {
            put(&X_FORWARDED_PORT_FIELD, port);
        }
    }
}

/// Returns the member after the last comma; `None` if it is empty. An earlier member is never used
/// instead, because a client may have sent it.
fn last_list_member(value: &[u8]) -> Option<&[u8]> {
    let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
    (!last.is_empty()).then_some(last)
}

/// Keeps only the last line of each `X-Forwarded-` field that is left in the request (such as
/// `X-Forwarded-Prefix`): the line of the nearest trusted proxy. Earlier lines may be the client's,
/// and an upstream server may read the first.
pub(super) fn keep_last_x_forwarded_values(request: &mut RequestHeader) -> Result<()> {
    let forwarded = |name: &&HeaderName| is_x_forwarded_field(name.as_str().as_bytes());
    let names: Vec<HeaderName> = request.headers.keys().filter(forwarded).cloned().collect();
    for name in names {
        if let Some(last) = request.headers.get_all(&name).iter().next_back().cloned() {
            request.insert_header(&name, last)?;
        }
    }
    Ok(())
}

/// Returns true for an `X-Forwarded-` field.
pub(super) fn is_x_forwarded_field(name: &[u8]) -> bool {
    const PREFIX: &[u8] = b"x-forwarded-";
    name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}
