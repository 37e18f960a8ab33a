//! The rules and suggestions for names in no list.

use super::support::{assert_answers, describe_answer, load_faults, load_lists, look_up};
use crate::table::{Table, TableLocation};

const RULES_IN_MANIFEST: (&str, &str) = (
    "manifest.toml",
    "[rules]\ntypos_of = [\"gmail.com\", \"icloud.com\"]\nsuggest = [\"gmx.de\", \"yahoo.co.uk\"]\n\
     throwaway_words = [\"tempmail\", \"10-min\"]\nmail_words = [\"mail\"]\n",
);
const TLDS_FILE: (&str, &str) = ("tlds.txt", "com\nde\nnet\norg\nuk\nua\ncc\n");

#[test]
fn names_below_a_free_suffix_are_disposable_and_the_suffix_is_not() {
    let table = load_lists(&[
        RULES_IN_MANIFEST,
        TLDS_FILE,
        ("free-subdomains.txt", "eu.cc\npp.ua\n"),
        ("corporate.txt", "acme.eu.cc\n"),
        ("free.txt", "post.pp.ua\n"),
        ("b.txt", "bad.eu.cc\n"),
    ]);
    assert_answers(
        &table,
        &[
            ("any.eu.cc", "disposable 70"),
            ("deep.any.eu.cc", "disposable 70"),
            ("any.pp.ua", "disposable 70"),
            ("eu.cc", "safe 10"),
            ("pp.ua", "safe 10"),
            ("acme.eu.cc", "safe 0 +corporate"),
            ("www.acme.eu.cc", "safe 0 +corporate"),
            ("post.pp.ua", "safe 0 +free"),
            ("bad.eu.cc", "disposable 90"),
            ("eu.com", "safe 10"),
            ("other.cc", "safe 10"),
        ],
    );
    let found = look_up(&table, "any.pp.ua");
    assert_eq!(found.verdict.rule.as_str(), "free_subdomain");
    assert_eq!(found.verdict.rule.verdict_source().as_str(), "rule");
    assert_eq!(found.explain().lists[0].file, "free-subdomains.txt");
    assert_eq!(look_up(&table, "eu.cc").verdict.rule.verdict_source().as_str(), "none");
}

#[test]
fn an_unlisted_name_a_slip_from_a_large_provider_is_a_typing_error() {
    let table = load_lists(&[
        RULES_IN_MANIFEST,
        TLDS_FILE,
        ("free.txt", "gmail.com\nmail.com\n"),
        ("known.txt", "cloud.com\n"),
        ("c.txt", "gmai.com\n"),
        ("corporate.txt", "gmailo.com\n"),
    ]);
    assert_answers(
        &table,
        &[
            ("gmial.com", "undeliverable 60"),
            ("gmail.org", "undeliverable 60"),
            ("pmail.org", "safe 30"),
            ("iclud.com", "undeliverable 60"),
            ("cloud.com", "safe 10"),
            ("www.cloud.com", "safe 10"),
            ("gmai.com", "disposable 80"),
            ("mail.com", "safe 0 +free"),
            ("sub.gmial.com", "safe 10"),
        ],
    );
    for (name, provider) in [
        ("gmial.com", Some("gmail.com")),
        ("gmai.com", Some("gmail.com")),
        ("gmail.con", Some("gmail.com")),
        ("gmial.con", Some("gmail.com")),
        ("gmxx.de", Some("gmx.de")),
        ("yaho.co.uk", Some("yahoo.co.uk")),
        // These receive mail, or nothing is known against it.
        ("gmail.com", None),
        ("gmx.de", None),
        ("cloud.com", None),
        ("mail.com", None),
        ("gmailo.com", None),
        ("sub.gmial.com", None),
        ("gmxx.org", None),
        ("gmy.de", None),
    ] {
        let domain = crate::model::domain::Domain::parse(name).unwrap();
        assert_eq!(look_up(&table, name).suggest_provider(&domain), provider, "{name}");
    }
}

#[test]
fn a_word_for_mail_in_an_unlisted_registrable_name_raises_its_score() {
    let table = load_lists(&[
        RULES_IN_MANIFEST,
        TLDS_FILE,
        ("known.txt", "mailgun.net\n"),
        ("mx.csv", "domain,mx\nhandymail.org,.\nmailworks.com,mx.pro.net\n"),
        ("mx-labels.csv", "suffix,label,class\npro.net,Pro,professional\n"),
    ]);
    assert_answers(
        &table,
        &[
            ("mytempmails.org", "disposable 70"),
            ("x.10-minutes.com", "disposable 70"),
            ("tempmail.quick.org", "safe 10"),
            ("quickmail.org", "safe 30"),
            ("a.quickmail.org", "safe 30"),
            ("mail.quick.org", "safe 10"),
            ("mailgun.net", "safe 10"),
            ("eu.mailgun.net", "safe 10"),
            ("handymail.org", "undeliverable 95"),
            ("mailworks.com", "safe 0 +corporate Pro"),
        ],
    );
}

#[test]
fn invalid_settings_of_rules_are_faults_with_their_line() {
    for (rules, expected) in [
        (
            "typos_of = [\"Gmail.com\"]\n",
            "manifest.toml:6: rules.typos_of: expected a domain in its canonical form, but found \
             \"Gmail.com\"",
        ),
        (
            "mail_words = [\"a\"]\n",
            "manifest.toml:6: rules.mail_words: expected three or more of a-z, 0-9 and -, but \
             found \"a\"",
        ),
    ] {
        let text = format!("[rules]\n{rules}");
        assert_eq!(load_faults(&[("a.txt", "x.com\n"), ("manifest.toml", &text)]), [expected]);
    }
}

#[test]
fn a_compiled_table_keeps_its_rules_for_unlisted_names() {
    let table = load_lists(&[RULES_IN_MANIFEST, TLDS_FILE, ("a.txt", "x.com\n")]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("compiled");
    table.write_to(&path).unwrap();
    let again = Table::load(&TableLocation::Path(path)).unwrap();
    assert_eq!(describe_answer(&again, "gmial.com"), "undeliverable 60");
    assert_eq!(describe_answer(&again, "quickmail.org"), "safe 30");
}
