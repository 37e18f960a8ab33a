use super::*;

#[test]
fn a_field_in_the_path_is_found() {
    let fields = [FieldPath::parse("email").unwrap()];
    for (target, expected) in [
        ("/signup;email=a@b.com", true),
        ("/signup;x=1&email=a@b.com?y", true),
        ("/signup;jsessionid=1A2B", false),
        ("/signup?x;email=a@b.com", false),
        ("/signup", false),
    ] {
        assert_eq!(has_field_in_path(target.as_bytes(), &fields), expected, "{target}");
    }
}

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
