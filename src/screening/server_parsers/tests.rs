use super::super::parameters::parse_value_with_parameters;
use super::*;

#[test]
fn each_boundary_that_a_server_reads_is_returned() {
    for (parameters, boundaries) in [
        ("boundary=----WebKitFormBoundaryX", &["----WebKitFormBoundaryX"][..]),
        ("boundary=\"a b\"", &["a b"]),
        // PHP.
        ("x=\"boundary=evil\"; boundary=good", &["good", "evil\"", "evil"]),
        ("xboundary=evil; boundary=good", &["good", "evil"]),
        ("Boundary=my-boundary; x=evil", &["my-boundary", "evil"]),
        ("boundary=evil; boundary=good", &["evil", "good"]),
        // Rack.
        ("boundary=good; x=\"boundary=evil\"", &["good", "evil"]),
        ("boundary=good; x=\"boundary=evil\"; y=\"boundary=\"", &["good", "evil"]),
        ("boundary=\"good,evil\"", &["good,evil", "good"]),
        ("boundary=\"good;evil\"", &["good;evil", "good"]),
        // PHP and Rack.
        ("boundary=good ; x=y", &["good", "good "]),
        // Mojolicious.
        ("boundary=good; x=\"boundary =evil\"", &["good", "evil"]),
        // aiohttp, Jetty and the email package of Python.
        ("boundary=\" good\"", &[" good", "good"]),
        ("boundary='good'", &["'good'", "good"]),
        ("boundary=<good>", &["<good>", "good"]),
        // Werkzeug.
        ("boundary=good=evil", &["good=evil", "good"]),
        // Tomcat.
        ("boundary=\"=?utf-8?Q?evil?=x\"", &["=?utf-8?Q?evil?=x", "evil"]),
        // Django and cgi.
        (
            r#"x="\\"; boundary=good; y="\"; boundary=evil; z="; w="boundary=good""#,
            &["good", "evil"],
        ),
        (r#"boundary="a\b""#, &["ab", r"a\b"]),
    ] {
        let text = format!("multipart/form-data; {parameters}");
        let parsed = parse_value_with_parameters(&text);
        let found = read_boundaries_as_servers(&text, &parsed.parameters).unwrap();
        assert_eq!(found, boundaries, "{text}");
    }
}

#[test]
fn a_text_may_begin_json_behind_blanks_comments_and_marks() {
    for text in [
        &b"{\"email\":1}"[..],
        b" \r\n[",
        b"\0{",
        b"\"a\"",
        b"/**/{",
        b"# x\n{",
        b")]}'\n{",
        b"\xef\xbb\xbf{",
        b"\xc2\xa0{",
        b"\xff\xfe{\0",
    ] {
        assert!(may_begin_json(text), "{}", String::from_utf8_lossy(text));
    }
    for text in [&b""[..], b"\r\n", b"preamble\r\n", b"a={", b"?a=b", "\u{fc}=1".as_bytes()] {
        assert!(!may_begin_json(text), "{}", String::from_utf8_lossy(text));
    }
}

#[test]
fn a_content_type_with_too_many_boundaries_is_not_read() {
    let text: String = (0..9).map(|number| format!("; boundary=b{number}")).collect();
    let text = format!("multipart/form-data{text}");
    let parsed = parse_value_with_parameters(&text);
    assert_eq!(read_boundaries_as_servers(&text, &parsed.parameters), None);
}

#[test]
fn python_counts_quotes_without_a_backslash_before_them() {
    for (text, value) in [
        ("form-data; name=\"email\"", Some("email")),
        ("form-data; name = email ; x", Some("email")),
        ("form-data; name=a; NAME=\"b\"", Some("b")),
        (r#"form-data; x="\\"; name=email; y=";""#, None),
        (r#"form-data; x="\\"; y="; name=email"#, Some("email")),
        (r#"form-data; name="a\\b\"c""#, Some(r#"a\b"c"#)),
        ("form-data", None),
    ] {
        assert_eq!(read_parameter_as_python(text, "name").as_deref(), value, "{text}");
    }
}

#[test]
fn tomcat_finds_a_charset_in_any_parameter() {
    for (text, charset) in [
        ("a/b; charset=utf-16", Some("utf-16")),
        ("a/b; charset=\"utf-16\"", Some("utf-16")),
        ("a/b; x=\"charset=utf-16;\"", Some("utf-16")),
        ("a/b; Charset=utf-16", None),
    ] {
        assert_eq!(read_charset_as_tomcat(text), charset, "{text}");
    }
}
