//! The names of our headers, as HTTP/2 and as HTTP/1.1 write them, and short values.

use http::header::{self, HeaderName};

/// A header of ours: its name, and the same as Pingora writes it in HTTP/1.1, with what separates
/// it from its value.
pub struct Field {
    pub name: HeaderName,
    pub wire: &'static str,
}

impl Field {
    /// A field of this name, which is the same in both.
    pub const fn of(name: HeaderName, wire: &'static str) -> Field {
        Field { name, wire }
    }

    /// Appends a line of this field.
    pub fn write(&self, value: &[u8], out: &mut Vec<u8>) {
        for part in [self.wire.as_bytes(), value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
}

/// The request's id, in both directions.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Set on every answer at which clients let their own user through.
pub const X_FAIL_OPEN: HeaderName = HeaderName::from_static("x-fail-open");
/// Says that the upstream answered.
pub const X_RISKGATE_SOURCE: HeaderName = HeaderName::from_static("x-riskgate-source");

pub static CONTENT_TYPE: Field = Field::of(header::CONTENT_TYPE, "Content-Type: ");
pub static CONTENT_LENGTH: Field = Field::of(header::CONTENT_LENGTH, "Content-Length: ");
pub static TRANSFER_ENCODING: Field = Field::of(header::TRANSFER_ENCODING, "Transfer-Encoding: ");
pub static CACHE_CONTROL: Field = Field::of(header::CACHE_CONTROL, "Cache-Control: ");
pub static DATE: Field = Field::of(header::DATE, "Date: ");
pub static CONNECTION: Field = Field::of(header::CONNECTION, "Connection: ");
pub static ALLOW: Field = Field::of(header::ALLOW, "allow: ");
pub static RETRY_AFTER: Field = Field::of(header::RETRY_AFTER, "retry-after: ");
pub static WWW_AUTHENTICATE: Field = Field::of(header::WWW_AUTHENTICATE, "www-authenticate: ");
pub static VARY_BY: Field = Field::of(header::VARY, "vary: ");
pub static REQUEST_ID: Field = Field::of(X_REQUEST_ID, "x-request-id: ");
pub static SOURCE: Field = Field::of(X_RISKGATE_SOURCE, "x-riskgate-source: ");
pub static FAIL_OPEN: Field = Field::of(X_FAIL_OPEN, "x-fail-open: ");
pub static X_TABLE_VERSION: Field =
    Field::of(HeaderName::from_static("x-table-version"), "x-table-version: ");
pub static X_MATCHED_DOMAIN: Field =
    Field::of(HeaderName::from_static("x-matched-domain"), "x-matched-domain: ");
pub static X_VERDICT_SOURCE: Field =
    Field::of(HeaderName::from_static("x-verdict-source"), "x-verdict-source: ");
pub static X_DID_YOU_MEAN: Field =
    Field::of(HeaderName::from_static("x-did-you-mean"), "x-did-you-mean: ");
/// The limit and its window (draft-ietf-httpapi-ratelimit-headers).
pub static RATELIMIT_POLICY: Field =
    Field::of(HeaderName::from_static("ratelimit-policy"), "ratelimit-policy: ");
/// What remains, and until when (draft-ietf-httpapi-ratelimit-headers).
pub static RATELIMIT: Field = Field::of(HeaderName::from_static("ratelimit"), "ratelimit: ");
pub static ALLOW_ORIGIN: Field =
    Field::of(header::ACCESS_CONTROL_ALLOW_ORIGIN, "access-control-allow-origin: ");
pub static EXPOSE_HEADERS: Field =
    Field::of(header::ACCESS_CONTROL_EXPOSE_HEADERS, "access-control-expose-headers: ");
pub static ALLOW_METHODS: Field =
    Field::of(header::ACCESS_CONTROL_ALLOW_METHODS, "access-control-allow-methods: ");
pub static ALLOW_HEADERS: Field =
    Field::of(header::ACCESS_CONTROL_ALLOW_HEADERS, "access-control-allow-headers: ");
pub static MAX_AGE: Field = Field::of(header::ACCESS_CONTROL_MAX_AGE, "access-control-max-age: ");

/// A short text that is made without allocating; what has no room is left out.
pub struct Short<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Short<N> {
    pub fn of(text: &str) -> Short<N> {
        let mut short = Short { bytes: [0; N], length: 0 };
        short.add(text);
        short
    }

    pub fn number(number: u64) -> Short<N> {
        let mut short = Short { bytes: [0; N], length: 0 };
        short.add_number(number);
        short
    }

    pub fn add(&mut self, text: &str) -> &mut Short<N> {
        let room = N - self.length;
        let text = &text.as_bytes()[..text.len().min(room)];
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text);
        self.length += text.len();
        self
    }

    pub fn add_number(&mut self, number: u64) -> &mut Short<N> {
        self.add(itoa::Buffer::new().format(number))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_wire_are_those_that_pingora_writes() {
        let all = [
            &CONTENT_TYPE,
            &CONTENT_LENGTH,
            &TRANSFER_ENCODING,
            &CACHE_CONTROL,
            &DATE,
            &CONNECTION,
            &ALLOW,
            &RETRY_AFTER,
            &WWW_AUTHENTICATE,
            &VARY_BY,
            &REQUEST_ID,
            &SOURCE,
            &FAIL_OPEN,
            &X_TABLE_VERSION,
            &X_MATCHED_DOMAIN,
            &X_VERDICT_SOURCE,
            &X_DID_YOU_MEAN,
            &RATELIMIT_POLICY,
            &RATELIMIT,
            &ALLOW_ORIGIN,
            &EXPOSE_HEADERS,
            &ALLOW_METHODS,
            &ALLOW_HEADERS,
            &MAX_AGE,
        ];
        for field in all {
            let mut header = pingora_http::ResponseHeader::build_no_case(200, None).unwrap();
            header.insert_header(&field.name, "x").unwrap();
            let mut wire = Vec::new();
            header.header_to_h1_wire(&mut wire);
            assert_eq!(String::from_utf8(wire).unwrap(), format!("{}x\r\n", field.wire));
        }
    }

    #[test]
    fn short_texts_hold_what_has_room() {
        let mut short = Short::<8>::of("q=");
        assert_eq!(short.add_number(1_234).bytes(), b"q=1234");
        assert_eq!(short.add("567").bytes(), b"q=123456");
        assert_eq!(Short::<20>::number(u64::MAX).bytes(), b"18446744073709551615");
    }
}
