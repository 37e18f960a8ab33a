use std::time::Duration;

use super::*;
use crate::model::believed_time::{BelievedTime, TimeTrust};

/// Reports about a few months, each as soon as it has begun, and returns how many rows each has
/// left.
fn months_left(trust: TimeTrust) -> [usize; 4] {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(&folder.path().join("s.db"), Duration::from_secs(5)).unwrap();
    let month = |number| Month::from_number(number).unwrap();
    for now in [300, 312, 313, 325] {
        let report = LeaseReport {
            account: "acme".to_owned(),
            month: month(now),
            sequence: u64::from(now),
            target: 1,
            floor: 0,
            spent: 0,
            limit: None,
            known: Default::default(),
            usage: Vec::new(),
        };
        let context = ReportBatchContext {
            node_id: &[1; 16],
            latest_begun_month: month(now),
            recovery_left: Duration::ZERO,
            needs_replicas: true,
        };
        store.told_time.set(BelievedTime { unix_now: month(now).start(), trust });
        store.report_leases(context, &[report]).unwrap();
    }
    [300, 312, 313, 325].map(|number| store.read_usage(month(number), None).unwrap().len())
}

fn report_about(account: &str, sequence: u64) -> LeaseReport {
    LeaseReport {
        account: account.to_owned(),
        month: Month::FIRST,
        sequence,
        target: 5,
        floor: 0,
        spent: 0,
        limit: Some(1_000),
        known: Default::default(),
        usage: Vec::new(),
    }
}

#[test]
fn totals_that_riskgate_writes_to_no_row_fail_only_their_account() {
    const MAX: i64 = i64::MAX;
    for damage in [
        format!("('victim', 0, x'aa', 1, {MAX}, 0), ('victim', 0, x'ab', 1, {MAX}, 0)"),
        format!("('victim', 0, x'aa', 1, 0, {MAX}), ('victim', 0, x'ab', 1, 0, {MAX})"),
        "('victim', 0, x'aa', 1, 9, -5), ('victim', 0, x'ab', 1, 9, 9)".to_owned(),
        "('victim', 0, x'aa', 1, 9, 'many')".to_owned(),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.db");
        let mut store = Sqlite::open(&path, Duration::from_secs(5)).unwrap();
        let insert = format!("INSERT INTO ledger VALUES {damage}");
        store.connection.execute_batch(&insert).unwrap();
        let context = ReportBatchContext {
            node_id: &[1; 16],
            latest_begun_month: Month::FIRST,
            recovery_left: Duration::ZERO,
            needs_replicas: true,
        };
        let reports = ["before", "victim", "after"].map(|name| report_about(name, 1));
        let outcomes = store.report_leases(context, &reports).unwrap();
        let leased: Vec<Option<u64>> =
            outcomes.into_iter().map(|outcome| Some(outcome.ok()?.own_leased)).collect();
        assert_eq!(leased, [Some(5), None, Some(5)], "{damage}");
        let usage = store.read_usage(Month::FIRST, None).unwrap();
        let usage: Vec<_> = usage.iter().map(|row| (&*row.account, row.is_damaged)).collect();
        assert_eq!(usage, [("after", false), ("before", false), ("victim", true)], "{damage}");
    }
}

#[test]
fn a_new_month_deletes_totals_older_than_thirteen_months_if_the_time_is_settled() {
    assert_eq!(months_left(TimeTrust::Settled), [0, 1, 1, 1]);
    for trust in [TimeTrust::Known, TimeTrust::LowerBound] {
        assert_eq!(months_left(trust), [1, 1, 1, 1], "{trust:?}");
    }
}
