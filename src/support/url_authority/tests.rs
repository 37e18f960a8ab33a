use super::*;

#[test]
fn the_host_is_what_a_client_connects_to() {
    for (url_after_scheme, host, rest) in [
        ("a.test", Some("a.test"), ""),
        ("a.test:80/b@c", Some("a.test"), "/b@c"),
        ("localhost@a.test/x", Some("a.test"), "/x"),
        ("u:p@q@[::1]:80?@b/", Some("::1"), "?@b/"),
        ("a.test#@b", Some("a.test"), "#@b"),
        ("[::1", None, ""),
        ("u@:80/", None, "/"),
        ("/a", None, "/a"),
    ] {
        let (authority, behind) = split_authority(url_after_scheme);
        assert_eq!((find_host(authority), behind), (host, rest), "{url_after_scheme}");
    }
}
