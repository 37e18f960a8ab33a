use super::*;

#[tokio::test]
async fn without_a_trigger_each_wait_lasts_its_time() {
    let (trigger, mut requests) = ReloadRequests::new();
    drop(trigger);
    let (begun_at, max_wait) = (std::time::Instant::now(), Duration::from_millis(20));
    assert!(requests.wait_and_take_all(max_wait).await.is_none());
    assert!(begun_at.elapsed() >= max_wait);
}

#[tokio::test]
async fn a_request_that_arrives_with_the_timeout_is_taken() {
    let (trigger, mut requests) = ReloadRequests::new();
    assert!(requests.wait_and_take_all(Duration::ZERO).await.is_none());
    let reload = tokio::spawn(async move { trigger.reload_and_wait().await });
    tokio::task::yield_now().await;
    let senders = requests.wait_and_take_all(Duration::ZERO).await.expect("a request");
    for sender in senders {
        sender.send(ReloadOutcome::from([("keys", None)])).unwrap();
    }
    assert_eq!(reload.await.unwrap(), Some(ReloadOutcome::from([("keys", None)])));
}
