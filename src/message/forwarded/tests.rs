use super::*;

/// The elements of a line, as `node scheme`, and `?` for one that violates the grammar.
fn elements(line: &str) -> Vec<String> {
    let text = |part: Option<SmolStr>| part.map_or("-".to_owned(), String::from);
    let elements = iter_elements_from_right(line.as_bytes());
    let elements = elements.map(|element| match element {
        Some(element) => format!("{} {}", text(element.node), text(element.scheme)),
        None => "?".to_owned(),
    });
    elements.collect()
}

#[test]
fn elements_are_parsed_by_the_grammar_from_the_right() {
    for (line, expected) in [
        ("", &[][..]),
        (" ,, ", &[]),
        ("for=192.0.2.1", &["192.0.2.1 -"][..]),
        ("For=a;PROTO=https , FOR=\"b\" ; by=c", &["b -", "a https"]),
        ("for=a;;", &["a -"]),
        (";for=a", &["a -"]),
        ("for = a", &["a -"]),
        ("for=192.0.2.1:80", &["192.0.2.1:80 -"]),
        ("for=\"[2001:db8::1]:80\";host=\"x\"", &["[2001:db8::1]:80 -"]),
        ("proto=https", &["- https"]),
        ("for=\"\"", &[" -"]),
        // A comma, a semicolon, a quote and a backslash in a quoted string divide nothing.
        ("for=a;host=\"b, for=c\"", &["a -"]),
        ("for=a;host=\"b;for=c\"", &["a -"]),
        (r#"for=a;host="b\", for=c""#, &["a -"]),
        (r#"for=a;host="b\\", for=c"#, &["c -", "a -"]),
        (r#"for="\a\"\\,""#, &["a\"\\, -"]),
        (r#"host="\"";for=a"#, &["a -"]),
        // A quote that the client opened hides nothing.
        ("for=\"a, for=b", &["b -", "?"]),
        ("host=\"a, for=b;host=\"c\"", &["b -", "?"]),
        ("\", for=b;host=\"c\"", &["b -", "?"]),
        ("\\\", for=b;host=\"c, d\"", &["b -", "?"]),
        ("for=a, for=b, =, for=c", &["c -", "?"]),
        ("for", &["?"]),
        ("for=a b", &["?"]),
        ("for=a\"b\"", &["?"]),
        ("\"", &["?"]),
        ("for=\"a\\\"", &["?"]),
        ("for=a;for=b", &["?"]),
    ] {
        assert_eq!(elements(line), expected, "{line}");
    }
}
