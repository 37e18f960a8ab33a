//! Generates random requests that the fast path can serve, for every version of HTTP.

use crate::random_numbers::RandomNumbers;

pub const KEY: &str = "rg_comparison00000000000000000000001";
pub const ORIGIN_BOUND_KEY: &str = "rg_differences0000000000000000000002";
pub const REVOKED_KEY: &str = "rg_differences0000000000000000000003";

/// An id of 129 bytes, one more than riskgate accepts.
const LONG_ID: &str = "iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii\
    iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii";

const DOMAIN_TARGETS: [&str; 12] = [
    "first.test",
    "mail.first.test",
    "unknown.example",
    "gmail.com",
    "a.b.c.second.test",
    "FIRST.test",
    "b%C3%BCcher.de",
    "first.test?x=1",
    "%",
    "one",
    "a_b.com",
    "xn--bcher-kva.de",
];

/// Targets of checks. Each determines how the upstream server answers.
const CHECK_TARGETS: [&str; 29] = [
    "plain@first.test",
    "plain@first.test?a=b&c",
    "plain@",
    "first.test",
    "a/b",
    "%00",
    "b%C3%BCcher@a.test",
    "said",
    "201",
    "404",
    "429",
    "503",
    "204",
    "304",
    "empty",
    "long",
    "chunks",
    "chunks-in-parts",
    "until-close",
    "until-close-empty",
    "interim",
    "closed-after",
    "broken-begin",
    "broken-length",
    "broken-chunks",
    "fold",
    "nominates-its-length",
    "broken-coding",
    "retried",
];

/// A request without a body.
pub struct RandomRequest {
    pub method: &'static str,
    pub target: String,
    /// All fields but `Host`. The case of a name is that of HTTP/1.1.
    pub fields: Vec<(&'static str, String)>,
}

/// A request that the fast path of HTTP/1.1 can serve.
pub fn random_plain_request(random: &mut RandomNumbers) -> RandomRequest {
    let method = random.pick_one(&["GET", "GET", "GET", "GET", "HEAD", "OPTIONS"]);
    let target = match random.number_below(10) {
        0 => "/v1/public/top-domains".to_owned(),
        1 => "/v1/usage".to_owned(),
        2 => "/nowhere/at/all".to_owned(),
        3 | 4 => format!("/v1/check/{}", random.pick_one(&CHECK_TARGETS)),
        _ => format!("/v1/public/domain/{}", random.pick_one(&DOMAIN_TARGETS)),
    };
    let mut fields: Vec<(&str, String)> = match random.number_below(12) {
        0 => Vec::new(),
        1 => vec![("Authorization", "Bearer nobody-knows-this-key".to_owned())],
        2 => vec![("authorization", format!("bearer  {KEY} "))],
        3 => vec![("Authorization", format!("Bearer {REVOKED_KEY}"))],
        4 => vec![("Authorization", format!("Bearer {ORIGIN_BOUND_KEY}"))],
        _ => vec![("Authorization", format!("Bearer {KEY}"))],
    };
    if random.one_in(3) {
        let origins = ["https://app.example.com", "https://evil.test", "null", "a b"];
        fields.push(("Origin", random.pick_one(&origins).to_owned()));
    }
    if method == "OPTIONS" && random.one_in(2) {
        fields.push(("Access-Control-Request-Method", "GET".to_owned()));
    }
    if random.one_in(3) {
        let id = random.pick_one(&["abc", "a b", "x@y", "", LONG_ID]);
        fields.push(("X-Request-Id", id.to_owned()));
    }
    if random.one_in(3) {
        fields.push(("User-Agent", "curl/8.5.0".to_owned()));
        fields.push(("Accept", "*/*".to_owned()));
    }
    if random.one_in(6) {
        let (name, option) =
            [("Connection", "keep-alive"), ("connection", "Close")][random.number_below(2)];
        fields.push((name, option.to_owned()));
    }
    RandomRequest { method, target, fields }
}
