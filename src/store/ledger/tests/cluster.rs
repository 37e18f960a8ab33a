//! The ledger on a Cluster: slots that move, failovers, replicas, and primaries that lose data.

use super::server::{ACME_LEDGER_KEY, LIMIT_1000};
use super::*;
use crate::store::redis_server::RedisCluster;

/// The slot of [`ACME_LEDGER_KEY`].
fn acme_slot(cluster: &RedisCluster) -> String {
    cluster.primaries[0].run(&["CLUSTER", "KEYSLOT", ACME_LEDGER_KEY])
}

fn open_probed_cluster(cluster: &RedisCluster, wait_replicas: usize) -> (Store, Probe) {
    let options = RedisOptions { wait_replicas, ..RedisOptions::default() };
    let mut store = open_without_connecting(&cluster.url(), &options, Duration::from_secs(5));
    let probe = store.probe(test_month(), None).unwrap();
    (store, probe)
}

/// The index of the primary that has the totals of acme, and that of another primary, which does
/// not have the keys and accounts.
fn primaries_with_and_without_acme(cluster: &RedisCluster) -> (usize, usize) {
    let index_of = |redis_key: &str| {
        let port = cluster.primary_of(redis_key).port();
        cluster.primaries.iter().position(|primary| primary.port() == port).unwrap()
    };
    let (acme, ring) = (index_of(ACME_LEDGER_KEY), index_of("riskgate:{ring}:meta"));
    (acme, (0..3).find(|index| ![acme, ring].contains(index)).unwrap())
}

#[test]
fn reports_of_many_accounts_reach_all_primaries() {
    let cluster = RedisCluster::start(3);
    let (mut store, _) = open_probed_cluster(&cluster, 0);
    let mut node = TestNode::new(ALICE);
    let accounts = (0..300).map(|number| format!("account-{number:03}"));
    let reports: Vec<LeaseReport> = accounts
        .map(|account| LeaseReport { account, ..node.next_report(10, [0, 3], LIMIT_1000) })
        .collect();
    let grants = node.send_reports(&mut store, &reports).unwrap();
    assert!(grants.iter().all(|grant| grant.as_ref().unwrap().own_leased == 10));
    let rows: Vec<UsageRow> =
        reports.iter().map(|report| usage_row(&report.account, 3, 10)).collect();
    assert_eq!(store.read_usage(test_month(), None).unwrap(), rows);
    assert_eq!(store.latest_month_with_totals().unwrap(), Some(test_month()));
    for primary in &cluster.primaries {
        assert!(!primary.matching_keys("riskgate:ledger:*").is_empty());
    }
}

#[test]
fn totals_follow_a_slot_that_moves_between_known_primaries() {
    let cluster = RedisCluster::start(3);
    let (mut store, probe) = open_probed_cluster(&cluster, 0);
    let mut alice = TestNode::new(ALICE);
    alice.report(&mut store, 300, [0, 260], LIMIT_1000);
    let (from, to) = primaries_with_and_without_acme(&cluster);
    let [from, to] = [from, to].map(|index| &cluster.primaries[index]);
    cluster.move_slot(&acme_slot(&cluster), from, to);
    assert_eq!(to.matching_keys("riskgate:ledger:*"), [ACME_LEDGER_KEY]);
    assert_eq!(alice.report(&mut store, 400, [260, 270], LIMIT_1000).own_leased, 400);
    let again = store.probe(test_month(), Some(&probe)).unwrap();
    assert_eq!(again.incarnation, probe.incarnation, "a move loses nothing");
    assert_eq!(again.recovery_left, Duration::ZERO);
    assert_eq!(store.read_usage(test_month(), None).unwrap(), [usage_row("acme", 270, 400)]);
}

#[test]
fn a_report_waits_while_its_slot_is_moving() {
    let cluster = RedisCluster::start(3);
    let (mut store, _) = open_probed_cluster(&cluster, 0);
    let mut alice = TestNode::new(ALICE);
    alice.report(&mut store, 300, [0, 260], LIMIT_1000);
    let (from, to) = primaries_with_and_without_acme(&cluster);
    let [from, to] = [from, to].map(|index| &cluster.primaries[index]);
    let [from_id, to_id] = [from, to].map(|server| server.run(&["CLUSTER", "MYID"]));
    let slot = acme_slot(&cluster);
    to.run(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
    from.run(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
    // The script names two Redis keys, and one of them does not exist: TRYAGAIN.
    let (began, report) = (Instant::now(), alice.next_report(400, [260, 270], LIMIT_1000));
    let grant = std::thread::scope(|scope| {
        let reporting = scope.spawn(|| alice.send_report(&mut store, &report).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        assert!(!reporting.is_finished());
        from.run(&["MIGRATE", "127.0.0.1", &to.port().to_string(), ACME_LEDGER_KEY, "0", "5000"]);
        for server in [to, from] {
            server.run(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
        }
        reporting.join().unwrap()
    });
    assert_eq!(grant_totals(grant), (400, 0, 0));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[test]
fn a_slot_that_moves_for_long_delays_only_its_account() {
    let cluster = RedisCluster::start(3);
    let (mut store, _) = open_probed_cluster(&cluster, 0);
    let mut alice = TestNode::new(ALICE);
    alice.report(&mut store, 300, [0, 260], LIMIT_1000);
    let (from, to) = primaries_with_and_without_acme(&cluster);
    let [from, to] = [from, to].map(|index| &cluster.primaries[index]);
    let slot = acme_slot(&cluster);
    to.run(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from.run(&["CLUSTER", "MYID"])]);
    from.run(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to.run(&["CLUSTER", "MYID"])]);
    let of_acme = alice.next_report(400, [260, 270], LIMIT_1000);
    let (account, known) = ("other".to_owned(), TotalsKnownToNode::default());
    let of_other = LeaseReport { account, known, ..alice.next_report(10, [0, 3], LIMIT_1000) };
    let outcomes = alice.send_reports(&mut store, &[of_acme, of_other]).unwrap();
    let error = outcomes[0].as_ref().unwrap_err().to_string();
    assert!(error.contains("TRYAGAIN"), "{error}");
    assert_eq!(outcomes[1].as_ref().unwrap().own_leased, 10);
}

#[test]
fn a_new_primary_gets_reports_only_after_a_probe() {
    let mut cluster = RedisCluster::start(3);
    let (mut store, probe) = open_probed_cluster(&cluster, 0);
    let mut alice = TestNode::new(ALICE);
    alice.report(&mut store, 300, [0, 260], LIMIT_1000);
    let (from, _) = primaries_with_and_without_acme(&cluster);
    let new = RedisCluster::start_member(&[]);
    cluster.meet(&new);
    wait_until("all know the new server", || {
        let known = |server: &RedisServer| server.run(&["CLUSTER", "NODES"]).lines().count() == 4;
        let is_ready = new.run(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
        cluster.primaries.iter().all(known) && known(&new) && is_ready
    });
    // The other node has nothing to do with the slot.
    let (mut other, _) = open_probed_cluster(&cluster, 0);
    cluster.move_slot(&acme_slot(&cluster), &cluster.primaries[from], &new);
    cluster.primaries.push(new);
    let report = alice.next_report(400, [260, 270], LIMIT_1000);
    let error = alice.send_report(&mut store, &report).unwrap_err().to_string();
    assert!(error.contains(&format!("slot {} has moved to", acme_slot(&cluster))), "{error}");
    let error = alice.send_report(&mut store, &report).unwrap_err().to_string();
    assert!(error.ends_with("no connection"), "{error}");
    cluster.wait_until_ready();
    let after = store.probe(test_month(), Some(&probe)).unwrap();
    assert_ne!(after.incarnation, probe.incarnation);
    assert!(after.recovery_left > Duration::from_secs(1), "{after:?}");
    alice.recovery_left = after.recovery_left;
    let grant = alice.send_report(&mut store, &report).unwrap();
    assert_eq!((grant.own_leased, grant.is_recovering), (260, true), "nothing new is leased");
    assert_same_incarnation(&mut store, &mut other);
    // The new server loses its only slot again.
    cluster.move_slot(&acme_slot(&cluster), &cluster.primaries[3], &cluster.primaries[from]);
    let new = cluster.primaries.pop();
    cluster.wait_until_ready();
    assert_same_incarnation(&mut store, &mut other);
    drop(new);
    assert_same_incarnation(&mut store, &mut other);
}

/// Nodes that see different servers would make the store recover again and again.
#[track_caller]
fn assert_same_incarnation(store: &mut Store, other: &mut Store) {
    let [one, two] = [store, other].map(|store| {
        let mut latest = store.probe(test_month(), None);
        wait_until("the probe succeeds", || {
            latest = store.probe(test_month(), None);
            latest.is_ok()
        });
        latest.unwrap().incarnation
    });
    assert_eq!(one, two);
}

#[test]
fn a_primary_that_refuses_writes_is_named() {
    let cluster = RedisCluster::start(3);
    let (mut store, probe) = open_probed_cluster(&cluster, 0);
    assert_eq!(probe.write_refusal, None);
    let (_, other) = primaries_with_and_without_acme(&cluster);
    let other = &cluster.primaries[other];
    other.run(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let refusal = store.probe(test_month(), None).unwrap().write_refusal.unwrap();
    assert!(refusal.contains(&format!("127.0.0.1:{}: NOREPLICAS", other.port())), "{refusal}");
}

#[test]
fn a_primary_that_loses_its_data_recovers_before_anything_is_granted() {
    let cluster = RedisCluster::start(3);
    let (mut store, probe) = open_probed_cluster(&cluster, 0);
    let mut alice = TestNode::new(ALICE);
    alice.report(&mut store, 900, [0, 860], LIMIT_1000);
    let (acme, _) = primaries_with_and_without_acme(&cluster);
    cluster.primaries[acme].run(&["FLUSHALL"]);
    // Bob does not know acme.
    let (mut other, _) = open_probed_cluster(&cluster, 0);
    let after = other.probe(test_month(), None).unwrap();
    assert!(after.recovery_left > Duration::from_secs(1), "{after:?}");
    let mut bob = TestNode { recovery_left: after.recovery_left, ..TestNode::new(BOB) };
    let grant = bob.report(&mut other, 64, [0, 0], LIMIT_1000);
    assert_eq!((grant.own_leased, grant.is_recovering), (0, true));
    let of_alice = store.probe(test_month(), Some(&probe)).unwrap();
    assert_ne!(of_alice.incarnation, probe.incarnation);
    assert_eq!(of_alice.incarnation, after.incarnation, "both see the same data");
}

#[test]
fn a_failover_recovers_and_keeps_what_a_replica_has() {
    let mut cluster = RedisCluster::start_with_replicas(3);
    let (mut store, probe) = open_probed_cluster(&cluster, 1);
    let mut alice = TestNode::new(ALICE);
    alice.report(&mut store, 300, [0, 260], LIMIT_1000);
    let (acme, _) = primaries_with_and_without_acme(&cluster);
    cluster.primaries[acme].kill();
    let report = alice.next_report(400, [260, 270], LIMIT_1000);
    alice.send_report(&mut store, &report).unwrap_err();
    let mut after = store.probe(test_month(), Some(&probe));
    wait_until("the replica is promoted", || {
        after = store.probe(test_month(), Some(&probe));
        after.is_ok()
    });
    let after = after.unwrap();
    assert_ne!(after.incarnation, probe.incarnation);
    assert_eq!(store.missing_replicas(), 1, "the new primary has no replica");
    assert!(after.recovery_left > Duration::from_secs(1), "{after:?}");
    assert_eq!(store.read_usage(test_month(), None).unwrap(), [usage_row("acme", 260, 300)]);
}

#[test]
fn each_primary_needs_its_replicas() {
    let mut cluster = RedisCluster::start_with_replicas(3);
    let (mut store, _) = open_probed_cluster(&cluster, 1);
    assert_eq!(store.missing_replicas(), 0);
    let mut alice = TestNode::new(ALICE);
    alice.report(&mut store, 300, [0, 260], LIMIT_1000);
    let (acme, other) = primaries_with_and_without_acme(&cluster);
    cluster.replicas[other].kill();
    // The replica of the primary that has acme got the report.
    assert_eq!(alice.report(&mut store, 400, [260, 270], LIMIT_1000).own_leased, 400);
    wait_until("a probe notices", || {
        store.probe(test_month(), None).unwrap();
        store.missing_replicas() == 1
    });
    cluster.replicas[acme].kill();
    let report = alice.next_report(500, [400, 280], LIMIT_1000);
    let error = alice.send_report(&mut store, &report).unwrap_err().to_string();
    assert!(error.contains("only 0 of 1 replicas have it"), "{error}");
}

#[test]
fn a_slot_without_an_owner_is_a_store_that_is_down() {
    let cluster = RedisCluster::start(1);
    let server = &cluster.primaries[0];
    // Without this setting, the server refuses all commands.
    server.run(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    server.run(&["CLUSTER", "DELSLOTS", "16383"]);
    let mut store =
        open_without_connecting(&cluster.url(), &RedisOptions::default(), Duration::from_secs(5));
    let error = store.probe(test_month(), None).unwrap_err().to_string();
    assert!(error.contains("slot 16383 has no owner"), "{error}");
}

#[test]
fn a_dead_primary_without_a_replica_is_a_store_that_is_down() {
    let mut cluster = RedisCluster::start(3);
    let (mut store, probe) = open_probed_cluster(&cluster, 0);
    let (acme, _) = primaries_with_and_without_acme(&cluster);
    cluster.primaries[acme].kill();
    store.probe(test_month(), Some(&probe)).unwrap_err();
    wait_until("the others agree", || {
        let error = store.probe(test_month(), Some(&probe)).unwrap_err().to_string();
        error.contains("cluster_state is fail")
    });
    cluster.primaries[acme].restart();
    let mut after = None;
    wait_until("the Cluster takes commands", || {
        after = store.probe(test_month(), Some(&probe)).ok();
        after.is_some()
    });
    let after = after.unwrap();
    assert_ne!(after.incarnation, probe.incarnation);
    assert!(after.recovery_left > Duration::from_secs(1), "{after:?}");
}

#[test]
fn an_account_whose_keys_have_several_slots_harms_no_other() {
    let cluster = RedisCluster::start(1);
    let (mut store, _) = open_probed_cluster(&cluster, 0);
    let mut node = TestNode::new(ALICE);
    let odd = LeaseReport { account: "}x".to_owned(), ..node.next_report(10, [0, 3], LIMIT_1000) };
    let reports = [odd, node.next_report(10, [0, 3], LIMIT_1000)];
    let outcomes = node.send_reports(&mut store, &reports).unwrap();
    let error = outcomes[0].as_ref().unwrap_err().to_string();
    assert!(error.contains("CROSSSLOT"), "{error}");
    assert_eq!(outcomes[1].as_ref().unwrap().own_leased, 10);
}
