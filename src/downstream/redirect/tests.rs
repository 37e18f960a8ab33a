use super::*;

#[test]
fn the_path_of_a_url_is_kept() {
    for (target, expected) in [
        ("/a?b", Some("/a?b")),
        ("http://gate.test/a?b", Some("/a?b")),
        ("HTTP://gate.test", Some("")),
        ("http://gate.test?b", Some("?b")),
        ("https://gate.test/a", None),
        ("*", None),
        ("gate.test:80", None),
    ] {
        let found = find_path_and_query(target.as_bytes()).map(encode_non_ascii);
        assert_eq!(found.as_deref(), expected, "{target}");
    }
    assert_eq!(encode_non_ascii("/ü".as_bytes()), "/%C3%BC");
}
