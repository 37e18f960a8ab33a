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
        &[("1", "GIF89a"), ("0", r#"[{"email":"a@b.com","photo":"$B1"}]"#)],
        // Without a script.
        &[("$ACTION_ID_7f", ""), ("email", "a@b.com"), ("confirm_email", "c@d.com")],
        &[
            ("$ACTION_REF_1", ""),
            ("$ACTION_1:0", r#"{"id":"7f","bound":"$@1"}"#),
            ("$ACTION_1:1", r#"[{"email":"a@b.com"}]"#),
            ("$ACTION_KEY", "k1"),
            ("email", "a@b.com"),
        ],
        // No form of an action.
        &[("0", "x"), ("1", "[]"), ("email", "a@b.com"), ("confirm_email", "c@d.com")],
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
    ] {
        assert_eq!(read_parts(parts), ("a@b.com c@d.com".to_owned(), None), "{parts:?}");
    }
    let with_decoy = [("email", "a@b.com"), ("_1_email", "c@d.com"), ("0", r#"["$K1"]"#)];
    assert_eq!(read_parts(&with_decoy), ("a@b.com c@d.com".to_owned(), None));
}

#[test]
fn a_form_that_the_client_of_react_never_writes_is_reported() {
    let many = format!("[{}\"$K1\"]", "1,".repeat(40));
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
        &[("_2_email", "c@d.com"), (" 0e7", "\u{feff}[\"$K2\"]")],
        &[("_1_email", "c@d.com"), ("0", &many)],
        // An address without a name.
        &[("0", r#"["c@d.com"]"#)],
        &[("0", r#"["$@1"]"#), ("1", r#""c@d.com""#)],
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
