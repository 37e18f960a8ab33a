use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

fn server(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

#[test]
fn a_connection_ends_a_refusal_but_not_a_failed_check() {
    let (health, later) = (ServerHealthTracker::new(HOUR), Instant::now() + MIN_REFUSAL_AGE * 2);
    health.record_refusal(server(1), "connection refused");
    assert!(!health.is_selectable(&server(1)) && !health.is_healthy(&server(1)));
    health.record_connection(server(1), Instant::now());
    assert!(!health.is_healthy(&server(1)), "the connection was under way already");
    health.record_connection(server(1), later);
    assert!(health.is_selectable(&server(1)) && health.is_healthy(&server(1)));
    health.record_failed_check(server(1), "status 503");
    health.record_connection(server(1), later);
    assert!(!health.is_selectable(&server(1)));
    health.record_passed_check(server(1), later);
    assert!(health.is_selectable(&server(1)) && health.is_healthy(&server(1)));
}

#[test]
fn the_last_failure_of_a_server_is_known_after_its_recovery() {
    let (health, later) = (ServerHealthTracker::new(HOUR), Instant::now() + MIN_REFUSAL_AGE * 2);
    assert_eq!(health.describe(server(1)).last_failure, None);
    health.record_failed_check(server(1), "status 503");
    health.record_failed_check(server(1), "status 500");
    let describe = |port| {
        let status = health.describe(server(port));
        (status.is_healthy, status.last_failure.map(|it| it.reason))
    };
    assert_eq!(describe(1), (false, Some("status 500".to_owned())));
    health.record_passed_check(server(1), later);
    assert_eq!(describe(1), (true, Some("status 500".to_owned())));
    assert_eq!(describe(2), (true, None));
    health.retain(&[server(2)]);
    assert_eq!(describe(1), (true, None), "a server that has left is forgotten");
}

#[test]
fn a_server_gets_requests_again_after_its_ejection_but_has_to_prove_its_health() {
    let health = ServerHealthTracker::new(Duration::ZERO);
    health.record_refusal(server(1), "connection refused");
    assert!(health.is_selectable(&server(1)) && !health.is_healthy(&server(1)));
    health.record_connection(server(1), Instant::now());
    assert!(health.is_healthy(&server(1)));
}

#[test]
fn an_outage_of_a_server_that_nobody_named_is_no_error() {
    let health = ServerHealthTracker::new(HOUR);
    assert_eq!(health.choose_outage_line(true).0, log::Level::Error);
    assert!(health.describe_failure(server(1), "refused").is_some());
    health.set_server_is_default(true);
    assert_eq!(health.describe_failure(server(1), "refused"), None);
    let (level, line) = health.choose_outage_line(true);
    assert_eq!(level, log::Level::Info);
    assert!(line.contains("upstream.servers is not set"), "{line}");
}

#[test]
fn an_outage_names_some_of_the_servers_and_counts_the_others() {
    let (health, servers) = (ServerHealthTracker::new(HOUR), [1, 2, 3, 4, 5].map(server));
    assert_eq!(health.describe_outage(&[]), None);
    servers[1..].iter().for_each(|it| health.record_failed_check(*it, "status 503"));
    assert_eq!(health.describe_outage(&servers), None);
    health.record_refusal(servers[0], "connection refused");
    let expected = "expected a healthy server, but found none of 5: 127.0.0.1:1: connection \
                    refused, 127.0.0.1:2: status 503, 127.0.0.1:3: status 503, and 2 more";
    assert_eq!(health.describe_outage(&servers).as_deref(), Some(expected));
    health.retain(&servers[1..]);
    assert_eq!(health.describe_outage(&servers), None, "an unknown server counts as healthy");
}
