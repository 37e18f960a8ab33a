use super::*;
use crate::store::TotalsKnownToNode;

#[test]
fn beyond_ten_the_faults_are_counted_and_not_their_accounts() {
    let faults = AccountFaults::default();
    let months = [Month::FIRST, Month::from_number(Month::FIRST.number() + 1).unwrap()];
    for account in ["a", "b", "c", "d", "e", "f"] {
        for month in months {
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
            assert!(faults.keep_valid_grant(&report, outcome, 0).is_none());
        }
    }
    let texts = faults.describe_present_faults(0);
    assert_eq!(texts[9..], ["account e: lost", "2 more such faults"]);
}
