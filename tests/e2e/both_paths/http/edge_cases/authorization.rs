//! Exactly one Authorization header with exactly one token is accepted; everything else gets the
//! same 401.

use super::targets::FIRST_TEST_VERDICT_BODY;
use super::{Case, CaseGroup};
use crate::harness::{Request, get};

const DOMAIN: &str = "/v1/public/domain/first.test";
const UNAUTHORIZED: &str =
    r#"{"error":"unauthorized","message":"Missing or invalid API key.","detail":null}"#;

fn with_authorization(value: &str) -> Request {
    get(DOMAIN).with_header("Authorization", value)
}

fn accepted_case(name: &str, request: Request) -> Case {
    Case::answered_by_gateway(name, 200, request)
        .expect_logs(&[(200, "ok", Some("disposable"))])
        .expect_counts(1, 0)
        .body(FIRST_TEST_VERDICT_BODY)
}

fn unauthorized_case(name: &str, request: Request) -> Case {
    Case::answered_by_gateway(name, 401, request)
        .body(UNAUTHORIZED)
        .expect_header("WWW-Authenticate", "Bearer realm=\"riskgate\"")
        .expect_header("Content-Length", "78")
        .expect_header("Content-Type", "application/json")
        .expect_no_headers(&["X-Fail-Open", "RateLimit", "X-Table-Version"])
}

#[test]
fn only_one_valid_bearer_token_is_accepted_and_all_else_gets_the_same_401() {
    CaseGroup::new("authorization", 4)
        .run([header_form_cases(), key_state_cases(), wrong_place_cases()].concat());
}

fn header_form_cases() -> Vec<Case> {
    let long = format!("Bearer {}", "k".repeat(257));
    vec![
        accepted_case("a token after Bearer", with_authorization("Bearer {key}")),
        accepted_case("a scheme in lower case", with_authorization("bearer {key}")),
        accepted_case("a scheme in mixed case", with_authorization("bEaReR {key}")),
        accepted_case("spaces around the token", with_authorization("Bearer   {key}  ")),
        accepted_case(
            "a header's name in lower case",
            get(DOMAIN).with_header("authorization", "Bearer {key}"),
        ),
        accepted_case("a token of 256 characters", with_authorization("Bearer {long}")),
        unauthorized_case("no header", get(DOMAIN)),
        unauthorized_case("an empty header", with_authorization("")),
        unauthorized_case("a scheme alone", with_authorization("Bearer")),
        unauthorized_case("a scheme and a space", with_authorization("Bearer ")),
        unauthorized_case("a token alone", with_authorization("{key}")),
        unauthorized_case("no space after the scheme", with_authorization("Bearer{key}")),
        unauthorized_case("a tab after the scheme", with_authorization("Bearer\t{key}")),
        unauthorized_case("a tab after the space", with_authorization("Bearer \t {key}, ")),
        unauthorized_case("Basic", with_authorization("Basic {key}")),
        unauthorized_case(
            "Basic with the token in it",
            with_authorization("Basic QmVhcmVyIHtrZXl9"),
        ),
        unauthorized_case("Digest that names Bearer", with_authorization("Digest Bearer {key}")),
        unauthorized_case("a scheme twice", with_authorization("Bearer Bearer {key}")),
        unauthorized_case("a token with a space in it", with_authorization("Bearer {key} {key}")),
        unauthorized_case("a token with a word after it", with_authorization("Bearer {key} x")),
        unauthorized_case("a list of tokens", with_authorization("Bearer {key},{key}")),
        unauthorized_case(
            "a list of credentials",
            with_authorization("Bearer {key}, Bearer {key}"),
        ),
        unauthorized_case("a token and a comma", with_authorization("Bearer {key},")),
        unauthorized_case("a token with a tab in it", with_authorization("Bearer {key}\t{key}")),
        unauthorized_case("a token in quotes", with_authorization("Bearer \"{key}\"")),
        unauthorized_case("a token that is not ASCII", with_authorization("Bearer {key}\u{e9}")),
        unauthorized_case("a token of 257 characters", with_authorization(&long)),
        unauthorized_case(
            "a token of 257 characters that begins as a key",
            with_authorization("Bearer {long}x"),
        ),
        unauthorized_case("a token of three characters", with_authorization("Bearer abc")),
        unauthorized_case(
            "two headers that agree",
            with_authorization("Bearer {key}").key("{key}"),
        ),
        unauthorized_case("two headers, the first one empty", with_authorization("").key("{key}")),
        unauthorized_case(
            "two headers of two keys",
            with_authorization("Bearer {key}").key("{other}"),
        ),
        unauthorized_case(
            "a good header and another scheme",
            with_authorization("Bearer {key}").with_header("Authorization", "Basic x"),
        ),
    ]
}

fn key_state_cases() -> Vec<Case> {
    vec![
        unauthorized_case("an unknown key", get(DOMAIN).key("{unknown}")),
        unauthorized_case("a revoked key", get(DOMAIN).key("{revoked}")),
        unauthorized_case("an expired key", get(DOMAIN).key("{expired}")),
        unauthorized_case("a key with another letter's case", get(DOMAIN).key("{shouted}")),
        unauthorized_case(
            "a key on a route that asks the ledger",
            get("/v1/usage").key("{unknown}"),
        ),
        unauthorized_case(
            "a revoked key on a route upstream",
            get("/v1/check/a@b.com").key("{revoked}"),
        ),
        unauthorized_case("no key on a prefix that requires a key", get("/v1/signup")),
        unauthorized_case(
            "the digest of a key in place of the key",
            get(DOMAIN).key(&"0a".repeat(32)),
        ),
    ]
}

/// A key in any other place is ignored.
fn wrong_place_cases() -> Vec<Case> {
    vec![
        unauthorized_case(
            "a key in the query",
            get(format!("{DOMAIN}?key={{key}}&access_token={{key}}")),
        ),
        unauthorized_case("a key in X-Api-Key", get(DOMAIN).with_header("X-Api-Key", "{key}")),
        unauthorized_case(
            "a key in Proxy-Authorization",
            get(DOMAIN).with_header("Proxy-Authorization", "Bearer {key}"),
        ),
        unauthorized_case(
            "a key in a cookie",
            get(DOMAIN).with_header("Cookie", "Authorization=Bearer {key}"),
        ),
        unauthorized_case(
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
