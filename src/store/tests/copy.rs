//! Tests of copying a store: `fill_empty_store`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::redis_server::RedisCluster;
use super::super::{
    AuditOperation, ClaimTimes, KeyRow, LeaseReport, LimitChange, MonthlyLimit, NewQuotaEvent,
    QuotaEventOutcome, ReportBatchContext, SignUpCursor, SourceState, Store, StoreContents,
    StoredInboxSecret, TopCredit, TopRow, UsageRow,
};
use super::quota_events::quota_event;
use super::sign_ups::sign_up;
use super::{TESTER, TestStore, add_keys, key, on_each_store, rows, sort_rows};
use crate::model::month::Month;

/// A future month: the totals of a past month would expire at once.
fn january_2100() -> Month {
    Month::from_number(1_200).unwrap()
}

fn usage_row(account: &str, spent: u64, leased: u64) -> UsageRow {
    UsageRow { account: account.to_owned(), spent, leased, is_damaged: false }
}

fn report_leased(store: &mut Store, account: &str, leased: u64, spent: u64) {
    let report = LeaseReport {
        account: account.to_owned(),
        month: january_2100(),
        sequence: 1,
        target: leased,
        floor: spent,
        spent,
        limit: None,
        known: super::super::TotalsKnownToNode::default(),
        usage: Vec::new(),
    };
    let context = ReportBatchContext {
        node_id: &[9; 16],
        latest_begun_month: january_2100(),
        recovery_left: std::time::Duration::ZERO,
        needs_replicas: true,
    };
    store.report_leases(context, &[report]).unwrap();
}

/// Fills a store with rows of every kind.
fn write_rows_of_every_kind(store: &mut Store) {
    super::overrides::set(store, "a.com", "deny").unwrap();
    super::overrides::set(store, "b.com", "allow").unwrap();
    store.probe(january_2100(), None).unwrap();
    let mut keys: Vec<_> = (0..1_200).map(|n| key(n, &format!("account-{}", n % 7))).collect();
    keys[5].origins = vec!["https://a.com".to_owned()];
    add_keys(store, &keys);
    store.expire_or_revoke_key(&TESTER, "key_9", Some(99), Some(50)).unwrap();
    store
        .set_account(
            &TESTER,
            "account-3",
            Some("pro"),
            Some(LimitChange::SetOwnLimit(MonthlyLimit::Unlimited)),
        )
        .unwrap();
    store
        .set_account(
            &TESTER,
            "keyless",
            None,
            Some(LimitChange::SetOwnLimit(MonthlyLimit::Calls(12))),
        )
        .unwrap();
    report_leased(store, "account-1", 70, 64);
    report_leased(store, "account-2", 5, 5);
    let marks = [(u64::MAX, u64::MAX - 1)];
    let credit = |domain: &str, base| TopCredit {
        domain: domain.to_owned(),
        initial_count: base,
        at: 1_790_000_000,
        dedup_hashes: marks.to_vec(),
    };
    store.add_credits(&[credit("a.test", 0.1), credit("b.test", 7.0)], &[], 20_000, 60.0).unwrap();
    write_quota_events(store);
    write_sign_ups(store);
    for value in ["1", "2"] {
        let entries = [("plans.pro".to_owned(), value.to_owned())].into();
        let state = SourceState {
            subject: "config a.toml on a".to_owned(),
            shared_subject: "config a.toml".to_owned(),
            entries,
        };
        store.record_source_state(&TESTER, AuditOperation::ConfigChange, &state).unwrap();
    }
}

/// Writes an inbox secret, and more sign-ups than a page has.
fn write_sign_ups(store: &mut Store) {
    let secret = StoredInboxSecret { secret: [0xa7; 32], created_at: 1_790_000_000 };
    store.keep_inbox_secret(&secret).unwrap();
    let sign_ups: Vec<_> = (0..5_001).map(|n| sign_up(n, 1_790_000_000 - i64::from(n))).collect();
    store.append_sign_ups(&sign_ups, SignUpCursor::default()).unwrap();
}

/// Records a pending, a delivered and a given up event of the month, and of a past month a pending
/// and a delivered one.
fn write_quota_events(store: &mut Store) {
    let past = Month::from_number(january_2100().number() - 1).unwrap();
    let new = |key: &str, month, due_at| NewQuotaEvent { due_at, ..quota_event(key, month) };
    let events = [
        new("delivered", january_2100(), 1),
        new("given-up", january_2100(), 2),
        new("past-delivered", past, 3),
        new("past-pending", past, 500),
        new("pending", january_2100(), 500),
    ];
    assert_eq!(store.record_quota_events(&events, 0).unwrap(), 5);
    let times = ClaimTimes { now: 9, latest_due: 9_000, claimed_until: 600 };
    let claimed = store.claim_quota_events(times, 9).unwrap();
    let outcomes = [
        QuotaEventOutcome::Delivered(20),
        QuotaEventOutcome::GivenUp(21),
        QuotaEventOutcome::Delivered(22),
    ];
    assert_eq!(claimed.len(), outcomes.len());
    for (event, outcome) in claimed.iter().zip(outcomes) {
        assert!(store.finish_quota_event(event, outcome).unwrap());
    }
}

fn read_contents(store: &mut Store) -> StoreContents {
    store.read_contents().unwrap().expect("a store")
}

fn top_rows_by_domain(rows: &[TopRow]) -> BTreeMap<&str, &TopRow> {
    rows.iter().map(|row| (row.domain.as_str(), row)).collect()
}

#[track_caller]
fn assert_same_contents(a: &StoreContents, b: &StoreContents) {
    let (ring, other) = (sort_rows(a.ring.clone()), sort_rows(b.ring.clone()));
    assert_eq!(ring.keys, other.keys);
    assert_eq!(ring.accounts, other.accounts);
    assert_eq!((a.usage_month, &a.usage), (b.usage_month, &b.usage));
    assert_eq!(top_rows_by_domain(&a.top_rows), top_rows_by_domain(&b.top_rows));
    assert_eq!(a.quota_events, b.quota_events);
    assert_eq!(a.overrides, b.overrides);
    assert_eq!(a.source_states, b.source_states);
    assert_eq!(a.inbox_secret, b.inbox_secret);
    assert!(a.sign_ups == b.sign_ups);
}

#[test]
fn a_copy_to_redis_and_a_cluster_and_back_is_the_same() {
    let (from, back) = (TestStore::new_sqlite(), TestStore::new_sqlite());
    let servers = [TestStore::new_redis(), TestStore::Cluster(RedisCluster::start(3))];
    write_rows_of_every_kind(&mut from.open());
    let first = read_contents(&mut from.open());
    assert_eq!((first.usage.len(), first.source_states.len()), (2, 2));
    assert_eq!((first.inbox_secret.is_some(), first.sign_ups.len()), (true, 5_001));
    assert_eq!(first.overrides.len(), 2);
    let events: Vec<&str> = first.quota_events.iter().map(|event| event.key.as_str()).collect();
    assert_eq!(events, ["delivered", "given-up", "past-pending", "pending"]);
    let mut contents = first;
    for to in servers.iter().chain([&back]) {
        to.open().fill_empty_store(&TESTER, &contents).unwrap();
        let copied = read_contents(&mut to.open());
        assert_same_contents(&contents, &copied);
        contents = copied;
    }
    let TestStore::Cluster(cluster) = &servers[1] else { panic!("a Cluster") };
    for primary in &cluster.primaries {
        assert_eq!(primary.matching_keys("*staged*"), [""; 0]);
        assert_ne!(primary.matching_keys("*"), [""; 0], "each primary has a part");
    }
}

#[test]
fn a_copy_that_fails_leaves_nothing_on_a_cluster() {
    let (from, cluster) = (TestStore::new_sqlite(), RedisCluster::start(3));
    write_rows_of_every_kind(&mut from.open());
    let contents = read_contents(&mut from.open());
    let to = TestStore::Cluster(cluster);
    let TestStore::Cluster(cluster) = &to else { panic!("a Cluster") };
    // The last step refuses the copy, because it looks for digests too.
    let ring = cluster.primary_of("riskgate:{ring}:meta");
    ring.run(&["HSET", "riskgate:{ring}:digests", "some", "key"]);
    let error = to.open().fill_empty_store(&TESTER, &contents).unwrap_err().to_string();
    assert!(error.contains("expected an empty store"), "{error}");
    ring.run(&["DEL", "riskgate:{ring}:digests"]);
    for prefix in ["riskgate:ledger:*", "riskgate:{sign_ups}:*"] {
        let left = cluster.primaries.iter().map(|primary| primary.matching_keys(prefix).len());
        assert_eq!(left.sum::<usize>(), 0, "{prefix}");
    }
    to.open().fill_empty_store(&TESTER, &contents).unwrap();
    assert_same_contents(&contents, &read_contents(&mut to.open()));
}

#[test]
fn a_copied_store_accepts_changes_and_reports() {
    let from = TestStore::new_redis();
    write_rows_of_every_kind(&mut from.open());
    let held = read_contents(&mut from.open());
    on_each_store(|location| {
        let mut store = location.open();
        store.mark_as_store(&TESTER).unwrap();
        let empty = store.ring_version().unwrap().unwrap();
        store.probe(january_2100(), None).unwrap();
        store.fill_empty_store(&TESTER, &held).unwrap();
        let filled = store.ring_version().unwrap().unwrap();
        assert_eq!(filled.store_id, empty.store_id);
        assert_eq!(store.stored_overrides().unwrap().unwrap().rows, held.overrides);
        let changes = store.ring_changes(empty.version).unwrap();
        assert_eq!(
            changes.keys.len(),
            held.ring.keys.len(),
            "a node that knew it empty gets all rows"
        );
        assert_eq!(changes.accounts.len(), held.ring.accounts.len());
        assert!(store.ring_changes(filled.version).unwrap().keys.is_empty());
        store.expire_or_revoke_key(&TESTER, "key_3", Some(1), None).unwrap();
        let changes = store.ring_changes(filled.version).unwrap();
        assert_eq!((changes.keys.len(), changes.accounts.len()), (1, 0));
        let taken =
            store.add_keys(&TESTER, &[(key(4, "new"), None)], None).unwrap_err().to_string();
        assert!(taken.contains("as key_4"), "{taken}");
        // The copied calls stay spent, and a node's own calls are added to them.
        report_leased(&mut store, "account-1", 10, 1);
        let usage = store.read_usage(january_2100(), Some("account-1")).unwrap();
        assert_eq!((usage[0].spent, usage[0].leased), (64 + 1, 70 + 10));
    });
}

/// What an error calls the contents of a store, and what writes them.
type NamedUse<'u> = (&'static str, &'u dyn Fn(&mut Store));

#[test]
fn only_an_empty_store_is_filled() {
    let from = TestStore::new_sqlite();
    write_rows_of_every_kind(&mut from.open());
    let mut held = read_contents(&mut from.open());
    // What TO has must be found, whatever FROM has.
    held.sign_ups.clear();
    held.overrides.clear();
    let uses: [NamedUse; 5] = [
        ("keys or accounts", &|store| add_keys(store, &[key(5_000, "mine")])),
        ("keys or accounts", &|store| {
            store.set_account(&TESTER, "mine", Some("pro"), None).unwrap();
        }),
        ("numbers", &|store| report_leased(store, "mine", 3, 2)),
        ("sign-ups", &|store| {
            store.append_sign_ups(&[sign_up(1, 5)], SignUpCursor::default()).unwrap();
        }),
        ("overrides", &|store| {
            assert!(super::overrides::set(store, "mine.com", "deny").unwrap());
        }),
    ];
    for (name, change_store) in uses {
        on_each_store(|location| {
            let mut store = location.open();
            store.mark_as_store(&TESTER).unwrap();
            store.probe(january_2100(), None).unwrap();
            change_store(&mut store);
            let (ring, usage) = (rows(&mut store), store.read_usage(january_2100(), None).unwrap());
            let error = store.fill_empty_store(&TESTER, &held).unwrap_err().to_string();
            let expected = format!("expected an empty store, but found one with {name}");
            assert!(error.contains(&expected), "{error}");
            // Gateways write numbers and sign-ups to a server that was emptied.
            let is_of_gateways = store.is_server() && ["numbers", "sign-ups"].contains(&name);
            assert_eq!(error.contains("with FLUSHDB"), is_of_gateways, "{error}");
            let now = rows(&mut store);
            assert_eq!((now.keys, now.accounts), (ring.keys, ring.accounts));
            assert_eq!(store.read_usage(january_2100(), None).unwrap(), usage);
            assert!(store.top_rows().unwrap().is_empty());
        });
    }
}

#[test]
fn a_store_without_keys_and_accounts_has_its_sign_ups_copied() {
    let stores = [TestStore::new_redis(), TestStore::new_sqlite(), TestStore::new_redis()];
    write_sign_ups(&mut stores[0].open());
    let first = read_contents(&mut stores[0].open());
    assert!(!first.is_empty());
    for pair in stores.windows(2) {
        let contents = read_contents(&mut pair[0].open());
        pair[1].open().fill_empty_store(&TESTER, &contents).unwrap();
        assert_same_contents(&first, &read_contents(&mut pair[1].open()));
    }
    // A cursor of the copied store leads to what is written after it.
    let mut store = stores[2].open();
    store.append_sign_ups(&[sign_up(9_999, 5)], SignUpCursor::default()).unwrap();
    assert_eq!(read_contents(&mut store).sign_ups.last(), Some(&sign_up(9_999, 5)));
}

#[test]
fn a_copy_replaces_the_inbox_secret_of_an_empty_store() {
    let from = TestStore::new_sqlite();
    write_rows_of_every_kind(&mut from.open());
    let held = read_contents(&mut from.open());
    on_each_store(|location| {
        let mut store = location.open();
        let older = StoredInboxSecret { secret: [1; 32], created_at: 0 };
        store.keep_inbox_secret(&older).unwrap();
        store.fill_empty_store(&TESTER, &held).unwrap();
        assert_eq!(store.read_inbox_secret().unwrap(), held.inbox_secret);
    });
}

#[test]
fn contents_have_the_totals_of_a_store_whose_month_no_clock_has_confirmed() {
    on_each_store(|location| {
        let mut store = location.open();
        add_keys(&mut store, &[key(1, "acme")]);
        // As a node probes a server whose clock it does not believe.
        store.probe(Month::FIRST, None).unwrap();
        report_leased(&mut store, "acme", 70, 64);
        let contents = read_contents(&mut store);
        assert_eq!(contents.usage_month, january_2100());
        assert_eq!(contents.usage, [usage_row("acme", 64, 70)]);
        let to = TestStore::new_sqlite();
        to.open().fill_empty_store(&TESTER, &contents).unwrap();
        assert_same_contents(&contents, &read_contents(&mut to.open()));
    });
}

/// What a store has but for keys and accounts, as text.
fn describe_other_contents(store: &mut Store) -> String {
    let sources = ["config a.toml on a", "config own.toml on b"];
    let sources = sources.map(|subject| store.read_source_state(subject).unwrap());
    let audit = store.read_audit_after(None, 10_000).unwrap();
    let usage = store.read_usage(january_2100(), None).unwrap();
    let daily = store.read_daily_usage(january_2100(), None, None, 10_000).unwrap();
    let events = store.quota_events_to_copy(january_2100()).unwrap();
    let sign_ups = store.read_sign_ups_page(SignUpCursor::default()).unwrap();
    let (secret, top) = (store.read_inbox_secret().unwrap(), store.top_rows().unwrap());
    format!("{sources:?} {audit:?} {usage:?} {daily:?} {events:?} {top:?} {secret:?} {sign_ups:?}")
}

#[test]
fn an_interrupted_copy_changes_nothing_and_can_be_repeated() {
    let from = TestStore::new_sqlite();
    write_rows_of_every_kind(&mut from.open());
    let mut held = read_contents(&mut from.open());
    let day = |calls| super::super::DailyUsageRow {
        account: "account-1".to_owned(),
        day: 3,
        route: "domain".to_owned(),
        key_id: "key_1".to_owned(),
        calls,
    };
    held.daily_usage = vec![(january_2100(), vec![day(7)])];
    let location = TestStore::new_redis();
    let TestStore::Server(server) = &location else { return };
    let mut store = location.open();
    store.mark_as_store(&TESTER).unwrap();
    let own_state = SourceState {
        subject: "config own.toml on b".to_owned(),
        shared_subject: "config own.toml".to_owned(),
        entries: BTreeMap::new(),
    };
    store.record_source_state(&TESTER, AuditOperation::ConfigChange, &own_state).unwrap();
    let before = describe_other_contents(&mut store);
    let own_records = store.read_audit_after(None, 10).unwrap();
    assert_eq!(own_records.len(), 1);
    for denied in ["-evalsha", "-rename", "-zunionstore", "-persist", "-zadd"] {
        let user = ["ACL", "SETUSER", "half", "reset", "on", ">pass", "~*", "+@all"];
        server.run(&[&user[..], &[denied]].concat());
        let mut half = super::open(&server.url_as("half", "pass"));
        half.fill_empty_store(&TESTER, &held).unwrap_err();
        assert!(describe_other_contents(&mut store) == before, "{denied}");
        assert!(rows(&mut store).keys.is_empty());
    }
    let staged = server.matching_keys("riskgate:*staged:*");
    assert!(staged.len() > 9, "{staged:?}");
    for staged in staged {
        let ttl: i64 = server.run(&["TTL", &staged]).parse().unwrap();
        assert!((1..=3_600).contains(&ttl), "{staged} expires by itself: {ttl}");
    }
    store.fill_empty_store(&TESTER, &held).unwrap();
    let filled = read_contents(&mut store);
    held.source_states.push(("config own.toml".to_owned(), "{}".to_owned()));
    held.source_states.push(("config own.toml on b".to_owned(), "{}".to_owned()));
    held.source_states.sort();
    let mut filled_states = filled.source_states.clone();
    filled_states.sort();
    assert_eq!(filled_states, held.source_states);
    held.source_states.clone_from(&filled.source_states);
    assert_same_contents(&held, &filled);
    assert_eq!(filled.daily_usage, [(january_2100(), vec![day(7)])]);
    let operations = |records: &[super::super::AuditRecord]| -> Vec<String> {
        let mut operations: Vec<String> = records.iter().map(|it| it.operation.clone()).collect();
        operations.sort();
        operations
    };
    let mut expected = operations(&[&held.audit[..], &own_records].concat());
    expected.push("store.fill".to_owned());
    expected.sort();
    assert_eq!(operations(&filled.audit), expected);
    assert_eq!(filled.audit.last().unwrap().operation, "store.fill");
    for kept in
        ["{ring}:keys", "{ring}:digests", "{ring}:accounts", "{ring}:changed", "{ring}:audit"]
    {
        assert_eq!(server.run(&["TTL", &format!("riskgate:{kept}")]), "-1");
    }
    let totals = format!("riskgate:ledger:{{account-1}}:{}", january_2100());
    let ttl: i64 = server.run(&["TTL", &totals]).parse().unwrap();
    assert!((399 * 86_400..=400 * 86_400).contains(&ttl), "{ttl}");
}

#[test]
fn a_redis_key_of_another_type_is_found_before_anything_is_copied() {
    let (from, location) = (TestStore::new_sqlite(), TestStore::new_redis());
    let TestStore::Server(server) = &location else { return };
    write_rows_of_every_kind(&mut from.open());
    let mut store = location.open();
    store.mark_as_store(&TESTER).unwrap();
    // Only its merge would find it.
    server.run(&["SET", "riskgate:{top}:rows", "other"]);
    let copied = store.fill_empty_store(&TESTER, &read_contents(&mut from.open()));
    let error = copied.unwrap_err().to_string();
    assert!(error.contains("riskgate:{top}:rows has another type"), "{error}");
    assert!(rows(&mut store).keys.is_empty());
}

#[test]
fn contents_that_are_read_during_changes_are_of_one_moment() {
    on_each_store(|test_store| {
        let is_over = AtomicBool::new(false);
        let mut first = test_store.open();
        add_keys(&mut first, &[key(0, "acme")]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut store = test_store.open();
                for n in 1.. {
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    add_keys(&mut store, &[key(n, "acme")]);
                    let id = format!("key_{}", n - 1);
                    store.expire_or_revoke_key(&TESTER, &id, None, Some(5)).unwrap();
                    // On a server, a backup needs a moment between two changes.
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            let mut seen = 0;
            for turn in 0.. {
                if turn >= 25 && seen > 2 {
                    break;
                }
                let contents = read_contents(&mut first);
                let targets = |operation: &str| -> BTreeSet<String> {
                    let records = contents.audit.iter().filter(|it| it.operation == operation);
                    records.map(|record| record.target.clone()).collect()
                };
                let ids = |is_wanted: fn(&KeyRow) -> bool| -> BTreeSet<String> {
                    let keys = contents.ring.keys.iter().filter(|key| is_wanted(key));
                    keys.map(|key| key.id.clone()).collect()
                };
                assert_eq!(targets("key.create"), ids(|_| true));
                assert_eq!(targets("key.revoke"), ids(|key| key.revoked_at.is_some()));
                seen = contents.ring.keys.len();
            }
            is_over.store(true, Ordering::SeqCst);
        });
    });
}

#[test]
fn a_copy_names_the_overrides_that_it_cannot_read() {
    on_each_store(|location| {
        let mut store = location.open();
        store.mark_as_store(&TESTER).unwrap();
        for domain in ["bad.com", "good.com"] {
            assert!(super::overrides::set(&mut store, domain, "deny").unwrap());
        }
        match location {
            TestStore::File(folder) => {
                let file = rusqlite::Connection::open(folder.path().join("store.db")).unwrap();
                let damage = "UPDATE domain_override SET author = 'x' WHERE domain = 'bad.com'";
                assert_eq!(file.execute(damage, []).unwrap(), 1);
            }
            TestStore::Server(_) | TestStore::Cluster(_) => {
                let server = location.server();
                let overrides = "riskgate:{ring}:overrides";
                server.run(&["HSET", overrides, "bad.com subtree", "garbage"]);
            }
        }
        let contents = read_contents(&mut store);
        assert_eq!(contents.overrides.len(), 1);
        assert!(matches!(&contents.damaged_overrides[..], [name] if name.starts_with("bad.com")));
    });
}

#[test]
fn a_file_whose_version_of_overrides_cannot_be_read_is_copied_with_its_overrides() {
    let file = TestStore::new_sqlite();
    let mut store = file.open();
    for domain in ["a.com", "b.com"] {
        assert!(super::overrides::set(&mut store, domain, "deny").unwrap());
    }
    file.run_sql("UPDATE meta SET value = 'x' WHERE key = 'overrides'");
    let contents = read_contents(&mut store);
    assert_eq!((contents.overrides.len(), contents.damaged_overrides.len()), (2, 0));
}

#[test]
fn a_store_that_has_only_an_audit_is_copied() {
    let from = TestStore::new_sqlite();
    super::audit::repair_a_later_month(&mut from.open());
    let contents = read_contents(&mut from.open());
    assert_eq!(contents.audit.len(), 1);
    on_each_store(|location| {
        let mut store = location.open();
        store.fill_empty_store(&TESTER, &contents).unwrap();
        let records = read_contents(&mut store).audit;
        let operations: Vec<&str> = records.iter().map(|it| it.operation.as_str()).collect();
        assert_eq!(operations, ["store.repair_month", "store.fill"]);
    });
}

#[test]
fn a_server_whose_rows_cannot_be_read_is_not_copied_without_them() {
    let month = january_2100();
    let usage = format!("riskgate:usage:{{account-1}}:{month}");
    let source = ["EVAL", "redis.call('HSET', KEYS[1], 'broken', '\\255')", "1"];
    let damages: [(&[&str], &str); 5] = [
        (&["HSET", "riskgate:{webhook}:events", "broken", "p 0 x"], "the quota event broken"),
        (&["HSET", "riskgate:{top}:rows", "broken.com", "x"], "the top count of broken.com"),
        (&["HSET", &usage, "1 / node key", "many"], "the usage of account-1 in 2100-01 by day"),
        (&["XADD", "riskgate:{sign_ups}:stream", "9999999-0", "at", "x"], "sign-up 9999999"),
        (&[&source[..], &["riskgate:{ring}:sources"]].concat(), "the state of the source broken"),
    ];
    for (damage, named) in damages {
        let server = TestStore::new_redis();
        write_rows_of_every_kind(&mut server.open());
        read_contents(&mut server.open());
        let TestStore::Server(redis) = &server else { panic!("a server") };
        redis.run(damage);
        let error = server.open().read_contents().unwrap_err().to_string();
        let expected = format!("expected rows that can be read, but found another for {named}");
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn a_file_whose_rows_cannot_be_read_is_not_copied_without_them() {
    for (damage, named) in [
        ("UPDATE quota_event SET body = x'ff' WHERE key = 'pending'", "the quota event pending"),
        ("UPDATE sign_up SET at = 'soon' WHERE number = 7", "sign-up 7"),
        (
            "UPDATE source_state SET entries = x'ff' WHERE subject = 'config a.toml'",
            "the state of the source config a.toml",
        ),
    ] {
        let file = TestStore::new_sqlite();
        write_rows_of_every_kind(&mut file.open());
        file.run_sql(damage);
        let error = file.open().read_contents().unwrap_err().to_string();
        let expected = format!("expected rows that can be read, but found another for {named}");
        assert_eq!(error, expected);
    }
}
