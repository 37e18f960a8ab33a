//! Sizes of targets and headers: the largest allowed size passes, one more is refused.

use super::{Case, CaseGroup, ForwardedRequest};
use crate::harness::{Request, get};

#[test]
fn targets_and_headers_at_the_size_limit_pass_and_larger_ones_are_refused() {
    CaseGroup::new("sizes", 3).run([target_cases(), header_cases()].concat());
}

/// A target of this many bytes, with a query that fills the length.
fn target_of_length(length: usize) -> String {
    let path = "/v1/check/a?";
    format!("{path}{}", "q".repeat(length - path.len()))
}

fn target_cases() -> Vec<Case> {
    let path = |length: usize| format!("/v1/public/domain/{}", "a".repeat(length - 18));
    let keyed = |target: String| get(target).key("{key}");
    vec![
        Case::forwarded(
            "a target of 2,048 bytes fits",
            keyed(target_of_length(2048)),
            ForwardedRequest::with_request_line(&format!(
                "GET {} HTTP/1.1",
                target_of_length(2048)
            )),
        ),
        Case::answered_by_gateway(
            "a path of 2,048 bytes fits, and is no domain",
            422,
            keyed(path(2048)),
        ),
        Case::refused_and_closed("a target of 2,049 bytes", 414, keyed(target_of_length(2049))),
        Case::refused_and_closed("a path of 2,049 bytes", 414, keyed(path(2049))),
        Case::refused_and_closed("a target of 12,000 bytes", 414, keyed(target_of_length(12_000))),
        Case::refused_and_closed(
            "a target over every size is still one",
            414,
            keyed(target_of_length(40_000)),
        ),
        Case::refused_and_closed(
            "a target that never ends",
            414,
            format!("GET {}", target_of_length(40_000)),
        ),
        Case::refused_and_closed(
            "a target that is too long before there is an end",
            414,
            format!("GET {}", target_of_length(3_000)),
        ),
        Case::refused_and_closed("a method that is too long", 414, "M".repeat(3_000)),
        Case::refused_and_closed(
            "a long target on a method that is refused early",
            414,
            format!("TRACE {} HTTP/1.1\r\nHost: gate.test\r\n\r\n", target_of_length(2049)),
        ),
    ]
}

/// A request whose header has this many bytes.
fn request_with_header_bytes(length: usize) -> Request {
    let filled = |size: usize| {
        get("/v1/check/a")
            .with_header("Host", "gate.test")
            .with_header("X-Forwarded-Host", "x")
            .with_header("Authorization", "Bearer {long}")
            .with_header("X-Forwarded-Port", &"b".repeat(size))
    };
    // The key has 256 bytes after the runner fills it in.
    let empty = filled(0).to_bytes().len() - "{long}".len() + 256;
    filled(length - empty)
}

/// A request with this many fields.
fn request_with_field_count(count: usize) -> Request {
    let first = get("/v1/check/a").key("{key}");
    (2..count).fold(first, |request, at| request.with_header(&format!("X-Forwarded-{at}"), "v"))
}

fn header_cases() -> Vec<Case> {
    let long = || {
        ForwardedRequest::with_request_line("GET /v1/check/a HTTP/1.1")
            .with_field("X-Riskgate-Key-Id: {account}-long")
    };
    vec![
        Case::forwarded("a header of 16,384 bytes fits", request_with_header_bytes(16_384), long()),
        Case::refused_and_closed(
            "a header of 16,385 bytes",
            431,
            request_with_header_bytes(16_385),
        ),
        Case::refused_and_closed(
            "a header of 200,000 bytes",
            431,
            request_with_header_bytes(200_000),
        ),
        Case::refused_and_closed(
            "a header that never ends",
            431,
            format!("GET /v1/check/a HTTP/1.1\r\nHost: a\r\nX-Endless: {}", "e".repeat(20_000)),
        ),
        Case::forwarded(
            "64 fields fit",
            request_with_field_count(64),
            ForwardedRequest::with_request_line("GET /v1/check/a HTTP/1.1"),
        ),
        Case::refused_and_closed("65 fields", 431, request_with_field_count(65)),
        Case::refused_and_closed("500 fields", 431, request_with_field_count(500)),
        Case::refused_and_closed(
            "65 fields that all are the key",
            431,
            (2..66).fold(get("/v1/check/a"), |request, _| request.key("{key}")),
        ),
        Case::refused_and_closed(
            "a long target in a large header",
            414,
            get(target_of_length(3_000)).key("{key}").with_header("X-Big", &"b".repeat(16_000)),
        ),
        Case::refused_and_closed(
            "a field name of 17,000 bytes",
            431,
            get("/v1/check/a").key("{key}").with_header(&"n".repeat(17_000), "v"),
        ),
    ]
}
