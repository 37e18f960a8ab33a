//! Tests of a server: lost and damaged rows, imports, outages, replicas, permissions to evict.

use std::time::Duration;

use super::super::redis_server::{RedisCluster, RedisServer};
use super::super::{ClientCertificatePaths, RedisOptions, Store, StoreError, StoreUrl, TopCredit};
use super::{TESTER, add_keys, key, open, open_with_options, ring_version, rows};
use crate::model::month::Month;

#[test]
fn an_empty_server_is_no_store_until_something_is_written() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    assert_eq!(store.ring_version().unwrap(), None);
    assert!(store.ring_rows().unwrap().is_none());
    store.probe(crate::model::month::Month::LAST, None).unwrap();
    assert_eq!(store.ring_version().unwrap(), None, "a probe initializes no store");
    store.expire_or_revoke_key(&TESTER, "nobody", None, Some(1)).unwrap_err();
    assert_eq!(store.ring_version().unwrap(), None, "a refused operation does not either");
    store.ring_changes(0).unwrap_err();
    add_keys(&mut store, &[key(1, "acme")]);
    let first = store.ring_version().unwrap();
    server.run(&["FLUSHALL"]);
    assert_eq!(store.ring_version().unwrap(), None);
    add_keys(&mut store, &[key(1, "acme")]);
    assert_ne!(store.ring_version().unwrap().unwrap().store_id, first.unwrap().store_id);
}

#[test]
fn lost_rows_are_an_error() {
    for lose in [
        &["DEL", "riskgate:{ring}:keys"][..],
        &["DEL", "riskgate:{ring}:accounts"],
        &["DEL", "riskgate:{ring}:digests"],
        &["DEL", "riskgate:{ring}:changed"],
        &["HDEL", "riskgate:{ring}:keys", "key_2"],
        &["HDEL", "riskgate:{ring}:meta", "version"],
    ] {
        let server = RedisServer::start();
        let mut store = open(&server.url());
        add_keys(&mut store, &[key(1, "acme"), key(2, "acme")]);
        server.run(lose);
        let error = store.ring_rows().unwrap_err().to_string();
        let expected = "expected the keys and accounts that were written, but found";
        assert!(error.contains(expected), "{lose:?}: {error}");
        store.ring_changes(0).unwrap_err();
    }
}

#[test]
fn an_unreadable_row_affects_no_other() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    add_keys(&mut store, &[key(1, "acme"), key(2, "other"), key(3, "third")]);
    let before = ring_version(&mut store);
    store.expire_or_revoke_key(&TESTER, "key_2", None, Some(5)).unwrap();
    store.set_account(&TESTER, "third", Some("pro"), None).unwrap();
    let script = "redis.call('HSET', KEYS[1], 'key_2', '- \\255\\254 \\0')";
    server.run(&["EVAL", script, "1", "riskgate:{ring}:keys"]);
    server.run(&["HSET", "riskgate:{ring}:accounts", "third", "- - - garbage"]);
    let found = rows(&mut store);
    let ids: Vec<&str> = found.keys.iter().map(|key| key.id.as_str()).collect();
    assert_eq!(ids, ["key_1", "key_3"]);
    assert_eq!(found.accounts, [super::account("acme", None), super::account("other", None)]);
    let changes = store.ring_changes(before).unwrap();
    for damaged in [&found.damaged, &changes.damaged] {
        assert_eq!(damaged.key_digests_by_id.get("key_2"), Some(&Some(key(2, "").digest)));
        assert_eq!(damaged.account_names.iter().collect::<Vec<_>>(), ["third"]);
    }
    let refused =
        store.expire_or_revoke_key(&TESTER, "key_2", None, Some(5)).unwrap_err().to_string();
    assert!(refused.contains("DAMAGED key key_2"), "{refused}");
    let refused = store.add_keys(&TESTER, &[(key(4, "third"), None)], None);
    assert!(refused.is_ok() || refused.unwrap_err().to_string().contains("DAMAGED"));
    store
        .set_account(
            &TESTER,
            "third",
            Some("pro"),
            Some(super::super::LimitChange::SetOwnLimit(super::super::MonthlyLimit::Calls(7))),
        )
        .unwrap();
    assert!(rows(&mut store).damaged.account_names.is_empty(), "setting the account repairs it");
}

#[test]
fn a_server_that_may_evict_keys_is_unusable() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    store.check_safe_if_reachable().unwrap();
    server.run(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    for error in
        [store.check_safe_if_reachable().unwrap_err(), store.check_still_safe().unwrap_err()]
    {
        assert!(matches!(error, StoreError::Unusable { .. }), "{error}");
        assert!(
            error
                .to_string()
                .contains("noeviction, because other policies evict counts, but found allkeys-lru")
        );
    }
    server.run(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    store.check_still_safe().unwrap();
}

/// A server whose memory is full runs no transaction, so a node that started beside it knew no key.
#[test]
fn a_full_server_can_be_read() {
    let cluster = RedisCluster::begin_start(1, &[]);
    let server = RedisServer::start();
    cluster.wait_until_ready();
    for (url, server) in [(server.url(), &server), (cluster.url(), &cluster.primaries[0])] {
        let mut store = open(&url);
        add_keys(&mut store, &[key(1, "acme")]);
        let version = ring_version(&mut store);
        add_keys(&mut store, &[key(2, "acme")]);
        super::overrides::set(&mut store, "a.com", "deny").unwrap();
        server.run(&["SCRIPT", "FLUSH"]);
        server.run(&["CONFIG", "SET", "maxmemory", "1"]);
        let mut store = open(&url);
        let refused = store.set_account(&TESTER, "acme", Some("pro"), None).unwrap_err();
        assert!(refused.to_string().contains("OOM"), "{refused}");
        assert_eq!(rows(&mut store).keys.len(), 2);
        assert_eq!(store.ring_changes(version).unwrap().keys.len(), 1);
        assert_eq!(store.stored_overrides().unwrap().unwrap().rows.len(), 1);
        let records = store.read_audit_after(None, 10).unwrap();
        assert_eq!(records.last().unwrap().target, "a.com");
        assert!(store.read_usage(Month::LAST, None).unwrap().is_empty());
    }
}

#[test]
fn a_dead_server_passes_check_usable_but_operations_fail() {
    let mut server = RedisServer::start();
    let mut store = open(&server.url());
    add_keys(&mut store, &[key(1, "acme")]);
    server.kill();
    store.check_safe_if_reachable().unwrap();
    assert!(matches!(store.ring_version().unwrap_err(), StoreError::Unavailable { .. }));
    assert!(matches!(store.ring_rows().unwrap_err(), StoreError::Unavailable { .. }));
    assert!(matches!(store.mark_as_store(&TESTER).unwrap_err(), StoreError::Unavailable { .. }));
    server.restart();
    store.mark_as_store(&TESTER).unwrap();
}

#[test]
fn ring_scripts_are_loaded_again_after_a_flush() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    add_keys(&mut store, &[key(1, "acme")]);
    server.run(&["SCRIPT", "FLUSH"]);
    add_keys(&mut store, &[key(2, "acme")]);
    server.run(&["SCRIPT", "FLUSH"]);
    store.expire_or_revoke_key(&TESTER, "key_1", Some(5), None).unwrap();
    let found = rows(&mut store);
    assert_eq!(
        (found.keys.len(), found.keys[0].expires_at, found.ring_version.version),
        (2, Some(5), 4)
    );
}

#[test]
fn a_write_that_too_few_replicas_have_is_not_acknowledged() {
    let server = RedisServer::start();
    let options = RedisOptions { wait_replicas: 1, ..RedisOptions::default() };
    let mut store = open_with_options(&server.url(), &options);
    let error = store.set_account(&TESTER, "acme", Some("pro"), None).unwrap_err().to_string();
    assert!(error.contains("it is done, but only 0 of 1 replicas have it"), "{error}");
    let _replica = RedisServer::replica_of(&server);
    let started = std::time::Instant::now();
    while store.set_account(&TESTER, "acme", Some("pro"), None).is_err() {
        assert!(started.elapsed() < Duration::from_secs(20), "the replica never came");
    }
    store.add_keys(&TESTER, &[(key(1, "acme"), None)], None).unwrap();
    store.expire_or_revoke_key(&TESTER, "key_1", None, Some(1)).unwrap();
}

#[test]
fn dedup_hashes_of_a_day_are_kept_for_two_days() {
    let server = RedisServer::start();
    let credit = TopCredit {
        domain: "a.test".to_owned(),
        initial_count: 0.0,
        at: 0,
        dedup_hashes: vec![(1, 1)],
    };
    open(&server.url()).add_credits(&[credit], &[], 20_000, 60.0).unwrap();
    let ttl: i64 = server.run(&["TTL", "riskgate:{top}:marks:20000"]).parse().unwrap();
    assert!((172_790..=172_800).contains(&ttl), "{ttl}");
}

#[test]
fn ring_keys_share_a_hash_tag_and_so_do_top_keys() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    add_keys(&mut store, &[key(1, "acme")]);
    let credit = TopCredit {
        domain: "a.test".to_owned(),
        initial_count: 0.0,
        at: 0,
        dedup_hashes: vec![(1, 1)],
    };
    store.add_credits(&[credit], &[], 20_000, 60.0).unwrap();
    let names = server.matching_keys("*");
    assert_eq!(names.len(), 8, "{names:?}");
    for name in names {
        assert!(name.starts_with("riskgate:{ring}:") || name.starts_with("riskgate:{top}:"));
    }
}

#[test]
fn no_error_shows_a_password() {
    let mut server = RedisServer::start();
    server.run(&["ACL", "SETUSER", "me", "on", ">right", "~nothing", "+@all"]);
    let collect_errors = |store: &mut Store| {
        let mut errors = Vec::new();
        errors.extend(store.ring_version().err().map(|error| error.to_string()));
        errors.extend(store.ring_rows().err().map(|error| error.to_string()));
        errors.extend(store.mark_as_store(&TESTER).err().map(|error| error.to_string()));
        errors.extend(store.top_rows_and_dedup_hashes(1).err().map(|error| error.to_string()));
        errors.extend(
            store.probe(crate::model::month::Month::LAST, None).err().map(|e| e.to_string()),
        );
        assert_eq!(errors.len(), 5, "{errors:?}");
        errors
    };
    let mut all = collect_errors(&mut open(&server.url_as("me", "s3cr3t")));
    all.extend(collect_errors(&mut open(&server.url_as("me", "right"))));
    let mut store = open(&server.url_as("me", "s3cr3t"));
    server.kill();
    all.extend(collect_errors(&mut store));
    for line in all {
        assert!(!line.contains("s3cr3t") && !line.contains("right"), "{line}");
        assert!(line.contains(&format!("redis://127.0.0.1:{}", server.port())), "{line}");
    }
    let url = "redis://me:s3cr3t@nowhere.invalid:1/0";
    let store = Store::open(
        &StoreUrl::parse(url).unwrap(),
        &RedisOptions::default(),
        Duration::from_millis(50),
    );
    let error = store.unwrap().ring_version().unwrap_err().to_string();
    assert!(!error.contains("s3cr3t"), "{error}");
}

/// Run by hand: `cargo test --release --lib hundred_thousand -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, run by hand"]
fn measure_hundred_thousand_keys() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    add_keys(&mut store, &[key(1_000_000, "before")]);
    let keys: Vec<_> =
        (0..100_000).map(|n| (key(n, &format!("account-{}", n % 10_000)), None)).collect();
    let time = |label: &str, action: &mut dyn FnMut(&mut Store)| {
        let started = std::time::Instant::now();
        action(&mut open(&server.url()));
        println!("{label}: {:?}", started.elapsed());
    };
    time("add", &mut |store| store.add_keys(&TESTER, &keys, None).unwrap());
    let slowest = server.run(&["INFO", "commandstats"]);
    println!("{}", slowest.lines().find(|line| line.contains("evalsha")).unwrap_or_default());
    println!("{}", server.run(&["SLOWLOG", "GET", "1"]).lines().nth(2).unwrap_or("none slow"));
    time("rows", &mut |store| drop(store.ring_rows().unwrap()));
    time("all changes", &mut |store| drop(store.ring_changes(2).unwrap()));
    time("one change", &mut |store| {
        store.expire_or_revoke_key(&TESTER, "key_5", Some(1), None).unwrap()
    });
    let since = ring_version(&mut store) - 1;
    time("version", &mut |store| drop(store.ring_version().unwrap()));
    time("changes", &mut |store| drop(store.ring_changes(since).unwrap()));
}

#[test]
fn usage_by_day_of_a_large_account_blocks_no_other_client() {
    let server = RedisServer::start();
    let (mut store, month) = (open(&server.url()), Month::LAST);
    let usage = format!("riskgate:usage:{{acme}}:{month}");
    let fill = "for i = 1, 5000 do
        redis.call('HSET', KEYS[1], '2 check node key_' .. string.format('%04d', i), i) end
        for node = 1, 2 do
            redis.call('HSET', KEYS[1], '1 check ' .. node .. ' key', '18446744073709551615')
        end";
    server.run(&["EVAL", fill, "1", &usage]);
    let rows = store.read_daily_usage(month, Some("acme"), None, 9_999).unwrap();
    assert_eq!((rows.len(), rows[0].calls, rows[1].calls), (5_001, u64::MAX, 1));
    assert!(rows.is_sorted_by_key(|row| row.cursor()));
    let page = store.read_daily_usage(month, None, Some(&rows[3].cursor()), 2).unwrap();
    assert_eq!(page, rows[4..6]);
    let commands = server.run(&["INFO", "commandstats"]);
    assert!(!commands.contains("cmdstat_hgetall"), "{commands}");
}

#[test]
fn a_record_that_is_no_text_stops_no_other() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    add_keys(&mut store, &[key(1, "acme")]);
    let script = "redis.call('XADD', KEYS[1], '*', 'target', '\\255', '\\255', 'x')";
    server.run(&["EVAL", script, "1", "riskgate:{ring}:audit"]);
    let records = store.read_audit_after(None, 9).unwrap();
    let [created, damaged] = &records[..] else { panic!("{records:?}") };
    assert_eq!((&*created.target, &*damaged.target), ("key_1", "\u{fffd}"));
    assert_eq!(store.find_audit_record(&damaged.id).unwrap().as_ref(), Some(damaged));
}

#[test]
fn renewed_certificates_are_read_again_once_a_connection_fails() {
    let (server, other) = (RedisServer::start_with_client_tls(), RedisServer::start_with_tls());
    let folder = tempfile::tempdir().unwrap();
    let [tls_ca, certificate, key] =
        ["ca.pem", "client.pem", "client.key"].map(|name| folder.path().join(name));
    let copy_from = |server: &RedisServer| {
        let [from_certificate, from_key] = server.certificate_paths();
        std::fs::copy(server.ca_certificate_path(), &tls_ca).unwrap();
        std::fs::copy(from_certificate, &certificate).unwrap();
        std::fs::copy(from_key, &key).unwrap();
    };
    copy_from(&other);
    let paths = ClientCertificatePaths { certificate: certificate.clone(), key: key.clone() };
    let options = RedisOptions {
        tls_ca: Some(tls_ca.clone()),
        client_certificate: Some(paths),
        ..RedisOptions::default()
    };
    let url = StoreUrl::parse(&server.tls_url()).unwrap();
    let mut store = Store::open(&url, &options, Duration::from_secs(5)).unwrap();
    assert!(store.ring_version().is_err(), "another authority");
    copy_from(&server);
    assert!(store.ring_version().is_ok());
}
