use super::*;

fn parse_segment(text: &str) -> Result<String, DomainError> {
    Domain::from_path_segment(text.as_bytes()).map(|d| d.as_str().to_owned())
}

#[test]
fn each_spelling_of_a_domain_has_one_canonical_form() {
    for (text, canonical) in [
        ("yopmail.com", "yopmail.com"),
        ("YOPMAIL.Com", "yopmail.com"),
        ("yopmail.com.", "yopmail.com"),
        ("b%C3%BCcher.de", "xn--bcher-kva.de"),
        ("b\u{fc}cher.de", "xn--bcher-kva.de"),
        ("xn--bcher-kva.de", "xn--bcher-kva.de"),
        ("XN--BCHER-KVA.DE", "xn--bcher-kva.de"),
        ("stra%C3%9Fe.de", "xn--strae-oqa.de"),
        ("a%2Db.com", "a-b.com"),
        ("ma%C2%ADil.com", "mail.com"),
        ("%E3%81%82%E3%80%82jp", "xn--l8j.jp"),
        ("ab--cd.com", "ab--cd.com"),
        ("1.com", "1.com"),
        ("a.b.c.d.example.co.uk", "a.b.c.d.example.co.uk"),
    ] {
        assert_eq!(parse_segment(text).as_deref(), Ok(canonical), "{text}");
    }
}

#[test]
fn each_invalid_domain_is_rejected_with_its_error() {
    use DomainError::*;
    let long_label = format!("{}.com", "a".repeat(64));
    let long_name = format!("{}com", "abcdefg.".repeat(32));
    for (text, error) in [
        ("", LabelLength),
        (".", LabelLength),
        ("com", SingleLabel),
        ("com.", SingleLabel),
        ("a..com", LabelLength),
        (".a.com", LabelLength),
        ("a.com..", LabelLength),
        ("-a.com", InvalidLabel),
        ("a-.com", InvalidLabel),
        ("a_b.com", ForbiddenCharacter),
        ("a b.com", ForbiddenCharacter),
        ("a%20b.com", ForbiddenCharacter),
        ("a%00b.com", ForbiddenCharacter),
        ("a%0Ab.com", ForbiddenCharacter),
        ("user@example.com", ForbiddenCharacter),
        ("a%2Fb.com", ForbiddenCharacter),
        ("a.com:25", ForbiddenCharacter),
        ("a%2", PercentEncoding),
        ("a%zz.com", PercentEncoding),
        ("%25.com", InvalidLabel),
        ("%FF.com", Utf8),
        ("1.2.3.4", NumericLastLabel),
        ("a.123", NumericLastLabel),
        ("127.0.0.0x1", NumericLastLabel),
        ("a*.com", InvalidLabel),
        ("xn--a.com", InvalidLabel),
        ("\u{ff20}a.com", InvalidLabel),
        (long_label.as_str(), LabelLength),
        (long_name.as_str(), NameLength),
    ] {
        assert_eq!(parse_segment(text), Err(error), "{text:?}");
    }
}

#[test]
fn the_suffix_list_version_matches_cargo_lock() {
    let lock = include_str!("../../../Cargo.lock").replace("\r\n", "\n");
    let version = suffix_list_version().strip_prefix("psl ").unwrap();
    assert!(lock.contains(&format!("name = \"psl\"\nversion = \"{version}\"\n")));
}

#[test]
fn public_suffixes_and_registrable_parts_are_found() {
    let parts = |text: &str| {
        let domain = Domain::parse(text).unwrap();
        let start = domain.registrable_start();
        (start.map(|s| domain.as_str()[s..].to_owned()), domain.public_suffix_start().1)
    };
    assert_eq!(parts("a.b.example.co.uk"), (Some("example.co.uk".into()), SuffixKind::Icann));
    assert_eq!(parts("co.uk"), (None, SuffixKind::Icann));
    assert_eq!(parts("foo.pp.ua"), (Some("foo.pp.ua".into()), SuffixKind::Private));
    assert_eq!(parts("pp.ua"), (None, SuffixKind::Private));
    assert_eq!(parts("example.nosuchtld"), (Some("example.nosuchtld".into()), SuffixKind::Icann));
    // A suffix that the list spells in Unicode is known by its A-label.
    assert_eq!(parts("a.xn--55qx5d.cn"), (Some("a.xn--55qx5d.cn".into()), SuffixKind::Icann));
    assert_eq!(DnsName::parse("com.ar").unwrap().kind_if_public_suffix(), Some(SuffixKind::Icann));
    assert_eq!(DnsName::parse("gmail.com").unwrap().kind_if_public_suffix(), None);
}

#[test]
fn each_parent_begins_behind_a_dot() {
    assert_eq!(self_and_parent_offsets("a.bc.d").collect::<Vec<_>>(), [0, 2, 5]);
}

proptest::proptest! {
    #[test]
    fn canonicalising_twice_changes_nothing(text in "[a-zA-Z0-9\u{e4}\u{df}.-]{1,40}") {
        if let Ok(domain) = Domain::parse(&text) {
            let again = Domain::parse(domain.as_str());
            proptest::prop_assert_eq!(again, Ok(domain));
        }
    }
}
