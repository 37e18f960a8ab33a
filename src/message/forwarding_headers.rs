//! The way that a request came: what trusted proxies say of it in `X-Forwarded-` fields, and what
//! we add for the server behind us.
//!
//! Owns how several lines of such a field are read, for headers in Pingora's form and as bytes
//! alike. Whether a peer is trusted is decided elsewhere.

use std::io::Write;
use std::net::IpAddr;

use http::header::{HOST, HeaderName, HeaderValue};
use pingora_core::Result;
use pingora_http::RequestHeader;

use crate::message::request_head::list_members;
use crate::message::response::HeaderField;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");

static FORWARDED_FOR: HeaderField = HeaderField::new(X_FORWARDED_FOR, "x-forwarded-for: ");
static FORWARDED_PROTO: HeaderField = HeaderField::new(X_FORWARDED_PROTO, "x-forwarded-proto: ");
static FORWARDED_HOST: HeaderField = HeaderField::new(X_FORWARDED_HOST, "x-forwarded-host: ");
static FORWARDED_PORT: HeaderField = HeaderField::new(X_FORWARDED_PORT, "x-forwarded-port: ");

/// What a request's fields say of the way that it came. Only `host` comes from every caller; the
/// rest is what a trusted proxy says, and nothing of it is kept from anybody else.
#[derive(Default)]
pub(super) struct ReceivedForwarding<'r> {
    host: Option<&'r [u8]>,
    /// The members of all lines of `X-Forwarded-For`: they are one list, in order (RFC 9110
    /// section 5.3).
    forwarded_for: Vec<&'r [u8]>,
    proto: Option<&'r [u8]>,
    forwarded_host: Option<&'r [u8]>,
    port: Option<&'r [u8]>,
}

impl<'r> ReceivedForwarding<'r> {
    /// The fields of a request to take note of, apart from it, so that it can be changed.
    pub fn copy_fields(request: &RequestHeader) -> Vec<(HeaderName, HeaderValue)> {
        // HTTP/2 says the host in the target.
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

    /// Takes note of a field. A proxy appends to a list, or adds a line behind those that it got:
    /// so the last member of all is what the nearest proxy said.
    pub fn read_field(&mut self, name: &[u8], value: &'r [u8], is_trusted: bool) {
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
            self.proto = last_member(value);
        } else if is(&X_FORWARDED_HOST) {
            self.forwarded_host = last_member(value);
        } else if is(&X_FORWARDED_PORT) {
            self.port = last_member(value);
        }
    }

    /// What the server behind us is told: the way as far as it is known, and the peer at its end.
    pub fn write_fields(
        &self,
        peer: Option<IpAddr>,
        is_secure: bool,
        put: &mut impl FnMut(&HeaderField, &[u8]),
    ) {
        // A client whom the proxy in front of us did not name has no address.
        if let Some(peer) = peer {
            // Whoever reads it from the right and skips trusted proxies ends at the client.
            let mut list = Vec::with_capacity(64);
            for member in &self.forwarded_for {
                list.extend_from_slice(member);
                list.extend_from_slice(b", ");
            }
            // Memory takes everything.
            let _ = write!(list, "{}", peer.to_canonical());
            put(&FORWARDED_FOR, &list);
        }
        let scheme: &[u8] = if is_secure { b"https" } else { b"http" };
        put(&FORWARDED_PROTO, self.proto.unwrap_or(scheme));
        put(&FORWARDED_HOST, self.forwarded_host.or(self.host).unwrap_or_default());
        if let Some(port) = self.port {
            put(&FORWARDED_PORT, port);
        }
    }
}

/// What stands behind the last comma. A proxy that says nothing there has the last word all the
/// same: what stands before it may be a client's.
fn last_member(value: &[u8]) -> Option<&[u8]> {
    let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
    (!last.is_empty()).then_some(last)
}

/// Of several lines of another `X-Forwarded-` field only the last one goes on: the nearest trusted
/// proxy's. Those before it could be the client's, and a server may read the first.
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

/// Whether this field tells of the way that a request came.
pub(super) fn is_x_forwarded_field(name: &[u8]) -> bool {
    const BEGIN: &[u8] = b"x-forwarded-";
    name.get(..BEGIN.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(BEGIN))
}
