//! Tests that a new key never changes the plan of an account. Both stores keep the same contract.

use super::super::{KeyRow, LimitChange, MonthlyLimit, NewKeyPlan, Store, StoreError};
use super::{TESTER, add_keys, key, on_each_store, rows};

fn named(plan: &str) -> Option<NewKeyPlan> {
    Some(NewKeyPlan::of_store_account(plan))
}

fn plan_of(store: &mut Store, account: &str) -> Option<String> {
    store.find_account(account).unwrap().and_then(|row| row.plan)
}

/// A key that names a plan, for an account that has a plan by the key file.
fn declared(n: u32, account: &str, plan: &str, by_key_file: &str) -> (KeyRow, Option<NewKeyPlan>) {
    let by_key_file = Some(by_key_file.to_owned());
    (key(n, account), Some(NewKeyPlan { plan: plan.to_owned(), by_key_file }))
}

#[test]
fn a_key_with_another_plan_than_its_account_adds_nothing() {
    on_each_store(|location| {
        let mut store = location.open();
        store.add_keys(&TESTER, &[(key(1, "acme"), named("pro"))], None).unwrap();
        add_keys(&mut store, &[key(2, "plain")]);
        store
            .set_account(
                &TESTER,
                "limited",
                None,
                Some(LimitChange::SetOwnLimit(MonthlyLimit::Calls(5))),
            )
            .unwrap();
        let before = rows(&mut store);
        for (refused, account, present, found) in [
            (vec![(key(9, "acme"), named("free"))], "acme", "pro", "free"),
            (vec![(key(9, "plain"), named("pro"))], "plain", "free", "pro"),
            (vec![(key(9, "limited"), named("pro"))], "limited", "free", "pro"),
            (vec![declared(9, "filed", "free", "pro")], "filed", "pro", "free"),
            (vec![declared(9, "acme", "free", "free")], "acme", "pro", "free"),
            (vec![declared(9, "plain", "free", "pro")], "plain", "pro", "free"),
            (
                vec![(key(9, "new"), named("pro")), (key(8, "new"), named("free"))],
                "new",
                "pro",
                "free",
            ),
            (
                vec![(key(9, "new"), named("pro")), (key(8, "acme"), named("free"))],
                "acme",
                "pro",
                "free",
            ),
        ] {
            match store.add_keys(&TESTER, &refused, None).unwrap_err() {
                StoreError::OtherPlan { account: of, present: is, found: named } => {
                    assert_eq!(
                        (of.as_str(), is.as_str(), named.as_str()),
                        (account, present, found)
                    );
                }
                other => panic!("{other}"),
            }
            assert_eq!(rows(&mut store), before);
        }
    });
}

#[test]
fn a_key_may_name_the_present_plan_and_the_plan_of_a_new_account() {
    on_each_store(|location| {
        let mut store = location.open();
        let add = |store: &mut Store, keys: &[(KeyRow, Option<NewKeyPlan>)]| {
            store.add_keys(&TESTER, keys, None).unwrap();
        };
        add(&mut store, &[(key(1, "acme"), named("pro"))]);
        add(&mut store, &[(key(2, "acme"), named("pro"))]);
        add(&mut store, &[(key(3, "new"), None), (key(4, "new"), named("pro"))]);
        add(&mut store, &[declared(5, "filed", "gold", "gold")]);
        assert_eq!(plan_of(&mut store, "acme").as_deref(), Some("pro"));
        assert_eq!(plan_of(&mut store, "new").as_deref(), Some("pro"));
        assert_eq!(plan_of(&mut store, "filed"), None, "the key file goes on to decide");
        add(&mut store, &[(key(6, "plain"), None)]);
        add(&mut store, &[(key(7, "plain"), named("free"))]);
        add(&mut store, &[(key(8, "plain"), named("free")), (key(9, "plain"), named("free"))]);
        assert_eq!(plan_of(&mut store, "plain"), None, "the key file may come to decide");
    });
}

#[test]
fn of_two_racing_first_keys_with_two_plans_one_is_refused() {
    on_each_store(|location| {
        location.open().mark_as_store(&TESTER).unwrap();
        for pair in 0..30u32 {
            let account = format!("account-{pair}");
            let added: Vec<bool> = std::thread::scope(|scope| {
                let racers = [("pro", 0), ("free", 1)].map(|(plan, n)| {
                    let (mut store, account) = (location.open(), &account);
                    scope.spawn(move || {
                        let new = [(key(2 * pair + n, account), named(plan))];
                        store.add_keys(&TESTER, &new, None).is_ok()
                    })
                });
                racers.map(|racer| racer.join().unwrap()).to_vec()
            });
            let plan = plan_of(&mut location.open(), &account);
            match added[..] {
                [true, false] => assert_eq!(plan.as_deref(), Some("pro")),
                [false, true] => assert_eq!(plan.as_deref(), Some("free")),
                _ => panic!("{account}: one key is added, and the other refused: {added:?}"),
            }
        }
    });
}

#[test]
fn a_change_of_a_plan_during_an_import_stays() {
    on_each_store(|location| {
        let mut store = location.open();
        store.set_account(&TESTER, "acme", Some("pro"), None).unwrap();
        for turn in 0..6u32 {
            store.set_account(&TESTER, "acme", Some("pro"), None).unwrap();
            let first = 10_000 * (turn + 1);
            let keys: Vec<_> =
                (first..first + 2_500).map(|n| (key(n, "acme"), named("pro"))).collect();
            std::thread::scope(|scope| {
                let mut other = location.open();
                let import = scope.spawn(move || drop(other.add_keys(&TESTER, &keys, None)));
                store.set_account(&TESTER, "acme", Some("free"), None).unwrap();
                import.join().unwrap();
            });
            assert_eq!(plan_of(&mut store, "acme").as_deref(), Some("free"));
        }
    });
}
