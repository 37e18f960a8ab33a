//! Forms of server actions, as React's client sends them and as only an attacker does.

use super::*;

/// Returns the values in a body with these parts, each a name and a content, and why the body may
/// have further values.
fn read_parts(parts: &[(&str, &str)]) -> (String, Option<UnreadCause>) {
    let with_header = |(name, content): &(&str, &str)| {
        (format!("Content-Disposition: form-data; name=\"{name}\""), (*content).to_owned())
    };
    let parts: Vec<_> = parts.iter().map(with_header).collect();
    let parts: Vec<_> = parts.iter().map(|(header, it)| (header.as_str(), it.as_str())).collect();
    match read(MULTIPART, multipart(&parts).as_bytes()) {
        Ok(found) => (found.values.join(" "), found.unread),
        Err(cause) => (String::new(), Some(cause)),
    }
}

/// JSON that is too deep for riskgate.
fn deep_list() -> String {
    format!("{}{}", "[".repeat(140), "]".repeat(140))
}

#[test]
fn a_form_as_the_client_of_react_writes_it_is_read() {
    for parts in [
        &[("_1_name", "Joe"), ("_1_email", "a@b.com"), ("0", r#"["$K1"]"#)][..],
        &[("1_email", "a@b.com"), ("0", r#"[null,"$K1"]"#)],
        &[("_1_user.email", "a@b.com"), ("0", r#"["$undefined","$K1"]"#)],
        &[("_1_email", "a@b.com"), ("_1_confirm_email", "c@d.com"), ("0", r#"["$K1"]"#)],
        &[("_a_email", "a@b.com"), ("_a_$ACTION_1:1", "[null]"), ("0", r#"["$$K2","$Ka"]"#)],
        // The last answer of the action has the same value.
        &[("_1_email", "a@b.com"), ("0", r#"[{"error":"$$","email":"a@b.com"},"$K1"]"#)],
        // Variables that Next.js binds to the action.
        &[("1", r#""c2VjcmV0""#), ("_2_email", "a@b.com"), ("0", r#"["$@1","$K2"]"#)],
        // An object beside a file.
        &[("1\"; filename=\"a.gif", "GIF89a"), ("0", r#"[{"email":"a@b.com","photo":"$B1"}]"#)],
        // Errors that the action has answered.
        &[("_1_email", "a@b.com"), ("0", r#"[{"email":["Invalid e-mail"]},"$K1"]"#)],
        &[("_1_email", "a@b.com"), ("0", r#"["a@b.com is taken","$K1"]"#)],
        &[("_1_email", "a@b.com"), ("0", r#"[{"email":"A@B.com","view":"$T"},"$K1"]"#)],
        &[("$ACTION_1:1", r#"["Please use a@b.com"]"#), ("email", "a@b.com")],
        &[
            ("$ACTION_1:0", r#"{"id":"7f","bound":"$@1"}"#),
            ("$ACTION_1:1", r#"["$@2"]"#),
            ("$ACTION_1:2", r#""c2VjcmV0""#),
            ("email", "a@b.com"),
        ],
        // Without a script.
        &[("$ACTION_ID_7f", ""), ("email", "a@b.com"), ("confirm_email", "c@d.com")],
        &[
            ("$ACTION_REF_1", ""),
            ("$ACTION_1:0", r#"{"id":"7f","bound":"$@1"}"#),
            ("$ACTION_1:1", r#"[{"email":"a@b.com"}]"#),
            ("$ACTION_KEY", "k1"),
            ("email", "a@b.com"),
        ],
        // An answer that is the address of the field, and one that names it.
        &[("_1_email", "a@b.com"), ("0", r#"["A@b.com","$K1"]"#)],
        &[("_1_email", "a@b.com"), ("0", r#"["We wrote to a@b.com","$K1"]"#)],
        // Numbers that JavaScript reads as infinity.
        &[("_1_email", "a@b.com"), ("0", r#"[{"n":-1e999,"m":1e9999999999999999999},"$K1"]"#)],
        // No form of an action.
        &[("0", "[me@x.com](mailto:me@x.com)"), ("email", "a@b.com")],
        &[("0", r#"["me@x.com",01e999]"#), ("email", "a@b.com")],
        &[("0", r#"{"length":1,"01":"me@x.com"}, no"#), ("email", "a@b.com")],
        &[("0", "x"), ("1", "[]"), ("email", "a@b.com"), ("confirm_email", "c@d.com")],
        &[("0", r#"["a","b"]"#), ("email", "a@b.com"), ("confirm_email", "c@d.com")],
        &[("0", r#"{"a":1}"#), ("1", r#""hello""#), ("email", "a@b.com")],
        &[("0", "[ ] yes"), ("-", r#""x""#), ("email", "a@b.com")],
        &[("0\"; filename=\"a.json", r#"["$K1"]"#), ("email", "a@b.com")],
    ] {
        assert_eq!(read_parts(parts), ("a@b.com".to_owned(), None), "{parts:?}");
    }
    let without_field = [("_1_name", "Joe"), ("0", r#"["$K1"]"#)];
    assert_eq!(read_parts(&without_field), (String::new(), Some(UnreadCause::NoField)));
    let without_action = [("1_email", "a@b.com"), ("_2_email", "a@b.com")];
    assert_eq!(read_parts(&without_action), (String::new(), Some(UnreadCause::NoField)));
}

#[test]
fn both_spellings_of_a_form_and_a_decoy_beside_it_are_read() {
    for parts in [
        &[("_1_email", "a@b.com"), ("1_email", "c@d.com"), ("0", r#"["$K1"]"#)][..],
        &[("_1_email", "a@b.com"), ("_2_email", "c@d.com"), ("0", r#"["$K1","$K2"]"#)],
        &[("email", "a@b.com"), ("_1_email", "c@d.com"), ("S0", r#"["$K1"]"#)],
        &[("email", "a@b.com"), ("_2_email", "c@d.com"), (" 0e7", "\u{feff}[\"$K2\"]")],
        &[("email", "a@b.com"), ("_1_email", "c@d.com"), ("0\"; filename=\"", r#"["$K1"]"#)],
    ] {
        assert_eq!(read_parts(parts), ("a@b.com c@d.com".to_owned(), None), "{parts:?}");
    }
    let with_decoy = [("email", "a@b.com"), ("_1_email", "c@d.com"), ("0", r#"["$K1"]"#)];
    assert_eq!(read_parts(&with_decoy), ("a@b.com c@d.com".to_owned(), None));
}

#[test]
fn a_form_that_the_client_of_react_never_writes_is_reported() {
    let many = format!("[{}\"$K1\"]", "1,".repeat(40));
    let deep = format!("[\"c@d.com\",{}]", deep_list());
    let deep_in_object = format!("[{{\"x\":{}}},{{\"email\":\"c@d.com\"}}]", deep_list());
    let long = format!("[\"c@d.com\",{}]", "9".repeat(400));
    let in_gbk = "0\"\r\nContent-Type: text/plain; charset=gbk\r\nX: \"";
    let encoded = "0\"\r\nContent-Transfer-Encoding: base64\r\nX: \"";
    for parts in [
        &[("_x_email", "c@d.com"), ("0", r#"["$Kx"]"#)][..],
        &[("_x_email", "c@d.com"), ("0", r#"["\u0024Kx"]"#)],
        &[("_01_email", "c@d.com"), ("0", r#"["$K01"]"#)],
        &[("__email", "c@d.com"), ("0", r#"["$K"]"#)],
        &[("_2_email", "c@d.com"), ("0", r#"["$K1"]"#)],
        &[("_1_email", "c@d.com"), ("0", r#"[["$K1"]]"#)],
        &[("_1_email", "c@d.com"), ("0", r#"["$1"]"#), ("1", r#""$K1""#)],
        &[("_2_email", "c@d.com"), ("0", r#"["$@1"]"#), ("1", r#""$K2""#)],
        &[("_2_email", "c@d.com"), ("0", r#"["$@1"]"#)],
        &[("_1_email", "c@d.com"), ("0", r#"{"length":1,"0":"$K1"}"#)],
        &[("_1_email", "c@d.com"), ("0", r#""$1""#)],
        &[("_1_email", "c@d.com"), ("00", r#"["$Kx"]"#)],
        &[("_2_email", "c@d.com"), ("0x0", r#"["$K2"]"#), ("0", r#"["$K1"]"#)],
        &[("_1_email", "c@d.com"), ("0", &many)],
        &[("_1_email", "c@d.com"), ("S 0x0", r#"["$K1"]"#), ("0", r#"["$K1"]"#)],
        &[("_2_email", "c@d.com"), (" ", r#"["$K2"]"#), ("0", r#"["$K1"]"#)],
        &[("_2_email", "c@d.com"), ("9e-999", r#"["$K2"]"#), ("0", r#"["$K1"]"#)],
        &[("$ACTION_1:1", r#"["$2:k"]"#), ("$ACTION_1:2", r#"{"k":"c@d.com"}"#)],
        &[("_1_email", "c@d.com"), ("0", r#"["$B1"]"#), ("1", "c@d.com")],
        &[("0.0", r#"["c@d.com"]"#), ("0", "[]")],
        &[("00", r#"{"length":1,"0":"c@d.com"}"#), ("0", "[]")],
        // An address without a name.
        &[("0", r#"["c@d.com"]"#)],
        &[("0", r#"["$@1"]"#), ("1", r#""c@d.com""#)],
        &[("0", r#"["c@d.com",1e999]"#)],
        &[("0", &long)],
        &[("0", &deep)],
        &[("0", &deep_in_object)],
        &[("0", "\u{feff}[\"c@d.com\"]")],
        &[("0", "[\"c@d.com\"]"), ("00", "[1e999]")],
        &[("0", r#"{"length":1,"0":"c@d.com"}"#)],
        &[("$ACTION_REF_1", ""), ("$ACTION_1:1", r#"["c@d.com",1e999]"#)],
        &[("$ACTION_REF_1", ""), ("$ACTION_1:1", &deep)],
        // An address without its blanks, or up to a NUL.
        &[("0", r#"["c @d.com"]"#)],
        &[("0", r#"["c@ d.com"]"#)],
        &[("0", r#"["c@d.com, x@y.com"]"#)],
        &[("0", r#"["c@d.com\u0000 x y z"]"#)],
        // Some servers decode it.
        &[(encoded, "WyJjQGQuY29tIl0=")],
        &[(in_gbk, "[\"\u{4e2d}\\\",\"c@d.com\"]")],
        // An object before the form, which an action may read in place of the form.
        &[("_1_email", "a@b.com"), ("0", r#"[{"email":"c@d.com"},"$K1"]"#)],
        &[("$ACTION_REF_1", ""), ("$ACTION_1:1", r#"[{"email":"c@d.com"}]"#)],
        &[("$ACTION_REF_1", ""), ("$ACTION_1:1", r#"["c@d.com"]"#)],
        &[("$ACTION_1:_2_email", "c@d.com"), ("$ACTION_1:1", r#"["$K2"]"#)],
    ] {
        let with_other = [parts, &[("email", "a@b.com")][..]].concat();
        let (values, unread) = read_parts(&with_other);
        assert!(values.contains("a@b.com"), "{parts:?}: {values}");
        assert_eq!(unread, Some(UnreadCause::Broken), "{parts:?}");
    }
}

#[test]
fn an_action_that_a_client_sends_in_another_type_is_reported() {
    for body in [
        "email=a@b.com&_1_email=c@d.com&0=%5B%22%24K1%22%5D",
        "email=a@b.com&%5f1%5femail=c@d.com&%30=[\"$K1\"]",
        "email=a@b.com&1_email=c@d.com&=[\"\\u0024K1\"]",
        "email=a@b.com&0=[\"c@d.com\"]",
        "email=a@b.com&0=[{\"email\":\"c@d.com\"}]",
    ] {
        let found = read(URLENCODED, body.as_bytes()).unwrap();
        assert_eq!(found.unread, Some(UnreadCause::Broken), "{body}");
    }
    for body in [
        "email=a@b.com&0=[\"A@b.com\",1e999]",
        "email=a@b.com&0=[\"me@x.com\"](x)",
        "email=a@b.com&0=[\"$5\"]&1=x",
        "email=a@b.com&confirm_email=c@d.com&0=[1]",
        "email=a@b.com&0=%5B%22%24K1%22%5D",
    ] {
        assert_values(URLENCODED, body, &["a@b.com"]);
    }
    for body in [
        r#"["c@d.com",{"email":"a@b.com"}]"#,
        r#"["$0:1:k",{"k":"c@d.com","email":"a@b.com"}]"#,
        r#"["Joe <c@d.com>",{"email":"a@b.com"}]"#,
        r#"{"length":1,"0":"c@d.com","email":"a@b.com"}"#,
        r#"{"l\u0065ngth":1,"0":"$0:k","k":"c@d.com","email":"a@b.com"}"#,
        r#"["c@d.com",{"email":"a@b.com"},1e999]"#,
        "\u{feff}[\"c@d.com\",{\"email\":\"a@b.com\"}]",
        r#"["c@ d.com",{"email":"a@b.com"}]"#,
        "[{\"email\":\"a@b.com\"},\"\u{e9} c@d.com\"]",
        "[{\"email\":\"a@b.com\"},\"c@d.com # \u{540d}\"]",
        &format!(r#"["c@d.com",{{"email":"a@b.com"}},{}]"#, deep_list()),
    ] {
        for content_type in ["text/plain;charset=UTF-8", JSON] {
            let found = read(content_type, body.as_bytes()).unwrap();
            assert_eq!(found.unread, Some(UnreadCause::Broken), "{body}");
        }
    }
    for content_type in ["text/plain;charset=UTF-8", JSON] {
        let body = b"[\"c@d.com\",{\"email\":\"a@b.com\"},\"\xff\"]";
        assert_eq!(read(content_type, body).unwrap().unread, Some(UnreadCause::Broken));
    }
    for body in [
        r#"{"email":"a@b.com","length":12}"#,
        r#"{"email":"a@b.com","length":12,"contact":"c@d.com","01":"c@d.com"}"#,
        r#"{"length":1,"0":"A@b.com","email":"a@b.com"}"#,
        r#"["a@b.com",{"email":"a@b.com"},1e999]"#,
        r#"["Please use c@d.com",{"email":"a@b.com"}]"#,
        r#"["<p>Welcome a@b.com</p>","Jane Doe <a@b.com>","logo@2x.png","@jane.doe",{"email":"a@b.com"}]"#,
        "[\"\u{6b22}\u{8fce} a@b.com\",\"\u{1f600}a@b.com\",{\"email\":\"a@b.com\"}]",
        r#"["$undefined","x",{"email":"a@b.com"}]"#,
        r#"[{"email":"a@b.com","price":"$19.99","note":"$0.5 off","path":"$.a"},"hello@there"]"#,
    ] {
        assert_values("text/plain", body, &["a@b.com"]);
        assert_values(JSON, body, &["a@b.com"]);
    }
}

#[test]
fn an_urlencoded_action_that_only_the_parser_of_javascript_reads_is_reported() {
    for arguments in [
        &b"[\"c@d.com\",1e999]"[..],
        b"[\"c@d.com\",\"\xff\"]",
        b"%5B%22c@d.com%22,%22%FF%22%5D",
        b"[{\"email\":\"c\xff@d.com\"}]",
        b"%ef%bb%bf[\"c@d.com\"]",
        b"[{\"k\":\"c@d.com\"},\"$0:0:k\"]",
        b"[\"$1\"]&1=\"c@d.com\"",
        b"[\"$B1\"]&1=c@d.com",
        format!("[\"c@d.com\",{}]", deep_list()).as_bytes(),
    ] {
        let body = [&b"email=a@b.com&0="[..], arguments].concat();
        let found = read(URLENCODED, &body).unwrap();
        let text = String::from_utf8_lossy(&body);
        assert_eq!(found.unread, Some(UnreadCause::Broken), "{text}");
    }
    let body = "email=a@b.com&0=[\"\u{4e2d}\\\",\"c@d.com\"]";
    let found = read(&format!("{URLENCODED}; charset=gbk"), body.as_bytes()).unwrap();
    assert_eq!(found.unread, Some(UnreadCause::Broken));
}

#[test]
fn a_body_of_long_names_is_read_in_linear_time() {
    let members = r#""b.":1,"#.repeat(4_000);
    let many_indexes = "1.".repeat(120);
    let body = format!(
        r#"{{"{many_indexes}":{{"2{many_indexes}":{{{members}"email":"c@d.com"}}}},"email":"a@b.com"}}"#
    );
    assert_values(JSON, body, &["a@b.com"]);
    for outer in ["a".repeat(20_000), "a.".repeat(10_000), "1".repeat(20_000), "é".repeat(10_000)]
    {
        let body = format!(r#"{{"{outer}":{{{members}"email":"c@d.com"}},"email":"a@b.com"}}"#);
        assert_values(JSON, body, &["a@b.com"]);
    }
}
