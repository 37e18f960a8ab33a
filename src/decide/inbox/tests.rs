use proptest::prelude::*;

use super::*;

fn inbox(text: &str) -> CanonicalInbox {
    let rules = InboxRules::built_in().unwrap_or_else(|fault| panic!("{fault}"));
    rules.canonical_inbox(&EmailAddress::parse(text).unwrap_or_else(|_| panic!("{text}")))
}

#[test]
fn addresses_of_one_mailbox_have_one_inbox() {
    for (inbox_text, addresses) in [
        (
            "janedoe@gmail.com",
            &[
                "jane.doe@gmail.com",
                "JaneDoe+shop@googlemail.com",
                "j.a.n.e.d.o.e.+x@gmail.com",
                "\"jane.doe\"@gmail.com",
                "\"j\\ane\\.doe\"@gmail.com",
            ][..],
        ),
        ("\"jane \\\"d\"@gmail.com", &["\"J\\ane\\ \\\"d\"@gmail.com"]),
        // A tag between quotes is a tag.
        ("janedoe@gmail.com", &["\"jane.doe+a b\"@gmail.com", "\"jane..doe\"@googlemail.com"]),
        ("\"jane doe\"@gmail.com", &["\"j.ane doe+a b\"@googlemail.com"]),
        ("\"jane+a b\"@example.com", &["\"Jane+a b\"@example.com"]),
        ("base-@yahoo.com", &["\"base-a b\"@yahoo.com"]),
        ("jane@mailbox.org", &["jane+x@secure.mailbox.org"]),
        ("jane.doe@outlook.com", &["Jane.Doe+a+b@outlook.com"]),
        ("jane-doe@yandex.ru", &["jane.doe+x@ya.ru", "jane-doe@yandex.com"]),
        ("janedoe@proton.me", &["jane_doe+x@pm.me", "jane-doe@protonmail.com"]),
        ("jane@icloud.com", &["jane@me.com", "jane+x@mac.com"]),
        ("jane@fastmail.com", &["anything@jane.fastmail.com", "jane+x@fastmail.com"]),
        ("jane@33mail.com", &["shop@jane.33mail.com", "x@jane.33mail.com"]),
        ("jane-doe@yandex.com.tr", &["jane.doe+x@yandex.com.tr"]),
        ("jane@zohomail.eu", &["jane+x@zohomail.eu"]),
        ("base-@yahoo.com", &["base-shop@yahoo.com", "base-a-b@yahoo.com"]),
    ] {
        for address in addresses {
            assert_eq!(inbox(address).as_str(), inbox_text, "{address}");
        }
    }
}

#[test]
fn mailboxes_that_may_be_of_two_people_stay_apart() {
    for (one, other) in [
        ("jane.doe@outlook.com", "janedoe@outlook.com"),
        ("jane@outlook.com", "jane@hotmail.com"),
        ("jane@fastmail.com", "jane@fastmail.fm"),
        ("jane@yandex.com.tr", "jane@yandex.ru"),
        ("x@jane.33mail.com", "x@john.33mail.com"),
        ("jane.doe@example.com", "janedoe@example.com"),
        ("jane+x@example.com", "jane@example.com"),
        ("base-shop@yahoo.com", "base@yahoo.com"),
        ("jane+x@tuta.com", "jane@tuta.com"),
        ("jane+x@gmx.de", "jane@gmx.de"),
        ("jane@a.b.fastmail.com", "jane@b.fastmail.com"),
        ("+x@gmail.com", "+y@gmail.com"),
        ("\"jane doe\"@gmail.com", "janedoe@gmail.com"),
    ] {
        assert_ne!(inbox(one), inbox(other), "{one} {other}");
    }
}

#[test]
fn the_case_of_ascii_letters_never_counts() {
    assert_eq!(inbox("JANE+X@Example.COM").as_str(), "jane+x@example.com");
}

#[test]
fn a_faulty_list_names_its_line() {
    for (rows, expected) in [
        ("gmail.com,gmail.com,dots", "data/inbox-rules.csv:2: expected four fields"),
        ("gmail.com,gmail.com,dots,", "data/inbox-rules.csv:2: expected a source"),
        ("gmail.com,gmail.com,dot,s", "data/inbox-rules.csv:2: expected folds that riskgate knows"),
        (
            "a.com,a.com,dots,s\na.com,a.com,plus,s",
            "data/inbox-rules.csv:3: expected one rule for a domain",
        ),
        (
            "*.a.com,a.com,dots,s",
            "data/inbox-rules.csv:2: expected `*.` if and only if the fold is `subdomain`",
        ),
        (
            "*.a.com,a.com,plus subdomain,s",
            "data/inbox-rules.csv:2: expected no other fold beside `subdomain`",
        ),
        (
            "a.com,a.com,plus,s\nb.com,a.com,dots,s",
            "data/inbox-rules.csv: b.com: expected the same inbox domain and folds as those of \
             a.com",
        ),
    ] {
        let found = InboxRules::parse(&format!("{HEADER}\n{rows}\n")).map(drop);
        assert_eq!(found, Err(expected.to_owned()));
    }
}

/// A domain for each row, and a domain without a row.
fn listed_domains() -> Vec<String> {
    let rows = BUILT_IN_RULES_CSV.lines().filter(|line| !line.starts_with('#') && *line != HEADER);
    let names = rows.filter_map(|line| line.split(',').next());
    names.map(|name| name.replace('*', "a-b")).chain(["example.com".to_owned()]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn the_inbox_of_an_inbox_is_itself(
        local in "[a-zA-Z0-9+._-]{1,20}",
        domain in prop::sample::select(listed_domains()),
    ) {
        let text = format!("{local}@{domain}");
        prop_assume!(EmailAddress::parse(&text).is_ok());
        let once = inbox(&text);
        let parsed = EmailAddress::parse(once.as_str());
        prop_assert!(parsed.is_ok(), "{text} gave {}", once.as_str());
        let twice = inbox(once.as_str());
        prop_assert_eq!(twice.as_str(), once.as_str());
    }

    #[test]
    fn the_inbox_of_an_inbox_between_quotes_is_itself(
        local in "[a-c+._ \\-]{1,12}",
        domain in prop::sample::select(listed_domains()),
    ) {
        let once = inbox(&format!("\"{local}\"@{domain}"));
        let twice = inbox(once.as_str());
        prop_assert_eq!(twice.as_str(), once.as_str());
    }

    #[test]
    fn a_domain_without_a_rule_folds_nothing_but_case(local in "[a-z0-9+._-]{1,20}") {
        let text = format!("{local}@example.org");
        prop_assume!(EmailAddress::parse(&text).is_ok());
        let found = inbox(&text);
        prop_assert_eq!(found.as_str(), text);
    }
}
