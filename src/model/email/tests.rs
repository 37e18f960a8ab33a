use super::*;

#[test]
fn addresses_of_rfc_5321_and_rfc_6531_are_accepted() {
    for (text, domain) in [
        ("a@b.com", "b.com"),
        ("first.last+tag@Sub.Example.COM", "sub.example.com"),
        ("!#$%&'*+-/=?^_`{|}~@example.com", "example.com"),
        ("\"quoted @ string\"@example.com", "example.com"),
        (r#""a\"b\\c"@example.com"#, "example.com"),
        ("jörg@bücher.example", "xn--bcher-kva.example"),
        ("用户@例子.example", "xn--fsqu00a.example"),
        ("a@example.com.", "example.com"),
    ] {
        let parsed = EmailAddress::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(parsed.domain().as_str(), domain, "{text}");
    }
    let longest = format!("{}@example.com", "a".repeat(64));
    assert!(EmailAddress::parse(&longest).is_ok());
}

#[test]
fn other_texts_are_refused() {
    for (text, error) in [
        ("", EmailError::NoAt),
        ("example.com", EmailError::NoAt),
        ("@example.com", EmailError::LocalPart),
        (".a@example.com", EmailError::LocalPart),
        ("a.@example.com", EmailError::LocalPart),
        ("a..b@example.com", EmailError::LocalPart),
        ("a b@example.com", EmailError::LocalPart),
        (" a@example.com", EmailError::LocalPart),
        ("a@b@example.com", EmailError::LocalPart),
        ("\"a@example.com", EmailError::LocalPart),
        ("\"\"@example.com", EmailError::LocalPart),
        ("\"a\"b\"@example.com", EmailError::LocalPart),
        ("\"a\\\"@example.com", EmailError::LocalPart),
        ("\"a\u{7}\"@example.com", EmailError::LocalPart),
        ("<a@example.com", EmailError::LocalPart),
        ("a(comment)@example.com", EmailError::LocalPart),
        ("a\r\n@example.com", EmailError::LocalPart),
    ] {
        assert_eq!(EmailAddress::parse(text), Err(error), "{text:?}");
    }
    for text in ["a@", "a@b", "a@[192.0.2.1]", "a@192.0.2.1", "a@example.com ", "a@exa_mple.com"] {
        assert!(
            matches!(EmailAddress::parse(text), Err(EmailError::Domain(_))),
            "{text:?}: {:?}",
            EmailAddress::parse(text)
        );
    }
    let too_long = format!("{}@example.com", "a".repeat(65));
    assert_eq!(EmailAddress::parse(&too_long), Err(EmailError::LocalPart));
    let label = "b".repeat(60);
    let too_long = format!("{}@{label}.{label}.{label}.example", "a".repeat(64));
    assert_eq!(EmailAddress::parse(&too_long), Err(EmailError::Length));
}

#[test]
fn a_masked_address_shows_two_characters_at_each_end() {
    for (text, masked) in [
        ("a93jkde5@yopmail.com", "a9****e5@yopmail.com"),
        ("alice@example.com", "al****ce@example.com"),
        ("anna@example.com", "a****@example.com"),
        ("a@example.com", "a****@example.com"),
        ("jörgen@example.com", "jö****en@example.com"),
    ] {
        assert_eq!(EmailAddress::parse(text).unwrap().masked(), masked);
    }
}

#[test]
fn role_addresses_are_recognized_in_any_spelling() {
    for local_part in [
        "info",
        "INFO",
        "no-reply",
        "no_reply",
        "noreply",
        "do.not.reply",
        "info+news",
        "\"info\"",
        "ＩＮＦＯ",
        "ｎo-reply",
        "ｉｎｆｏ＋ｘ",
    ] {
        let text = format!("{local_part}@example.com");
        assert!(EmailAddress::parse(&text).unwrap().is_role(), "{text}");
    }
    for local_part in
        ["informer", "jane", "reply-to-jane", "a+info", "salesman", "h.r", "i_t", "d.n.s"]
    {
        let text = format!("{local_part}@example.com");
        assert!(!EmailAddress::parse(&text).unwrap().is_role(), "{text}");
    }
}
