use super::*;
use crate::store::TotalsKnownToNode;

fn show_fault(faults: &AccountFaults, account: &str, month: Month, uptime_ms: u64) {
    let report = LeaseReport {
        account: account.to_owned(),
        month,
        sequence: 1,
        target: 0,
        floor: 0,
        spent: 0,
        limit: None,
        known: TotalsKnownToNode::default(),
        usage: Vec::new(),
    };
    let outcome = Err(StoreError::Conflict("lost".to_owned()));
    assert!(faults.keep_valid_grant(&report, outcome, uptime_ms).is_none());
}

#[test]
fn a_fault_that_begins_again_after_it_was_over_is_logged_again() {
    let faults = AccountFaults::default();
    for uptime_ms in [0, 1_000, FAULT_LOG_PERIOD_MS] {
        show_fault(&faults, "a", Month::FIRST, uptime_ms);
    }
    assert_eq!(faults.0.lock().unwrap().logged_in_period, 0, "it has lasted since the start");
    show_fault(&faults, "a", Month::FIRST, FAULT_LOG_PERIOD_MS + FAULT_FORGOTTEN_AFTER_MS);
    assert_eq!(faults.0.lock().unwrap().logged_in_period, 1);
}

#[test]
fn beyond_ten_the_faults_are_counted_and_not_their_accounts() {
    let faults = AccountFaults::default();
    let months = [Month::FIRST, Month::from_number(Month::FIRST.number() + 1).unwrap()];
    for account in ["a", "b", "c", "d", "e", "f"] {
        for month in months {
            show_fault(&faults, account, month, 0);
        }
    }
    let texts = faults.describe_present_faults(0);
    assert_eq!(texts[9..], ["account e: lost", "2 more such faults"]);
}
