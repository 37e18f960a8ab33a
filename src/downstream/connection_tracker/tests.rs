use super::*;

#[test]
fn open_connections_are_limited_until_they_close() {
    let limits = ConnectionLimits {
        max_connections: 3,
        max_per_address: 2,
        exempt_networks: Networks::default(),
    };
    let tracker = Arc::new(ConnectionTracker::new(limits));
    let open: Vec<CountGuard> = (0..3).map(|_| tracker.track_connection().unwrap()).collect();
    assert!(tracker.track_connection().is_none());
    drop(open);
    assert!(tracker.track_connection().is_some());
    assert_eq!(tracker.count_open_connections(), 0);
}

/// Refused connections count for no moment, so they take no place of others.
#[test]
fn one_of_two_connections_gets_the_last_place() {
    let limits = ConnectionLimits {
        max_connections: 1,
        max_per_address: 2,
        exempt_networks: Networks::default(),
    };
    let tracker = Arc::new(ConnectionTracker::new(limits));
    let barrier = std::sync::Barrier::new(2);
    let track_once = || {
        barrier.wait();
        let tracked = tracker.track_connection();
        barrier.wait();
        tracked.is_some()
    };
    for round in 0..2_000 {
        let tracked = std::thread::scope(|scope| {
            [scope.spawn(track_once), scope.spawn(track_once)].map(|it| it.join().unwrap())
        });
        assert_eq!(tracked.iter().filter(|it| **it).count(), 1, "round {round}");
    }
    assert_eq!(tracker.count_open_connections(), 0);
}
