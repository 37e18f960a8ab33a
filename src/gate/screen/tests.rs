use super::*;

#[test]
fn a_suggestion_is_added_to_the_query_of_the_redirect() {
    for (location, expected) in [
        ("/signup", "/signup?did_you_mean=gmail.com"),
        ("/signup?email=refused", "/signup?email=refused&did_you_mean=gmail.com"),
        ("/signup?a#b?", "/signup?a&did_you_mean=gmail.com#b?"),
        ("https://a.test#b", "https://a.test?did_you_mean=gmail.com#b"),
    ] {
        assert_eq!(add_suggestion(location, Some("gmail.com")), expected);
        assert_eq!(add_suggestion(location, None), location);
    }
}
