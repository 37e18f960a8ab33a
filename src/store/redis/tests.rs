use std::io::Read as _;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use redis::Value;

use super::connection::{MIN_CONNECT_TIMEOUT, Redis};
use super::options::RedisOptions;
use crate::model::month::Month;
use crate::store::operations::LedgerBackend;
use crate::store::operations::TimeBackend;
use crate::store::redis_server::{RedisServer, Sentinels};
use crate::store::{LeaseReport, ReportBatchContext, StoreUrl, TotalsKnownToNode};

#[test]
fn a_retried_query_keeps_its_total_timeout() {
    let server = RedisServer::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The test forwards the first connection to the server, and then cuts it. Later connections get
    // no answer.
    let (cut_now, cut_requested) = std::sync::mpsc::channel::<()>();
    let (cut_confirmed, cut_done) = std::sync::mpsc::channel::<()>();
    let port = server.port();
    std::thread::spawn(move || {
        let (client_side, _) = listener.accept().unwrap();
        let server_side = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        for (from, to) in [(&client_side, &server_side), (&server_side, &client_side)] {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        }
        cut_requested.recv().unwrap();
        client_side.shutdown(std::net::Shutdown::Both).unwrap();
        cut_confirmed.send(()).unwrap();
        let (mut silent, _) = listener.accept().unwrap();
        let _ = silent.read_to_end(&mut Vec::new());
    });
    let url = format!("redis://{address}");
    let Ok(StoreUrl::Redis(url)) = StoreUrl::parse(&url) else { panic!("{url}") };
    let timeout = Duration::from_millis(100);
    let mut store = Redis::new(&url, &RedisOptions::default(), timeout).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while store.server_unix_now().is_err() {
        assert!(Instant::now() < deadline, "the server did not answer in time");
    }
    cut_now.send(()).unwrap();
    cut_done.recv().unwrap();
    let started = Instant::now();
    store.server_unix_now().unwrap_err();
    assert!(started.elapsed() < MIN_CONNECT_TIMEOUT, "{:?}", started.elapsed());
}

#[test]
fn an_unexpected_reply_is_not_quoted_and_disconnects() {
    let server = RedisServer::start();
    let Ok(StoreUrl::Redis(url)) = StoreUrl::parse(&server.url()) else {
        panic!("{}", server.url())
    };
    let mut store = Redis::new(&url, &RedisOptions::default(), Duration::from_secs(5)).unwrap();
    store.server_unix_now().unwrap();
    assert!(store.is_connected());
    let reply = Value::Array(vec![Value::BulkString(b"somebody@example.com".to_vec())]);
    let error = store.parse_reply::<(u64, u64)>("reading", reply).unwrap_err().to_string();
    assert!(!error.contains("somebody"), "{error}");
    assert!(error.contains("a reply of another form"), "{error}");
    assert!(!store.is_connected());
}

#[test]
fn a_report_that_reached_another_server_than_the_probe_counts_as_unanswered() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let sentinels = Sentinels::start(1, &first, "");
    let Ok(StoreUrl::Redis(url)) = StoreUrl::parse(&sentinels.url()) else { panic!("a URL") };
    let open = || Redis::new(&url, &RedisOptions::default(), Duration::from_secs(30)).unwrap();
    let (mut store, mut watcher) = (open(), open());
    watcher.server_unix_now().unwrap();
    store.probe(Month::FIRST, None).unwrap();
    // The report waits for the first server, which then does not know the script.
    first.run(&["SCRIPT", "FLUSH"]);
    first.pause();
    let reporter = std::thread::spawn(move || {
        let report = LeaseReport {
            account: "acme".to_owned(),
            month: Month::FIRST,
            sequence: 1,
            target: 5,
            floor: 0,
            spent: 0,
            limit: None,
            known: TotalsKnownToNode::default(),
            usage: Vec::new(),
        };
        let context = ReportBatchContext {
            node_id: &[7; 16],
            latest_begun_month: Month::FIRST,
            recovery_left: Duration::ZERO,
            needs_replicas: true,
        };
        let outcome = store.report_leases(context, &[report]).map(drop);
        (store, outcome.unwrap_err().to_string())
    });
    std::thread::sleep(Duration::from_millis(300));
    let sentinel = sentinels.ports()[0];
    sentinels.try_run(sentinel, &["SENTINEL", "REMOVE", "main"]).unwrap();
    let port = second.port().to_string();
    let monitor = ["SENTINEL", "MONITOR", "main", "127.0.0.1", &port, "1"];
    sentinels.try_run(sentinel, &monitor).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while watcher.is_connected() {
        assert!(Instant::now() < deadline, "the Sentinel names the second server");
        std::thread::sleep(Duration::from_millis(20));
    }
    first.resume();
    let (mut store, error) = reporter.join().unwrap();
    assert!(error.ends_with("another connection than the probe's"), "{error}");
    store.probe(Month::FIRST, None).unwrap();
}
