//! The rules and suggestions for names in no list.

use super::support::{assert_answers, describe_answer, load_faults, load_lists, look_up};
use crate::table::{Table, TableLocation};

const RULES_IN_MANIFEST: (&str, &str) = (
    "manifest.toml",
    "[rules]\ntypos_of = [\"gmail.com\", \"icloud.com\"]\nsuggest = [\"gmx.de\", \"yahoo.co.uk\"]\n\
     throwaway_words = [\"tempmail\", \"10-min\"]\nmail_words = [\"mail\"]\n",
);
/// The providers of the rules, which must be free providers of the lists.
const PROVIDERS_FILE: (&str, &str) =
    ("providers.txt", "gmail.com\nicloud.com\ngmx.de\nyahoo.co.uk\n");
const TLDS_FILE: (&str, &str) = ("tlds.txt", "com\nde\nnet\norg\nuk\nua\ncc\n");

#[test]
fn names_below_a_free_suffix_are_disposable_and_the_suffix_is_not() {
    let table = load_lists(&[
        RULES_IN_MANIFEST,
        PROVIDERS_FILE,
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
        PROVIDERS_FILE,
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
        PROVIDERS_FILE,
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
fn a_name_spelled_like_a_bulk_registration_has_a_raised_score() {
    let manifest = (
        "manifest.toml",
        "[rules]\nthrowaway_words = [\"tempmail\"]\nmail_words = [\"mail\"]\n[rules.bulk]\n\
         suffixes = [\"cc\", \"com.ua\"]\nsubdomain_suffixes = [\"cc\"]\nshort_name_suffixes = [\"org\"]\n\
         short_label_suffixes = [\"com\"]\nlabel_words = [\"grok\"]\n",
    );
    let table = load_lists(&[
        manifest,
        TLDS_FILE,
        ("known.txt", "known.cc\nhope.org\n"),
        ("free.txt", "777.cc\n"),
        ("mx.csv", "domain,mx\n888.cc,mx.pro.net\n889.cc,.\n"),
        ("mx-labels.csv", "suffix,label,class\npro.net,Pro,professional\n"),
    ]);
    assert_answers(
        &table,
        &[
            // Below a suffix with cheap names: numbers, words for mail, below some any subdomain.
            ("123456.cc", "safe 60"),
            ("123456.com", "safe 10"),
            ("a23456.cc", "safe 10"),
            ("quickmail.cc", "safe 60"),
            ("quickmail.com", "safe 30"),
            ("quicktempmail.cc", "disposable 70"),
            ("any.quick.cc", "safe 60"),
            ("any.quick.com.ua", "safe 10"),
            ("quickmail.com.ua", "safe 60"),
            ("any.quick.ua", "safe 10"),
            ("quick.cc", "safe 10"),
            // Four or five letters that make no word.
            ("abcd.org", "safe 60"),
            ("abcde.org", "safe 60"),
            ("brgh.org", "safe 60"),
            ("craft.org", "safe 10"),
            ("salon.org", "safe 10"),
            ("smith.org", "safe 10"),
            ("abc.org", "safe 10"),
            ("abcdef.org", "safe 10"),
            ("abc4.org", "safe 10"),
            ("abcd.net", "safe 10"),
            // A short label with a digit, below a registrable name.
            ("0d.quick.com", "safe 60"),
            ("7.quick.com", "safe 60"),
            ("hr.quick.com", "safe 10"),
            ("a12.quick.com", "safe 10"),
            ("0d.x.quick.com", "safe 10"),
            ("0d.quick.net", "safe 10"),
            // The name of a service in a label.
            ("grok.quick.net", "safe 60"),
            ("my-grok2.quick.net", "safe 60"),
            ("askgrok.quick.net", "safe 60"),
            ("agrokultura.quick.net", "safe 10"),
            ("grok.net", "safe 10"),
            // What a list or the DNS says has precedence.
            ("known.cc", "safe 10"),
            ("any.known.cc", "safe 10"),
            ("hope.org", "safe 10"),
            ("777.cc", "safe 0 +free"),
            ("888.cc", "safe 0 +corporate Pro"),
            ("889.cc", "undeliverable 95"),
        ],
    );
    assert_eq!(look_up(&table, "123456.cc").verdict.rule.as_str(), "bulk_name");
    let learned = look_up(&table, "123456.cc").apply_mx_fact("a.pro.net");
    assert_eq!((learned.verdict.rule.as_str(), learned.verdict.score.value()), ("professional", 0));
    assert_eq!(look_up(&table, "123456.cc").apply_mx_fact("mx.example").verdict.score.value(), 60);
}

#[test]
fn an_inbox_of_a_program_has_a_rule_of_its_own() {
    let table = load_lists(&[
        TLDS_FILE,
        ("alias.txt", "relay.com\n"),
        ("agent-inboxes.txt", "agents.com\n"),
        ("a.txt", "agents.com\n"),
    ]);
    assert_answers(&table, &[("relay.com", "safe 35"), ("bot.agents.com", "safe 50")]);
    assert_eq!(look_up(&table, "agents.com").verdict.rule.as_str(), "agent_inbox");
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
        (
            "bulk.suffixes = [\"*.xyz\"]\n",
            "manifest.toml:6: rules.bulk.suffixes: expected a public suffix in its canonical form, \
             such as \"xyz\" or \"my.id\", but found \"*.xyz\"",
        ),
    ] {
        let text = format!("[rules]\n{rules}");
        assert_eq!(load_faults(&[("a.txt", "x.com\n"), ("manifest.toml", &text)]), [expected]);
    }
}

#[test]
fn a_provider_of_the_rules_that_no_list_calls_free_is_a_fault() {
    let manifest = "[rules]\ntypos_of = [\"gmail.com\"]\nsuggest = [\"gmx.de\",\n\"gmx.nl\"]\n";
    let lists = [
        ("manifest.toml", manifest),
        ("free.txt", "=gmail.com\ngmx.de\nwww.gmx.nl\n"),
        ("known.txt", "gmx.nl\n"),
    ];
    let expected = "manifest.toml:10: rules.suggest: expected a name that a list of kind free has, \
                    but found \"gmx.nl\"";
    assert_eq!(load_faults(&lists), [expected]);
}

#[test]
fn a_compiled_table_keeps_its_rules_for_unlisted_names() {
    let table = load_lists(&[RULES_IN_MANIFEST, PROVIDERS_FILE, TLDS_FILE, ("a.txt", "x.com\n")]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("compiled");
    table.write_to(&path).unwrap();
    let again = Table::load(&TableLocation::Path(path)).unwrap();
    assert_eq!(describe_answer(&again, "gmial.com"), "undeliverable 60");
    assert_eq!(describe_answer(&again, "quickmail.org"), "safe 30");
}
