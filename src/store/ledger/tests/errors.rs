//! Errors of a Redis server, and the error texts that they lead to.

use super::server::{
    ACME_LEDGER_KEY, LIMIT_1000, SHORT_TIMEOUT, open_unprobed, report_until_recovered,
};
use super::*;

#[test]
fn an_account_whose_key_is_of_a_wrong_type_fails_alone() {
    let server = RedisServer::start();
    let mut store = open_probed_server(&server);
    let mut alice = TestNode::new(ALICE);
    server.run(&["SET", ACME_LEDGER_KEY, "somebody's"]);
    let own = |name: &str, report| LeaseReport { account: name.to_owned(), ..report };
    let batch = [
        own("before", alice.next_report(5, [0, 0], LIMIT_1000)),
        alice.next_report(5, [0, 0], LIMIT_1000),
        own("after", alice.next_report(7, [0, 0], LIMIT_1000)),
    ];
    let grants = alice.send_reports(&mut store, &batch).unwrap();
    let owns: Vec<Option<u64>> =
        grants.into_iter().map(|grant| grant.ok().map(|grant| grant.own_leased)).collect();
    assert_eq!(owns, [Some(5), None, Some(7)]);
    assert_eq!(server.run(&["GET", ACME_LEDGER_KEY]), "somebody's");
    let others = store.read_usage(test_month(), Some("after")).unwrap();
    assert_eq!(others, [usage_row("after", 0, 7)]);
}

#[test]
fn reports_fail_until_a_server_is_writable_again() {
    let server = RedisServer::start();
    let mut store = open_probed_server(&server);
    let mut alice = TestNode::new(ALICE);
    alice.report(&mut store, 50, [10, 10], LIMIT_1000);
    let nowhere = ["REPLICAOF", "127.0.0.1", "1"];
    let plenty = ["CONFIG", "SET", "maxmemory", "0"];
    for (refuse, allow, expected) in [
        (&nowhere[..], &["REPLICAOF", "NO", "ONE"][..], ": READONLY "),
        (&["CONFIG", "SET", "maxmemory", "1"], &plenty, ": OOM "),
    ] {
        let before = store.probe(test_month(), None).unwrap();
        server.run(refuse);
        let raise = alice.next_report(60, [20, 20], LIMIT_1000);
        for _ in 0..3 {
            // The server can still be read.
            let refusal = store.probe(test_month(), Some(&before)).unwrap().write_refusal.unwrap();
            assert!(refusal.contains(expected), "{refusal}");
            let error = alice.send_report(&mut store, &raise).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        server.run(allow);
        wait_until("the server accepts reports again", || {
            store.probe(test_month(), Some(&before)).is_ok()
                && alice.send_report(&mut store, &raise).is_ok()
        });
        let grant = alice.send_report(&mut store, &raise).unwrap();
        alice.record_grant(&raise, grant);
        report_until_recovered(&mut store, &mut alice, [20, 20], LIMIT_1000);
    }
    assert_eq!(store.read_usage(test_month(), None).unwrap(), [usage_row("acme", 20, 20)]);
}

#[test]
fn check_usable_refuses_eviction_policies() {
    let server = RedisServer::start();
    let mut store = open_unprobed(&server, Duration::from_secs(5));
    store.check_safe_if_reachable().unwrap();
    for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
        server.run(&["CONFIG", "SET", "maxmemory-policy", policy]);
        for error in
            [store.check_safe_if_reachable().unwrap_err(), store.check_still_safe().unwrap_err()]
        {
            assert!(matches!(error, StoreError::Unusable { .. }));
            let error = error.to_string();
            let expected = "expected maxmemory-policy noeviction";
            assert!(error.contains(expected) && error.ends_with(policy), "{error}");
        }
    }
    server.run(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    store.check_safe_if_reachable().unwrap();
}

#[test]
fn an_unreachable_server_passes_check_usable() {
    let mut server = RedisServer::start();
    server.kill();
    let mut store = open_unprobed(&server, SHORT_TIMEOUT);
    store.check_safe_if_reachable().unwrap();
    let error = store.probe(test_month(), None).unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    let expected = format!("redis://127.0.0.1:{}: connecting: ", server.port());
    assert!(error.to_string().starts_with(&expected), "{error}");
}

/// The text of the redis crate would quote the answer byte by byte.
#[test]
fn an_answer_of_another_protocol_is_told_as_such() {
    for scheme in ["redis", "redis+cluster", "redis+sentinel"] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let service = if scheme.ends_with("sentinel") { "/main" } else { "" };
        let url = format!("{scheme}://{}{service}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for client in listener.incoming().take(8) {
                let _ = std::io::Write::write_all(&mut client.unwrap(), b"<!DOCTYPE HTML>\r\n");
            }
        });
        let options = RedisOptions::default();
        let error = open_without_connecting(&url, &options, SHORT_TIMEOUT)
            .probe(test_month(), None)
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("what answers there speaks no Redis"), "{error}");
    }
}

#[test]
fn a_login_error_hides_user_and_password() {
    let server = RedisServer::start();
    server.run(&["ACL", "SETUSER", "gate", "on", ">r1ght", "~*", "+@all"]);
    let open =
        |url: &str| open_without_connecting(url, &RedisOptions::default(), Duration::from_secs(5));
    open(&server.url_as("gate", "r1ght")).probe(test_month(), None).unwrap();
    for url in [server.url_as("gate", "s3cr3t"), server.url_as("nobody", "s3cr3t")] {
        let error = open(&url).probe(test_month(), None).unwrap_err().to_string();
        assert!(error.ends_with(": the server refuses the user or the password"), "{error}");
        assert!(!error.contains("s3cr3t") && !error.contains("nobody"), "{error}");
    }
    let error = open(&format!("{}/99", server.url())).probe(test_month(), None).unwrap_err();
    assert!(error.to_string().contains(": the server refuses the number behind"), "{error}");
    server.run(&["CONFIG", "SET", "requirepass", "set-meanwhile"]);
    let error = open(&server.url()).probe(test_month(), None).unwrap_err().to_string();
    assert!(error.contains("NOAUTH"), "{error}");
}
