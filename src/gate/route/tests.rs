use super::*;

fn match_get(target: &str) -> Result<Route<'_>, u16> {
    let matched = match_route("GET", target.as_bytes(), &[signup_route()], None);
    matched.map_err(|refusal| refusal.status())
}

fn signup_route() -> UpstreamRoute {
    UpstreamRoute {
        path_prefix: "/v1/signup".to_owned(),
        methods: RouteMethods::Listed(vec!["GET".to_owned(), "POST".to_owned()]),
        host: None,
        needs_key: true,
        is_counted: true,
        max_per_client: None,
        has_gateway_statuses: false,
        deadline: None,
        cors: None,
        screen: None,
    }
}

#[test]
fn only_the_exact_path_of_a_route_matches() {
    assert_eq!(match_get("/v1/public/top-domains"), Ok(Route::TopDomains));
    assert_eq!(match_get("/v1/public/top-domains?x=/../"), Ok(Route::TopDomains));
    assert_eq!(match_get("/v1/public/domain/a.com"), Ok(Route::Domain(b"a.com")));
    assert_eq!(match_get("/v1/public/domain/a%2Fb"), Ok(Route::Domain(b"a%2Fb")));
    assert_eq!(match_get("/v1/check/a%40b.com?q"), Ok(Route::Check(b"a%40b.com")));
    assert_eq!(match_get("/v1/usage"), Ok(Route::Usage));
    for target in [
        "",
        "/",
        "v1/usage",
        "/v1/usage/",
        "//v1/usage",
        "/v1//usage",
        "/v1/./usage",
        "/v1/check/../usage",
        "/v1%2Fusage",
        "/V1/usage",
        "/v1/usage%20",
        "/v1/public/domain",
        "/v1/public/domain/",
        "/v1/public/domain/a/b",
        "/v1/public/domain/..",
        "/v1/public/domain/%2e%2E",
        "/v1/check/",
        "/v1/check/.",
        "/v1/check/%2e",
        "*",
        "/v1/check/a/b",
        "http://host/v1/usage",
        "/v1/public/top-domains/",
        "/v1/;/usage",
    ] {
        assert_eq!(match_get(target), Err(404), "{target}");
    }
}

#[test]
fn other_methods_get_405_with_allow() {
    fn match_method<'t>(method: &str, target: &'t str) -> Result<Route<'t>, Refusal> {
        match_route(method, target.as_bytes(), &[signup_route()], None)
    }
    assert_eq!(
        match_method("POST", "/v1/usage"),
        Err(Refusal::MethodNotAllowed { allow: "GET, HEAD, OPTIONS".into() })
    );
    assert_eq!(
        match_method("DELETE", "/v1/signup"),
        Err(Refusal::MethodNotAllowed { allow: "GET, POST, OPTIONS".into() })
    );
    assert_eq!(match_method("get", "/v1/usage").map_err(|r| r.status()), Err(405));
    let whole_site =
        UpstreamRoute { path_prefix: "/".to_owned(), methods: RouteMethods::All, ..signup_route() };
    for method in ["TRACE", "trace", "CONNECT", "Connect", "get", "Head", "options"] {
        let allow = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS".into();
        let refusal = match_route(method, b"/signup", std::slice::from_ref(&whole_site), None);
        assert_eq!(refusal, Err(Refusal::MethodNotAllowed { allow }), "{method}");
    }
    for method in ["GET", "HEAD", "POST", "post", "BREW"] {
        assert_eq!(
            match_route(method, b"/signup", std::slice::from_ref(&whole_site), None),
            Ok(Route::Upstream(0)),
            "{method}"
        );
    }
    assert_eq!(
        match_method("OPTIONS", "/v1/usage"),
        Ok(Route::Options { allow: "GET, HEAD, OPTIONS".into(), upstream_route: None })
    );
    assert_eq!(match_method("OPTIONS", "/nothing").map_err(|r| r.status()), Err(404));
}

#[test]
fn a_check_is_forwarded_in_canonical_form() {
    let canonical = |segment: &str| canonical_check_path(segment.as_bytes()).ok();
    for segment in ["user@example.com", "user%40example.com", "%75ser%40example%2ecom"] {
        let expected = "/v1/check/user%40example.com";
        assert_eq!(canonical(segment).as_deref(), Some(expected), "{segment}");
    }
    assert_eq!(canonical("a+b c;%3f").as_deref(), Some("/v1/check/a%2Bb%20c%3B%3F"));
    assert_eq!(canonical("b\u{fc}").as_deref(), Some("/v1/check/b%C3%BC"));
    for segment in ["a%2Fb", "a%00b", "a%0a", "%ff", "%2", "%C2%85", &"a".repeat(1025)] {
        assert_eq!(canonical(segment), None, "{segment}");
    }
}

#[test]
fn no_key_in_a_path_reaches_a_log() {
    let key = "rg_0123456789abcdefghijABCDEFGHIJ01";
    for head in ["/", "/v1/usage/", "/v1/check/", "/v1/public/domain/", "/v1/signup/x/"] {
        for tail in ["", "/", "/x", "?a=b"] {
            let target = format!("{head}{key}{tail}");
            let shown = redact_path(target.as_bytes());
            assert!(!shown.contains("rg_") && shown.contains('…'), "{target}: {shown}");
        }
    }
    assert_eq!(redact_path(b"/v1/public/top-domains"), "/v1/public/top-domains");
}

#[test]
fn no_local_part_reaches_a_log() {
    for target in [
        "/v1/check/secret@example.com?q=secret@example.com",
        "/v1/check/secret%40example.com",
        "/v1/check/%73ecret%40example.com",
        "/v1/check/a%40secret@example.com",
        "/v1/check/secret%2540example.com",
        "/v1/check/secret\u{ff20}example.com",
        "/v1/check/secret",
        "/elsewhere/secret@example.com",
        "/elsewhere/secret%40example.com",
    ] {
        assert!(!redact_path(target.as_bytes()).contains("secret"), "{target}");
    }
    for spelling in ["@", "\u{ff20}", "\u{fe6b}", "%40", "&commat;", "\\u0040"] {
        assert_eq!(redact_path(format!("/ann/secret{spelling}b.co").as_bytes()), "…", "{spelling}");
    }
    assert_eq!(redact_path(b"/v1/check/secret%40example.com"), "/v1/check/…@example.com");
    let umlaut = redact_path(b"/v1/public/domain/B%C3%BCcher.de");
    assert_eq!(umlaut, "/v1/public/domain/xn--bcher-kva.de");
    assert_eq!(redact_path(b"/v1/usage?a=b"), "/v1/usage");
}
