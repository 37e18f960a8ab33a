//! Slips of the finger behind the `@`.

use super::support::{BUNDLED_TABLE, NOW};

fn suggest(text: &str) -> Option<String> {
    BUNDLED_TABLE.suggest_provider_for_slip(text, NOW)
}

#[test]
fn a_slip_suggests_the_provider_that_was_meant() {
    for (text, provider) in [
        ("gmail,com", "gmail.com"),
        ("gmail..com", "gmail.com"),
        ("gmailcom", "gmail.com"),
        ("gmail", "gmail.com"),
        ("hotmail", "hotmail.com"),
        ("protonmail", "protonmail.com"),
        ("gmail com", "gmail.com"),
        ("gmail .com", "gmail.com"),
        ("gmail.com,", "gmail.com"),
        ("gmail.com.", "gmail.com"),
        (".gmail.com", "gmail.com"),
        ("@gmail.com", "gmail.com"),
        ("@gmail,com", "gmail.com"),
        ("GMAIL;COM", "gmail.com"),
        ("gmial,com", "gmail.com"),
        ("yahoocouk", "yahoo.co.uk"),
        ("yahoo,co,uk", "yahoo.co.uk"),
        ("aolcom", "aol.com"),
        ("gmx,de", "gmx.de"),
        ("outlook。com", "outlook.com"),
        ("gmail.com>", "gmail.com"),
        ("<gmail.com>", "gmail.com"),
        ("gmial.com\"", "gmail.com"),
        ("gmailcon", "gmail.com"),
        ("yahoocmo", "yahoo.com"),
        ("hotmailco", "hotmail.com"),
        ("qqcom", "qq.com"),
        ("gmail_com", "gmail.com"),
        ("gmail-com", "gmail.com"),
        ("web-de", "web.de"),
        ("t-online-de", "t-online.de"),
        ("gmial", "gmail.com"),
        ("gmaill", "gmail.com"),
        ("yaho", "yahoo.com"),
        ("outlok", "outlook.com"),
    ] {
        assert_eq!(suggest(text).as_deref(), Some(provider), "{text}");
    }
}

#[test]
fn a_domain_without_a_slip_and_an_unknown_one_suggest_nothing() {
    for text in [
        "",
        "@",
        "gmail.com",
        "example.com",
        "example,com",
        "examplecom",
        "a@gmail.com",
        "com",
        "@example.com",
        "yopmail,com",
        "mail",
        "email",
        "inbox",
        "online",
        "planet",
        "alice",
        "mailinatorcom",
        "x.gmail,com",
        "example.com>",
        "gmail.com> x",
        "gmal",
        "gail",
        "cloud",
        "fmail",
        "hotel",
        "outlooks",
        "gmailing",
        "hot-mail",
        "example-com",
        "yahooligan",
        "livecon",
        "qq",
    ] {
        assert_eq!(suggest(text), None, "{text}");
    }
    // What is suggested is never the text itself.
    assert_eq!(suggest("\u{ff47}mailcom").as_deref(), Some("gmail.com"));
    assert_eq!(suggest(&"gmail,com".repeat(20)), None);
}
