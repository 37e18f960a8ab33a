//! The table that is built into the binary.

use super::support::{BUNDLED, NOW, describe_answer, look_up};
use crate::model::domain::{DnsName, Domain, SuffixKind};
use crate::model::verdict::{Reason, Rule};

#[test]
fn the_bundled_table_flags_no_real_provider() {
    for name in [
        "gmail.com",
        "googlemail.com",
        "outlook.com",
        "hotmail.com",
        "yahoo.com",
        "proton.me",
        "icloud.com",
        "duck.com",
        "fastmail.com",
        "army.gov",
        "nus.edu.sg",
        "microsoft.com",
        "com.ar",
        "x.ddns.net",
    ] {
        assert_eq!(look_up(&BUNDLED, name).verdict.reason, Reason::Safe, "{name}");
    }
    for row in BUNDLED.rows() {
        let is_icann =
            DnsName::parse(row.name).unwrap().public_suffix_kind() == Some(SuffixKind::Icann);
        let reason = row.own_answer.verdict.reason;
        assert!(!is_icann || !matches!(reason, Reason::Disposable | Reason::RoleAccount));
    }
    assert_eq!(describe_answer(&BUNDLED, "gmail.com"), "safe 0 +free Gmail");
    assert_eq!(describe_answer(&BUNDLED, "microsoft.com"), "safe 0 +corporate Microsoft 365");
}

#[test]
fn the_bundled_table_knows_well_known_names() {
    assert_eq!(describe_answer(&BUNDLED, "yopmail.com"), "disposable 100 Yopmail");
    assert_eq!(look_up(&BUNDLED, "foo.mailinator.com").verdict.reason, Reason::Disposable);
    assert_eq!(look_up(&BUNDLED, "a.nosuchtld").verdict.rule, Rule::UnknownTld);
    assert!(BUNDLED.row_count() > 40_000, "{}", BUNDLED.row_count());
    assert_eq!(BUNDLED.seed()[0], "mailinator.com");
    assert!(BUNDLED.seed().len() > 100);
    assert!(BUNDLED.warnings(NOW).is_empty(), "{:?}", BUNDLED.warnings(NOW));
}

#[test]
fn every_bundled_row_is_found_by_a_look_up() {
    let mut rows = 0;
    for row in BUNDLED.rows() {
        rows += 1;
        let Ok(domain) = Domain::parse(row.name) else { continue };
        let found = BUNDLED.lookup(&domain, NOW);
        assert_eq!(found.matched_at, Some(0), "{}", row.name);
        assert_eq!(found.verdict, row.own_answer.verdict, "{}", row.name);
    }
    assert_eq!(rows, BUNDLED.row_count());
}
