//! Origins: which origins a restricted key matches, and which responses a browser may read.

use super::case::outcome_of_status;
use super::targets::FIRST_TEST_VERDICT_BODY;
use super::{Case, CaseGroup};
use crate::harness::{Request, get, request};

const DOMAIN: &str = "/v1/public/domain/first.test";
const APP: &str = "https://app.example.com";
const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";
const CORS_HEADERS: &[&str] = &[
    ALLOW_ORIGIN,
    "Access-Control-Expose-Headers",
    "Access-Control-Allow-Methods",
    "Access-Control-Allow-Headers",
    "Access-Control-Allow-Credentials",
    "Access-Control-Max-Age",
];

fn request_from_origin(origin: &str) -> Request {
    get(DOMAIN).key("{key}").with_header("Origin", origin)
}

fn verdict_case(name: &str, request: Request) -> Case {
    Case::answered_by_gateway(name, 200, request)
        .expect_logs(&[(200, "ok", Some("disposable"))])
        .expect_counts(1, 0)
        .body(FIRST_TEST_VERDICT_BODY)
        .expect_header("Vary", "Origin")
        .expect_no_headers(&["Access-Control-Allow-Credentials"])
}

fn matching_origin_case(name: &str, origin: &str) -> Case {
    verdict_case(name, request_from_origin(origin)).expect_header(ALLOW_ORIGIN, origin)
}

/// riskgate answers 403: the body names the received origin, and no header lets a browser read it.
fn refused_origin_case(name: &str, origin: &str) -> Case {
    let body = format!(
        "{{\"error\":\"forbidden\",\"message\":\"This origin is not authorised for this API \
         key.\",\"detail\":{}}}",
        serde_json::json!(format!("Origin: {origin}"))
    );
    Case::answered_by_gateway(name, 403, request_from_origin(origin))
        .body(&body)
        .expect_header("Vary", "Origin")
        .expect_no_headers(CORS_HEADERS)
}

#[test]
fn a_restricted_key_serves_only_its_own_origins() {
    let key = "origins = [\"https://app.example.com\", \"https://*.example.org\", \
               \"http://localhost:3000\", \"https://xn--bcher-kva.example\"]\n";
    CaseGroup::new("origins", 5)
        .with_key_settings(key)
        .run([allowed_origin_cases(), refused_origin_cases(), preflight_cases()].concat());
}

#[test]
fn an_unrestricted_key_serves_every_origin() {
    let unnamed = |name, origin: &str| {
        verdict_case(name, request_from_origin(origin)).expect_no_headers(CORS_HEADERS)
    };
    let any = "https://anywhere.example";
    CaseGroup::new("any-origin", 6).run(vec![
        matching_origin_case("any origin", any),
        unnamed("a null origin is served without CORS headers", "null"),
        unnamed("a list of origins is served without CORS headers", "https://a.com, https://b.com"),
        unnamed("a nonsense origin is served without CORS headers", "nonsense"),
        verdict_case("a request without an origin is served", get(DOMAIN).key("{key}"))
            .expect_no_headers(CORS_HEADERS),
        Case::answered_by_gateway(
            "a key that wants an origin gets none",
            403,
            get(DOMAIN).key("{strict}"),
        )
        .expect_no_headers(CORS_HEADERS),
        verdict_case(
            "a key that wants an origin gets it",
            get(DOMAIN).key("{strict}").with_header("Origin", APP),
        ),
        Case::answered_by_gateway(
            "a key that wants an origin gets null",
            403,
            get(DOMAIN).key("{strict}").with_header("Origin", "null"),
        )
        .expect_no_headers(CORS_HEADERS),
        preflight_case("a preflight of any origin", any, 204).expect_header(ALLOW_ORIGIN, any),
        preflight_case("a preflight of null", "null", 403).expect_no_headers(CORS_HEADERS),
        Case::answered_by_gateway(
            "an unknown key's refusal can be read",
            401,
            get(DOMAIN).with_header("Origin", any),
        )
        .expect_header(ALLOW_ORIGIN, any),
    ]);
}

fn allowed_origin_cases() -> Vec<Case> {
    vec![
        matching_origin_case("the origin itself", APP),
        matching_origin_case("a host in upper case", "https://APP.Example.COM"),
        matching_origin_case("a scheme in upper case", "HTTPS://app.example.com"),
        matching_origin_case("the default port", "https://app.example.com:443"),
        matching_origin_case("a subdomain", "https://a.example.org"),
        matching_origin_case("a subdomain's subdomain", "https://a.b.example.org"),
        matching_origin_case("another port that is named", "http://localhost:3000"),
        matching_origin_case(
            "an international host in its A-label",
            "https://xn--bcher-kva.example",
        ),
        verdict_case("no origin", get(DOMAIN).key("{key}")).expect_no_headers(CORS_HEADERS),
        Case::answered_by_gateway(
            "a 422 can be read",
            422,
            get("/v1/public/domain/a..b").key("{key}").with_header("Origin", APP),
        )
        .expect_header(ALLOW_ORIGIN, APP)
        .expect_header("Vary", "Origin"),
        Case::answered_by_gateway(
            "a 404 can be read",
            404,
            get("/nowhere").with_header("Origin", APP),
        )
        .expect_header(ALLOW_ORIGIN, APP),
        Case::answered_by_gateway(
            "a 405 can be read",
            405,
            request("PUT", DOMAIN).with_header("Origin", APP),
        )
        .expect_header(ALLOW_ORIGIN, APP),
        Case::answered_by_gateway("a 401 can be read", 401, get(DOMAIN).with_header("Origin", APP))
            .expect_header(ALLOW_ORIGIN, APP),
        Case::answered_by_gateway(
            "a 401 for a foreign origin can not",
            401,
            get(DOMAIN).with_header("Origin", "https://evil.example"),
        )
        .expect_header("Vary", "Origin")
        .expect_no_headers(CORS_HEADERS),
    ]
}

fn refused_origin_cases() -> Vec<Case> {
    let two = request_from_origin(APP).with_header("Origin", APP);
    vec![
        refused_origin_case("another scheme", "http://app.example.com"),
        refused_origin_case("another port", "https://app.example.com:8443"),
        refused_origin_case("the parent", "https://example.com"),
        refused_origin_case("the host as a prefix", "https://app.example.com.evil.net"),
        refused_origin_case("the host as a suffix", "https://evilapp.example.com"),
        refused_origin_case("a subdomain of one that is exact", "https://x.app.example.com"),
        refused_origin_case("the apex of a wildcard", "https://example.org"),
        refused_origin_case("a wildcard's host as a suffix", "https://evilexample.org"),
        refused_origin_case("a wildcard's other scheme", "http://a.example.org"),
        refused_origin_case("a wildcard's other port", "https://a.example.org:444"),
        refused_origin_case("an empty label before a wildcard", "https://.example.org"),
        refused_origin_case("a missing port", "http://localhost"),
        refused_origin_case("the port next to it", "http://localhost:3001"),
        refused_origin_case("null", "null"),
        refused_origin_case("an asterisk", "*"),
        refused_origin_case("a wildcard itself", "https://*.example.org"),
        refused_origin_case("an empty origin", ""),
        refused_origin_case("a trailing slash", "https://app.example.com/"),
        refused_origin_case("a path", "https://app.example.com/path"),
        refused_origin_case("a query", "https://app.example.com?x"),
        refused_origin_case("a trailing dot", "https://app.example.com."),
        refused_origin_case("a user", "https://user@app.example.com"),
        refused_origin_case("a list", "https://app.example.com, https://app.example.com"),
        refused_origin_case("two in a row", "https://app.example.com https://evil.net"),
        refused_origin_case("no scheme", "app.example.com"),
        refused_origin_case("a scheme alone", "https://"),
        refused_origin_case("an empty port", "https://app.example.com:"),
        refused_origin_case("a port that is no port", "https://app.example.com:65979"),
        refused_origin_case("a port with a sign", "https://app.example.com:+443"),
        refused_origin_case("a look-alike in Unicode", "https://b\u{fc}cher.example"),
        Case::answered_by_gateway("two headers that agree", 403, two)
            .body(
                "{\"error\":\"forbidden\",\"message\":\"This origin is not authorised for this API \
                 key.\",\"detail\":\"Origin: https://app.example.com, https://app.example.com\"}",
            )
            .expect_no_headers(CORS_HEADERS),
    ]
}

fn preflight_case(name: &str, origin: &str, status: u16) -> Case {
    let request = request("OPTIONS", DOMAIN)
        .with_header("Origin", origin)
        .with_header("Access-Control-Request-Method", "GET")
        .with_header("Access-Control-Request-Headers", "authorization");
    // A refused preflight has no body.
    let outcome = outcome_of_status(status);
    let case =
        Case::answered_by_gateway(name, status, request).expect_logs(&[(status, outcome, None)]);
    case.body("")
        .expect_header("Vary", "Origin")
        .expect_no_headers(&["Access-Control-Allow-Credentials"])
}

fn preflight_cases() -> Vec<Case> {
    let options = |request: Request| {
        move |name: &str| {
            Case::answered_by_gateway(name, 204, request)
                .expect_header("Allow", "GET, HEAD, OPTIONS")
                .expect_no_headers(&["Access-Control-Allow-Methods", "Content-Length"])
        }
    };
    vec![
        preflight_case("a preflight of an origin of some key", APP, 204)
            .expect_header(ALLOW_ORIGIN, APP)
            .expect_header("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
            .expect_header("Access-Control-Max-Age", "600")
            .expect_no_headers(&["Content-Length", "Allow"]),
        preflight_case("a preflight of a subdomain", "https://a.example.org", 204)
            .expect_header(ALLOW_ORIGIN, "https://a.example.org"),
        preflight_case("a preflight of the apex", "https://example.org", 403)
            .expect_no_headers(CORS_HEADERS),
        preflight_case("a preflight of a foreign origin", "https://evil.example", 403)
            .expect_no_headers(CORS_HEADERS),
        preflight_case("a preflight of null", "null", 403).expect_no_headers(CORS_HEADERS),
        preflight_case("a preflight of a list", "https://app.example.com, https://a.com", 403)
            .expect_no_headers(CORS_HEADERS),
        preflight_case("a preflight of nonsense", "nonsense", 403).expect_no_headers(CORS_HEADERS),
        options(request("OPTIONS", DOMAIN))("OPTIONS without an origin"),
        options(request("OPTIONS", DOMAIN).with_header("Origin", APP))("OPTIONS without a method"),
        options(request("OPTIONS", DOMAIN).with_header("Access-Control-Request-Method", "GET"))(
            "OPTIONS with a method alone",
        ),
    ]
}
