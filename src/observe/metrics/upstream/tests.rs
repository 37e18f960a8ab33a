use prometheus::Registry;

use super::*;

fn attempt(server: SocketAddr, outcome: AttemptOutcome) -> AttemptRecord {
    AttemptRecord { server, started_at: Instant::now(), duration: Duration::ZERO, outcome }
}

#[test]
fn only_attempts_with_a_response_have_a_duration() {
    let registry = Registry::new();
    let metrics = UpstreamMetrics::register(Registrar(&registry)).unwrap();
    let server: SocketAddr = "127.0.0.1:80".parse().unwrap();
    for outcome in AttemptOutcome::ALL {
        metrics.count_attempt(&attempt(server, outcome));
        let counter = metrics.attempts.with_label_values(&["127.0.0.1:80", outcome.as_str()]);
        assert_eq!(counter.get(), 1, "{outcome:?}");
    }
    let durations = metrics.durations.with_label_values(&["127.0.0.1:80"]);
    assert_eq!(durations.get_sample_count(), 1);
}

#[test]
fn servers_that_have_left_lose_their_series_once_there_are_many() {
    let registry = Registry::new();
    let metrics = UpstreamMetrics::register(Registrar(&registry)).unwrap();
    let server = |port: usize| SocketAddr::from(([127, 0, 0, 1], port as u16));
    let set_gauges = || {
        metrics.set_gauges(&UpstreamSnapshot {
            is_healthy_by_server: vec![(server(1), true)],
            exchanges_in_flight: 0,
            idle_connections: 0,
        });
        metrics.series_by_server.len()
    };
    for port in 1..=MAX_SERVERS_WITH_SERIES {
        metrics.count_attempt(&attempt(server(port), AttemptOutcome::Response));
    }
    assert_eq!(set_gauges(), MAX_SERVERS_WITH_SERIES);
    metrics.count_attempt(&attempt(server(9_999), AttemptOutcome::Response));
    assert_eq!(set_gauges(), 1);
    let families = registry.gather();
    for name in ["riskgate_upstream_requests_total", "riskgate_upstream_response_header_seconds"] {
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let servers = family.get_metric().iter().map(|metric| metric.get_label().last());
        assert!(servers.flatten().all(|label| label.value() == "127.0.0.1:1"), "{name}");
    }
}
