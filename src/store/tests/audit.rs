//! Tests of the audit, of requests that can be repeated, and of usage by day. Both stores keep the
//! same contract.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::{
    AuditOperation, DailyUsageRow, LeaseReport, LimitChange, MonthlyLimit, NewKeyPlan,
    RepeatableRequestRow, ReportBatchContext, SourceState, Store, TotalsKnownToNode, UsageCount,
};
use super::{TESTER, TestStore, key, on_each_store, ring_version, rotation, tester};
use crate::model::believed_time::{BelievedTime, TimeTrust};
use crate::model::month::Month;

/// The operation, the target, and the states before and after of each record, the oldest first.
fn read_records(store: &mut Store) -> Vec<(String, String, Value, Value)> {
    let records = store.read_audit_after(None, 1_000).unwrap();
    assert!(records.iter().all(|record| record.author == tester()));
    let part = |record: super::super::AuditRecord| {
        (record.operation, record.target, record.before, record.after)
    };
    records.into_iter().map(part).collect()
}

/// Lets the store count in a month, and returns it to the month before.
pub(super) fn repair_a_later_month(store: &mut Store) {
    let [before, later] = [300, 301].map(|number| Month::from_number(number).unwrap());
    store.probe(later, None).unwrap();
    let context = ReportBatchContext {
        node_id: &[1; 16],
        latest_begun_month: later,
        recovery_left: std::time::Duration::ZERO,
        needs_replicas: true,
    };
    store.report_leases(context, &[]).unwrap();
    store.repair_month(&TESTER, before).unwrap();
}

#[test]
fn each_change_of_keys_and_accounts_has_its_record() {
    on_each_store(|location| {
        let mut store = location.open();
        let author = tester();
        let mut first = key(1, "acme");
        first.label = Some("web \"1\"".to_owned());
        store.mark_as_store(&author).unwrap();
        store
            .add_keys(&author, &[(first.clone(), Some(NewKeyPlan::of_store_account("pro")))], None)
            .unwrap();
        let own_limit = LimitChange::SetOwnLimit(MonthlyLimit::Calls(7));
        store.set_account(&author, "acme", None, Some(own_limit)).unwrap();
        store.set_account(&author, "acme", Some("free"), Some(LimitChange::UsePlanLimit)).unwrap();
        let second = key(2, "acme");
        let turn = rotation("key_1", &second, 1_900_000_000, 5);
        store.rotate_key(&author, &turn, None).unwrap();
        store.undo_rotation(&author, &turn, None).unwrap();
        store.expire_or_revoke_key(&author, "key_1", None, Some(1_800_000_000)).unwrap();
        let plan = Some(NewKeyPlan::of_store_account("free"));
        store.add_keys(&author, &[(key(3, "acme"), plan), (key(4, "acme"), None)], None).unwrap();
        store.write_back_lost_rows(&author, &[key(5, "acme")], &[]).unwrap();
        store.write_back_lost_rows(&author, &[key(5, "acme")], &[]).unwrap();
        repair_a_later_month(&mut store);
        let mut records = read_records(&mut store);
        records.retain(|record| record.0 != "store.init");
        let operations: Vec<(&str, &str)> =
            records.iter().map(|record| (record.0.as_str(), record.1.as_str())).collect();
        assert_eq!(
            operations,
            [
                ("key.create", "key_1"),
                ("account.set", "acme"),
                ("account.set", "acme"),
                ("key.rotate", "key_1"),
                ("key.create", "key_2"),
                ("key.rotation_undo", "key_1"),
                ("key.revoke", "key_2"),
                ("key.revoke", "key_1"),
                ("key.import", "2 keys"),
                ("key.restore", "1 keys and accounts"),
                ("store.repair_month", "the store"),
            ]
        );
        assert_eq!(records[0].2, Value::Null);
        assert_eq!(records[0].3["label"], "web \"1\"");
        assert_eq!(records[0].3["plan"], "pro");
        assert_eq!(records[1].2, json!({ "plan": "pro", "own_limit": null }));
        assert_eq!(records[1].3, json!({ "plan": "pro", "own_limit": 7 }));
        assert_eq!(records[2].3, json!({ "plan": "free", "own_limit": null }));
        assert_eq!(records[3].2["expires_at"], Value::Null);
        assert_eq!(records[3].3["expires_at"], "2030-03-17T17:46:40Z");
        assert_eq!(records[5].3["expires_at"], Value::Null);
        assert_eq!(records[7].3["revoked_at"], "2027-01-15T08:00:00Z");
        let states = json!({
            "key_3": super::super::audit::key_to_json(&key(3, "acme")),
            "key_4": super::super::audit::key_to_json(&key(4, "acme")),
        });
        assert_eq!(
            records[8].3,
            json!({
                "keys": 2, "ids": ["key_3", "key_4"], "plans": { "acme": "free" }, "states": states,
            })
        );
        let all = format!("{records:?}");
        assert!(!all.contains(&hex::encode(first.digest)), "no record has a digest");
    });
}

#[test]
fn a_refused_change_leaves_no_record() {
    on_each_store(|location| {
        let (mut store, author) = (location.open(), tester());
        store.add_keys(&author, &[(key(1, "acme"), None)], None).unwrap();
        store.add_keys(&author, &[(key(1, "acme"), None)], None).unwrap_err();
        store.expire_or_revoke_key(&author, "key_9", None, Some(1)).unwrap_err();
        store.rotate_key(&author, &rotation("key_9", &key(2, "acme"), 9, 5), None).unwrap_err();
        assert_eq!(read_records(&mut store).len(), 1);
    });
}

#[test]
fn a_change_that_changes_nothing_has_no_record() {
    on_each_store(|location| {
        let (mut store, author) = (location.open(), tester());
        store.add_keys(&author, &[(key(1, "acme"), None)], None).unwrap();
        let own_limit = LimitChange::SetOwnLimit(MonthlyLimit::Calls(7));
        for _ in 0..2 {
            store.expire_or_revoke_key(&author, "key_1", None, Some(1_800_000_000)).unwrap();
            store.set_account(&author, "acme", None, Some(own_limit)).unwrap();
        }
        let operations = read_records(&mut store).into_iter().map(|record| record.0);
        let operations: Vec<String> = operations.collect();
        assert_eq!(operations, ["key.create", "key.revoke", "account.set"]);
    });
}

#[test]
fn an_import_of_many_keys_has_one_record() {
    on_each_store(|location| {
        let (mut store, author) = (location.open(), tester());
        let keys: Vec<_> = (0..2_500).map(|n| (key(n, "acme"), None)).collect();
        store.add_keys(&author, &keys, None).unwrap();
        let records = read_records(&mut store);
        assert_eq!(records.len(), 1);
        assert_eq!((records[0].0.as_str(), &records[0].3["keys"]), ("key.import", &json!(2_500)));
    });
}

#[test]
fn records_are_read_in_pages_from_either_end() {
    on_each_store(|location| {
        let mut store = location.open();
        for n in 0..5 {
            super::overrides::set(&mut store, &format!("{n}.com"), "deny").unwrap();
        }
        let all = store.read_audit_after(None, 9).unwrap();
        assert_eq!(
            all.iter().map(|r| r.target.as_str()).collect::<String>(),
            "0.com1.com2.com3.com4.com"
        );
        let from = |id: &str, store: &mut Store| store.read_audit_after(Some(id), 2).unwrap();
        assert_eq!(from(&all[1].id, &mut store), all[2..4]);
        assert_eq!(from(&all[4].id, &mut store), []);
        let newest = store.read_audit_before(None, 2).unwrap();
        assert_eq!(newest, [all[4].clone(), all[3].clone()]);
        let older = store.read_audit_before(Some(&newest[1].id), 9).unwrap();
        assert_eq!(older, [all[2].clone(), all[1].clone(), all[0].clone()]);
        let nothing_is_before = ["0", "0-0", "+0-0"];
        for id in nothing_is_before {
            assert_eq!(store.read_audit_before(Some(id), 9).unwrap(), [], "{id}");
        }
        let last = format!("{}-{}", u64::MAX, u64::MAX);
        assert_eq!(store.read_audit_after(Some(&last), 9).unwrap(), []);
    });
}

#[test]
fn a_source_is_recorded_only_when_it_changes() {
    on_each_store(|location| {
        let (mut store, author) = (location.open(), tester());
        let state_on = |machine: &str, limit: &str| SourceState {
            subject: format!("config a.toml on {machine}"),
            shared_subject: "config a.toml".to_owned(),
            entries: BTreeMap::from([("plans.pro".to_owned(), limit.to_owned())]),
        };
        let state = |limit: &str| state_on("a", limit);
        let mut record = |limit| {
            store.record_source_state(&author, AuditOperation::ConfigChange, &state(limit)).unwrap()
        };
        assert!(!record("5"), "the first state is no change");
        assert!(!record("5"));
        assert!(record("6"));
        assert!(!record("6"), "another node reads the same file");
        let records = read_records(&mut store);
        assert_eq!(records.len(), 1);
        assert_eq!(
            (&records[0].2, &records[0].3),
            (&json!({ "plans.pro": "5" }), &json!({ "plans.pro": "6" }))
        );
        // Machines that were never seen: the file is the same on one, and has changed on another.
        let mut record_on = |machine, limit| {
            let state = state_on(machine, limit);
            store.record_source_state(&author, AuditOperation::ConfigChange, &state).unwrap()
        };
        assert!(!record_on("b", "6"));
        assert!(record_on("c", "8"));
        assert!(!record_on("d", "8"));
        assert!(record_on("b", "8"), "the file has changed on b too");
        let records = read_records(&mut store);
        assert_eq!(records.len(), 3);
        assert_eq!(
            (&records[1].2, &records[1].3),
            (&json!({ "plans.pro": "6" }), &json!({ "plans.pro": "8" }))
        );
        // A state that another program has written is replaced.
        for subject in ["config a.toml on b", "config a.toml"] {
            match location {
                TestStore::File(_) => location.run_sql(&format!(
                    "UPDATE source_state SET entries = x'ff' WHERE subject = '{subject}'"
                )),
                _ => location.set_field("riskgate:{ring}:sources", subject, "'\\255'"),
            }
        }
        assert!(store.read_source_state("config a.toml on b").unwrap().is_some());
        let mut record_on = |machine, limit| {
            let state = state_on(machine, limit);
            store.record_source_state(&author, AuditOperation::ConfigChange, &state).unwrap()
        };
        assert!(record_on("e", "8"), "the state on any machine can't be read");
        assert!(record_on("b", "8"));
        assert!(!record_on("b", "8"));
        let record = read_records(&mut store).pop().unwrap();
        assert_eq!((&record.2, &record.3), (&json!({}), &json!({ "plans.pro": "8" })));
    });
}

#[test]
fn a_repeated_request_adds_no_second_key() {
    on_each_store(|location| {
        let (mut store, author) = (location.open(), tester());
        let request = |key_id: &str| RepeatableRequestRow {
            id: "r1".to_owned(),
            digest: "d".to_owned(),
            salt: "00ff".to_owned(),
            key_id: key_id.to_owned(),
        };
        assert_eq!(store.find_repeatable_request("r1").unwrap(), None);
        store.add_keys(&author, &[(key(1, "acme"), None)], Some(&request("key_1"))).unwrap();
        assert_eq!(store.find_repeatable_request("r1").unwrap(), Some(request("key_1")));
        let before = ring_version(&mut store);
        let again = store.add_keys(&author, &[(key(2, "acme"), None)], Some(&request("key_2")));
        assert!(again.unwrap_err().to_string().contains("Idempotency-Key"));
        let new = key(3, "acme");
        let turn = rotation("key_1", &new, 9, 5);
        store.rotate_key(&author, &turn, Some(&request("key_3"))).unwrap_err();
        assert_eq!(ring_version(&mut store), before);
        assert_eq!(store.find_key("key_2").unwrap(), None);
        let other = RepeatableRequestRow { id: "r2".to_owned(), ..request("key_3") };
        store.rotate_key(&author, &turn, Some(&other)).unwrap();
        assert_eq!(store.find_repeatable_request("r2").unwrap(), Some(other));
        assert_eq!(store.find_key("key_3").unwrap(), Some(new.clone()));
        assert_eq!(store.find_key_by_digest(&new.digest).unwrap(), Some(new));
        assert_eq!(store.find_account("acme").unwrap().unwrap().name, "acme");
        assert_eq!(store.find_account("other").unwrap(), None);
    });
}

#[test]
fn usage_by_day_is_written_with_the_report_and_counts_once() {
    let months = [1_200, 1_201].map(|number| Month::from_number(number).unwrap());
    on_each_store(|location| {
        let mut store = location.open();
        let count = |month: Month, day, route, key_id: &str, calls| UsageCount {
            month,
            day,
            route,
            key_id: Arc::from(key_id),
            calls,
        };
        let mut report = |node: u8, sequence: u64, usage: Vec<UsageCount>| {
            let report = LeaseReport {
                account: "acme {x}".to_owned(),
                month: months[1],
                sequence,
                target: 9,
                floor: 9,
                spent: 9,
                limit: None,
                known: TotalsKnownToNode::default(),
                usage,
            };
            let context = ReportBatchContext {
                node_id: &[node; 16],
                latest_begun_month: months[1],
                recovery_left: std::time::Duration::ZERO,
                needs_replicas: true,
            };
            store.probe(months[1], None).unwrap();
            store.report_leases(context, &[report]).unwrap();
        };
        report(
            1,
            1,
            vec![count(months[1], 2, "check", "k1", 5), count(months[0], 31, "check", "k1", 4)],
        );
        report(
            1,
            2,
            vec![count(months[1], 2, "check", "k1", 6), count(months[1], 2, "domain", "k2", 1)],
        );
        report(1, 2, vec![count(months[1], 2, "check", "k1", 99)]);
        report(
            2,
            1,
            vec![count(months[1], 2, "check", "k1", 10), count(months[1], 10, "check", "k1", 1)],
        );
        let row = |day, route: &str, key_id: &str, calls| DailyUsageRow {
            account: "acme {x}".to_owned(),
            day,
            route: route.to_owned(),
            key_id: key_id.to_owned(),
            calls,
        };
        let all = [row(2, "check", "k1", 16), row(2, "domain", "k2", 1), row(10, "check", "k1", 1)];
        let mut read = |month, account, after: Option<&DailyUsageRow>, count| {
            let after = after.map(DailyUsageRow::cursor);
            store.read_daily_usage(month, account, after.as_ref(), count).unwrap()
        };
        assert_eq!(read(months[1], None, None, 99), all);
        assert_eq!(read(months[1], Some("acme {x}"), None, 99), all);
        assert_eq!(read(months[1], Some("other"), None, 99), []);
        assert_eq!(read(months[0], None, None, 99), [row(31, "check", "k1", 4)]);
        assert_eq!(read(months[1], None, None, 2), all[..2]);
        assert_eq!(read(months[1], None, Some(&all[1]), 2), all[2..]);
        assert_eq!(read(months[1], Some("acme {x}"), Some(&all[0]), 1), all[1..2]);
        assert_accounts_with_calls_are_listed(&mut store, months);
    });
}

/// The first month has usage by day and no totals.
fn assert_accounts_with_calls_are_listed(store: &mut Store, months: [Month; 2]) {
    for month in months {
        assert_eq!(store.list_accounts_with_calls(month).unwrap(), ["acme {x}"], "{month}");
    }
    let next = Month::from_number(1_202).unwrap();
    assert_eq!(store.list_accounts_with_calls(next).unwrap(), [""; 0]);
}

#[test]
fn only_a_settled_time_deletes_old_records_and_requests() {
    on_each_store(|location| {
        let (mut store, author) = (location.open(), tester());
        let start = 1_900_000_000;
        let set_limit = |store: &mut Store, days: i64, trust, limit| {
            store.set_time(BelievedTime { unix_now: start + days * 86_400, trust });
            let limit = Some(LimitChange::SetOwnLimit(MonthlyLimit::Calls(limit)));
            store.set_account(&author, "acme", None, limit).unwrap();
            store.read_audit_after(None, 1_000).unwrap()
        };
        // A stream deletes whole blocks of a hundred records.
        for limit in 0..250 {
            set_limit(&mut store, 0, TimeTrust::Known, limit);
        }
        for (days, trust) in
            [(731, TimeTrust::Known), (731, TimeTrust::LowerBound), (399, TimeTrust::Settled)]
        {
            let before = store.read_audit_after(None, 1_000).unwrap().len();
            let limit = 1_000 + before as u64;
            let records = set_limit(&mut store, days, trust, limit);
            assert_eq!(records.len(), before + 1, "{days} {trust:?}");
        }
        let records = set_limit(&mut store, 731, TimeTrust::Settled, 5_000);
        assert!(records.len() < 250, "{}", records.len());
    });
}
