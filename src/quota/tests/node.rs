//! When a node asks the store, and when it does not wait for a call to do so.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{NOW, store};
use crate::model::month::Month;
use crate::quota::OnFailure;
use crate::quota::calendar::Calendar;
use crate::quota::lease_report::Occasion;
use crate::quota::node::Node;
use crate::store::LimitRow;

#[test]
fn the_last_word_on_a_month_does_not_wait_for_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(&folder.path().join("store.db"));
    let node = Node::new([7; 16], Calendar::new(None, NOW, 0), OnFailure::Open, 0);
    let lease = node.lease("acme", LimitRow::Calls(10_000));
    let mut speak = |occasion| {
        let batch = node.collect(std::slice::from_ref(&lease), occasion);
        let (id, month) = (node.id, node.calendar.latest());
        let round =
            crate::store::Round { node: &id, month, settle: Duration::ZERO, needs_replicas: true };
        let words = store.state(round, &batch.statements).unwrap();
        node.deliver(batch, Some(words), 1);
    };
    let month = Month::containing(NOW);
    lease.ask_for(month);
    speak(Occasion::Wanted);
    assert!(node.try_charge(&lease, month).is_some());
    // Asleep for so long that another process forgets the month's numbers.
    let later = NOW + 500 * 86_400;
    node.calendar.month(later, || 500 * 86_400);
    speak(Occasion::Tick);
    speak(Occasion::Tick);
    assert!(lease.is_settled(), "it was said, and is over");
}

#[test]
fn a_wish_is_pressing_only_where_what_is_held_may_not_last() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(&folder.path().join("store.db"));
    let node = Node::new([7; 16], Calendar::new(None, NOW, 0), OnFailure::Open, 0);
    let lease = node.lease("acme", LimitRow::Calls(1_000_000));
    let month = Month::containing(NOW);
    let presses = || node.pressing.swap(false, Ordering::Relaxed);
    lease.ask_for(month);
    let mut wishes = Vec::new();
    for call in 0..2_000 {
        if node.try_charge(&lease, month).is_some() && node.queue().wanting.is_empty() {
            continue;
        }
        wishes.push((call, presses()));
        node.queue().wanting.clear();
        let batch = node.collect(std::slice::from_ref(&lease), Occasion::Wanted);
        let round = crate::store::Round {
            node: &node.id,
            month,
            settle: Duration::ZERO,
            needs_replicas: true,
        };
        let words = store.state(round, &batch.statements).unwrap();
        node.deliver(batch, Some(words), 1);
    }
    // All within one second: what is held lasts for shorter and shorter.
    let first = wishes.iter().position(|(_, pressing)| *pressing).expect("a wish that presses");
    assert!(wishes[..first].len() > 5 && wishes[first].0 > 100, "{wishes:?}");
    assert!(wishes[first..].iter().all(|(_, pressing)| *pressing), "{wishes:?}");
}
