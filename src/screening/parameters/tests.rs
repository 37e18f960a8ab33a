use super::*;

/// The names and values that were read, and whether something is broken.
fn parse(text: &str) -> (Vec<(String, String)>, bool) {
    let parsed = parse_value_with_parameters(text);
    assert_eq!(parsed.value, "a/b");
    let parameters = parsed.parameters.into_iter().map(|it| (it.name, it.value));
    (parameters.collect(), parsed.is_broken)
}

#[track_caller]
fn assert_parsed(text: &str, expected: &[(&str, &str)], is_broken: bool) {
    let expected = expected.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    assert_eq!(parse(text), (expected.collect(), is_broken), "{text:?}");
}

#[test]
fn values_may_be_tokens_quoted_or_bare() {
    for (text, expected) in [
        ("a/b", &[][..]),
        (" a/b ;", &[]),
        ("a/b; a=b;;c=d ;", &[("a", "b"), ("c", "d")]),
        ("a/b;A = b", &[("a", "b")]),
        (r#"a/b; A="b c" ; d="e\"f\\g""#, &[("a", "b c"), ("d", "e\"f\\g")]),
        ("a/b; a=----=_Part:1/2; b=c", &[("a", "----=_Part:1/2"), ("b", "c")]),
        (r#"a/b; a="b;c,d""#, &[("a", "b;c,d")]),
        (r#"a/b; a="""#, &[("a", "")]),
    ] {
        assert_parsed(text, expected, false);
    }
    let parsed = parse_value_with_parameters(r#"a; b="c\"d"; e=f"#);
    let written = parsed.parameters.iter().map(|it| (it.raw_value, it.is_quoted));
    assert_eq!(written.collect::<Vec<_>>(), [(r#"c\"d"#, true), ("f", false)]);
}

#[test]
fn broken_parameters_are_skipped_and_reported() {
    for (text, expected) in [
        ("a/b; x", &[][..]),
        ("a/b; x; c=d", &[("c", "d")]),
        ("a/b; =b; c=d", &[("c", "d")]),
        ("a/b; a=; c=d", &[("c", "d")]),
        ("a/b; a=b c; c=d", &[("a", "b"), ("c", "d")]),
        ("a/b; a=\"b", &[]),
        ("a/b; a=\"b\\", &[]),
        ("a/b; a=\"b\"c; c=d", &[("a", "b"), ("c", "d")]),
        ("a/b; a=b,c", &[("a", "b")]),
        ("a/b; a=b\u{7f}; c=d", &[("c", "d")]),
        ("a/b; a=\"\u{b}\"", &[]),
    ] {
        assert_parsed(text, expected, true);
    }
}
