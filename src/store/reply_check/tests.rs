use super::*;
use crate::store::TotalsKnownToNode;

const VALID_REPORT: LeaseReport = LeaseReport {
    account: String::new(),
    month: Month::FIRST,
    sequence: 7,
    target: 64,
    floor: 40,
    spent: 30,
    limit: Some(100),
    known: TotalsKnownToNode {
        sequence: 6,
        revision: 9,
        leased_by_all: 70,
        spent_by_all: 50,
        own_leased: 40,
        reported_leased: 40,
        reported_spent: 30,
    },
    usage: Vec::new(),
};
const VALID_GRANT: Grant = Grant {
    own_leased: 64,
    others_leased: 36,
    others_spent: 20,
    revision: 10,
    is_recovering: false,
};

fn violated_rule(grant: Grant) -> &'static str {
    match check_grant(&VALID_REPORT, &grant) {
        Ok(()) => "",
        Err(StoreError::InvalidReply { expected, .. }) => expected,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_grant_that_keeps_all_rules_is_accepted() {
    assert_eq!(violated_rule(VALID_GRANT), "");
    assert_eq!(violated_rule(Grant { own_leased: 40, others_leased: 90, ..VALID_GRANT }), "");
    assert_eq!(violated_rule(Grant { revision: 3, is_recovering: true, ..VALID_GRANT }), "");
    let unlimited = LeaseReport { limit: None, ..VALID_REPORT };
    assert!(check_grant(&unlimited, &Grant { others_leased: 1 << 62, ..VALID_GRANT }).is_ok());
}

#[test]
fn a_grant_that_breaks_a_rule_is_an_error() {
    let too_large = 1 << 63;
    for grant in [
        Grant { own_leased: too_large, ..VALID_GRANT },
        Grant { others_leased: too_large - 64, ..VALID_GRANT },
        Grant { others_leased: u64::MAX, ..VALID_GRANT },
        Grant { others_spent: u64::MAX, ..VALID_GRANT },
        Grant { revision: too_large, ..VALID_GRANT },
    ] {
        assert_eq!(violated_rule(grant), "numbers below 2^63", "{grant:?}");
    }
    let below = Grant { own_leased: 39, ..VALID_GRANT };
    assert_eq!(violated_rule(below), "at least the calls that this node reported");
    let above = Grant { own_leased: 65, others_leased: 0, ..VALID_GRANT };
    assert_eq!(violated_rule(above), "at most the calls that this node asked for");
    let over_limit = Grant { others_leased: 37, ..VALID_GRANT };
    assert_eq!(violated_rule(over_limit), "no more calls than the limit");
    let older = Grant { revision: 8, ..VALID_GRANT };
    assert_eq!(violated_rule(older), "the revision that it acknowledged, or a later one");
}

#[test]
fn impossible_probes_and_totals_are_errors() {
    let probe = |unix_now, seconds| Probe {
        unix_now,
        recovery_left: Duration::from_secs(seconds),
        ..Probe::default()
    };
    for sound in [probe(None, 0), probe(Some(1_795_000_000), 3)] {
        assert!(check_probe(sound).is_ok());
    }
    for wrong in [probe(Some(-1), 0), probe(Some(i64::MAX), 0), probe(None, 61)] {
        assert!(check_probe(wrong).is_err());
    }
    assert!(check_total_below_2_to_63("acme", i64::MAX as u64).is_ok());
    assert!(check_total_below_2_to_63("acme", 1 << 63).is_err());
}
