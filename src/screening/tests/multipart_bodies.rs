//! Multipart bodies: those of clients, and those that servers read in different ways.

use super::*;

#[test]
fn all_values_of_a_multipart_body_are_read() {
    let name = |name: &str| format!("Content-Disposition: form-data; name=\"{name}\"");
    let (email, nested) = (name("email"), name("user[email]"));
    assert_values(MULTIPART, multipart(&[(&email, "a@b.com")]), &["a@b.com"]);
    assert_values(
        MULTIPART,
        multipart(&[(&name("x"), "1"), (&email, "a@b.com"), (&nested, "c@d.com")]),
        &["a@b.com", "c@d.com"],
    );
    let file = "Content-Disposition: form-data; name=\"photo\"; filename=\"a.png\"\r\n\
                Content-Type: image/png";
    assert_values(MULTIPART, multipart(&[(file, "\u{1}\n"), (&email, "a@b.com")]), &["a@b.com"]);
    let typed = format!("{email}\r\nContent-Type: text/plain; charset=utf-8");
    assert_values(MULTIPART, multipart(&[(&typed, "a@b.com")]), &["a@b.com"]);
}

#[test]
fn harmless_parts_of_a_form_do_not_hide_its_address() {
    let other = |header: &str| format!("Content-Disposition: form-data; {header}");
    for header in [
        "name=\"photo\"; filename=\"a;b.png\"",
        "name=\"photo\"; filename=\"C:\\a.png\"",
        "name=\"photo\"; filename=\"my \\\"photo\\\".png\"",
        "name=\"photo\"; filename=\"content-disposition boundary charset.png\"",
        "name=photo; filename=a.png; filename*=utf-8''a%20b.png",
        "name=\"photo\"; filename=\"\"\r\nContent-Type: application/octet-stream",
        "name=\"photo\"; size=12; filename=\"it's.png\"\r\nContent-Type: image/png",
        "name*=utf-8''na%C3%AFve",
        "name=\"=?utf-8?B?bmHDr3Zl?=\"",
        "name=\"x\"\r\nContent-Transfer-Encoding: base64",
        "name=\"x\"\r\nContent-Type: text/plain; charset=utf-16",
        "name=\"data\"; filename=\"blob\"\r\nContent-Type: application/json",
        "name=\"x\"\r\nContent-ID: email",
        "name=\"x\"\r\nContent-Type: multipart/mixed; boundary=abc",
    ] {
        for parts in [
            [(other(header), "{}"), (EMAIL.to_owned(), "a@b.com")],
            [(EMAIL.to_owned(), "a@b.com"), (other(header), "{}")],
        ] {
            let parts = parts.each_ref().map(|(header, content)| (header.as_str(), *content));
            assert_values(MULTIPART, multipart(&parts), &["a@b.com"]);
        }
    }
    let whole = multipart(&[(EMAIL, "a@b.com")]);
    assert_values(MULTIPART, format!("\r\n{whole}"), &["a@b.com"]);
    let mime = "This is a multi-part message in MIME format.\r\n";
    for preamble in ["preamble\r\n", mime, "\r\n\r\n"] {
        assert_values(MULTIPART, format!("{preamble}{whole}epilogue"), &["a@b.com"]);
    }
    assert_values(MULTIPART, whole.trim_end(), &["a@b.com"]);
    assert_values(MULTIPART, whole.trim_end_matches("\r\n--xyz--\r\n"), &["a@b.com"]);
    assert_values(MULTIPART, whole.replace("\r\n", "\n"), &["a@b.com"]);
    let latin1 = [
        b"--xyz\r\nContent-Disposition: form-data; name=\"n\xe4me\"\r\n\r\nJ\xfcrgen\r\n",
        whole.as_bytes(),
    ]
    .concat();
    assert_values(MULTIPART, &latin1, &["a@b.com"]);
    assert_values(&format!("{MULTIPART}; charset=ISO-8859-1"), &latin1, &["a@b.com"]);
}

#[test]
fn a_name_is_read_as_werkzeug_and_parse_multipart_data_read_it() {
    for header in [
        "name*=utf-8''email?",
        "name*=utf-8''Email<x>; y=z",
        "name*=utf-8''%65mail/x",
        "name*=utf-8'en'email\u{17f}",
        "name*=email\u{200b}",
        "name=email?x",
        "na=\"email\"; name=\"x\"",
        "name=email\u{e9}",
    ] {
        let other = format!("Content-Disposition: form-data; {header}");
        let body = multipart(&[(&other, "a@spam.example"), (EMAIL, "a@b.com")]);
        let found = read(MULTIPART, body.as_bytes()).unwrap();
        assert_eq!(found.values, ["a@spam.example", "a@b.com"], "{header}");
    }
    let quoted = "Content-Disposition: form-data; name*=\"utf-8''email?\"";
    let body = multipart(&[(quoted, "a@spam.example"), (EMAIL, "a@b.com")]);
    assert_values(MULTIPART, body, &["a@b.com"]);
}

#[test]
fn a_part_of_any_spelling_that_clients_write_is_read() {
    for header in [
        "Content-Disposition: form-data; name=email".to_owned(),
        // Only some servers read it, and nobody reads another name.
        "Content-Disposition: form-data; name*=utf-8''email".to_owned(),
        "content-disposition:form-data;name=\"email\"".to_owned(),
        EMAIL.replace("form-data", "attachment"),
        format!("Content-Type: text/plain; charset=utf-8\r\n{EMAIL}"),
        format!(
            "{EMAIL}\r\nContent-Type: text/plain; charset=ISO-8859-1\r\nContent-Transfer-Encoding: 8bit"
        ),
        format!("{EMAIL}\r\nContent-Transfer-Encoding: binary\r\nContent-Length: 7"),
        format!("{EMAIL}\r\nContent-Transfer-Encoding: 7BIT\r\nX-Own: boundary=y"),
    ] {
        assert_values(MULTIPART, multipart(&[(&header, "a@b.com")]), &["a@b.com"]);
    }
    // As Retrofit sends a text, and as browsers send a Blob.
    let json = format!("{EMAIL}\r\nContent-Type: application/json; charset=UTF-8");
    assert_values(MULTIPART, multipart(&[(&json, "\"a@b.com\"")]), &["a@b.com"]);
    let blob = "Content-Disposition: form-data; name=\"user\"; filename=\"blob\"\r\n\
                Content-Type: application/json";
    assert_values(MULTIPART, multipart(&[(blob, "{\"email\":\"a@b.com\"}")]), &["a@b.com"]);
    for content in [r#"{"email":"a@b.com"} x"#, r#"{"email":"a@b.com","x":"#] {
        let broken = multipart(&[(
            "Content-Disposition: form-data; name=\"x\"\r\nContent-Type: application/json",
            content,
        )]);
        let found = read(MULTIPART, broken.as_bytes()).unwrap();
        assert_eq!(
            (found.values, found.unread),
            (vec!["a@b.com".into()], Some(UnreadCause::Broken))
        );
    }
    let header = "Content-Disposition: form-data; name=\"x\"\r\nContent-Type: application/json";
    let file = "Content-Disposition: form-data; name=\"x\"; filename=\"tsconfig.json\"\r\n\
                Content-Type: application/json";
    let settings = multipart(&[(file, "/* Learn more */\n{\"a\":1}"), (EMAIL, "a@b.com")]);
    assert_values(MULTIPART, settings, &["a@b.com"]);
    let in_comment = multipart(&[(header, "/**/{\"email\":\"a@b.com\"}")]);
    assert_eq!(read(MULTIPART, in_comment.as_bytes()), Err(UnreadCause::Broken));
    let nested = format!("{{\"x\":{}{},\"email\":\"a@b.com\"}}", "[".repeat(200), "]".repeat(200));
    let found = read(MULTIPART, multipart(&[(header, &nested)]).as_bytes());
    assert_eq!(found, Err(UnreadCause::Broken));
    assert_values(MULTIPART, multipart(&[(header, "plain"), (EMAIL, "a@b.com")]), &["a@b.com"]);
    // A file that the user has chosen is no form.
    let file = blob.replace("\"blob\"", "\"people.json\"");
    let found = read(MULTIPART, multipart(&[(&file, "{\"email\":\"a@b.com\"}")]).as_bytes());
    assert_eq!(found, Err(UnreadCause::Broken));
    // Only the ASCII characters of these charsets are those of UTF-8.
    let latin1 = format!("{EMAIL}\r\nContent-Type: text/plain; charset=ISO-8859-1");
    let found = read(MULTIPART, multipart(&[(&latin1, "ä@b.com")]).as_bytes()).unwrap();
    assert_eq!(found.unread, Some(UnreadCause::OtherCharset));
}

#[test]
fn what_was_read_of_a_broken_multipart_body_is_kept_and_reported() {
    let whole = multipart(&[(EMAIL, "a@b.com")]);
    let part = |header: &str| multipart(&[(header, "a@b.com")]);
    let email_with = |more: &str| part(&format!("{EMAIL}{more}"));
    for (content_type, body) in [
        (MULTIPART, whole.replace("name=\"email\"\r\n", "name=\"email\"\n")),
        (MULTIPART, whole.replace("a@b.com\r\n", "a@b.com\n")),
        (MULTIPART, whole.replace("\r\n", "\n").replace("com\n", "com\r\n")),
        (MULTIPART, whole.replace("--xyz--", "--xyz")),
        (MULTIPART, whole.replace("--xyz\r\n", "--xyz \r\n")),
        (MULTIPART, whole.replace("--xyz--", "--xyz--x")),
        (MULTIPART, format!("--xyz--\r\n{whole}")),
        (MULTIPART, format!("x--xyz\r\n{whole}")),
        (MULTIPART, email_with("\r\n\u{b};name=\"x\":y")),
        (MULTIPART, email_with("\r\nno field")),
        (MULTIPART, email_with(&format!("\r\n{EMAIL}"))),
    ] {
        let found = read(content_type, body.as_bytes()).expect(&body);
        let expected = (vec!["a@b.com".to_owned()], Some(UnreadCause::Broken));
        assert_eq!((found.values, found.unread), expected, "{content_type}: {body}");
    }
}

#[test]
fn a_name_that_some_server_reads_otherwise_is_read_and_reported() {
    let part = |header: &str| multipart(&[(header, "a@b.com")]);
    let email_with = |more: &str| part(&format!("{EMAIL}{more}"));
    for (content_type, body) in [
        // PHP and Rack read the last name.
        (MULTIPART, email_with("; name=\"x\"")),
        (MULTIPART, part("Content-Disposition: form-data; name=\"x\"; name=\"email\"")),
        // Django and Werkzeug decode it.
        (MULTIPART, email_with("; name*=utf-8''x")),
        (MULTIPART, email_with("; name*0=em; name*1=ail")),
        // riskgate does not decode this charset.
        (
            MULTIPART,
            multipart(&[
                (EMAIL, "a@b.com"),
                ("Content-Disposition: form-data; name*=iso-8859-1''%C3%A9", "x"),
            ]),
        ),
        // Some remove the backslash.
        (MULTIPART, part(&EMAIL.replace("email", "em\\ail"))),
        // Tomcat decodes it.
        (MULTIPART, part(&EMAIL.replace("email", "=?utf-8?Q?e=6Dail?="))),
        // Node and multer skip it.
        (MULTIPART, part(&EMAIL.replace("email", "\u{feff}email"))),
        // Rack searches for the words.
        (MULTIPART, part("Content-Disposition: form-data; name=\"x; name=email\"")),
        (
            MULTIPART,
            part(&format!("Content-Disposition: form-data; x=\":\"; name=\"x\"\r\nX-{EMAIL}")),
        ),
        (MULTIPART, part("Content-Disposition: form-data; name=\"x\"; y=\"; name=email\"")),
        // Django reads a part before the first delimiter and behind the last one.
        (MULTIPART, format!("{EMAIL}\r\n\r\na@b.com\r\n--xyz--\r\n")),
        (MULTIPART, format!("--xyz--\r\n{EMAIL}\r\n\r\na@b.com")),
        // Bottle.
        (
            MULTIPART,
            part(
                "Content-Disposition: form-data; name=\"x\"\r\nContent_Disposition: form-data; name=\"email\"",
            ),
        ),
        // formidable.
        (MULTIPART, part("Content-Disposition: form-data; x-name=\"email\"; name=\"x\"")),
        // CherryPy.
        (URLENCODED, "em%ail=a@b.com".to_owned()),
        // Sanic.
        (
            MULTIPART,
            multipart(&[
                (EMAIL, "a@b.com"),
                ("Content-Disposition: form-data; name=\"x\"", "xyz\r\n"),
            ]),
        ),
        // PHP takes an apostrophe for a quote.
        (MULTIPART, part("Content-Disposition: form-data; name=x'; y=\"'; name=email;\"")),
        (MULTIPART, part(&EMAIL.replace("form-data", "form data"))),
    ] {
        let found = read(content_type, body.as_bytes()).expect(&body);
        let expected = (vec!["a@b.com".to_owned()], Some(UnreadCause::Broken));
        assert_eq!((found.values, found.unread), expected, "{content_type}: {body}");
    }
}

#[test]
fn a_part_that_only_some_server_finds_is_read_and_reported() {
    let whole = multipart(&[(EMAIL, "a@b.com")]);
    for (content_type, body) in [
        // Jetty reads the content of a part that it skips as the next part.
        (
            MULTIPART,
            multipart(&[(
                "Content-Disposition: inline; name=\"x\"",
                &format!("{EMAIL}\r\n\r\na@b.com"),
            )]),
        ),
        // hapi adds the second part to the first field.
        (MULTIPART, multipart(&[(EMAIL, "a@b.com"), ("Content-Type: foo", "c@d.com")])),
        // blacksheep looks for the type.
        (
            "multipart/form-data; boundary=xyz; x=application/x-www-form-urlencoded",
            multipart(&[
                (EMAIL, "a@b.com"),
                ("Content-Disposition: form-data; name=\"x\"", "&email=c@d.com&"),
            ]),
        ),
        // Mojolicious.
        (
            MULTIPART,
            multipart(&[(
                "Content-Disposition: form-data; name=\"x\"\r\n\
                 Content-Type: multipart/mixed; boundary=abc",
                &whole.replace("xyz", "abc"),
            )]),
        ),
    ] {
        let found = read(content_type, body.as_bytes()).expect(&body);
        let expected = (vec!["a@b.com".to_owned()], Some(UnreadCause::Broken));
        assert_eq!((found.values, found.unread), expected, "{content_type}: {body}");
    }
}

#[test]
fn parts_in_parts_are_read_to_one_level_only() {
    let level = |boundaries: &str| format!("Content-Type: multipart/m{boundaries}\r\n\r\n--a\r\n");
    let boundaries: String = ('a'..='e').map(|name| format!("; boundary={name}")).collect();
    for body in [level("; boundary=a").repeat(1_300), level(&boundaries).repeat(500)] {
        let body = format!("--xyz\r\n{body}{EMAIL}\r\n\r\na@b.com\r\n--xyz--\r\n");
        let found = read(MULTIPART, body.as_bytes()).unwrap();
        let expected = (vec!["a@b.com".to_owned()], Some(UnreadCause::Broken));
        assert_eq!((found.values, found.unread), expected);
    }
}

#[test]
fn a_part_with_many_names_is_not_read_completely() {
    let names: String = (0..3_000).map(|number| format!("; name=x{number}")).collect();
    let header = format!("Content-Disposition: form-data{names}\r\nContent-Type: application/json");
    let found =
        read(MULTIPART, multipart(&[(&header, "{}"), (EMAIL, "a@b.com")]).as_bytes()).unwrap();
    assert_eq!((found.values, found.unread), (vec!["a@b.com".into()], Some(UnreadCause::Broken)));
}

#[test]
fn only_so_many_names_of_all_parts_are_read() {
    let part =
        |header: &str| format!("--xyz\r\nContent-Disposition: form-data; {header}\r\n\r\nx\r\n");
    let email = multipart(&[(EMAIL, "a@b.com")]);
    let many_names: String = (0..9).map(|number| format!("name=\"email[{number}]\";")).collect();
    for parts in [part(&many_names).repeat(300), part("name=\"x\"; name=\"y\"").repeat(500)] {
        let found = read(MULTIPART, format!("{parts}{email}").as_bytes()).unwrap();
        assert!(found.values.contains(&"a@b.com".to_owned()), "{found:?}");
        assert_eq!(found.unread, Some(UnreadCause::Broken));
    }
    // Behind the names that are read in all ways, the name by the grammar still counts.
    let bad = EMAIL.replace("email\"", "email\"; x=\"name=y\"");
    let bad = multipart(&[(EMAIL, "a@b.com"), (&bad, "c@d.com")]);
    let found = read(MULTIPART, (part("name=\"x\"; name=\"y\"").repeat(500) + &bad).as_bytes());
    let found = found.unwrap();
    assert_eq!(found.values, ["a@b.com", "c@d.com"]);
    assert_eq!(found.unread, Some(UnreadCause::Broken));
    // A name must be compared with all spellings of the field.
    let costly = part("name=\"emailx[]\"");
    assert_values(MULTIPART, costly.repeat(256) + &email, &["a@b.com"]);
    let found = read(MULTIPART, (costly.repeat(257) + &email).as_bytes()).unwrap();
    assert_eq!((found.values, found.unread), (vec!["a@b.com".into()], Some(UnreadCause::Broken)));
    for header in [
        "name=\"x\"",
        "name=name",
        "name=\"rows[1][name]\"",
        "name=\"photos[]\"; filename=\"my name.png\"",
        "name=f; filename=\"a.png\"; filename*=utf-8''a.png",
    ] {
        assert_values(MULTIPART, part(header).repeat(600) + &email, &["a@b.com"]);
    }
}

#[test]
fn the_usual_spellings_of_a_field_are_read_behind_any_number_of_names() {
    let fields = [FieldPath::parse("user.email").unwrap()];
    let read = |content_type: &str, body: &str| {
        let headers =
            BodyHeaders { content_type: Some(content_type.as_bytes()), is_encoded: false };
        let body = ReceivedBody::of_whole_body(body.as_bytes());
        read_field_values(headers, b"", body, &fields).unwrap().values
    };
    for name in ["user[email]", "User.Email"] {
        let others = "user[0][email2]=x&".repeat(500);
        assert_eq!(read(URLENCODED, &format!("{others}{name}=a@b.com")), ["a@b.com"], "{name}");
        let part = |name: &str, text: &str| {
            format!("--xyz\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n")
        };
        let others = part("user[0][email2]", "x").repeat(500);
        let body = others + &part(name, "a@b.com") + "--xyz--\r\n";
        assert_eq!(read(MULTIPART, &body), ["a@b.com"], "{name}");
    }
}

#[test]
fn a_body_is_read_by_each_boundary_that_it_has_and_some_server_reads() {
    let hidden = multipart(&[(EMAIL, "c@d.com")]).replace("xyz", "abc");
    let body = multipart(&[(EMAIL, "a@b.com"), (EMAIL, "x")])
        .replace("\r\nx\r\n", &format!("\r\nx\r\n{hidden}"));
    // PHP searches for the word.
    let found = read("multipart/form-data; xboundary=abc; boundary=xyz", body.as_bytes()).unwrap();
    assert_eq!(found.values.last().unwrap(), "c@d.com");
    assert_eq!(found.unread, Some(UnreadCause::Broken));
}

#[test]
fn a_boundary_that_only_django_reads_is_reported_even_if_the_body_has_it_nowhere() {
    let body = multipart(&[(EMAIL, "a@b.com")]);
    let found =
        read("multipart/form-data; charset=utf-8;Boundary=xyz;boundary=ZZ", body.as_bytes());
    let found = found.unwrap();
    assert_eq!((found.values, found.unread), (vec!["a@b.com".into()], Some(UnreadCause::Broken)));
    for parameters in ["Boundary=xyz", "boundary=\"xyz\" ; a=b", "boundary=xyz;boundary=xyz"] {
        assert_values(&format!("multipart/form-data; {parameters}"), &body, &["a@b.com"]);
    }
}

/// Asserts that the form is no `pass`.
#[track_caller]
fn assert_no_pass(content_type: &str, body: &str) {
    if let Ok(found) = read(content_type, body.as_bytes()) {
        assert!(found.unread.is_some(), "{content_type}\n{body}\n{found:?}");
    }
}

/// riskgate ignores the case of a name, and many servers do not. So the first part is none of the
/// field to them.
#[test]
fn a_second_address_that_only_some_server_reads_is_no_pass() {
    let long = "a".repeat(1_600);
    for header in [
        "name=\"/email\"".to_owned(),
        "name=\":email\"".to_owned(),
        "name=\"email;\"".to_owned(),
        "name=\"=?utf-8?B?ZW1h aWw=?=\"".to_owned(),
        "x=\"-name=foo\"; name=email?; y=\"; name=bar\"".to_owned(),
        "x=\"-name=foo\"; y=\"\\\"; name=email; z=\"\"; name=\"foo\"".to_owned(),
        "x=\"-name=email\\\"; name=\"foo\"".to_owned(),
        format!("name=\"foo\"; x=\"{long}\"\r\nContent-ID: email"),
    ] {
        let header = format!("Content-Disposition: form-data; {header}");
        let decoy = "Content-Disposition: form-data; name=\"EMAIL\"";
        for parts in
            [[(decoy, "a@b.com"), (&header, "x@y.com")], [(&header, "x@y.com"), (decoy, "a@b.com")]]
        {
            assert_no_pass(MULTIPART, &multipart(&parts));
        }
    }
    // Django decodes the content.
    let encoded = format!("{EMAIL}\r\nContent-Transfer-Encoding: base64; x");
    assert_no_pass(MULTIPART, &multipart(&[(&encoded, "eEB5LmNvbQ==@gmail.com")]));
    for charset in ["charset*=utf-8''utf-7", "charset*0=utf-7"] {
        let parts =
            [(EMAIL, "a@b.com"), ("Content-Disposition: form-data; name=\"+AGU-mail\"", "x@y.com")];
        assert_no_pass(&format!("{MULTIPART}; {charset}"), &multipart(&parts));
        let typed = format!("{EMAIL}\r\nContent-Type: text/plain; {charset}");
        assert_no_pass(MULTIPART, &multipart(&[(&typed, "+AHg-@y.com")]));
        let body = "EMAIL=a@b.com&+AGU-mail=x@y.com";
        assert_no_pass(&format!("{URLENCODED}; {charset}"), body);
    }
    for name in ["user_email%00", "]user_email", "user_email%5D", "[]user_email", "%5Buser_email]"]
    {
        let found = read(URLENCODED, format!("{name}=x@y.com").as_bytes()).unwrap();
        assert_eq!(found.values, ["x@y.com"], "{name}");
    }
}

#[test]
fn a_text_beside_the_address_is_no_second_one() {
    let page = r#"{"email":"a@b.com","page":"https://c.com/signup?plan=pro&email=a%40b.com"}"#;
    assert_values(JSON, page, &["a@b.com"]);
    // To most servers, the second is a part of the message.
    let found = read(URLENCODED, b"email=a@b.com&msg=x;email=1").unwrap();
    assert_eq!(found.values, ["a@b.com"]);
    let fields = [FieldPath::parse("email").unwrap()];
    let headers = BodyHeaders { content_type: Some(URLENCODED.as_bytes()), is_encoded: false };
    let body = ReceivedBody::of_whole_body(b"email=a@b.com");
    let found = read_field_values(headers, b"email=%7B%7Bemail%7D%7D", body, &fields).unwrap();
    assert_eq!(
        (found.values, found.unread),
        (vec!["a@b.com".to_owned()], Some(UnreadCause::Broken))
    );
}

#[test]
fn a_part_that_names_another_charset_than_utf8_is_reported() {
    let charset = "Content-Disposition: form-data; name=\"_charset_\"";
    for name in ["UTF-8", "utf8", "us-ascii", "", "windows-1252", "GBK"] {
        assert_values(MULTIPART, multipart(&[(EMAIL, "a@b.com"), (charset, name)]), &["a@b.com"]);
    }
    for (name, address) in [("utf-7", "a@b.com"), ("utf-16", "a@b.com"), ("GBK", "é@b.com")] {
        let body = multipart(&[(EMAIL, address), (charset, name)]);
        let unread = read(MULTIPART, body.as_bytes()).unwrap().unread;
        assert_eq!(unread, Some(UnreadCause::OtherCharset), "{name:?}");
    }
}
