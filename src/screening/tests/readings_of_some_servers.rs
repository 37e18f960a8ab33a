//! Values that only some servers read, beside the address of the form.

use super::*;

const BAD: &str = "a@spam.example";
const GOOD: &str = "a@b.com";

/// Checks that the body is not taken for one whose only address is the good one.
#[track_caller]
fn assert_not_hidden(content_type: &str, body: &str) {
    let read = read(content_type, body.as_bytes());
    let is_found = read.as_ref().is_ok_and(|found| found.values.iter().any(|it| it == BAD));
    let is_unread = read.as_ref().map_or(true, |found| found.unread.is_some());
    assert!(is_found || is_unread, "{content_type}: {body}: {read:?}");
    assert_ne!(read, Err(UnreadCause::NoField), "{content_type}: {body}");
}

/// Mojolicious reads parts in parts, and Jetty the text behind a header that it finds malformed.
#[test]
fn a_part_in_a_part_is_no_hiding_place() {
    let mixed = |name: &str, boundary: &str, parts: &str| {
        format!(
            "Content-Disposition: form-data; name=\"{name}\"\r\nContent-Type: multipart/mixed; \
             boundary={boundary}\r\n\r\n{parts}"
        )
    };
    let long = format!("X-Y: {}\r\n{EMAIL}", "x".repeat(5_000));
    for header in [
        long.as_str(),
        &format!("{EMAIL}; filename*=utf-8''"),
        &format!("{EMAIL}\r\nContent-Transfer-Encoding: base64"),
        &format!("{EMAIL}\r\nContent-Type: text/plain; charset=utf-16"),
    ] {
        let inner = format!("--in\r\n{header}\r\n\r\n{BAD}\r\n--in--\r\n");
        let whole = mixed("x", "in", &inner);
        let (head, content) = whole.split_once("\r\n\r\n").unwrap();
        assert_not_hidden(MULTIPART, &multipart(&[(EMAIL, GOOD), (head, content)]));
        let outer = "Content-Disposition: inline; name=\"x\"";
        let content = format!("{header}\r\n\r\n{BAD}");
        assert_not_hidden(MULTIPART, &multipart(&[(EMAIL, GOOD), (outer, &content)]));
    }
    let innermost = format!("--two\r\n{EMAIL}\r\n\r\n{BAD}\r\n--two--\r\n");
    let inner = format!("--in\r\n{}\r\n--in--\r\n", mixed("y", "two", &innermost));
    let whole = mixed("x", "in", &inner);
    let (head, content) = whole.split_once("\r\n\r\n").unwrap();
    assert_not_hidden(MULTIPART, &multipart(&[(EMAIL, GOOD), (head, content)]));
    // curl sends several files of one field so.
    let files = "--in\r\nContent-Disposition: attachment; filename=\"a.png\"\r\n\
                 Content-Type: image/png\r\n\r\nx\r\n\r\ny\r\n--in--\r\n";
    let whole = mixed("photos", "in", files);
    let (head, content) = whole.split_once("\r\n\r\n").unwrap();
    assert_values(MULTIPART, multipart(&[(EMAIL, GOOD), (head, content)]), &[GOOD]);
    // An honest text has empty lines.
    let text = "Content-Disposition: form-data; name=\"about\"";
    assert_values(
        MULTIPART,
        multipart(&[(EMAIL, GOOD), (text, "Dear all,\r\n\r\nhello: x\r\n\r\nbye")]),
        &[GOOD],
    );
}

/// formidable reads a body as multipart if that word is anywhere in its type.
#[test]
fn a_multipart_body_in_a_form_is_no_hiding_place() {
    let disguised = format!("{URLENCODED}; x=multipart; boundary=xyz");
    for header in [format!("{EMAIL}; filename*=utf-8''a"), format!("X-Y: {:5000}\r\n{EMAIL}", "")] {
        let hidden = multipart(&[(&header, BAD)]);
        for before in [format!("email={GOOD}&b=\r\n"), "b=\r\n".to_owned()] {
            assert_not_hidden(&disguised, &format!("{before}{hidden}"));
        }
    }
}

/// hapi makes an object of a file whose type is that of a form.
#[test]
fn a_part_of_a_format_with_members_is_no_hiding_place() {
    let good = "Content-Disposition: form-data; name=\"user[email]\"";
    for (media_type, content) in [
        (URLENCODED, format!("email={BAD}")),
        ("application/xml; charset=utf-8", format!("<user><email>{BAD}</email></user>")),
        ("application/soap+xml", format!("<user><email>{BAD}</email></user>")),
        ("application/yaml", format!("email: {BAD}")),
    ] {
        let header = format!(
            "Content-Disposition: form-data; name=\"user\"; filename=\"a\"\r\nContent-Type: \
             {media_type}"
        );
        assert_not_hidden(MULTIPART, &multipart(&[(good, GOOD), (&header, &content)]));
    }
    // An honest upload leads to no field.
    let upload = "Content-Disposition: form-data; name=\"feed\"; filename=\"a.xml\"\r\n\
                  Content-Type: application/xml";
    assert_values(MULTIPART, multipart(&[(good, GOOD), (upload, "<a/>")]), &[GOOD]);
}

/// Zope, Struts, CGI.pm and `Object.assign` of JavaScript.
#[test]
fn other_spellings_of_names_and_values_are_no_hiding_place() {
    for name in ["email:string", "email:utf8:ustring", "user.email:record", "top.email"] {
        assert_values(URLENCODED, format!("email={GOOD}&{name}={BAD}"), &[GOOD, BAD]);
    }
    // Another text than an address says nothing of the form.
    assert_values(URLENCODED, format!("email={GOOD}&email:tokens=work"), &[GOOD]);
    for value in ["a%u0040spam.example%u002cx@b.com", "a@spam%u002eexample%u002cx@b.com"] {
        assert_not_hidden(URLENCODED, &format!("email={value}"));
    }
    let hidden = format!(r#"{{"__proto__":{{"email":"{BAD}"}}}}"#);
    assert_values(JSON, &hidden, &[BAD]);
    assert_values(JSON, format!(r#"{{"email":"{GOOD}",{}"#, &hidden[1..]), &[GOOD, BAD]);
}

/// A page makes JSON of the pairs of a form: `Object.fromEntries(new FormData(form))`.
#[test]
fn members_about_a_field_need_no_address() {
    for member in ["email[label]", "email.consent", "email[consent]", "_email", "!email"] {
        assert_values(JSON, format!(r#"{{"email":"{GOOD}","{member}":"work"}}"#), &[GOOD]);
        assert_values(JSON, format!(r#"{{"email":"{GOOD}","{member}":"{BAD}"}}"#), &[GOOD, BAD]);
    }
    assert_values(JSON, format!(r#"{{"user":{{"email":"{GOOD}","_email":"on"}}}}"#), &[GOOD]);
}
