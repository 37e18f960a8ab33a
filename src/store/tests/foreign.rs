//! Tests of foreign entries on a server, which riskgate did not write and which may have any bytes.
//! Such an entry affects no other entry.

use super::super::redis_server::RedisServer;
use super::super::{
    LeaseReport, LimitChange, MonthlyLimit, ReportBatchContext, Store, TopCredit, TotalsKnownToNode,
};
use super::{TESTER, add_keys, key, open, rotation, rows};
use crate::model::month::Month;

/// Bytes that are not UTF-8.
const NON_UTF8_LUA: &str = "'\\255\\254'";

/// Runs a line of Lua on the server, which can write bytes that no argument can hold.
fn run_lua(server: &RedisServer, lua_line: &str) {
    server.run(&["EVAL", lua_line, "0"]);
}

/// Asserts that every change of keys and accounts still works beside the corrupted entry.
#[track_caller]
fn assert_key_and_account_changes_work(store: &mut Store, context: &str) {
    let before = rows(store);
    let n = before.keys.len() as u32;
    let late = key(20_000 + n, "late");
    add_keys(store, std::slice::from_ref(&late));
    store
        .set_account(
            &TESTER,
            "late",
            None,
            Some(LimitChange::SetOwnLimit(MonthlyLimit::Calls(u64::from(n)))),
        )
        .unwrap();
    store.rotate_key(&TESTER, &rotation(&late.id, &key(30_000 + n, "late"), 9, 5), None).unwrap();
    store.expire_or_revoke_key(&TESTER, &late.id, None, Some(5)).unwrap();
    store.write_back_lost_rows(&TESTER, &[key(40_000 + n, "late")], &[]).unwrap();
    let changes = store.ring_changes(before.ring_version.version).unwrap();
    assert_eq!((changes.keys.len(), changes.accounts.len()), (3, 1), "{context}");
    assert_eq!(rows(store).keys.len() as u32, n + 3, "{context}");
}

#[test]
fn a_foreign_ring_entry_is_reported_and_affects_no_other() {
    let id = "a".repeat(32);
    let set_field = |hash: &str, name: &str, value: &str| {
        format!("redis.call('HSET', 'riskgate:{{ring}}:{hash}', {name}, {value})")
    };
    let changed = |score: &str, member: &str| {
        format!("redis.call('ZADD', 'riskgate:{{ring}}:changed', {score}, {member})")
    };
    let quoted = |text: &str| format!("'{text}'");
    let corruptions = [
        ("imports", set_field("imports", NON_UTF8_LUA, NON_UTF8_LUA)),
        ("imports", set_field("imports", "'some'", "'garbage'")),
        ("imports", set_field("imports", &quoted(&id), NON_UTF8_LUA)),
        ("imports", set_field("imports", &quoted(&id), "'1 2'")),
        ("changed", changed("5", NON_UTF8_LUA)),
        ("changed", changed("-1", "'nonsense'")),
        ("changed", changed("'inf'", "'key:\\255'")),
        ("keys", set_field("keys", "'extra'", "'- nonsense {}'")),
        ("keys", set_field("keys", NON_UTF8_LUA, NON_UTF8_LUA)),
        ("accounts", set_field("accounts", NON_UTF8_LUA, "''")),
        ("digests", set_field("digests", NON_UTF8_LUA, "'key_1'")),
        ("digests", set_field("digests", "'bb'", "'key_1'")),
    ];
    for (collection, line) in corruptions {
        let server = RedisServer::start();
        let mut store = open(&server.url());
        add_keys(&mut store, &[key(1, "acme"), key(2, "other")]);
        let known = store.ring_version().unwrap();
        // A connection that has read before, and a new one.
        run_lua(&server, &line);
        assert_eq!(store.ring_version().unwrap(), known, "{line}");
        for mut store in [store, open(&server.url())] {
            assert_key_and_account_changes_work(&mut store, &line);
            let messages = store.describe_foreign_entries().join("\n");
            assert!(
                messages.starts_with(&format!("riskgate:{{ring}}:{collection}: ")),
                "{line}: {messages}"
            );
            assert_eq!(messages.lines().count(), 1, "{messages}");
        }
    }
}

#[test]
fn foreign_entries_are_reported_and_hide_no_loss() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    add_keys(&mut store, &[key(1, "acme"), key(2, "acme")]);
    for n in 0..5 {
        server.run(&["HSET", "riskgate:{ring}:keys", &format!("extra-{n}"), "x"]);
    }
    store.ring_version().unwrap();
    let messages = store.describe_foreign_entries();
    assert_eq!(messages.len(), 4, "three by name and one summary: {messages:?}");
    // The number of rows is right, but a row of riskgate is missing.
    server.run(&["HDEL", "riskgate:{ring}:keys", "key_2"]);
    for _ in 0..2 {
        let error = store.ring_version().unwrap_err().to_string();
        assert!(error.contains("expected the keys and accounts that were written"), "{error}");
    }
    let server = RedisServer::start();
    let mut store = open(&server.url());
    add_keys(&mut store, &[key(1, "acme")]);
    server.run(&["HSET", "riskgate:{ring}:keys", "extra", "x"]);
    store.ring_version().unwrap();
    assert_eq!(store.describe_foreign_entries().len(), 1);
    server.run(&["HDEL", "riskgate:{ring}:keys", "extra"]);
    store.ring_version().unwrap();
    assert!(store.describe_foreign_entries().is_empty());
}

#[test]
fn an_unreadable_import_damages_only_its_own_keys() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    add_keys(&mut store, &[key(9_000, "other")]);
    let many: Vec<_> = (0..1_001).map(|n| (key(n, "acme"), None)).collect();
    store.add_keys(&TESTER, &many, None).unwrap();
    let import = server.run(&["HKEYS", "riskgate:{ring}:imports"]);
    server.run(&["HSET", "riskgate:{ring}:imports", import.trim(), "garbage"]);
    let found = rows(&mut store);
    assert_eq!((found.keys.len(), found.damaged.key_digests_by_id.len()), (1, 1_001));
    assert!(found.damaged.account_names.contains("acme"));
    assert_key_and_account_changes_work(&mut store, "beside the import");
    // No writer waits for an import whose entry can't be read.
    let started = std::time::Instant::now();
    let refused = store.add_keys(&TESTER, &[(key(5, "acme"), None)], None).unwrap_err().to_string();
    assert!(refused.contains("expected a new key"), "{refused}");
    let refused =
        store.expire_or_revoke_key(&TESTER, "key_5", None, Some(1)).unwrap_err().to_string();
    assert!(refused.contains("DAMAGED key key_5"), "{refused}");
    store.set_account(&TESTER, "acme", Some("pro"), None).unwrap();
    assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(rows(&mut store).damaged.account_names.is_empty(), "setting the account repairs it");
}

#[test]
fn a_probe_replaces_unreadable_fields_of_the_metadata() {
    let month = Month::from_number(1_200).unwrap();
    for value in [NON_UTF8_LUA, "''", "'some words'", "'nan'", "'1e999'"] {
        let server = RedisServer::start();
        let mut store = open(&server.url());
        add_keys(&mut store, &[key(1, "acme")]);
        for field in ["began", "life", "month", "history"] {
            let meta_key = "riskgate:{ring}:meta";
            run_lua(&server, &format!("redis.call('HSET', '{meta_key}', '{field}', {value})"));
        }
        let first = store.probe(month, None).unwrap();
        let again = store.probe(month, Some(&first)).unwrap();
        assert_eq!(
            again.incarnation, first.incarnation,
            "{value}: the incarnation stays the same from then on"
        );
        assert_eq!(store.latest_month().unwrap(), Some(month), "{value}");
        store.ring_version().unwrap().unwrap();
        let meta_key = "riskgate:{ring}:meta";
        run_lua(&server, &format!("redis.call('HSET', '{meta_key}', 'month', {value})"));
        assert_eq!(
            store.repair_month(&TESTER, month).unwrap().latest_month_before,
            None,
            "{value}"
        );
    }
}

#[test]
fn foreign_ledger_keys_break_neither_usage_nor_repair() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    let month = Month::from_number(1_200).unwrap();
    store.probe(month, None).unwrap();
    let report = LeaseReport {
        account: "acme".to_owned(),
        month,
        sequence: 1,
        target: 9,
        floor: 7,
        spent: 7,
        limit: None,
        known: TotalsKnownToNode::default(),
        usage: Vec::new(),
    };
    let recovery_left = std::time::Duration::ZERO;
    let context = ReportBatchContext {
        node_id: &[9; 16],
        latest_begun_month: month,
        recovery_left,
        needs_replicas: true,
    };
    store.report_leases(context, &[report]).unwrap();
    for month in [month, Month::from_number(1_201).unwrap()] {
        let line = format!("redis.call('HSET', 'riskgate:ledger:{{\\255}}:{month}', 'spent', '1')");
        run_lua(&server, &line);
    }
    run_lua(&server, "redis.call('SET', 'riskgate:ledger:{\\255', 'x')");
    let listed = store.read_usage(month, None).unwrap();
    let seen: Vec<_> =
        listed.iter().map(|row| (row.account.as_str(), row.spent, row.is_damaged)).collect();
    assert_eq!(seen, [("\\xff", 0, true), ("acme", 7, false)]);
    assert_eq!(store.repair_month(&TESTER, month).unwrap().deleted_totals, 1, "of the later month");
}

#[test]
fn a_foreign_dedup_hash_or_top_row_is_ignored() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    let credit = |dedup_hash: u64| TopCredit {
        domain: "a.test".to_owned(),
        initial_count: 1.0,
        at: 1_790_000_000,
        dedup_hashes: vec![(dedup_hash, 1)],
    };
    store.add_credits(&[credit(7)], &[], 20_000, 60.0).unwrap();
    run_lua(
        &server,
        &format!("redis.call('SADD', 'riskgate:{{top}}:marks:20000', 'x', {NON_UTF8_LUA})"),
    );
    assert_eq!(store.top_rows_and_dedup_hashes(20_000).unwrap().1, [7]);
    let second = "9".repeat(30);
    for row in [format!("1 {second} 5"), format!("1 1790000000 5,{second}")] {
        server.run(&["HSET", "riskgate:{top}:rows", "a.test", &row]);
        let rows = store.add_credits(&[credit(8)], &[], 20_000, 60.0).unwrap();
        assert_eq!(rows[0].at, 1_790_000_000, "{row}");
        server.run(&["DEL", "riskgate:{top}:marks:20000"]);
    }
}
