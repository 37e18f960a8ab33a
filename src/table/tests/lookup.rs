//! Which row matches, and which rule decides.

use super::support::{NOW, assert_answers, describe_answer, load_lists, look_up};
use crate::model::domain::Domain;
use crate::model::month::SECONDS_PER_DAY;
use crate::model::verdict::Rule;

#[test]
fn the_most_specific_row_wins_on_whole_labels() {
    let table = load_lists(&[
        ("a.txt", "mailinator.com\nsub.alias.org\na.b.c.deep.org\n=alone.net\n=x.alone2.net\n"),
        ("alias.txt", "alias.org\n"),
        ("free.txt", "mail.com\nalone2.net\n"),
    ]);
    assert_answers(
        &table,
        &[
            ("mailinator.com", "disposable 100"),
            ("foo.mailinator.com", "disposable 100"),
            ("a.b.c.mailinator.com", "disposable 100"),
            ("xmailinator.com", "safe 10"),
            ("mailinator.com.de", "safe 10"),
            ("mail.com", "safe 0 +free"),
            ("googlemail.com", "safe 10"),
            ("alias.org", "safe 35"),
            ("other.alias.org", "safe 35"),
            ("sub.alias.org", "disposable 100"),
            ("x.sub.alias.org", "disposable 100"),
            ("deep.org", "safe 10"),
            ("c.deep.org", "safe 10"),
            ("a.b.c.deep.org", "disposable 100"),
            ("x.a.b.c.deep.org", "disposable 100"),
            ("alone.net", "disposable 100"),
            ("x.alone.net", "safe 10"),
            ("x.alone2.net", "disposable 100"),
            ("y.x.alone2.net", "safe 0 +free"),
        ],
    );
    assert_eq!(look_up(&table, "a.b.mailinator.com").matched_name_offset, Some(4));
    assert_eq!(look_up(&table, "mailinator.com").matched_name_offset, Some(0));
    assert_eq!(look_up(&table, "nothing.com").matched_name_offset, None);
}

#[test]
fn the_kind_of_a_list_decides_what_a_suffix_row_covers() {
    let table = load_lists(&[
        ("c.txt", "com.ar\nmy.id\nweb.id\npp.ua\nddns.net\ncom\nfoo.ddns.net\nabc.pp.ua\n"),
        ("protected.txt", "gov\nedu.sg\nac.uk\n"),
        ("special.txt", "onion\nexample\nexample.com\n"),
    ]);
    assert_answers(
        &table,
        &[
            ("com.ar", "safe 10"),
            ("shop.com.ar", "safe 10"),
            ("web.id", "safe 10"),
            ("pp.ua", "disposable 80"),
            ("x.pp.ua", "safe 10"),
            ("abc.pp.ua", "disposable 80"),
            ("d.abc.pp.ua", "disposable 80"),
            ("ddns.net", "disposable 80"),
            ("foo.ddns.net", "disposable 80"),
            ("bar.ddns.net", "safe 10"),
            ("army.gov", "safe 0"),
            ("a.b.army.gov", "safe 0"),
            ("nus.edu.sg", "safe 0"),
            ("edu.sg", "safe 0"),
            ("ox.ac.uk", "safe 0"),
            ("acme.co.uk", "safe 10"),
            ("a.onion", "undeliverable 100"),
            ("mail.example.com", "undeliverable 100"),
            ("a.example", "undeliverable 100"),
        ],
    );
    assert_eq!(look_up(&table, "a.army.gov").matched_name_offset, Some(7));
    assert_eq!(table.lists()[2].ignored, 4);
    assert_eq!(table.row_count(), 10);
}

#[test]
fn an_unknown_tld_is_undeliverable_while_the_tld_list_is_under_90_days_old() {
    let table = load_lists(&[("tlds.txt", "com\nnet\n"), ("a.txt", "bad.com\nbad.zip\n")]);
    let at = |name: &str, now: i64| table.lookup(&Domain::parse(name).unwrap(), now).verdict.rule;
    let date = NOW - 20 * SECONDS_PER_DAY;
    assert_eq!(at("a.nosuch", NOW), Rule::UnknownTld);
    assert_eq!(describe_answer(&table, "a.nosuch"), "undeliverable 100");
    assert_eq!(at("a.nosuch", date + 90 * SECONDS_PER_DAY - 1), Rule::UnknownTld);
    assert_eq!(at("a.nosuch", date + 90 * SECONDS_PER_DAY), Rule::Unknown);
    assert_eq!(at("a.net", NOW), Rule::Unknown);
    assert_eq!(at("bad.zip", NOW), Rule::DisposableA);
    assert!(table.warnings(NOW).is_empty());
    assert!(table.warnings(date + 95 * SECONDS_PER_DAY)[0].contains("95 days old"));
}

#[test]
fn of_all_rules_that_apply_to_a_name_the_first_decides() {
    let mx = "suffix,label,class\ngood.host,Good,professional\nbad.host,Bad,disposable\n\
              cloud.host,Cloud,shared\nhome.host,Home,consumer\nx.good.host,Better,professional\n";
    let facts = "domain,mx\nnull.com,.\ngone.com,nxdomain\nparked.com,parked\nbad.com,mx.bad.host\n\
                 cloud.com,mx.cloud.host\nhome.com,mx.home.host\npro.com,mx1.x.good.host\n\
                 pro2.com,mxgood.host\nlisted.com,.\nfree-pro.com,mx.good.host\n\
                 alias-pro.com,mx.good.host\nrole.com,mx.good.host\nrole-bad.com,a.bad.host\n\
                 labelled.com,mx.good.host\nguarded.com,.\ncorp.com,mx.home.host\n";
    let files = [
        ("special.txt", "test\nreserved.org\n"),
        ("protected.txt", "edu\nguarded.com\nfree.com\ncorp.com\nlone.com\n"),
        ("corporate.txt", "corp.com\nlone.com\n"),
        ("alias.txt", "alias.com\nalias-pro.com\n"),
        ("a.txt", "tier.com ab\nstudent.edu\nlow.reserved.org\n"),
        ("b.txt", "tier.com\ntierb.com\nlisted.com\nb-student.edu\n"),
        ("c.txt", "tierc.com\nalias.com b\n"),
        ("d.txt", "tierd.com\n"),
        ("role.txt", "role.com\nrole-bad.com\nlists.school.edu\nlists.guarded.com\n"),
        ("free.txt", "free.com a\nfree-pro.com\nalias.com\nlone.com\n"),
        ("mx.csv", facts),
        ("mx-labels.csv", mx),
        ("labels.csv", "domain,label\nlabelled.com,Own\nfree.com,\"Free, \"\"Mail\"\"\"\n"),
    ];
    let table = load_lists(&files);
    assert_answers(
        &table,
        &[
            ("a.test", "undeliverable 100"),
            ("reserved.org", "undeliverable 100"),
            ("low.reserved.org", "undeliverable 100"),
            ("student.edu", "disposable 100"),
            ("b-student.edu", "safe 0"),
            ("guarded.com", "safe 0"),
            ("free.com", "safe 0 +free Free, \"Mail\""),
            ("sub.free.com", "safe 0 +free Free, \"Mail\""),
            ("corp.com", "safe 0 +corporate Home"),
            ("mail.corp.com", "safe 0 +corporate"),
            ("lone.com", "safe 0 +free"),
            ("alias.com", "safe 35"),
            ("alias-pro.com", "safe 35 Good"),
            ("tier.com", "disposable 100"),
            ("tierb.com", "disposable 90"),
            ("tierc.com", "disposable 80"),
            ("tierd.com", "disposable 60"),
            ("listed.com", "disposable 90"),
            ("null.com", "undeliverable 95"),
            ("sub.null.com", "safe 10"),
            ("gone.com", "undeliverable 95"),
            ("parked.com", "undeliverable 85"),
            ("bad.com", "disposable 85 Bad"),
            ("cloud.com", "safe 10 Cloud"),
            ("home.com", "safe 10 Home"),
            ("pro.com", "safe 0 +corporate Better"),
            ("pro2.com", "safe 10"),
            ("role.com", "role_account 70 Good"),
            ("role-bad.com", "disposable 85 Bad"),
            ("lists.guarded.com", "role_account 70"),
            ("lists.school.edu", "role_account 70"),
            ("free-pro.com", "safe 0 +free Good"),
            ("labelled.com", "safe 0 +corporate Own"),
            ("sub.labelled.com", "safe 10 Own"),
        ],
    );
    let why = look_up(&table, "sub.tier.com").explain();
    assert_eq!(why.rule, Rule::DisposableA);
    assert_eq!(why.lists.iter().map(|l| l.file.as_str()).collect::<Vec<_>>(), ["a.txt", "b.txt"]);
    assert_eq!(why.sources.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["alpha", "beta"]);
}

#[test]
fn scores_come_from_the_manifest() {
    let scores = ("manifest.toml", "[scores]\nunknown = 17\ndisposable_c = 55\n");
    let table = load_lists(&[("c.txt", "bad.com\n"), scores]);
    assert_answers(&table, &[("bad.com", "disposable 55"), ("good.com", "safe 17")]);
}

#[test]
fn an_override_of_the_manifest_outranks_every_other_list() {
    let overrides = "\
partner.com,subtree,safe,0,,true,\n\
exact.partner.com,exact,role_account,70,,,\n\
label.bad.com,exact,,,,,Named\n\
bad2.com,subtree,,5,,,-\n\
pp.ua,subtree,safe,1,,,\n\
com.ar,subtree,disposable,90,,,\n\
only.com.ar,exact,safe,3,,,\n\
both.com,exact,safe,1,,,\n\
both.com,subtree,disposable,2,,,\n\
a.test,exact,safe,4,,,\n\
s3.org,subtree,undeliverable,99,true,,\n\
xyz,subtree,,33,,,\n\
github.net,exact,,,,true,\n";
    let table = load_lists(&[
        ("overrides.csv", overrides),
        ("special.txt", "test\n"),
        ("c.txt", "deep.partner.com\nbad.com\nbad2.com\nlow.bad2.com\npp.ua\nx.pp.ua\nbad.xyz\n"),
        ("labels.csv", "domain,label\nbad2.com,Bad Two\n"),
        ("protected.txt", "edu\n"),
    ]);
    assert_answers(
        &table,
        &[
            ("partner.com", "safe 0 +corporate"),
            ("any.partner.com", "safe 0 +corporate"),
            ("deep.partner.com", "safe 0 +corporate"),
            ("x.deep.partner.com", "safe 0 +corporate"),
            ("exact.partner.com", "role_account 70"),
            ("x.exact.partner.com", "safe 0 +corporate"),
            ("label.bad.com", "safe 10 Named"),
            ("x.label.bad.com", "disposable 80"),
            ("bad2.com", "disposable 5"),
            ("low.bad2.com", "disposable 5"),
            ("other.bad2.com", "disposable 5"),
            ("pp.ua", "safe 1"),
            ("x.pp.ua", "safe 1"),
            ("y.x.pp.ua", "safe 1"),
            ("never.pp.ua", "safe 1"),
            ("com.ar", "disposable 90"),
            ("shop.com.ar", "disposable 90"),
            ("www.shop.com.ar", "disposable 90"),
            ("only.com.ar", "safe 3"),
            ("shop.ar", "safe 10"),
            ("both.com", "safe 1"),
            ("x.both.com", "disposable 2"),
            ("a.test", "safe 4"),
            ("b.test", "undeliverable 100"),
            ("s3.org", "undeliverable 99 +free"),
            ("bad.xyz", "disposable 33"),
            ("good.xyz", "safe 33"),
            ("github.net", "safe 10 +corporate"),
            ("x.github.net", "safe 10"),
        ],
    );
    let rule = |name: &str| look_up(&table, name).verdict.rule;
    assert_eq!(rule("bad2.com"), Rule::Override);
    assert_eq!(rule("label.bad.com"), Rule::Unknown);
    assert_eq!(look_up(&table, "deep.partner.com").explain().lists[0].file, "overrides.csv");
}

#[test]
fn an_override_of_the_verdict_hides_no_fact_of_the_lists() {
    let lists = [("alias.txt", "alias.org\nrelay.org\n"), ("protected.txt", "real.com\nown.com\n")];
    let rows = "alias.org,subtree,safe,0,,,\nreal.com,exact,safe,40,,,\nx.com,exact,safe,0,,,\n";
    let table = load_lists(&[lists[0], lists[1], ("overrides.csv", rows)]);
    for (name, rule, is_alias, is_protected) in [
        ("alias.org", Rule::Override, true, false),
        ("x.alias.org", Rule::Override, true, false),
        ("relay.org", Rule::Alias, true, false),
        ("real.com", Rule::Override, false, true),
        ("own.com", Rule::Protected, false, true),
        ("x.com", Rule::Override, false, false),
        ("unlisted.com", Rule::Unknown, false, false),
    ] {
        let answer = look_up(&table, name);
        let found = (answer.is_alias(), answer.is_protected_or_free_provider());
        assert_eq!((answer.verdict.rule, found), (rule, (is_alias, is_protected)), "{name}");
        assert_eq!(answer.is_protected(), is_protected, "{name}");
    }
}

#[test]
fn an_override_of_a_domain_covers_private_suffixes_below_it() {
    let table = load_lists(&[
        ("overrides.csv", "amazonaws.com,subtree,disposable,77,,,\n"),
        ("free.txt", "amazonaws.com\n"),
    ]);
    assert_answers(
        &table,
        &[
            ("amazonaws.com", "disposable 77 +free"),
            ("x.amazonaws.com", "disposable 77 +free"),
            ("bucket.s3.amazonaws.com", "disposable 77"),
            ("s3.amazonaws.com", "disposable 77"),
            ("other.com", "safe 10"),
        ],
    );
}

#[test]
fn only_tier_a_flags_a_name_below_a_protected_suffix() {
    let table = load_lists(&[
        ("protected.txt", "edu.vn\nguarded.com\n"),
        ("a.txt", "reviewed.edu.vn\n"),
        ("b.txt", "seen.edu.vn\n"),
        ("c.txt", "copied.edu.vn\n"),
    ]);
    assert_answers(
        &table,
        &[
            ("reviewed.edu.vn", "disposable 100"),
            ("low.reviewed.edu.vn", "disposable 100"),
            ("seen.edu.vn", "safe 0"),
            ("copied.edu.vn", "safe 0"),
            ("real.edu.vn", "safe 0"),
        ],
    );
}

#[test]
fn a_list_may_have_comments_capitals_and_a_byte_order_mark() {
    let table = load_lists(&[(
        "a.txt",
        "\u{feff}# ours\r\nBAD.com.\r\nb\u{fc}cher.de\r\n\r\n  x.org a \n",
    )]);
    let bad = "disposable 100";
    assert_answers(&table, &[("bad.com", bad), ("xn--bcher-kva.de", bad), ("x.org", bad)]);
}

#[test]
fn the_seed_keeps_its_order_and_only_names_that_are_flagged() {
    let table = load_lists(&[
        ("a.txt", "z.com\na.com\nback.com\n"),
        ("seed.txt", "z.com\nunknown.com\nback.com\na.com\n"),
        ("overrides.csv", "back.com,exact,safe,0,,,\n"),
    ]);
    assert_eq!(table.top_list_seed(), ["z.com", "a.com"]);
}
