use super::*;

#[test]
fn a_key_header_has_no_other_meaning() {
    for text in ["X-Api-Key", "apikey", "x-key"] {
        assert!(parse_key_header(text).is_some(), "{text}");
    }
    for text in ["", "X Key", "Key:", "HOST", "Authorization", "X-Forwarded-For", "Cookie", "TE"] {
        assert_eq!(parse_key_header(text), None, "{text}");
    }
}
