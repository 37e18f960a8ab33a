use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use super::*;

/// A resolver that answers at once: each name is its own mail host, with a loopback address.
async fn start_resolver() -> SocketAddr {
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

/// An answer on the wire (RFC 1035 section 4.1) with one record for the name that was asked for.
fn answer(query: &[u8]) -> Vec<u8> {
    const HEADER: usize = 12;
    const NAME: [u8; 2] = [0xc0, HEADER as u8];
    let name = query[HEADER..].iter().position(|byte| *byte == 0).unwrap();
    let question = &query[HEADER..HEADER + name + 5];
    let kind = [question[name + 1], question[name + 2]];
    let data: Vec<u8> = match u16::from_be_bytes(kind) {
        1 => vec![127, 0, 0, 1],
        28 => std::net::Ipv6Addr::LOCALHOST.octets().to_vec(),
        _ => [&[0, 10], &NAME[..]].concat(),
    };
    let (class_and_ttl, length) = ([0, 1, 0, 0, 2, 88], [0, data.len() as u8]);
    let head = [&query[..2], &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]].concat();
    [&head, question, &NAME, &kind, &class_and_ttl, &length, &data].concat()
}

async fn client(rate: u32) -> DnsClient {
    let resolvers = vec![start_resolver().await];
    let options = DnsOptions { learn: true, resolvers, rate, concurrency: 16 };
    DnsClient::new(&options, Arc::new(Pacer::new(rate))).unwrap()
}

/// Asks about so many names at the same time.
fn ask_about(client: &Arc<DnsClient>, names: usize) -> JoinSet<DnsFinding> {
    let mut asked = JoinSet::new();
    for number in 0..names {
        let client = Arc::clone(client);
        asked.spawn(async move { client.ask(&format!("name-{number}.com"), |_| false).await });
    }
    asked
}

#[tokio::test]
async fn names_are_learned_at_a_low_rate_however_long_their_queries_wait() {
    let mut client = client(8).await;
    // Twelve queries take more than a second.
    client.name_timeout = Duration::from_millis(300);
    let client = Arc::new(client);
    let findings = ask_about(&client, 4).join_all().await;
    assert_eq!(findings.len(), 4);
    for finding in findings {
        assert_eq!(finding.word(), "parked", "{finding:?}");
    }
}

#[tokio::test]
async fn a_probe_does_not_fail_behind_a_full_queue() {
    let client = Arc::new(client(2).await);
    let mut asked = ask_about(&client, 20);
    asked.spawn(async { DnsFinding::NotKnown(String::new()) });
    assert!(asked.join_next().await.is_some(), "all wait");
    let begun = Instant::now();
    assert_eq!(client.probe(&["gmail.com".to_owned()]).await, Ok(()));
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}
