use super::*;
use crate::model::path_prefix::PathPrefix;

const TEST_LIMITS: RequestLimits = RequestLimits {
    header_bytes: 16_384,
    header_fields: 64,
    target_bytes: 2_048,
    body_bytes: 1_048_576,
    authz_path: None,
};

fn parse_lengths_after_scan(
    text: &str,
    scanned_length: usize,
) -> Result<Option<(usize, usize)>, u16> {
    let head = parse_request_head(text.as_bytes(), scanned_length, &TEST_LIMITS);
    let body_length = |head: RequestHead<'_>| match head.body {
        RequestBodyFraming::Length(length) => length,
        RequestBodyFraming::Chunked => usize::MAX,
    };
    head.map(|head| head.map(|head| (head.head_length, body_length(head)))).map_err(|r| r.status())
}

fn parse_lengths(text: &str) -> Result<Option<(usize, usize)>, u16> {
    parse_lengths_after_scan(text, 0)
}

#[test]
fn a_head_ends_before_the_next_request() {
    let text = "GET /v1/usage HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = (text.len(), 0);
    assert_eq!(parse_lengths(text), Ok(Some(head)));
    assert_eq!(parse_lengths(&format!("{text}{text}")), Ok(Some(head)));
    assert_eq!(parse_lengths("GET / HTTP/1.0\r\n\r\n"), Ok(Some((18, 0))));
    for cut in 0..text.len() {
        assert_eq!(parse_lengths(&text[..cut]), Ok(None), "{cut}");
        assert_eq!(parse_lengths_after_scan(text, cut), Ok(Some(head)), "{cut}");
    }
    let post = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(parse_lengths(post), Ok(Some((post.len() - 5, 5))));
}

#[test]
fn a_long_request_line_gets_only_414() {
    for length in 2_100..2_120 {
        let line = format!("GET /v1/usage?{} HTTP/1.1", "a".repeat(length - 23));
        let text = format!("{line}\r\nHost: a\r\n\r\n");
        assert_eq!(parse_lengths(&text), Err(414), "{length}");
        for cut in 0..text.len() {
            assert!(matches!(parse_lengths(&text[..cut]), Ok(None) | Err(414)), "{length} {cut}");
        }
    }
}

#[test]
fn malformed_or_ambiguous_heads_are_refused() {
    let host = "Host: a\r\n";
    for text in [
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.1\r\n{host}{host}\r\n"),
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost:\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a:b\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: [\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: []\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: []][\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: [::1]a\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: ::1\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: :80\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a:+80\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: .\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.1\n{host}\r\n"),
        "GET / HTTP/1.1\r\nHost: a\n\r\n".to_owned(),
        format!("GET / HTTP/1.1\r\n{host}A: b\rc\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{host}A: b\r\n c\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{host}A : b\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{host}: b\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{host}no colon\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{host}A: b\0\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{host}A: b\u{c}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{host}A:\u{c} b\r\n\r\n"),
        format!("GET  / HTTP/1.1\r\n{host}\r\n"),
        format!("GET / x HTTP/1.1\r\n{host}\r\n"),
        format!("GET /\t HTTP/1.1\r\n{host}\r\n"),
        format!("GET /\0 HTTP/1.1\r\n{host}\r\n"),
        format!("GET /#a HTTP/1.1\r\n{host}\r\n"),
        format!("GET /a`b HTTP/1.1\r\n{host}\r\n"),
        format!("GET /<a> HTTP/1.1\r\n{host}\r\n"),
        format!("GET / HTTP/2.0\r\n{host}\r\n"),
        format!("GET / http/1.1\r\n{host}\r\n"),
        format!("G(T / HTTP/1.1\r\n{host}\r\n"),
        format!("GET /\r\n{host}\r\n"),
        format!("GET / HTTP/1.1\r\n{host}Content-Length: 1\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{host}Content-Length: 1\r\nContent-Length: 1\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{host}Content-Length: +1\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{host}Content-Length: 1, 1\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{host}Content-Length: 99999999999999999999\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{host}Content-Length: 00000000000000000005\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{host}Content-Length:\r\n\r\n"),
        format!("POST / HTTP/1.0\r\n{host}Transfer-Encoding: chunked\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{host}Transfer-Encoding: identity\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{host}Connection: close, Authorization\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{host}Connection: x-riskgate-account\r\n\r\n"),
        "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
    ] {
        assert_eq!(parse_lengths(&text), Err(400), "{text:?}");
    }
    let invalid_utf8 = b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n";
    assert!(parse_request_head(invalid_utf8, 0, &TEST_LIMITS).is_err());
    let chunked = format!("PURGE / HTTP/1.1\r\n{host}Transfer-Encoding: Chunked\r\n\r\n");
    assert_eq!(parse_lengths(&chunked), Ok(Some((chunked.len(), usize::MAX))));
    let with_length = |length| format!("PUT / HTTP/1.1\r\n{host}Content-Length: {length}\r\n\r\n");
    assert!(parse_lengths(&with_length("1048576")).is_ok());
    assert_eq!(parse_lengths(&with_length("1048577")), Err(413));
    assert_eq!(parse_lengths(&with_length("1000000000000000000")), Err(413));
    assert_eq!(parse_lengths(&format!("CONNECT a:1 HTTP/1.1\r\n{host}\r\n")), Err(405));
    for method in ["TRACE", "trace", "connect", "get", "Head", "options"] {
        assert_eq!(parse_lengths(&format!("{method} / HTTP/1.1\r\n{host}\r\n")), Err(405));
    }
    let with_body = format!("get / HTTP/1.1\r\n{host}Content-Length: 1\r\n\r\n");
    assert_eq!(parse_lengths(&with_body), Err(405));
    assert!(parse_lengths(&format!("post / HTTP/1.1\r\n{host}\r\n")).is_ok());
}

#[test]
fn unusual_requests_may_not_take_the_fast_path() {
    let is_plain = |line: &str, fields: &str| {
        let text = format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        parse_request_head(text.as_bytes(), 0, &TEST_LIMITS).unwrap().unwrap().may_take_fast_path()
    };
    for fields in [
        "",
        "Authorization: Bearer x\r\nOrigin: https://a\r\nX-Request-Id: 1\r\n",
        "Connection: keep-alive\r\nAccept: */*\r\n",
        "connection: Close\r\n",
        "Connection: keep-alive, close\r\n",
        "Connection: close\r\nConnection: close\r\n",
    ] {
        for line in ["GET /a", "HEAD /a", "OPTIONS /a"] {
            assert!(is_plain(line, fields), "{line} {fields:?}");
        }
    }
    for fields in [
        "Content-Length: 0\r\n",
        "Upgrade: h2c\r\n",
        "Expect: 100-continue\r\n",
        "Connection: te\r\n",
        "Connection: keep-alive; timeout=5\r\n",
        "Connection: close\r\nConnection: a@b\r\n",
        "Keep-Alive: timeout=5\r\n",
        "Authorization: Bearer x\r\nAuthorization: Bearer x\r\n",
        "Origin: https://a\r\nOrigin: https://a\r\n",
        "X-Request-Id: 1\r\nX-Request-Id: 1\r\n",
        "Cookie: a=1\r\nCookie: b=2\r\n",
    ] {
        assert!(!is_plain("GET /a", fields), "{fields:?}");
    }
    for line in ["GET http://a/a", "POST http://a/a", "OPTIONS *"] {
        assert!(!is_plain(line, ""), "{line:?}");
    }
    for fields in ["", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
        assert!(is_plain("POST /a", fields) && is_plain("DELETE /a", fields), "{fields:?}");
    }
    let old = parse_request_head(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n", 0, &TEST_LIMITS);
    assert!(!old.unwrap().unwrap().may_take_fast_path());
}

#[test]
fn oversized_heads_get_414_or_431() {
    let long = "a".repeat(2048);
    assert_eq!(
        parse_lengths(&format!("GET /v1/usage?{long} HTTP/1.1\r\nHost: a\r\n\r\n")),
        Err(414)
    );
    assert_eq!(parse_lengths(&format!("GET /v1/check/{}", "a".repeat(3000))), Err(414));
    assert_eq!(parse_lengths(&format!("GET /{}", "a".repeat(17_000))), Err(414));
    assert_eq!(parse_lengths(&"M".repeat(3_000)), Err(414));
    assert_eq!(parse_lengths(&format!("GET / {}", "V".repeat(3_000))), Err(414));
    let text = format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "M".repeat(2_049));
    assert_eq!(parse_lengths(&text), Err(414), "complete");
    assert_eq!(parse_lengths(&text[..2_049]), Err(414), "incomplete");
    assert_eq!(parse_lengths(&text[..2_048]), Ok(None));
    let fields = "A: b\r\n".repeat(63);
    assert!(parse_lengths(&format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).is_ok());
    assert_eq!(
        parse_lengths(&format!("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n{fields}\r\n")),
        Err(431)
    );
    let big = "x".repeat(17_000);
    assert_eq!(parse_lengths(&format!("GET / HTTP/1.1\r\nHost: a\r\nA: {big}\r\n\r\n")), Err(431));
    assert_eq!(parse_lengths(&format!("GET / HTTP/1.1\r\nHost: a\r\nA: {big}")), Err(431));
}

#[test]
fn a_target_is_bounded_on_own_paths_and_a_proxy_may_ask_with_a_body() {
    let authz_path = PathPrefix::parse("/authz");
    let limits = RequestLimits { header_bytes: 8_192, authz_path, ..TEST_LIMITS };
    let head = |target: &str, length: usize| {
        format!("GET {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")
    };
    let status =
        |text: &str| parse_request_head(text.as_bytes(), 0, &limits).err().map(|r| r.status());
    let long = "x".repeat(3_000);
    assert_eq!(status(&head(&format!("/authz/{long}?{long}"), 5)), None);
    assert_eq!(status(&head(&format!("/authz?{long}"), 5)), None);
    for target in [format!("/authz2/{long}"), format!("/{long}"), format!("/v1/usages?{long}")] {
        assert_eq!(status(&head(&target, 0)), None, "{target}");
    }
    for target in [
        format!("/authz/{long}{long}{long}"),
        format!("/{long}{long}{long}"),
        format!("/v1/usage?{long}"),
        format!("/v1/check/{long}"),
        format!("http://a/{long}"),
    ] {
        assert_eq!(status(&head(&target, 0)), Some(414), "{target}");
    }
    assert_eq!(status(&head("/authz2", 5)), Some(400));
    // While it arrives.
    assert_eq!(status(&format!("GET /authz/{long}")), None);
    assert_eq!(status(&format!("GET /other/{long}")), None);
    assert_eq!(status(&format!("GET /v1/check/{long}")), Some(414));
}

#[test]
fn only_a_host_with_an_optional_port_has_a_host() {
    for (host, expected) in [
        ("gate.test", Some("gate.test")),
        ("~gate.test", Some("~gate.test")),
        ("gate.test:80", Some("gate.test")),
        ("127.0.0.1:8080", Some("127.0.0.1")),
        ("[::1]:80", Some("[::1]")),
        ("[::1]", Some("[::1]")),
        ("", None),
        (":80", None),
        ("a b", None),
        ("user@gate.test", None),
        ("gate.test/path", None),
        ("gate.test:80x", None),
        ("[gate.test]", None),
        ("[::1", None),
    ] {
        let found = host_without_port(host.as_bytes());
        assert_eq!(found, expected.map(str::as_bytes), "{host}");
    }
}
