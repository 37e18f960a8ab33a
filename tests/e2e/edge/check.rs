//! What came of a case, held against what was expected: the words of each difference.

use super::case::{Expected, Saw, code};
use crate::harness::{Answer, Seen};

/// What the upstream says to the client who comes next.
pub const HONEST: &str = "honest";

/// What stands for the names in braces.
pub struct Words(Vec<(&'static str, String)>);

impl Words {
    pub fn new(words: &[(&'static str, String)]) -> Words {
        Words(words.to_vec())
    }

    pub fn fill(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// As [`Words::fill`], for bytes that need not be text.
    pub fn fill_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        // Latin-1 there and back: the names in braces are ASCII, and no byte is changed.
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        self.fill(&text).chars().map(|c| c as u8).collect()
    }
}

/// Status, body and header, among it what every answer of riskgate's own carries.
pub fn answer(answer: &Answer, expected: &Expected, words: &Words, faults: &mut Vec<String>) {
    let mut wrong = |what: String| faults.push(what);
    if answer.status != expected.status {
        wrong(format!("answered {}, and not {}", answer.status, expected.status));
    }
    if answer.complete == expected.cut {
        let shown = String::from_utf8_lossy(&answer.body);
        wrong(format!("complete: {}, {:?} {shown:?}", answer.complete, answer.headers));
    }
    match &expected.body {
        Some(body) if words.fill(body).as_bytes() != answer.body => {
            wrong(format!("said {:?}", String::from_utf8_lossy(&answer.body)));
        }
        None if !expected.to_head && expected.status >= 400 => {
            own_refusal(answer, expected.status, &mut wrong);
        }
        _ => {}
    }
    // An id that was not asked for is a new one.
    let id = answer.all("X-Request-Id").concat();
    let new = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !new && !expected.has.iter().any(|(name, _)| *name == "X-Request-Id") {
        wrong(format!("X-Request-Id: {id:?}"));
    }
    for (name, value) in &expected.has {
        if answer.all(name) != [words.fill(value)] {
            wrong(format!("{name}: {:?}, and not {value}", answer.all(name)));
        }
    }
    for name in &expected.lacks {
        if answer.has(name) {
            wrong(format!("{name}: {:?}", answer.all(name)));
        }
    }
}

fn own_refusal(answer: &Answer, status: u16, wrong: &mut impl FnMut(String)) {
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let error = body["error"].as_str().unwrap_or_default();
    let known = match status {
        500 => ["upstream_unavailable", "upstream_timeout"].contains(&error),
        _ => error == code(status),
    };
    let detailed = matches!(status, 403 | 422);
    if !known || body["detail"].is_string() != detailed {
        wrong(format!("said {:?}", String::from_utf8_lossy(&answer.body)));
    }
    let words = body["detail"].as_str().unwrap_or_default();
    if status == 422 && !words.starts_with("expected ") {
        wrong(format!("explained: {words:?}"));
    }
    let once = |name: &str| answer.all(name).first().copied();
    let length = answer.body.len().to_string();
    for (name, wanted) in [
        ("Content-Type", Some("application/json")),
        ("Cache-Control", Some("no-store")),
        ("Content-Length", Some(length.as_str())),
        ("X-Fail-Open", (status == 500).then_some("true")),
        ("WWW-Authenticate", (status == 401).then_some("Bearer realm=\"riskgate\"")),
        ("X-Riskgate-Source", None),
    ] {
        if once(name) != wanted {
            wrong(format!("{name}: {:?}, and not {wanted:?}", answer.all(name)));
        }
    }
    if answer.has("Allow") != (status == 405) {
        wrong(format!("Allow: {:?}", answer.all("Allow")));
    }
}

/// What reached the upstream, byte for byte, but for the order of fields.
pub fn seen(
    seen: &[Seen],
    saw: &[Saw],
    answers: &[Answer],
    words: &Words,
    faults: &mut Vec<String>,
) {
    if seen.len() != saw.len() {
        let heads: Vec<&str> = seen.iter().map(|seen| seen.head.as_str()).collect();
        faults.push(format!(
            "the upstream saw {} requests, and not {}: {heads:?}",
            seen.len(),
            saw.len()
        ));
        return;
    }
    let theirs = |answer: &&Answer| answer.has("X-Riskgate-Source");
    let passed: Vec<&Answer> = answers.iter().filter(theirs).collect();
    let passed = if passed.is_empty() { answers.iter().collect() } else { passed };
    for (at, (seen, saw)) in seen.iter().zip(saw).enumerate() {
        let id = passed.get(at).and_then(|answer| answer.all("X-Request-Id").first().copied());
        let wanted = written(saw, id.unwrap_or("none"), words);
        let came = sorted(&seen.head);
        if came != wanted || seen.body != words.fill(&saw.body) {
            let missing: Vec<_> = wanted.iter().filter(|line| !came.contains(line)).collect();
            let beside: Vec<_> = came.iter().filter(|line| !wanted.contains(line)).collect();
            faults.push(format!(
                "the upstream saw {beside:?}, and not {missing:?}; body {:?}",
                seen.body
            ));
        }
    }
}

/// The lines of a header, with the request line first and the fields in order.
fn sorted(head: &str) -> Vec<String> {
    let mut lines = head.split("\r\n").filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default().to_owned();
    let mut fields: Vec<String> = lines.map(in_lower_case).collect();
    fields.sort();
    fields.insert(0, first);
    fields
}

/// A field with its name in lower case: in which case names cross is Pingora's business.
fn in_lower_case(field: &str) -> String {
    match field.split_once(':') {
        Some((name, value)) => format!("{}:{value}", name.to_ascii_lowercase()),
        None => field.to_owned(),
    }
}

fn written(saw: &Saw, id: &str, words: &Words) -> Vec<String> {
    let own = saw.fields.iter().map(|field| in_lower_case(&words.fill(field)));
    let mut fields: Vec<String> = own.collect();
    let mut always = vec![
        "Host: {server}",
        "X-Forwarded-For: {address}",
        "X-Forwarded-Host: gate.test",
        "X-Forwarded-Proto: http",
        "X-Request-Id: {id}",
    ];
    if !saw.keyless {
        always.extend([
            "X-Riskgate-Account: {account}",
            "X-Riskgate-Key-Id: {account}-key",
            "X-Riskgate-Plan: pro",
        ]);
    }
    for field in always {
        let field = in_lower_case(&words.fill(field).replace("{id}", id));
        let name = &field[..=field.find(':').unwrap_or(0)];
        if !fields.iter().any(|own| own.starts_with(name)) {
            fields.push(field);
        }
    }
    fields.sort();
    fields.insert(0, words.fill(&saw.line));
    fields
}
