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
