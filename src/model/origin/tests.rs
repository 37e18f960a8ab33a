use super::*;

fn matches(pattern: &str, origin: &str) -> bool {
    let pattern = OriginPattern::parse(pattern).unwrap();
    Origin::parse(origin).is_ok_and(|origin| pattern.matches(&origin))
}

#[test]
fn an_origin_matches_by_scheme_host_and_port() {
    assert!(matches("https://app.example.com", "https://app.example.com"));
    assert!(matches("https://app.example.com", "HTTPS://APP.example.com:443"));
    assert!(matches("https://app.example.com:443", "https://app.example.com"));
    assert!(matches("http://localhost:3000", "http://localhost:3000"));
    assert!(matches("http://[::1]:3000", "http://[::1]:3000"));
    assert!(!matches("https://app.example.com", "http://app.example.com"));
    assert!(!matches("https://app.example.com", "https://app.example.com:8443"));
    assert!(!matches("https://app.example.com", "https://app.example.com.evil.net"));
    assert!(!matches("https://app.example.com", "https://evil-app.example.com"));
}

#[test]
fn an_ipv6_address_is_the_same_however_it_is_written() {
    for pattern in
        ["http://[0:0:0:0:0:0:0:1]:3001", "http://[::0001]:3001", "http://[0::0.0.0.1]:3001"]
    {
        assert!(matches(pattern, "http://[::1]:3001"), "{pattern}");
        assert!(matches("http://[::1]:3001", pattern), "{pattern}");
        assert!(!matches(pattern, "http://[::2]:3001"), "{pattern}");
    }
    // A browser sends an IPv4-mapped address in hexadecimal.
    assert!(matches("https://[::FFFF:192.0.2.1]", "https://[::ffff:c000:201]"));
}

#[test]
fn an_international_name_matches_its_a_labels() {
    for (pattern, origin) in [
        ("https://B\u{fc}cher.example", "https://xn--bcher-kva.example"),
        ("https://*.b\u{fc}cher.example:8443", "https://a.xn--bcher-kva.example:8443"),
        ("https://XN--BCHER-KVA.example", "https://xn--bcher-kva.example"),
    ] {
        assert!(matches(pattern, origin), "{pattern}");
        let shown = OriginPattern::parse(pattern).unwrap().to_string();
        assert_eq!(OriginPattern::parse(&shown), OriginPattern::parse(pattern), "{shown}");
    }
    for text in
        ["https://a\u{3002}b:x", "https://b\u{fc}cher/x", "\u{fc}://a.com", "https://\u{ad}"]
    {
        assert_eq!(OriginPattern::parse(text), Err(OriginError), "{text}");
    }
    // Browsers never send such an origin, and a response header must not contain it.
    assert_eq!(Origin::parse("https://b\u{fc}cher.example"), Err(OriginError));
}

#[test]
fn an_ipv4_address_has_four_decimal_numbers() {
    assert!(matches("http://127.0.0.1:8080", "http://127.0.0.1:8080"));
    assert!(matches("http://1.example.com", "http://1.example.com"));
    // Browsers send 127.0.0.1 for each of these, so they would never match.
    for host in ["127.1", "2130706433", "0x7f.0.0.1", "0x7F000001", "127.0.0.01", "a.0x"] {
        assert_eq!(OriginPattern::parse(&format!("http://{host}")), Err(OriginError), "{host}");
    }
    for pattern in ["http://*.0.0.1", "http://*.127.0.0.1"] {
        assert_eq!(OriginPattern::parse(pattern), Err(OriginError), "{pattern}");
    }
}

#[test]
fn a_wildcard_covers_subdomains_and_not_the_apex() {
    assert!(matches("https://*.example.com", "https://a.example.com"));
    assert!(matches("https://*.example.com", "https://a.b.example.com"));
    assert!(!matches("https://*.example.com", "https://example.com"));
    assert!(!matches("https://*.example.com", "https://evilexample.com"));
    assert!(!matches("https://*.example.com", "https://.example.com"));
}

#[test]
fn the_intersection_of_two_patterns_is_the_narrower_one() {
    let intersection = |one: &str, other: &str| {
        let [one, other] = [one, other].map(|text| OriginPattern::parse(text).unwrap());
        let both = one.intersect(&other).map(ToString::to_string);
        assert_eq!(other.intersect(&one).map(ToString::to_string), both, "in either order");
        both
    };
    let (wide, narrow) = ("https://*.example.com", "https://*.app.example.com");
    let one = "https://a.app.example.com";
    assert_eq!(intersection(wide, narrow).as_deref(), Some(narrow));
    assert_eq!(intersection(wide, one).as_deref(), Some(one));
    assert_eq!(intersection(one, one).as_deref(), Some(one));
    assert_eq!(intersection(wide, wide).as_deref(), Some(wide));
    for other in ["https://example.com", "http://a.app.example.com", "https://*.example.org"] {
        assert_eq!(intersection(wide, other), None, "{other}");
    }
}

#[test]
fn malformed_origins_and_patterns_are_rejected() {
    for text in [
        "null",
        "",
        "https://",
        "https://a.com/",
        "https://a.com/path",
        "a.com",
        "*",
        "https://a.com https://b.com",
        "https://a.com,https://b.com",
        "https://u@a.com",
        "https://a..com",
        "https://a.com:",
        "https://a.com:99999",
        "://a.com",
        "1s://a.com",
        "https://a.com?x",
        "https://a.com#x",
        "https://a.com\\",
        "https://[zz]",
        "https://a.com.",
    ] {
        assert_eq!(Origin::parse(text), Err(OriginError), "{text:?}");
    }
    for text in ["https://*", "https://*.com", "*.example.com", "https://a.*.com", "null"] {
        assert_eq!(OriginPattern::parse(text), Err(OriginError), "{text:?}");
    }
}
