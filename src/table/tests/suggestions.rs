//! The providers that riskgate suggests for mistyped names.

use super::support::{BUNDLED_TABLE, NOW, describe_answer, load_lists, look_up};
use crate::model::domain::Domain;
use crate::model::verdict::Reason;
use crate::table::Table;

fn suggest(table: &Table, name: &str) -> Option<String> {
    let domain = Domain::parse(name).unwrap();
    table.lookup(&domain, NOW).suggest_provider(&domain).map(str::to_owned)
}

/// Typed names and what was meant, `-` for a real name, and their sources in its first lines.
fn typed_names() -> Vec<(String, String)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/typed-names.tsv");
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| line.split_once('\t').unwrap());
    pairs.map(|(typed, meant)| (typed.to_owned(), meant.to_owned())).collect()
}

#[test]
fn typing_errors_suggest_what_was_meant_and_real_names_nothing() {
    let names = typed_names();
    assert!(names.len() > 200);
    let found = |typed: &str| suggest(&BUNDLED_TABLE, typed).unwrap_or_else(|| "-".to_owned());
    let wrong: Vec<_> = names.iter().filter(|(typed, meant)| found(typed) != *meant).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_squatted_name_that_is_refused_gets_its_suggestion() {
    for (name, provider) in [
        ("gamil.com", "gmail.com"),
        ("gmai.com", "gmail.com"),
        ("gmil.com", "gmail.com"),
        ("gnail.com", "gmail.com"),
        ("hotmil.com", "hotmail.com"),
        ("oulook.com", "outlook.com"),
    ] {
        assert_eq!(look_up(&BUNDLED_TABLE, name).verdict.reason, Reason::Disposable, "{name}");
        assert_eq!(suggest(&BUNDLED_TABLE, name).as_deref(), Some(provider), "{name}");
    }
    for name in ["yopmail.com", "mailinator.com", "guerrillamail.com", "gmial.xyz", "2mail.com"] {
        assert_eq!(suggest(&BUNDLED_TABLE, name), None, "{name}");
    }
}

#[test]
fn each_kind_of_slip_leads_to_the_provider() {
    for (name, provider) in [
        ("gmial.com", "gmail.com"),
        ("gmail.con", "gmail.com"),
        ("gmail.cm", "gmail.com"),
        ("yahoo.c", "yahoo.com"),
        ("gmial.co", "gmail.com"),
        ("gmailc.om", "gmail.com"),
        ("gmail.fr", "gmail.com"),
        ("gmail.com.br", "gmail.com"),
        ("gmail.co.uk", "gmail.com"),
        ("icould.com", "icloud.com"),
        ("grnail.com", "gmail.com"),
        ("hotnali.com", "hotmail.com"),
        ("hotmail.ft", "hotmail.fr"),
        ("outlok.fr", "outlook.fr"),
        ("live.ft", "live.fr"),
        ("aol.con", "aol.com"),
        ("yahoo.uk", "yahoo.co.uk"),
        ("yahoo.con.br", "yahoo.com.br"),
        ("laposte.ner", "laposte.net"),
        ("comcastt.net", "comcast.net"),
        ("gmail.com.com", "gmail.com"),
        ("yahoo.co.uk.uk", "yahoo.co.uk"),
        ("yahoo.co.uk.co.uk", "yahoo.co.uk"),
        ("qq.con", "qq.com"),
        ("qq.cim", "qq.com"),
        ("qq.c", "qq.com"),
        ("seznam.c", "seznam.cz"),
        ("seznma.c", "seznam.cz"),
        ("bluewin.c", "bluewin.ch"),
        ("sympatico.c", "sympatico.ca"),
        ("rogers.c", "rogers.com"),
        ("sbcglobal.com", "sbcglobal.net"),
        ("btinternet.co.uk", "btinternet.com"),
        // The end of one of the largest providers twice, without a dot between.
        ("gmailcom.com", "gmail.com"),
        ("hotmailcom.com", "hotmail.com"),
    ] {
        assert_eq!(suggest(&BUNDLED_TABLE, name).as_deref(), Some(provider), "{name}");
    }
}

#[test]
fn a_slip_in_the_end_leads_to_a_provider_of_the_same_country() {
    for (name, provider) in [
        // A provider of the same country, with `com` or `co` before the country.
        ("yahoo.com.fr", "yahoo.fr"),
        ("yahoo.com.de", "yahoo.de"),
        ("yahoo.com.es", "yahoo.es"),
        ("yahoo.com.it", "yahoo.it"),
        ("yahoo.com.in", "yahoo.co.in"),
        ("yahoo.com.uk", "yahoo.co.uk"),
        ("yahoo.co.br", "yahoo.com.br"),
        ("yahoo.co.fr", "yahoo.fr"),
        ("hotmail.com.fr", "hotmail.fr"),
        ("hotmail.com.it", "hotmail.it"),
        ("live.com.uk", "live.co.uk"),
        ("gmail.com.uk", "gmail.com"),
        // A country that does not exist, near one provider of the label.
        ("yahoo.com.v", "yahoo.com.vn"),
        ("yahoo.co.ul", "yahoo.co.uk"),
        ("hotmail.com.rb", "hotmail.com.br"),
        ("yahoo.co.jpp", "yahoo.co.jp"),
        // Providers in China, Korea, Turkey and Vietnam.
        ("163.con", "163.com"),
        ("126.cmo", "126.com"),
        ("163.co", "163.com"),
        ("foxmail.con", "foxmail.com"),
        ("sina.cmo", "sina.com"),
        ("sohu.con", "sohu.com"),
        ("nate.con", "nate.com"),
        ("kakao.con", "kakao.com"),
        ("mynet.cmo", "mynet.com"),
        ("yahoo.con.vn", "yahoo.com.vn"),
        ("hotmail.con.tr", "hotmail.com.tr"),
        ("hotmail.com.t", "hotmail.com.tr"),
    ] {
        assert_eq!(suggest(&BUNDLED_TABLE, name).as_deref(), Some(provider), "{name}");
    }
}

#[test]
fn real_names_near_a_provider_get_no_suggestion() {
    for name in [
        "atinternet.com",
        "yandex.eu",
        "cloud.com",
        "pcloud.com",
        "fmail.com",
        "kmail.com",
        "hotmail.hu",
        "outlok.co.uk",
        "outlook.nl",
        "email.c",
        "t-online.c",
        "t-online.com",
        "bellsouth.com",
        "charter.com",
        "gmail.hu",
        "sfr.re",
        "orange.cm",
        "comcast.com",
        "www.gmail.com",
        "x.gmial.com",
        "hotmail.kg",
        "love.fr",
        "dive.com",
        "co.uk",
        "example.com.com",
        "gmail.com.mail.com",
        "gmail.com.example.com",
        // The country of a compound suffix is meant, or may be one of several.
        "yahoo.com.pl",
        "hotmail.com.pt",
        "yahoo.co.un",
        "yahoo.co.i",
        "yahoo.com.t",
        "skycom.com",
        "qq.co",
        "1633.com",
        "me.co",
        "aq.com",
    ] {
        assert_eq!(suggest(&BUNDLED_TABLE, name), None, "{name}");
    }
}

#[test]
fn no_row_that_names_a_real_domain_gets_a_suggestion() {
    for row in BUNDLED_TABLE.iter_rows().filter(|row| row.own_answer.verdict.reason.is_safe()) {
        if let Ok(domain) = Domain::parse(row.name) {
            let found = BUNDLED_TABLE.lookup(&domain, NOW);
            assert_eq!(found.suggest_provider(&domain), None, "{domain}");
        }
    }
}

#[test]
fn letters_of_other_scripts_suggest_the_provider_and_raise_the_score() {
    for (name, provider) in [
        ("gm\u{430}il.com", Some("gmail.com")),
        ("\u{43e}utlook.com", Some("outlook.com")),
        ("h\u{3bf}tmail.com", Some("hotmail.com")),
        ("\u{443}\u{430}\u{4bb}\u{43e}\u{43e}.com", Some("yahoo.com")),
        ("\u{261}mail.com", Some("gmail.com")),
        ("\u{262}mail.com", Some("gmail.com")),
        ("gmai\u{29f}.com", Some("gmail.com")),
        ("gm\u{e1}il.com", Some("gmail.com")),
        ("\u{43e}range.fr", Some("orange.fr")),
        ("p\u{430}ypal.com", None),
    ] {
        assert_eq!(describe_answer(&BUNDLED_TABLE, name), "undeliverable 75", "{name}");
        assert_eq!(suggest(&BUNDLED_TABLE, name).as_deref(), provider, "{name}");
        assert_eq!(look_up(&BUNDLED_TABLE, name).verdict.rule.as_str(), "look_alike");
    }
    // One letter that looks like no Latin one, in the name of a provider.
    for (name, provider) in
        [("g\u{43c}ail.com", "gmail.com"), ("\u{43e}utl\u{43e}\u{43e}\u{3ba}.com", "outlook.com")]
    {
        assert_eq!(describe_answer(&BUNDLED_TABLE, name), "undeliverable 75", "{name}");
        assert_eq!(suggest(&BUNDLED_TABLE, name).as_deref(), Some(provider), "{name}");
    }
    // A slip, and a letter of another script.
    assert_eq!(suggest(&BUNDLED_TABLE, "gm\u{430}il.con").as_deref(), Some("gmail.com"));
    for name in [
        "z\u{fc}rich.ch",
        "m\u{fc}ller.de",
        "\u{43f}\u{43e}\u{447}\u{442}\u{430}.\u{440}\u{444}",
        "\u{441}\u{43e}\u{441}\u{430}.com",
        "\u{4f8b}\u{3048}x.jp",
        "\u{442}\u{430}\u{43a}\u{441}\u{438}vip.com",
        "vip\u{43c}.com",
        "\u{43c}ail.com",
    ] {
        assert_eq!(describe_answer(&BUNDLED_TABLE, name), "safe 10", "{name}");
        assert_eq!(suggest(&BUNDLED_TABLE, name), None, "{name}");
    }
}

#[test]
fn a_row_decides_before_the_rule_for_look_alikes() {
    let name = Domain::parse("gm\u{430}il.com").unwrap();
    let table = load_lists(&[
        ("manifest.toml", "[rules]\ntypos_of = [\"gmail.com\"]\n"),
        ("free.txt", "gmail.com\n"),
        ("known.txt", &format!("{name}\n")),
        ("a.txt", "x.com\n"),
    ]);
    assert_eq!(describe_answer(&table, name.as_str()), "safe 10");
    assert_eq!(suggest(&table, name.as_str()), None);
}
