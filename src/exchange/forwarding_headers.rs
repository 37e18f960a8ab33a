//! The forwarding fields: those that trusted proxies send, and the `X-Forwarded-` fields that
//! riskgate writes for the upstream server.
//!
//! Owns the rules for fields with several lines and members. The caller decides whether a peer is a
//! trusted proxy.

use std::io::Write;
use std::net::IpAddr;

use http::HeaderMap;
use http::header::{FORWARDED, HOST, HeaderName, HeaderValue};
use pingora::http::RequestHeader;

use crate::message::field_names::has_prefix_ignore_case;
use crate::message::forwarded::iter_elements_from_right;
use crate::message::request_head::members_of_list;
use crate::message::response::FieldName;
use crate::model::network::{Networks, parse_hop_address};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");

static X_FORWARDED_FOR_FIELD: FieldName = FieldName::new(X_FORWARDED_FOR, "x-forwarded-for: ");
static X_FORWARDED_PROTO_FIELD: FieldName =
    FieldName::new(X_FORWARDED_PROTO, "x-forwarded-proto: ");
static X_FORWARDED_HOST_FIELD: FieldName = FieldName::new(X_FORWARDED_HOST, "x-forwarded-host: ");
static X_FORWARDED_PORT_FIELD: FieldName = FieldName::new(X_FORWARDED_PORT, "x-forwarded-port: ");

/// The values of `Host` and of the forwarding fields in a received request. The forwarding fields
/// are recorded only if they come from a trusted proxy. The lines of a field form one list in their
/// order (RFC 9110 section 5.3), and a proxy appends its value at the end. So the last member comes
/// from the nearest proxy.
#[derive(Default)]
pub(super) struct ReceivedForwardingInfo<'r> {
    /// The value of `Host`.
    pub host: Option<&'r [u8]>,
    forwarded_for: Vec<&'r [u8]>,
    /// The members of `X-Forwarded-Proto`, including empty ones. If a proxy's member is empty,
    /// riskgate must not take an earlier member instead: a client may have sent it.
    forwarded_proto: Vec<&'r [u8]>,
    forwarded_host: Vec<&'r [u8]>,
    forwarded_port: Vec<&'r [u8]>,
    /// The lines of `Forwarded`.
    forwarded: Vec<&'r [u8]>,
}

impl<'r> ReceivedForwardingInfo<'r> {
    /// Copies the fields that `record_field` reads. `ReceivedForwardingInfo` then borrows from the
    /// copy, so the caller can change the request.
    pub fn copy_fields(
        request: &RequestHeader,
        is_trusted_proxy: bool,
    ) -> Vec<(HeaderName, HeaderValue)> {
        // Over HTTP/2, the target contains the host.
        let authority = request.uri.authority();
        let authority = authority.and_then(|a| HeaderValue::from_str(a.as_str()).ok());
        let mut fields: Vec<_> = authority.map(|value| (HOST, value)).into_iter().collect();
        let names = [
            HOST,
            X_FORWARDED_FOR,
            X_FORWARDED_PROTO,
            X_FORWARDED_HOST,
            X_FORWARDED_PORT,
            FORWARDED,
        ];
        let needed = if is_trusted_proxy { &names[..] } else { &names[..1] };
        for name in needed {
            let values = request.headers.get_all(name).into_iter().cloned();
            fields.extend(values.map(|value| (name.clone(), value)));
        }
        fields
    }

    /// Records a received field if it is the first `Host`, or a forwarding field from a trusted
    /// proxy.
    pub fn record_field(&mut self, name: &[u8], value: &'r [u8], is_trusted: bool) {
        let is = |known: &HeaderName| name.eq_ignore_ascii_case(known.as_str().as_bytes());
        if is(&HOST) {
            self.host.get_or_insert(value);
        }
        if !is_trusted {
            return;
        }
        let members = || value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        if is(&X_FORWARDED_FOR) {
            self.forwarded_for.extend(members_of_list(value));
        } else if is(&X_FORWARDED_PROTO) {
            self.forwarded_proto.extend(members());
        } else if is(&X_FORWARDED_HOST) {
            self.forwarded_host.extend(members());
        } else if is(&X_FORWARDED_PORT) {
            self.forwarded_port.extend(members());
        } else if is(&FORWARDED) {
            self.forwarded.push(value);
        }
    }

    /// Calls `put` with each `X-Forwarded-` field that riskgate writes. The last member of
    /// `X-Forwarded-For` is the peer's address. The members before it are those that riskgate
    /// received there. The other fields have the values of the first trusted proxy. What no proxy
    /// reports, riskgate takes from its own connection and `Host`, and it sends no port then.
    ///
    /// If trusted proxies report in `Forwarded`, the members are its hops from the first that is no
    /// trusted proxy on. riskgate ignores received `X-Forwarded-` fields then, because such proxies
    /// pass the fields that a client has written.
    pub fn write_x_forwarded_fields(
        &self,
        client: &PeerFacts<'_>,
        put: &mut impl FnMut(&FieldName, &[u8]),
    ) {
        let report = match client.reads_forwarded {
            true => ForwardedReport::read_forwarded(&self.forwarded, client.trusted_proxies),
            false => ForwardedReport::default(),
        };
        let own_hops: Vec<String> = report.hops.iter().rev().map(IpAddr::to_string).collect();
        let hops: Vec<&[u8]> = match client.reads_forwarded {
            true => own_hops.iter().map(String::as_bytes).collect(),
            false => self.forwarded_for.clone(),
        };
        // If the PROXY header named no client (UNKNOWN, LOCAL), the server gets no
        // `X-Forwarded-For`.
        if let Some(peer) = client.peer_address {
            // The peer's address comes last: an upstream server that reads the list from the right
            // and skips the proxies that it trusts arrives at the client.
            let mut list = Vec::with_capacity(64);
            for hop in &hops {
                list.extend_from_slice(hop);
                list.extend_from_slice(b", ");
            }
            append_address(peer, &mut list);
            put(&X_FORWARDED_FOR_FIELD, &list);
        }
        let first_proxy = count_proxies_behind_first(&hops, client.trusted_proxies);
        let scheme: &[u8] = if client.is_tls { b"https" } else { b"http" };
        let reported = report.scheme.as_ref().map(|scheme| scheme.as_bytes());
        let value_of_proxy = |members: &[&'r [u8]]| match client.reads_forwarded {
            true => None,
            false => value_of_proxy(members, first_proxy),
        };
        let reported = reported.or_else(|| value_of_proxy(&self.forwarded_proto));
        let scheme = reported.unwrap_or(scheme);
        // Some servers compare the scheme with `https` in lower case (RFC 3986 section 3.1).
        match scheme.iter().any(u8::is_ascii_uppercase) {
            true => put(&X_FORWARDED_PROTO_FIELD, &scheme.to_ascii_lowercase()),
            false => put(&X_FORWARDED_PROTO_FIELD, scheme),
        }
        let host = value_of_proxy(&self.forwarded_host).or(self.host);
        // HTTP/1.0 clients may send no `Host`, and the server then gets no empty name.
        if let Some(host) = host.filter(|host| !host.is_empty()) {
            put(&X_FORWARDED_HOST_FIELD, host);
        }
        if let Some(port) = value_of_proxy(&self.forwarded_port) {
            put(&X_FORWARDED_PORT_FIELD, port);
        }
    }
}

/// The other end of the connection, a client or the nearest proxy, and what riskgate believes of
/// it.
pub(super) struct PeerFacts<'c> {
    /// The address from which the connection comes; `None` if a PROXY header named no client.
    pub peer_address: Option<IpAddr>,
    /// Whether the connection uses TLS.
    pub is_tls: bool,
    /// `listen.trusted_proxies`.
    pub trusted_proxies: &'c Networks,
    /// Whether trusted proxies report the client in `Forwarded`.
    pub reads_forwarded: bool,
}

/// What trusted proxies report in `Forwarded`.
#[derive(Default)]
struct ForwardedReport {
    /// The hops, from the nearest to the client.
    hops: Vec<IpAddr>,
    /// The scheme that the client used. If the proxy next to the client reports none, the scheme
    /// that the next proxy behind it reports.
    scheme: Option<String>,
}

impl ForwardedReport {
    /// Reads the elements from the right, up to and including the first hop that is no trusted
    /// proxy. Stops earlier at an element that names no valid address.
    fn read_forwarded(lines: &[&[u8]], trusted_proxies: &Networks) -> ForwardedReport {
        let mut report = ForwardedReport::default();
        let elements = lines.iter().rev().flat_map(|line| iter_elements_from_right(line));
        for element in elements.map_while(|element| element) {
            let scheme = element.scheme.filter(|scheme| is_scheme(scheme));
            report.scheme = scheme.map(String::from).or(report.scheme);
            let Some(hop) = element.node.as_deref().and_then(parse_hop_address) else { break };
            report.hops.push(hop);
            if !trusted_proxies.contains(hop) {
                break;
            }
        }
        report
    }
}

fn append_address(address: IpAddr, out: &mut Vec<u8>) {
    let IpAddr::V4(v4) = address.to_canonical() else {
        // A write to a Vec can't fail.
        return drop(write!(out, "{address}"));
    };
    // Formatting costs ten times as much.
    let mut digits = itoa::Buffer::new();
    for (at, octet) in v4.octets().into_iter().enumerate() {
        out.extend_from_slice(if at == 0 { b"" } else { b"." });
        out.extend_from_slice(digits.format(octet).as_bytes());
    }
}

/// Returns true if the text has only characters of a scheme (RFC 3986 section 3.1).
fn is_scheme(text: &str) -> bool {
    let is_scheme_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    !text.is_empty() && text.bytes().all(is_scheme_byte)
}

/// Returns how many trusted proxies are behind the first proxy, to which the client is connected.
/// `hops` are the members of `X-Forwarded-For`: the client, then all proxies but the last.
fn count_proxies_behind_first(hops: &[&[u8]], trusted_proxies: &Networks) -> usize {
    let is_trusted = |hop: &&&[u8]| {
        let address = std::str::from_utf8(hop).ok().and_then(parse_hop_address);
        address.is_some_and(|address| trusted_proxies.contains(address))
    };
    hops.iter().rev().take_while(is_trusted).count().min(hops.len().saturating_sub(1))
}

/// Returns the member that the first proxy appended. `proxies_behind` is the number of proxies that
/// appended a member after it. If the list has fewer members, a later proxy has replaced the list:
/// then its first member is the nearest to the client. `None` if the member is empty.
fn value_of_proxy<'r>(members: &[&'r [u8]], proxies_behind: usize) -> Option<&'r [u8]> {
    let from_right = proxies_behind.min(members.len().checked_sub(1)?);
    members.iter().rev().nth(from_right).copied().filter(|member| !member.is_empty())
}

/// Keeps only the last line of each `X-Forwarded-` field that is left in the request, such as
/// `X-Forwarded-Prefix`. The nearest trusted proxy wrote the last line. A client may have written
/// an earlier line, and an upstream server may read the first line.
pub(super) fn keep_last_x_forwarded_values(fields: &mut HeaderMap) {
    let forwarded = |name: &&HeaderName| is_x_forwarded_field(name.as_str().as_bytes());
    let names: Vec<HeaderName> = fields.keys().filter(forwarded).cloned().collect();
    for name in names {
        if let Some(last) = fields.get_all(&name).iter().next_back().cloned() {
            fields.insert(name, last);
        }
    }
}

pub(super) fn is_x_forwarded_field(name: &[u8]) -> bool {
    has_prefix_ignore_case(name, "x-forwarded-")
}
