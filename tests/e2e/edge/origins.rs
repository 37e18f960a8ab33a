//! Origins: what a restricted key matches, and what a browser may read.

use super::targets::FIRST;
use super::{Case, Group};
use crate::harness::{Request, get, request};

const DOMAIN: &str = "/v1/public/domain/first.test";
const APP: &str = "https://app.example.com";
const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";
const VISIBLE: &[&str] = &[
    ALLOW_ORIGIN,
    "Access-Control-Expose-Headers",
    "Access-Control-Allow-Methods",
    "Access-Control-Allow-Headers",
    "Access-Control-Allow-Credentials",
    "Access-Control-Max-Age",
];

fn from(origin: &str) -> Request {
    get(DOMAIN).key("{key}").with("Origin", origin)
}

fn verdict(name: &str, request: Request) -> Case {
    Case::answered(name, 200, request)
        .logs(&[(200, "ok", Some("disposable"))])
        .counts(1, 0)
        .body(FIRST)
        .has("Vary", "Origin")
        .lacks(&["Access-Control-Allow-Credentials"])
}

fn matches(name: &str, origin: &str) -> Case {
    verdict(name, from(origin)).has(ALLOW_ORIGIN, origin)
}

/// The body says what came, and no header lets a browser read it.
fn differs(name: &str, origin: &str) -> Case {
    let body = format!(
        "{{\"error\":\"forbidden\",\"message\":\"This origin is not authorised for this API \
         key.\",\"detail\":{}}}",
        serde_json::json!(format!("Origin: {origin}"))
    );
    Case::answered(name, 403, from(origin)).body(&body).has("Vary", "Origin").lacks(VISIBLE)
}

#[test]
fn a_restricted_key_serves_its_own_origins() {
    let key = "origins = [\"https://app.example.com\", \"https://*.example.org\", \
               \"http://localhost:3000\", \"https://xn--bcher-kva.example\"]\n";
    Group::new("origins", 5).key(key).run([own(), other(), preflights()].concat());
}

#[test]
fn an_unrestricted_key_serves_every_origin() {
    let unnamed = |name, origin: &str| verdict(name, from(origin)).lacks(VISIBLE);
    let any = "https://anywhere.example";
    Group::new("any-origin", 6).run(vec![
        matches("any origin", any),
        unnamed("null is served, and not named", "null"),
        unnamed("a list is served, and not named", "https://a.com, https://b.com"),
        unnamed("nonsense is served, and not named", "nonsense"),
        verdict("no origin is served", get(DOMAIN).key("{key}")).lacks(VISIBLE),
        Case::answered("a key that wants an origin gets none", 403, get(DOMAIN).key("{strict}"))
            .lacks(VISIBLE),
        verdict(
            "a key that wants an origin gets it",
            get(DOMAIN).key("{strict}").with("Origin", APP),
        ),
        Case::answered(
            "a key that wants an origin gets null",
            403,
            get(DOMAIN).key("{strict}").with("Origin", "null"),
        )
        .lacks(VISIBLE),
        preflight("a preflight of any origin", any, 204).has(ALLOW_ORIGIN, any),
        preflight("a preflight of null", "null", 403).lacks(VISIBLE),
        Case::answered(
            "an unknown key's refusal can be read",
            401,
            get(DOMAIN).with("Origin", any),
        )
        .has(ALLOW_ORIGIN, any),
    ]);
}

fn own() -> Vec<Case> {
    vec![
        matches("the origin itself", APP),
        matches("a host in upper case", "https://APP.Example.COM"),
        matches("a scheme in upper case", "HTTPS://app.example.com"),
        matches("the default port", "https://app.example.com:443"),
        matches("a subdomain", "https://a.example.org"),
        matches("a subdomain's subdomain", "https://a.b.example.org"),
        matches("another port that is named", "http://localhost:3000"),
        matches("an international host in its A-label", "https://xn--bcher-kva.example"),
        verdict("no origin", get(DOMAIN).key("{key}")).lacks(VISIBLE),
        Case::answered(
            "a 422 can be read",
            422,
            get("/v1/public/domain/a..b").key("{key}").with("Origin", APP),
        )
        .has(ALLOW_ORIGIN, APP)
        .has("Vary", "Origin"),
        Case::answered("a 404 can be read", 404, get("/nowhere").with("Origin", APP))
            .has(ALLOW_ORIGIN, APP),
        Case::answered("a 405 can be read", 405, request("PUT", DOMAIN).with("Origin", APP))
            .has(ALLOW_ORIGIN, APP),
        Case::answered("a 401 can be read", 401, get(DOMAIN).with("Origin", APP))
            .has(ALLOW_ORIGIN, APP),
        Case::answered(
            "a 401 for a foreign origin can not",
            401,
            get(DOMAIN).with("Origin", "https://evil.example"),
        )
        .has("Vary", "Origin")
        .lacks(VISIBLE),
    ]
}

fn other() -> Vec<Case> {
    let two = from(APP).with("Origin", APP);
    vec![
        differs("another scheme", "http://app.example.com"),
        differs("another port", "https://app.example.com:8443"),
        differs("the parent", "https://example.com"),
        differs("the host as a prefix", "https://app.example.com.evil.net"),
        differs("the host as a suffix", "https://evilapp.example.com"),
        differs("a subdomain of one that is exact", "https://x.app.example.com"),
        differs("the apex of a wildcard", "https://example.org"),
        differs("a wildcard's host as a suffix", "https://evilexample.org"),
        differs("a wildcard's other scheme", "http://a.example.org"),
        differs("a wildcard's other port", "https://a.example.org:444"),
        differs("an empty label before a wildcard", "https://.example.org"),
        differs("a missing port", "http://localhost"),
        differs("the port next to it", "http://localhost:3001"),
        differs("null", "null"),
        differs("an asterisk", "*"),
        differs("a wildcard itself", "https://*.example.org"),
        differs("an empty origin", ""),
        differs("a trailing slash", "https://app.example.com/"),
        differs("a path", "https://app.example.com/path"),
        differs("a query", "https://app.example.com?x"),
        differs("a trailing dot", "https://app.example.com."),
        differs("a user", "https://user@app.example.com"),
        differs("a list", "https://app.example.com, https://app.example.com"),
        differs("two in a row", "https://app.example.com https://evil.net"),
        differs("no scheme", "app.example.com"),
        differs("a scheme alone", "https://"),
        differs("an empty port", "https://app.example.com:"),
        differs("a port that is no port", "https://app.example.com:65979"),
        differs("a port with a sign", "https://app.example.com:+443"),
        differs("a look-alike in Unicode", "https://b\u{fc}cher.example"),
        Case::answered("two headers that agree", 403, two)
            .body(
                "{\"error\":\"forbidden\",\"message\":\"This origin is not authorised for this API \
                 key.\",\"detail\":\"Origin: https://app.example.com, https://app.example.com\"}",
            )
            .lacks(VISIBLE),
    ]
}

fn preflight(name: &str, origin: &str, status: u16) -> Case {
    let request = request("OPTIONS", DOMAIN)
        .with("Origin", origin)
        .with("Access-Control-Request-Method", "GET")
        .with("Access-Control-Request-Headers", "authorization");
    // Refused, it is an answer without a body.
    let case = Case::answered(name, status, request).logs(&[(status, "ok", None)]);
    case.body("").has("Vary", "Origin").lacks(&["Access-Control-Allow-Credentials"])
}

fn preflights() -> Vec<Case> {
    let options = |request: Request| {
        move |name: &str| {
            Case::answered(name, 204, request)
                .has("Allow", "GET, HEAD, OPTIONS")
                .lacks(&["Access-Control-Allow-Methods", "Content-Length"])
        }
    };
    vec![
        preflight("a preflight of an origin of some key", APP, 204)
            .has(ALLOW_ORIGIN, APP)
            .has("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
            .has("Access-Control-Max-Age", "600")
            .lacks(&["Content-Length", "Allow"]),
        preflight("a preflight of a subdomain", "https://a.example.org", 204)
            .has(ALLOW_ORIGIN, "https://a.example.org"),
        preflight("a preflight of the apex", "https://example.org", 403).lacks(VISIBLE),
        preflight("a preflight of a foreign origin", "https://evil.example", 403).lacks(VISIBLE),
        preflight("a preflight of null", "null", 403).lacks(VISIBLE),
        preflight("a preflight of a list", "https://app.example.com, https://a.com", 403)
            .lacks(VISIBLE),
        preflight("a preflight of nonsense", "nonsense", 403).lacks(VISIBLE),
        options(request("OPTIONS", DOMAIN))("OPTIONS without an origin"),
        options(request("OPTIONS", DOMAIN).with("Origin", APP))("OPTIONS without a method"),
        options(request("OPTIONS", DOMAIN).with("Access-Control-Request-Method", "GET"))(
            "OPTIONS with a method alone",
        ),
    ]
}
