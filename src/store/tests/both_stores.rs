//! Tests of operations whose contract is the same in both stores.

use std::collections::HashSet;

use super::super::{AccountRow, LimitChange, MonthlyLimit, NewKeyPlan, Store};
use super::{TESTER, account, add_keys, key, on_each_store, ring_version, rotation, rows};

#[test]
fn a_ring_version_names_one_store_and_grows_with_every_change() {
    on_each_store(|location| {
        let mut store = location.open();
        store.mark_as_store(&TESTER).unwrap();
        let first = store.ring_version().unwrap().unwrap();
        assert_eq!(first.store_id.len(), 32);
        assert!(first.store_id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        store.mark_as_store(&TESTER).unwrap();
        assert_eq!(store.ring_version().unwrap().unwrap(), first, "a second call changes nothing");
        let mut last = first.version;
        let changes: [&dyn Fn(&mut Store); 3] = [
            &|store| add_keys(store, &[key(1, "acme")]),
            &|store| store.set_account(&TESTER, "acme", Some("pro"), None).unwrap(),
            &|store| store.expire_or_revoke_key(&TESTER, "key_1", None, Some(5)).unwrap(),
        ];
        for change in changes {
            change(&mut store);
            assert!(ring_version(&mut store) > last);
            last = ring_version(&mut store);
        }
        let again = location.open().ring_version().unwrap().unwrap();
        assert_eq!((again.store_id, again.version), (first.store_id, last));
    });
}

#[test]
fn the_first_write_initializes_an_empty_store() {
    let writes: [&dyn Fn(&mut Store); 2] =
        [&|store| add_keys(store, &[key(1, "acme")]), &|store| {
            store
                .set_account(
                    &TESTER,
                    "acme",
                    None,
                    Some(LimitChange::SetOwnLimit(MonthlyLimit::Unlimited)),
                )
                .unwrap()
        }];
    for write in writes {
        on_each_store(|location| {
            let mut store = location.open();
            write(&mut store);
            assert_eq!(rows(&mut store).accounts.len(), 1);
        });
    }
}

#[test]
fn keys_and_accounts_are_read_as_written() {
    on_each_store(|location| {
        let mut store = location.open();
        let mut unusual = key(2, "odd \" \\ ä / name");
        unusual.label = Some("a \"label\" with 'quotes', ünïcode\nand lines".to_owned());
        unusual.origins =
            vec!["https://app.example.com".to_owned(), "https://*.example.org".to_owned()];
        unusual.require_origin = true;
        unusual.expires_at = Some(i64::MAX);
        unusual.revoked_at = Some(-1);
        unusual.digest = [0xff; 32];
        let plain = key(1, "acme");
        let plan = "p/l\u{e4}n \"x\"".to_owned();
        store
            .add_keys(
                &TESTER,
                &[
                    (plain.clone(), None),
                    (unusual.clone(), Some(NewKeyPlan::of_store_account(&plan))),
                ],
                None,
            )
            .unwrap();
        let found = rows(&mut store);
        assert_eq!(found.keys, [plain, unusual.clone()]);
        assert_eq!(found.accounts, [account("acme", None), account(&unusual.account, Some(&plan))]);
    });
}

#[test]
fn set_account_keeps_settings_that_are_not_given() {
    on_each_store(|location| {
        let mut store = location.open();
        let acme = |store: &mut Store| rows(store).accounts.remove(0);
        let with =
            |plan: Option<&str>, limit| AccountRow { own_limit: limit, ..account("acme", plan) };
        store
            .add_keys(&TESTER, &[(key(1, "acme"), Some(NewKeyPlan::of_store_account("pro")))], None)
            .unwrap();
        let largest = MonthlyLimit::Calls(i64::MAX.cast_unsigned());
        let most = Some(largest);
        store.set_account(&TESTER, "acme", None, Some(LimitChange::SetOwnLimit(largest))).unwrap();
        assert_eq!(acme(&mut store), with(Some("pro"), most));
        add_keys(&mut store, &[key(2, "acme")]);
        assert_eq!(acme(&mut store), with(Some("pro"), most), "a key without a plan gives none");
        store
            .set_account(
                &TESTER,
                "acme",
                Some("all"),
                Some(LimitChange::SetOwnLimit(MonthlyLimit::Unlimited)),
            )
            .unwrap();
        assert_eq!(acme(&mut store), with(Some("all"), Some(MonthlyLimit::Unlimited)));
        store.set_account(&TESTER, "acme", None, Some(LimitChange::UsePlanLimit)).unwrap();
        assert_eq!(acme(&mut store), with(Some("all"), None), "back to the plan's limit");
    });
}

#[test]
fn keys_are_added_all_or_none() {
    on_each_store(|location| {
        let mut store = location.open();
        add_keys(&mut store, &[key(1, "acme")]);
        let before = rows(&mut store);
        let same_id = |mut new: super::KeyRow| {
            new.id = "key_1".to_owned();
            new
        };
        let same_digest = |mut new: super::KeyRow| {
            new.digest = key(1, "").digest;
            new
        };
        let twice = [key(2, "new"), key(3, "new"), key(2, "other")];
        let twice_a_digest = [
            key(2, "new"),
            super::KeyRow { digest: key(2, "").digest, ..key(3, "new") },
            key(4, "new"),
        ];
        for (keys, refused) in [
            (
                &[key(2, "new"), same_id(key(3, "new"))][..],
                "key key_1: expected a new key, but found it in the store as key_1",
            ),
            (
                &[key(2, "new"), same_digest(key(3, "new"))],
                "key key_3: expected a new key, but found it in the store as key_1",
            ),
            (&twice, "key key_2: expected a new key, but found it in the store as key_2"),
            (&twice_a_digest, "key key_3: expected a new key, but found it in the store as key_2"),
        ] {
            let keys: Vec<_> = keys
                .iter()
                .map(|key| (key.clone(), Some(NewKeyPlan::of_store_account("pro"))))
                .collect();
            assert_eq!(store.add_keys(&TESTER, &keys, None).unwrap_err().to_string(), refused);
            let now = rows(&mut store);
            assert_eq!((&now.keys, &now.accounts), (&before.keys, &before.accounts));
            assert_eq!(now.ring_version.version, before.ring_version.version);
        }
    });
}

#[test]
fn a_key_keeps_its_earliest_expiry_and_first_revocation() {
    on_each_store(|location| {
        let mut store = location.open();
        add_keys(&mut store, &[key(1, "acme"), key(2, "acme")]);
        let ends = |store: &mut Store| {
            let row = rows(store).keys.remove(0);
            (row.expires_at, row.revoked_at)
        };
        for (expires, revoked, expected) in [
            (Some(i64::MAX), None, (Some(i64::MAX), None)),
            (Some(900), None, (Some(900), None)),
            (Some(1_000), None, (Some(900), None)),
            (None, Some(50), (Some(900), Some(50))),
            (Some(100), Some(60), (Some(100), Some(50))),
        ] {
            store.expire_or_revoke_key(&TESTER, "key_1", expires, revoked).unwrap();
            assert_eq!(ends(&mut store), expected);
        }
        assert_eq!(rows(&mut store).keys[1], key(2, "acme"), "the other one goes on");
        let before = ring_version(&mut store);
        let error =
            store.expire_or_revoke_key(&TESTER, "nobody", None, Some(1)).unwrap_err().to_string();
        assert_eq!(error, "expected the id of a key in the store, but found \"nobody\"");
        assert_eq!(ring_version(&mut store), before);
    });
}

#[test]
fn a_rotation_is_one_change_and_so_is_its_undo() {
    on_each_store(|location| {
        let mut store = location.open();
        add_keys(&mut store, &[key(1, "acme"), key(2, "acme")]);
        let before = ring_version(&mut store);
        store.rotate_key(&TESTER, &rotation("key_1", &key(3, "acme"), 900, 500), None).unwrap();
        assert_eq!(ring_version(&mut store), before + 1, "no reader sees half of it");
        let changes = store.ring_changes(before).unwrap();
        assert_eq!(changes.keys.len(), 2, "{changes:?}");
        let ends = |store: &mut Store| -> Vec<(Option<i64>, Option<i64>)> {
            rows(store).keys.iter().map(|key| (key.expires_at, key.revoked_at)).collect()
        };
        assert_eq!(ends(&mut store), [(Some(900), None), (None, None), (None, None)]);
        assert_eq!(rows(&mut store).keys[2], key(3, "acme"));

        store.undo_rotation(&TESTER, &rotation("key_1", &key(3, "acme"), 900, 600), None).unwrap();
        assert_eq!(ring_version(&mut store), before + 2);
        assert_eq!(ends(&mut store), [(None, None), (None, None), (None, Some(600))]);

        // An end that somebody else set meanwhile stays.
        store.rotate_key(&TESTER, &rotation("key_2", &key(4, "acme"), 900, 500), None).unwrap();
        store.expire_or_revoke_key(&TESTER, "key_2", Some(700), None).unwrap();
        store.undo_rotation(&TESTER, &rotation("key_2", &key(4, "acme"), 900, 600), None).unwrap();
        assert_eq!(ends(&mut store)[1], (Some(700), None));
        assert_eq!(ends(&mut store)[3], (None, Some(600)));
    });
}

#[test]
fn a_key_that_has_ended_is_not_rotated() {
    on_each_store(|location| {
        let mut store = location.open();
        let ended =
            |n, expires_at, revoked_at| super::KeyRow { expires_at, revoked_at, ..key(n, "acme") };
        add_keys(&mut store, &[ended(1, Some(500), None), ended(2, None, Some(1)), key(3, "acme")]);
        let before = rows(&mut store);
        for (old, new, refused) in [
            ("key_1", key(4, "acme"), "expected a key that is in use, but it has ended"),
            ("key_2", key(4, "acme"), "expected a key that is in use, but it has ended"),
            (
                "nobody",
                key(4, "acme"),
                "expected the id of a key in the store, but found \"nobody\"",
            ),
            (
                "key_3",
                key(2, "acme"),
                "key key_2: expected a new key, but found it in the store as key_2",
            ),
        ] {
            let error = store
                .rotate_key(&TESTER, &rotation(old, &new, 900, 500), None)
                .unwrap_err()
                .to_string();
            assert_eq!(error, refused);
        }
        assert_eq!(rows(&mut store), before, "nothing is half-done");
    });
}

#[test]
fn ring_changes_lists_the_changes_after_any_version() {
    on_each_store(|location| {
        let mut store = location.open();
        store.mark_as_store(&TESTER).unwrap();
        let mut versions = vec![ring_version(&mut store)];
        let mut run_step = |change: &dyn Fn(&mut Store)| {
            change(&mut store);
            versions.push(ring_version(&mut store));
        };
        run_step(&|store| add_keys(store, &[key(1, "one"), key(2, "two")]));
        run_step(&|store| add_keys(store, &[key(3, "one")]));
        run_step(&|store| store.set_account(&TESTER, "three", Some("pro"), None).unwrap());
        run_step(&|store| store.expire_or_revoke_key(&TESTER, "key_2", Some(9), None).unwrap());
        let latest = versions[4];
        let expected: [(&[&str], &[&str]); 5] = [
            (&["key_1", "key_2", "key_3"], &["one", "three", "two"]),
            (&["key_2", "key_3"], &["one", "three"]),
            (&["key_2"], &["three"]),
            (&["key_2"], &[]),
            (&[], &[]),
        ];
        for (since, (keys, accounts)) in versions.iter().zip(expected) {
            let changes = store.ring_changes(*since).unwrap();
            let mut ids: Vec<&str> = changes.keys.iter().map(|key| key.id.as_str()).collect();
            let mut names: Vec<&str> = changes.accounts.iter().map(|a| a.name.as_str()).collect();
            ids.sort_unstable();
            names.sort_unstable();
            assert_eq!((&ids[..], &names[..]), (keys, accounts), "since {since}");
            assert_eq!(changes.ring_version.version, latest);
            assert_eq!(Some(changes.ring_version), store.ring_version().unwrap());
            if let Some(key) = changes.keys.iter().find(|key| key.id == "key_2") {
                assert_eq!(key.expires_at, Some(9), "as it now is");
            }
        }
    });
}

#[test]
fn many_keys_of_many_accounts_are_added_and_read_in_pages() {
    on_each_store(|location| {
        let mut store = location.open();
        let keys: Vec<_> = (0..2_501).map(|n| key(n, &format!("account-{}", n % 2_203))).collect();
        add_keys(&mut store, &keys);
        let found = rows(&mut store);
        assert_eq!((found.keys.len(), found.accounts.len()), (2_501, 2_203));
        let ids: HashSet<&str> = found.keys.iter().map(|key| key.id.as_str()).collect();
        assert_eq!(ids.len(), 2_501);
        let changes = store.ring_changes(1).unwrap();
        assert_eq!((changes.keys.len(), changes.accounts.len()), (2_501, 2_203));
        // In the same pages, a known key is found on the last page.
        let again: Vec<_> = (2_500..5_000).rev().map(|n| (key(n, "x"), None)).collect();
        let error = store.add_keys(&TESTER, &again, None).unwrap_err().to_string();
        assert!(error.contains("as key_2500"), "{error}");
        assert_eq!(rows(&mut store).keys.len(), 2_501);
    });
}

#[test]
fn concurrent_writers_lose_no_change() {
    on_each_store(|location| {
        location.open().mark_as_store(&TESTER).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let location = &location;
                scope.spawn(move || {
                    let mut store = location.open();
                    store.raise_busy_timeout().unwrap();
                    for n in 0..25 {
                        add_keys(&mut store, &[key(writer * 100 + n, "shared")]);
                        store
                            .expire_or_revoke_key(
                                &TESTER,
                                &format!("key_{}", writer * 100 + n),
                                Some(7),
                                None,
                            )
                            .unwrap();
                    }
                });
            }
        });
        let mut store = location.open();
        let found = rows(&mut store);
        assert_eq!(found.keys.len(), 100);
        assert!(found.keys.iter().all(|key| key.expires_at == Some(7)));
        assert_eq!(found.ring_version.version, 1 + 200, "each change has a version of its own");
    });
}
