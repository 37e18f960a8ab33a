use super::*;

fn parse(text: &str) -> ContentType {
    ContentType::parse(text.as_bytes()).unwrap()
}

#[track_caller]
fn assert_boundaries(text: &str, expected: &[&str]) {
    let boundaries = expected.iter().map(|it| (*it).to_owned()).collect();
    assert_eq!(parse(text).kind, BodyKind::Multipart { boundaries }, "{text}");
}

#[test]
fn the_media_type_decides_how_a_body_is_read() {
    for (text, kind) in [
        ("application/json", BodyKind::Json),
        ("Application/JSON ; q=1", BodyKind::Json),
        (" application/json;", BodyKind::Json),
        ("application/json; charset=", BodyKind::Json),
        ("text/json", BodyKind::Json),
        ("application/vnd.api+json", BodyKind::Json),
        ("application/x-www-form-urlencoded; UTF-8", BodyKind::Urlencoded),
        ("text/plain;charset=UTF-8", BodyKind::PlainText),
        ("image/json", BodyKind::Other),
        ("application/json, text/plain", BodyKind::Other),
        ("json", BodyKind::Other),
        ("application/", BodyKind::Other),
        ("", BodyKind::Other),
    ] {
        assert_eq!((parse(text).kind, parse(text).charset), (kind, Charset::Utf8), "{text}");
    }
    assert_eq!(parse("application/jsonrequest").kind, BodyKind::Json);
    assert_eq!(ContentType::parse(b"application/json; x=\"\xff\""), None);
}

#[test]
fn a_boundary_may_contain_any_word() {
    for boundary in [
        "----WebKitFormBoundary7MA4YWxkTrZu0gW",
        "----geckoformboundaryc5cf0b5bfa9b8d7e1a4d9b3b1f2c7a06",
        "axios-boundary-Xv3",
        "dart-http-boundary-+_.aZ09",
        "alamofire.boundary.0a1b2c3d4e5f6071",
        "boundary",
        "Boundary-charset-boundary",
        "httpclient_boundary_53b7e3c4-0d9a-4d8c-9fd2-5ac8c2a3a6c1",
    ] {
        for parameters in [
            format!("boundary={boundary}"),
            format!("boundary=\"{boundary}\""),
            format!("charset=utf-8; boundary={boundary}"),
            format!("boundary={boundary}; charset=utf-8"),
            format!("utf-8; boundary={boundary}"),
        ] {
            assert_boundaries(&format!("multipart/form-data; {parameters}"), &[boundary]);
        }
    }
}

#[test]
fn a_multipart_type_may_have_no_boundary_or_several() {
    assert_boundaries("multipart/mixed", &[]);
    assert_boundaries("multipart/form-data; boundary=a; boundary=b", &["a", "b"]);
    // Django, Werkzeug and Tomcat read such a boundary, each in its own way.
    assert_eq!(parse("multipart/form-data; boundary*0=x; boundary=y").kind, BodyKind::Other);
}

#[test]
fn charsets_are_told_apart() {
    for (text, charset) in [
        ("a/b; charset=\"UTF-8\"", Charset::Utf8),
        ("a/b; charset=us-ascii", Charset::Utf8),
        ("a/b; charset=ISO-8859-1", Charset::AsciiSuperset),
        ("a/b; charset=windows-1252", Charset::AsciiSuperset),
        ("a/b; charset=iso-8859-12", Charset::Other),
        ("a/b; charset=Shift_JIS", Charset::MultiByte),
        ("a/b; charset=utf-16", Charset::Other),
        ("a/b; charset = utf-16", Charset::Other),
        ("a/b; charset=utf-8; charset=utf-16", Charset::Other),
        ("a/b; charset=utf-7", Charset::Other),
        ("a/b; x=\"charset=utf-16;\"", Charset::Other),
        ("a/b; title=charset", Charset::Utf8),
        ("a/b; charset*=utf-8''utf-7", Charset::Other),
        ("a/b; charset*0=utf-7", Charset::Other),
    ] {
        assert_eq!(parse(text).charset, charset, "{text}");
    }
}
