use super::*;
use bytes::Bytes;

use crate::gate::{ResponsePart, UnsentResponse};

const TIME: Duration = Duration::from_secs(10);
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the seconds after which a connection is idle, with requests at these seconds.
async fn idle_after(requests: &[(u64, u64)]) -> u64 {
    let active = ActiveRequestCounter::new(Arc::default(), WRITE_TIMEOUT);
    let start = Instant::now();
    for (begin, end) in requests.iter().copied() {
        let active = Arc::clone(&active);
        tokio::spawn(async move {
            sleep_until(start + Duration::from_secs(begin)).await;
            let _guard = ActiveRequestGuard::start(&active);
            sleep_until(start + Duration::from_secs(end)).await;
        });
    }
    assert_eq!(active.wait_until_idle_for(TIME, start).await, IdleOutcome::Idle);
    start.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_idle_after_the_time_without_a_request() {
    assert_eq!(idle_after(&[]).await, 10);
    assert_eq!(idle_after(&[(3, 4)]).await, 14);
    assert_eq!(idle_after(&[(3, 40)]).await, 50);
    assert_eq!(idle_after(&[(3, 4), (9, 12), (21, 22)]).await, 32);
    assert_eq!(idle_after(&[(1, 30), (2, 3)]).await, 40);
}

#[tokio::test(start_paused = true)]
async fn a_connection_stalls_only_while_the_client_takes_too_few_bytes() {
    for (bytes_each_second, outcome, seconds) in [
        (0, IdleOutcome::Stalled, 40),
        (500, IdleOutcome::Stalled, 40),
        (600, IdleOutcome::Idle, 110),
    ] {
        let progress = Arc::new(SendProgress::default());
        let active = ActiveRequestCounter::new(Arc::clone(&progress), WRITE_TIMEOUT);
        let start = Instant::now();
        let request = ActiveRequestGuard::start(&active);
        let unsent = UnsentResponse::begin(&active.unsent, request);
        let part = unsent.track(Bytes::from_static(b"part"), ResponsePart::Reply);
        drop(unsent);
        tokio::spawn(async move {
            for _ in 0..100 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                progress.record_write(bytes_each_second);
            }
            drop(part);
            progress.record_flush();
        });
        let ended = active.wait_until_idle_for(TIME, start).await;
        assert_eq!((ended, start.elapsed().as_secs()), (outcome, seconds), "{bytes_each_second}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_of_events_does_not_stall() {
    let progress = Arc::new(SendProgress::default());
    let active = ActiveRequestCounter::new(Arc::clone(&progress), WRITE_TIMEOUT);
    let start = Instant::now();
    let request = ActiveRequestGuard::start(&active);
    let unsent = UnsentResponse::begin(&active.unsent, request);
    tokio::spawn(async move {
        // The connection stands for a moment between two polls: one event is always unsent.
        let event = || unsent.track(Bytes::from_static(b"event"), ResponsePart::ForwardedRest);
        let mut last = event();
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            last = event();
            progress.record_write(20);
        }
        drop((last, unsent));
        progress.record_flush();
    });
    assert_eq!(active.wait_until_idle_for(TIME, start).await, IdleOutcome::Idle);
    assert_eq!(start.elapsed().as_secs(), 110);
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_server_is_silent_does_not_stall() {
    assert_eq!(idle_after(&[(1, 500)]).await, 510);
}
