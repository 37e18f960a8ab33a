//! The key: exactly one header, exactly one token, and one answer to everything else.

use super::targets::FIRST;
use super::{Case, Group};
use crate::harness::{Request, get};

const DOMAIN: &str = "/v1/public/domain/first.test";
const UNAUTHORIZED: &str =
    r#"{"error":"unauthorized","message":"Missing or invalid API key.","detail":null}"#;

fn with(value: &str) -> Request {
    get(DOMAIN).with("Authorization", value)
}

fn opens(name: &str, request: Request) -> Case {
    Case::answered(name, 200, request)
        .logs(&[(200, "ok", Some("disposable"))])
        .counts(1, 0)
        .body(FIRST)
}

fn closed(name: &str, request: Request) -> Case {
    Case::answered(name, 401, request)
        .body(UNAUTHORIZED)
        .has("WWW-Authenticate", "Bearer realm=\"riskgate\"")
        .has("Content-Length", "78")
        .has("Content-Type", "application/json")
        .lacks(&["X-Fail-Open", "RateLimit", "X-Table-Version"])
}

#[test]
fn one_token_in_one_header_opens_and_all_else_looks_the_same() {
    Group::new("authorization", 4).run([forms(), keys(), places()].concat());
}

fn forms() -> Vec<Case> {
    let long = format!("Bearer {}", "k".repeat(257));
    vec![
        opens("a token behind Bearer", with("Bearer {key}")),
        opens("a scheme in lower case", with("bearer {key}")),
        opens("a scheme in mixed case", with("bEaReR {key}")),
        opens("spaces around the token", with("Bearer   {key}  ")),
        opens("a header's name in lower case", get(DOMAIN).with("authorization", "Bearer {key}")),
        opens("a token of 256 characters", with("Bearer {long}")),
        closed("no header", get(DOMAIN)),
        closed("an empty header", with("")),
        closed("a scheme alone", with("Bearer")),
        closed("a scheme and a space", with("Bearer ")),
        closed("a token alone", with("{key}")),
        closed("no space behind the scheme", with("Bearer{key}")),
        closed("a tab behind the scheme", with("Bearer\t{key}")),
        closed("a tab behind the space", with("Bearer \t {key}, ")),
        closed("Basic", with("Basic {key}")),
        closed("Basic with the token in it", with("Basic QmVhcmVyIHtrZXl9")),
        closed("Digest that names Bearer", with("Digest Bearer {key}")),
        closed("a scheme twice", with("Bearer Bearer {key}")),
        closed("a token with a space in it", with("Bearer {key} {key}")),
        closed("a token with a word behind it", with("Bearer {key} x")),
        closed("a list of tokens", with("Bearer {key},{key}")),
        closed("a list of credentials", with("Bearer {key}, Bearer {key}")),
        closed("a token and a comma", with("Bearer {key},")),
        closed("a token with a tab in it", with("Bearer {key}\t{key}")),
        closed("a token in quotes", with("Bearer \"{key}\"")),
        closed("a token that is not ASCII", with("Bearer {key}\u{e9}")),
        closed("a token of 257 characters", with(&long)),
        closed("a token of 257 characters that begins as a key", with("Bearer {long}x")),
        closed("a token of three characters", with("Bearer abc")),
        closed("two headers that agree", with("Bearer {key}").key("{key}")),
        closed("two headers, the first one empty", with("").key("{key}")),
        closed("two headers of two keys", with("Bearer {key}").key("{other}")),
        closed(
            "a good header and another scheme",
            with("Bearer {key}").with("Authorization", "Basic x"),
        ),
    ]
}

fn keys() -> Vec<Case> {
    vec![
        closed("an unknown key", get(DOMAIN).key("{unknown}")),
        closed("a revoked key", get(DOMAIN).key("{revoked}")),
        closed("an expired key", get(DOMAIN).key("{expired}")),
        closed("a key with another letter's case", get(DOMAIN).key("{shouted}")),
        closed("a key on a route that asks the ledger", get("/v1/usage").key("{unknown}")),
        closed("a revoked key on a route upstream", get("/v1/check/a@b.com").key("{revoked}")),
        closed("no key on a prefix that wants one", get("/v1/signup")),
        closed("the digest of a key in its place", get(DOMAIN).key(&"0a".repeat(32))),
    ]
}

/// A key stands in no other place.
fn places() -> Vec<Case> {
    vec![
        closed("a key in the query", get(format!("{DOMAIN}?key={{key}}&access_token={{key}}"))),
        closed("a key in X-Api-Key", get(DOMAIN).with("X-Api-Key", "{key}")),
        closed(
            "a key in Proxy-Authorization",
            get(DOMAIN).with("Proxy-Authorization", "Bearer {key}"),
        ),
        closed("a key in a cookie", get(DOMAIN).with("Cookie", "Authorization=Bearer {key}")),
        closed("a key under a folded name", get(DOMAIN).with("Author_ization", "Bearer {key}")),
        Case::answered("an unauthorised request is not told its format", 401, get("/v1/check/%zz")),
        Case::answered(
            "an unknown route is not told by its key",
            404,
            get("/nowhere").key("{key}"),
        ),
    ]
}
