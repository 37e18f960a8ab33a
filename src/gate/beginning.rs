//! The beginning of every request, over HTTP/1.1 and HTTP/2, on the fast path and the Pingora path.
//! Requests that riskgate refuses before the gates begin here as well.

use std::net::IpAddr;

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use http::HeaderValue;
use http::header::{
    ACCEPT, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, HOST,
    HeaderName, ORIGIN,
};
use memchr::memmem;
use pingora::http::RequestHeader;

use crate::keys::{KeyRing, MIN_KEY_LEN, Token};
use crate::message::request_head::{
    AcceptedTypes, RequestFields, iter_parsed_fields, parsed_method_and_target, value_if_single,
};
use crate::message::request_id::RequestId;
use crate::message::response::{TRACEPARENT, X_REQUEST_ID};

use super::admission::{OriginHeader, PresentedKey};
use super::authz_rules::AUTHZ_KEY_FIELD;
use super::request_context::{ConnectionFacts, RequestContext, StartTime};
use super::state::Gate;

/// Base64 without `=`, whose last digit may have bits that mean nothing.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// The header fields of a request, after riskgate has parsed them.
pub(crate) trait HeaderFields<'r>: Copy {
    /// Iterates over the names and values of all fields. Over HTTP/2, the value of `:authority`, if
    /// there is one, replaces that of `Host`.
    fn iter(self) -> impl Iterator<Item = (&'r [u8], &'r [u8])> + Clone;

    /// Returns all values of a field.
    fn values(self, name: HeaderName) -> impl Iterator<Item = &'r [u8]>;
}

impl<'r> HeaderFields<'r> for &'r RequestHeader {
    fn iter(self) -> impl Iterator<Item = (&'r [u8], &'r [u8])> + Clone {
        let authority = self.uri.authority().map(|authority| authority.as_str().as_bytes());
        let host = authority.map(|host| (HOST.as_str().as_bytes(), host));
        let fields = self.headers.iter().filter(move |(name, _)| host.is_none() || *name != HOST);
        let fields = fields.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
        // The iterator of a `HeaderMap` can't be cloned.
        host.into_iter().chain(fields).collect::<Vec<_>>().into_iter()
    }

    fn values(self, name: HeaderName) -> impl Iterator<Item = &'r [u8]> {
        self.headers.get_all(name).into_iter().map(HeaderValue::as_bytes)
    }
}

/// The bytes of a header, after riskgate has parsed them.
#[derive(Clone, Copy)]
pub(crate) struct ParsedBytes<'r>(pub &'r [u8]);

impl<'r> HeaderFields<'r> for ParsedBytes<'r> {
    fn iter(self) -> impl Iterator<Item = (&'r [u8], &'r [u8])> + Clone {
        iter_parsed_fields(self.0)
    }

    fn values(self, name: HeaderName) -> impl Iterator<Item = &'r [u8]> {
        iter_parsed_fields(self.0)
            .filter(move |(field, _)| field.eq_ignore_ascii_case(name.as_str().as_bytes()))
            .map(|(_, value)| value)
    }
}

/// The head of a request, as the gates read it.
pub(crate) trait Head<'r>: HeaderFields<'r> {
    fn method(self) -> &'r str;

    /// The request target as the client sent it.
    fn target(self) -> &'r [u8];

    fn authorization_values(self) -> impl Iterator<Item = &'r [u8]> {
        self.values(AUTHORIZATION)
    }

    fn origin_values(self) -> impl Iterator<Item = &'r [u8]> {
        self.values(ORIGIN)
    }

    fn request_id_values(self) -> impl Iterator<Item = &'r [u8]> {
        self.values(X_REQUEST_ID)
    }

    /// Whether the request has `Access-Control-Request-Method`, as a CORS preflight has.
    fn has_cors_request_method(self) -> bool {
        self.values(ACCESS_CONTROL_REQUEST_METHOD).next().is_some()
    }

    /// What `Accept` says.
    fn accepted(self) -> AcceptedTypes {
        AcceptedTypes::read(self.values(ACCEPT))
    }
}

impl<'r> Head<'r> for &'r RequestHeader {
    fn method(self) -> &'r str {
        self.method.as_str()
    }

    fn target(self) -> &'r [u8] {
        self.raw_path()
    }
}

impl<'r> Head<'r> for ParsedBytes<'r> {
    fn method(self) -> &'r str {
        std::str::from_utf8(parsed_method_and_target(self.0).0).unwrap_or_default()
    }

    fn target(self) -> &'r [u8] {
        parsed_method_and_target(self.0).1
    }
}

/// The head of a request on the fast path, whose parser has noted the fields that the gates read.
#[derive(Clone, Copy)]
pub(crate) struct PlainHead<'k, 'r, F> {
    pub method: &'r str,
    /// The request target as the client sent it.
    pub target: &'r [u8],
    /// The fields that the parser has noted.
    pub known: &'k RequestFields<'r>,
    pub fields: F,
}

impl<'r, F: HeaderFields<'r>> HeaderFields<'r> for PlainHead<'_, 'r, F> {
    fn iter(self) -> impl Iterator<Item = (&'r [u8], &'r [u8])> + Clone {
        self.fields.iter()
    }

    fn values(self, name: HeaderName) -> impl Iterator<Item = &'r [u8]> {
        self.fields.values(name)
    }
}

impl<'r, F: HeaderFields<'r>> Head<'r> for PlainHead<'_, 'r, F> {
    fn method(self) -> &'r str {
        self.method
    }

    fn target(self) -> &'r [u8] {
        self.target
    }

    fn authorization_values(self) -> impl Iterator<Item = &'r [u8]> {
        self.known.authorization.into_iter()
    }

    fn origin_values(self) -> impl Iterator<Item = &'r [u8]> {
        self.known.origin.into_iter()
    }

    fn request_id_values(self) -> impl Iterator<Item = &'r [u8]> {
        self.known.request_id.into_iter()
    }

    fn has_cors_request_method(self) -> bool {
        self.known.has_cors_request_method
    }

    fn accepted(self) -> AcceptedTypes {
        self.known.accepted
    }
}

/// Stands for a head that riskgate does not accept. riskgate only knows whether its method is HEAD.
#[derive(Clone, Copy)]
pub(super) struct UnreadHead {
    pub is_head_method: bool,
}

impl<'r> HeaderFields<'r> for UnreadHead {
    fn iter(self) -> impl Iterator<Item = (&'r [u8], &'r [u8])> + Clone {
        std::iter::empty()
    }

    fn values(self, _name: HeaderName) -> impl Iterator<Item = &'r [u8]> {
        std::iter::empty()
    }
}

impl<'r> Head<'r> for UnreadHead {
    fn method(self) -> &'r str {
        if self.is_head_method { "HEAD" } else { "" }
    }

    fn target(self) -> &'r [u8] {
        b""
    }
}

/// The parts of a request that the gates read.
pub(crate) struct RequestParts<'r> {
    pub method: &'r str,
    /// The request target as the client sent it.
    pub target: &'r [u8],
    /// The key that the client presents.
    pub key: PresentedKey<'r>,
    /// The field that may contain a key instead of `Authorization`: `keys.header` in the config.
    pub key_header: Option<HeaderName>,
    /// The value of `Authorization`, if it occurs once.
    pub authorization: Option<&'r [u8]>,
    /// The `Origin` header.
    pub origin: OriginHeader,
    /// Whether the request has `Access-Control-Request-Method`, as a CORS preflight has.
    pub has_cors_request_method: bool,
    /// The value of `Access-Control-Request-Headers`, if the request has this field once and has
    /// `Access-Control-Request-Method`.
    pub cors_request_headers: Option<&'r [u8]>,
}

impl Gate {
    /// Begins a request on a connection: reads the rules and the time by which riskgate judges the
    /// request, and finds its id, its client and its trace. `protocol` is `HTTP/1.0`, `HTTP/1.1` or
    /// `HTTP/2`.
    pub(crate) fn begin_request<'r>(
        &self,
        start: StartTime,
        connection: &ConnectionFacts,
        protocol: &'static str,
        head: impl Head<'r>,
    ) -> RequestContext {
        let mut ctx = RequestContext::new(start, self.state.reloadable_rules.peek());
        ctx.unix_now = self.state.ledger.believed_now();
        let peer = connection.peer_address;
        ctx.client_address =
            self.startup_rules.client_address.find_client(peer, |name| head.values(name));
        let tracer = &self.state.tracer;
        if tracer.is_on() {
            let traceparent = value_if_single(head.values(TRACEPARENT));
            ctx.trace = tracer.begin(traceparent, self.is_trusted_proxy(peer));
        }
        let is_tls = connection.tls_version.is_some();
        ctx.common_headers.hsts = self.startup_rules.hsts.as_ref().filter(|_| is_tls).cloned();
        ctx.common_headers.request_id = self.accept_or_generate_request_id(head);
        ctx.is_head_method = head.method() == "HEAD";
        ctx.accepted = head.accepted();
        (ctx.connection, ctx.protocol) = (connection.clone(), Some(protocol));
        ctx
    }

    /// Begins a request that riskgate refuses before the gates, without its head.
    pub(super) fn begin_unread_request(
        &self,
        connection: &ConnectionFacts,
        protocol: &'static str,
        is_head_method: bool,
    ) -> RequestContext {
        let head = UnreadHead { is_head_method };
        self.begin_request(StartTime::now(), connection, protocol, head)
    }

    /// Returns the parts of a request that the gates read.
    pub(crate) fn read_parts<'r>(&self, head: impl Head<'r>) -> RequestParts<'r> {
        let has_cors_request_method = head.has_cors_request_method();
        let requested = || value_if_single(head.values(ACCESS_CONTROL_REQUEST_HEADERS));
        RequestParts {
            method: head.method(),
            target: head.target(),
            key: PresentedKey::read_bare_or_bearer(
                self.key_header_values(head),
                head.authorization_values(),
            ),
            key_header: self.startup_rules.key_header.clone(),
            authorization: value_if_single(head.authorization_values()),
            origin: OriginHeader::read(head.origin_values()),
            has_cors_request_method,
            cors_request_headers: has_cors_request_method.then(requested).flatten(),
        }
    }

    /// Returns true if this peer is in `listen.trusted_proxies`.
    pub(crate) fn is_trusted_proxy(&self, peer: Option<IpAddr>) -> bool {
        peer.is_some_and(|peer| self.startup_rules.client_address.trusted_proxies.contains(peer))
    }

    fn key_header_values<'r>(&self, head: impl Head<'r>) -> impl Iterator<Item = &'r [u8]> {
        self.startup_rules.key_header.iter().flat_map(move |name| head.values(name.clone()))
    }

    /// Returns the id in the client's `X-Request-Id` if the id is valid, and riskgate finds neither
    /// a key nor what may be an e-mail address in the id, otherwise a new id. riskgate logs and
    /// forwards ids, and should log and forward no key and no address. If the request has several
    /// `X-Request-Id` fields, the id is new: the client may have forged the first field, and a
    /// proxy may have added the second.
    fn accept_or_generate_request_id<'r>(&self, head: impl Head<'r>) -> RequestId {
        let valid = value_if_single(head.request_id_values()).and_then(RequestId::parse);
        let accepted = valid.filter(|id| {
            let id = id.as_bytes();
            let ring = self.state.keys.peek();
            let presented = head
                .authorization_values()
                .chain(head.values(AUTHZ_KEY_FIELD))
                .chain(self.key_header_values(head));
            !may_contain_email(id)
                && !contains_key(id, Option::as_ref(&ring))
                && !contains_presented_key(id, presented)
        });
        accepted.unwrap_or_else(|| self.state.request_ids.generate())
    }
}

/// Returns true if a word of this value of `Authorization` contains a key, or the name or the
/// password of `Basic`: see [`contains_key`].
pub(super) fn authorization_contains_key(value: &[u8], ring: Option<&KeyRing>) -> bool {
    words_of_key_length(value).any(|word| contains_key(word, ring))
        || decode_basic_credentials(value).any(|text| {
            let mut parts = text.splitn(2, |byte| *byte == b':');
            contains_key(&text, ring) || parts.any(|part| contains_key(part, ring))
        })
}

/// Returns the texts that servers may read in `Authorization: Basic …` (RFC 7617 section 2).
fn decode_basic_credentials(value: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let (scheme, encoded) = value.split_at_checked(5).unwrap_or_default();
    let is_basic = scheme.eq_ignore_ascii_case(b"basic")
        && encoded.first().is_some_and(u8::is_ascii_whitespace);
    let encoded = if is_basic { encoded } else { b"" };
    // Some servers ignore a `=` in front of other digits, and some begin again behind it.
    let pieces = encoded.split(|byte| *byte == b'=').chain([encoded]);
    pieces.filter_map(decode_base64_leniently)
}

/// Decodes Base64 as servers do that ignore other bytes, and need no `=` at the end.
fn decode_base64_leniently(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.iter().filter_map(|byte| match byte {
        b'-' => Some(b'+'),
        b'_' => Some(b'/'),
        b'+' | b'/' => Some(*byte),
        _ => byte.is_ascii_alphanumeric().then_some(*byte),
    });
    let mut digits: Vec<u8> = digits.collect();
    if digits.len() % 4 == 1 {
        digits.pop();
    }
    LENIENT_BASE64.decode(digits).ok()
}

/// Returns the words of a header value that are long enough to be a key.
fn words_of_key_length(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = value.split(|byte| matches!(byte, b' ' | b',' | b'\t'));
    words.filter(|word| word.len() >= MIN_KEY_LEN)
}

/// Returns true if the id has an `@`, or a character with which an encoded `@` begins.
fn may_contain_email(id: &[u8]) -> bool {
    id.iter().any(|byte| matches!(byte, b'@' | b'%' | b'&' | b'\\'))
}

/// Returns true if the text is a key, or if one of its words of letters, digits and `_` is a key,
/// as in `a-KEY-b`. riskgate recognizes the keys of the ring, and by their checksum all keys that
/// it has generated.
fn contains_key(text: &[u8], ring: Option<&KeyRing>) -> bool {
    let is_known = |part: &[u8]| ring.is_some_and(|ring| ring.contains_key(part));
    let is_key = |part: &[u8]| Token::has_valid_checksum(part) || is_known(part);
    let mut parts = text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
    is_key(text) || parts.any(|part| part.len() >= MIN_KEY_LEN && is_key(part))
}

/// Returns true if the id contains a word of these header values that is long enough to be a key.
fn contains_presented_key<'r>(id: &[u8], values: impl Iterator<Item = &'r [u8]>) -> bool {
    let mut words = values.flat_map(words_of_key_length);
    words.any(|word| memmem::find(id, word).is_some())
}
