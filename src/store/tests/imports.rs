//! Tests of imports of many keys to a server.

use std::time::Duration;

use super::super::NewKeyPlan;
use super::super::redis_server::RedisServer;
use super::{TESTER, add_keys, key, open, rows};

/// Runs an import without its last step and without the permission to undo it, as if the process
/// was killed.
fn interrupt_import(server: &RedisServer, keys: &[(super::KeyRow, Option<NewKeyPlan>)]) {
    let denied = ["-hsetnx", "-zrangebyscore"];
    server.run(&[&["ACL", "SETUSER", "half", "on", ">pass", "~*", "+@all"], &denied[..]].concat());
    open(&server.url_as("half", "pass")).add_keys(&TESTER, keys, None).unwrap_err();
    assert_eq!(server.run(&["HLEN", "riskgate:{ring}:keys"]), keys.len().to_string());
}

/// Lets the time pass for which an import reserves its names.
fn end_reservation_of_import(server: &RedisServer) {
    let imports = server.run(&["HKEYS", "riskgate:{ring}:imports"]);
    let import = imports.lines().last().unwrap();
    let number = server.run(&["HGET", "riskgate:{ring}:meta", "imports"]);
    server.run(&["HSET", "riskgate:{ring}:imports", import, &format!("{number} 1 0")]);
}

fn keys_1500(first: u32, account: &str) -> Vec<(super::KeyRow, Option<NewKeyPlan>)> {
    (first..first + 1_500)
        .map(|n| (key(n, account), Some(NewKeyPlan::of_store_account("pro"))))
        .collect()
}

#[test]
fn an_interrupted_import_is_invisible_and_gets_cleared() {
    let server = RedisServer::start();
    interrupt_import(&server, &keys_1500(0, "acme"));
    let mut store = open(&server.url());
    assert_eq!(store.ring_version().unwrap(), None, "the import initialized no store");
    store.expire_or_revoke_key(&TESTER, "key_5", None, Some(1)).unwrap_err();
    // Other writers continue.
    add_keys(&mut store, &[key(9_000, "other")]);
    let found = rows(&mut store);
    assert_eq!((found.keys.len(), found.accounts.len()), (1, 1));
    let all = store.ring_changes(0).unwrap();
    assert_eq!((all.keys.len(), all.accounts.len()), (1, 1));
    end_reservation_of_import(&server);
    assert_eq!(rows(&mut store), found);
    // The next writer that meets the import clears it.
    store.set_account(&TESTER, "acme", Some("pro"), None).unwrap();
    assert_eq!(server.run(&["HLEN", "riskgate:{ring}:keys"]), "1");
    assert_eq!(server.run(&["HLEN", "riskgate:{ring}:digests"]), "1");
    assert_eq!(server.run(&["ZCARD", "riskgate:{ring}:changed"]), "3");
    assert_eq!(server.matching_keys("*").len(), 6, "{:?}", server.matching_keys("*"));
    store.add_keys(&TESTER, &keys_1500(0, "acme"), None).unwrap();
    assert_eq!(rows(&mut store).keys.len(), 1_501);
}

#[test]
fn an_abandoned_import_can_be_run_again() {
    let server = RedisServer::start();
    interrupt_import(&server, &keys_1500(0, "acme"));
    end_reservation_of_import(&server);
    let mut store = open(&server.url());
    store.add_keys(&TESTER, &keys_1500(0, "acme"), None).unwrap();
    let found = rows(&mut store);
    assert_eq!((found.keys.len(), found.accounts[0].plan.as_deref()), (1_500, Some("pro")));
    assert_eq!(server.run(&["HLEN", "riskgate:{ring}:imports"]), "1");
}

#[test]
fn a_writer_waits_while_an_import_reserves_its_names() {
    let server = RedisServer::start();
    interrupt_import(&server, &keys_1500(0, "acme"));
    let taken = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut store = open(&server.url());
            store.add_keys(&TESTER, &[(key(1_499, "new"), None)], None)
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waiting.is_finished(), "it waits for the end of the import");
        end_reservation_of_import(&server);
        waiting.join().unwrap()
    });
    taken.unwrap();
    assert_eq!(rows(&mut open(&server.url())).keys, [key(1_499, "new")]);
}

#[test]
fn an_import_takes_effect_at_once_or_not_at_all() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    store
        .set_account(
            &TESTER,
            "known",
            Some("pro"),
            Some(super::super::LimitChange::SetOwnLimit(super::super::MonthlyLimit::Calls(7))),
        )
        .unwrap();
    add_keys(&mut store, &[key(2_400, "other")]);
    let before = rows(&mut store);
    let names = server.matching_keys("*").len();
    // The last page has a known key.
    store
        .add_keys(&TESTER, &[keys_1500(0, "known"), keys_1500(1_500, "new")].concat(), None)
        .unwrap_err();
    assert_eq!(rows(&mut store), before);
    assert_eq!(server.run(&["HLEN", "riskgate:{ring}:keys"]), "1");
    assert_eq!(server.matching_keys("*").len(), names);

    store
        .add_keys(&TESTER, &[keys_1500(0, "known"), keys_1500(3_000, "new")].concat(), None)
        .unwrap();
    let found = rows(&mut store);
    assert_eq!(
        (found.keys.len(), found.ring_version.version),
        (3_001, before.ring_version.version + 1)
    );
    let account = |name: &str| found.accounts.iter().find(|account| account.name == name).unwrap();
    assert_eq!(account("known").plan.as_deref(), Some("pro"));
    assert_eq!(account("known").own_limit, Some(super::super::MonthlyLimit::Calls(7)));
    assert_eq!((account("new").plan.as_deref(), account("new").own_limit), (Some("pro"), None));
    for (since, keys, accounts) in
        [(0, 3_001, 3), (before.ring_version.version, 3_000, 1), (found.ring_version.version, 0, 0)]
    {
        let changes = store.ring_changes(since).unwrap();
        assert_eq!((changes.keys.len(), changes.accounts.len()), (keys, accounts), "{since}");
    }
    // Rows of an import can be changed like any other.
    store.expire_or_revoke_key(&TESTER, "key_3", None, Some(5)).unwrap();
    store
        .set_account(
            &TESTER,
            "new",
            None,
            Some(super::super::LimitChange::SetOwnLimit(super::super::MonthlyLimit::Unlimited)),
        )
        .unwrap();
    let changes = store.ring_changes(found.ring_version.version).unwrap();
    assert_eq!(
        (changes.keys[0].revoked_at, changes.accounts[0].plan.as_deref()),
        (Some(5), Some("pro"))
    );
    let older = store.ring_changes(before.ring_version.version).unwrap();
    assert_eq!((older.keys.len(), older.accounts.len()), (3_000, 1));
}

#[test]
fn reading_changes_during_imports_misses_no_row() {
    let server = RedisServer::start();
    open(&server.url()).mark_as_store(&TESTER).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let followed = std::thread::scope(|scope| {
        let follower = scope.spawn(|| {
            let mut store = open(&server.url());
            let mut held = rows(&mut store);
            loop {
                let last = done.load(std::sync::atomic::Ordering::SeqCst);
                let before = held.keys.len();
                held.apply_changes(store.ring_changes(held.ring_version.version).unwrap());
                let grown = held.keys.len() - before;
                assert!(!(500..1_500).contains(&grown), "an import is seen whole: {grown}");
                if last {
                    return super::sort_rows(held);
                }
            }
        });
        let writers: Vec<_> = (0..2u32)
            .map(|writer| {
                let server = &server;
                scope.spawn(move || {
                    let mut store = open(&server.url());
                    for turn in 0..3 {
                        let first = (writer * 3 + turn) * 10_000;
                        store.add_keys(&TESTER, &keys_1500(first, "shared"), None).unwrap();
                        add_keys(&mut store, &[key(first + 5_000, "shared")]);
                        store
                            .expire_or_revoke_key(&TESTER, &format!("key_{first}"), Some(7), None)
                            .unwrap();
                    }
                })
            })
            .collect();
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        written.into_iter().for_each(|outcome| outcome.unwrap());
        follower.join().unwrap()
    });
    assert_eq!(followed.keys.len(), 6 * 1_501);
    assert_eq!(followed, rows(&mut open(&server.url())));
}
