use super::*;
use crate::model::network::Networks;

fn upstreams(servers: &[&str]) -> Upstreams {
    let second = Duration::from_secs(1);
    Upstreams::new(UpstreamOptions {
        servers: servers.iter().map(|server| ServerName::parse(server).unwrap()).collect(),
        resolve_interval: second,
        resolvers: Vec::new(),
        host_header: None,
        tls: None,
        max_in_flight: 1,
        max_in_flight_per_address: 1,
        exempt_networks: Networks::parse(&[]).unwrap(),
        connect_timeout: second,
        exchange_time_limit: second,
        idle_timeout: second,
        health_interval: Duration::ZERO,
        health_path: None,
        eject_for: Duration::from_secs(3600),
    })
    .unwrap()
}

#[test]
fn the_healthy_servers_take_equally_many_turns() {
    let servers = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"].map(|it| it.parse().unwrap());
    let upstreams = upstreams(&["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]);
    let count_turns = || {
        let selected: Vec<SocketAddr> =
            (0..300).map(|_| upstreams.select_server().unwrap()).collect();
        servers.map(|server: SocketAddr| selected.iter().filter(|it| **it == server).count())
    };
    assert_eq!(count_turns(), [100, 100, 100]);
    upstreams.eject_server(servers[1], "connection refused");
    assert_eq!(count_turns(), [150, 0, 150]);
    servers.iter().for_each(|server| upstreams.eject_server(*server, "connection refused"));
    assert_eq!(count_turns(), [100, 100, 100]);
}
