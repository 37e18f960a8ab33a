//! What a server can refuse, and what is told of it.

use super::server::{NUMBERS, SHORT, THOUSAND, settle, url_of};
use super::*;

#[test]
fn an_account_whose_key_is_of_a_wrong_type_fails_alone() {
    let server = RedisServer::start();
    let mut store = connected(&server);
    let mut alice = Node::new(ALICE);
    server.tell(&["SET", NUMBERS, "somebody's"]);
    let own = |name: &str, statement| Statement { account: name.to_owned(), ..statement };
    let batch = [
        own("before", alice.next(5, [0, 0], THOUSAND)),
        alice.next(5, [0, 0], THOUSAND),
        own("after", alice.next(7, [0, 0], THOUSAND)),
    ];
    let words = alice.send_all(&mut store, &batch).unwrap();
    let owns: Vec<Option<u64>> = words.iter().map(|word| word.map(|word| word.own)).collect();
    assert_eq!(owns, [Some(5), None, Some(7)]);
    assert_eq!(server.tell(&["GET", NUMBERS]), "somebody's");
    let others = store.usage(month(), Some("after")).unwrap();
    assert_eq!(others, [row("after", 0, 7)]);
}

#[test]
fn a_server_that_only_reads_or_is_full_says_so_and_is_of_use_again_later() {
    let server = RedisServer::start();
    let mut store = connected(&server);
    let mut alice = Node::new(ALICE);
    alice.say(&mut store, 50, [10, 10], THOUSAND);
    let nowhere = ["REPLICAOF", "127.0.0.1", "1"];
    let plenty = ["CONFIG", "SET", "maxmemory", "0"];
    for (refuse, allow, words) in [
        (&nowhere[..], &["REPLICAOF", "NO", "ONE"][..], "READONLY"),
        (&["CONFIG", "SET", "maxmemory", "1"], &plenty, "OOM"),
    ] {
        let before = store.pulse(month(), None).unwrap();
        server.tell(refuse);
        let raise = alice.next(60, [20, 20], THOUSAND);
        for _ in 0..3 {
            // It may be pulsed or not; it never acknowledges.
            let _ = store.pulse(month(), Some(&before));
            let error = alice.send(&mut store, &raise).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        server.tell(allow);
        until("it takes numbers again", || {
            store.pulse(month(), Some(&before)).is_ok() && alice.send(&mut store, &raise).is_ok()
        });
        let word = alice.send(&mut store, &raise).unwrap();
        alice.learn(&raise, word);
        settle(&mut store, &mut alice, [20, 20], THOUSAND);
    }
    assert_eq!(store.usage(month(), None).unwrap(), [row("acme", 20, 20)]);
}

#[test]
fn a_server_that_throws_keys_away_is_refused() {
    let server = RedisServer::start();
    let mut store = url_of(&server, Duration::from_secs(5));
    store.check().unwrap();
    for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
        server.tell(&["CONFIG", "SET", "maxmemory-policy", policy]);
        for error in [store.check().unwrap_err(), store.recheck().unwrap_err()] {
            assert!(matches!(error, StoreError::Unusable { .. }));
            let error = error.to_string();
            let words = "expected maxmemory-policy noeviction";
            assert!(error.contains(words) && error.ends_with(policy), "{error}");
        }
    }
    server.tell(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    store.check().unwrap();
}

#[test]
fn a_server_that_is_not_there_is_no_wrong_one() {
    let mut server = RedisServer::start();
    server.kill();
    let mut store = url_of(&server, SHORT);
    store.check().unwrap();
    let error = store.pulse(month(), None).unwrap_err();
    assert!(matches!(error, StoreError::Unanswered { .. }), "{error}");
    let words = format!("redis://127.0.0.1:{}: connecting: ", server.port());
    assert!(error.to_string().starts_with(&words), "{error}");
}

#[test]
fn a_wrong_password_is_told_without_showing_it() {
    let server = RedisServer::start();
    server.tell(&["ACL", "SETUSER", "gate", "on", ">r1ght", "~*", "+@all"]);
    let open = |url: &str| unconnected(url, &RedisOptions::default(), Duration::from_secs(5));
    open(&server.url_as("gate", "r1ght")).pulse(month(), None).unwrap();
    for url in [server.url_as("gate", "s3cr3t"), server.url_as("nobody", "s3cr3t")] {
        let error = open(&url).pulse(month(), None).unwrap_err().to_string();
        assert!(error.to_lowercase().contains("auth") || error.contains("WRONGPASS"), "{error}");
        assert!(!error.contains("s3cr3t") && !error.contains("nobody"), "{error}");
    }
    server.tell(&["CONFIG", "SET", "requirepass", "set-meanwhile"]);
    let error = open(&server.url()).pulse(month(), None).unwrap_err().to_string();
    assert!(error.contains("NOAUTH"), "{error}");
}
