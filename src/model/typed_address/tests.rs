use super::*;

#[test]
fn an_address_in_which_some_software_reads_another_is_refused() {
    for text in [
        "\"x@yopmail.com a\"@gmail.com",
        "=?utf-8?q?x=40yopmail.com=3e=00?=@gmail.com",
        // Software that maps compatible characters reads an `@`.
        "x\u{ff20}yopmail.com\u{ff0c}y@gmail.com",
        "x\u{fe6b}yopmail.com@gmail.com",
    ] {
        let expected = Err(EmailError::OtherAddress);
        assert_eq!(TypedAddress::parse(text).map(|_| ()), expected, "{text}");
        assert_eq!(AddressOrDomain::parse(text).map(|_| ()), expected, "{text}");
    }
}

#[test]
fn the_domains_that_other_software_reads_are_known() {
    for (domain, by_idna_2003, as_ascii) in [
        ("gmail.com", None, &[][..]),
        ("stra\u{df}e.de", Some("strasse.de"), &["strae.de"]),
        ("b\u{fc}cher.de", None, &["bcher.de"]),
        ("ma\u{130}lbox.test", None, &["mailbox.test", "malbox.test"]),
        ("mailbox\u{131}.test", None, &["mailboxi.test", "mailbox.test"]),
        ("\u{4f8b}\u{5b50}.example", None, &[]),
    ] {
        let typed = TypedAddress::parse(&format!("a@{domain} ")).unwrap();
        let readings = typed.other_readings;
        assert_eq!(readings.by_idna_2003.as_ref().map(Domain::as_str), by_idna_2003);
        let found: Vec<&str> = readings.as_ascii.iter().map(Domain::as_str).collect();
        assert_eq!(found, as_ascii);
    }
}

#[test]
fn the_address_that_a_sanitizer_leaves_is_known() {
    for (text, sanitized) in [
        ("o'brien+x_y-z.{1}@gmail.com", None),
        ("m/allory+0@gmail.com", Some("mallory+0@gmail.com")),
        ("mall\u{e9}ory+5@gmail.com", Some("mallory+5@gmail.com")),
        ("\"janedoe+a b\"@gmail.com", Some("janedoe+ab@gmail.com")),
        ("\"jane\\.doe\"@gmail.com", Some("jane.doe@gmail.com")),
        ("mallory+7@gmail\u{e9}.com", Some("mallory+7@gmail.com")),
        ("\u{e9}@gmail.com", None),
    ] {
        let readings = TypedAddress::parse(text).unwrap().other_readings;
        let expected = sanitized.map(|text| EmailAddress::parse(text).unwrap());
        assert_eq!(readings.sanitized, expected, "{text}");
    }
}

#[test]
fn invisible_characters_do_not_count() {
    for text in [
        "in\u{200b}fo@gmail.com",
        "info@gmail.com\u{200e}",
        "\u{feff}info\u{ad}@g\u{2060}ma\u{200d}il.com",
    ] {
        let checked = AddressOrDomain::parse(text).unwrap();
        assert!(checked.is_role() && checked.domain().as_str() == "gmail.com", "{text:?}");
    }
    for invisible in [
        '\u{115f}',
        '\u{1160}',
        '\u{17b4}',
        '\u{180b}',
        '\u{180f}',
        '\u{2065}',
        '\u{2800}',
        '\u{3164}',
        '\u{ffa0}',
        '\u{fff0}',
        '\u{1bca0}',
        '\u{1d173}',
        '\u{e0041}',
        '\u{e0100}',
    ] {
        let seen = TypedAddress::parse("info@gmail.com").unwrap();
        let text = format!("{invisible}in{invisible}fo@gma{invisible}il.com{invisible}");
        assert_eq!(TypedAddress::parse(&text), Ok(seen), "{invisible:?}");
    }
    let joined =
        AddressOrDomain::parse("j\u{200d}ane@\u{915}\u{94d}\u{200d}\u{937}.example").unwrap();
    assert!(joined.masked().starts_with("j****@xn--"), "{}", joined.masked());
    assert_eq!(AddressOrDomain::parse("gmail.com\u{200f}").unwrap().masked(), "gmail.com");
}
