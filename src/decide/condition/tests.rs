use proptest::prelude::*;

use crate::decide::{CountFacts, DomainFacts};
use crate::model::verdict::{Reason, Rule, Score, VerdictSource};

use super::*;

fn facts() -> Facts<'static> {
    Facts {
        domain: Some("example.com"),
        risk_score: Score::new(40).unwrap(),
        reason: Reason::Safe,
        of_domain: Some(DomainFacts {
            verdict_source: VerdictSource::None,
            table_rule: Rule::Unknown,
            is_free_provider: false,
            is_corporate_email: true,
            is_alias: false,
        }),
        is_role: Some(false),
        counts: CountFacts { inbox_accounts_30d: Some(3), ..CountFacts::default() },
    }
}

#[test]
fn conditions_hold_by_their_operator() {
    for (text, holds) in [
        ("inbox_accounts_30d >= 3", true),
        ("inbox_accounts_30d>=4", false),
        ("inbox_accounts_30d > 2", true),
        ("inbox_accounts_30d < 3", false),
        ("inbox_accounts_30d <= 3", true),
        ("inbox_accounts_30d == 3", true),
        ("inbox_accounts_30d != 3", false),
        ("inbox_accounts_30d in [1, 3]", true),
        ("inbox_accounts_30d in [1,2]", false),
        ("risk_score < 50", true),
        ("is_corporate_email == true", true),
        ("is_corporate_email != true", false),
        ("is_role == false", true),
        ("reason == safe", true),
        ("reason == \"safe\"", true),
        ("reason != safe", false),
        ("reason in [disposable, safe]", true),
        ("verdict_source in [list, rule]", false),
        ("  domain   ==   Example.COM  ", true),
        ("domain in [\"a.com\", \"example.com\"]", true),
        ("domain != example.com", false),
    ] {
        let condition = Condition::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
        assert_eq!(condition.holds(&facts()), holds, "{text}");
    }
}

#[test]
fn a_fact_without_a_value_never_matches() {
    for text in [
        "domain_accounts_1h >= 0",
        "domain_accounts_1h != 5",
        "domain_accounts_1h < 1000",
        "client_accounts_1h in [0, 1]",
    ] {
        assert!(!Condition::parse(text).unwrap().holds(&facts()), "{text}");
    }
    let unknown = Facts { domain: None, of_domain: None, is_role: None, ..facts() };
    for text in ["domain != a.com", "is_alias == false", "is_role != true"] {
        assert!(!Condition::parse(text).unwrap().holds(&unknown), "{text}");
    }
}

proptest! {
    #[test]
    fn the_place_of_a_fault_is_a_part_of_the_text(text in "[a-z_]{0,12}.{0,30}") {
        if let Err(fault) = Condition::parse(&text) {
            prop_assert!(text.get(fault.at.clone()).is_some(), "{text:?}: {:?}", fault.at);
        }
    }

    #[test]
    fn conditions_with_any_literal_have_a_place(
        fact in prop::sample::select(FACT_NAMES.to_vec()),
        sign in prop::sample::select(vec!["==", "!=", "<", ">=", "in", "=", ""]),
        literal in ".{0,20}",
    ) {
        let text = format!("{fact} {sign} {literal}");
        if let Err(fault) = Condition::parse(&text) {
            prop_assert!(text.get(fault.at.clone()).is_some(), "{text:?}: {:?}", fault.at);
        }
    }
}

#[test]
fn an_operator_of_another_language_is_told_with_ours() {
    let meant = |text: &str| {
        let fault = Condition::parse(text).expect_err(text);
        (text[fault.at].to_owned(), fault.meant)
    };
    for (sign, own) in FOREIGN_OPERATORS {
        let own = Some(own);
        assert_eq!(
            meant(&format!("risk_score {sign} 3")),
            (sign.to_owned(), own.map(str::to_owned))
        );
        assert_eq!(
            meant(&format!("reason {sign} [safe]")),
            (sign.to_owned(), own.map(str::to_owned))
        );
        if !sign.starts_with(is_word_char) {
            assert_eq!(
                meant(&format!("risk_score{sign}3")),
                (sign.to_owned(), own.map(str::to_owned))
            );
        }
    }
    for (text, found, own) in [
        ("risk_score === 3", "===", Some("==")),
        ("risk_score!==3", "!==", Some("!=")),
        ("risk_score <> 3", "<>", Some("!=")),
        ("risk_score=3", "=", Some("==")),
        ("risk_score lt 3", "lt", Some("<")),
        ("risk_score GTE 3", "GTE", Some(">=")),
        ("risk_score ≥ 3", "≥", Some(">=")),
        ("reason IN [safe]", "IN", Some("in")),
        ("is_role  is  not true", "is  not", Some("!=")),
        ("is_role is nothing", "is", Some("==")),
        ("reason includes [safe]", "includes", None),
        ("reason innermost [safe]", "innermost", None),
        ("risk_score <<= 3", "<<=", None),
        ("domain =~ a.com", "=~", Some(NO_PATTERNS_HINT)),
        ("risk_score [3]", "[3]", None),
        ("risk_score 3", "3", None),
    ] {
        assert_eq!(meant(text), (found.to_owned(), own.map(str::to_owned)), "{text}");
    }
}

#[test]
fn a_fault_offers_the_words_that_could_stand_there() {
    for (text, candidates) in [
        ("inbox_accounts >= 3", &FACT_NAMES[..]),
        ("is_role == ture", &TRUTHS[..]),
        ("reason == disposible", &["safe", "disposable", "undeliverable", "role_account"][..]),
        ("risk_score >= x", &[][..]),
        ("risk_score => 3", &[][..]),
    ] {
        let fault = Condition::parse(text).expect_err(text);
        assert_eq!(fault.candidates, candidates, "{text}");
    }
}

#[test]
fn a_condition_that_could_never_hold_is_a_fault() {
    for (text, at, expected) in [
        ("risk_score > 100", 13..16, "a whole number of 0 to 99"),
        ("risk_score < 0", 13..14, "a whole number of 1 to 100"),
        ("inbox_accounts_30d > 1000", 21..25, "a whole number of 0 to 999"),
    ] {
        let fault = Condition::parse(text).expect_err(text);
        assert_eq!((fault.at, fault.expected.as_str()), (at, expected), "{text}");
    }
    for text in ["risk_score > 99", "risk_score < 1", "risk_score <= 0", "risk_score >= 100"] {
        Condition::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
    }
}

#[test]
fn the_counts_of_a_domain_for_an_hour_and_a_day_can_contradict_each_other() {
    for (conditions, contradiction) in [
        (&["domain_accounts_1h > 5", "domain_accounts_1d < 3"][..], Some(1)),
        (&["domain_accounts_1d in [2, 5]", "domain_accounts_1h == 6"], Some(1)),
        (&["domain_accounts_1d != 9", "is_role == true", "domain_accounts_1h >= 1000"], None),
        (&["domain_accounts_1h > 5", "domain_accounts_1d <= 6"], None),
        (&["domain_accounts_1h < 5", "domain_accounts_1d > 6"], None),
        (&["client_accounts_1h > 5", "domain_accounts_1d < 3"], None),
        (&["risk_score > 5", "risk_score < 5", "domain_accounts_1d < 3"], Some(1)),
        (&["is_role == true", "domain_accounts_1h > 5", "is_role == false"], Some(2)),
    ] {
        let parsed = conditions.iter().map(|text| Condition::parse(text).unwrap());
        let found = find_contradiction(&parsed.collect::<Vec<_>>());
        assert_eq!(found, contradiction, "{conditions:?}");
    }
}

#[test]
fn a_fault_says_where_and_what_was_expected() {
    for (text, at, expected) in [
        ("", 0..0, "a fact: domain, risk_score"),
        ("inbox_accounts >= 3", 0..14, "a fact: domain"),
        ("risk_score", 10..10, "an operator"),
        ("risk_score => 3", 11..13, "an operator"),
        ("risk_score = 3", 11..12, "an operator"),
        ("risk_score >=", 13..13, "a number, true"),
        ("risk_score >= x", 14..15, "a whole number of 0 to 100"),
        ("risk_score >= 101", 14..17, "a whole number of 0 to 100"),
        ("risk_score >= \"50\"", 14..18, "a whole number of 0 to 100"),
        ("risk_score >= -1", 14..16, "a whole number of 0 to 100"),
        ("inbox_accounts_30d >= 1001", 22..26, "a whole number of 0 to 1000"),
        ("is_role >= true", 8..10, "== or !="),
        ("is_role == yes", 11..14, "true or false"),
        ("is_role == \"true\"", 11..17, "true or false"),
        ("reason < safe", 7..8, "==, != or in"),
        ("reason == spam", 10..14, "one of safe, disposable"),
        ("reason in safe", 10..14, "a list such as [a, b]"),
        ("reason in []", 11..12, "a number, true"),
        ("reason includes [safe]", 7..15, "an operator: ==, !=,"),
        ("reason in [safe", 15..15, "a comma or ]"),
        ("domain == a b", 12..13, "the end of the condition"),
        ("domain == -", 10..11, "a domain such as example.com"),
        ("domain == \"a.com", 10..16, "a \" at the end"),
        ("risk_score >= 3 and is_role == true", 16..35, "the end of the condition"),
    ] {
        let fault = Condition::parse(text).expect_err(text);
        assert_eq!(fault.at, at, "{text}");
        assert!(fault.expected.starts_with(expected), "{text}: {}", fault.expected);
    }
}
