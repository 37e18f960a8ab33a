use super::*;

fn allowed(grant: Option<CorsGrant>) -> Cors {
    Cors::Allowed { origin: "https://a.example".into(), grant: grant.map(Arc::new) }
}

#[test]
fn a_page_may_send_what_the_browser_asks_for_unless_the_route_lists_it() {
    let headers = |cors: &Cors| {
        cors.allowed_request_headers(
            ["content-type", "baggage", "baggage"].into_iter(),
            Some("x-api-key"),
        )
    };
    let usual = "Authorization, Content-Type, Traceparent, X-Request-Id, x-api-key, baggage";
    assert_eq!(headers(&allowed(None)), usual);
    assert_eq!(headers(&allowed(Some(CorsGrant::new(None, &[], true)))), usual);
    let listed = ["X-A".to_owned(), "X-B".to_owned()];
    let granted = |names| headers(&allowed(Some(CorsGrant::new(Some(names), &[], false))));
    assert_eq!(granted(&listed), "X-A, X-B");
    assert_eq!(granted(&[]), "");
}

#[test]
fn a_grant_exposes_fields_beside_the_usual_ones() {
    let fields = |cors: Cors| {
        let mut fields = Vec::new();
        cors.for_each_field(&mut |field, value| {
            fields.push(format!("{}: {}", field.name, String::from_utf8_lossy(value)));
        });
        fields
    };
    let usual = format!("access-control-expose-headers: {EXPOSED_HEADERS}");
    let origin = "access-control-allow-origin: https://a.example";
    assert_eq!(fields(allowed(None)), [origin, &usual, "vary: Origin"]);
    let exposed = ["X-Total".to_owned(), "ratelimit".to_owned()];
    let grant = CorsGrant::new(None, &exposed, true);
    let more = format!("{usual}, X-Total");
    let credentials = "access-control-allow-credentials: true";
    assert_eq!(fields(allowed(Some(grant))), [origin, credentials, &more, "vary: Origin"]);
    assert_eq!(fields(Cors::Denied), ["vary: Origin"]);
}
