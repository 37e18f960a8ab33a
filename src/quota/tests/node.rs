//! When a node asks the store, and when it does not wait for a call to do so.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{NOW, store};
use crate::model::month::Month;
use crate::quota::FailurePolicy;
use crate::quota::calendar::Calendar;
use crate::quota::lease_report::ReportReason;
use crate::quota::node::Node;
use crate::store::MonthlyLimit;

#[test]
fn the_final_report_of_a_month_does_not_wait_for_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(&folder.path().join("store.db"));
    let node = Node::new([7; 16], Calendar::new(None, NOW, 0), FailurePolicy::Open, 0);
    let lease = node.lease("acme", MonthlyLimit::Calls(10_000));
    let mut speak = |occasion| {
        let batch = node.collect_reports(std::slice::from_ref(&lease), occasion);
        let (id, month) = (node.id, node.calendar.latest_month());
        let round = crate::store::BatchContext {
            node: &id,
            month,
            recovery_left: Duration::ZERO,
            needs_replicas: true,
        };
        let words = store.report_leases(round, &batch.statements).unwrap();
        node.deliver_grants(batch, Some(words), 1);
    };
    let month = Month::containing(NOW);
    lease.request_calls(month);
    speak(ReportReason::CallsNeeded);
    assert!(node.try_charge(&lease, month).is_some());
    // Asleep for so long that another process forgets the month's numbers.
    let later = NOW + 500 * 86_400;
    node.calendar.month_at(later, || 500 * 86_400);
    speak(ReportReason::Tick);
    speak(ReportReason::Tick);
    assert!(lease.is_fully_reported(), "it was said, and is over");
}

#[test]
fn a_refill_is_urgent_only_when_held_calls_may_run_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(&folder.path().join("store.db"));
    let node = Node::new([7; 16], Calendar::new(None, NOW, 0), FailurePolicy::Open, 0);
    let lease = node.lease("acme", MonthlyLimit::Calls(1_000_000));
    let month = Month::containing(NOW);
    let presses = || node.has_urgent.swap(false, Ordering::Relaxed);
    lease.request_calls(month);
    let mut wishes = Vec::new();
    for call in 0..2_000 {
        if node.try_charge(&lease, month).is_some() && node.queue().waiting_leases.is_empty() {
            continue;
        }
        wishes.push((call, presses()));
        node.queue().waiting_leases.clear();
        let batch = node.collect_reports(std::slice::from_ref(&lease), ReportReason::CallsNeeded);
        let round = crate::store::BatchContext {
            node: &node.id,
            month,
            recovery_left: Duration::ZERO,
            needs_replicas: true,
        };
        let words = store.report_leases(round, &batch.statements).unwrap();
        node.deliver_grants(batch, Some(words), 1);
    }
    // All within one second: what is held lasts for shorter and shorter.
    let first = wishes.iter().position(|(_, pressing)| *pressing).expect("a wish that presses");
    assert!(wishes[..first].len() > 5 && wishes[first].0 > 100, "{wishes:?}");
    assert!(wishes[first..].iter().all(|(_, pressing)| *pressing), "{wishes:?}");
}
