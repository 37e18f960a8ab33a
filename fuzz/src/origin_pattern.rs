//! The key ring's origin index and a single pattern agree on whether an origin matches.
//!
//! The first input line is the value of an `Origin` header, the other lines are patterns of a key.

use riskgate::gate::admission::OriginHeader;
use riskgate::model::origin::{Origin, OriginPattern};

use super::split_first_line;

/// Panics if a promise is broken for this input.
pub fn check_input(data: &[u8]) {
    let (value, rest) = split_first_line(data);
    let header = OriginHeader::read([value].into_iter());
    let origin = std::str::from_utf8(value).ok().and_then(|text| Origin::parse(text).ok());
    match (&header, &origin) {
        (OriginHeader::Valid(found, shown), Some(origin)) => {
            assert_eq!(found, origin);
            assert_eq!(shown.as_bytes(), value);
            // riskgate copies the origin unchanged into a response header.
            assert!(shown.bytes().all(|byte| byte.is_ascii_graphic() && byte != b','), "{shown:?}");
        }
        (OriginHeader::Malformed(shown), None) => assert!(shown.chars().count() <= 256),
        _ => panic!("{header:?} is not {origin:?}"),
    }
    let two_headers = OriginHeader::read([value, value].into_iter());
    assert!(matches!(two_headers, OriginHeader::Malformed(_)), "two headers never match");
    for line in rest.split(|byte| *byte == b'\n').take(4) {
        let Ok(text) = std::str::from_utf8(line) else { continue };
        let Ok(pattern) = OriginPattern::parse(text) else { continue };
        let shown = pattern.to_string();
        assert_eq!(OriginPattern::parse(&shown).as_ref(), Ok(&pattern), "{shown:?}");
        let upper_case = OriginPattern::parse(&text.to_ascii_uppercase());
        assert_eq!(upper_case.as_ref(), Ok(&pattern), "{text:?}");
        if let Some(origin) = &origin {
            // The index of all patterns and the single pattern must agree.
            let indexed = origin.covering_patterns().any(|covering| covering == shown);
            assert_eq!(pattern.matches(origin), indexed, "{shown:?} and {origin:?}");
        }
    }
    let Some(origin) = origin else { return };
    let text = std::str::from_utf8(value).unwrap_or_default();
    assert_eq!(Origin::parse(&text.to_ascii_lowercase()).as_ref(), Ok(&origin));
    let own_pattern = OriginPattern::parse(text).expect("an origin is a pattern");
    assert!(own_pattern.matches(&origin));
    if let Some((scheme, host)) = text.split_once("://")
        && let Ok(wildcard) = OriginPattern::parse(&format!("{scheme}://*.{host}"))
    {
        assert!(!wildcard.matches(&origin), "a wildcard covers its apex");
        // Adding a label of 64 bytes may make the host longer than a host can be.
        if let Ok(subdomain) = Origin::parse(&format!("{scheme}://a.{host}")) {
            assert!(wildcard.matches(&subdomain));
        }
        let other_host = Origin::parse(&format!("{scheme}://a{host}"));
        assert!(!other_host.is_ok_and(|beside| wildcard.matches(&beside)), "not a whole label");
    }
}
