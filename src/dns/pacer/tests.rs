use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use super::*;

#[tokio::test]
async fn a_cancelled_wait_spends_no_slot() {
    let pacer = Pacer::new(1);
    pacer.wait_for_slot().await;
    for _ in 0..60 {
        let mut wait = pin!(pacer.wait_for_slot());
        assert!(poll_fn(|context| Poll::Ready(wait.as_mut().poll(context).is_pending())).await);
    }
    let started = Instant::now();
    pacer.wait_for_slot().await;
    // Sixty spent slots would take a minute.
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_priority_slot_is_granted_ahead_of_the_queue() {
    let pacer = Arc::new(Pacer::new(4));
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let pacer = Arc::clone(&pacer);
        waiting.spawn(async move { pacer.wait_for_slot().await });
    }
    waiting.join_next().await;
    let started = Instant::now();
    pacer.wait_for_priority_slot().await;
    // Behind the queue, the slot would be granted after ten seconds.
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
}

#[tokio::test]
async fn waits_with_and_without_priority_share_one_rate() {
    let pacer = Pacer::new(100);
    let started = Instant::now();
    for _ in 0..20 {
        tokio::join!(pacer.wait_for_slot(), pacer.wait_for_priority_slot());
    }
    assert!(started.elapsed() > Duration::from_millis(350), "{:?}", started.elapsed());
    pacer.set_rate(10_000);
    let started = Instant::now();
    for _ in 0..2_000 {
        pacer.wait_for_slot().await;
    }
    // At the old rate, they would take twenty seconds.
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
}
