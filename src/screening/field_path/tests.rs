use super::*;

#[test]
fn every_spelling_that_a_server_may_read_matches() {
    let email = FieldPath::parse("email").unwrap();
    for name in [
        "email",
        "Email",
        "ema\u{131}l",
        " email",
        "email ",
        "email[]",
        "email[0]",
        "email[a][b]",
        "email.x",
    ] {
        assert!(email.matches_form_name(name), "{name:?}");
    }
    assert!(email.may_have_other_text("email[label]") && email.may_have_other_text("email.x"));
    assert!(!email.may_have_other_text("email[]") && !email.may_have_other_text("email[0]"));
    for name in ["", "mail", "e-mail", "email2", "user[email]", "xemail"] {
        assert!(!email.matches_form_name(name), "{name:?}");
    }
    let nested = FieldPath::parse("user.email").unwrap();
    for name in [
        "user[email]",
        "user.email",
        "user_email",
        "user[email][]",
        "user email",
        "USER[EMAIL]",
        "user[0][email]",
    ] {
        assert!(nested.matches_form_name(name), "{name:?}");
    }
    for name in ["user", "email", "user[name]", "x[user][email]"] {
        assert!(!nested.matches_form_name(name), "{name:?}");
    }
}

#[test]
fn a_plain_name_matches_as_by_all_rules() {
    for path in ["email", "user.email", "user_email", "e-mail", "7", "a.b.c"] {
        let field = FieldPath::parse(path).unwrap();
        for name in ["email", "EMAIL", "user_email", "User_Email", "useremail", "e-mail"]
            .into_iter()
            .chain(["e_mail", "7", "07", "a_b_c", "a_b", "abc", "", "b", "email_", "email_x"])
        {
            // A blank before a name changes nothing, but such a name is not plain.
            let by_all_rules = field.matches_form_name(&format!(" {name}"));
            assert_eq!(field.matches_form_name(name), by_all_rules, "{path} {name}");
            let is_part = field.may_have_other_text(&format!(" {name}"));
            assert_eq!(field.may_have_other_text(name), is_part, "{path} {name}");
        }
    }
}

#[test]
fn no_spelling_is_missed_by_the_quick_test() {
    let pieces = [
        "email",
        "USER",
        "7",
        "_",
        ".",
        "[",
        "]",
        " ",
        "'",
        "!",
        "\0",
        "\u{17f}x",
        "EMA\u{130}L",
        ":",
        "top.",
        "",
    ];
    for path in ["email", "user.email", "user_email", "_email", "7", "7.email", "sx.user"] {
        let field = FieldPath::parse(path).unwrap();
        for number in 0..pieces.len().pow(4) {
            let piece = |place: u32| pieces[number / pieces.len().pow(place) % pieces.len()];
            let name = [0, 1, 2, 3].map(piece).concat();
            let is_missed = field.matches_by_all_rules(&name) && !field.may_match(&name);
            assert!(!is_missed, "{path}: {name:?}");
        }
    }
}

#[test]
fn a_path_has_names_between_its_dots() {
    for text in ["", ".", "a.", ".a", "a..b", "a[b]", "a b", "a/b"] {
        assert_eq!(FieldPath::parse(text), None, "{text:?}");
    }
}
