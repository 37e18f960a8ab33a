//! Which texts are domains, which row decides a verdict, and which names are never flagged.

use crate::harness::{Setup, shared_gateway};

/// Spellings of a domain, and its one canonical form.
const DOMAIN_SPELLINGS: [(&str, &str); 36] = [
    ("yopmail.com", "yopmail.com"),
    ("YOPMAIL.COM", "yopmail.com"),
    ("YopMail.Com", "yopmail.com"),
    ("yopmail.com.", "yopmail.com"),
    ("yopmail%2Ecom", "yopmail.com"),
    ("%79opmail.com", "yopmail.com"),
    ("%59OPMAIL.com", "yopmail.com"),
    ("yopmail.com%2E", "yopmail.com"),
    ("yopmail%E3%80%82com", "yopmail.com"),
    ("yopmail\u{ff0e}com", "yopmail.com"),
    ("\u{ff59}opmail.com", "yopmail.com"),
    ("yop%C2%ADmail.com", "yopmail.com"),
    ("b\u{fc}cher.de", "xn--bcher-kva.de"),
    ("B\u{dc}CHER.DE", "xn--bcher-kva.de"),
    ("b%C3%BCcher.de", "xn--bcher-kva.de"),
    ("bu\u{308}cher.de", "xn--bcher-kva.de"),
    ("xn--bcher-kva.de", "xn--bcher-kva.de"),
    ("XN--BCHER-KVA.de", "xn--bcher-kva.de"),
    ("stra\u{df}e.de", "xn--strae-oqa.de"),
    ("fa\u{df}.de", "xn--fa-hia.de"),
    ("\u{3bf}\u{3b4}\u{3cc}\u{3c2}.gr", "xn--pxavk3b.gr"),
    ("\u{4f8b}\u{3048}.\u{30c6}\u{30b9}\u{30c8}", "xn--r8jz45g.xn--zckzah"),
    ("\u{43f}\u{43e}\u{447}\u{442}\u{430}.\u{440}\u{444}", "xn--80a1acny.xn--p1ai"),
    ("\u{645}\u{62b}\u{627}\u{644}.\u{645}\u{635}\u{631}", "xn--mgbh0fb.xn--wgbh1c"),
    ("a.b", "a.b"),
    ("a.b.c.d.e.f.co.uk", "a.b.c.d.e.f.co.uk"),
    ("1.com", "1.com"),
    ("163.com", "163.com"),
    ("0-mail.com", "0-mail.com"),
    ("a--b.com", "a--b.com"),
    ("ab--cd.com", "ab--cd.com"),
    ("a-b-c.example-x.org", "a-b-c.example-x.org"),
    ("1.2.3.4.com", "1.2.3.4.com"),
    ("a.1b", "a.1b"),
    ("com.com", "com.com"),
    ("co.uk", "co.uk"),
];

const INVALID_DOMAINS: [&str; 45] = [
    "com",
    "com.",
    "localhost",
    "a..com",
    ".a.com",
    "a.com..",
    "%2Ea.com",
    "-a.com",
    "a-.com",
    "a.-com",
    "a.com-",
    "a_b.com",
    "_dmarc.a.com",
    "a%5Fb.com",
    "a%20b.com",
    "%20a.com",
    "a.com%20",
    "a%09b.com",
    "a%00b.com",
    "a%0Ab.com",
    "a%0D%0Ab.com",
    "a%7Fb.com",
    "user@example.com",
    "user%40example.com",
    "a%2Fb.com",
    "a.com%3A25",
    "a.com:25",
    "%",
    "a%2",
    "a%zz.com",
    "a%252Eb.com",
    "%FF.com",
    "%C3.com",
    "%ED%A0%80.com",
    "1.2.3.4",
    "127.0.0.1",
    "%5B::1%5D",
    "a.123",
    "a*b.com",
    "a+b.com",
    "a!b.com",
    "a%22b.com",
    "xn--a.com",
    "xn--0.com",
    "a\u{ff20}b.com",
];

#[test]
fn every_spelling_of_a_domain_has_the_same_canonical_form() {
    let (gateway, key) = shared_gateway();
    for (written, canonical) in DOMAIN_SPELLINGS {
        let answer = gateway.get_domain(written, key).expect(200);
        assert_eq!(answer.json()["domain"], canonical, "{written}");
    }
}

#[test]
fn a_text_that_is_no_domain_gets_a_422() {
    let (gateway, key) = shared_gateway();
    for written in INVALID_DOMAINS {
        let answer = gateway.get_domain(written, key);
        assert_eq!(answer.status, 422, "{written} {}", answer.text());
        assert!(answer.json()["detail"].is_string(), "{written}");
    }
}

#[test]
fn a_target_with_raw_bytes_that_are_not_utf8_gets_a_400() {
    let (gateway, key) = shared_gateway();
    let answer = gateway.get(b"/v1/public/domain/a\xff\xfe.com", key).expect(400);
    assert_eq!(answer.json()["error"], "bad_request");
    // Percent-encoding makes the text a valid request, but it is still no domain.
    gateway.get_domain("a%FF%FE.com", key).expect(422);
}

#[test]
fn names_and_labels_longer_than_the_dns_allows_get_a_422() {
    let (gateway, key) = shared_gateway();
    let label = "a".repeat(63);
    gateway.get_domain(&format!("{label}.com"), key).expect(200);
    gateway.get_domain(&format!("{label}a.com"), key).expect(422);
    let longest = format!("{label}.{label}.{label}.{}", "b".repeat(61));
    assert_eq!(longest.len(), 253);
    assert_eq!(gateway.get_domain(&longest, key).expect(200).json()["domain"], longest.as_str());
    gateway.get_domain(&format!("{longest}."), key).expect(200);
    gateway.get_domain(&format!("{longest}b"), key).expect(422);
    // IDNA mapping may shorten a name: the length limit applies to the A-label form.
    gateway.get_domain(&format!("{}.com", "%C3%BC".repeat(63)), key).expect(422);
}

#[test]
fn three_spellings_of_an_international_name_get_byte_identical_bodies() {
    let (gateway, key) = shared_gateway();
    let bodies: Vec<String> = ["b\u{fc}cher.de", "b%C3%BCcher.de", "xn--bcher-kva.de"]
        .iter()
        .map(|name| gateway.get_domain(name, key).expect(200).text())
        .collect();
    assert!(bodies[0].starts_with(r#"{"domain":"xn--bcher-kva.de","#));
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
}

#[test]
fn a_subdomain_gets_its_parents_verdict_and_x_matched_domain_names_the_parent() {
    let (gateway, key) = shared_gateway();
    let answer = gateway.get_domain("foo.mailinator.com", key).expect(200);
    assert_eq!(answer.header("X-Matched-Domain"), Some("mailinator.com"));
    let body = answer.json();
    assert_eq!(body["domain"], "foo.mailinator.com");
    assert_eq!(body["reason"], "disposable");
    assert_eq!(body["risk_score"], 100);
    let deep = gateway.get_domain("a.b.c.mailinator.com", key).expect(200);
    assert_eq!(deep.header("X-Matched-Domain"), Some("mailinator.com"));
}

#[test]
fn a_row_matches_whole_labels_only() {
    let gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &[]);
    // In this table mail.com is disposable.
    assert_eq!(gateway.get_domain("mail.com", &key).json()["reason"], "disposable");
    for name in ["googlemail.com", "xmail.com", "mail.com.br", "mail.co", "ail.com"] {
        let answer = gateway.get_domain(name, &key).expect(200);
        assert_eq!(answer.json()["reason"], "safe", "{name}");
        assert!(!answer.has_header("X-Matched-Domain"), "{name}");
    }
}

#[test]
fn an_exact_row_does_not_match_subdomains() {
    let gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &[]);
    assert_eq!(gateway.get_domain("exact.test", &key).json()["reason"], "disposable");
    assert_eq!(gateway.get_domain("a.exact.test", &key).json()["reason"], "safe");
    assert_eq!(gateway.get_domain("a.first.test", &key).json()["reason"], "disposable");
}

#[test]
fn the_most_specific_row_wins_and_an_override_may_name_any_suffix() {
    let setup = Setup::new();
    setup.lists().write(
        "overrides.csv",
        "domain,scope,reason,risk_score,is_free_provider,is_corporate_email,mx_provider_label\n\
         inner.first.test,subtree,safe,3,,,\n\
         com.ar,subtree,disposable,77,,,\n\
         good.com.ar,exact,safe,1,true,,Good Mail\n",
    );
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    for (name, reason, score) in [
        ("first.test", "disposable", 100),
        ("other.first.test", "disposable", 100),
        ("inner.first.test", "safe", 3),
        ("a.inner.first.test", "safe", 3),
        ("com.ar", "disposable", 77),
        ("any.com.ar", "disposable", 77),
        ("good.com.ar", "safe", 1),
        ("below.good.com.ar", "disposable", 77),
        ("com.br", "safe", 10),
    ] {
        let body = gateway.get_domain(name, &key).expect(200).json();
        assert_eq!(
            (&body["reason"], &body["risk_score"]),
            (&reason.into(), &score.into()),
            "{name}"
        );
    }
    let good = gateway.get_domain("good.com.ar", &key).json();
    assert_eq!(
        (&good["is_free_provider"], &good["mx_provider_label"]),
        (&true.into(), &"Good Mail".into())
    );
}

#[test]
fn a_listed_private_suffix_does_not_match_its_subdomains() {
    let (gateway, key) = shared_gateway();
    assert_eq!(gateway.get_domain("eu.org", key).json()["reason"], "disposable");
    let below = gateway.get_domain("nobody-lists-this.eu.org", key);
    assert_eq!(below.json()["reason"], "safe");
    assert!(!below.has_header("X-Matched-Domain"));
    assert_eq!(gateway.get_domain("eml.pp.ua", key).json()["risk_score"], 100);
}

#[test]
fn x_verdict_source_names_the_source_of_every_verdict() {
    let (gateway, key) = shared_gateway();
    for (name, reason, score, source) in [
        ("mailinator.com", "disposable", 100, "list"),
        ("gmail.com", "safe", 0, "list"),
        ("nobody-lists-this.pp.ua", "disposable", 70, "rule"),
        ("iclopud.com", "undeliverable", 60, "rule"),
        ("a.nosuchtld", "undeliverable", 100, "rule"),
        ("nobody-lists-this-mailer.com", "safe", 30, "rule"),
        ("nobody-lists-this.com", "safe", 10, "none"),
    ] {
        let answer = gateway.get_domain(name, key);
        let verdict = answer.json();
        assert_eq!(
            (&verdict["reason"], &verdict["risk_score"]),
            (&reason.into(), &score.into()),
            "{name}"
        );
        assert_eq!(answer.header("X-Verdict-Source"), Some(source), "{name}");
    }
    let below = gateway.get_domain("deep.nobody-lists-this.pp.ua", key);
    assert_eq!(below.header("X-Matched-Domain"), Some("pp.ua"));
}

#[test]
fn x_did_you_mean_names_the_large_provider_that_a_domain_resembles() {
    let (gateway, key) = shared_gateway();
    for (name, provider) in [
        ("iclopud.com", Some("icloud.com")),
        ("gmial.com", Some("gmail.com")),
        ("gmail.con", Some("gmail.com")),
        ("protonmial.com", Some("protonmail.com")),
        ("gmail.com", None),
        ("cloud.com", None),
        ("email.com", None),
        ("nobody-lists-this.com", None),
        ("www.gmial.com", None),
    ] {
        assert_eq!(gateway.get_domain(name, key).header("X-Did-You-Mean"), provider, "{name}");
    }
}

#[test]
fn x_evidence_date_says_how_old_the_verdict_of_a_list_is() {
    let (gateway, key) = shared_gateway();
    let date =
        |name: &str| gateway.get_domain(name, key).header("X-Evidence-Date").map(str::to_owned);
    // The last day on which Castle, the only source of this name, had it on its list.
    assert_eq!(date("0107414.xyz").as_deref(), Some("2026-07-20"));
    assert_eq!(date("mail.0107414.xyz").as_deref(), Some("2026-07-20"));
    assert!(date("yopmail.com").is_some_and(|day| day.as_str() > "2026-07-31"));
    assert!(date("gmail.com").is_some());
    for name in ["nobody-lists-this.com", "no-such-tld.zzzzz"] {
        assert_eq!(date(name), None, "{name}");
    }
}

#[test]
fn a_registry_suffix_is_never_flagged() {
    let (gateway, key) = shared_gateway();
    for name in ["co.uk", "com.ar", "com.br", "co.jp", "org.uk", "com.au", "ac.uk", "gov.sg"] {
        assert_eq!(gateway.get_domain(name, key).json()["reason"], "safe", "{name}");
    }
}

#[test]
fn a_listed_registry_suffix_flags_neither_itself_nor_its_subdomains() {
    let setup = Setup::new();
    setup.lists().write("disposable.txt", "first.test\nsecond.test\nthird.test\nco.uk\ncom.ar\n");
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    for name in ["co.uk", "any.co.uk", "com.ar", "any.com.ar"] {
        assert_eq!(gateway.get_domain(name, &key).json()["reason"], "safe", "{name}");
    }
}

#[test]
fn no_well_known_mail_domain_is_flagged() {
    let (gateway, key) = shared_gateway();
    for name in [
        "gmail.com",
        "googlemail.com",
        "outlook.com",
        "hotmail.com",
        "yahoo.com",
        "proton.me",
        "protonmail.com",
        "icloud.com",
        "duck.com",
        "fastmail.com",
        "gmx.de",
        "web.de",
        "mail.ru",
        "qq.com",
        "army.gov",
        "nus.edu.sg",
        "u.nus.edu.sg",
        "ox.ac.uk",
        "microsoft.com",
        "google.com",
        "tutanota.com",
        "zoho.com",
    ] {
        let body = gateway.get_domain(name, key).expect(200).json();
        assert_eq!(body["reason"], "safe", "{name}");
        assert!(body["risk_score"].as_u64().unwrap() <= 50, "{name} {body}");
    }
    assert_eq!(gateway.get_domain("gmail.com", key).json()["is_free_provider"], true);
    assert_eq!(gateway.get_domain("microsoft.com", key).json()["is_corporate_email"], true);
}

#[test]
fn names_that_cannot_receive_mail_are_undeliverable() {
    let (gateway, key) = shared_gateway();
    for name in ["example.com", "a.example.org", "mail.invalid", "foo.test", "printer.local"] {
        let body = gateway.get_domain(name, key).expect(200).json();
        assert_eq!((&body["reason"], &body["risk_score"]), (&"undeliverable".into(), &100.into()));
    }
    assert_eq!(gateway.get_domain("googlegroups.com", key).json()["reason"], "role_account");
}
