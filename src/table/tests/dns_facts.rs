//! DNS facts about names in no list.

use super::support::{load_faults, load_lists, look_up, try_load_lists};
use crate::model::verdict::{Rule, Verdict, VerdictSource};
use crate::table::{Table, TableLocation};

const RULES_IN_MANIFEST: (&str, &str) = (
    "manifest.toml",
    "[rules]\ntypos_of = [\"gmail.com\"]\nsuggest = [\"freenet.de\"]\nmail_words = [\"mail\"]\n\
     throwaway_words = [\"tempmail\"]\n[scores]\ndisposable_mx = 84\n",
);
const PROVIDERS_FILE: (&str, &str) = ("providers.txt", "gmail.com\nfreenet.de\n");
const MX_LABELS_FILE: (&str, &str) = (
    "mx-labels.csv",
    "suffix,label,class\ngood.host,Good,professional\nbad.host,Bad,disposable\n\
     cloud.host,Cloud,shared\n",
);

fn table_with_rules_and_mx_labels() -> Table {
    load_lists(&[
        RULES_IN_MANIFEST,
        PROVIDERS_FILE,
        MX_LABELS_FILE,
        ("a.txt", "listed.com\n"),
        ("known.txt", "known.com\n"),
        ("free-subdomains.txt", "eu.cc\n"),
        ("protected.txt", "gov\n"),
        ("labels.csv", "domain,label\nlabelled.eu.cc,Shop\n"),
        ("overrides.csv", "word.com,exact,safe,1,,,\nword.eu.cc,subtree,,,,,Mine\n"),
    ])
}

fn describe_answer_with_mx(table: &Table, name: &str, mx: &str) -> (String, VerdictSource) {
    let found = look_up(table, name).apply_mx_fact(mx);
    let verdict = found.verdict;
    let mut text = format!("{} {}", verdict.reason, verdict.score.value());
    text.push_str(if verdict.is_corporate_email { " +corporate" } else { "" });
    text.push_str(&found.mail_service_label.map_or(String::new(), |label| format!(" {label}")));
    assert!(found.json_tail().contains(&format!("\"risk_score\":{}", verdict.score.value())));
    (text, found.verdict_source())
}

#[test]
fn an_mx_fact_decides_the_answer_for_an_unlisted_name() {
    let table = table_with_rules_and_mx_labels();
    for (name, mx, expected) in [
        ("new.com", ".", "undeliverable 95"),
        ("new.com", "nxdomain", "undeliverable 95"),
        ("new.com", "parked", "undeliverable 85"),
        ("new.com", "mx1.bad.host", "disposable 84 Bad"),
        ("new.com", "bad.host", "disposable 84 Bad"),
        ("new.com", "mx.good.host", "safe 0 +corporate Good"),
        ("new.com", "mx.cloud.host", "safe 10 Cloud"),
        ("newmail.com", "mx.cloud.host", "safe 30 Cloud"),
        ("newmail.com", "mx.good.host", "safe 0 +corporate Good"),
        ("newmail.com", ".", "undeliverable 95"),
    ] {
        assert_eq!(
            describe_answer_with_mx(&table, name, mx),
            (expected.to_owned(), VerdictSource::Dns),
            "{name} {mx}"
        );
    }
}

#[test]
fn a_flagging_mx_fact_gives_the_verdict_of_the_same_mx_row() {
    let table = table_with_rules_and_mx_labels();
    for name in ["new.com", "newmail.com", "gmial.com", "x.eu.cc", "a.b.eu.cc", "mytempmail.com"] {
        for mx in [".", "nxdomain", "parked", "mx1.bad.host"] {
            let row = format!("domain,mx\n{name},{mx}\n");
            let free = ("free-subdomains.txt", "eu.cc\n");
            let listed = super::support::load_lists(&[
                RULES_IN_MANIFEST,
                PROVIDERS_FILE,
                MX_LABELS_FILE,
                free,
                ("mx.csv", &row),
            ]);
            let (listed, learned) =
                (look_up(&listed, name), look_up(&table, name).apply_mx_fact(mx));
            assert_eq!(learned.verdict, listed.verdict, "{name} {mx}");
            assert_eq!(learned.mail_service_label, listed.mail_service_label, "{name} {mx}");
            assert_eq!(learned.verdict_source(), VerdictSource::Dns, "{name} {mx}");
        }
    }
}

#[test]
fn an_mx_fact_without_a_flag_keeps_the_flag_of_a_rule() {
    let table = table_with_rules_and_mx_labels();
    for name in ["gmial.com", "x.eu.cc", "mytempmail.com"] {
        let found = look_up(&table, name);
        for mx in ["mx.good.host", "mx.cloud.host", "mx.elsewhere.net", "address"] {
            let with = found.apply_mx_fact(mx);
            assert_eq!(
                (with.verdict, with.mail_service_label),
                (found.verdict, found.mail_service_label),
                "{name} {mx}"
            );
            assert_eq!(
                (with.matched_name_offset, with.verdict_source()),
                (found.matched_name_offset, VerdictSource::Rule)
            );
        }
    }
}

#[test]
fn an_unflagged_name_with_a_mail_host_gets_no_suggestion() {
    let table = table_with_rules_and_mx_labels();
    let suggestion = |name: &str, mx: &str| {
        let domain = crate::model::domain::Domain::parse(name).unwrap();
        let found = look_up(&table, name).apply_mx_fact(mx);
        (found.suggest_provider(&domain), found.verdict_source())
    };
    let (provider, dns) = (Some("freenet.de"), VerdictSource::Dns);
    assert_eq!(suggestion("frenet.de", "mx.cloud.host"), (None, dns));
    assert_eq!(suggestion("frenet.de", "mx.elsewhere.net"), (None, VerdictSource::None));
    assert_eq!(suggestion("frenet.de", "frenet.de"), (None, VerdictSource::None), "an MX too");
    // Parked names often have an address but no MX record, so an address proves nothing.
    assert_eq!(suggestion("frenet.de", "address"), (provider, VerdictSource::None));
    for mx in [".", "nxdomain", "parked", "mx.bad.host"] {
        assert_eq!(suggestion("frenet.de", mx), (provider, dns), "{mx}");
    }
    let typo = (Some("gmail.com"), VerdictSource::Rule);
    assert_eq!(suggestion("gmial.com", "mx.elsewhere.net"), typo, "it is flagged as a typo");
}

#[test]
fn an_unknown_mx_host_changes_nothing() {
    let table = table_with_rules_and_mx_labels();
    for host in ["mx.elsewhere.net", "mxbad.host", "", "not a host", "new.com"] {
        assert_eq!(
            describe_answer_with_mx(&table, "new.com", host),
            ("safe 10".to_owned(), VerdictSource::None)
        );
        assert_eq!(
            describe_answer_with_mx(&table, "newmail.com", host),
            ("safe 30".to_owned(), VerdictSource::Rule)
        );
    }
    assert!(table.is_known_mx_host("a.b.good.host") && !table.is_known_mx_host("mxgood.host"));
}

proptest::proptest! {
    #[test]
    fn any_mx_text_gives_an_answer_with_json_and_no_row(text in ".{0,40}") {
        static SMALL: std::sync::LazyLock<Table> = std::sync::LazyLock::new(table_with_rules_and_mx_labels);
        for text in [text.clone(), format!("{text}.bad.host"), format!("{text}\u{fc}.host")] {
            let found = look_up(&SMALL, "new.com").apply_mx_fact(&text);
            proptest::prop_assert!(!found.json_tail().is_empty());
            proptest::prop_assert_eq!(found.matched_name_offset, None);
        }
    }
}

#[test]
fn no_mx_fact_changes_an_answer_of_a_list_or_an_override() {
    let table = table_with_rules_and_mx_labels();
    for name in [
        "listed.com",
        "sub.listed.com",
        "known.com",
        "eu.cc",
        "labelled.eu.cc",
        "city.gov",
        "word.com",
    ] {
        let found = look_up(&table, name);
        assert!(!found.is_undecided_by_lists(), "{name}");
        for mx in [".", "parked", "mx.bad.host", "mx.good.host"] {
            let with = found.apply_mx_fact(mx);
            assert_eq!(
                (with.verdict, with.mail_service_label),
                (found.verdict, found.mail_service_label),
                "{name} {mx}"
            );
            assert_eq!(with.verdict_source(), found.verdict_source());
        }
    }
}

#[test]
fn an_override_of_other_fields_leaves_the_verdict_to_rules_and_dns_facts() {
    let row = |name: &str| format!("{name},subtree,,,true,,Mine\n");
    let names = ["plain.com", "my-tempmail.com", "gmial.com", "eu.cc", "shop.eu.cc", "nosuchtld"];
    let overrides = names.map(row).concat() + "flags.com,exact,,,,true,\nnone.com,exact,,,,,-\n";
    let lists = [
        RULES_IN_MANIFEST,
        PROVIDERS_FILE,
        MX_LABELS_FILE,
        ("tlds.txt", "com\ncc\n"),
        ("free-subdomains.txt", "eu.cc\n"),
        ("known.txt", "real-tempmail.com\n"),
        ("a.txt", "listed.com\n"),
    ];
    let without = load_lists(&lists);
    let more = "real-tempmail.com,exact,,,true,,\nlisted.com,exact,,,true,,\n";
    let all = overrides + more;
    let table = load_lists(&[&lists[..], &[("overrides.csv", all.as_str())]].concat());
    for name in [
        "plain.com",
        "a.plain.com",
        "my-tempmail.com",
        "gmial.com",
        "shop.eu.cc",
        "other.eu.cc",
        "a.nosuchtld",
        "real-tempmail.com",
        "listed.com",
    ] {
        for mx in [None, Some("."), Some("mx.bad.host"), Some("mx.good.host")] {
            let look_up_with_mx = |table| {
                let found = look_up(table, name);
                let found = mx.map_or(found, |mx| found.apply_mx_fact(mx));
                (
                    found.verdict,
                    found.mail_service_label.map(str::to_owned),
                    found.json_tail().into(),
                )
            };
            let (expected, _, _): (_, _, String) = look_up_with_mx(&without);
            let (found, label, json) = look_up_with_mx(&table);
            let expected =
                Verdict { is_free_provider: true, is_corporate_email: false, ..expected };
            assert_eq!(found, expected, "{name} {mx:?}");
            assert!(json.contains("\"is_free_provider\":true"), "{name} {mx:?}: {json}");
            let is_labelled = !["real-tempmail.com", "listed.com"].contains(&name);
            assert!(!is_labelled || label.as_deref() == Some("Mine"), "{name} {mx:?}");
        }
    }
    let found = look_up(&table, "flags.com");
    assert!(found.verdict.is_corporate_email && found.is_undecided_by_lists());
    assert!(found.explain().lists.iter().any(|list| list.kind == "override"));
    let with = look_up(&table, "none.com").apply_mx_fact("mx.good.host");
    assert_eq!((with.mail_service_label, with.verdict.is_corporate_email), (None, true));
}

#[test]
fn a_protected_name_is_rejected_as_a_disposable_mx_host() {
    let faults_with_disposable_suffix = |suffix: &str| {
        let labels = format!("suffix,label,class\n{suffix},X,disposable\n");
        load_faults(&[("mx-labels.csv", &labels), ("protected.txt", "good.com\ngov\n")])
    };
    for suffix in ["good.com", "mx.good.com", "mail.city.gov"] {
        let found = faults_with_disposable_suffix(suffix);
        assert!(
            found[0].starts_with("mx-labels.csv: class: ") && found[0].contains(suffix),
            "{found:?}"
        );
    }
    let labels = "suffix,label,class\nmx.good.com,X,professional\nnotgood.com,Y,disposable\n";
    try_load_lists(&[("mx-labels.csv", labels), ("protected.txt", "good.com\n")]).unwrap();
}

#[test]
fn a_compiled_table_keeps_its_mx_answers() {
    let (table, folder) = (table_with_rules_and_mx_labels(), tempfile::tempdir().unwrap());
    let path = folder.path().join("table");
    table.write_to(&path).unwrap();
    let compiled = Table::load(&TableLocation::Path(path)).unwrap();
    for mx in [".", "mx.bad.host", "mx.good.host", "mx.cloud.host", "elsewhere.net"] {
        assert_eq!(
            describe_answer_with_mx(&compiled, "new.com", mx),
            describe_answer_with_mx(&table, "new.com", mx)
        );
    }
    assert_eq!(compiled.resolver_probe_providers(), ["gmail.com"]);
    assert!(try_load_lists(&[("a.txt", "b.com\n")]).unwrap().resolver_probe_providers().is_empty());
}

const MX_ADDRESSES_FILE: (&str, &str) = (
    "mx-addresses.csv",
    "address,label,source,date\n185.7.8.9,Pool,a test,2026-11-01\n2a01:1::9,,a test,2026-11-01\n",
);

fn table_with_mx_addresses(manifest: &str) -> Table {
    load_lists(&[
        ("manifest.toml", &format!("{}{manifest}", RULES_IN_MANIFEST.1)),
        PROVIDERS_FILE,
        MX_LABELS_FILE,
        MX_ADDRESSES_FILE,
        ("a.txt", "listed.com\n"),
        ("known.txt", "known.com\n"),
        ("free-subdomains.txt", "eu.cc\n"),
    ])
}

/// The score, and whether the address decided, for a name whose MX host has this address.
fn score_at_address(table: &Table, name: &str, mx: &str, address: &str) -> (u8, bool) {
    let addresses = [address.parse().unwrap()];
    let found = look_up(table, name).apply_mx_fact(mx).apply_mx_addresses(&addresses, |_| false);
    (found.verdict.score.value(), found.verdict.rule == Rule::DisposableMxAddress)
}

#[test]
fn a_listed_address_raises_the_score_of_a_name_that_nothing_else_judges() {
    let table = table_with_mx_addresses("");
    for (name, mx, address, expected) in [
        ("new.com", "mx.new.com", "185.7.8.9", (70, true)),
        ("new.com", "mx.new.com", "2a01:1::9", (70, true)),
        ("new.com", "mx.new.com", "185.7.8.10", (10, false)),
        ("newmail.com", "mx.new.com", "185.7.8.9", (70, true)),
        ("gmial.com", "mx.new.com", "185.7.8.9", (60, false)),
        ("x.eu.cc", "mx.new.com", "185.7.8.9", (70, false)),
        ("listed.com", "mx.new.com", "185.7.8.9", (100, false)),
        ("known.com", "mx.new.com", "185.7.8.9", (10, false)),
        ("new.com", "mx.bad.host", "185.7.8.9", (84, false)),
        ("new.com", "mx.good.host", "185.7.8.9", (0, false)),
        ("new.com", "mx.cloud.host", "185.7.8.9", (10, false)),
    ] {
        assert_eq!(score_at_address(&table, name, mx, address), expected, "{name} {mx} {address}");
    }
    let addresses = ["185.7.8.9".parse().unwrap()];
    let raised = look_up(&table, "new.com").apply_mx_addresses(&addresses, |_| false);
    assert_eq!(raised.mail_service_label, Some("Pool"));
    assert_eq!(raised.verdict.reason.as_str(), "disposable");
    assert_eq!(raised.verdict_source(), VerdictSource::Dns);
    assert!(raised.is_unsafe_by_learned_fact());
    assert_eq!(raised.explain().lists[0].file, "mx-addresses.csv");
    let shared = look_up(&table, "new.com").apply_mx_addresses(&addresses, |_| true);
    assert_eq!(shared.verdict, look_up(&table, "new.com").verdict);
}

#[test]
fn a_listed_address_never_lowers_a_score() {
    let table = table_with_mx_addresses("mail_in_name = 75\ndisposable_mx_address = 65\n");
    assert_eq!(score_at_address(&table, "new.com", "mx.new.com", "185.7.8.9"), (65, true));
    assert_eq!(score_at_address(&table, "newmail.com", "mx.new.com", "185.7.8.9"), (75, false));
    let addresses = ["185.7.8.9".parse().unwrap()];
    let raised = look_up(&table, "new.com").apply_mx_addresses(&addresses, |_| false);
    let unknown_score = crate::model::verdict::Score::new(77);
    assert_eq!(raised.with_score_of_unknown_names(unknown_score).verdict.score.value(), 77);
}

#[test]
fn an_address_alone_can_not_get_a_score_that_blocks() {
    let with_score = |score: &str| {
        let manifest = format!("[scores]\ndisposable_mx_address = {score}\n");
        try_load_lists(&[("manifest.toml", &manifest), MX_ADDRESSES_FILE, ("a.txt", "b.com\n")])
    };
    assert!(with_score("79").is_ok());
    let fault = with_score("80").err().unwrap().to_string();
    let expected = "scores.disposable_mx_address: expected an integer from 0 to 79, but found 80";
    assert!(fault.contains(expected), "{fault}");
}

#[test]
fn each_faulty_row_of_an_address_list_is_a_fault_with_line_and_column() {
    let fault_of = |row: &str| {
        let text =
            format!("# a comment\naddress,label,source,date\n1.1.1.1,,x,2026-11-01\n{row}\n");
        load_faults(&[("mx-addresses.csv", &text), ("a.txt", "b.com\n")]).remove(0)
    };
    for address in [
        "10.0.0.1",
        "127.0.0.1",
        "0.0.0.0",
        "192.0.2.1",
        "224.0.0.1",
        "::",
        "::1",
        "fc00::1",
        "ff02::1",
        "2001:db8::1",
        "fe80::1",
        "a.com",
        "1.2.3.0/24",
        "",
    ] {
        let fault = fault_of(&format!("{address},,x,2026-11-01"));
        let expected = "mx-addresses.csv:4: address: expected a public IPv4 or IPv6 address";
        assert!(fault.starts_with(expected), "{fault}");
    }
    for (row, expected) in [
        ("1.1.1.2,,,2026-11-01", "mx-addresses.csv:4: source: "),
        ("1.1.1.2,,x,2026-11-31", "mx-addresses.csv:4: date: "),
        ("1.1.1.2,,x,", "mx-addresses.csv:4: date: "),
        ("1.1.1.2,,x", "mx-addresses.csv:4: expected 4 fields"),
        ("::ffff:1.1.1.1,,x,2026-11-01", "mx-addresses.csv:4: address: "),
    ] {
        assert!(fault_of(row).starts_with(expected), "{row}: {}", fault_of(row));
    }
}

#[test]
fn the_owner_of_an_mx_host_is_known_as_real_if_a_list_says_so() {
    let table = table_with_mx_addresses("");
    for (name, is_real) in [
        ("known.com", true),
        ("mx.known.com", true),
        ("_dc-mx.known.com", true),
        ("mx.good.host", true),
        ("mx.cloud.host", true),
        ("mx.bad.host", false),
        ("mx.listed.com", false),
        ("mx.new.com", false),
        (".", false),
        ("parked", false),
    ] {
        assert_eq!(table.is_known_as_real(name, 0), is_real, "{name}");
    }
}

#[test]
fn a_compiled_table_keeps_its_mx_addresses() {
    let (table, folder) = (table_with_mx_addresses(""), tempfile::tempdir().unwrap());
    let path = folder.path().join("table");
    table.write_to(&path).unwrap();
    let compiled = Table::load(&TableLocation::Path(path)).unwrap();
    assert_eq!(score_at_address(&compiled, "new.com", "mx.new.com", "2a01:1::9"), (70, true));
    assert_eq!(score_at_address(&compiled, "new.com", "mx.new.com", "2a01:1::8"), (10, false));
}
