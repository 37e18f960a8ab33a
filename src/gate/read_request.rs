//! Reads the parts of a request that the gates judge, on the Pingora path and on the fast path.

use std::net::IpAddr;

use http::header::{ACCEPT, ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, HeaderName, ORIGIN};
use pingora::http::RequestHeader;
use pingora_proxy::Session;

use crate::message::request_head::{RequestFields, accepts_problems_only, value_if_single};
use crate::message::response::{StrictTransportSecurity, X_REQUEST_ID};

use super::admission::{OriginHeader, PresentedKey};
use super::authz_rules::AUTHZ_KEY_FIELD;
use super::header_values::{iter_values, iter_values_in_bytes};
use super::judge::Gate;
use super::request_context::{RequestContext, accept_or_generate_request_id};
use super::request_parts::RequestParts;
use super::session::peer_address;
use super::state::GateState;

impl Gate {
    /// Returns the value of `Strict-Transport-Security` for responses of a connection; `None` without
    /// TLS, or if the config has none.
    pub(crate) fn hsts(&self, is_tls: bool) -> Option<StrictTransportSecurity> {
        self.startup_rules.hsts.as_ref().filter(|_| is_tls).cloned()
    }

    /// Begins the trace of a request with these values of `traceparent`.
    pub(crate) fn begin_trace<'h, V: Iterator<Item = &'h [u8]>>(
        &self,
        peer: Option<IpAddr>,
        traceparents: impl FnOnce() -> V,
        ctx: &mut RequestContext,
    ) {
        let tracer = &self.state.tracer;
        if tracer.is_on() {
            ctx.trace = tracer.begin(value_if_single(traceparents()), self.is_trusted_proxy(peer));
        }
    }

    /// Returns true if this peer is in `listen.trusted_proxies`.
    pub(super) fn is_trusted_proxy(&self, peer: Option<IpAddr>) -> bool {
        peer.is_some_and(|peer| self.startup_rules.client_address.trusted_proxies.contains(peer))
    }

    /// Returns the field that may contain a key instead of `Authorization`.
    pub(crate) fn key_header(&self) -> Option<&HeaderName> {
        self.startup_rules.key_header.as_ref()
    }

    /// Returns the address of the client of this request.
    pub(super) fn find_client_address(&self, session: &Session) -> Option<IpAddr> {
        self.find_client_address_in(peer_address(session), session.req_header())
    }

    /// Returns the address of the client of a request with this header.
    pub(crate) fn find_client_address_in(
        &self,
        peer: Option<IpAddr>,
        header: &RequestHeader,
    ) -> Option<IpAddr> {
        self.startup_rules.client_address.find_client(peer, |name| iter_values(header, name))
    }

    /// Returns the address of the client of a request whose header has these bytes, which have been
    /// parsed before.
    pub(crate) fn find_client_address_in_bytes(
        &self,
        peer: Option<IpAddr>,
        header: &[u8],
    ) -> Option<IpAddr> {
        self.startup_rules
            .client_address
            .find_client(peer, |name| iter_values_in_bytes(header, name))
    }

    /// Sets the id of the request, and returns the parts that the gates read.
    pub(super) fn read_request<'r>(
        &self,
        header: &'r RequestHeader,
        ctx: &mut RequestContext,
    ) -> RequestParts<'r> {
        let values = |name: HeaderName| iter_values(header, name);
        // If there are several `X-Request-Id` fields, riskgate uses none: the client may have
        // forged the first one, and a proxy may have added the next.
        let id = value_if_single(values(X_REQUEST_ID));
        let key_header_values =
            || self.key_header().into_iter().flat_map(|name| iter_values(header, name));
        let key_values = values(AUTHORIZATION).chain(iter_values(header, AUTHZ_KEY_FIELD));
        self.set_request_id(id, key_values.chain(key_header_values()), ctx);
        let mut accepted = values(ACCEPT).peekable();
        ctx.accepts_problems_only =
            accepted.peek().is_some() && accepted.all(accepts_problems_only);
        RequestParts {
            method: header.method.as_str(),
            target: header.raw_path(),
            key: PresentedKey::bare_or_bearer(key_header_values(), values(AUTHORIZATION)),
            key_header: self.key_header().cloned(),
            origin: OriginHeader::read(values(ORIGIN)),
            has_cors_request_method: header.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD),
        }
    }

    /// Like `read_request`, for a plain request, whose fields have been read. `key_header_values`
    /// returns the values of [`Gate::key_header`].
    pub(crate) fn read_plain_request<'r, V: Iterator<Item = &'r [u8]>>(
        &self,
        method: &'r str,
        target: &'r [u8],
        fields: &RequestFields<'r>,
        key_header_values: impl Fn() -> V,
        ctx: &mut RequestContext,
    ) -> RequestParts<'r> {
        let authorization = fields.authorization.into_iter();
        let key_values = authorization.clone().chain(key_header_values());
        self.set_request_id(fields.request_id, key_values, ctx);
        ctx.accepts_problems_only = fields.accepts_problems_only;
        RequestParts {
            method,
            target,
            key: PresentedKey::bare_or_bearer(key_header_values(), authorization),
            key_header: self.key_header().cloned(),
            origin: OriginHeader::read(fields.origin.into_iter()),
            has_cors_request_method: fields.has_cors_request_method,
        }
    }

    fn set_request_id<'h>(
        &self,
        client_id: Option<&[u8]>,
        key_values: impl Iterator<Item = &'h [u8]>,
        ctx: &mut RequestContext,
    ) {
        let GateState { request_ids, keys, .. } = self.state.as_ref();
        ctx.common_headers.request_id =
            accept_or_generate_request_id(client_id, key_values, request_ids, keys);
    }
}
