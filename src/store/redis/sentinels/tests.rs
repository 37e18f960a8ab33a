//! Tests with real Sentinels: failovers, an old primary, wrong and dead Sentinels, passwords.

use std::time::{Duration, Instant};

use super::{NamedServer, choose_server};
use crate::model::month::Month;
use crate::store::redis_server::{RedisServer, Sentinels};
use crate::store::{RedisOptions, Store, StoreUrl};

const TIMEOUT: Duration = Duration::from_secs(2);

fn open(url: &str, options: &RedisOptions) -> Store {
    Store::open(&StoreUrl::parse(url).unwrap(), options, TIMEOUT).unwrap()
}

/// Asks the server that the Sentinels name. Returns the error.
fn ask(store: &mut Store) -> Result<(), String> {
    store.probe(Month::FIRST, None).map(drop).map_err(|error| error.to_string())
}

#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A primary with a replica in sync. Both know the user `riskgate`.
fn primary_with_replica() -> (RedisServer, RedisServer) {
    let primary = RedisServer::start();
    let replica = RedisServer::replica_of(&primary);
    for server in [&primary, &replica] {
        server.run(&["ACL", "SETUSER", "riskgate", "on", ">pass", "~*", "&*", "+@all"]);
    }
    wait_until("the replica is in sync", || {
        replica.run(&["INFO", "replication"]).contains("master_link_status:up")
    });
    (primary, replica)
}

/// Returns true if a store is connected to this server.
fn serves_a_store(server: &RedisServer) -> bool {
    // A failover ends the connections of a server.
    let clients = server.try_run(&["CLIENT", "LIST"]);
    let clients = clients.ok().and_then(|reply| redis::from_redis_value::<String>(reply).ok());
    clients.is_some_and(|clients| clients.contains("user=riskgate"))
}

fn url_as_riskgate(sentinels: &Sentinels) -> String {
    sentinels.url().replace("redis+sentinel://", "redis+sentinel://riskgate:pass@")
}

#[test]
fn a_store_follows_a_failover_beside_a_dead_sentinel() {
    assert_follows_failover(|sentinels| sentinels.kill(0));
}

#[test]
fn a_store_follows_a_failover_beside_a_sentinel_that_hangs() {
    assert_follows_failover(|sentinels| sentinels.pause(0));
}

/// Disables the first of three Sentinels, which the address names first; two are left to agree.
fn assert_follows_failover(disable_first: impl FnOnce(&mut Sentinels)) {
    let (mut primary, replica) = primary_with_replica();
    let mut sentinels = Sentinels::start(3, &primary, "");
    disable_first(&mut sentinels);
    let mut store = open(&url_as_riskgate(&sentinels), &RedisOptions::default());
    ask(&mut store).unwrap();
    assert!(serves_a_store(&primary) && !serves_a_store(&replica));
    primary.kill();
    wait_until("the store answers again", || {
        let begun = Instant::now();
        let has_answered = ask(&mut store).is_ok();
        assert!(begun.elapsed() < 2 * TIMEOUT, "an operation ends in time");
        has_answered
    });
    assert!(replica.run(&["INFO", "replication"]).contains("role:master"));
    assert!(serves_a_store(&replica));
}

#[test]
fn a_store_leaves_an_old_primary_that_only_it_can_reach() {
    let (primary, replica) = primary_with_replica();
    let sentinels = Sentinels::start(3, &primary, "");
    let mut store = open(&url_as_riskgate(&sentinels), &RedisOptions::default());
    ask(&mut store).unwrap();
    let old = redis::Client::open(primary.url_as("riskgate", "pass")).unwrap();
    let mut old = old.get_connection().unwrap();
    // The Sentinels are the default user, so they find the server down, and can't tell it.
    for words in [&["ACL", "SETUSER", "default", "off"][..], &["CLIENT", "KILL", "USER", "default"]]
    {
        redis::Cmd::new().arg(words).exec(&mut old).unwrap();
    }
    wait_until("the store is on the new primary", || {
        let _ = ask(&mut store);
        serves_a_store(&replica)
    });
    ask(&mut store).unwrap();
    let info: String = redis::cmd("INFO").arg("replication").query(&mut old).unwrap();
    assert!(info.contains("role:master"), "the old primary does not know it");
    assert!(replica.run(&["INFO", "replication"]).contains("role:master"));
}

#[test]
fn a_store_follows_sentinels_that_were_set_up_again() {
    let (primary, replica) = primary_with_replica();
    let sentinels = Sentinels::start(3, &primary, "");
    let mut store = open(&url_as_riskgate(&sentinels), &RedisOptions::default());
    ask(&mut store).unwrap();
    let first = sentinels.ports()[0];
    wait_until("a failover begins", || {
        sentinels.try_run(first, &["SENTINEL", "FAILOVER", "main"]).is_ok()
    });
    wait_until("the store is on the new primary", || {
        ask(&mut store).is_ok() && serves_a_store(&replica)
    });
    let other = RedisServer::start();
    other.run(&["ACL", "SETUSER", "riskgate", "on", ">pass", "~*", "&*", "+@all"]);
    let port = other.port().to_string();
    for sentinel in sentinels.ports() {
        let run = |words: &[&str]| sentinels.try_run(sentinel, words).unwrap();
        run(&["SENTINEL", "REMOVE", "main"]);
        run(&["SENTINEL", "MONITOR", "main", "127.0.0.1", &port, "2"]);
    }
    wait_until("the store is on the server that the Sentinels name now", || {
        ask(&mut store).is_ok() && serves_a_store(&other) && !serves_a_store(&replica)
    });
}

fn named(host: &str, epoch: &str, count: &str) -> Result<NamedServer, String> {
    let (epoch, sentinel_count) = (epoch.parse().unwrap(), count.parse().unwrap());
    Ok(NamedServer { host: host.to_owned(), epoch, sentinel_count })
}

#[test]
fn more_than_half_of_the_sentinels_outvote_any_number_of_failovers() {
    let answer = |text: &str| match text.split(' ').collect::<Vec<_>>()[..] {
        [host, epoch] => named(host, epoch, "3"),
        [host, epoch, count] => named(host, epoch, count),
        _ => Err(text.to_owned()),
    };
    for (answers, chosen) in [
        (&["a 0", "b 9", "a 0"][..], Some("a 0")),
        (&["a 0", "b 9", "late"], Some("b 9")),
        (&["a 1", "a 2", "late"], Some("a 2")),
        (&["a 1 2", "b 2 2"], Some("b 2 2")),
        (&["a 1 4", "b 2 4", "a 1 4", "b 2 4"], Some("b 2 4")),
        (&["late", "late", "a 1"], Some("a 1")),
        // The address lists three of five Sentinels: two that were cut off are no majority.
        (&["a 1 5", "a 1 5", "b 2 5"], Some("b 2 5")),
        (&["late", "late"], None),
    ] {
        let answers: Vec<_> = answers.iter().copied().map(answer).collect();
        let expected = chosen.map(|text| answer(text).unwrap());
        assert_eq!(choose_server(&answers).cloned(), expected, "{answers:?}");
    }
}

#[test]
fn why_no_server_is_found_is_told() {
    let primary = RedisServer::start();
    let sentinels = Sentinels::start(1, &primary, "");
    let error_at = |url: &str| ask(&mut open(url, &RedisOptions::default())).unwrap_err();
    let error = error_at(&sentinels.url().replace("/main", "/other"));
    assert!(error.contains("no Sentinel names a primary: 127.0.0.1:"), "{error}");
    assert!(error.contains("No such master with that name"), "{error}");
    let error = error_at("redis+sentinel://127.0.0.1:1/main");
    assert!(error.contains("127.0.0.1:1: ") && error.contains("refused"), "{error}");
    // A server is no Sentinel.
    let error = error_at(&format!("redis+sentinel://127.0.0.1:{}/main", primary.port()));
    assert!(error.contains("unknown command"), "{error}");
}

#[test]
fn a_replica_is_not_served_although_a_sentinel_names_it() {
    let primary = RedisServer::start();
    let sentinels = Sentinels::start(1, &primary, "");
    let other = RedisServer::start();
    primary.run(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    let error = ask(&mut open(&sentinels.url(), &RedisOptions::default())).unwrap_err();
    assert!(error.contains("which the Sentinels name: "), "{error}");
    assert!(error.contains("expected a primary") && error.contains("role slave"), "{error}");
}

#[test]
fn sentinels_may_want_a_user_and_a_password() {
    let primary = RedisServer::start();
    primary.run(&["ACL", "SETUSER", "riskgate", "on", ">pass", "~*", "&*", "+@all"]);
    let lines = "requirepass other\nuser asker on >word -@all +sentinel|master";
    let sentinels = Sentinels::start_with_password(1, &primary, lines, "other");
    let error = ask(&mut open(&url_as_riskgate(&sentinels), &RedisOptions::default())).unwrap_err();
    assert!(error.contains("NOAUTH"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "word\n").unwrap();
    let options = RedisOptions {
        sentinel_user: Some("asker".to_owned()),
        sentinel_password_file: Some(file),
        ..RedisOptions::default()
    };
    let mut store = open(&url_as_riskgate(&sentinels), &options);
    ask(&mut store).unwrap();
    assert!(serves_a_store(&primary));
}
