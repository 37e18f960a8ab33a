use super::*;

fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(*name, http::HeaderValue::from_static(value));
    }
    headers
}

fn token(name: &str, scope: TokenScope, expires_at: Option<i64>) -> AdminToken {
    let digest = sha256(name.as_bytes());
    AdminToken { name: name.to_owned(), digest, scope, expires_at }
}

#[test]
fn a_token_opens_what_its_scope_says_until_it_expires() {
    let tokens = [
        token("reader", TokenScope::Read, None),
        token("writer", TokenScope::Write, Some(50)),
        token("customer", TokenScope::Account("acme".to_owned()), None),
    ];
    let access = |value: &'static str, now| {
        Access::from_request(&tokens, true, &headers(&[("authorization", value)]), Some(now))
    };
    assert!(access("Bearer reader", 9).may_read_all_accounts());
    assert!(access("Bearer reader", 9).write_token().is_none());
    assert!(access("bearer writer", 49).write_token().is_some());
    assert!(matches!(access("Bearer writer", 50), Access::Expired(_)));
    assert_eq!(access("Bearer customer", 9).only_account(), Some("acme"));
    assert!(!access("Bearer customer", 9).may_read_all_accounts());
    for wrong in ["Bearer other", "Bearer ", "Bearer readerx", "Basic reader", "reader"] {
        assert!(access(wrong, 9).is_unauthenticated(), "{wrong}");
    }
    let twice = [("authorization", "Bearer reader"), ("authorization", "Bearer reader")];
    let of = |fields: &[(&'static str, &'static str)], now| {
        Access::from_request(&tokens, true, &headers(fields), now)
    };
    assert!(of(&twice, Some(9)).is_unauthenticated());
    assert!(of(&[("host", "localhost:9090")], Some(9)).is_unauthenticated());
    // No clock has told the time.
    let no_time = of(&[("authorization", "Bearer writer")], None);
    assert!(matches!(no_time, Access::NoTime(_)) && no_time.is_unauthenticated());
    assert!(!no_time.may_read_all_accounts() && no_time.write_token().is_none());
    assert!(of(&[("authorization", "Bearer reader")], None).may_read_all_accounts());
}

#[test]
fn without_a_token_only_loopback_may_read() {
    let local = headers(&[("host", "127.0.0.1:9090")]);
    let now = Some(9);
    let open = Access::from_request(&[], true, &local, now);
    assert!(open.may_read_all_accounts() && open.write_token().is_none());
    assert!(!Access::from_request(&[], false, &local, now).may_read_all_accounts());
    let rebound = headers(&[("host", "evil.example:9090")]);
    assert!(!Access::from_request(&[], true, &rebound, now).may_read_all_accounts());
    let guessed = headers(&[("host", "localhost"), ("authorization", "Bearer guess")]);
    assert!(!Access::from_request(&[], true, &guessed, now).may_read_all_accounts());
}

#[test]
fn a_page_of_another_origin_is_noticed() {
    let host = ("host", "127.0.0.1:9090");
    for own in [
        &[host][..],
        &[host, ("origin", "http://127.0.0.1:9090"), ("sec-fetch-site", "same-origin")],
        &[host, ("sec-fetch-site", "none")],
    ] {
        assert!(!may_be_cross_origin(&headers(own)), "{own:?}");
    }
    for other in [
        &[host, ("origin", "http://127.0.0.1:8080")][..],
        &[host, ("origin", "null")],
        &[host, ("origin", "https://evil.example")],
        &[host, ("sec-fetch-site", "cross-site")],
        &[host, ("sec-fetch-site", "same-site")],
        &[("origin", "http://127.0.0.1:9090")],
    ] {
        assert!(may_be_cross_origin(&headers(other)), "{other:?}");
    }
}
