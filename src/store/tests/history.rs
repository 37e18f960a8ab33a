//! Histories of keys and accounts, and rows that are written back, on both stores.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::super::redis_server::RedisServer;
use super::super::{
    AccountRow, KeyRow, LimitChange, MonthlyLimit, RedisOptions, RingVersion, Store, StoreUrl,
};
use super::{TESTER, account, add_keys, key, on_each_store, open, rows};

#[test]
fn a_change_id_identifies_the_history_of_a_version() {
    on_each_store(|location| {
        let mut store = location.open();
        store.mark_as_store(&TESTER).unwrap();
        let mut known: Vec<RingVersion> = Vec::new();
        let changes: [&dyn Fn(&mut Store); 4] = [
            &|store| add_keys(store, &[key(1, "acme")]),
            &|store| store.set_account(&TESTER, "acme", Some("pro"), None).unwrap(),
            &|store| store.expire_or_revoke_key(&TESTER, "key_1", None, Some(5)).unwrap(),
            &|store| {
                assert_eq!(store.write_back_lost_rows(&TESTER, &[key(2, "acme")], &[]).unwrap(), 0)
            },
        ];
        for change in changes {
            change(&mut store);
            known.push(store.ring_version().unwrap().unwrap());
        }
        let ids: HashSet<_> =
            known.iter().map(|version| version.change_id.clone().unwrap()).collect();
        assert_eq!(ids.len(), known.len(), "each change has its own id");
        for version in &known {
            let changes = store.ring_changes(version.version).unwrap();
            assert!(changes.follows(version) && !changes.prove_loss_of(version));
            let other = RingVersion { change_id: Some("0".repeat(32)), ..version.clone() };
            assert!(
                !changes.follows(&other) && changes.prove_loss_of(&other),
                "of another history"
            );
            let before = RingVersion { change_id: None, ..version.clone() };
            assert!(!changes.follows(&before), "a version without a change id is followed by none");
            let later = RingVersion { version: 99, ..version.clone() };
            assert!(!changes.follows(&later) && changes.prove_loss_of(&later));
        }
    });
}

#[test]
fn only_the_latest_thousand_change_ids_are_kept() {
    on_each_store(|location| {
        let mut store = location.open();
        add_keys(&mut store, &[key(1, "acme")]);
        let first = store.ring_version().unwrap().unwrap();
        let mut change = || {
            store.set_account(&TESTER, "acme", None, None).unwrap();
            let changes = store.ring_changes(first.version).unwrap();
            (changes.follows(&first), changes.prove_loss_of(&first))
        };
        for _ in 0..999 {
            assert_eq!(change(), (true, false));
        }
        assert_eq!(change(), (false, false), "a node that is this late reads all rows");
    });
}

#[test]
fn writing_back_only_adds_rows_and_lowers_ends() {
    on_each_store(|location| {
        let mut store = location.open();
        add_keys(&mut store, &[key(1, "acme"), key(2, "acme"), key(3, "acme"), key(4, "acme")]);
        store
            .set_account(
                &TESTER,
                "acme",
                Some("pro"),
                Some(LimitChange::SetOwnLimit(MonthlyLimit::Calls(7))),
            )
            .unwrap();
        store.expire_or_revoke_key(&TESTER, "key_2", Some(900), Some(50)).unwrap();
        let before = rows(&mut store);
        let ended =
            |n: u32, expires_at, revoked_at| KeyRow { expires_at, revoked_at, ..key(n, "acme") };
        // The store has these rows already, or ends them earlier.
        let same = [key(1, "acme"), key(2, "acme"), ended(2, Some(1_000), Some(60))];
        let known = [AccountRow { own_limit: None, ..account("acme", None) }];
        store.write_back_lost_rows(&TESTER, &same, &known).unwrap();
        assert_eq!(rows(&mut store), before, "nothing to write, so no new version");
        // Another key has this id now.
        let other = KeyRow { id: "key_1".to_owned(), ..ended(9, None, Some(1)) };
        store.write_back_lost_rows(&TESTER, &[other], &[]).unwrap();
        assert_eq!(rows(&mut store), before, "the row of the store stays");

        let lost =
            AccountRow { own_limit: Some(MonthlyLimit::Unlimited), ..account("late", Some("pro")) };
        let late = KeyRow { expires_at: Some(5), label: Some("x".to_owned()), ..key(7, "late") };
        let keys = [
            ended(1, Some(800), None),
            ended(2, Some(800), None),
            ended(3, None, Some(70)),
            late.clone(),
        ];
        store.write_back_lost_rows(&TESTER, &keys, std::slice::from_ref(&lost)).unwrap();
        let now = rows(&mut store);
        let ends: Vec<_> = now.keys.iter().map(|key| (key.expires_at, key.revoked_at)).collect();
        assert_eq!(
            ends[..4],
            [(Some(800), None), (Some(800), Some(50)), (None, Some(70)), (None, None)]
        );
        assert_eq!((&now.keys[4], &now.accounts[1]), (&late, &lost));
        assert_eq!(now.accounts[0], before.accounts[0]);
        let changes = store.ring_changes(before.ring_version.version).unwrap();
        assert_eq!((changes.keys.len(), changes.accounts.len()), (4, 1), "nodes get the changes");
        assert!(now.ring_version.version > before.ring_version.version);
        let many: Vec<_> = (100..2_600).map(|n| key(n, "acme")).collect();
        store.write_back_lost_rows(&TESTER, &many, &[]).unwrap();
        assert_eq!(rows(&mut store).keys.len(), 5 + many.len());
    });
}

#[test]
fn writing_back_ends_a_key_by_digest_whatever_its_id() {
    on_each_store(|location| {
        let mut store = location.open();
        add_keys(&mut store, &[key(1, "acme"), key(2, "acme")]);
        // Another key has the id of the first key too.
        let known = [
            KeyRow { id: "key_2".to_owned(), revoked_at: Some(5), ..key(1, "acme") },
            KeyRow { id: "old".to_owned(), expires_at: Some(9), ..key(2, "acme") },
        ];
        store.write_back_lost_rows(&TESTER, &known, &[]).unwrap();
        let now = rows(&mut store).keys;
        let ends: Vec<_> =
            now.iter().map(|key| (key.id.as_str(), key.revoked_at, key.expires_at)).collect();
        assert_eq!(ends, [("key_1", Some(5), None), ("key_2", None, Some(9))]);
        let before = store.ring_version().unwrap();
        store.write_back_lost_rows(&TESTER, &known, &[]).unwrap();
        assert_eq!(store.ring_version().unwrap(), before, "a second call changes nothing");
    });
}

#[test]
fn writing_back_counts_the_replicas_that_lack_the_rows() {
    let server = RedisServer::start();
    let url = StoreUrl::parse(&server.url()).unwrap();
    let options = RedisOptions { wait_replicas: 1, ..RedisOptions::default() };
    let mut store = Store::open(&url, &options, Duration::from_millis(400)).unwrap();
    let lost: Vec<_> = (0..1_500).map(|n| key(n, "acme")).collect();
    let accounts = [account("acme", None)];
    assert_eq!(store.write_back_lost_rows(&TESTER, &lost, &accounts).unwrap(), 1);
    assert_eq!(rows(&mut store).keys.len(), lost.len(), "all of it was written");
    let replica = RedisServer::replica_of(&server);
    let started = Instant::now();
    while store.write_back_lost_rows(&TESTER, &lost, &accounts).unwrap() > 0 {
        assert!(started.elapsed() < Duration::from_secs(20), "the replica did not get the rows");
    }
    assert_eq!(replica.run(&["HLEN", "riskgate:{ring}:keys"]), "1500");
}

#[test]
fn rows_read_during_changes_are_of_the_returned_version() {
    let server = RedisServer::start();
    let set = |store: &mut Store, calls: u64| {
        let limit = MonthlyLimit::Calls(calls);
        store.set_account(&TESTER, "acme", None, Some(LimitChange::SetOwnLimit(limit))).unwrap();
        limit
    };
    let mut store = open(&server.url());
    set(&mut store, 2);
    let done = AtomicBool::new(false);
    let read_micros = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut store = open(&server.url());
            // Each limit equals the version at which it was set.
            for calls in (3..).take_while(|_| !done.load(Ordering::SeqCst)) {
                set(&mut store, calls);
                // `ring_changes` repeats a read during which the ring changed, but only a few
                // times. So the writer pauses for as long as the slowest read took.
                let read_time = Duration::from_micros(read_micros.load(Ordering::SeqCst));
                std::thread::sleep(read_time.max(Duration::from_millis(3)));
            }
        });
        let matches_version = |found: &AccountRow, version: u64| {
            found.own_limit == Some(MonthlyLimit::Calls(version))
        };
        let _done = StopWriterOnDrop(&done);
        let exact = (0..200).all(|turn| {
            let started = Instant::now();
            let is_exact = match turn % 2 {
                0 => {
                    let changes = store.ring_changes(1).unwrap();
                    matches_version(&changes.accounts[0], changes.ring_version.version)
                }
                _ => {
                    let rows = rows(&mut store);
                    matches_version(&rows.accounts[0], rows.ring_version.version)
                }
            };
            read_micros.fetch_max(started.elapsed().as_micros() as u64, Ordering::SeqCst);
            is_exact
        });
        assert!(exact);
    });
}

/// Stops the writer, even if the test fails.
struct StopWriterOnDrop<'d>(&'d AtomicBool);

impl Drop for StopWriterOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
