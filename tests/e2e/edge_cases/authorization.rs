//! Exactly one Authorization header with exactly one token is accepted; everything else gets the
//! same 401.

use super::targets::FIRST_TEST_BODY;
use super::{Case, Group};
use crate::harness::{Request, get};

const DOMAIN: &str = "/v1/public/domain/first.test";
const UNAUTHORIZED: &str =
    r#"{"error":"unauthorized","message":"Missing or invalid API key.","detail":null}"#;

fn with(value: &str) -> Request {
    get(DOMAIN).with_header("Authorization", value)
}

fn accepted(name: &str, request: Request) -> Case {
    Case::answered_by_gateway(name, 200, request)
        .logs(&[(200, "ok", Some("disposable"))])
        .counts(1, 0)
        .body(FIRST_TEST_BODY)
}

fn unauthorized(name: &str, request: Request) -> Case {
    Case::answered_by_gateway(name, 401, request)
        .body(UNAUTHORIZED)
        .has("WWW-Authenticate", "Bearer realm=\"riskgate\"")
        .has("Content-Length", "78")
        .has("Content-Type", "application/json")
        .lacks(&["X-Fail-Open", "RateLimit", "X-Table-Version"])
}

#[test]
fn only_one_valid_token_is_accepted_and_all_else_is_the_same_401() {
    Group::new("authorization", 4)
        .run([header_form_cases(), key_state_cases(), wrong_place_cases()].concat());
}

fn header_form_cases() -> Vec<Case> {
    let long = format!("Bearer {}", "k".repeat(257));
    vec![
        accepted("a token after Bearer", with("Bearer {key}")),
        accepted("a scheme in lower case", with("bearer {key}")),
        accepted("a scheme in mixed case", with("bEaReR {key}")),
        accepted("spaces around the token", with("Bearer   {key}  ")),
        accepted(
            "a header's name in lower case",
            get(DOMAIN).with_header("authorization", "Bearer {key}"),
        ),
        accepted("a token of 256 characters", with("Bearer {long}")),
        unauthorized("no header", get(DOMAIN)),
        unauthorized("an empty header", with("")),
        unauthorized("a scheme alone", with("Bearer")),
        unauthorized("a scheme and a space", with("Bearer ")),
        unauthorized("a token alone", with("{key}")),
        unauthorized("no space after the scheme", with("Bearer{key}")),
        unauthorized("a tab after the scheme", with("Bearer\t{key}")),
        unauthorized("a tab after the space", with("Bearer \t {key}, ")),
        unauthorized("Basic", with("Basic {key}")),
        unauthorized("Basic with the token in it", with("Basic QmVhcmVyIHtrZXl9")),
        unauthorized("Digest that names Bearer", with("Digest Bearer {key}")),
        unauthorized("a scheme twice", with("Bearer Bearer {key}")),
        unauthorized("a token with a space in it", with("Bearer {key} {key}")),
        unauthorized("a token with a word after it", with("Bearer {key} x")),
        unauthorized("a list of tokens", with("Bearer {key},{key}")),
        unauthorized("a list of credentials", with("Bearer {key}, Bearer {key}")),
        unauthorized("a token and a comma", with("Bearer {key},")),
        unauthorized("a token with a tab in it", with("Bearer {key}\t{key}")),
        unauthorized("a token in quotes", with("Bearer \"{key}\"")),
        unauthorized("a token that is not ASCII", with("Bearer {key}\u{e9}")),
        unauthorized("a token of 257 characters", with(&long)),
        unauthorized("a token of 257 characters that begins as a key", with("Bearer {long}x")),
        unauthorized("a token of three characters", with("Bearer abc")),
        unauthorized("two headers that agree", with("Bearer {key}").key("{key}")),
        unauthorized("two headers, the first one empty", with("").key("{key}")),
        unauthorized("two headers of two keys", with("Bearer {key}").key("{other}")),
        unauthorized(
            "a good header and another scheme",
            with("Bearer {key}").with_header("Authorization", "Basic x"),
        ),
    ]
}

fn key_state_cases() -> Vec<Case> {
    vec![
        unauthorized("an unknown key", get(DOMAIN).key("{unknown}")),
        unauthorized("a revoked key", get(DOMAIN).key("{revoked}")),
        unauthorized("an expired key", get(DOMAIN).key("{expired}")),
        unauthorized("a key with another letter's case", get(DOMAIN).key("{shouted}")),
        unauthorized("a key on a route that asks the ledger", get("/v1/usage").key("{unknown}")),
        unauthorized(
            "a revoked key on a route upstream",
            get("/v1/check/a@b.com").key("{revoked}"),
        ),
        unauthorized("no key on a prefix that requires a key", get("/v1/signup")),
        unauthorized("the digest of a key in place of the key", get(DOMAIN).key(&"0a".repeat(32))),
    ]
}

/// A key in any other place is ignored.
fn wrong_place_cases() -> Vec<Case> {
    vec![
        unauthorized(
            "a key in the query",
            get(format!("{DOMAIN}?key={{key}}&access_token={{key}}")),
        ),
        unauthorized("a key in X-Api-Key", get(DOMAIN).with_header("X-Api-Key", "{key}")),
        unauthorized(
            "a key in Proxy-Authorization",
            get(DOMAIN).with_header("Proxy-Authorization", "Bearer {key}"),
        ),
        unauthorized(
            "a key in a cookie",
            get(DOMAIN).with_header("Cookie", "Authorization=Bearer {key}"),
        ),
        unauthorized(
            "a key in Author_ization",
            get(DOMAIN).with_header("Author_ization", "Bearer {key}"),
        ),
        Case::answered_by_gateway(
            "an unauthorised request gets no format error",
            401,
            get("/v1/check/%zz"),
        ),
        Case::answered_by_gateway(
            "an unknown route gets a 404 with a key",
            404,
            get("/nowhere").key("{key}"),
        ),
    ]
}
