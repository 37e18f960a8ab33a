use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use super::*;

/// Makes a DNS response from a query, both in wire format.
type BuildResponse = fn(&[u8]) -> Vec<u8>;

/// Starts a resolver that answers each query immediately, and returns its address.
async fn start_test_resolver(answer: BuildResponse) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut query = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut query).await {
            let _ = socket.send_to(&answer(&query[..length]), from).await;
        }
    });
    address
}

/// Builds a response (RFC 1035 section 4.1) with one record for the queried name. The name is its
/// own MX host, and its address is a loopback address.
fn build_own_loopback_host_response(query: &[u8]) -> Vec<u8> {
    const HEADER_BYTES: usize = 12;
    const POINTER_TO_NAME: [u8; 2] = [0xc0, HEADER_BYTES as u8];
    let name = query[HEADER_BYTES..].iter().position(|byte| *byte == 0).unwrap();
    let question = &query[HEADER_BYTES..HEADER_BYTES + name + 5];
    let kind = [question[name + 1], question[name + 2]];
    let data: Vec<u8> = match u16::from_be_bytes(kind) {
        1 => vec![127, 0, 0, 1],
        28 => std::net::Ipv6Addr::LOCALHOST.octets().to_vec(),
        _ => [&[0, 10], &POINTER_TO_NAME[..]].concat(),
    };
    let (class_and_ttl, length) = ([0, 1, 0, 0, 2, 88], [0, data.len() as u8]);
    let head = [&query[..2], &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]].concat();
    [&head, question, &POINTER_TO_NAME, &kind, &class_and_ttl, &length, &data].concat()
}

/// Builds an NXDOMAIN response with the SOA record of this zone, which is in wire format.
fn build_nxdomain_response(query: &[u8], zone: &[u8]) -> Vec<u8> {
    let head = [&query[..2], &[0x81, 0x83, 0, 1, 0, 0, 0, 1, 0, 0]].concat();
    let end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let (kind_class_and_ttl, length) = ([0, 6, 0, 1, 0, 0, 2, 88], [0, 22]);
    let soa = [zone, &kind_class_and_ttl, &length, &[0; 2], &[0, 0, 2, 88].repeat(5)].concat();
    [&head, &query[12..end], &soa].concat()
}

#[tokio::test]
async fn nxdomain_counts_only_with_the_soa_of_a_zone_of_the_name() {
    let zones: [(BuildResponse, bool); 5] = [
        (|query| build_nxdomain_response(query, b"\x04gone\x03com\0"), true),
        (|query| build_nxdomain_response(query, b"\x03com\0"), true),
        (|query| build_nxdomain_response(query, b"\0"), true),
        (|query| build_nxdomain_response(query, b"\x04evil\x03org\0"), false),
        (|query| build_nxdomain_response(query, b"\x03sub\x04gone\x03com\0"), false),
    ];
    for (answer, is_believed) in zones {
        let finding = client_with_resolver(answer, 1_000)
            .await
            .query_mail_hosts("gone.com", |_| None::<()>)
            .await;
        assert_eq!(matches!(finding, DnsFinding::Mx { .. }), is_believed, "{finding:?}");
        assert_eq!(finding.denies_mail(), is_believed);
        if let DnsFinding::Unknown(why) = finding {
            assert_eq!(why, "a negative answer without the SOA record of its zone");
        }
    }
}

async fn client_with_loopback_hosts(rate: u32) -> DnsClient {
    client_with_resolver(build_own_loopback_host_response, rate).await
}

async fn client_with_resolver(answer: BuildResponse, rate: u32) -> DnsClient {
    let resolvers = vec![start_test_resolver(answer).await];
    let options = DnsOptions {
        is_learning_enabled: true,
        resolver_addresses: resolvers,
        max_queries_per_second: rate,
        max_names_in_flight: 16,
    };
    DnsClient::new(&options, Arc::new(Pacer::new(rate))).unwrap()
}

/// Resolves this many names at the same time.
fn spawn_name_queries(client: &Arc<DnsClient>, name_count: usize) -> JoinSet<DnsFinding> {
    let mut tasks = JoinSet::new();
    for number in 0..name_count {
        let client = Arc::clone(client);
        tasks.spawn(async move {
            client.query_mail_hosts(&format!("name-{number}.com"), |_| None::<()>).await
        });
    }
    tasks
}

#[tokio::test]
async fn waiting_for_the_rate_limit_does_not_time_out_a_query() {
    let mut client = client_with_loopback_hosts(8).await;
    // Four names need twelve queries: MX, A and AAAA each. At 8 a second they take over a second.
    client.timeout_per_name = Duration::from_millis(300);
    let client = Arc::new(client);
    let findings = spawn_name_queries(&client, 4).join_all().await;
    assert_eq!(findings.len(), 4);
    for finding in findings {
        assert_eq!(finding.outcome_label(), "parked", "{finding:?}");
    }
}

#[tokio::test]
async fn a_resolver_probe_overtakes_waiting_queries() {
    let client = Arc::new(client_with_loopback_hosts(2).await);
    let mut tasks = spawn_name_queries(&client, 20);
    tasks.spawn(async { DnsFinding::Unknown(String::new()) });
    assert!(tasks.join_next().await.is_some(), "the other queries wait");
    let started = Instant::now();
    assert_eq!(client.probe_resolvers(&["gmail.com".to_owned()]).await, Ok(()));
    // All other queries take half a minute.
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
}
