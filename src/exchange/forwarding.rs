//! The header fields that riskgate forwards, to the upstream server and back to the client.
//!
//! Owns which fields the client may set, which the upstream server may set, and which riskgate
//! sets. The rules are the same for Pingora's header types and for raw bytes.

mod fields_of_proxies;
mod rules;

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::{Error, ErrorType, Result};

use super::forwarding_headers::{
    PeerFacts, ReceivedForwardingInfo, is_x_forwarded_field, keep_last_x_forwarded_values,
};
use super::response::{MalformedResponse, ResponseFraming, parse_connection_options};
use crate::keys::Key;
use crate::message::pingora_fields::{edit_request, edit_response};
use crate::message::request_head::{join_cookie_fields, must_stay_end_to_end};
use crate::message::response::{CommonHeaders, FieldName, FieldWriter, TRACEPARENT, header_field};
use crate::message::riskgate_fields::{
    ScreeningFacts, write_identity_fields, write_screening_fields,
};
use crate::model::network::Networks;
use crate::observe::traces::TRACEPARENT_LENGTH;
pub use rules::AllowedResponseFields;
pub(crate) use rules::{is_framing_field, is_response_field_forwarded};
use rules::{is_listed_as_hop_by_hop, is_request_field_forwarded};

static HOST_FIELD: FieldName = FieldName::new(HOST, "Host: ");
static TRACEPARENT_FIELD: FieldName = FieldName::new(TRACEPARENT, "traceparent: ");

/// Which `Host` an upstream server gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostChoice<'c> {
    /// The host that the caller names for the server: `upstream.host`, or the server's address.
    OfServer,
    /// The client's `Host`. If the client sent none, the server gets [`HostChoice::OfServer`].
    OfClient,
    /// The `host` of the route.
    OfRoute(&'c str),
}

/// The facts about a request by which riskgate writes the request for the upstream server.
pub struct ClientInfo<'c> {
    /// The key that the client authenticated with; `None` on a route that needs no key.
    pub key: Option<&'c Arc<Key>>,
    /// The request's id.
    pub request_id: &'c str,
    /// The address from which the connection comes; `None` if a PROXY header named no client.
    pub peer_address: Option<IpAddr>,
    /// Whether the peer address is in `listen.trusted_proxies`.
    pub is_trusted_proxy: bool,
    /// `listen.trusted_proxies`.
    pub trusted_proxies: &'c Networks,
    /// Whether trusted proxies report the client in `Forwarded`, and not in `X-Forwarded-For`.
    pub reads_forwarded: bool,
    /// Whether the client's connection uses TLS.
    pub is_client_tls: bool,
    /// The field that may have contained the key instead of `Authorization`.
    pub key_header: Option<&'c HeaderName>,
    /// Whether the server gets the client's `Authorization`.
    pub passes_authorization: bool,
    /// Which `Host` the server gets.
    pub host: HostChoice<'c>,
    /// The place of the exchange in its trace; `None` if traces are off.
    pub traceparent: Option<[u8; TRACEPARENT_LENGTH]>,
    /// Whether riskgate began the trace. Then the client's `tracestate` belongs to another trace.
    pub is_new_trace: bool,
    /// What screening found in the request; `None` if riskgate tells the server nothing about it.
    pub screening: Option<ScreeningFacts<'c>>,
}

impl ClientInfo<'_> {
    /// Returns true if riskgate forwards a field of this client: by the rules for all clients, and
    /// by the trace, the trusted proxy and the key of this client.
    fn forwards_request_field(&self, name: &[u8]) -> bool {
        let is_own = self.traceparent.is_some()
            && name.eq_ignore_ascii_case(TRACEPARENT.as_str().as_bytes())
            || self.is_new_trace && name.eq_ignore_ascii_case(b"tracestate");
        let is_passed_authorization =
            self.passes_authorization && name.eq_ignore_ascii_case(b"authorization");
        // A trusted proxy that reports in `Forwarded` sets no X-Forwarded- field. So riskgate
        // takes each such field for the client's.
        let is_of_client_beside_forwarded = self.reads_forwarded && is_x_forwarded_field(name);
        (is_request_field_forwarded(name, self.is_trusted_proxy) || is_passed_authorization)
            && !is_of_client_beside_forwarded
            && !is_own
            && self
                .key_header
                .is_none_or(|key_header| !name.eq_ignore_ascii_case(key_header.as_str().as_bytes()))
    }
}

/// Turns the client's request into the request for the upstream server: sets the target and
/// riskgate's own fields, and removes the fields that are not forwarded.
///
/// # Errors
/// Returns an error if `upstream_host` is empty or no valid field value, or if `upstream_target` is
/// no valid target.
pub fn prepare_upstream_request(
    request: &mut RequestHeader,
    upstream_target: &[u8],
    upstream_host: &str,
    client_info: &ClientInfo<'_>,
) -> Result<()> {
    if upstream_host.is_empty() || HeaderValue::from_str(upstream_host).is_err() {
        return Error::e_explain(ErrorType::InternalError, "no valid host of the server");
    }
    let kept = ReceivedForwardingInfo::copy_fields(request, client_info.is_trusted_proxy);
    let mut received = ReceivedForwardingInfo::default();
    for (name, value) in &kept {
        received.record_field(
            name.as_str().as_bytes(),
            value.as_bytes(),
            client_info.is_trusted_proxy,
        );
    }
    join_cookie_fields(request)?;
    remove_connection_and_listed_fields(request);
    edit_request(request, upstream_target, |fields| {
        let is_dropped =
            |name: &&HeaderName| !client_info.forwards_request_field(name.as_str().as_bytes());
        let dropped: Vec<HeaderName> = fields.keys().filter(is_dropped).cloned().collect();
        for name in dropped {
            fields.remove(name);
        }
        keep_last_x_forwarded_values(fields);
        let mut writer = FieldWriter::new(fields);
        write_riskgate_request_fields(
            &received,
            upstream_host,
            client_info,
            &mut |field, value| writer.insert(field, value),
        );
    })
}

/// Removes `Connection` and the fields that `Connection` lists, but no field on which riskgate
/// relies: a client could list one to hide the end of the body, or what a trusted proxy added.
pub fn remove_connection_and_listed_fields(request: &mut RequestHeader) {
    if !request.headers.contains_key(CONNECTION) {
        return;
    }
    let values = request.headers.get_all(CONNECTION).into_iter().map(HeaderValue::as_bytes);
    let connection_options = parse_connection_options(values).unwrap_or_default();
    let is_dropped = |name: &&HeaderName| {
        let name = name.as_str().as_bytes();
        is_listed_as_hop_by_hop(name, &connection_options) && !must_stay_end_to_end(name)
    };
    let dropped: Vec<HeaderName> = request.headers.keys().filter(is_dropped).cloned().collect();
    for name in dropped.iter().chain([&CONNECTION]) {
        request.remove_header(name);
    }
}

/// Appends the header of the request for the upstream server as HTTP/1.1 bytes. `client_fields` are
/// the fields of a request on the fast path, with `Host`. They have at most one `Cookie`, and no
/// `Connection` that lists another field, so this function handles neither. `body_length` is `None`
/// if the client announced no body.
pub(crate) fn write_upstream_request<'r>(
    client_fields: impl Iterator<Item = (&'r [u8], &'r [u8])> + Clone,
    (method, target): (&str, &[u8]),
    body_length: Option<usize>,
    upstream_host: &str,
    client_info: &ClientInfo<'_>,
    out: &mut Vec<u8>,
) {
    for part in [method.as_bytes(), b" ", target, b" HTTP/1.1\r\n"] {
        out.extend_from_slice(part);
    }
    let mut received = ReceivedForwardingInfo::default();
    let mut fields = client_fields;
    while let Some((name, value)) = fields.next() {
        if is_framing_field(name) {
            // The client may have sent the body in chunks. The server gets it with a length.
        } else if !client_info.forwards_request_field(name) {
            received.record_field(name, value, client_info.is_trusted_proxy);
        } else if !is_x_forwarded_field(name)
            || !fields.clone().any(|(other, _)| other.eq_ignore_ascii_case(name))
        {
            header_field::write_h1_line(name, value, out);
        }
    }
    write_riskgate_request_fields(&received, upstream_host, client_info, &mut |field, value| {
        field.write_h1_line(value, out)
    });
    if let Some(length) = body_length {
        let mut digits = itoa::Buffer::new();
        header_field::CONTENT_LENGTH.write_h1_line(digits.format(length).as_bytes(), out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Passes to `put` each request field that riskgate sets itself, with its value.
fn write_riskgate_request_fields(
    received: &ReceivedForwardingInfo<'_>,
    upstream_host: &str,
    client_info: &ClientInfo<'_>,
    put: &mut impl FnMut(&FieldName, &[u8]),
) {
    let host = match client_info.host {
        HostChoice::OfServer => upstream_host.as_bytes(),
        HostChoice::OfClient => received.host.unwrap_or(upstream_host.as_bytes()),
        HostChoice::OfRoute(host) => host.as_bytes(),
    };
    put(&HOST_FIELD, host);
    let client = PeerFacts {
        peer_address: client_info.peer_address,
        is_tls: client_info.is_client_tls,
        trusted_proxies: client_info.trusted_proxies,
        reads_forwarded: client_info.reads_forwarded,
    };
    received.write_x_forwarded_fields(&client, put);
    put(&header_field::X_REQUEST_ID_FIELD, client_info.request_id.as_bytes());
    if let Some(traceparent) = &client_info.traceparent {
        put(&TRACEPARENT_FIELD, traceparent);
    }
    if let Some(key) = client_info.key {
        write_identity_fields(key, put);
    }
    if let Some(facts) = &client_info.screening {
        write_screening_fields(facts, put);
    }
}

/// Turns an upstream server's response into the response for the client: removes the fields that
/// the server may not set, and adds those of `write_riskgate_response_fields` and `common`. Several
/// equal values of `Content-Length` become one. If the body comes in chunks, removes
/// `Content-Length`.
///
/// # Errors
/// See [`ResponseFraming::read`].
pub fn prepare_client_response(
    response: &mut ResponseHeader,
    allowed: AllowedResponseFields,
    common: &CommonHeaders,
) -> Result<(), MalformedResponse> {
    let ResponseFraming { connection_options, content_length, .. } =
        ResponseFraming::of_header(response)?;
    let is_dropped = |name: &&HeaderName| {
        let name = name.as_str().as_bytes();
        !is_response_field_forwarded(name, &connection_options, allowed)
    };
    let dropped: Vec<HeaderName> = response.headers.keys().filter(is_dropped).cloned().collect();
    let status = response.status.as_u16();
    edit_response(response, |fields| {
        for name in dropped {
            fields.remove(name);
        }
        match content_length {
            Some(length) => drop(fields.insert(CONTENT_LENGTH, length.into())),
            None => drop(fields.remove(CONTENT_LENGTH)),
        }
        let keeps_cache_control =
            allowed != AllowedResponseFields::OfCheck || fields.contains_key(CACHE_CONTROL);
        let mut writer = FieldWriter::new(fields);
        write_riskgate_response_fields(status, keeps_cache_control, &mut |field, value| {
            writer.insert(field, value);
        });
        common.add_to_upstream_response(&mut writer);
    });
    Ok(())
}

/// Passes to `put` the fields that depend on an upstream server's response:
/// - `X-Riskgate-Source: upstream`,
/// - `X-Fail-Open: true` if the status is 429, or 500 and above,
/// - `Cache-Control: no-store` unless `keeps_cache_control`.
///
/// [`CommonHeaders`](crate::message::response::CommonHeaders) has riskgate's other fields.
pub(crate) fn write_riskgate_response_fields(
    status: u16,
    keeps_cache_control: bool,
    put: &mut impl FnMut(&FieldName, &[u8]),
) {
    put(&header_field::X_RISKGATE_SOURCE_FIELD, b"upstream");
    if status == 429 || status >= 500 {
        put(&header_field::X_FAIL_OPEN_FIELD, b"true");
    }
    if !keeps_cache_control {
        put(&header_field::CACHE_CONTROL, b"no-store");
    }
}

#[cfg(test)]
mod tests;
