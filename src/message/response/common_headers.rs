//! The fields that riskgate adds to responses: to its own, and to those of upstream servers.

use std::time::Duration;

use arrayvec::ArrayString;
use http::header::VARY;
use itoa::Buffer;
use smol_str::SmolStr;

use super::cors::Cors;
use super::header_field::{self, FieldName, FieldWriter};
use crate::message::request_id::RequestId;
use crate::quota::Allowance;

/// The largest integer in a structured field (RFC 9651 section 3.3.1).
const MAX_FIELD_INTEGER: u64 = 999_999_999_999_999;

/// The value of `Strict-Transport-Security` (RFC 6797).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrictTransportSecurity(SmolStr);

impl StrictTransportSecurity {
    /// Creates the value. For `max_age`, a browser that has seen the field uses only TLS. Returns
    /// `None` for less than a second.
    pub fn new(max_age: Duration) -> Option<StrictTransportSecurity> {
        let seconds = max_age.as_secs();
        (seconds > 0).then(|| StrictTransportSecurity(format!("max-age={seconds}").into()))
    }
}

/// The fields that riskgate adds to a response, whether riskgate answers or a server.
#[derive(Clone, Debug, Default)]
pub struct CommonHeaders {
    /// The request's id.
    pub request_id: RequestId,
    /// The CORS headers.
    pub cors: Cors,
    /// The values of the RateLimit fields; `None` if the response has no such fields.
    pub allowance: Option<Allowance>,
    /// The value of `Strict-Transport-Security`, if the response has one.
    pub hsts: Option<StrictTransportSecurity>,
}

impl CommonHeaders {
    /// Passes each field with its value to `put`, in the order of the header.
    pub(crate) fn for_each_field(&self, put: &mut impl FnMut(&FieldName, &[u8])) {
        put(&header_field::X_REQUEST_ID_FIELD, self.request_id.as_bytes());
        if let Some(Allowance { limit, remaining, reset_in_seconds: reset_in }) = self.allowance {
            let [mut first, mut second] = [Buffer::new(); 2];
            let [limit, remaining] = [limit, remaining].map(|calls| calls.min(MAX_FIELD_INTEGER));
            let policy = concat_up_to_64_bytes(&["\"monthly\";q=", first.format(limit)]);
            put(&header_field::RATELIMIT_POLICY, policy.as_bytes());
            let (left, until) = (first.format(remaining), second.format(reset_in));
            let left = concat_up_to_64_bytes(&["\"monthly\";r=", left, ";t=", until]);
            put(&header_field::RATELIMIT, left.as_bytes());
        }
        if let Some(hsts) = &self.hsts {
            put(&header_field::STRICT_TRANSPORT_SECURITY, hsts.0.as_bytes());
        }
        self.cors.for_each_field(put);
    }

    /// Adds these fields to those of an upstream server's response. They replace the server's
    /// fields of the same name, except `Vary`.
    pub fn add_to_upstream_response(&self, writer: &mut FieldWriter<'_>) {
        self.for_each_field(&mut |field, value| match field.name == VARY {
            true => writer.append(field, value),
            false => writer.insert(field, value),
        });
    }
}

/// Concatenates the parts without an allocation. Panics if they have more than 64 bytes together.
fn concat_up_to_64_bytes(parts: &[&str]) -> ArrayString<64> {
    let mut text = ArrayString::new();
    parts.iter().for_each(|part| text.push_str(part));
    text
}

#[cfg(test)]
mod tests;
