//! The table that is built into the binary.

use super::support::{BUNDLED_TABLE, NOW, describe_answer, look_up};
use crate::model::domain::{DnsName, Domain, SuffixKind};
use crate::model::verdict::{Reason, Rule};

#[test]
fn the_bundled_table_flags_no_well_known_domain_and_no_icann_suffix() {
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
        "x.eu.org",
    ] {
        assert_eq!(look_up(&BUNDLED_TABLE, name).verdict.reason, Reason::Safe, "{name}");
    }
    for row in BUNDLED_TABLE.iter_rows() {
        let is_icann =
            DnsName::parse(row.name).unwrap().kind_if_public_suffix() == Some(SuffixKind::Icann);
        let reason = row.own_answer.verdict.reason;
        assert!(!is_icann || !matches!(reason, Reason::Disposable | Reason::RoleAccount));
    }
    assert_eq!(describe_answer(&BUNDLED_TABLE, "gmail.com"), "safe 0 +free Gmail");
    assert_eq!(describe_answer(&BUNDLED_TABLE, "microsoft.com"), "safe 0 +corporate Microsoft 365");
}

#[test]
fn the_bundled_table_flags_known_services_and_has_rows_and_seed() {
    assert_eq!(describe_answer(&BUNDLED_TABLE, "yopmail.com"), "disposable 100 Yopmail");
    assert_eq!(look_up(&BUNDLED_TABLE, "foo.mailinator.com").verdict.reason, Reason::Disposable);
    assert_eq!(look_up(&BUNDLED_TABLE, "a.nosuchtld").verdict.rule, Rule::UnknownTld);
    assert!(BUNDLED_TABLE.row_count() > 40_000, "{}", BUNDLED_TABLE.row_count());
    assert_eq!(BUNDLED_TABLE.top_list_seed()[0], "mailinator.com");
    assert!(BUNDLED_TABLE.top_list_seed().len() > 100);
    assert!(BUNDLED_TABLE.warnings(NOW).is_empty(), "{:?}", BUNDLED_TABLE.warnings(NOW));
}

#[test]
fn the_bundled_table_knows_providers_agents_dynamic_dns_and_bulk_names() {
    for (name, rule) in [
        ("engineer.com", Rule::Protected),
        ("hansen.dk", Rule::Free),
        ("online.ms", Rule::Free),
        ("bravealias.com", Rule::Alias),
        ("agentmail.to", Rule::AgentInbox),
        ("any-name.camdvr.org", Rule::FreeSubdomain),
        ("any-name.ddns.net", Rule::FreeSubdomain),
        ("6230145.xyz", Rule::BulkName),
        ("qwrtz.makeup", Rule::BulkName),
        ("edu.any-name.online", Rule::BulkName),
        ("mail.any-name.cloud", Rule::Unknown),
        ("craft.beer", Rule::Unknown),
        ("outlook.any-name.com", Rule::Unknown),
        ("grok.x.ai", Rule::Protected),
        ("pec.it", Rule::Protected),
        ("restmail.net", Rule::DisposableC),
    ] {
        assert_eq!(look_up(&BUNDLED_TABLE, name).verdict.rule, rule, "{name}");
    }
}

#[test]
fn no_name_that_is_known_as_real_is_disposable() {
    for file in ["known.txt", "real-names.txt"] {
        let text = std::fs::read_to_string(format!("{}/data/{file}", env!("CARGO_MANIFEST_DIR")));
        for name in text.unwrap().lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            assert_ne!(look_up(&BUNDLED_TABLE, name).verdict.reason, Reason::Disposable, "{name}");
        }
    }
}

#[test]
fn every_bundled_row_is_found_by_a_look_up() {
    let mut rows = 0;
    for row in BUNDLED_TABLE.iter_rows() {
        rows += 1;
        let Ok(domain) = Domain::parse(row.name) else { continue };
        let found = BUNDLED_TABLE.lookup(&domain, NOW);
        assert_eq!(found.matched_name_offset, Some(0), "{}", row.name);
        assert_eq!(found.verdict, row.own_answer.verdict, "{}", row.name);
    }
    assert_eq!(rows, BUNDLED_TABLE.row_count());
}
