use super::*;

#[test]
fn a_prefix_covers_itself_and_the_paths_below() {
    let prefix = PathPrefix::parse("/a/authz").unwrap();
    for (target, rest) in [
        ("/a/authz", Some("")),
        ("/a/authz?x", Some("?x")),
        ("/a/authz/", Some("/")),
        ("/a/authz/b?x", Some("/b?x")),
        ("/a/authz2", None),
        ("/a/auth", None),
        ("/A/authz", None),
    ] {
        assert_eq!(prefix.strip_from(target.as_bytes()), rest.map(str::as_bytes), "{target}");
    }
    for text in ["", "/", "a", "/a/", "//a", "/a//b", "/a/../b", "/.", "/a b", "/a%20", "/a?"] {
        assert_eq!(PathPrefix::parse(text), None, "{text}");
    }
}
