//! The names of riskgate's header fields, as HTTP/2 and as HTTP/1.1 write them.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue, InvalidHeaderValue};

/// The name of a header field that riskgate writes. Over HTTP/1.1, the name has the case in which
/// Pingora writes it.
pub struct FieldName {
    /// The name in lower case, as HTTP/2 writes it.
    pub name: HeaderName,
    /// The start of an HTTP/1.1 line: name, colon, space.
    pub h1_prefix: &'static str,
    /// Whether nearly every response has another value.
    has_unique_values: bool,
}

impl FieldName {
    /// Creates a name. `h1_prefix` must contain the same name.
    pub const fn new(name: HeaderName, h1_prefix: &'static str) -> FieldName {
        FieldName { name, h1_prefix, has_unique_values: false }
    }

    /// Creates the name of a field that has another value in nearly every response.
    const fn with_unique_values(name: HeaderName, h1_prefix: &'static str) -> FieldName {
        FieldName { name, h1_prefix, has_unique_values: true }
    }

    /// The name as HTTP/1.1 writes it.
    pub fn h1_name(&self) -> &'static str {
        &self.h1_prefix[..self.h1_prefix.len() - FIELD_SEPARATOR.len()]
    }

    /// Returns the value for the crate `http`. If the field has another value in nearly every
    /// response, HPACK must keep the value out of its table (RFC 7541 section 7.1.3): in the table,
    /// such values would displace the values that occur again.
    ///
    /// # Errors
    /// Returns an error if the value contains a byte that no field value may contain.
    pub fn to_header_value(&self, value: Bytes) -> Result<HeaderValue, InvalidHeaderValue> {
        let mut value = HeaderValue::from_maybe_shared(value)?;
        value.set_sensitive(self.has_unique_values);
        Ok(value)
    }

    /// Appends the HTTP/1.1 line of this field with this value.
    pub fn write_h1_line(&self, value: &[u8], out: &mut Vec<u8>) {
        out.reserve(self.h1_prefix.len() + value.len() + 2);
        out.extend_from_slice(self.h1_prefix.as_bytes());
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

/// Puts riskgate's fields into a map of fields. The values share one allocation, unless they are
/// long. A value that no field may have is a bug, and is left out.
pub struct FieldWriter<'m> {
    fields: &'m mut HeaderMap,
    block: BytesMut,
}

/// How many fields and how many bytes of values a message mostly gets from riskgate.
const EXPECTED_FIELDS: usize = 12;
const EXPECTED_VALUE_BYTES: usize = 256;

impl<'m> FieldWriter<'m> {
    /// Creates a writer, and grows the map at once as far as riskgate's fields mostly need.
    pub fn new(fields: &'m mut HeaderMap) -> FieldWriter<'m> {
        fields.reserve(EXPECTED_FIELDS);
        FieldWriter { fields, block: BytesMut::with_capacity(EXPECTED_VALUE_BYTES) }
    }

    /// Sets a field. The value replaces all values that the map has for this field.
    pub fn insert(&mut self, field: &FieldName, value: &[u8]) {
        if let Some(value) = self.store_value(field, value) {
            self.fields.insert(&field.name, value);
        }
    }

    /// Adds a field behind the values that the map has for this field.
    pub fn append(&mut self, field: &FieldName, value: &[u8]) {
        if let Some(value) = self.store_value(field, value) {
            self.fields.append(&field.name, value);
        }
    }

    fn store_value(&mut self, field: &FieldName, value: &[u8]) -> Option<HeaderValue> {
        self.block.extend_from_slice(value);
        field.to_header_value(self.block.split().freeze()).ok()
    }
}

/// The bytes between the name and the value of a field.
const FIELD_SEPARATOR: [u8; 2] = [b':', b' '];

/// Appends the HTTP/1.1 line of a field of this name with this value.
pub fn write_h1_line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(&FIELD_SEPARATOR);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The field of the request's id, which riskgate sends to the upstream server and to the client. A
/// client may send an id of its own.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// `traceparent` (W3C Trace Context).
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The field of a response after which a client should let its own user through.
pub const X_FAIL_OPEN: HeaderName = HeaderName::from_static("x-fail-open");
/// The field that says where a response comes from: `upstream` on a server's response, and `table`
/// on riskgate's own answer to a check.
pub const X_RISKGATE_SOURCE: HeaderName = HeaderName::from_static("x-riskgate-source");

pub static CONTENT_TYPE: FieldName = FieldName::new(header::CONTENT_TYPE, "Content-Type: ");
pub static CONTENT_LENGTH: FieldName = FieldName::new(header::CONTENT_LENGTH, "Content-Length: ");
pub static TRANSFER_ENCODING: FieldName =
    FieldName::new(header::TRANSFER_ENCODING, "Transfer-Encoding: ");
pub static CACHE_CONTROL: FieldName = FieldName::new(header::CACHE_CONTROL, "Cache-Control: ");
pub static CONTENT_SECURITY_POLICY: FieldName =
    FieldName::new(header::CONTENT_SECURITY_POLICY, "content-security-policy: ");
pub static DATE: FieldName = FieldName::new(header::DATE, "Date: ");
pub static CONNECTION: FieldName = FieldName::new(header::CONNECTION, "Connection: ");
pub static ALLOW: FieldName = FieldName::new(header::ALLOW, "allow: ");
pub static LOCATION: FieldName = FieldName::new(header::LOCATION, "location: ");
pub static RETRY_AFTER: FieldName =
    FieldName::with_unique_values(header::RETRY_AFTER, "retry-after: ");
pub static WWW_AUTHENTICATE: FieldName =
    FieldName::new(header::WWW_AUTHENTICATE, "www-authenticate: ");
pub static VARY: FieldName = FieldName::new(header::VARY, "vary: ");
pub static X_REQUEST_ID_FIELD: FieldName =
    FieldName::with_unique_values(X_REQUEST_ID, "x-request-id: ");
pub static X_RISKGATE_SOURCE_FIELD: FieldName =
    FieldName::new(X_RISKGATE_SOURCE, "x-riskgate-source: ");
pub static X_FAIL_OPEN_FIELD: FieldName = FieldName::new(X_FAIL_OPEN, "x-fail-open: ");
pub static X_TABLE_VERSION: FieldName =
    FieldName::new(HeaderName::from_static("x-table-version"), "x-table-version: ");
/// The parent domain whose row matched; absent if the domain's own row matched, or if no row
/// matched.
pub static X_MATCHED_DOMAIN: FieldName = FieldName::with_unique_values(
    HeaderName::from_static("x-matched-domain"),
    "x-matched-domain: ",
);
pub static X_VERDICT_SOURCE: FieldName =
    FieldName::new(HeaderName::from_static("x-verdict-source"), "x-verdict-source: ");
/// The day of the newest evidence for a verdict from lists.
pub static X_EVIDENCE_DATE: FieldName =
    FieldName::new(HeaderName::from_static("x-evidence-date"), "x-evidence-date: ");
pub static X_DID_YOU_MEAN: FieldName =
    FieldName::with_unique_values(HeaderName::from_static("x-did-you-mean"), "x-did-you-mean: ");
pub static STRICT_TRANSPORT_SECURITY: FieldName =
    FieldName::new(header::STRICT_TRANSPORT_SECURITY, "strict-transport-security: ");
/// The limit and its window (draft-ietf-httpapi-ratelimit-headers).
pub static RATELIMIT_POLICY: FieldName =
    FieldName::new(HeaderName::from_static("ratelimit-policy"), "ratelimit-policy: ");
/// The calls that remain, and the time until the reset (draft-ietf-httpapi-ratelimit-headers).
pub static RATELIMIT: FieldName =
    FieldName::with_unique_values(HeaderName::from_static("ratelimit"), "ratelimit: ");
pub static ACCESS_CONTROL_ALLOW_ORIGIN: FieldName =
    FieldName::new(header::ACCESS_CONTROL_ALLOW_ORIGIN, "access-control-allow-origin: ");
pub static ACCESS_CONTROL_ALLOW_CREDENTIALS: FieldName =
    FieldName::new(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "access-control-allow-credentials: ");
pub static ACCESS_CONTROL_EXPOSE_HEADERS: FieldName =
    FieldName::new(header::ACCESS_CONTROL_EXPOSE_HEADERS, "access-control-expose-headers: ");
pub static ACCESS_CONTROL_ALLOW_METHODS: FieldName =
    FieldName::new(header::ACCESS_CONTROL_ALLOW_METHODS, "access-control-allow-methods: ");
pub static ACCESS_CONTROL_ALLOW_HEADERS: FieldName =
    FieldName::new(header::ACCESS_CONTROL_ALLOW_HEADERS, "access-control-allow-headers: ");
pub static ACCESS_CONTROL_MAX_AGE: FieldName =
    FieldName::new(header::ACCESS_CONTROL_MAX_AGE, "access-control-max-age: ");

#[cfg(test)]
mod tests;
