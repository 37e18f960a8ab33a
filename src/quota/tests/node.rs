//! Tests of a node: its final reports, urgent requests, refunds to the store, and invalid grants.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{NOVEMBER_END, open_store};
use crate::model::month::Month;
use crate::quota::accounting::LeaseAccounting;
use crate::quota::calendar::Calendar;
use crate::quota::lease_report::ReportReason;
use crate::quota::node::Node;
use crate::quota::spending::ChargeProgress;
use crate::quota::{Denial, FailurePolicy};
use crate::store::MonthlyLimit;

#[test]
fn the_final_report_of_a_month_does_not_wait_for_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open_store(&folder.path().join("store.db"));
    let node = Node::new([7; 16], Calendar::new(None, NOVEMBER_END, 0), FailurePolicy::Open, 0);
    let lease = node.open_lease("acme", MonthlyLimit::Calls(10_000));
    let mut exchange_reports = |reason| {
        let batch = node.collect_reports(std::slice::from_ref(&lease), reason);
        let (id, month) = (node.id, node.calendar.latest_month());
        let context = crate::store::ReportBatchContext {
            node_id: &id,
            latest_begun_month: month,
            recovery_left: Duration::ZERO,
            needs_replicas: true,
        };
        let grants = store.report_leases(context, &batch.reports).unwrap();
        node.deliver_grants(batch, Some(grants), 1);
    };
    let month = Month::containing(NOVEMBER_END);
    lease.record_requested_month(month);
    exchange_reports(ReportReason::CallsNeeded);
    assert!(node.try_charge(&lease, month, 1).is_some());
    // The node sleeps so long that another process deletes the month's totals.
    let later = NOVEMBER_END + 500 * 86_400;
    node.calendar.month_to_charge(later, || 500 * 86_400);
    exchange_reports(ReportReason::Tick);
    exchange_reports(ReportReason::Tick);
    assert!(lease.is_fully_reported(), "the final report was accepted");
}

#[test]
fn a_refill_is_urgent_only_when_held_calls_may_run_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open_store(&folder.path().join("store.db"));
    let node = Node::new([7; 16], Calendar::new(None, NOVEMBER_END, 0), FailurePolicy::Open, 0);
    let lease = node.open_lease("acme", MonthlyLimit::Calls(1_000_000));
    let month = Month::containing(NOVEMBER_END);
    let was_urgent = || node.has_urgent_request.swap(false, Ordering::Relaxed);
    lease.record_requested_month(month);
    let mut requests = Vec::new();
    for call in 0..2_000 {
        if node.try_charge(&lease, month, 1).is_some()
            && node.lock_lease_queue().waiting_leases.is_empty()
        {
            continue;
        }
        requests.push((call, was_urgent()));
        node.lock_lease_queue().waiting_leases.clear();
        let batch = node.collect_reports(std::slice::from_ref(&lease), ReportReason::CallsNeeded);
        let context = crate::store::ReportBatchContext {
            node_id: &node.id,
            latest_begun_month: month,
            recovery_left: Duration::ZERO,
            needs_replicas: true,
        };
        let grants = store.report_leases(context, &batch.reports).unwrap();
        node.deliver_grants(batch, Some(grants), 1);
    }
    // No tick passes, so the node counts all calls as made in one second. The measured rate rises,
    // and the held calls last for a shorter and shorter time.
    let first = requests.iter().position(|(_, is_urgent)| *is_urgent).expect("an urgent request");
    assert!(requests[..first].len() > 5 && requests[first].0 > 100, "{requests:?}");
    assert!(requests[first..].iter().all(|(_, is_urgent)| *is_urgent), "{requests:?}");
}

#[test]
fn a_call_refunded_to_the_store_counts_as_remaining_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open_store(&folder.path().join("store.db"));
    let node = Node::new([7; 16], Calendar::new(None, NOVEMBER_END, 0), FailurePolicy::Open, 0);
    // At this limit a node holds one call at most.
    let lease = node.open_lease("acme", MonthlyLimit::Calls(100));
    let month = Month::containing(NOVEMBER_END);
    lease.record_requested_month(month);
    let mut request_calls = || {
        let batch = node.collect_reports(std::slice::from_ref(&lease), ReportReason::CallsNeeded);
        let context = crate::store::ReportBatchContext {
            node_id: &node.id,
            latest_begun_month: month,
            recovery_left: Duration::ZERO,
            needs_replicas: true,
        };
        let grants = store.report_leases(context, &batch.reports).unwrap();
        node.deliver_grants(batch, Some(grants), 1);
    };
    request_calls();
    let charge = node.try_charge(&lease, month, 1).unwrap();
    assert_eq!(charge.remaining, Some(99));
    // The node holds another call when the first one is refunded.
    request_calls();
    assert!(node.refund(&lease, charge));
    assert_eq!(node.try_charge(&lease, month, 1).unwrap().remaining, Some(99));
}

#[test]
fn a_call_that_can_no_longer_be_refunded_stays_spent() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open_store(&folder.path().join("store.db"));
    let node = Node::new([7; 16], Calendar::new(None, NOVEMBER_END, 0), FailurePolicy::Open, 9);
    let lease = node.open_lease("acme", MonthlyLimit::Calls(1_000));
    let month = Month::containing(NOVEMBER_END);
    let settle = |store: &mut crate::store::Store| {
        let batch = node.collect_reports(std::slice::from_ref(&lease), ReportReason::CallsNeeded);
        let context = crate::store::ReportBatchContext {
            node_id: &node.id,
            latest_begun_month: month,
            recovery_left: Duration::ZERO,
            needs_replicas: true,
        };
        let grants = store.report_leases(context, &batch.reports).unwrap();
        node.deliver_grants(batch, Some(grants), 1);
    };
    lease.record_requested_month(month);
    let unbacked = [0; 2]
        .map(|_| node.charge_after_timeout(&lease, month, 1, true).expect("an unbacked call"));
    let [reported, unreported] = unbacked;
    assert!(reported.is_unbacked && node.refund(&lease, unreported), "the store does not know it");
    settle(&mut store);
    assert!(!node.refund(&lease, reported), "the store counts it");
    let leased = node.try_charge(&lease, month, 1).unwrap();
    node.open_lease("acme", MonthlyLimit::Calls(2_000));
    assert!(!node.refund(&lease, leased), "the limit has changed");
    assert_eq!(lease.own_spent(month), 2);
}

#[test]
fn a_grant_that_breaks_a_rule_is_an_outage_for_its_account_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open_store(&folder.path().join("store.db"));
    let node = Node::new([7; 16], Calendar::new(None, NOVEMBER_END, 0), FailurePolicy::Open, 10);
    let leases = ["spoilt", "sound"].map(|name| node.open_lease(name, MonthlyLimit::Calls(10_000)));
    let month = Month::containing(NOVEMBER_END);
    leases.iter().for_each(|lease| lease.record_requested_month(month));
    let batch = node.collect_reports(&leases, ReportReason::CallsNeeded);
    let context = crate::store::ReportBatchContext {
        node_id: &node.id,
        latest_begun_month: month,
        recovery_left: Duration::ZERO,
        needs_replicas: true,
    };
    let mut grants = store.report_leases(context, &batch.reports).unwrap();
    grants[0].as_mut().unwrap().own_leased += 1;
    node.deliver_grants(batch, Some(grants), 1);
    let [spoilt, sound] = leases.map(|lease| node.charge(&lease, month, 1, 1));
    assert!(matches!(spoilt, ChargeProgress::Done(Ok(charge)) if charge.is_unbacked));
    assert!(matches!(sound, ChargeProgress::Done(Ok(charge)) if !charge.is_unbacked));
}

#[test]
fn unsettled_calls_of_an_account_that_fails_alone_take_none_from_other_accounts() {
    let node = Node::new([7; 16], Calendar::new(None, NOVEMBER_END, 0), FailurePolicy::Open, 10);
    let [faulty, sound] =
        ["faulty", "sound"].map(|name| node.open_lease(name, MonthlyLimit::Calls(10_000)));
    let month = Month::containing(NOVEMBER_END);
    node.health.is_down.store(true, Ordering::Relaxed);
    let admit = |lease, calls: usize| -> Vec<_> {
        let admit_one = || match node.charge(lease, month, 1, 1) {
            ChargeProgress::Done(outcome) => outcome.ok(),
            ChargeProgress::Wait => panic!("the store is down"),
        };
        (0..calls).map_while(|_| admit_one()).collect()
    };
    let report = |reply: fn(&crate::store::LeaseReport) -> crate::store::ReportOutcome| {
        let leases = std::slice::from_ref(&faulty);
        let batch = node.collect_reports(leases, ReportReason::CallsNeeded);
        let replies = batch.reports.iter().map(reply).collect();
        node.deliver_grants(batch, Some(replies), 1);
    };
    assert_eq!(admit(&faulty, 4).len(), 4);
    report(|_| Err(crate::store::StoreError::Conflict("lost".to_owned())));
    assert_eq!(node.account_faults.describe_present_faults(60_000), ["account faulty: lost"]);
    let of_past_month = node.account_faults.describe_present_faults(60_001);
    assert_eq!(of_past_month.len(), 0, "no report shows it any longer");
    let mut own = admit(&faulty, 20);
    assert_eq!((own.len(), admit(&sound, 20).len()), (6, 10));
    assert_eq!(node.unsettled_calls.total(), 20);
    assert!(node.refund(&faulty, own.remove(0)));
    assert_eq!((admit(&faulty, 20).len(), admit(&sound, 20).len()), (1, 0));
    report(|report| {
        let totals = crate::store::Grant {
            own_leased: report.floor,
            others_leased: 0,
            others_spent: 0,
            revision: 0,
            is_recovering: false,
        };
        Ok(totals)
    });
    assert_eq!(
        (node.unsettled_calls.total(), node.account_faults.describe_present_faults(1).len()),
        (10, 0)
    );
    assert_eq!((admit(&faulty, 1).len(), admit(&sound, 1).len()), (0, 0), "together again");
}

/// A release build panics too, because Cargo.toml sets `overflow-checks`.
#[test]
#[should_panic(expected = "overflow")]
fn an_overflowing_sum_of_leased_calls_panics() {
    let mut accounting = LeaseAccounting::new(None);
    (accounting.own_leased, accounting.others_leased) = (u64::MAX, 1);
    accounting.leased_by_all();
}

#[test]
fn a_batch_gets_its_calls_in_one_report_and_belongs_to_one_month() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open_store(&folder.path().join("store.db"));
    let node = Node::new([7; 16], Calendar::new(None, NOVEMBER_END, 0), FailurePolicy::Open, 0);
    let lease = node.open_lease("acme", MonthlyLimit::Calls(1_000));
    let mut exchange_reports = || {
        let leases = std::slice::from_ref(&lease);
        let batch = node.collect_reports(leases, ReportReason::CallsNeeded);
        let context = crate::store::ReportBatchContext {
            node_id: &node.id,
            latest_begun_month: node.calendar.latest_month(),
            recovery_left: Duration::ZERO,
            needs_replicas: true,
        };
        let grants = store.report_leases(context, &batch.reports).unwrap();
        node.deliver_grants(batch, Some(grants), 1);
    };
    let november = Month::containing(NOVEMBER_END);
    let charge = |month, calls| match node.charge(&lease, month, calls, 1) {
        ChargeProgress::Done(outcome) => {
            Some(outcome.map(|it| (it.month(), it.calls, it.remaining)))
        }
        ChargeProgress::Wait => None,
    };
    assert_eq!(charge(november, 900), None);
    exchange_reports();
    assert_eq!(charge(november, 900), Some(Ok((november, 900, Some(100)))));
    node.end_batch(&lease);
    // In the last hundredth, too.
    assert_eq!(charge(november, 95), None);
    exchange_reports();
    assert_eq!(charge(november, 95), Some(Ok((november, 95, Some(5)))));
    node.end_batch(&lease);
    assert_eq!(charge(november, 6), None);
    exchange_reports();
    assert_eq!(charge(november, 6), Some(Err(Denial::Exhausted)));
    node.end_batch(&lease);
    assert_eq!(lease.remaining_calls(november), Some(5));
    assert_eq!(charge(november, 1_001), Some(Err(Denial::Exhausted)), "more than the limit");
    // December begins when a batch has its calls and has not spent them: all count in December.
    assert_eq!(charge(november, 5), None);
    exchange_reports();
    let december = node.calendar.month_to_charge(NOVEMBER_END + 1, || 1);
    assert!(december > november);
    exchange_reports();
    assert_eq!(charge(november, 5), Some(Ok((december, 5, Some(995)))));
    node.end_batch(&lease);
    exchange_reports();
    exchange_reports();
    let spent = |month| store_spent(&mut store, month);
    assert_eq!([november, december].map(spent), [995, 5]);
}

fn store_spent(store: &mut crate::store::Store, month: Month) -> u64 {
    store.read_spent_by_others("acme", month, &[0; 16]).unwrap()
}

#[test]
fn a_refunded_call_is_asked_for_again_while_it_returns_to_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open_store(&folder.path().join("store.db"));
    let node = Node::new([7; 16], Calendar::new(None, NOVEMBER_END, 0), FailurePolicy::Open, 0);
    let lease = node.open_lease("acme", MonthlyLimit::Calls(1));
    let month = Month::containing(NOVEMBER_END);
    let charge = || match node.charge(&lease, month, 1, 1) {
        ChargeProgress::Done(outcome) => Some(outcome),
        ChargeProgress::Wait => None,
    };
    let collect = |reason| node.collect_reports(std::slice::from_ref(&lease), reason);
    let mut deliver = |batch: crate::quota::node::ReportBatch| {
        let context = crate::store::ReportBatchContext {
            node_id: &node.id,
            latest_begun_month: month,
            recovery_left: Duration::ZERO,
            needs_replicas: true,
        };
        let grants = store.report_leases(context, &batch.reports).unwrap();
        node.deliver_grants(batch, Some(grants), 1);
    };
    assert!(charge().is_none());
    deliver(collect(ReportReason::CallsNeeded));
    let spent = charge().unwrap().unwrap();
    // The call comes back while the report that asks for another is under way.
    assert!(charge().is_none());
    let under_way = collect(ReportReason::CallsNeeded);
    assert!(node.refund(&lease, spent));
    deliver(under_way);
    assert!(charge().is_none(), "it is asked for");
    deliver(collect(ReportReason::CallsNeeded));
    let spent = charge().unwrap().unwrap();
    // The month is known to be spent, the call comes back, and an idle lease returns it.
    assert!(charge().is_none());
    deliver(collect(ReportReason::CallsNeeded));
    assert_eq!(charge().unwrap().err(), Some(Denial::Exhausted));
    deliver(collect(ReportReason::Tick));
    assert!(node.refund(&lease, spent));
    deliver(collect(ReportReason::Tick));
    let under_way = collect(ReportReason::Tick);
    assert!(charge().is_none(), "it is asked for");
    deliver(under_way);
    assert!(charge().is_none());
    deliver(collect(ReportReason::CallsNeeded));
    assert!(charge().unwrap().is_ok());
}
