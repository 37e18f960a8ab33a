//! What was counted or asked for before the store's clock was heard for the first time.

use std::sync::atomic::Ordering;

use super::NOW;
use crate::model::month::Month;
use crate::quota::OnFailure;
use crate::quota::calendar::Calendar;
use crate::quota::lease_report::Occasion;
use crate::quota::node::{Node, Step};
use crate::store::LimitRow;

/// A node whose machine's clock is two months ahead, and the moment that the store shows.
fn ahead(on_failure: OnFailure) -> (Node, i64) {
    let wrong = NOW + 40 * 86_400;
    let node = Node::new([7; 16], Calendar::new(None, wrong, 0), on_failure, 10);
    node.health.down.store(true, Ordering::Relaxed);
    (node, wrong)
}

#[test]
fn calls_admitted_under_a_wrong_clock_count_in_the_month_that_the_store_says() {
    let (node, wrong) = ahead(OnFailure::Open);
    let lease = node.lease("acme", LimitRow::Calls(100));
    let month = node.calendar.month(wrong, || 0);
    let Step::Done(Ok(spent)) = node.charge(&lease, month, 1) else { panic!("open") };
    assert_eq!(spent.month(), month);
    node.calendar.hear_store(NOW, wrong, 1);
    let now = Month::containing(NOW);
    assert_eq!(node.calendar.month(NOW, || 1), now, "all nodes count in one month");
    // A call that came in the month that never began is admitted in the one that it is.
    assert!(matches!(node.charge(&lease, month, 1), Step::Done(Ok(_))));
    let batch = node.collect(std::slice::from_ref(&lease), Occasion::Wanted);
    let said: Vec<(Month, u64)> = batch.statements.iter().map(|it| (it.month, it.spent)).collect();
    assert_eq!(said, [(now, 2)]);
}

#[test]
fn a_month_that_was_only_asked_for_before_the_store_came_is_never_stated() {
    for on_failure in [OnFailure::Closed, OnFailure::Open] {
        let (node, wrong) = ahead(on_failure);
        node.health.down.store(on_failure == OnFailure::Closed, Ordering::Relaxed);
        let lease = node.lease("acme", LimitRow::Calls(100));
        let month = node.calendar.month(wrong, || 0);
        assert!(!matches!(node.charge(&lease, month, 1), Step::Done(Ok(_))));
        node.calendar.hear_store(NOW, wrong, 1);
        let now = Month::containing(NOW);
        // The call that waits asks once more.
        node.health.down.store(false, Ordering::Relaxed);
        assert!(matches!(node.charge(&lease, month, 1), Step::Wait));
        let batch = node.collect(std::slice::from_ref(&lease), Occasion::Wanted);
        let months: Vec<Month> = batch.statements.iter().map(|said| said.month).collect();
        assert_eq!(months, [now]);
    }
}
