//! Tests of the link to a real Cluster: TLS, servers that are no Cluster, servers that are gone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::store::redis_server::{RedisCluster, RedisServer};
use crate::store::tests::TESTER;
use crate::store::{ClientCertificatePaths, RedisOptions, Store, StoreUrl};

const TIMEOUT: Duration = Duration::from_secs(5);

fn open(url: &str) -> Store {
    open_with_options(url, &RedisOptions::default())
}

fn open_with_options(url: &str, options: &RedisOptions) -> Store {
    Store::open(&StoreUrl::parse(url).unwrap(), options, TIMEOUT).unwrap()
}

#[test]
fn an_address_for_the_other_kind_of_server_is_told() {
    let server = RedisServer::start();
    let url = format!("redis+cluster://127.0.0.1:{}", server.port());
    let error = open(&url).ring_version().unwrap_err().to_string();
    assert!(error.contains("cluster support disabled; write redis:// for a server"), "{error}");
    let cluster = RedisCluster::start(2);
    let errors = cluster.primaries.iter().map(|primary| open(&primary.url()).ring_version());
    let errors: Vec<String> = errors.filter_map(|it| Some(it.err()?.to_string())).collect();
    assert_eq!(errors.len(), 1, "the other has the slot");
    assert!(errors[0].contains("write redis+cluster:// for a server of a Cluster"), "{errors:?}");
}

#[test]
fn one_server_of_the_address_is_enough() {
    let cluster = RedisCluster::start(3);
    let port = cluster.primaries[2].port();
    let url = format!("redis+cluster://127.0.0.1:1,127.0.0.1:{port}");
    assert_eq!(open(&url).ring_version().unwrap(), None);
    let mut hung = RedisServer::start();
    hung.pause();
    let url = format!("redis+cluster://127.0.0.1:{},127.0.0.1:{port}", hung.port());
    assert_eq!(open(&url).ring_version().unwrap(), None);
    hung.kill();
    let error = open("redis+cluster://127.0.0.1:1,localhost:2").ring_version().unwrap_err();
    let error = error.to_string();
    assert!(error.contains("127.0.0.1:1: ") && error.contains("localhost:2: "), "{error}");
}

#[test]
fn a_cluster_may_demand_tls_and_a_certificate() {
    let server = RedisServer::start_tls_cluster_member();
    server.run_for_slots("ADDSLOTS", 0, 16_383);
    let url = server.tls_url().replace("rediss://", "rediss+cluster://");
    let [certificate, key] = server.certificate_paths();
    let options = RedisOptions {
        tls_ca: Some(server.ca_certificate_path()),
        client_certificate: Some(ClientCertificatePaths { certificate, key }),
        ..RedisOptions::default()
    };
    let mut store = open_with_options(&url, &options);
    let began = Instant::now();
    while let Err(error) = store.ring_version() {
        assert!(began.elapsed() < TIMEOUT, "{error}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let without = RedisOptions { client_certificate: None, ..options };
    open_with_options(&url, &without).ring_version().unwrap_err();
}

#[test]
fn a_scan_during_moves_of_its_slot_misses_nothing() {
    let cluster = RedisCluster::start(2);
    let mut store = open(&cluster.url());
    store.set_time(crate::store::tests::TEST_TIME);
    let keys: Vec<_> = (0..5_000).map(|n| (crate::store::tests::key(n, "acme"), None)).collect();
    store.add_keys(&TESTER, &keys, None).unwrap();
    let slot = cluster.primaries[0].run(&["CLUSTER", "KEYSLOT", "riskgate:{ring}:keys"]);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut from =
                usize::from(cluster.primaries[0].try_run(&["EXISTS", "{ring}"]).is_err());
            while !is_done.load(Ordering::Relaxed) {
                let to = 1 - from;
                cluster.move_slot(&slot, &cluster.primaries[from], &cluster.primaries[to]);
                from = to;
                // The servers tell each other.
                std::thread::sleep(Duration::from_millis(40));
            }
        });
        let (mut key_counts, began) = (Vec::new(), Instant::now());
        while key_counts.len() < 40 && began.elapsed() < Duration::from_secs(20) {
            // While a part of the ring has moved, the store may be unreadable for a moment.
            if let Ok(Some(rows)) = store.ring_rows() {
                key_counts.push(rows.keys.len());
            }
        }
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(key_counts, [5_000; 40]);
    });
}
