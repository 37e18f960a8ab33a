//! Sizes of targets and headers: what just fits passes, one more is refused.

use super::{Case, Group, Saw};
use crate::harness::{Request, get};

#[test]
fn what_just_fits_passes_and_one_more_is_refused() {
    Group::new("sizes", 3).run([targets(), headers()].concat());
}

/// A target of so many bytes, whose length lies in its query.
fn target(length: usize) -> String {
    let path = "/v1/check/a?";
    format!("{path}{}", "q".repeat(length - path.len()))
}

fn targets() -> Vec<Case> {
    let path = |length: usize| format!("/v1/public/domain/{}", "a".repeat(length - 18));
    let asked = |target: String| get(target).key("{key}");
    vec![
        Case::passed(
            "a target of 2,048 bytes fits",
            asked(target(2048)),
            Saw::line(&format!("GET {} HTTP/1.1", target(2048))),
        ),
        Case::answered("a path of 2,048 bytes fits, and is no domain", 422, asked(path(2048))),
        Case::refused("a target of 2,049 bytes", 414, asked(target(2049))),
        Case::refused("a path of 2,049 bytes", 414, asked(path(2049))),
        Case::refused("a target of 12,000 bytes", 414, asked(target(12_000))),
        Case::refused("a target over every size is still one", 414, asked(target(40_000))),
        Case::refused("a target that never ends", 414, format!("GET {}", target(40_000))),
        Case::refused(
            "a target that is too long before there is an end",
            414,
            format!("GET {}", target(3_000)),
        ),
        Case::refused("a method that is too long", 414, "M".repeat(3_000)),
        Case::refused(
            "a long target on a method for the door",
            414,
            format!("TRACE {} HTTP/1.1\r\nHost: gate.test\r\n\r\n", target(2049)),
        ),
    ]
}

/// A request whose header has so many bytes.
fn header(length: usize) -> Request {
    let filled = |size: usize| {
        get("/v1/check/a")
            .with("Host", "gate.test")
            .with("X-Forwarded-Host", "x")
            .with("Authorization", "Bearer {long}")
            .with("X-Forwarded-Port", &"b".repeat(size))
    };
    // The key is 256 bytes long once it is filled in.
    let empty = filled(0).bytes().len() - "{long}".len() + 256;
    filled(length - empty)
}

/// A request of so many fields.
fn fields(count: usize) -> Request {
    let first = get("/v1/check/a").key("{key}");
    (2..count).fold(first, |request, at| request.with(&format!("X-Forwarded-{at}"), "v"))
}

fn headers() -> Vec<Case> {
    let long = || Saw::line("GET /v1/check/a HTTP/1.1").field("X-Riskgate-Key-Id: {account}-long");
    vec![
        Case::passed("a header of 16,384 bytes fits", header(16_384), long()),
        Case::refused("a header of 16,385 bytes", 431, header(16_385)),
        Case::refused("a header of 200,000 bytes", 431, header(200_000)),
        Case::refused(
            "a header that never ends",
            431,
            format!("GET /v1/check/a HTTP/1.1\r\nHost: a\r\nX-Endless: {}", "e".repeat(20_000)),
        ),
        Case::passed("64 fields fit", fields(64), Saw::line("GET /v1/check/a HTTP/1.1")),
        Case::refused("65 fields", 431, fields(65)),
        Case::refused("500 fields", 431, fields(500)),
        Case::refused(
            "65 fields that all are the key",
            431,
            (2..66).fold(get("/v1/check/a"), |request, _| request.key("{key}")),
        ),
        Case::refused(
            "a long target in a large header",
            414,
            get(target(3_000)).key("{key}").with("X-Big", &"b".repeat(16_000)),
        ),
        Case::refused(
            "a field of 4,000 bytes in a name",
            431,
            get("/v1/check/a").key("{key}").with(&"n".repeat(17_000), "v"),
        ),
    ]
}
