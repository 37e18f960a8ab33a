//! TLS, replicas, connections that die and servers that hang.

use super::server::{NUMBERS, SHORT, THOUSAND, alice_and_bob, url_of};
use super::*;

#[test]
fn tls_works_with_the_authority_that_is_named_and_with_no_other() {
    let (server, other) = (RedisServer::start_with_tls(), RedisServer::start_with_tls());
    let open = |tls_ca: Option<PathBuf>| {
        let options = RedisOptions { tls_ca, ..RedisOptions::default() };
        unconnected(&server.tls_url(), &options, Duration::from_secs(5))
    };
    let mut store = open(Some(server.authority()));
    store.check().unwrap();
    store.pulse(month(), None).unwrap();
    assert_eq!(Node::new(ALICE).say(&mut store, 5, [0, 0], THOUSAND).own, 5);
    for wrong in [Some(other.authority()), None] {
        let error = open(wrong).pulse(month(), None).unwrap_err().to_string();
        assert!(error.starts_with("rediss://127.0.0.1:"), "{error}");
        assert!(error.contains("connecting: ") && error.contains("ertificate"), "{error}");
    }
}

#[test]
fn an_authority_that_is_no_certificate_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let open = || {
        let options = RedisOptions { tls_ca: Some(path.clone()), ..RedisOptions::default() };
        let url = StoreUrl::parse("rediss://127.0.0.1:1").unwrap();
        Store::open(&url, &options, SHORT).err().expect("a refusal").to_string()
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
fn an_acknowledgement_of_a_replica_is_waited_for_where_it_is_wanted() {
    let server = RedisServer::start();
    let options = RedisOptions { wait_replicas: 1, ..RedisOptions::default() };
    let mut store = unconnected(&server.url(), &options, Duration::from_millis(800));
    store.pulse(month(), None).unwrap();
    let mut alice = Node::new(ALICE);
    let raise = alice.next(5, [0, 0], THOUSAND);
    let error = alice.send(&mut store, &raise).unwrap_err().to_string();
    assert!(error.ends_with("only 0 of 1 replicas have it"), "{error}");
    let replica = RedisServer::replica_of(&server);
    let raise = alice.next(9, [1, 1], THOUSAND);
    until("the replica has it", || {
        store.pulse(month(), None).is_ok() && alice.send(&mut store, &raise).is_ok()
    });
    assert_eq!(replica.tell(&["HGET", NUMBERS, "leased"]), "9");
    assert_eq!(store.missing_replicas(), 0);
    replica.stop();
    let raise = alice.next(10, [2, 2], THOUSAND);
    let error = alice.send(&mut store, &raise).unwrap_err().to_string();
    assert!(error.ends_with("only 0 of 1 replicas have it"), "{error}");
    assert_eq!(store.missing_replicas(), 1);
    // Who may go on without it has the server's own word, and the next ones without a wait.
    let settle = Duration::ZERO;
    let round = Round { node: &ALICE, month: month(), settle, needs_replicas: false };
    for target in 11..31 {
        let raise = alice.next(target, [2, 2], THOUSAND);
        let begun = Instant::now();
        let standing = store.state(round, &[raise]).unwrap()[0].unwrap();
        assert_eq!((standing.own, store.missing_replicas()), (target, 1));
        assert!(begun.elapsed() < Duration::from_millis(400), "{:?}", begun.elapsed());
    }
    replica.cont();
    until("it is seen again, without a statement", || {
        store.pulse(month(), None).unwrap();
        store.missing_replicas() == 0
    });
}

#[test]
fn a_server_s_clock_that_is_set_back_while_accounts_settle_does_not_prolong_that() {
    let server = RedisServer::start();
    let mut store = connected(&server);
    let (mut alice, _) = alice_and_bob(&mut store);
    let account = NUMBERS.replace("ledger", "settling");
    let all = "riskgate:{ring}:settling";
    for key in [account.as_str(), all] {
        server.tell(&["SET", key, "1", "PX", "86400000"]);
    }
    let settles = store.pulse(month(), None).unwrap().settle;
    assert!(settles <= Duration::from_secs(3), "{settles:?}");
    assert!(alice.say(&mut store, 50, [9, 9], THOUSAND).settling);
    until("nothing settles any more", || {
        let settles = store.pulse(month(), None).unwrap().settle;
        settles.is_zero() && !alice.say(&mut store, 50, [9, 9], THOUSAND).settling
    });
}

#[test]
fn a_kept_connection_that_died_costs_no_read() {
    let server = RedisServer::start();
    let mut store = connected(&server);
    alice_and_bob(&mut store);
    for _ in 0..3 {
        store.others_spent("acme", month(), &BOB).unwrap();
        server.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
        store.usage(month(), None).unwrap();
        server.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
        store.ring_mark().unwrap();
        server.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
        store.latest_month().unwrap();
        server.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
        store.top(1).unwrap();
        server.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
        store.pulse(month(), None).unwrap();
        server.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
}

#[test]
fn a_silent_server_costs_no_more_than_the_patience() {
    let server = RedisServer::start();
    let mut store = url_of(&server, SHORT);
    let mut alice = Node::new(ALICE);
    let batch: Vec<Statement> = (0..512)
        .map(|at| Statement { account: format!("account-{at}"), ..alice.next(5, [0, 0], THOUSAND) })
        .collect();
    let timed = |operation: &mut dyn FnMut() -> StoreError| {
        let begun = Instant::now();
        let error = operation();
        println!("{:?}: {error}", begun.elapsed());
        assert!(matches!(error, StoreError::Unanswered { .. }), "{error}");
        begun.elapsed()
    };
    let pulse = store.pulse(month(), None).unwrap();
    server.stop();
    let took = timed(&mut || alice.send_all(&mut store, &batch).unwrap_err());
    assert!(took >= SHORT && took < 5 * SHORT, "{took:?}");
    // To connect takes longer, and has a limit of its own.
    for _ in 0..2 {
        let took = timed(&mut || store.pulse(month(), Some(&pulse)).unwrap_err());
        assert!(took < Duration::from_millis(1_500), "{took:?}");
    }
    server.cont();
    until("it answers again", || store.pulse(month(), Some(&pulse)).is_ok());
    server.stop();
    let took = timed(&mut || store.pulse(month(), Some(&pulse)).unwrap_err());
    assert!(took >= SHORT && took < 5 * SHORT, "{took:?}");
    server.cont();
    until("it answers again", || store.pulse(month(), Some(&pulse)).is_ok());
    assert_eq!(alice.send_all(&mut store, &batch).unwrap().len(), 512);
}
