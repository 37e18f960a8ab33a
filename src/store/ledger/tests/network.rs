//! TLS, replicas, lost connections and hanging servers.

use super::server::{
    ACME_LEDGER_KEY, LIMIT_1000, SHORT_TIMEOUT, open_unprobed, two_nodes_with_leases,
};
use super::*;

#[test]
fn tls_trusts_only_the_configured_authority() {
    let (server, other) = (RedisServer::start_with_tls(), RedisServer::start_with_tls());
    let open = |tls_ca: Option<PathBuf>| {
        let options = RedisOptions { tls_ca, ..RedisOptions::default() };
        open_without_connecting(&server.tls_url(), &options, Duration::from_secs(5))
    };
    let mut store = open(Some(server.ca_certificate_path()));
    store.check_safe_if_reachable().unwrap();
    store.probe(test_month(), None).unwrap();
    assert_eq!(TestNode::new(ALICE).report(&mut store, 5, [0, 0], LIMIT_1000).own_leased, 5);
    for wrong in [Some(other.ca_certificate_path()), None] {
        let error = open(wrong).probe(test_month(), None).unwrap_err().to_string();
        assert!(error.starts_with("rediss://127.0.0.1:"), "{error}");
        assert!(error.contains("connecting: ") && error.contains("ertificate"), "{error}");
    }
}

#[test]
fn a_server_may_demand_a_certificate() {
    let (server, other) = (RedisServer::start_with_client_tls(), RedisServer::start_with_tls());
    let open = |shown: Option<&RedisServer>| {
        let paths = shown.map(RedisServer::certificate_paths);
        let options = RedisOptions {
            tls_ca: Some(server.ca_certificate_path()),
            client_certificate: paths
                .map(|[certificate, key]| ClientCertificatePaths { certificate, key }),
            ..RedisOptions::default()
        };
        open_without_connecting(&server.tls_url(), &options, Duration::from_secs(5))
    };
    open(Some(&server)).probe(test_month(), None).unwrap();
    for wrong in [None, Some(&other)] {
        let error = open(wrong).probe(test_month(), None).unwrap_err().to_string();
        assert_eq!(error.contains("set store.tls_certificate"), wrong.is_none(), "{error}");
    }
}

#[test]
fn an_invalid_tls_ca_file_fails_at_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let open = || {
        let options = RedisOptions { tls_ca: Some(path.clone()), ..RedisOptions::default() };
        let url = StoreUrl::parse("rediss://127.0.0.1:1").unwrap();
        Store::open(&url, &options, SHORT_TIMEOUT).err().expect("a refusal").to_string()
    };
    for contents in [None, Some("no certificate"), Some("-----BEGIN CERTIFICATE-----\n?\n")] {
        if let Some(contents) = contents {
            std::fs::write(&path, contents).unwrap();
        }
        let error = open();
        assert!(error.contains("expected store.tls_ca to be a file of certificates"), "{error}");
    }
}

#[test]
fn reports_need_replicas_only_if_required() {
    let server = RedisServer::start();
    let options = RedisOptions { wait_replicas: 1, ..RedisOptions::default() };
    let mut store = open_without_connecting(&server.url(), &options, Duration::from_millis(800));
    store.probe(test_month(), None).unwrap();
    let mut alice = TestNode::new(ALICE);
    let raise = alice.next_report(5, [0, 0], LIMIT_1000);
    let error = alice.send_report(&mut store, &raise).unwrap_err().to_string();
    assert!(error.ends_with("only 0 of 1 replicas have it"), "{error}");
    let replica = RedisServer::replica_of(&server);
    let raise = alice.next_report(9, [1, 1], LIMIT_1000);
    wait_until("the replica has the report", || {
        store.probe(test_month(), None).is_ok() && alice.send_report(&mut store, &raise).is_ok()
    });
    assert_eq!(replica.run(&["HGET", ACME_LEDGER_KEY, "leased"]), "9");
    assert_eq!(store.missing_replicas(), 0);
    replica.pause();
    let raise = alice.next_report(10, [2, 2], LIMIT_1000);
    let error = alice.send_report(&mut store, &raise).unwrap_err().to_string();
    assert!(error.ends_with("only 0 of 1 replicas have it"), "{error}");
    assert_eq!(store.missing_replicas(), 1);
    // If replicas are not required, the server's own acknowledgement is enough, and later reports
    // don't wait.
    let recovery_left = Duration::ZERO;
    let context = ReportBatchContext {
        node_id: &ALICE,
        latest_begun_month: test_month(),
        recovery_left,
        needs_replicas: false,
    };
    let started = Instant::now();
    for target in 11..31 {
        let raise = alice.next_report(target, [2, 2], LIMIT_1000);
        let grant = store.report_leases(context, &[raise]).unwrap().remove(0).unwrap();
        assert_eq!((grant.own_leased, store.missing_replicas()), (target, 1));
    }
    let average = started.elapsed() / 20;
    assert!(average < Duration::from_millis(400), "{average:?}");
    replica.resume();
    wait_until("a probe shows the replica again", || {
        store.probe(test_month(), None).unwrap();
        store.missing_replicas() == 0
    });
}

#[test]
fn a_server_clock_set_back_during_recovery_does_not_prolong_it() {
    let server = RedisServer::start();
    let mut store = open_probed_server(&server);
    let (mut alice, _) = two_nodes_with_leases(&mut store);
    let account = ACME_LEDGER_KEY.replace("ledger", "recovering");
    let all = "riskgate:{ring}:recovering";
    for key in [account.as_str(), all] {
        server.run(&["SET", key, "1", "PX", "86400000"]);
    }
    let recovery_left = store.probe(test_month(), None).unwrap().recovery_left;
    assert!(recovery_left <= Duration::from_secs(3), "{recovery_left:?}");
    assert!(alice.report(&mut store, 50, [9, 9], LIMIT_1000).is_recovering);
    wait_until("the recovery is over", || {
        let recovery_left = store.probe(test_month(), None).unwrap().recovery_left;
        recovery_left.is_zero() && !alice.report(&mut store, 50, [9, 9], LIMIT_1000).is_recovering
    });
}

#[test]
fn a_connection_that_a_read_has_opened_gets_no_report_before_a_probe() {
    let server = RedisServer::start();
    let mut store = open_probed_server(&server);
    let mut alice = TestNode::new(ALICE);
    alice.report(&mut store, 64, [0, 0], Some(1_000));
    server.run(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    store.read_usage(test_month(), None).unwrap();
    let report = alice.next_report(128, [0, 64], Some(1_000));
    let error = alice.send_report(&mut store, &report).unwrap_err().to_string();
    assert!(error.ends_with("no connection"), "{error}");
    store.probe(test_month(), None).unwrap();
    assert_eq!(alice.send_report(&mut store, &report).unwrap().own_leased, 128);
}

#[test]
fn reads_reconnect_after_the_server_closed_the_connection() {
    let server = RedisServer::start();
    let mut store = open_probed_server(&server);
    two_nodes_with_leases(&mut store);
    for _ in 0..3 {
        store.read_spent_by_others("acme", test_month(), &BOB).unwrap();
        server.run(&["CLIENT", "KILL", "TYPE", "normal"]);
        store.read_usage(test_month(), None).unwrap();
        server.run(&["CLIENT", "KILL", "TYPE", "normal"]);
        store.ring_version().unwrap();
        server.run(&["CLIENT", "KILL", "TYPE", "normal"]);
        store.latest_month().unwrap();
        server.run(&["CLIENT", "KILL", "TYPE", "normal"]);
        store.top_rows_and_dedup_hashes(1).unwrap();
        server.run(&["CLIENT", "KILL", "TYPE", "normal"]);
        store.probe(test_month(), None).unwrap();
        server.run(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
}

#[test]
fn operations_on_a_paused_server_time_out() {
    let server = RedisServer::start();
    let mut store = open_unprobed(&server, SHORT_TIMEOUT);
    let mut alice = TestNode::new(ALICE);
    let batch: Vec<LeaseReport> = (0..512)
        .map(|at| LeaseReport {
            account: format!("account-{at}"),
            ..alice.next_report(5, [0, 0], LIMIT_1000)
        })
        .collect();
    let timed = |operation: &mut dyn FnMut() -> StoreError| {
        let started = Instant::now();
        let error = operation();
        println!("{:?}: {error}", started.elapsed());
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        started.elapsed()
    };
    let probe = store.probe(test_month(), None).unwrap();
    server.pause();
    let took = timed(&mut || alice.send_reports(&mut store, &batch).unwrap_err());
    assert!(took >= SHORT_TIMEOUT && took < 5 * SHORT_TIMEOUT, "{took:?}");
    // Connecting takes longer and has its own timeout.
    for _ in 0..2 {
        let took = timed(&mut || store.probe(test_month(), Some(&probe)).unwrap_err());
        assert!(took < Duration::from_millis(1_500), "{took:?}");
    }
    server.resume();
    wait_until("the server answers again", || store.probe(test_month(), Some(&probe)).is_ok());
    server.pause();
    let took = timed(&mut || store.probe(test_month(), Some(&probe)).unwrap_err());
    assert!(took >= SHORT_TIMEOUT && took < 5 * SHORT_TIMEOUT, "{took:?}");
    server.resume();
    wait_until("the server answers again", || store.probe(test_month(), Some(&probe)).is_ok());
    // On a busy machine the whole batch can take longer than the short timeout.
    let few = &batch[..16];
    wait_until("a few accounts are reported", || {
        alice.send_reports(&mut store, few).is_ok_and(|grants| grants.len() == few.len())
    });
}
