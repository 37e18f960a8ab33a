//! Targets: a target reaches a route only if it has one meaning, and riskgate forwards it in one
//! form.

use super::{Case, CaseGroup, ForwardedRequest};
use crate::harness::{get, request};

fn keyed_request(target: impl AsRef<[u8]>) -> crate::harness::Request {
    get(target).key("{key}")
}

/// riskgate forwards the target in canonical form.
fn forwarded_case(name: &str, written: &str, canonical: &str) -> Case {
    let line = format!("GET /v1/check/{canonical} HTTP/1.1");
    Case::forwarded(
        name,
        keyed_request(format!("/v1/check/{written}")),
        ForwardedRequest::with_request_line(&line),
    )
}

#[test]
fn only_an_unambiguous_target_matches_a_route() {
    let group = CaseGroup::new("targets", 2);
    group.run(
        [
            raw_target_cases(),
            path_cases(),
            check_route_target_cases(),
            canonical_form_cases(),
            prefix_cases(),
            query_cases(),
        ]
        .concat(),
    );
}

fn raw_target_cases() -> Vec<Case> {
    let bytes = |before: &str, suffix: &[u8]| {
        let mut target = before.as_bytes().to_vec();
        target.extend_from_slice(suffix);
        keyed_request(target)
    };
    let refused =
        |name, suffix: &[u8]| Case::refused_and_closed(name, 400, bytes("/v1/check/a", suffix));
    vec![
        refused("a raw tab", b"\tb"),
        refused("a raw NUL", b"\0b"),
        refused("a raw DEL", b"\x7fb"),
        refused("a raw carriage return", b"\rb"),
        refused("a raw line feed", b"\nb"),
        refused("a fragment", b"#b"),
        refused("an angle bracket", b"<b>"),
        refused("a back quote", b"`b"),
        refused("a quotation mark", b"?\"b"),
        refused("half of a character", b"\xc3"),
        refused("an overlong slash", b"\xc0\xaf"),
        refused("a surrogate", b"\xed\xa0\x80"),
        Case::refused_and_closed("a control in the query", 400, bytes("/v1/check/a?b", b"\x01")),
        Case::refused_and_closed(
            "half of a character in the query",
            400,
            bytes("/v1/check/a?b", b"\xff"),
        ),
    ]
}

fn path_cases() -> Vec<Case> {
    let nowhere = |name, target: &str| Case::answered_by_gateway(name, 404, keyed_request(target));
    vec![
        nowhere("the root", "/"),
        nowhere("an asterisk", "*"),
        nowhere("a path without its slash", "v1/check/a"),
        nowhere("a path of another case", "/V1/check/a"),
        nowhere("a double slash in front", "//v1/check/a"),
        nowhere("a double slash within", "/v1//check/a"),
        nowhere("a double slash before the target", "/v1/check//a"),
        nowhere("a dot segment", "/v1/./check/a"),
        nowhere("two dots", "/v1/public/../check/a"),
        nowhere("two dots as a target", "/v1/check/.."),
        nowhere("one dot as a target", "/v1/check/."),
        nowhere("two encoded dots as a target", "/v1/check/%2e%2E"),
        nowhere("an encoded dot as a domain", "/v1/public/domain/%2e"),
        nowhere("an encoded slash in the fixed part", "/v1%2Fcheck/a"),
        nowhere("an encoded letter in the fixed part", "/v1/chec%6B/a"),
        nowhere("a backslash in the fixed part", "/v1\\check/a"),
        nowhere("a path parameter", "/v1/;x/check/a"),
        nowhere("no target", "/v1/check/"),
        nowhere("not even a slash", "/v1/check"),
        nowhere("one segment more", "/v1/check/a/b"),
        nowhere("a slash after the target", "/v1/check/a/"),
        nowhere("a slash after a route", "/v1/usage/"),
        nowhere("two segments as a domain", "/v1/public/domain/first.test/x"),
        nowhere("an unknown route", "/v1/nowhere"),
        Case::answered_by_gateway("OPTIONS on no route", 404, request("OPTIONS", "/v1/nowhere")),
    ]
}

/// The target of a check can't be decoded: the call is counted, and not forwarded.
fn check_route_target_cases() -> Vec<Case> {
    let bad = |name, target: &str| {
        Case::answered_by_gateway(name, 422, keyed_request(format!("/v1/check/{target}")))
    };
    vec![
        bad("an encoded slash", "a%2Fb"),
        bad("an encoded slash after dots", "..%2Fadmin"),
        bad("an encoded NUL", "a%00b"),
        bad("an encoded line break", "a%0D%0AX:%20y"),
        bad("an encoded DEL", "a%7f"),
        bad("an encoded C1 control", "a%C2%85b"),
        bad("an encoded byte that is no text", "a%ff"),
        bad("an encoded overlong slash", "a%C0%AFb"),
        bad("a percent sign and one digit", "a%4"),
        bad("a percent sign alone", "%"),
        bad("a percent sign and no digits", "a%zz"),
        bad("a target of 1,025 bytes", &"a".repeat(1025)),
        forwarded_case("a target of 1,024 bytes passes", &"a".repeat(1024), &"a".repeat(1024)),
        Case::answered_by_gateway(
            "a domain with an encoded slash",
            422,
            keyed_request("/v1/public/domain/a%2Fb.com"),
        ),
        Case::answered_by_gateway(
            "a domain with an encoded NUL",
            422,
            keyed_request("/v1/public/domain/a%00.com"),
        ),
        Case::answered_by_gateway(
            "a domain that is no text",
            422,
            keyed_request("/v1/public/domain/%ff.com"),
        ),
        Case::answered_by_gateway(
            "a domain encoded twice",
            422,
            keyed_request("/v1/public/domain/first%252etest"),
        ),
        Case::answered_by_gateway(
            "a domain that is encoded once",
            200,
            keyed_request("/v1/public/domain/%66irst%2etest"),
        )
        .expect_logs(&[(200, "ok", Some("disposable"))])
        .expect_counts(1, 0)
        .body(FIRST_TEST_VERDICT_BODY),
    ]
}

pub const FIRST_TEST_VERDICT_BODY: &str = "{\"domain\":\"first.test\",\"risk_score\":100,\"reason\":\"disposable\",\
    \"is_free_provider\":false,\"is_corporate_email\":false,\
    \"mx_provider_label\":\"First Mail\"}";

fn canonical_form_cases() -> Vec<Case> {
    vec![
        forwarded_case("an address as people write it", "user@example.com", "user%40example.com"),
        forwarded_case("an address already encoded", "user%40example.com", "user%40example.com"),
        forwarded_case("letters that are encoded", "us%65r%40example%2ecom", "user%40example.com"),
        forwarded_case("upper case stays", "User@Example.com", "User%40Example.com"),
        forwarded_case("a plus sign", "a+b@c.de", "a%2Bb%40c.de"),
        forwarded_case("an encoded space", "a%20b@c.de", "a%20b%40c.de"),
        forwarded_case("unreserved characters", "a~b_c-d.e@f.gh", "a~b_c-d.e%40f.gh"),
        forwarded_case("encoding in lower case", "b%c3%bccher.de", "b%C3%BCcher.de"),
        forwarded_case("raw UTF-8", "b\u{fc}cher.de", "b%C3%BCcher.de"),
        forwarded_case("an encoded percent sign", "100%25@c.de", "100%25%40c.de"),
        forwarded_case(
            "reserved characters",
            "a:b;c=d,e!f$g&h'i(j)k*l@m.no",
            "a%3Ab%3Bc%3Dd%2Ce%21f%24g%26h%27i%28j%29k%2Al%40m.no",
        ),
        forwarded_case("an encoded question mark", "a%3Fb@c.de", "a%3Fb%40c.de"),
        forwarded_case("an encoded backslash", "a%5Cb@c.de", "a%5Cb%40c.de"),
        forwarded_case("a raw backslash", "a\\b@c.de", "a%5Cb%40c.de"),
    ]
}

fn prefix_cases() -> Vec<Case> {
    let nowhere = |name, target: &str| Case::answered_by_gateway(name, 404, keyed_request(target));
    let passes = |name, target: &str| {
        Case::forwarded(
            name,
            keyed_request(target),
            ForwardedRequest::with_request_line(&format!("GET {target} HTTP/1.1")),
        )
    };
    vec![
        nowhere("a longer segment than the prefix", "/v1/signups"),
        nowhere("two dots below a prefix", "/v1/signup/../usage"),
        nowhere("an encoded dot below a prefix", "/v1/signup/%2e%2e/a"),
        passes("an empty segment below a prefix", "/v1/signup//a"),
        passes("an encoded slash below a prefix", "/v1/signup/a%2Fb"),
        nowhere("a backslash below a prefix", "/v1/signup/a\\b"),
        nowhere("an encoded backslash below a prefix", "/v1/signup/a%5Cb"),
        nowhere("a double encoding below a prefix", "/v1/signup/%252e"),
        nowhere("an encoded NUL below a prefix", "/v1/signup/%00"),
        passes("a lone percent sign below a prefix", "/v1/signup/%zz"),
        passes("the prefix itself passes", "/v1/signup"),
        passes("the prefix with a slash passes", "/v1/signup/"),
        passes(
            "a target below the prefix is forwarded unchanged",
            "/v1/signup/a/b%c3%bc?c=d//../e",
        ),
    ]
}

fn query_cases() -> Vec<Case> {
    let verdict = |name, query: &str| {
        Case::answered_by_gateway(
            name,
            200,
            keyed_request(format!("/v1/public/domain/first.test{query}")),
        )
        .expect_logs(&[(200, "ok", Some("disposable"))])
        .expect_counts(1, 0)
        .body(FIRST_TEST_VERDICT_BODY)
    };
    vec![
        forwarded_case(
            "a query is forwarded unchanged",
            "a@b.com?q=1&r=%2F%zz",
            "a%40b.com?q=1&r=%2F%zz",
        ),
        forwarded_case("an empty query is forwarded", "a@b.com?", "a%40b.com?"),
        forwarded_case("a query that looks like a path is forwarded", "a?/../x//y", "a?/../x//y"),
        forwarded_case("a second question mark is forwarded", "a??b?", "a??b?"),
        verdict("a query on riskgate's own response is ignored", "?domain=second.test"),
        verdict("a query that looks like a path is ignored", "?/../usage"),
        Case::answered_by_gateway("a route in the query", 404, keyed_request("/?/v1/check/a")),
    ]
}
