//! Tests of the operator's overrides in both stores.

use super::super::{
    OverrideTakeOver, OverrideUpdate, OverridesVersion, Store, StoreError, StoredOverride,
};
use super::{TEST_TIME, TESTER, TestStore, add_keys, key, on_each_store, tester};

fn row(domain: &str, is_exact: bool, what: &str) -> StoredOverride {
    StoredOverride {
        domain: domain.to_owned(),
        is_exact,
        text: format!("{domain},{what},\"a \"\"note\"\", ü\""),
        author: tester(),
        created_at: TEST_TIME.unix_now,
    }
}

/// Replaces the overrides of a domain by one that covers the names below.
pub(super) fn set(store: &mut Store, domain: &str, what: &str) -> Result<bool, StoreError> {
    let before = store.find_overrides(domain)?;
    let after = [row(domain, false, what)];
    store.update_overrides(&TESTER, &[OverrideUpdate { domain, before: &before, after: &after }])
}

/// Deletes the overrides of a domain.
pub(super) fn clear(store: &mut Store, domain: &str) -> Result<bool, StoreError> {
    let before = store.find_overrides(domain)?;
    store.update_overrides(&TESTER, &[OverrideUpdate { domain, before: &before, after: &[] }])
}

/// Takes over a file with these rows.
pub(super) fn take_over(
    store: &mut Store,
    path: &str,
    rows: &[StoredOverride],
) -> Result<Option<usize>, StoreError> {
    let subjects = [format!("content {}", rows.len()), format!("file {path}")];
    store.take_over_overrides(&TESTER, &OverrideTakeOver { path, rows, subjects })
}

fn version(store: &mut Store) -> OverridesVersion {
    store.overrides_version().unwrap().expect("a store")
}

fn rows(store: &mut Store) -> Vec<StoredOverride> {
    let stored = store.stored_overrides().unwrap().expect("a store");
    assert_eq!((stored.version.count, &stored.damaged), (stored.rows.len() as u64, &Vec::new()));
    assert_eq!(stored.version, version(store));
    stored.rows
}

fn operations(store: &mut Store) -> Vec<(String, String)> {
    let records = store.read_audit_after(None, 100).unwrap().into_iter();
    let records = records.filter(|record| record.operation.starts_with("override"));
    records.map(|record| (record.operation, record.target)).collect()
}

#[test]
fn overrides_are_read_as_written_and_every_change_has_a_version() {
    on_each_store(|location| {
        let mut store = location.open();
        store.mark_as_store(&TESTER).unwrap();
        let first = version(&mut store);
        assert_eq!((first.number, first.count), (0, 0));
        assert_eq!(rows(&mut store), []);
        assert!(set(&mut store, "b.com", "deny").unwrap());
        let second = version(&mut store);
        assert_eq!((second.number, second.count), (1, 1));
        assert_eq!(second.store_id, first.store_id);
        assert!(set(&mut store, "a.com", "allow").unwrap());
        assert!(set(&mut store, "b.com", "allow").unwrap());
        assert_ne!(version(&mut store).change_id, second.change_id);
        let expected = [row("a.com", false, "allow"), row("b.com", false, "allow")];
        assert_eq!(rows(&mut location.open()), expected);
        assert_eq!(store.find_overrides("b.com").unwrap(), expected[1..]);
        assert_eq!(store.find_overrides("c.com").unwrap(), []);
        let clear = OverrideUpdate { domain: "b.com", before: &expected[1..], after: &[] };
        assert!(store.update_overrides(&TESTER, &[clear]).unwrap());
        assert_eq!(rows(&mut store), expected[..1]);
        assert_eq!((version(&mut store).number, version(&mut store).count), (4, 1));
    });
}

#[test]
fn the_first_override_initializes_an_empty_store_and_changes_no_key() {
    on_each_store(|location| {
        let mut store = location.open();
        set(&mut store, "a.com", "deny").unwrap();
        let before = store.ring_version().unwrap().expect("a store");
        set(&mut store, "b.com", "deny").unwrap();
        assert_eq!(store.ring_version().unwrap().expect("a store"), before);
        add_keys(&mut store, &[key(1, "acme")]);
        assert_eq!(rows(&mut store).len(), 2);
    });
}

#[test]
fn an_override_that_another_node_changed_meanwhile_is_not_overwritten() {
    on_each_store(|location| {
        let mut store = location.open();
        set(&mut store, "a.com", "deny").unwrap();
        let known = store.find_overrides("a.com").unwrap();
        set(&mut location.open(), "a.com", "allow").unwrap();
        let before = version(&mut store);
        for after in [&[row("a.com", false, "new")][..], &[]] {
            let update = OverrideUpdate { domain: "a.com", before: &known, after };
            assert!(!store.update_overrides(&TESTER, &[update]).unwrap());
        }
        assert_eq!(version(&mut store), before);
        assert_eq!(rows(&mut store), [row("a.com", false, "allow")]);
        assert_eq!(operations(&mut store).len(), 2);
    });
}

#[test]
fn overrides_of_several_domains_change_in_one_step_or_not_at_all() {
    on_each_store(|location| {
        let mut store = location.open();
        set(&mut store, "b.com", "deny").unwrap();
        let before = (version(&mut store), operations(&mut store).len());
        let [a, b] = ["a.com", "b.com"].map(|domain| [row(domain, false, "allow")]);
        let known = store.find_overrides("b.com").unwrap();
        let update = |before_of_b: &[StoredOverride]| {
            let updates = [("a.com", &[][..], &a), ("b.com", before_of_b, &b)];
            let updates =
                updates.map(|(domain, before, after)| OverrideUpdate { domain, before, after });
            location.open().update_overrides(&TESTER, &updates).unwrap()
        };
        assert!(!update(&[]));
        assert_eq!((version(&mut store), operations(&mut store).len()), before);
        assert!(update(&known));
        assert_eq!(rows(&mut store), [a, b].concat());
        assert_eq!(version(&mut store).number, before.0.number + 1);
        let targets: Vec<String> = operations(&mut store).into_iter().map(|it| it.1).collect();
        assert_eq!(targets, ["b.com", "a.com", "b.com"]);
    });
}

#[test]
fn an_override_of_another_scope_keeps_its_author_and_its_time() {
    on_each_store(|location| {
        let mut store = location.open();
        set(&mut store, "a.com", "deny").unwrap();
        store.set_time(crate::model::believed_time::BelievedTime {
            unix_now: TEST_TIME.unix_now + 500,
            ..TEST_TIME
        });
        let before = store.find_overrides("a.com").unwrap();
        let after = [row("a.com", true, "allow"), before[0].clone()];
        let update = OverrideUpdate { domain: "a.com", before: &before, after: &after };
        assert!(store.update_overrides(&TESTER, &[update]).unwrap());
        let times: Vec<i64> = rows(&mut store).iter().map(|row| row.created_at).collect();
        assert_eq!(times[1], TEST_TIME.unix_now);
        assert!(times[0] >= TEST_TIME.unix_now + 500, "{times:?}");
    });
}

#[test]
fn each_change_of_an_override_has_its_record() {
    on_each_store(|location| {
        let mut store = location.open();
        set(&mut store, "a.com", "deny").unwrap();
        set(&mut store, "a.com", "allow").unwrap();
        let known = store.find_overrides("a.com").unwrap();
        let clear = OverrideUpdate { domain: "a.com", before: &known, after: &[] };
        store.update_overrides(&TESTER, &[clear]).unwrap();
        let records = store.read_audit_after(None, 100).unwrap();
        let of = |operation: &str| -> Vec<_> {
            let records = records.iter().filter(|record| record.operation == operation);
            records.map(|it| (it.author.clone(), it.before.clone(), it.after.clone())).collect()
        };
        let texts = ["deny", "allow"]
            .map(|what| serde_json::json!({ "rows": [row("a.com", false, what).text] }));
        let null = serde_json::Value::Null;
        let (first, second) = (texts[0].clone(), texts[1].clone());
        let sets = [(tester(), null.clone(), first.clone()), (tester(), first, second.clone())];
        assert_eq!(of("override.set"), sets);
        assert_eq!(of("override.clear"), [(tester(), second, null)]);
    });
}

#[test]
fn a_file_is_taken_over_once_and_keeps_what_the_store_has() {
    on_each_store(|location| {
        let mut store = location.open();
        set(&mut store, "b.com", "allow").unwrap();
        let file = [row("a.com", true, "1"), row("b.com", false, "2"), row("b.com", true, "3")];
        assert_eq!(take_over(&mut store, "/o.csv", &file).unwrap(), Some(2));
        let expected = [file[0].clone(), file[2].clone(), row("b.com", false, "allow")];
        assert_eq!(rows(&mut store), expected);
        assert!(store.read_source_state("file /o.csv").unwrap().is_some());
        let known = store.find_overrides("a.com").unwrap();
        let clear = OverrideUpdate { domain: "a.com", before: &known, after: &[] };
        store.update_overrides(&TESTER, &[clear]).unwrap();
        assert_eq!(take_over(&mut location.open(), "/o.csv", &file).unwrap(), None);
        assert_eq!(rows(&mut store), expected[1..]);
        let taken = ("override.take_over".to_owned(), "/o.csv".to_owned());
        let done = operations(&mut store);
        assert_eq!(done.iter().filter(|done| **done == taken).count(), 1, "{done:?}");
    });
}

#[test]
fn a_store_that_lost_overrides_is_told() {
    let server = super::super::redis_server::RedisServer::start();
    let mut store = super::open(&server.url());
    for domain in ["a.com", "b.com"] {
        set(&mut store, domain, "deny").unwrap();
    }
    server.run(&["HDEL", "riskgate:{ring}:overrides", "a.com subtree"]);
    let error = store.stored_overrides().unwrap_err().to_string();
    assert!(error.contains("expected the overrides that were written"), "{error}");
    set(&mut store, "c.com", "deny").unwrap();
    assert_eq!(rows(&mut store).len(), 2, "what an operator writes next is taken as it is");
}

#[test]
fn an_override_that_cannot_be_read_is_named_and_can_be_set_again_and_cleared() {
    let columns = [
        "author = 'x'",
        "author = x'ff'",
        "text = x'ff'",
        "created_at = 'soon'",
        "scope = 'none'",
        "domain = CAST(domain AS BLOB)",
    ];
    on_each_store(|location| {
        let is_file = matches!(location, TestStore::File(_));
        for damage in if is_file { &columns[..] } else { &["'nonsense'", "'5 \\255'"] } {
            let damage_row = || match is_file {
                true => location.run_sql(&format!(
                    "UPDATE domain_override SET {damage} WHERE domain = 'a.com'"
                )),
                false => location.set_field("riskgate:{ring}:overrides", "a.com subtree", damage),
            };
            let mut store = location.open();
            for domain in ["a.com", "b.com"] {
                set(&mut store, domain, "deny").unwrap();
            }
            damage_row();
            let stored = store.stored_overrides().unwrap().unwrap();
            assert_eq!(stored.rows, [row("b.com", false, "deny")], "{damage}");
            let [damaged] = &stored.damaged[..] else { panic!("{damage}: {:?}", stored.damaged) };
            assert!(damaged.starts_with("a.com"), "{damage}: {damaged}");
            assert!(set(&mut store, "a.com", "allow").unwrap());
            assert_eq!(rows(&mut store).len(), 2, "{damage}");
            damage_row();
            let clear = OverrideUpdate { domain: "a.com", before: &[], after: &[] };
            assert!(store.update_overrides(&TESTER, &[clear]).unwrap());
            assert_eq!(rows(&mut store).len(), 1, "{damage}");
            let record = store.read_audit_before(None, 1).unwrap().remove(0);
            assert_eq!(record.operation, "override.clear");
            assert_eq!(record.before, serde_json::json!({ "damaged": true }), "{damage}");
        }
    });
}

#[test]
fn a_store_of_an_earlier_riskgate_gets_the_table_of_overrides() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let open = || super::super::Sqlite::open(&path, std::time::Duration::from_secs(5));
    let mut store = Store::from(open().unwrap());
    add_keys(&mut store, &[key(1, "acme")]);
    drop(store);
    let earlier = rusqlite::Connection::open(&path).unwrap();
    earlier.execute_batch("DROP TABLE domain_override").unwrap();
    drop(earlier);
    let mut store = Store::from(open().unwrap());
    assert_eq!(rows(&mut store), []);
    set(&mut store, "a.com", "deny").unwrap();
    assert_eq!(rows(&mut store).len(), 1);
    let version: i64 = rusqlite::Connection::open(&path)
        .unwrap()
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert_eq!(version, 3, "an earlier riskgate still opens the store");
}
