//! Tests of the key ring: changes of the store, faults, damaged rows, and checks of the key file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::model::origin::Origin;
use crate::quota::{FailurePolicy, Ledger, LedgerOptions};
use crate::store::{
    AccountRow, KeyRow, MonthlyLimit, RedisOptions, RingChanges, RingRows, RingVersion, Store,
    StoreUrl,
};
use crate::support::serving_flag::ServingFlag;

const NOW: i64 = 1_000;

fn start_ledger(folder: &tempfile::TempDir) -> Ledger {
    let url = StoreUrl::Sqlite(folder.path().join("store.db"));
    let store = || Store::open(&url, &RedisOptions::default(), Duration::from_secs(5)).unwrap();
    let options = LedgerOptions {
        store_deadline: Duration::from_secs(1),
        on_failure: FailurePolicy::Open,
        max_unsettled: 0,
        serving: ServingFlag::new_serving(),
    };
    Ledger::start(store(), store(), options, NOW).unwrap()
}

fn plans() -> Plans {
    let plan = |name: &str, calls| (name.to_owned(), MonthlyLimit::Calls(calls));
    Plans::from([plan("free", 100), plan("pro", 1_000)])
}

fn key_row(n: u8, account: &str) -> KeyRow {
    KeyRow {
        id: format!("key_{n}"),
        account: account.to_owned(),
        label: None,
        digest: [n; 32],
        origins: vec![format!("https://app-{n}.example.com")],
        require_origin: false,
        created_at: 0,
        expires_at: None,
        revoked_at: None,
    }
}

fn account_row(name: &str, plan: Option<&str>, limit: Option<MonthlyLimit>) -> AccountRow {
    AccountRow { name: name.to_owned(), plan: plan.map(str::to_owned), own_limit: limit }
}

fn declared_key(key: KeyRow, plan: Option<&str>) -> DeclaredKey {
    DeclaredKey { key, plan: plan.map(str::to_owned) }
}

fn ring_rows(version: u64, accounts: Vec<AccountRow>, keys: Vec<KeyRow>) -> RingRows {
    let ring_version = RingVersion { store_id: "one".to_owned(), version, change_id: None };
    RingRows { ring_version, accounts, keys, ..RingRows::default() }
}

fn ring_changes(version: u64, accounts: Vec<AccountRow>, keys: Vec<KeyRow>) -> RingChanges {
    let ring_version = RingVersion { store_id: "one".to_owned(), version, change_id: None };
    RingChanges { ring_version, accounts, keys, ..RingChanges::default() }
}

/// For each key number, everything that a request can observe of the ring.
fn visible_state(ring: &KeyRing) -> BTreeMap<u8, String> {
    let mut seen = BTreeMap::new();
    for n in 0..=255 {
        let origin = Origin::parse(&format!("https://app-{n}.example.com")).unwrap();
        let key = ring.find_valid_key(&[n; 32], NOW).map(|key| {
            let Account { name, plan, limit, .. } = &*key.account;
            let own = key.is_origin_allowed(&origin);
            (&key.id, name, plan, *limit, key.require_origin, own, key.shares_account_with(ring))
        });
        let allowed = ring.does_any_key_allow_origin(&origin, NOW);
        seen.insert(n, format!("{key:?} {allowed}"));
    }
    seen
}

impl Key {
    /// Whether the key points to the same account as the ring does under the account's name.
    fn shares_account_with(&self, ring: &KeyRing) -> bool {
        Arc::ptr_eq(&self.account, &ring.accounts[&self.account.name])
    }
}

#[test]
fn a_ring_with_changes_equals_the_ring_built_from_all_rows() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = start_ledger(&folder);
    let mut random = 42u64;
    let mut random_below = |sides: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % sides
    };
    let declared = [
        declared_key(KeyRow { id: "by-file".to_owned(), ..key_row(3, "a0") }, Some("pro")),
        declared_key(
            KeyRow { revoked_at: Some(1), id: "ended".to_owned(), ..key_row(4, "a1") },
            None,
        ),
        declared_key(KeyRow { id: "alone".to_owned(), ..key_row(200, "filed") }, Some("pro")),
    ];
    let mut all = ring_rows(1, Vec::new(), Vec::new());
    let mut ring = KeyRing::build(&all, &declared, &plans(), &ledger);
    for version in 2..400 {
        let mut changed = ring_changes(version, Vec::new(), Vec::new());
        for _ in 0..=random_below(3) {
            let n = random_below(40) as u8;
            // A key never changes its account.
            let mut row = key_row(n, &format!("a{}", n % 6));
            row.expires_at = [None, Some(NOW), Some(NOW + 1)][random_below(3) as usize];
            row.revoked_at = (random_below(4) == 0).then_some(5);
            if random_below(5) == 0 {
                row.origins.clear();
            }
            let known = all.keys.iter().any(|known| known.id == row.id);
            if !changed.keys.iter().any(|other| other.id == row.id)
                && (known || random_below(2) == 0)
            {
                changed.keys.push(row);
            }
        }
        let mut names: Vec<String> = changed.keys.iter().map(|key| key.account.clone()).collect();
        if random_below(3) == 0 {
            names.push(
                ["filed".to_owned(), "a0".to_owned(), "keyless".to_owned()]
                    [random_below(3) as usize]
                    .clone(),
            );
        }
        names.sort();
        names.dedup();
        for name in names {
            let plan = [None, Some("free"), Some("pro")][random_below(3) as usize];
            let limit = [None, Some(MonthlyLimit::Calls(7)), Some(MonthlyLimit::Unlimited)];
            changed.accounts.push(account_row(&name, plan, limit[random_below(3) as usize]));
        }
        let next = ring.with_changes(&changed, &declared, &plans(), &ledger).unwrap();
        all.apply_changes(changed);
        let built = KeyRing::build(&all, &declared, &plans(), &ledger);
        assert_eq!(visible_state(&next), visible_state(&built), "at version {version}");
        assert_eq!((next.len(), next.version()), (built.len(), version));
        ring = next;
    }
    assert!(ring.len() > 35);
}

#[test]
fn unchanged_keys_are_shared_and_the_previous_ring_stays_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = start_ledger(&folder);
    let accounts = vec![account_row("a", None, None), account_row("b", None, None)];
    let all = ring_rows(1, accounts, vec![key_row(1, "a"), key_row(2, "a"), key_row(3, "b")]);
    let before = KeyRing::build(&all, &[], &plans(), &ledger);
    let seen_before = visible_state(&before);
    let revoked = KeyRow { revoked_at: Some(1), ..key_row(1, "a") };
    // The store also reports the account of a changed key, even if the account did not change.
    let touched = vec![account_row("a", None, None)];
    let after = before
        .with_changes(&ring_changes(2, touched, vec![revoked]), &[], &plans(), &ledger)
        .unwrap();
    let find = |ring: &KeyRing, n| ring.find_valid_key(&[n; 32], NOW).map(Arc::clone);
    assert!(find(&after, 1).is_none());
    assert!(Arc::ptr_eq(&find(&before, 2).unwrap(), &find(&after, 2).unwrap()));
    assert_eq!(visible_state(&before), seen_before);

    let raised = vec![account_row("a", Some("pro"), None)];
    let third =
        after.with_changes(&ring_changes(3, raised, Vec::new()), &[], &plans(), &ledger).unwrap();
    let (old, new) = (find(&after, 2).unwrap(), find(&third, 2).unwrap());
    assert_eq!(
        (old.account.limit, new.account.limit),
        (MonthlyLimit::Calls(100), MonthlyLimit::Calls(1_000))
    );
    assert!(Arc::ptr_eq(&old.account.lease, &new.account.lease), "one lease for one account");
    assert!(Arc::ptr_eq(&find(&before, 3).unwrap(), &find(&third, 3).unwrap()));
}

#[test]
fn only_another_or_emptied_store_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = start_ledger(&folder);
    let ring = KeyRing::build(&ring_rows(5, vec![], vec![key_row(1, "a")]), &[], &plans(), &ledger);
    let refused = |store_id: &str, version| {
        let current = RingVersion { store_id: store_id.to_owned(), version, change_id: None };
        ring.check_same_store(Some(&current)).err().map(|error| error.to_string())
    };
    let expected = "the store is another one or was emptied: expected version 5 of one, but found";
    assert_eq!(refused("two", 9).unwrap(), format!("{expected} version 9 of two"));
    assert_eq!((refused("one", 4), refused("one", 5)), (None, None));
    let none = ring.check_same_store(None).unwrap_err().to_string();
    assert_eq!(none, format!("{expected} none"));
}

#[test]
fn a_faulty_key_or_account_affects_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = start_ledger(&folder);
    let file = [declared_key(KeyRow { id: "key_9".to_owned(), ..key_row(1, "a") }, Some("pro"))];
    let before =
        KeyRing::build(&ring_rows(1, vec![], vec![key_row(8, "c")]), &file, &plans(), &ledger);
    assert!(before.faults().is_empty());
    let with_invalid_origin = KeyRow { origins: vec!["nowhere".to_owned()], ..key_row(2, "c") };
    let account_c = account_row("c", None, None);
    for (accounts, keys, repair, expected_fault, faulty) in [
        (
            vec![account_row("b", Some("gold"), None)],
            vec![key_row(3, "b")],
            (vec![account_row("b", Some("pro"), None)], vec![]),
            "account b: expected one of the plans free, pro, but found \"gold\"",
            3,
        ),
        (
            vec![],
            vec![key_row(9, "c")],
            (vec![], vec![]),
            "key key_9: expected one key with this id, but found another in the key \
             file and the store",
            1,
        ),
        (
            vec![account_c],
            vec![with_invalid_origin],
            (vec![], vec![key_row(2, "c")]),
            "key key_2: origins: expected an origin such as https://app.example.com, but \
             found \"nowhere\"",
            2,
        ),
    ] {
        let mut all = ring_rows(1, vec![], vec![key_row(8, "c")]);
        let next = |ring: &KeyRing, all: &mut RingRows, changes: RingChanges| {
            let next = ring.with_changes(&changes, &file, &plans(), &ledger);
            all.apply_changes(changes);
            next.unwrap_or_else(|| KeyRing::build(all, &file, &plans(), &ledger))
        };
        let ring = next(&before, &mut all, ring_changes(2, accounts, keys));
        let faults: Vec<String> = ring.faults().iter().map(ToString::to_string).collect();
        assert_eq!(faults, [expected_fault]);
        let is_faulty = |n: u8| ring.find_valid_key(&[n; 32], NOW).map(|key| key.is_faulty());
        assert_eq!(
            (is_faulty(faulty), is_faulty(8)),
            (Some(true), Some(false)),
            "{expected_fault}"
        );
        let (accounts, keys) = repair;
        if accounts.len() + keys.len() > 0 {
            let ring = next(&ring, &mut all, ring_changes(3, accounts, keys));
            assert!(ring.faults().is_empty(), "{expected_fault}");
            assert!(!ring.find_valid_key(&[faulty; 32], NOW).unwrap().is_faulty());
        }
    }
}

#[test]
fn unreadable_rows_are_faults_until_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = start_ledger(&folder);
    let mut all = ring_rows(1, vec![], vec![key_row(1, "a")]);
    all.damaged.key_digests_by_id.insert("key_2".to_owned(), Some([2; 32]));
    all.damaged.key_digests_by_id.insert("key_3".to_owned(), None);
    let ring = KeyRing::build(&all, &[], &plans(), &ledger);
    assert!(ring.is_row_unreadable(&[2; 32]) && !ring.is_row_unreadable(&[1; 32]));
    assert_eq!((ring.find_valid_key(&[2; 32], NOW).is_none(), ring.faults().len()), (true, 2));
    // If a row is unreadable, the next ring must be built from all rows.
    assert!(ring.with_changes(&ring_changes(2, vec![], vec![]), &[], &plans(), &ledger).is_none());
    all.apply_changes(ring_changes(2, vec![], vec![key_row(2, "a"), key_row(3, "a")]));
    let repaired = KeyRing::build(&all, &[], &plans(), &ledger);
    assert!(repaired.faults().is_empty() && !repaired.is_row_unreadable(&[2; 32]));
}

#[test]
fn a_key_file_is_rejected_only_for_its_own_faults() {
    let in_file = |plans: [Option<&str>; 2]| {
        [declared_key(key_row(1, "a"), plans[0]), declared_key(key_row(2, "a"), plans[1])]
    };
    let check = |rows: &RingRows, declared: &[DeclaredKey]| {
        let faults = KeyRing::check_key_file(rows, declared, &plans()).err()?;
        Some(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    };
    let none = ring_rows(1, vec![], vec![]);
    assert_eq!(check(&none, &in_file([None, Some("pro")])), None);
    let two = check(&none, &in_file([Some("free"), Some("pro")])).unwrap();
    assert!(two.starts_with("account a: expected one plan for all its keys, but found"), "{two}");
    let gold = in_file([Some("gold"), None]);
    let unknown = check(&none, &gold).unwrap();
    assert!(unknown.starts_with("account a: expected one of the plans"), "{unknown}");
    let all =
        [&in_file([Some("free"), Some("pro")])[..], &[declared_key(key_row(3, "b"), Some("gold"))]];
    let both = check(&none, &all.concat()).unwrap();
    assert_eq!(both.lines().count(), 2, "{both}");
    assert!(both.contains("account a: expected one plan") && both.contains("\"gold\""), "{both}");
    // A row of the store that can't be read is not a fault of the file.
    let mut damaged = ring_rows(1, vec![], vec![]);
    damaged.damaged.account_names.insert("a".to_owned());
    assert_eq!(check(&damaged, &in_file([Some("pro"), None])), None);
    // The store's plan takes precedence, so an unknown plan there is not a fault of the file.
    for plan in ["pro", "platinum"] {
        assert_eq!(
            check(&ring_rows(1, vec![account_row("a", Some(plan), None)], vec![]), &gold),
            None
        );
    }
}

/// Run by hand: `cargo test --release --lib hundred_thousand -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement that prints its results"]
fn measure_a_change_of_hundred_thousand_keys() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = start_ledger(&folder);
    let numbered_key = |n: u32| {
        let mut row = key_row(0, &format!("account-{}", n % 10_000));
        row.digest[..4].copy_from_slice(&n.to_le_bytes());
        row.id = format!("key-{n}");
        row.origins = vec![format!("https://app-{n}.example.com")];
        row
    };
    let all = ring_rows(1, Vec::new(), (0..100_000).map(numbered_key).collect());
    let started = std::time::Instant::now();
    let ring = KeyRing::build(&all, &[], &plans(), &ledger);
    println!("build: {:?}", started.elapsed());
    let touched = account_row("account-5", Some("pro"), None);
    let changed = ring_changes(
        2,
        vec![touched],
        vec![KeyRow { revoked_at: Some(1), ..numbered_key(77_005) }],
    );
    let started = std::time::Instant::now();
    let next = ring.with_changes(&changed, &[], &plans(), &ledger).unwrap();
    println!("after one change: {:?}", started.elapsed());
    assert_eq!(next.len(), 100_000);
    let mut all = all;
    let started = std::time::Instant::now();
    all.apply_changes(changed);
    println!("rows: {:?}", started.elapsed());
}
