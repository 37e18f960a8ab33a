//! A request target matches at most one route, and its query opens no other route. A domain and a
//! check target each have one canonical form, which matches the same route.

use std::sync::LazyLock;

use riskgate::gate::route::{
    Route, RouteMethods, UpstreamRoute, canonical_check_path, match_route, redact_path,
    split_path_and_query,
};
use riskgate::model::domain::{Domain, percent_decode};
use riskgate::model::refusal::Refusal;

static UPSTREAM_ROUTES: LazyLock<Vec<UpstreamRoute>> = LazyLock::new(|| {
    let prefix = |path: &str| UpstreamRoute {
        path_prefix: path.to_owned(),
        methods: RouteMethods::Listed(vec!["GET".to_owned(), "POST".to_owned()]),
        host: None,
        needs_key: true,
        is_counted: true,
        max_per_client: None,
        has_gateway_statuses: false,
        deadline: None,
        cors: None,
        screen: None,
    };
    vec![prefix("/v1/signup"), prefix("/v1/signup/deep"), prefix("/x")]
});

fn find_route<'t>(method: &str, target: &'t [u8]) -> Result<Route<'t>, Refusal> {
    match_route(method, target, &UPSTREAM_ROUTES, None)
}

/// Panics if a promise is broken for this input.
pub fn check_input(target: &[u8]) {
    let route = find_route("GET", target);
    let (path, query) = split_path_and_query(target);
    assert_eq!([path, query].concat(), target);
    // A server may read a query that begins with `/` as a path, so such a query can close a route.
    let is_closed = has_path_in_query(query) && route == Err(Refusal::NotFound);
    assert!(is_closed || route == find_route("GET", path), "a query changes the route");
    let with_query = [path, b"?x=/../v1/usage"].concat();
    assert!(
        is_closed || is_same_match_result(&route, &find_route("GET", &with_query)),
        "a query changes the route"
    );
    assert_methods_follow_path(target, &route);
    assert_log_hides_local_part(target);
    match route {
        Ok(Route::TopDomains) => assert_eq!(path, b"/v1/public/top-domains"),
        Ok(Route::Usage) => assert_eq!(path, b"/v1/usage"),
        Ok(Route::Domain(segment)) => {
            assert_path_ends_in_segment(b"/v1/public/domain/", segment, path);
            if let Ok(domain) = Domain::from_path_segment(segment) {
                let again = format!("/v1/public/domain/{domain}");
                let segment = domain.as_str().as_bytes();
                assert_eq!(
                    find_route("GET", again.as_bytes()),
                    Ok(Route::Domain(segment)),
                    "{again}"
                );
            }
        }
        Ok(Route::Check(segment)) => {
            assert_path_ends_in_segment(b"/v1/check/", segment, path);
            assert_one_canonical_form(segment);
        }
        Ok(Route::Upstream(index)) => {
            assert_below_prefix(&UPSTREAM_ROUTES[index].path_prefix, path)
        }
        Ok(Route::Options { .. } | Route::DomainBatch | Route::Assess) => {
            panic!("{route:?} for GET")
        }
        Err(Refusal::MethodNotAllowed { .. }) => {
            assert!(matches!(path, b"/v1/public/domains" | b"/v1/assess"));
        }
        Err(refusal) => assert_eq!(refusal, Refusal::NotFound),
    }
}

fn has_path_in_query(query: &[u8]) -> bool {
    let first = query.iter().position(|byte| *byte != b'?').unwrap_or(query.len());
    let query = &query[first..];
    query.starts_with(b"/") || query.starts_with(b"%2F") || query.starts_with(b"%2f")
}

fn is_same_match_result(a: &Result<Route<'_>, Refusal>, b: &Result<Route<'_>, Refusal>) -> bool {
    format!("{a:?}") == format!("{b:?}")
}

/// The path alone decides which methods a route allows.
fn assert_methods_follow_path(target: &[u8], get: &Result<Route<'_>, Refusal>) {
    let head = find_route("HEAD", target);
    let options = find_route("OPTIONS", target);
    let other = find_route("BREW", target);
    match get {
        Ok(route) => {
            let Ok(Route::Options { allow: named, .. }) = options else { panic!("{options:?}") };
            assert_eq!(other, Err(Refusal::MethodNotAllowed { allow: named }));
            match route {
                Route::Upstream(_) => assert_eq!(head, other, "a prefix names its methods"),
                _ => assert_eq!(head.as_ref(), Ok(route)),
            }
        }
        Err(Refusal::MethodNotAllowed { allow }) => {
            assert!(is_same_match_result(&head, get) && is_same_match_result(&other, get));
            assert!(matches!(options, Ok(Route::Options { allow: named, .. }) if named == *allow));
        }
        Err(_) => {
            assert!([&head, &options, &other].iter().all(|found| is_same_match_result(found, get)))
        }
    }
}

fn assert_path_ends_in_segment(head: &[u8], segment: &[u8], path: &[u8]) {
    assert_eq!([head, segment].concat(), path);
    assert!(!segment.is_empty() && !segment.contains(&b'/'));
    let decoded = percent_decode(segment).unwrap_or_default();
    assert!(decoded != b"." && decoded != b"..", "a dot segment");
}

/// The canonical form matches the same kind of route, and is its own canonical form.
fn assert_one_canonical_form(segment: &[u8]) {
    let Ok(once) = canonical_check_path(segment) else { return };
    let Ok(Route::Check(again)) = find_route("GET", once.as_bytes()) else {
        panic!("{once} is no check target");
    };
    assert_eq!(
        canonical_check_path(again).as_ref(),
        Ok(&once),
        "the canonical form is not canonical"
    );
    assert_eq!(
        percent_decode(again),
        percent_decode(segment),
        "the canonical form has another meaning"
    );
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte);
    assert!(again.iter().all(|byte| is_unreserved(*byte)), "{once}");
    http::uri::PathAndQuery::try_from(once.as_str()).expect("a path that can be forwarded");
}

/// A server that decodes the path once and ignores case and repeated slashes finds the prefix in
/// it, and none of riskgate's own paths.
fn assert_below_prefix(prefix: &str, path: &[u8]) {
    assert!(!path.iter().any(|byte| byte.is_ascii_control() || *byte == b'\\'));
    let Ok(decoded) = percent_decode(path) else { return };
    let decoded = String::from_utf8_lossy(&decoded).to_ascii_lowercase();
    let segments: Vec<&str> = decoded.split('/').filter(|segment| !segment.is_empty()).collect();
    assert!(!segments.iter().any(|segment| matches!(*segment, "." | "..")), "{decoded}");
    let merged = format!("/{}/", segments.join("/"));
    for own in ["/v1/public/", "/v1/check/", "/v1/usage/", "/v1/assess/"] {
        assert!(!merged.starts_with(own), "{decoded}");
    }
    if path.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'/') {
        assert!(merged.starts_with(&format!("{prefix}/")), "{decoded}");
    }
}

/// A target in the log contains no query and no text before an `@`.
fn assert_log_hides_local_part(target: &[u8]) {
    let shown = redact_path(target);
    assert!(!shown.contains('?') && !shown.contains('%'), "{shown:?}");
    assert!(shown.chars().count() <= 512, "{shown:?}");
    match shown.split_once('@') {
        None => {}
        Some((before, domain)) => {
            assert_eq!(before, "/v1/check/…", "{shown:?}");
            assert_eq!(Domain::parse(domain).map(|d| d.to_string()).as_deref(), Ok(domain));
        }
    }
}
