//! Calls that were counted or requested before the first reading of the store's clock.

use std::sync::atomic::Ordering;

use super::NOVEMBER_END;
use crate::model::month::Month;
use crate::quota::FailurePolicy;
use crate::quota::calendar::Calendar;
use crate::quota::lease_report::ReportReason;
use crate::quota::node::Node;
use crate::quota::spending::ChargeProgress;
use crate::store::MonthlyLimit;

/// Returns a node that treats the store as down, and the time on its machine's clock, which is 40
/// days ahead.
fn node_with_clock_ahead(on_failure: FailurePolicy) -> (Node, i64) {
    let wrong = NOVEMBER_END + 40 * 86_400;
    let node = Node::new([7; 16], Calendar::new(None, wrong, 0), on_failure, 10);
    node.health.is_down.store(true, Ordering::Relaxed);
    (node, wrong)
}

#[test]
fn calls_admitted_under_a_wrong_clock_count_in_the_month_that_the_store_says() {
    let (node, wrong) = node_with_clock_ahead(FailurePolicy::Open);
    let lease = node.open_lease("acme", MonthlyLimit::Calls(100));
    let month = node.calendar.month_to_charge(wrong, || 0);
    let ChargeProgress::Done(Ok(charge)) = node.charge(&lease, month, 1, 1) else { panic!("open") };
    assert_eq!(charge.month(), month);
    node.calendar.observe_store_clock(NOVEMBER_END, wrong, 1);
    let now = Month::containing(NOVEMBER_END);
    assert_eq!(
        node.calendar.month_to_charge(NOVEMBER_END, || 1),
        now,
        "all nodes count in one month"
    );
    // A call charged to the wrong, later month is admitted in the current month.
    assert!(matches!(node.charge(&lease, month, 1, 1), ChargeProgress::Done(Ok(_))));
    let batch = node.collect_reports(std::slice::from_ref(&lease), ReportReason::CallsNeeded, 1);
    let reported: Vec<(Month, u64)> =
        batch.reports.iter().map(|report| (report.month, report.spent)).collect();
    assert_eq!(reported, [(now, 2)]);
}

#[test]
fn a_month_only_requested_before_the_first_probe_is_never_reported() {
    for on_failure in [FailurePolicy::Closed, FailurePolicy::Open] {
        let (node, wrong) = node_with_clock_ahead(on_failure);
        node.health.is_down.store(on_failure == FailurePolicy::Closed, Ordering::Relaxed);
        let lease = node.open_lease("acme", MonthlyLimit::Calls(100));
        let month = node.calendar.month_to_charge(wrong, || 0);
        assert!(!matches!(node.charge(&lease, month, 1, 1), ChargeProgress::Done(Ok(_))));
        node.calendar.observe_store_clock(NOVEMBER_END, wrong, 1);
        let now = Month::containing(NOVEMBER_END);
        // The waiting call requests a lease again.
        node.health.is_down.store(false, Ordering::Relaxed);
        assert!(matches!(node.charge(&lease, month, 1, 1), ChargeProgress::Wait));
        let batch =
            node.collect_reports(std::slice::from_ref(&lease), ReportReason::CallsNeeded, 1);
        let months: Vec<Month> = batch.reports.iter().map(|report| report.month).collect();
        assert_eq!(months, [now]);
    }
}
