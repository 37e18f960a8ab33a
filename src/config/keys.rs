//! `keys.header`: the field in which clients send their key.

use http::HeaderName;

use super::settings::Settings;
use crate::message::hop_by_hop::is_hop_by_hop;

/// The fields that riskgate reads for another purpose, besides those with the prefixes below.
const OTHERWISE_READ_FIELDS: [&str; 18] = [
    "accept",
    "access-control-request-method",
    "authorization",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "origin",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-request-id",
];
const OTHERWISE_READ_PREFIXES: [&str; 2] = ["x-forwarded-", "x-riskgate-"];

impl Settings {
    /// Reads `keys.header`; `None` if keys are in `Authorization` only.
    pub fn read_key_header(&mut self) -> Option<HeaderName> {
        let expected = "the name of a header field that has no other meaning, such as X-Api-Key";
        let header =
            self.parse_setting("keys.header", expected, |raw| parse_key_header(raw.as_text()?));
        let is_usual = self
            .texts_of("keys.header")
            .any(|text| text.get(..13).is_some_and(|it| it.eq_ignore_ascii_case("authorization")));
        if is_usual {
            let hint = "remove this line: riskgate reads Authorization: Bearer KEY without it";
            self.hint_last_fault(Some(hint.to_owned()));
        }
        header
    }
}

fn parse_key_header(text: &str) -> Option<HeaderName> {
    let name: HeaderName = text.parse().ok()?;
    let is_taken = OTHERWISE_READ_FIELDS.contains(&name.as_str())
        || is_hop_by_hop(name.as_str().as_bytes())
        || OTHERWISE_READ_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix));
    (!is_taken).then_some(name)
}

#[cfg(test)]
mod tests;
