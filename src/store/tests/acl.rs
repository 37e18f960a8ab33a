//! Tests that a Redis user needs exactly the permissions listed here: together they are enough, and
//! each of them is needed. They are written as in `ACL SETUSER`.

use std::collections::BTreeMap;

use super::super::redis_server::{RedisCluster, RedisServer};
use super::super::{
    AuditOperation, ClaimTimes, DnsFactRow, LeaseReport, LimitChange, MAX_DNS_FACTS, MonthlyLimit,
    NewKeyPlan, QuotaEventOutcome, RepeatableRequestRow, ReportBatchContext, SignUpCursor,
    SignUpDeletion, SourceState, Store, StoreContents, StoreError, StoredInboxSecret, TopCredit,
    TotalsKnownToNode,
};
use super::quota_events::quota_event;
use super::sign_ups::sign_up;
use super::{TESTER, add_keys, key, open, rotation, rows, tester};
use crate::model::believed_time::{BelievedTime, TimeTrust};
use crate::model::month::Month;
use crate::model::sign_up::SignUpEntry;

/// The permissions that every gateway needs, for the ledger, for reading keys and for the top
/// counts. A gateway with `store.wait_replicas` needs `+wait` too.
const GATEWAY_ACL: [&str; 23] = [
    "~riskgate:*",
    "+info",
    "+time",
    "+script|load",
    "+evalsha",
    "+scan",
    "+pttl",
    "+set",
    "+expire",
    "+hget",
    "+hgetall",
    "+hmget",
    "+hset",
    "+hdel",
    "+hlen",
    "+hscan",
    "+sadd",
    "+sscan",
    "+zcard",
    "+zrangebyscore",
    "+xadd",
    "+xrange",
    "+xrevrange",
];

/// What `riskgate keys` and `riskgate accounts` need beside `GATEWAY_ACL` to change something. A
/// gateway needs these permissions to write back rows that a failover lost.
const WRITER_ACL: [&str; 3] = ["+hincrby", "+hsetnx", "+zadd"];

/// What a gateway with `dns.learn` needs beside `GATEWAY_ACL`.
const LEARNER_ACL: [&str; 2] = ["+zadd", "+zrem"];

/// What a gateway with `webhook.url` needs beside `GATEWAY_ACL`.
const WEBHOOK_ACL: [&str; 2] = ["+zadd", "+zrem"];

/// What a gateway that counts sign-ups needs beside `GATEWAY_ACL`.
const SIGN_UP_ACL: [&str; 2] = ["+xdel", "+xinfo"];

/// What `riskgate store copy` needs beside the permissions above to fill a server.
const COPY_TARGET_ACL: [&str; 5] = ["+exists", "+unlink", "+rename", "+persist", "+zunionstore"];

/// What every gateway needs beside `GATEWAY_ACL` if its store is a Cluster.
const CLUSTER_ACL: [&str; 4] = ["+cluster|info", "+cluster|slots", "+asking", "+get"];

/// Creates a Redis user with the permissions of the lists, except `lacking_permission`, and runs
/// every operation that needs one of them.
fn run_operations_with_permissions(
    server: &RedisServer,
    permission_lists: &[&[&str]],
    lacking_permission: &str,
) -> Result<(), StoreError> {
    server.run(&["FLUSHALL"]);
    let mut admin = open(&server.url());
    let mut user = vec!["ACL", "SETUSER", "some", "reset", "on", ">pw"];
    user.extend(
        permission_lists.iter().copied().flatten().filter(|right| **right != lacking_permission),
    );
    server.run(&user);
    let mut store = open(&server.url_as("some", "pw"));
    if permission_lists.contains(&&WRITER_ACL[..]) {
        let request = RepeatableRequestRow {
            id: "r".to_owned(),
            digest: "d".to_owned(),
            salt: "5a".to_owned(),
            key_id: "key_1".to_owned(),
        };
        store.mark_as_store(&TESTER)?;
        let plan = NewKeyPlan::of_store_account("pro");
        store.add_keys(&TESTER, &[(key(1, "acme"), Some(plan))], Some(&request))?;
        store.set_account(
            &TESTER,
            "acme",
            Some("pro"),
            Some(LimitChange::SetOwnLimit(MonthlyLimit::Calls(5))),
        )?;
        store.rotate_key(&TESTER, &rotation("key_1", &key(2, "acme"), 9, 5), None)?;
        store.write_back_lost_rows(&TESTER, &[key(3, "acme")], &[])?;
        store.find_repeatable_request("r")?;
        super::overrides::set(&mut store, "a.com", "deny")?;
        super::overrides::take_over(&mut store, "/o.csv", &[])?;
        store.stored_overrides()?;
        store.find_overrides("a.com")?;
        return store.expire_or_revoke_key(&TESTER, "key_1", Some(9), Some(9));
    }
    add_keys(&mut admin, &[key(1, "acme"), key(2, "acme")]);
    run_gateway_operations(&mut store, lacking_permission, &|| {
        server.run(&["DEL", "riskgate:ledger:{acme}:2100-01"]);
        server.run(&["HDEL", "riskgate:{ring}:meta", "began"]);
    })
}

fn run_gateway_operations(
    store: &mut Store,
    lacking_permission: &str,
    lose_data: &dyn Fn(),
) -> Result<(), StoreError> {
    let month = Month::from_number(1_200).unwrap();
    if lacking_permission != "+info" {
        // Without `+info`, this check passes and the probe below fails.
        store.check_safe_if_reachable()?;
    }
    let probe = store.probe(month, None)?;
    store.latest_month()?;
    let mut report = LeaseReport {
        account: "acme".to_owned(),
        month,
        sequence: 1,
        target: 9,
        floor: 1,
        spent: 1,
        limit: Some(5),
        known: TotalsKnownToNode::default(),
        usage: Vec::new(),
    };
    let context = ReportBatchContext {
        node_id: &[1; 16],
        latest_begun_month: month,
        recovery_left: std::time::Duration::ZERO,
        needs_replicas: true,
    };
    store.report_leases(context, &[report.clone()])?;
    lose_data();
    (report.sequence, report.known.sequence) = (2, 1);
    store.report_leases(context, &[report])?;
    store.probe(month, Some(&probe))?;
    store.read_spent_by_others("acme", month, &[1; 16])?;
    store.read_usage(month, Some("acme"))?;
    store.read_usage(month, None)?;
    store.ring_version()?;
    store.ring_rows()?;
    store.ring_changes(1)?;
    let credit = |domain: &str| TopCredit {
        domain: domain.to_owned(),
        initial_count: 1.0,
        at: 5,
        dedup_hashes: vec![(7, 8)],
    };
    store.add_credits(&[credit("a.test")], &[], 3, 100.0)?;
    store.add_credits(&[credit("b.test")], &["a.test".to_owned()], 3, 100.0)?;
    store.top_rows_and_dedup_hashes(3)?;
    let author = tester();
    let state = SourceState {
        subject: "config on a".to_owned(),
        shared_subject: "config".to_owned(),
        entries: BTreeMap::new(),
    };
    store.record_source_state(&author, AuditOperation::ConfigChange, &state)?;
    let changed =
        SourceState { entries: BTreeMap::from([("a".to_owned(), "1".to_owned())]), ..state };
    store.record_source_state(&author, AuditOperation::ConfigChange, &changed)?;
    super::overrides::take_over(store, "/o.csv", &[])?;
    store.stored_overrides()?;
    store.read_audit_before(None, 9)?;
    store.read_audit_after(None, 9)?;
    store.read_daily_usage(month, None, None, 9).map(drop)
}

#[test]
fn gateway_and_writer_permissions_suffice_and_are_needed() {
    let server = RedisServer::start();
    let all = [&[&GATEWAY_ACL[..]][..], &[&GATEWAY_ACL, &WRITER_ACL]];
    for rights in all {
        run_operations_with_permissions(&server, rights, "").unwrap();
        for right in rights[rights.len() - 1] {
            let error = run_operations_with_permissions(&server, rights, right)
                .expect_err(right)
                .to_string();
            let refused = ["NOPERM", "can't run this command", "ACL failure in script"];
            assert!(refused.iter().any(|text| error.contains(text)), "{right}: {error}");
        }
    }
}

#[test]
fn gateway_permissions_on_a_cluster_suffice_and_are_needed() {
    let cluster = RedisCluster::start(1);
    let url = cluster.url().replace("://", "://some:pw@");
    let month = Month::from_number(1_200).unwrap();
    let rights = [&GATEWAY_ACL[..], &CLUSTER_ACL].concat();
    // riskgate sends ASKING only while a slot moves.
    for lacking in ["", "+cluster|info", "+cluster|slots", "+get"] {
        let mut user = vec!["ACL", "SETUSER", "some", "reset", "on", ">pw"];
        user.extend(rights.iter().filter(|right| **right != lacking));
        cluster.primaries[0].run(&user);
        let mut store = open(&url);
        let probed = store.probe(month, None);
        if lacking.is_empty() {
            probed.unwrap();
            store.read_usage(month, None).unwrap();
        } else {
            let error = probed.expect_err(lacking).to_string();
            assert!(error.contains("NOPERM"), "{lacking}: {error}");
        }
    }
}

#[test]
fn learner_permissions_suffice_and_are_needed() {
    let server = RedisServer::start();
    for lacking in ["", LEARNER_ACL[0], LEARNER_ACL[1]] {
        // The store is full, so that a new name evicts an old one.
        let fill_script = format!(
            "for i = 1, {MAX_DNS_FACTS} do \
             redis.call('ZADD', 'riskgate:{{dns}}:order', i, 'name-' .. i .. '.com') end \
             return redis.call('HSET', 'riskgate:{{dns}}:facts', 'version', {MAX_DNS_FACTS})"
        );
        server.run(&["FLUSHALL"]);
        server.run(&["EVAL", &fill_script, "0"]);
        let mut user = vec!["ACL", "SETUSER", "some", "reset", "on", ">pw"];
        user.extend(
            [&GATEWAY_ACL[..], &LEARNER_ACL].concat().iter().filter(|right| **right != lacking),
        );
        server.run(&user);
        let mut store = open(&server.url_as("some", "pw"));
        let row = DnsFactRow {
            name: "new.com".to_owned(),
            mx: ".".to_owned(),
            addresses: vec![],
            expires_at: 5,
        };
        let learned = store.save_dns_facts(std::slice::from_ref(&row));
        if lacking.is_empty() {
            learned.unwrap();
            let (rows, _) = store.read_dns_facts_page(MAX_DNS_FACTS as u64).unwrap();
            assert_eq!(rows, [row]);
        } else {
            let error = learned.expect_err(lacking).to_string();
            assert!(
                error.contains("NOPERM")
                    || error.contains("can't run this command")
                    || error.contains("ACL failure in script"),
                "{error}"
            );
            store.read_dns_facts_page(0).unwrap();
        }
    }
}

#[test]
fn webhook_permissions_suffice_and_are_needed() {
    let server = RedisServer::start();
    let month = Month::from_number(1_200).unwrap();
    let run_operations = |store: &mut Store| -> Result<(), StoreError> {
        for (key, forgotten_before) in [("a", 0), ("b", 300)] {
            store.record_quota_events(&[quota_event(key, month)], forgotten_before)?;
            let times = ClaimTimes { now: 200, latest_due: 900, claimed_until: 300 };
            let claimed = store.claim_quota_events(times, 1)?;
            store.finish_quota_event(&claimed[0], QuotaEventOutcome::Delivered(200))?;
        }
        store.count_pending_quota_events()?;
        store.quota_events_to_copy(month).map(drop)
    };
    for lacking in ["", WEBHOOK_ACL[0], WEBHOOK_ACL[1]] {
        server.run(&["FLUSHALL"]);
        let mut user = vec!["ACL", "SETUSER", "some", "reset", "on", ">pw"];
        user.extend(
            [&GATEWAY_ACL[..], &WEBHOOK_ACL].concat().iter().filter(|right| **right != lacking),
        );
        server.run(&user);
        let result = run_operations(&mut open(&server.url_as("some", "pw")));
        if lacking.is_empty() {
            result.unwrap();
        } else {
            let error = result.expect_err(lacking).to_string();
            let refused = ["NOPERM", "can't run this command", "ACL failure in script"];
            assert!(refused.iter().any(|text| error.contains(text)), "{lacking}: {error}");
        }
    }
}

#[test]
fn sign_up_permissions_suffice_and_are_needed() {
    let server = RedisServer::start();
    let run_operations = |store: &mut Store| -> Result<(), StoreError> {
        let (old, latest) = (sign_up(1, 5), sign_up(2, 1_790_000_000));
        store.append_sign_ups(&[old, latest], SignUpCursor::default())?;
        let settled = TimeTrust::Settled;
        store.set_time(BelievedTime { unix_now: latest.at, trust: settled });
        store.append_sign_ups(&[], SignUpCursor::default())?;
        let (page, _) = store.read_sign_ups_page(SignUpCursor::default())?;
        assert_eq!(page, [SignUpEntry::SignUp(latest)]);
        for created_at in [5, 4] {
            store.keep_inbox_secret(&StoredInboxSecret { secret: [1; 32], created_at })?;
        }
        let found = store.find_sign_ups(&[latest.inbox].into())?;
        let deletion = SignUpDeletion { found: &found, inboxes: &[latest.inbox] };
        assert_eq!(store.delete_sign_ups(&TESTER, &deletion)?, 1);
        store.read_inbox_secret().map(drop)
    };
    for lacking in ["", SIGN_UP_ACL[0]] {
        server.run(&["FLUSHALL"]);
        let mut user = vec!["ACL", "SETUSER", "some", "reset", "on", ">pw"];
        user.extend(
            [&GATEWAY_ACL[..], &SIGN_UP_ACL].concat().iter().filter(|right| **right != lacking),
        );
        server.run(&user);
        let result = run_operations(&mut open(&server.url_as("some", "pw")));
        if lacking.is_empty() {
            result.unwrap();
        } else {
            let error = result.expect_err(lacking).to_string();
            let refused = ["NOPERM", "can't run this command", "ACL failure in script"];
            assert!(refused.iter().any(|text| error.contains(text)), "{lacking}: {error}");
            assert!(server.matching_keys("*").is_empty(), "nothing was written before");
        }
    }
}

#[test]
fn shared_rates_need_only_the_permissions_of_a_gateway() {
    let server = RedisServer::start();
    let mut user = vec!["ACL", "SETUSER", "some", "reset", "on", ">pw"];
    user.extend(GATEWAY_ACL);
    server.run(&user);
    let url = server.url_as("some", "pw");
    open(&url).keep_inbox_secret(&StoredInboxSecret { secret: [1; 32], created_at: 5 }).unwrap();
    super::rates::charge_and_clean(&mut super::rates::open(&url));
}

/// The contents of a store with two keys and a sign-up.
fn contents_to_copy() -> StoreContents {
    let source = RedisServer::start();
    let mut store = open(&source.url());
    add_keys(&mut store, &[key(1, "acme"), key(2, "acme")]);
    StoreContents {
        ring: rows(&mut store),
        usage_month: Month::from_number(1_200).unwrap(),
        usage: Vec::new(),
        top_rows: Vec::new(),
        audit: Vec::new(),
        source_states: Vec::new(),
        daily_usage: Vec::new(),
        quota_events: Vec::new(),
        inbox_secret: None,
        sign_ups: vec![sign_up(1, 1_790_000_000)],
        overrides: Vec::new(),
        damaged_overrides: Vec::new(),
    }
}

#[test]
fn a_copy_without_a_permission_fails_and_can_be_repeated() {
    let contents = contents_to_copy();
    for lacking in COPY_TARGET_ACL {
        let server = RedisServer::start();
        let rights = [&GATEWAY_ACL[..], &WRITER_ACL, &COPY_TARGET_ACL].concat();
        let mut user = vec!["ACL", "SETUSER", "some", "on", ">pw"];
        user.extend(rights.iter().filter(|right| **right != lacking));
        server.run(&user);
        let mut user_store = open(&server.url_as("some", "pw"));
        user_store.fill_empty_store(&TESTER, &contents).expect_err(lacking);
        let names = server.matching_keys("riskgate:{ring}:*");
        let is_of_ring = |name: &&String| !name.ends_with(":meta") && !name.ends_with(":audit");
        let is_visible = |name: &&String| !name.contains(":staged:") && is_of_ring(name);
        assert_eq!(names.iter().find(is_visible), None, "{lacking}");
        server.run(&["ACL", "SETUSER", "some", lacking]);
        let mut user_store = open(&server.url_as("some", "pw"));
        user_store.fill_empty_store(&TESTER, &contents).unwrap();
        let filled = rows(&mut user_store);
        let copied = contents.ring.clone();
        assert_eq!((filled.keys, filled.accounts), (copied.keys, copied.accounts));
        for name in ["keys", "digests", "accounts", "changed"] {
            let ttl = server.run(&["PTTL", &format!("riskgate:{{ring}}:{name}")]);
            assert_eq!(ttl.trim(), "-1", "{name} stays for ever");
        }
    }
}

#[test]
fn a_copy_to_a_cluster_whose_last_step_fails_leaves_nothing_and_can_be_repeated() {
    let cluster = RedisCluster::start(1);
    let url = cluster.url().replace("://", "://some:pw@");
    let server = &cluster.primaries[0];
    let contents = contents_to_copy();
    let rights = [&GATEWAY_ACL[..], &CLUSTER_ACL, &WRITER_ACL, &COPY_TARGET_ACL].concat();
    let mut user = vec!["ACL", "SETUSER", "some", "on", ">pw"];
    user.extend(rights.iter().filter(|right| **right != "+hincrby"));
    server.run(&user);
    open(&url).fill_empty_store(&TESTER, &contents).expect_err("a right is missing");
    assert_eq!(server.matching_keys("riskgate:{sign_ups}*"), [""; 0]);
    server.run(&["ACL", "SETUSER", "some", "+hincrby"]);
    let mut store = open(&url);
    store.fill_empty_store(&TESTER, &contents).unwrap();
    assert_eq!(rows(&mut store).keys, contents.ring.keys);
    assert_eq!(server.matching_keys("riskgate:{sign_ups}*").len(), 1);
}

/// Changes of an existing store. Each of them has a record.
type NamedChange = (&'static str, fn(&mut Store) -> Result<(), StoreError>);

const CHANGES: [NamedChange; 6] = [
    ("add", |store| store.add_keys(&TESTER, &[(key(3, "new"), None)], None)),
    ("account", |store| store.set_account(&TESTER, "acme", Some("pro"), None)),
    ("rotate", |store| {
        store.rotate_key(&TESTER, &rotation("key_1", &key(2, "acme"), 1_900_000_000, 5), None)
    }),
    ("revoke", |store| store.expire_or_revoke_key(&TESTER, "key_1", None, Some(9))),
    ("restore", |store| store.write_back_lost_rows(&TESTER, &[key(4, "acme")], &[]).map(drop)),
    ("init", |store| store.mark_as_store(&TESTER)),
];

#[test]
fn a_change_that_fails_for_a_missing_right_leaves_no_record() {
    let server = RedisServer::start();
    let mut admin = open(&server.url());
    let as_user_without = |lacking: &str| {
        let mut user = vec!["ACL", "SETUSER", "some", "reset", "on", ">pw"];
        let rights = [&GATEWAY_ACL[..], &WRITER_ACL].concat();
        user.extend(rights.iter().filter(|right| **right != lacking));
        server.run(&user);
        open(&server.url_as("some", "pw"))
    };
    // On an empty server, each change first makes it a store.
    for lacking in WRITER_ACL {
        let mut store = as_user_without(lacking);
        let changes: [NamedChange; 3] = [
            ("init", |store| store.mark_as_store(&TESTER)),
            ("add", |store| store.add_keys(&TESTER, &[(key(1, "acme"), None)], None)),
            ("deny", |store| super::overrides::set(store, "a.com", "deny").map(drop)),
        ];
        for (name, change) in changes {
            let before = admin.read_audit_after(None, 9).unwrap().len();
            let changed = change(&mut store);
            assert!(
                changed.is_err() || (name != "add" && lacking != "+hsetnx"),
                "{name} {lacking}"
            );
            let records = admin.read_audit_after(None, 9).unwrap().len() - before;
            assert_eq!(records, usize::from(changed.is_ok()), "{name} without {lacking}");
        }
        if lacking == "+hsetnx" {
            assert!(server.matching_keys("*").is_empty(), "{lacking}");
        }
        server.run(&["FLUSHALL"]);
    }
    add_keys(&mut admin, &[key(1, "acme")]);
    let before = (rows(&mut admin), admin.read_audit_after(None, 9).unwrap().len());
    for lacking in WRITER_ACL {
        let mut store = as_user_without(lacking);
        for (name, change) in CHANGES.iter().filter(|it| it.0 != "init" || lacking == "+hsetnx") {
            change(&mut store).expect_err(name);
            let records = admin.read_audit_after(None, 9).unwrap().len();
            let found = (rows(&mut admin), records);
            assert_eq!(found.1, before.1, "{name} without {lacking}");
            assert_eq!(found.0.keys, before.0.keys, "{name} without {lacking}");
            assert_eq!(found.0.accounts, before.0.accounts, "{name} without {lacking}");
        }
    }
    let mut store = as_user_without("");
    CHANGES.iter().for_each(|(name, change)| change(&mut store).expect(name));
}

/// What each change with a record needs to write.
const RECORD_ACL: [&str; 4] = ["+hset", "+hdel", "+xadd", "+xrevrange"];

/// A change with a record, and what it needs beside [`RECORD_ACL`] to write.
type ChangeWithRights = (NamedChange, &'static [&'static str]);

const CHANGES_OUTSIDE_THE_RING: [ChangeWithRights; 5] = [
    (("deny", |store| super::overrides::set(store, "new.com", "deny").map(drop)), &[]),
    (("clear", |store| super::overrides::clear(store, "a.com").map(drop)), &[]),
    (("take over", |store| super::overrides::take_over(store, "/o.csv", &[]).map(drop)), &[]),
    (("source", |store| record_source_state(store, "2")), &[]),
    (
        ("repair", |store| store.repair_month(&TESTER, Month::from_number(300).unwrap()).map(drop)),
        &["+del", "+zrem"],
    ),
];

fn record_source_state(store: &mut Store, value: &str) -> Result<(), StoreError> {
    let state = SourceState {
        subject: "config on a".to_owned(),
        shared_subject: "config".to_owned(),
        entries: BTreeMap::from([("a".to_owned(), value.to_owned())]),
    };
    store.record_source_state(&TESTER, AuditOperation::ConfigChange, &state).map(drop)
}

/// All Redis keys with their contents.
fn read_all(server: &RedisServer) -> Vec<(String, String)> {
    let mut names = server.matching_keys("*");
    names.sort_unstable();
    let read = |name: &String| {
        if server.run(&["TYPE", name]) != "hash" {
            return server.run(&["DUMP", name]);
        }
        // A read may change the order of the fields, while the server resizes the hash.
        let text = server.run(&["HGETALL", name]);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    names.iter().map(|name| (name.clone(), read(name))).collect()
}

#[test]
fn a_change_that_fails_for_a_missing_right_changes_nothing() {
    let server = RedisServer::start();
    let mut admin = open(&server.url());
    let of_ring = CHANGES[..5].iter().map(|change| (*change, &WRITER_ACL[..]));
    for ((name, change), further) in of_ring.chain(CHANGES_OUTSIDE_THE_RING) {
        for lacking in [&RECORD_ACL[..], further, &[""]].concat() {
            server.run(&["FLUSHALL"]);
            add_keys(&mut admin, &[key(1, "acme")]);
            super::overrides::set(&mut admin, "a.com", "deny").unwrap();
            record_source_state(&mut admin, "1").unwrap();
            admin.probe(Month::from_number(301).unwrap(), None).unwrap();
            let mut user = vec!["ACL", "SETUSER", "some", "reset", "on", ">pw"];
            let rights = [&GATEWAY_ACL[..], &WRITER_ACL, &["+del", "+zrem"]].concat();
            user.extend(rights.iter().filter(|right| **right != lacking));
            server.run(&user);
            let before = read_all(&server);
            let changed = change(&mut open(&server.url_as("some", "pw")));
            assert_eq!(changed.is_ok(), lacking.is_empty(), "{name} without {lacking}");
            let is_unchanged = read_all(&server) == before;
            assert_eq!(is_unchanged, changed.is_err(), "{name} without {lacking}");
        }
    }
}

#[test]
fn a_deletion_of_sign_ups_without_a_right_leaves_no_record() {
    let server = RedisServer::start();
    let mut admin = open(&server.url());
    let latest = sign_up(2, 1_790_000_000);
    admin.append_sign_ups(&[latest], SignUpCursor::default()).unwrap();
    let found = admin.find_sign_ups(&[latest.inbox].into()).unwrap();
    let mut user = vec!["ACL", "SETUSER", "some", "reset", "on", ">pw"];
    user.extend(GATEWAY_ACL);
    server.run(&user);
    let before = read_all(&server);
    let deletion = SignUpDeletion { found: &found, inboxes: &[latest.inbox] };
    open(&server.url_as("some", "pw")).delete_sign_ups(&TESTER, &deletion).unwrap_err();
    assert_eq!(read_all(&server), before);
}

#[test]
fn a_change_on_a_server_without_a_command_leaves_no_record() {
    let server = RedisServer::start_with_arguments(&["--rename-command", "ZADD", ""]);
    let mut store = open(&server.url());
    store.mark_as_store(&TESTER).unwrap();
    for (name, change) in &CHANGES[..5] {
        change(&mut store).expect_err(name);
        assert_eq!(store.read_audit_after(None, 9).unwrap().len(), 1, "{name}");
    }
}
