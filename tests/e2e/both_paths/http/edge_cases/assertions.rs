//! Compares what a case produced with what it expects, and describes each difference.

use super::case::{ExpectedResponse, ForwardedRequest, outcome_of_status};
use crate::harness::{ReceivedRequest, Response};

/// The upstream server's response to the next client.
pub const NEXT_CLIENT_BODY: &str = "honest";

/// The values of the placeholders in a case's texts, such as `{key}`.
pub struct Placeholders(Vec<(&'static str, String)>);

impl Placeholders {
    pub fn new(placeholders: &[(&'static str, String)]) -> Placeholders {
        Placeholders(placeholders.to_vec())
    }

    pub fn fill(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// As [`Placeholders::fill`], for bytes that need not be text.
    pub fn fill_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        // Decodes the bytes as Latin-1 and encodes them again, so that no other byte changes. The
        // placeholders are ASCII.
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        self.fill(&text).chars().map(|c| c as u8).collect()
    }
}

/// Checks status, body and header, and the fields that every response of riskgate carries.
pub fn check_response(
    answer: &Response,
    expected: &ExpectedResponse,
    placeholders: &Placeholders,
    faults: &mut Vec<String>,
) {
    let mut wrong = |what: String| faults.push(what);
    if answer.status != expected.status {
        wrong(format!("answered {}, and not {}", answer.status, expected.status));
    }
    if answer.is_complete == expected.is_truncated {
        let shown = String::from_utf8_lossy(&answer.body);
        wrong(format!("complete: {}, {:?} {shown:?}", answer.is_complete, answer.headers));
    }
    match &expected.body {
        Some(body) if placeholders.fill(body).as_bytes() != answer.body => {
            wrong(format!("said {:?}", String::from_utf8_lossy(&answer.body)));
        }
        None if !expected.is_head && expected.status >= 400 => {
            check_refusal(answer, expected.status, &mut wrong);
        }
        _ => {}
    }
    // If the case sends no request id, riskgate must create one.
    let id = answer.header_values("X-Request-Id").concat();
    let new = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !new && !expected.headers.iter().any(|(name, _)| *name == "X-Request-Id") {
        wrong(format!("X-Request-Id: {id:?}"));
    }
    for (name, value) in &expected.headers {
        if answer.header_values(name) != [placeholders.fill(value)] {
            wrong(format!("{name}: {:?}, and not {value}", answer.header_values(name)));
        }
    }
    for name in &expected.absent_headers {
        if answer.has_header(name) {
            wrong(format!("{name}: {:?}", answer.header_values(name)));
        }
    }
}

fn check_refusal(answer: &Response, status: u16, wrong: &mut impl FnMut(String)) {
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let error = body["error"].as_str().unwrap_or_default();
    let known = match status {
        500 => ["upstream_unavailable", "upstream_timeout"].contains(&error),
        _ => error == outcome_of_status(status),
    };
    let detailed = matches!(status, 403 | 422);
    if !known || body["detail"].is_string() != detailed {
        wrong(format!("said {:?}", String::from_utf8_lossy(&answer.body)));
    }
    let detail = body["detail"].as_str().unwrap_or_default();
    if status == 422 && !detail.starts_with("expected ") {
        wrong(format!("explained: {detail:?}"));
    }
    let value_of = |name: &str| answer.header_values(name).first().copied();
    let length = answer.body.len().to_string();
    for (name, wanted) in [
        ("Content-Type", Some("application/json")),
        ("Cache-Control", Some("no-store")),
        ("Content-Length", Some(length.as_str())),
        ("X-Fail-Open", (status == 500).then_some("true")),
        ("WWW-Authenticate", (status == 401).then_some("Bearer realm=\"riskgate\"")),
        ("X-Riskgate-Source", None),
    ] {
        if value_of(name) != wanted {
            wrong(format!("{name}: {:?}, and not {wanted:?}", answer.header_values(name)));
        }
    }
    if answer.has_header("Allow") != (status == 405) {
        wrong(format!("Allow: {:?}", answer.header_values("Allow")));
    }
}

/// Compares the requests that reached the upstream server with the expected requests: every byte,
/// but not the order of the fields.
pub fn check_forwarded_requests(
    seen: &[ReceivedRequest],
    expected: &[ForwardedRequest],
    answers: &[Response],
    placeholders: &Placeholders,
    faults: &mut Vec<String>,
) {
    if seen.len() != expected.len() {
        let heads: Vec<&str> = seen.iter().map(|seen| seen.head.as_str()).collect();
        faults.push(format!(
            "the upstream saw {} requests, and not {}: {heads:?}",
            seen.len(),
            expected.len()
        ));
        return;
    }
    let is_forwarded = |answer: &&Response| answer.has_header("X-Riskgate-Source");
    let forwarded: Vec<&Response> = answers.iter().filter(is_forwarded).collect();
    let forwarded = if forwarded.is_empty() { answers.iter().collect() } else { forwarded };
    for (at, (seen, expected)) in seen.iter().zip(expected).enumerate() {
        let id = forwarded
            .get(at)
            .and_then(|answer| answer.header_values("X-Request-Id").first().copied());
        let wanted = expected_header_lines(expected, id.unwrap_or("none"), placeholders);
        let received = comparable_header_lines(&seen.head);
        if received != wanted || seen.body != placeholders.fill(&expected.body).as_bytes() {
            let missing: Vec<_> = wanted.iter().filter(|line| !received.contains(line)).collect();
            let unexpected: Vec<_> =
                received.iter().filter(|line| !wanted.contains(line)).collect();
            faults.push(format!(
                "the upstream saw {unexpected:?}, and not {missing:?}; body {:?}",
                String::from_utf8_lossy(&seen.body)
            ));
        }
    }
}

/// The lines of a header: the request line, then the sorted fields.
fn comparable_header_lines(head: &str) -> Vec<String> {
    let mut lines = head.split("\r\n").filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default().to_owned();
    let mut fields: Vec<String> = lines.map(lowercase_field_name).collect();
    fields.sort();
    fields.insert(0, first);
    fields
}

/// A field with its name in lower case: Pingora decides the case of forwarded names.
fn lowercase_field_name(field: &str) -> String {
    match field.split_once(':') {
        Some((name, value)) => format!("{}:{value}", name.to_ascii_lowercase()),
        None => field.to_owned(),
    }
}

fn expected_header_lines(
    expected: &ForwardedRequest,
    id: &str,
    placeholders: &Placeholders,
) -> Vec<String> {
    let own = expected.fields.iter().map(|field| lowercase_field_name(&placeholders.fill(field)));
    let mut fields: Vec<String> = own.collect();
    // A check has the server's Host, and a route the client's.
    let is_check = expected.line.contains(" /v1/check/");
    let mut always = vec![
        if is_check { "Host: {server}" } else { "Host: gate.test" },
        "X-Forwarded-For: {address}",
        "X-Forwarded-Proto: http",
        "X-Request-Id: {id}",
    ];
    if expected.has_forwarded_host {
        always.push("X-Forwarded-Host: gate.test");
    }
    if !expected.is_keyless {
        always.extend([
            "X-Riskgate-Account: {account}",
            "X-Riskgate-Key-Id: {account}-key",
            "X-Riskgate-Plan: pro",
        ]);
    }
    for field in always {
        let field = lowercase_field_name(&placeholders.fill(field).replace("{id}", id));
        let name = &field[..=field.find(':').unwrap_or(0)];
        if !fields.iter().any(|own| own.starts_with(name)) {
            fields.push(field);
        }
    }
    fields.sort();
    fields.insert(0, placeholders.fill(&expected.line));
    fields
}
