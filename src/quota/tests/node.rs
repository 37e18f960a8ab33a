//! Tests of a node: its final reports, urgent requests, refunds to the store, and invalid grants.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{NOVEMBER_END, open_store};
use crate::model::month::Month;
use crate::model::route_label::RouteLabel;
use crate::quota::accounting::LeaseAccounting;
use crate::quota::calendar::Calendar;
use crate::quota::key_usage::UsageDay;
use crate::quota::lease::Lease;
use crate::quota::lease_report::ReportReason;
use crate::quota::node::{Node, ReportBatch};
use crate::quota::spending::ChargeProgress;
use crate::quota::{Denial, FailurePolicy};
use crate::store::{
    Grant, LeaseReport, MonthlyLimit, ReportBatchContext, ReportOutcome, Store, StoreError,
};
use tempfile::TempDir;

/// An empty store that grants what a node asks for.
struct TestStore(RefCell<Store>, #[expect(dead_code, reason = "holds the file")] TempDir);

impl TestStore {
    fn open() -> TestStore {
        let folder = tempfile::tempdir().unwrap();
        TestStore(RefCell::new(open_store(&folder.path().join("store.db"))), folder)
    }

    fn decide_grants(&self, node: &Node, batch: &ReportBatch) -> Vec<ReportOutcome> {
        let context = ReportBatchContext {
            node_id: &node.id,
            latest_begun_month: node.calendar.latest_month(),
            recovery_left: Duration::ZERO,
            needs_replicas: true,
        };
        self.0.borrow_mut().report_leases(context, &batch.reports).unwrap()
    }

    fn answer(&self, node: &Node, batch: ReportBatch) {
        let grants = self.decide_grants(node, &batch);
        node.deliver_grants(batch, Some(grants), 1);
    }

    fn exchange(&self, node: &Node, lease: &Arc<Lease>, reason: ReportReason) {
        self.answer(node, node.collect_reports(std::slice::from_ref(lease), reason, 1));
    }
}

#[test]
fn the_final_report_of_a_month_does_not_wait_for_a_call() {
    let store = TestStore::open();
    let node = Node::new([7; 16], Calendar::new(None, NOVEMBER_END, 0), FailurePolicy::Open, 0);
    let lease = node.open_lease("acme", MonthlyLimit::Calls(10_000));
    let exchange_reports = |reason| {
        store.exchange(&node, &lease, reason);
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
    let store = TestStore::open();
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
        store.exchange(&node, &lease, ReportReason::CallsNeeded);
    }
    // No tick passes, so the node counts all calls as made in one second. The measured rate rises,
    // and the held calls last for a shorter and shorter time.
    let first = requests.iter().position(|(_, is_urgent)| *is_urgent).expect("an urgent request");
    assert!(requests[..first].len() > 5 && requests[first].0 > 100, "{requests:?}");
    assert!(requests[first..].iter().all(|(_, is_urgent)| *is_urgent), "{requests:?}");
}

#[test]
fn a_call_refunded_to_the_store_counts_as_remaining_at_once() {
    let store = TestStore::open();
    let node = Node::new([7; 16], Calendar::new(None, NOVEMBER_END, 0), FailurePolicy::Open, 0);
    // At this limit a node holds one call at most.
    let lease = node.open_lease("acme", MonthlyLimit::Calls(100));
    let month = Month::containing(NOVEMBER_END);
    lease.record_requested_month(month);
    let request_calls = || {
        store.exchange(&node, &lease, ReportReason::CallsNeeded);
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
    let store = TestStore::open();
    let node = Node::new([7; 16], Calendar::new(None, NOVEMBER_END, 0), FailurePolicy::Open, 9);
    let lease = node.open_lease("acme", MonthlyLimit::Calls(1_000));
    let month = Month::containing(NOVEMBER_END);
    lease.record_requested_month(month);
    let unbacked = [0; 2]
        .map(|_| node.charge_after_timeout(&lease, month, 1, true).expect("an unbacked call"));
    let [reported, unreported] = unbacked;
    assert!(reported.is_unbacked && node.refund(&lease, unreported), "the store does not know it");
    store.exchange(&node, &lease, ReportReason::CallsNeeded);
    assert!(!node.refund(&lease, reported), "the store counts it");
    let leased = node.try_charge(&lease, month, 1).unwrap();
    node.open_lease("acme", MonthlyLimit::Calls(2_000));
    assert!(!node.refund(&lease, leased), "the limit has changed");
    assert_eq!(lease.own_spent(month), 2);
}

#[test]
fn a_grant_that_breaks_a_rule_is_an_outage_for_its_account_alone() {
    let store = TestStore::open();
    let node = Node::new([7; 16], Calendar::new(None, NOVEMBER_END, 0), FailurePolicy::Open, 10);
    let leases = ["spoilt", "sound"].map(|name| node.open_lease(name, MonthlyLimit::Calls(10_000)));
    let month = Month::containing(NOVEMBER_END);
    leases.iter().for_each(|lease| lease.record_requested_month(month));
    let batch = node.collect_reports(&leases, ReportReason::CallsNeeded, 1);
    let mut grants = store.decide_grants(&node, &batch);
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
    let report = |reply: fn(&LeaseReport) -> ReportOutcome| {
        let leases = std::slice::from_ref(&faulty);
        let batch = node.collect_reports(leases, ReportReason::CallsNeeded, 1);
        let replies = batch.reports.iter().map(reply).collect();
        node.deliver_grants(batch, Some(replies), 1);
    };
    assert_eq!(admit(&faulty, 4).len(), 4);
    report(|_| Err(StoreError::Conflict("lost".to_owned())));
    assert_eq!(node.account_faults.describe_present_faults(60_000), ["account faulty: lost"]);
    let of_past_month = node.account_faults.describe_present_faults(60_001);
    assert_eq!(of_past_month.len(), 0, "no report shows it any longer");
    let mut own = admit(&faulty, 20);
    assert_eq!((own.len(), admit(&sound, 20).len()), (6, 10));
    assert_eq!(node.unsettled_calls.total(), 20);
    assert!(node.refund(&faulty, own.remove(0)));
    assert_eq!((admit(&faulty, 20).len(), admit(&sound, 20).len()), (1, 0));
    report(|report| {
        let totals = Grant {
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

#[test]
fn a_batch_carries_the_totals_of_all_accounts_and_a_limited_number_of_counts() {
    let store = TestStore::open();
    let node = Node::new([7; 16], Calendar::new(None, NOVEMBER_END, 0), FailurePolicy::Open, 0);
    let leases = ["many", "few"].map(|name| node.open_lease(name, MonthlyLimit::Calls(10_000)));
    let month = Month::containing(NOVEMBER_END);
    for (lease, keys) in leases.iter().zip([2_500, 3]) {
        lease.record_requested_month(month);
        for key in 0..keys {
            let usage = lease.usage_of_key(&format!("key_{key}"));
            usage.count_calls(RouteLabel::Check, UsageDay::new(month, 30), 1);
        }
    }
    let counts = |batch: &ReportBatch| -> Vec<usize> {
        batch.reports.iter().map(|report| report.usage.len()).collect()
    };
    let collect = |reason| node.collect_reports(&leases, reason, 1);
    let unanswered = collect(ReportReason::CallsNeeded);
    assert_eq!(counts(&unanswered), [1_000, 3], "each account has a share");
    assert!(unanswered.reports.iter().all(|report| report.target > 0));
    assert_eq!(unanswered.leases_with_more_counts.len(), 1);
    node.deliver_grants(unanswered, None, 1);
    // Only what a report carried counts as acknowledged.
    for expected in [&[1_000, 3][..], &[1_000], &[500]] {
        let batch = collect(ReportReason::CountsLeft);
        assert_eq!(counts(&batch), expected);
        store.answer(&node, batch);
    }
    for lease in &leases {
        lease.mark_totals_unreported();
        assert!(!lease.is_fully_reported());
    }
    for expected in [1_003, 1_000, 500, 0] {
        let batch = collect(ReportReason::Shutdown);
        let is_rest = expected < 1_000;
        assert_eq!(batch.leases_with_more_counts.is_empty(), is_rest);
        assert_eq!(counts(&batch).iter().sum::<usize>(), expected);
        store.answer(&node, batch);
        assert!(leases.iter().all(|lease| lease.is_fully_reported()) == is_rest);
    }
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
    let store = TestStore::open();
    let node = Node::new([7; 16], Calendar::new(None, NOVEMBER_END, 0), FailurePolicy::Open, 0);
    let lease = node.open_lease("acme", MonthlyLimit::Calls(1_000));
    let exchange_reports = || {
        store.exchange(&node, &lease, ReportReason::CallsNeeded);
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
    let spent = |month| store.0.borrow_mut().read_spent_by_others("acme", month, &[0; 16]).unwrap();
    assert_eq!([november, december].map(spent), [995, 5]);
}

#[test]
fn a_late_single_call_overtakes_a_batch_until_the_store_answers_the_batch() {
    let store = TestStore::open();
    let node = Node::new([7; 16], Calendar::new(None, NOVEMBER_END, 0), FailurePolicy::Open, 0);
    let lease = node.open_lease("acme", MonthlyLimit::Calls(1_000));
    let month = Month::containing(NOVEMBER_END);
    let collect =
        || node.collect_reports(std::slice::from_ref(&lease), ReportReason::CallsNeeded, 1);
    let deliver = |batch| store.answer(&node, batch);
    let is_admitted = |calls| match node.charge(&lease, month, calls, 1) {
        ChargeProgress::Done(outcome) => Some(outcome.is_ok()),
        ChargeProgress::Wait => None,
    };
    let late_call = || node.charge_after_timeout(&lease, month, 1, false).map(|it| it.is_unbacked);
    assert_eq!(is_admitted(1), None);
    deliver(collect());
    assert_eq!(is_admitted(1), Some(true), "the lease holds more calls");
    assert_eq!(is_admitted(500), None);
    let batch_report = collect();
    assert_eq!(late_call(), Ok(false), "the lease holds calls, and the store is slow");
    deliver(batch_report);
    assert_eq!(is_admitted(500), None, "the single call has taken one of its calls");
    assert_eq!(late_call(), Err(Denial::StoreUnavailable), "the batch comes first");
    deliver(collect());
    assert_eq!(is_admitted(500), Some(true));
    node.end_batch(&lease);
    deliver(collect());
    assert_eq!(late_call(), Ok(false), "no batch waits");
}

#[test]
fn a_refunded_call_is_asked_for_again_while_it_returns_to_the_store() {
    let store = TestStore::open();
    let node = Node::new([7; 16], Calendar::new(None, NOVEMBER_END, 0), FailurePolicy::Open, 0);
    let lease = node.open_lease("acme", MonthlyLimit::Calls(1));
    let month = Month::containing(NOVEMBER_END);
    let charge = || match node.charge(&lease, month, 1, 1) {
        ChargeProgress::Done(outcome) => Some(outcome),
        ChargeProgress::Wait => None,
    };
    let collect = |reason| node.collect_reports(std::slice::from_ref(&lease), reason, 1);
    let deliver = |batch| store.answer(&node, batch);
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
